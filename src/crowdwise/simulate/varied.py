"""Crowds of many kinds: sizes, skills, biases, hard items and dependence are drawn anew for each.

They are for measuring methods on crowds that nobody chose. An annotator finds class l of an item with true class y as
attractive as

    u(l) = s_j d_i [l = y] + b_j(l) + H_j(y, l) + G(y, l) + k_j v_i(l) + f(l),

with the skill s_j, the item's clearness d_i, the annotator's bias b and habits H, confusions G common to all, the item's look v
(misleading for some) times the annotator's sensitivity k, and f, what a family of annotators sees alike; the label is drawn
from the softmax of u. Some annotators answer at random, choose one class, or answer against the truth; some copy others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crowdwise.annotations import Annotations
from crowdwise.constraints import check_value
from crowdwise.data.types import Floats, Ints, RandomState

Kind = Literal["people", "panel", "independent"]
KINDS: tuple[Kind, ...] = ("people", "panel", "independent")
CLASSES = (2, 3, 4, 5, 8, 15)
CLASS_WEIGHTS = (0.38, 0.18, 0.14, 0.12, 0.12, 0.06)
LARGEST = 9_000  # labels at most
FEWEST = 60  # items at least
RIGHT = 0.38, 0.97  # share of right votes of crowds that are worth aggregating
TRIES = 200


@dataclass(frozen=True, eq=False)
class VariedCrowd:
    """Annotations, the true class of each item (n,), and what kind of crowd it is."""

    annotations: Annotations
    truth: Ints
    kind: Kind


def varied(random_state: RandomState = 0, kind: Kind | None = None) -> VariedCrowd:
    """A crowd of unknown kind, or of the given one: ``"people"`` with hard and misleading items and habits of their own,
    a ``"panel"`` of models that label everything and share errors, or annotators who err in an ``"independent"`` way.

    >>> crowd = varied(3)
    >>> crowd.truth.shape == (crowd.annotations.n_instances,), crowd.kind in KINDS
    (True, True)
    """
    if kind is not None:
        check_value("kind", kind, Kind)
    rng = np.random.default_rng(random_state)
    for _ in range(TRIES):
        drawn: Kind = KINDS[rng.choice(3, p=(0.74, 0.16, 0.10))] if kind is None else kind
        crowd = _drawn(rng, drawn)
        if crowd is not None and RIGHT[0] < _right_votes(crowd) < RIGHT[1]:
            break
    assert crowd is not None
    return crowd


def _drawn(rng: np.random.Generator, kind: Kind) -> VariedCrowd | None:
    """A crowd, or None if it is too small for its classes."""
    c = int(rng.choice(CLASSES, p=CLASS_WEIGHTS))
    everything = kind == "panel" or rng.random() < 0.1
    r = int(_log_uniform(rng, 4, 30) if everything else _log_uniform(rng, 6, 400))
    votes = float(r) if everything else min(_log_uniform(rng, 1.7, 20), 0.7 * r + 1)
    n = int(min(_log_uniform(rng, 100, 2_500), LARGEST / votes))
    if n < max(FEWEST, 8 * c):
        return None
    proportions = 0.97 * rng.dirichlet(np.full(c, rng.choice([0.7, 2.0, 10.0]))) + 0.03 / c
    truth = rng.choice(c, n, p=proportions)
    instance, annotator = _pairs(rng, n, r, votes, everything)
    appeal = _own_appeal(rng, r, c, proportions, kind)[annotator, truth[instance]]  # (E, C)
    appeal += _shared_appeal(rng, c, kind)[truth[instance]]
    if kind != "independent":
        clear = np.minimum(np.exp(rng.normal(0, _sometimes(rng, 0.75, 0.1, 0.9), n)), 2.5)
        right = np.arange(len(instance)), truth[instance]
        appeal[right] *= clear[instance]
        sensitive = np.exp(rng.normal(0, 0.3, r)) * np.where(rng.random(r) < 0.9, 1.0, 0.2)
        appeal += sensitive[annotator, None] * _looks(rng, truth, c, kind)[instance]
        appeal += _families(rng, instance, annotator, (n, r, c), kind)
    label = (appeal + rng.gumbel(size=appeal.shape)).argmax(axis=1)
    if kind != "independent" and rng.random() < (0.2 if kind == "panel" else 0.06):
        label = _copied(rng, instance, annotator, label, r)
    made = Annotations.from_triples(instance, annotator, label, n_instances=n, n_annotators=r, n_classes=c)
    return VariedCrowd(made, truth.astype(np.int64), kind)


def _pairs(rng: np.random.Generator, n: int, r: int, votes: float, everything: bool) -> tuple[Ints, Ints]:
    """Who labels what: different annotators for an item, some much busier than others, or nearly everybody all."""
    if everything:
        there = rng.random((n, r)) < 1 - _sometimes(rng, 0.4, 0.0, 0.3)
        there[np.arange(n), rng.integers(r, size=n)] = True
        instance, annotator = np.nonzero(there)
        return instance, annotator
    busy = rng.normal(0, rng.uniform(0, 2), r)
    even = rng.random() < 0.6
    number = np.full(n, max(1, round(votes))) if even else 1 + rng.poisson(max(votes - 1, 0.3), n)
    order = np.argsort(-(busy + rng.gumbel(size=(n, r))), axis=1)
    instance, place = np.nonzero(np.arange(r) < np.minimum(number, r)[:, None])
    return instance, order[instance, place]


def _own_appeal(rng: np.random.Generator, r: int, c: int, proportions: Floats, kind: Kind) -> Floats:
    """Skill, bias and habits of the annotators, [annotator, true class, label]."""
    strength = _log_uniform(rng, 2.5, 40)
    mean = rng.beta(4, 2.2)
    accuracy = 1 / c + (1 - 1 / c) * rng.beta(mean * strength, (1 - mean) * strength, r)
    accuracy = np.clip(accuracy, 0.02, 0.985)
    skill = np.log(accuracy / (1 - accuracy) * (c - 1))
    habits = rng.normal(0, _sometimes(rng, 0.5, 0.1, 1.0), (r, c, c))
    bias = rng.normal(0, _sometimes(rng, 0.7, 0.1, 0.9), (r, c))
    lot = rng.random(r)
    random, against, constant = np.cumsum(
        [_sometimes(rng, p, 0, most) for p, most in ((0.6, 0.4), (0.25, 0.12), (0.4, 0.2))]
    )
    skill[lot < random] = 0.0
    habits[lot < random] = 0.0
    opposed = (lot >= random) & (lot < against)
    skill[opposed] *= -rng.uniform(0.3, 1.0)
    one = np.flatnonzero((lot >= against) & (lot < constant))
    skill[one] = 0.2
    bias[one, rng.choice(c, len(one), p=proportions)] += rng.uniform(2, 5)
    return habits + bias[:, None, :] + skill[:, None, None] * np.eye(c)


def _shared_appeal(rng: np.random.Generator, c: int, kind: Kind) -> Floats:
    """Confusions and bias common to all, [true class, label]."""
    often = 0.85 if kind == "panel" else 0.65
    table = rng.normal(0, _sometimes(rng, often, 0.2, 1.3), (c, c)) + rng.normal(0, _sometimes(rng, often, 0.2, 1.5), c)
    if c > 2 and rng.random() < 0.3:  # ordered classes: neighbours are confused
        table -= rng.uniform(0.2, 1.0) * np.abs(np.subtract.outer(np.arange(c), np.arange(c)))
    return np.asarray(table)


def _looks(rng: np.random.Generator, truth: Ints, c: int, kind: Kind) -> Floats:
    """What items look like to everybody, (n, C): a little of their own, and misleading for some types of them."""
    n = len(truth)
    look = rng.normal(0, _sometimes(rng, 0.75, 0.2, 1.8), (n, c))
    if rng.random() < (0.8 if kind == "panel" else 0.5):
        types = int(rng.integers(1, 4))
        lure = (np.arange(c) + rng.integers(1, c, (types, c))) % c  # of each type and true class
        pull = rng.uniform(1, 4.5, (types, c)) * (rng.random((types, c)) < 0.75)
        misleading = np.flatnonzero(rng.random(n) < (rng.beta(2, 5) if kind == "panel" else rng.beta(1.4, 6)))
        kinds = rng.integers(types, size=len(misleading))
        look[misleading, lure[kinds, truth[misleading]]] += pull[kinds, truth[misleading]]
    return np.asarray(look)


def _families(
    rng: np.random.Generator, instance: Ints, annotator: Ints, sizes: tuple[int, int, int], kind: Kind
) -> Floats:
    """What families of annotators see alike in an item, (E, C); zero for those of none."""
    n, r, c = sizes
    if rng.random() > (0.85 if kind == "panel" else 0.25):
        return np.zeros((len(instance), c))
    number = int(rng.integers(1, max(2, min(r // 2, 8)) + 1))
    member = rng.random(r) < (rng.beta(4, 2) if kind == "panel" else rng.beta(1.5, 4))
    family = rng.integers(number, size=r)[annotator]
    seen = rng.normal(0, rng.uniform(0.5, 2.2), (number, n, c))
    return np.where(member[annotator, None], seen[family, instance], 0.0)


def _copied(rng: np.random.Generator, instance: Ints, annotator: Ints, label: Ints, r: int) -> Ints:
    """Labels of which some annotators take most from another, where that one labelled the item."""
    copies = rng.random(r) < rng.uniform(0.05, 0.3)
    source = rng.integers(r, size=r)
    known = {(i, j): y for i, j, y in zip(instance.tolist(), annotator.tolist(), label.tolist(), strict=True)}
    result = label.copy()
    for row in np.flatnonzero(copies[annotator] & (rng.random(len(label)) < rng.uniform(0.5, 1))):
        pair = int(instance[row]), int(source[annotator[row]])
        result[row] = known.get(pair, int(label[row]))
    return result


def _right_votes(crowd: VariedCrowd) -> float:
    """Share of right labels of majority vote; ties count by the share of the classes that are right."""
    votes = crowd.annotations.votes()
    top = votes == votes.max(axis=1, keepdims=True)
    return float((top[np.arange(len(votes)), crowd.truth] / top.sum(axis=1)).mean())


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _sometimes(rng: np.random.Generator, probability: float, low: float, high: float) -> float:
    """A number from ``low`` to ``high`` with a probability, else 0."""
    return float(rng.uniform(low, high)) if rng.random() < probability else 0.0
