"""Recipes: how a classifier is trained where nothing else is said. Declared here once, used by every method."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from torch import Tensor

from crowdwise.constraints import (
    Interval,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Probability,
    check_parameters,
    check_value,
)

Schedule = Callable[[float], float]
Augment = Callable[[Tensor], Tensor]

# What each setting may be: the parameters of methods and the fields of `Recipe` share these types.
RecipeName = Literal["auto", "features", "pictures", "paper"]
OptimiserName = Literal["sgd", "adam", "adamw", "radam"]
ScheduleName = Literal["cosine", "steps", "constant"]
AugmentName = Literal["auto", "none", "crop", "crop-flip", "strong"]
Momentum = Annotated[float, Interval(0, 1, open="high")]
Dropout = Annotated[float, Interval(0, 0.95)]
Decay = Annotated[float, Interval(0, 0.99999)]
MixupAlpha = Annotated[float, Interval(0, 100)]

_RATES = {"sgd": 0.01, "adam": 1e-3, "adamw": 1e-3, "radam": 1e-3}  # for an optimiser that is not the recipe's own


@dataclass(frozen=True)
class Recipe:
    """Settings of a classifier stage. The parameters of `CrowdClassifier` with the same names override them."""

    optimiser: OptimiserName
    lr: NonNegativeFloat
    weight_decay: NonNegativeFloat
    schedule: ScheduleName | Schedule
    epochs: NonNegativeInt  # at least so many
    steps: NonNegativeInt  # and as many epochs more as make so many steps
    batch_size: PositiveInt
    momentum: Momentum = 0.9
    rise: float = 0.0  # epochs in which the rate of "cosine" rises; a share of all epochs if below 1
    milestones: Sequence[NonNegativeFloat] = ()  # of "steps"
    gamma: Probability = 0.1
    dropout: Dropout = 0.0
    augment: AugmentName | Augment = "none"
    ema: Decay = 0.0
    mixup: MixupAlpha = 0.0
    patience: NonNegativeInt = 0
    early_lr: float = 0.01  # of the stages before the classifier's: warm-up, transition networks
    early_steps: int = 100  # of a warm-up, at least
    retry: bool = True  # whether a stage that learnt nothing is tried again
    grow: int = (
        1  # batches of large data are up to so many times as large, unless a batch size, rate or average is given
    )

    def with_values(self, values: Mapping[str, Any]) -> Recipe:
        """This recipe with those of ``values`` that are not None, which are checked."""
        given = {name: value for name, value in values.items() if value is not None}
        if given.get("optimiser", self.optimiser) != self.optimiser:
            usual = _RATES.get(given["optimiser"], self.lr)
            given = {"lr": usual, "early_lr": usual, **given}
        if "milestones" in given and "schedule" not in given:
            given["schedule"] = "steps"
        if "epochs" in given and "steps" not in given:
            given["steps"] = 0  # so many epochs, and no more
        if "steps" in given and "epochs" not in given:
            given["epochs"] = 1
        if given.keys() & {"batch_size", "lr", "early_lr", "ema", "optimiser"}:
            given.setdefault("grow", 1)
        recipe = dataclasses.replace(self, **given)
        check_parameters(recipe)
        return recipe

    def for_instances(self, n: int) -> Recipe:
        """With the number of epochs for ``n`` training instances, and the size of their batches.

        Batches double, up to ``grow`` times, as long as an epoch has 64 of them. Rates grow with them, and averages forget as
        fast as before, so that the accuracy stays what it was.
        """
        factor = 1
        while 2 * factor <= self.grow and n >= 64 * self.batch_size * 2 * factor:
            factor *= 2
        batches = max(math.ceil(n / (factor * self.batch_size)), 1)
        return dataclasses.replace(
            self,
            epochs=max(self.epochs, math.ceil(self.steps / batches)),
            batch_size=factor * self.batch_size,
            lr=factor * self.lr,
            early_lr=factor * self.early_lr,
            ema=self.ema**factor,
            grow=1,
        )

    def enough_epochs(self, epochs: int | None, usual: int, steps: int, examples: int) -> int:
        """Of an early stage: ``epochs``; where these are None, the ``usual`` ones, or as many as make ``steps`` steps."""
        if epochs is not None:
            return epochs
        return max(usual, math.ceil(steps * self.batch_size / max(examples, self.batch_size)))

    def rates(self) -> Schedule:
        """The factor on every learning rate, by epochs of training so far."""
        if callable(self.schedule):
            return self.schedule
        if self.schedule == "cosine":
            return cosine_schedule(self.epochs, self.rise if self.rise >= 1 else self.rise * self.epochs)
        return step_schedule(self.drops() if self.schedule == "steps" else (), self.gamma)

    def drops(self) -> list[int]:
        """The milestones in epochs."""
        return [round(at * self.epochs) if at < 1 else int(at) for at in self.milestones]


FEATURES = Recipe(
    optimiser="adamw",
    lr=1e-3,
    weight_decay=0.01,
    schedule="cosine",
    rise=0.05,
    epochs=10,
    steps=1500,
    batch_size=64,
    dropout=0.5,
    ema=0.99,
    early_lr=1e-3,
    early_steps=300,
)
"""Feature vectors: about 1,500 steps, however many instances there are."""

PICTURES = Recipe(
    optimiser="sgd",
    lr=0.05,
    weight_decay=5e-4,
    schedule="cosine",
    rise=2,
    epochs=30,
    steps=1500,
    batch_size=128,
    augment="auto",
    ema=0.999,
    early_steps=300,
    grow=4,
)
"""Pictures: moved and mirrored, so that a wrong label is not learnt by heart."""

PAPER = Recipe(
    optimiser="sgd",
    lr=0.01,
    weight_decay=1e-4,
    schedule="steps",
    milestones=(2 / 3, 11 / 12),
    epochs=60,
    steps=0,
    batch_size=128,
    retry=False,
)
"""The protocol of the TAIDTM paper (section 5.1), with which its tables are reproduced."""

RECIPES = {"features": FEATURES, "pictures": PICTURES, "paper": PAPER}


def find_recipe(name: str, shape: tuple[int, ...]) -> Recipe:
    """The recipe of that name; ``"auto"``: that for inputs of this shape."""
    if name == "auto":
        name = "features" if len(shape) == 1 else "pictures"
    check_value("recipe", name, RecipeName)
    return RECIPES[name]


def step_schedule(milestones: Sequence[int], gamma: float) -> Schedule:
    """Learning rate times gamma after each of the given numbers of epochs.

    >>> [round(step_schedule((2, 4), 0.1)(epoch), 2) for epoch in range(6)]
    [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    return lambda epoch: float(gamma ** sum(epoch >= milestone for milestone in milestones))


def cosine_schedule(epochs: int, rise: float) -> Schedule:
    """A linear rise over the first ``rise`` epochs, then half a cosine to 0.

    >>> [round(cosine_schedule(6, 2)(epoch), 2) for epoch in (0, 1, 2, 4, 6)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def factor(epoch: float) -> float:
        if epoch < rise:
            return epoch / rise
        return (1 + math.cos(math.pi * min((epoch - rise) / max(epochs - rise, 1e-9), 1))) / 2

    return factor
