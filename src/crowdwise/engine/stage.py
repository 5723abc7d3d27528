"""What a method asks of the engine: stages, and what a stage's loss is given: batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from crowdwise.engine.distributed import sum_over_ranks, world_size
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

    def mean(self, losses: Tensor) -> Tensor:
        """Weighted mean of losses (P,) over the annotations of the global batch; 0 where it has none."""
        return (losses * self.weight).sum() / self.total

    def instance_mean(self, values: Tensor) -> Tensor:
        """Mean of values (B, ...) over the instances of the global batch."""
        return sum_over_ranks(values.sum(0)) / self.size

    def instance_sum(self, values: Tensor) -> Tensor:
        """Sum of values (P, ...) over the annotations of each instance: (B, ...); padding does not count."""
        present = (self.weight > 0).reshape(-1, *[1] * (values.ndim - 1))
        total = values.new_zeros(len(self.unit), *values.shape[1:])
        return total.index_add(0, self.row, values * present)

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
    schedule: Callable[[int], float] = lambda epoch: 1.0  # factor on every learning rate, by epoch
    score: nn.Module | None = None  # classifier whose agreement with validation annotations is measured each epoch
    keep: Literal["last", "best"] = "last"  # weights at the end: of the last epoch or of the best-scoring one
    planner: Planner | None = None  # batches of unit positions for an epoch, instead of shuffled batches of batch_size
    before_epoch: Callable[[int], None] | None = None  # for methods that alternate (EM): called with the epoch
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


def step_schedule(milestones: Sequence[int], gamma: float) -> Callable[[int], float]:
    """Learning rate times gamma after each of the given numbers of epochs.

    >>> [round(step_schedule((2, 4), 0.1)(epoch), 2) for epoch in range(6)]
    [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    return lambda epoch: float(gamma ** sum(epoch >= milestone for milestone in milestones))
