"""Ordered classes: scales such as none < mild < severe, declared, or recognised by their names or numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from crowdwise.agreement._measures import coincidences
from crowdwise.annotations import Annotations
from crowdwise.data.types import Floats
from crowdwise.errors import ConfigError, spelled, suggest

Ordered = Literal["auto", "no"] | Sequence[Any]
"""Declared order of the classes; "auto" to recognise it, "no" for names without order."""

KNOWN: tuple[str, ...] = (
    "none, absent, no, normal | minimal, trace, doubtful, questionable, borderline | slight, very mild | mild | moderate"
    " | marked, considerable | severe | very severe, extreme, critical",
    "strongly disagree, completely disagree, totally disagree | disagree | somewhat disagree, slightly disagree, rather disagree"
    " | neutral, neither agree nor disagree, neither, undecided | somewhat agree, slightly agree, rather agree | agree"
    " | strongly agree, completely agree, totally agree",
    "none, no | very low | low | medium, moderate, mid, middle, average | high | very high | critical, extreme",
    "never | almost never, very rarely | rarely, seldom | sometimes, occasionally | often, frequently"
    " | very often, usually, mostly | almost always, nearly always | always",
    "terrible, awful, very poor, very bad | poor, bad | fair, average, okay, ok, mediocre, acceptable, neutral, satisfactory"
    " | good | very good, great | excellent, outstanding, perfect",
    "very dissatisfied | dissatisfied, unsatisfied | somewhat dissatisfied, slightly dissatisfied"
    " | neutral, neither satisfied nor dissatisfied, neither | somewhat satisfied, slightly satisfied | satisfied"
    " | very satisfied",
    "very unlikely, extremely unlikely | unlikely | neutral, possible, neither likely nor unlikely | likely"
    " | very likely, extremely likely",
    "very negative, strongly negative | negative | somewhat negative, slightly negative | neutral"
    " | somewhat positive, slightly positive | positive | very positive, strongly positive",
    "not at all | slightly, a little, a little bit | somewhat, moderately | quite, quite a bit, rather | very, very much"
    " | extremely, completely",
    "tiny, very small, extra small | small | medium | large, big | very large, huge, extra large",
    "much worse | worse | slightly worse, somewhat worse | same, the same, about the same, equal, no change, unchanged"
    " | slightly better, somewhat better | better | much better",
    "not relevant, irrelevant | slightly relevant, marginally relevant | partially relevant, partly relevant,"
    " somewhat relevant | relevant | highly relevant, very relevant | perfectly relevant",
    "very easy | easy | medium, moderate | hard, difficult | very hard, very difficult",
    "not important, unimportant | slightly important | moderately important, somewhat important | important"
    " | very important | extremely important",
)
"""Scales from the lowest to the highest place; words between commas share a place."""
MOST_STEPS = 100  # of a scale of numbers
NEAR = 0.8  # labels that differ are on a scale if their squared distance is below this share of what chance gives,
CERTAIN = 3.0  # by this number of standard errors


@dataclass(frozen=True)
class Scale:
    """An order of the classes of a crowd.

    >>> print(Scale((2.0, 1.0, 3.0), ("mild", "none", "severe"), "known"))
    none < mild < severe
    """

    values: tuple[float, ...]
    """The number of every class, in the order of ``annotations.classes``: ``values`` of the measures of agreement."""
    classes: tuple[str, ...]
    """The classes, in the same order."""
    source: Literal["declared", "known", "numbers"]
    """Whether the order was declared, is that of known words, or that of the classes as numbers."""

    @cached_property
    def in_order(self) -> tuple[str, ...]:
        """The classes from the lowest to the highest."""
        return tuple(self.classes[code] for code in np.argsort(self.values))

    @property
    def reason(self) -> str:
        """Why the classes count as ordered, in a few words."""
        reasons = {
            "declared": "as declared",
            "known": "as their names say",
            "numbers": "they are numbers, and labels that differ are near each other",
        }
        return reasons[self.source]

    def __str__(self) -> str:
        return " < ".join(self.in_order)


def scale_of(annotations: Any, ordered: Ordered = "auto") -> Scale | None:
    """The order of the classes; None if they are names without order.

    ``ordered`` lists the classes from the lowest to the highest; "no" says that they have no order. By default, "auto", an
    order is recognised if there are three classes or more:

    - Words of a common scale, such as none, mild, severe; low, medium, high; never ... always; poor ... excellent; strongly
      disagree ... strongly agree.
    - Numbers, also with the same words around them ("grade 2"), that lie evenly (1, 2, 3, 5) if labels of an item that
      differ are nearer to each other than by chance. Codes of names are thus not taken for grades.

    >>> print(scale_of([["mild", "none", "none"], ["severe", "mild", "severe"]]))
    none < mild < severe
    >>> print(scale_of([["cold", "hot", "cold"]], ordered=["cold", "mild", "hot"]))
    cold < hot
    >>> scale_of([["cat", "dog", "owl"]]) is None
    True
    """
    crowd = Annotations.coerce(annotations)
    names = tuple(str(name) for name in crowd.classes.tolist())
    if not isinstance(ordered, str):
        return Scale(_declared(crowd, ordered), names, "declared")
    if ordered not in ("auto", "no"):
        raise ConfigError(
            f"{spelled('ordered')} must be 'auto', 'no' or a list of the classes, got {ordered!r}", parameter="ordered"
        )
    if ordered == "no" or len(names) < 3:
        return None
    places = _known(names)
    if places is not None:
        return Scale(places, names, "known")
    numbers = numbers_of(names)
    if numbers is not None and _evenly(numbers) and _near(crowd, np.array(numbers)):
        return Scale(numbers, names, "numbers")
    return None


def numbers_of(names: Sequence[str]) -> tuple[float, ...] | None:
    """The number of every class; None if one has none, or two have the same.

    >>> numbers_of(["grade 2", "grade 10"]), numbers_of(["1 - bad", "2 - good"]), numbers_of(["1", "B2"])
    ((2.0, 10.0), (1.0, 2.0), None)
    """
    for pattern in (r"(?P<before>\D*?)(?P<number>[-+]?\d+(\.\d+)?)(?P<after>\D*)", r"(?P<number>\d+)\s*[-:.)=–]\s*\D+"):
        found = [re.fullmatch(pattern, name.strip()) for name in names]
        matches = [match for match in found if match is not None]
        if len(matches) < len(names):
            continue
        around = {tuple(match.groupdict().get(part) or "" for part in ("before", "after")) for match in matches}
        around = {(_plain(before), _plain(after).removesuffix("s")) for before, after in around}
        numbers = tuple(float(match["number"]) for match in matches)
        if len(around) == 1 and len(set(numbers)) == len(numbers):
            return numbers
    return None


def _plain(name: object) -> str:
    """A name without case, punctuation and repeated blanks."""
    return " ".join(re.sub(r"[\W_]+", " ", str(name).casefold()).split())


def _declared(crowd: Annotations, ordered: Iterable[Any]) -> tuple[float, ...]:
    """The number of every class: its place in the order, or itself if the order is that of numbers."""
    names = [str(name).strip() for name in ordered]
    keys = [_key(name) for name in names]
    if len(names) < 2:
        raise ConfigError(f"{spelled('ordered')}: an order needs two classes or more, got {names}", parameter="ordered")
    twice = [name for k, name in enumerate(names) if keys[k] in keys[:k]]
    if twice:
        raise ConfigError(f"{spelled('ordered')}: class {twice[0]!r} is listed twice", parameter="ordered")
    numbers = numbers_of(names)
    ascending = numbers is not None and list(numbers) == sorted(numbers)
    place = dict(zip(keys, numbers if ascending and numbers else map(float, range(len(names))), strict=True))
    missing = [str(name) for name in crowd.classes.tolist() if _key(name) not in place]
    if missing:
        raise ConfigError(
            f"{spelled('ordered')}: class {missing[0]!r} is not in the order {' < '.join(names)}{suggest(missing[0], names)}",
            parameter="ordered",
        )
    return tuple(place[_key(name)] for name in crowd.classes.tolist())


def _key(name: object) -> str | float:
    """What two spellings of a class have in common: its number, or its text without case and punctuation."""
    try:
        return float(str(name))
    except ValueError:
        return _plain(name) or str(name)


def _known(names: Sequence[str]) -> tuple[float, ...] | None:
    """Places of the classes, from 0 on without gaps, on the first known scale that has all of them."""
    for scale in KNOWN:
        place = {word.strip(): k for k, words in enumerate(scale.split("|")) for word in words.split(",")}
        places = [place.get(_plain(name)) for name in names]
        taken = sorted({found for found in places if found is not None})
        if None not in places and len(taken) == len(names):
            return tuple(float(taken.index(found)) for found in places if found is not None)
    return None


def _evenly(numbers: Sequence[float]) -> bool:
    """Whether at least half of the places of an even scale are taken."""
    ascending = np.sort(numbers)
    places = np.ptp(ascending) / np.diff(ascending).min() + 1
    return bool(places <= min(MOST_STEPS + 1, 2 * len(ascending)))


def _near(crowd: Annotations, number: Floats) -> bool:
    """Whether labels of an item that differ are nearer to each other than labels of different items that differ."""
    together = coincidences(crowd)
    labels = together.sum(axis=1)
    apart = ~np.eye(len(number), dtype=bool)
    distance = ((number[:, None] - number) ** 2)[apart]
    differing, by_chance = together[apart], np.outer(labels, labels)[apart]
    if not differing.sum() or not by_chance.sum():
        return False
    expected = np.average(distance, weights=by_chance)
    spread = np.sqrt(np.average((distance - expected) ** 2, weights=by_chance))
    found = np.average(distance, weights=differing)
    pairs = differing.sum() / 2
    return bool(found < NEAR * expected and (expected - found) * np.sqrt(pairs) > CERTAIN * spread)
