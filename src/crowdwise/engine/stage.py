"""What a method asks of the engine: stages, and what a stage's loss is given: batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from crowdwise.engine.distributed import sum_over_ranks, world_size
from crowdwise.engine.recipe import Augment, Schedule
from crowdwise.engine.tensors import Units


@dataclass
class Batch:
    """B instances and the P annotations they have. Padding (for static shapes) has weight 0."""

    x: Tensor  # (B, ...) prepared inputs
    unit: Tensor  # (B,) positions in the stage's units
    target: Tensor  # (B,) distilled label y*, or -1
    row: Tensor  # (P,) which of the B instances
    annotator: Tensor  # (P,)
    label: Tensor  # (P,)
    weight: Tensor  # (P,)
    total: Tensor  # () sum of weights over the global batch
    size: Tensor  # () instances in the global batch
    networks: int = 1  # K networks in one pass: everything is there K times, instance i of network k in row k B / K + i
    partner: tuple[Tensor, Tensor] | None = None  # with mixup: (B,) the unit mixed in, (B,) the share of one's own
    share: Tensor | None = None  # (P,) with mixup: the share of the annotation's instance

    def mean(self, losses: Tensor) -> Tensor:
        """Weighted mean of losses (P,) over the annotations of the global batch; 0 where it has none."""
        return (losses * self.weight).sum() / self.total

    def instance_mean(self, values: Tensor) -> Tensor:
        """Mean of values (B, ...) over the instances of the global batch."""
        return sum_over_ranks(values.sum(0)) / self.size

    def instance_sum(self, values: Tensor, amount: Tensor) -> Tensor:
        """Sum of values (P, ...) over the annotations of each instance, each ``amount`` (P,) of a label: (B, ...)."""
        counts = amount if self.share is None else amount * self.share
        total = values.new_zeros(len(self.unit), *values.shape[1:])
        return total.index_add(0, self.row, values * counts.reshape(-1, *[1] * (values.ndim - 1)))

    def of_units(self, values: Tensor) -> Tensor:
        """What ``values`` (N, ...) hold for the batch's instances, mixed as they are: (B, ...)."""
        own = values[self.unit]
        if self.partner is None:
            return own
        unit, share = self.partner
        return torch.lerp(values[unit], own, share.reshape(-1, *[1] * (own.ndim - 1)))

    def repeated(self, networks: int) -> Batch:
        """The batch once for each of several networks; means over it are means over the networks."""
        if networks == 1:
            return self
        first = torch.arange(networks, device=self.row.device)[:, None] * len(self.unit)
        return Batch(
            self.x.repeat(networks, *[1] * (self.x.ndim - 1)),
            self.unit.repeat(networks),
            self.target.repeat(networks),
            (first + self.row).flatten(),
            self.annotator.repeat(networks),
            self.label.repeat(networks),
            self.weight.repeat(networks),
            self.total * networks,
            self.size * networks,
            networks,
        )

    def once(self, loss: Tensor) -> Tensor:
        """A loss that every process computes alike must count once in the sum over processes."""
        return loss / world_size()


Loss = Callable[[Batch], Tensor]
Planner = Callable[[torch.Generator], Sequence[Tensor]]


@dataclass
class Group:
    """Parameters that are optimised alike. ``rows``: heads without examples in a batch stay as they are, momentum too."""

    module: nn.Module
    lr: float = 0.01
    weight_decay: float = 0.0
    rows: bool = False
    optimiser: str | None = None  # unless that of the stage
    average: bool = True  # whether a stage with an average of weights averages these; not what is computed afresh


@dataclass
class Stage:
    """One training run: minimise ``loss`` over ``units`` by changing the modules of ``groups``."""

    name: str
    units: Units
    loss: Loss
    groups: Mapping[str, Group]
    epochs: int
    batch_size: int = 128
    optimiser: str = "sgd"
    momentum: float = 0.9
    schedule: Schedule = lambda epoch: 1.0  # factor on every learning rate, by epochs so far (2.5: midway in the third)
    score: nn.Module | None = None  # classifier whose agreement with validation annotations is measured each epoch
    keep: Literal["last", "best"] = "last"  # weights at the end: of the last epoch or of the best-scoring one
    planner: Planner | None = None  # batches of unit positions for an epoch, instead of shuffled batches of batch_size
    before_epoch: Callable[[int], None] | None = None  # for methods that alternate (EM): called with the epoch
    augment: str | Augment = "none"  # what is done to prepared inputs in training
    ema: float = (
        0.0  # decay of the average of weights that is evaluated, and kept at the end; 0: the weights themselves
    )
    mixup: float = 0.0  # alpha of mixup; 0: none
    repeat: bool = True  # whether the loss is given a batch once for each of several networks
    patience: int = 0  # epochs without better agreement after which the stage ends; 0: never
    guard: Literal["off", "warn", "retry"] = "off"  # what to do where ``score`` is no better than a guess at the end
    keeps_classes: bool = False  # whether it is tried again, too, if ``score`` agrees less at the end than at the start
    shared: Mapping[str, Any] | None = None
    """What decides this stage, beside data, seed and the stages before it: methods that agree in it can share its result."""


@dataclass
class StageResult:
    """What the engine hands back to the method."""

    name: str
    epochs: int
    best_epoch: int
    agreement: float | None  # of the kept weights with the validation annotations
    history: list[dict[str, Any]] = field(default_factory=list)
