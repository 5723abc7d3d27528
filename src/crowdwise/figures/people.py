"""People: how good each annotator is, what their errors cost, and a verdict that weighs how many labels they gave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise import quality
from crowdwise.annotations import Annotations
from crowdwise.figures.evidence import Evidence

FEW = 10  # labels below which nobody is judged
WIDE = 0.3  # width of an interval of skill above which nobody is judged
USELESS = 0.25  # of a typical annotator's advantage over chance; who has less for certain need not be asked
SPAMMER = 0.9  # score from which on labels hardly depend on the item
SMALL = 3  # annotators up to which a typical one is no yardstick


class Verdict(StrEnum):
    """What to do about an annotator."""

    STOP = "stop asking"
    RELY = "rely on"
    FINE = "fine"
    FEW = "too few labels"


@dataclass(frozen=True)
class Person:
    """An annotator: labels, skill with its 95 % interval, and what to do."""

    name: str
    labels: int
    skill: float
    low: float
    high: float
    spammer: float
    """1 if labels do not depend on the item, 0 for perfect ones."""
    model: bool = False
    verdict: Verdict | None = None

    @property
    def cost(self) -> float:
        """Labels that are certainly wrong: all of them, times the share that is wrong at the upper end of the interval.

        >>> Person("a", 10, 0.6, 0.3, 0.83, 0.9).cost < Person("b", 1486, 0.48, 0.46, 0.51, 0.9).cost
        True
        """
        return self.labels * (1 - self.high)


def annotator_profiles(crowd: Annotations, posterior: Any, given: Evidence, **more: Any) -> pa.Table:
    """`crowdwise.quality.annotators`, of which only what was counted, or measured by gold, is left without evidence."""
    table = quality.annotators(crowd, posterior, **more)
    return table if given.enough else quality.ungraded(table)


def people(rows: Sequence[Mapping[str, Any]], models: Collection[str] = ()) -> list[Person]:
    """The annotators of rows of `crowdwise.quality.annotators` whose skill is known; ``models`` are names of models."""
    found = []
    for row in rows:
        if row["annotator_quality"] is None:
            continue
        name, spammer = str(row["annotator"]), row["spammer_score"]
        found.append(
            Person(
                name=name,
                labels=int(row["num_examples_labeled"]),
                skill=row["annotator_quality"],
                low=row["annotator_quality_low"],
                high=row["annotator_quality_high"],
                spammer=0.0 if spammer is None else spammer,
                model=name in models,
            )
        )
    return found


def verdicts(everybody: Sequence[Person], n_classes: int) -> list[Person]:
    """The same annotators with verdicts, in the same order; nobody is named whose interval allows that they are fine.

    Stop: for certain less skilled than the typical person, with labels that hardly depend on the item, or hardly better
    than a guess. Rely: for certain as skilled as the typical person. Of `SMALL` people or fewer, intervals must not meet.
    """
    judged = [each for each in everybody if not each.model and each.labels >= FEW]
    if len(judged) < 2:
        return [replace(each, verdict=_unknown(each)) for each in everybody]
    chance, typical = 1 / max(n_classes, 1), float(np.median([each.skill for each in judged]))
    bar = chance + USELESS * max(typical - chance, 0)
    return [
        replace(each, verdict=_verdict(each, judged, typical, bar) if each in judged else _unknown(each))
        for each in everybody
    ]


def _unknown(each: Person) -> Verdict | None:
    return None if each.model else Verdict.FEW


def _verdict(each: Person, judged: Sequence[Person], typical: float, bar: float) -> Verdict:
    others = [other for other in judged if other is not each]
    apart = len(judged) > SMALL
    below = each.high < typical and (apart or each.high < min(other.low for other in others))
    above = each.low >= typical and (apart or each.low > max(other.high for other in others))
    if below and (each.spammer > SPAMMER or each.high < bar):
        return Verdict.STOP
    if above:
        return Verdict.RELY
    return Verdict.FEW if each.high - each.low > WIDE else Verdict.FINE


def ordered_by_cost(everybody: Sequence[Person]) -> list[Person]:
    """Who to talk to first: those to stop asking, the costliest first; then all others, the costliest first."""
    return sorted(everybody, key=lambda each: (each.verdict != Verdict.STOP, -each.cost, each.name))
