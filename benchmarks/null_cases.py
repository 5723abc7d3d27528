"""Crowds about which a published test or interval should say nothing wrong, and what a simulation of one consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise import Annotations

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Kind = Literal["test", "interval", "estimate"]

SKEWED = (0.9, 0.07, 0.03)
LEVEL = 0.95
ALARM = 0.05  # nominal rate


class Published(NamedTuple):
    """A test, of which the share of false alarms counts, or an interval, of which the coverage does."""

    what: str
    kind: Kind
    nominal: float


def alarm(what: str, nominal: float = ALARM) -> Published:
    """A test that should alarm at most this often if there is nothing to find."""
    return Published(what, "test", nominal)


def interval(what: str, nominal: float = LEVEL) -> Published:
    """An interval that should hold the true value this often."""
    return Published(what, "interval", nominal)


def estimate(what: str, nominal: float = LEVEL) -> Published:
    """A range that is no probability of coverage: it rests on assumptions that labels alone cannot check."""
    return Published(what, "estimate", nominal)


Outcome = Mapping[str, float]
"""By the key of what is published: 1 or 0, a share of several intervals, or NaN if there was nothing to count."""


@dataclass(frozen=True)
class Simulation:
    """Crowds of one kind, drawn again and again, and what is published about each."""

    area: str
    """Page of the documentation: agreement, judges, quality, aggregation or reliability."""
    published: Mapping[str, Published]
    settings: Mapping[str, Mapping[str, Any]]
    draw: Callable[..., Outcome]
    """Takes a generator and the options of a setting."""
    trials: int
    """In a full run."""
    fast: tuple[str, ...] = field(default=())
    """Settings that are cheap enough for a quick run."""
    fewer: Mapping[str, int] = field(default_factory=dict)
    """Trials of a full run in settings that take long."""

    def trials_of(self, setting: str) -> int:
        """How often a setting is drawn in a full run."""
        return self.fewer.get(setting, self.trials)


def shares_of(classes: int, skewed: bool = False) -> Floats:
    """How frequent the classes are: alike, or one of them far more than others."""
    if not skewed:
        return np.full(classes, 1 / classes)
    rest = np.linspace(2, 1, classes - 1)
    return np.append(0.9, 0.1 * rest / rest.sum())


def said(rng: np.random.Generator, truth: Ints, right: float | Floats, classes: int) -> Ints:
    """Labels that are right with a probability; wrong ones are uniform among the other classes."""
    wrong = (truth + rng.integers(1, classes, truth.shape)) % classes
    return np.where(rng.random(truth.shape) < right, truth, wrong)


def crowd(
    rng: np.random.Generator,
    *,
    n: int,
    annotators: int,
    classes: int,
    votes: int,
    skills: tuple[float, float] = (0.55, 0.95),
    skewed: bool = False,
) -> tuple[Annotations, Ints, Floats]:
    """Annotators of uneven skill who err independently: annotations, true classes (n,) and skills (R,)."""
    truth = rng.choice(classes, n, p=shares_of(classes, skewed)).astype(np.int64)
    skill = np.linspace(*skills, annotators)
    instance = np.repeat(np.arange(n), votes)
    annotator = np.argsort(rng.random((n, annotators)), axis=1)[:, :votes].ravel()
    label = said(rng, truth[instance], skill[annotator], classes)
    sizes = {"n_instances": n, "n_annotators": annotators, "n_classes": classes}
    return Annotations.from_triples(instance, annotator, label, **sizes), truth, skill


CROWDS: dict[str, dict[str, Any]] = {
    "usual": {"n": 300, "annotators": 10, "classes": 3, "votes": 4},
    "few items": {"n": 40, "annotators": 5, "classes": 3, "votes": 4},
    "many items": {"n": 2_000, "annotators": 20, "classes": 4, "votes": 5},
    "two classes, two labels": {"n": 200, "annotators": 8, "classes": 2, "votes": 2},
    "eight classes": {"n": 300, "annotators": 10, "classes": 8, "votes": 4},
    "skewed classes": {"n": 300, "annotators": 10, "classes": 3, "votes": 4, "skewed": True},
    "few labels each": {"n": 200, "annotators": 60, "classes": 3, "votes": 3},
}
"""Settings that many simulations share."""


def holds(low: Any, high: Any, value: Any) -> float:
    """Share of the intervals that hold their value; NaN without any."""
    low, high, value = (np.asarray(each, np.float64) for each in np.broadcast_arrays(low, high, value))
    known = ~(np.isnan(low) | np.isnan(high) | np.isnan(value))
    inside = (low - 1e-9 <= value) & (value <= high + 1e-9)
    return float(inside[known].mean()) if known.any() else float("nan")
