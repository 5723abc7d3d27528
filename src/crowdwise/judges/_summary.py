"""All models of a crowd on one page: how often each is right, whether it may replace people, what they are worth together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.agreement import chance_test
from crowdwise.annotations import Annotations
from crowdwise.data.comparing import comparable
from crowdwise.data.shares import wilson
from crowdwise.data.types import Ints
from crowdwise.errors import DataError
from crowdwise.judges._alt_test import EPSILON, AltTest, alt_test
from crowdwise.judges._dependence import Dependence, dependence
from crowdwise.judges._people import Models, Sides, likeliest, people_consensus
from crowdwise.registry import AGGREGATORS

PANEL = "panel"  # the aggregator for those who err alike
HARDLY_ANY = 0.2  # of the items of a class, up to which a model misses it
ALIKE = 0.8  # effective votes of a model below which models are said to err alike


@dataclass(frozen=True)
class Share:
    """How often a model is right, with a 95 % interval."""

    right: int
    total: int

    @property
    def value(self) -> float:
        return self.right / self.total

    @property
    def interval(self) -> tuple[float, float]:
        low, high = wilson(self.right, self.total)
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.1%} [{low:.0%}, {high:.0%}]"


@dataclass(frozen=True)
class MissedClass:
    """A class of which a model finds hardly any."""

    name: str
    found: int
    total: int
    """Items of this class by gold, or by the consensus of people."""

    def __str__(self) -> str:
        return f"{self.name!r} ({self.found} of {self.total} found)"


@dataclass(frozen=True)
class JudgedModel:
    """A model among the annotators."""

    model: Any
    n_labels: int
    people: Share | None
    """Against the consensus of two or more people; None where there is none."""
    gold: Share | None
    """Against gold labels."""
    passed: bool | None
    """The alternative annotator test; None where it cannot be made."""
    winning_rate: float | None
    advantage: float | None
    needed_epsilon: float | None
    """The smallest epsilon at which it passes."""
    needed_instances: int | None
    """Instances that each person should label, for it to pass if it is as good as it seems."""
    missed: tuple[MissedClass, ...] = ()
    """Classes of which it finds hardly any."""

    @property
    def verdict(self) -> str:
        """What to do with it, in a few words."""
        if self.passed is None:
            return "cannot be determined"
        if self.passed and self.missed:
            return "may replace a person, but misses a class"
        if self.passed:
            return "may replace a person"
        return "keep people" if self.needed_epsilon is None else f"keep people (passes at {self.needed_epsilon:.2f})"


@dataclass(frozen=True, eq=False)
class JudgedModels:
    """All models, and what they are worth together."""

    models: list[JudgedModel]
    n_people: int
    epsilon: float
    dependence: Dependence | None
    no_test: str | None
    """Why the test cannot be made."""

    @property
    def votes(self) -> str | None:
        """How many votes the models count as, in a sentence; None where that is not known."""
        found = self.dependence
        if found is None or np.isnan(found.effective_votes):
            return None
        return (
            f"{len(self.models)} models count as {found.effective_votes:.1f} votes (errors against {found.reference} "
            f"correlate by {found.mean_correlation:.2f})"
        )

    @property
    def advice(self) -> list[str]:
        """What to do, in sentences."""
        lines = []
        passed = [model for model in self.models if model.passed]
        if self.no_test is not None:
            lines.append(f"Whether a model may replace people cannot be determined: {self.no_test}.")
        elif passed:
            best = max(passed, key=lambda model: (model.advantage or 0, str(model.model)))
            lines.append(f"{best.model} may label in place of a person; let people check a sample (crowdwise route).")
        else:
            lines.append("No model may replace people: let people label what models are unsure of (crowdwise route).")
        lines += [
            f"{model.model} finds hardly any of {', '.join(map(str, model.missed))}: people should label these."
            for model in self.models
            if model.missed
        ]
        found = self.dependence
        if found is not None and found.beyond_chance and found.effective_votes < ALIKE * len(self.models):
            better = f": aggregate with method {PANEL}" if PANEL in AGGREGATORS else ""
            lines.append(f"The models err alike, and should not count as one vote each{better}.")
        if all(model.gold is None for model in self.models):
            lines.append("Some 100 gold labels would tell how often each model is right (crowdwise estimate).")
        return lines

    def to_table(self) -> pa.Table:
        """A row per model."""
        rows = []
        for model in self.models:
            row: dict[str, Any] = {"model": model.model, "n_labels": model.n_labels}
            for name, share in (("people", model.people), ("gold", model.gold)):
                low, high = (None, None) if share is None else share.interval
                value = None if share is None else share.value
                row |= {f"accuracy_{name}": value, f"{name}_low": low, f"{name}_high": high}
            row |= {
                "passed": model.passed,
                "winning_rate": model.winning_rate,
                "advantage_probability": model.advantage,
            }
            row |= {"needed_epsilon": model.needed_epsilon, "needed_instances": model.needed_instances}
            rows.append(row | {"missed": ", ".join(map(str, model.missed)) or None, "verdict": model.verdict})
        return pa.Table.from_pylist(rows)


def summary(
    annotations: Any,
    gold: Any = None,
    *,
    models: Models = None,
    kinds: Any = None,
    people: Any = "crowd",
    epsilon: float | None = None,
    score: Any = "accuracy",
    random_state: int = 0,
) -> JudgedModels:
    """Every model compared with people (`alt_test`) and with gold labels, and all of them with each other (`dependence`).

    There is no verdict, and no share against people, if people agree no more than by chance or gave a single class:
    nothing then tells a good model from a bad one. Classes of which a model finds hardly any are listed, by gold if there
    is any, else by the consensus of people.

    >>> crowd = [[c, c, c, c] for c in ["yes", "no"] * 20]
    >>> found = summary(crowd, models=[3])
    >>> print(found.models[0].people, found.models[0].verdict)
    100.0% [91%, 100%] may replace a person
    """
    sides = Sides.of(annotations, models, kinds)
    crowd, names = sides.crowd, [sides.name(code) for code in sides.models]
    n_people = int(np.count_nonzero(crowd.labels_per_annotator[sides.people]))
    test, no_test = _tested(sides, names, people=people, epsilon=epsilon, score=score, random_state=random_state)
    consensus, truth = None, gold_codes(crowd, gold)
    if n_people > 1 and _tell(sides.of_people()) is None:
        consensus = likeliest(people_consensus(sides))
    tables = [] if test is None else zip(test.table.to_pylist(), test.needed.to_pylist(), strict=True)
    found: Mapping[Any, Any] = {row["model"]: row | needed for row, needed in tables}
    rng = np.random.default_rng(random_state)
    judged = []
    for code, name in zip(sides.models, names, strict=True):
        said, row = sides.labels_of(code, rng), found.get(name, {})
        by_people, by_gold = (None if known is None else _share(said, known) for known in (consensus, truth))
        missed = _missed(said, consensus if truth is None else np.asarray(truth, np.int64), crowd.classes.tolist())
        tested = [row.get(key) for key in ("passed", "winning_rate", "advantage_probability", "epsilon", "n_instances")]
        n_labels = int(np.count_nonzero(said >= 0))
        passed, wins, advantage, epsilon_needed, instances_needed = tested
        judged.append(
            JudgedModel(
                name,
                n_labels,
                by_people,
                by_gold,
                passed,
                wins,
                advantage,
                epsilon_needed,
                instances_needed,
                missed,
            )
        )
    together = None
    if len(names) > 1 and (truth is not None or consensus is not None):
        together = dependence(crowd, gold, models=names)
    return JudgedModels(judged, n_people, EPSILON[people] if epsilon is None else epsilon, together, no_test)


def _tested(sides: Sides, names: list[Any], **options: Any) -> tuple[AltTest | None, str | None]:
    """The alternative annotator test, or why there is none."""
    try:
        test = alt_test(sides.crowd, names, **options)
    except DataError as error:
        return None, str(error)
    reason = _tell(sides.of_people())
    return (test, None) if reason is None else (None, reason)


def _tell(people: Annotations) -> str | None:
    """Why labels of people tell nothing about a model; None if they do."""
    if len(np.unique(people.label)) == 1:
        return f"people gave a single class, {str(people.classes[people.label[0]])!r}"
    if not comparable(people):
        return None  # the test says what is missing
    chance = chance_test(people)
    if chance.within_chance:
        return f"people agree no more than by chance (alpha {chance.alpha:.2f}, p = {chance.p_value:.2g})"
    return None


def _missed(said: Ints, truth: Ints | None, classes: list[Any]) -> tuple[MissedClass, ...]:
    """Classes of which fewer than half are found for certain, and hardly any in fact."""
    if truth is None:
        return ()
    both = (said >= 0) & (truth >= 0)
    total = np.bincount(truth[both], minlength=len(classes))
    found = np.bincount(truth[both & (said == truth)], minlength=len(classes))
    _, high = wilson(found, total)
    few = np.flatnonzero((high < 0.5) & (found <= HARDLY_ANY * total) & (total > 0))
    return tuple(MissedClass(str(classes[code]), int(found[code]), int(total[code])) for code in few)


def _share(said: Any, truth: Any) -> Share | None:
    both = (said >= 0) & (truth >= 0)
    return Share(int(np.sum(said[both] == truth[both])), int(both.sum())) if both.any() else None
