"""Noticing classifiers that learnt nothing: what is wrong with one, and how its stage is tried again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from scipy.stats import chi2
from torch import Tensor

from crowdwise.engine.stage import Group, Stage, StageResult
from crowdwise.engine.tensors import Units, pairs_of

if TYPE_CHECKING:
    from crowdwise.engine.loop import Engine

_ENOUGH = 20  # instances by which a classifier is judged: held-out ones, or else training instances
_SAMPLE = 2000
_BY_ADAM, _SLOWER = ", by Adam", ", slower"  # after the name of a stage that is tried again
_FLAT = 0.01  # standard deviation of every class's probability below which all predictions are called the same


def diagnosis(engine: Engine, stage: Stage) -> str | None:
    """Why the classifier of a finished stage is no better than a guess; None where it is better."""
    problem, classifier = engine.problem, stage.score
    held_out = len(problem.validation) >= _ENOUGH
    units = problem.validation if held_out else _sample(problem.train)
    if classifier is None or problem.n_classes < 2 or len(units) < _ENOUGH:
        return None
    posterior = torch.softmax(engine.evaluate(classifier, units).double(), 1)
    agreement, constant = soft_agreement(posterior.argmax(1), units), vote_shares(units, problem.n_classes).mean(0)
    best = float(constant.max())
    if best > 1 - 1e-9:
        return None  # annotators never disagree with one class: nothing is to be learnt
    if float(posterior.std(0, correction=0).max()) < _FLAT:
        return "it gives all instances nearly the same probabilities"
    if agreement <= best and not _related(posterior.argmax(1), vote_shares(units, problem.n_classes)):
        name = problem.annotations.classes.tolist()[int(constant.argmax())]
        whose = "held-out annotations" if held_out else "annotations"
        return (
            f"it agrees with {agreement:.3f} of {whose}, always saying {name!r} with {best:.3f}, and its predictions tell "
            "nothing about them"
        )
    return None


def lost_classes(engine: Engine, before: float | None, after: float | None) -> str | None:
    """Whether agreement with held-out annotations ended lower than it began, but for chance (three standard errors).

    The first steps at a high rate may leap to permuted classes: matrices permuted the other way explain the annotations
    just as well, so the loss falls on.
    """
    if before is None or after is None:
        return None
    chance = (before * (1 - before) / len(engine.problem.validation)) ** 0.5
    if after >= before - 3 * chance:
        return None
    return f"it lost classes: agreement with held-out annotations fell from {before:.3f} to {after:.3f}"


def lost_early(engine: Engine, stage: Stage, result: StageResult, before: float | None) -> bool:
    """Whether classes are lost after a third of the epochs, and have been since half of that: a leap is not made good later.

    A stage whose best epoch counts may go on.
    """
    third = math.ceil(stage.epochs / 3)
    if len(result.history) != third or stage.keep == "best":
        return False
    return all(lost_classes(engine, before, record["agreement"]) for record in result.history[third // 2 :])


def first_try(stage: str) -> str | None:
    """The name of the stage that the one of this name repeats, if it repeats one.

    >>> first_try("correction, slower"), first_try("correction")
    ('correction', None)
    """
    return next((stage.removesuffix(how) for how in (_BY_ADAM, _SLOWER) if stage.endswith(how)), None)


def another_try(stage: Stage, lost: bool) -> tuple[Stage, str]:
    """The rule for a second try, from the same start: Adam in place of sgd, else a fifth of all rates; and that in words."""
    if stage.optimiser == "sgd" and not lost:
        groups = {name: dataclasses.replace(group, lr=1e-3) for name, group in stage.groups.items()}
        again = dataclasses.replace(stage, name=stage.name + _BY_ADAM, groups=groups, optimiser="adam")
        return again, f"with Adam in place of sgd, at lr={_rate(groups):g}"
    groups = {name: dataclasses.replace(group, lr=group.lr / 5) for name, group in stage.groups.items()}
    again = dataclasses.replace(stage, name=stage.name + _SLOWER, groups=groups)
    return again, f"with a fifth of lr={_rate(stage.groups):g}"


def vote_shares(units: Units, n_classes: int) -> Tensor:
    """Share of each class among the labels of each unit, all of which have some: (N, C)."""
    row, pair = pairs_of(units.indptr, torch.arange(len(units), device=units.device))
    shares = torch.zeros(len(units), n_classes, dtype=torch.float64, device=units.device)
    shares.index_put_((row, units.label[pair]), units.weighed(shares.new_ones(len(row))).double(), accumulate=True)
    return shares / shares.sum(1, keepdim=True)


def soft_agreement(predicted: Tensor, units: Units) -> float:
    """Mean over units of the share of their labels that are the ``predicted`` class (N,)."""
    row, pair = pairs_of(units.indptr, torch.arange(len(units), device=units.device))
    agrees = units.weighed((predicted[row] == units.label[pair]).double())
    share = torch.zeros(len(units), dtype=torch.float64, device=units.device).index_add_(0, row, agrees)
    number = units.indptr.diff().double()
    if units.given is not None:
        number = torch.zeros_like(share).index_add_(0, row, units.given.double())
    return float((share / number).mean())


def _related(predicted: Tensor, shares: Tensor) -> bool:
    """Whether labels (N, C) depend on the predicted class (N,), by a G-test at 1 %.

    Where errors depend on the class, the truth may agree less with annotations than their most frequent label does.
    """
    table = torch.zeros(shares.shape[1], shares.shape[1], dtype=torch.float64, device=shares.device)
    table.index_add_(0, predicted, shares)
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    expected = table.sum(1, keepdim=True) * table.sum(0) / table.sum()
    statistic = 2 * float(torch.special.xlogy(table, table / expected).sum())
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    return freedom > 0 and bool(chi2.sf(statistic, freedom) < 0.01)


def _sample(units: Units) -> Units:
    if len(units) <= _SAMPLE:
        return units
    return units.subset(torch.arange(0, len(units), len(units) // _SAMPLE, device=units.device))


def _rate(groups: Mapping[str, Group]) -> float:
    return next(iter(groups.values())).lr
