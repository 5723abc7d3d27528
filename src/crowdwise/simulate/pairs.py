"""Which annotator labels which instance: the (instance, annotator) pairs of every simulated crowd.

The n x R possible pairs are never enumerated; time and memory grow with the number of pairs drawn.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypedDict

import numpy as np

from crowdwise.constraints import Interval, PositiveInt, checked
from crowdwise.data.codes import row_blocks
from crowdwise.data.types import Ints, RandomState
from crowdwise.errors import ConfigError

Scheme: TypeAlias = Literal["binomial", "paper", "exact"]


class Design(TypedDict, total=False):
    """How the pairs of a crowd are drawn: the parameters that simulated crowds pass on to :func:`draw_pairs`."""

    labels_per_instance: float | None
    labels_per_annotator: int | None
    pairs: Scheme


CELLS = 4_000_000  # random numbers held at a time if most annotators are chosen


@checked
def draw_pairs(
    n_instances: PositiveInt,
    n_annotators: PositiveInt,
    *,
    labels_per_instance: Annotated[float, Interval(1)] | None = None,
    labels_per_annotator: PositiveInt | None = None,
    pairs: Scheme = "exact",
    random_state: RandomState = 0,
) -> tuple[Ints, Ints]:
    """Distinct (instance, annotator) pairs, sorted by instance, then annotator: two arrays (E,).

    Args:
        n_instances: n.
        n_annotators: R.
        labels_per_instance: r̄, the mean number of labels of an instance, 1 <= r̄ <= R; 3 (or R, if fewer) unless
            ``labels_per_annotator`` is given.
        labels_per_annotator: exact number of labels from each annotator. Alone: on random instances, some of which may
            get none. With ``labels_per_instance`` r: a balanced design with exactly r labels for every instance, which
            requires that R times this number is n r.
        pairs: how r_i, the number of labels of instance i, varies.
            ``exact``: r_i is r̄, or one of its two neighbouring integers at random if r̄ is not an integer.
            ``binomial``: one annotator at random, and 1 + Binomial(R - 1, (r̄ - 1)/(R - 1)) in all: equivalent to
            TAIDTM's released code.
            ``paper``: one annotator at random for every instance, then round((r̄ - 1) n / R) further instances for every
            annotator: Algorithm 2 of the TAIDTM paper (with its sign error corrected).

    >>> instance, annotator = draw_pairs(4, 10, labels_per_instance=2, random_state=0)
    >>> instance.tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    >>> instance, annotator = draw_pairs(6, 4, labels_per_instance=2, labels_per_annotator=3)
    >>> np.bincount(annotator).tolist(), np.bincount(instance).tolist()
    ([3, 3, 3, 3], [2, 2, 2, 2, 2, 2])
    """
    for name, labels, most, what in (
        ("labels_per_instance", labels_per_instance, n_annotators, "annotators"),
        ("labels_per_annotator", labels_per_annotator, n_instances, "instances"),
    ):
        if labels is not None and labels > most:
            raise ConfigError(f"{name} must be at most the number of {what}, {most}, got {labels:g}")
    rng = np.random.default_rng(random_state)
    if labels_per_annotator is None:
        mean = min(3.0, n_annotators) if labels_per_instance is None else labels_per_instance
        draw = {"exact": _exact, "binomial": _binomial, "paper": _paper}[pairs]
        instance, annotator = draw(n_instances, n_annotators, mean, rng)
    elif labels_per_instance is None:
        annotator, instance = distinct(np.full(n_annotators, labels_per_annotator), n_instances, rng)
    else:
        instance, annotator = _balanced(n_instances, n_annotators, labels_per_instance, labels_per_annotator, rng)
    order = np.lexsort((annotator, instance))
    return instance[order], annotator[order]


def distinct(counts: Ints, size: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """For every owner o, ``counts[o]`` distinct numbers in 0..size-1, all subsets equally likely: (owner, number)."""
    few = counts <= size // 2
    owners, numbers = _by_rejection(np.flatnonzero(few), counts[few], size, rng)
    crowded = np.flatnonzero(~few)
    for rows in row_blocks(len(crowded), size, CELLS):  # most are chosen: rank random keys
        some = crowded[rows]
        ranks = rng.random((len(some), size)).argsort(axis=1).argsort(axis=1)
        owner, chosen = np.nonzero(ranks < counts[some, None])
        owners, numbers = np.append(owners, some[owner]), np.append(numbers, chosen)
    return owners, numbers


def _by_rejection(ids: Ints, counts: Ints, size: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw with replacement, and redraw repetitions."""
    wanted = np.repeat(ids, counts)
    kept = np.empty(0, dtype=np.int64)  # owner * size + number, each once
    while len(wanted):
        drawn = wanted * size + rng.integers(size, size=len(wanted))
        codes, first = np.unique(np.concatenate([kept, drawn]), return_index=True)
        repeated = np.ones(len(drawn), dtype=bool)
        repeated[first[first >= len(kept)] - len(kept)] = False
        kept, wanted = codes, wanted[repeated]
    return kept // size, kept % size


def _exact(n: int, size: int, mean: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    counts = np.floor(mean + rng.random(n)).astype(np.int64)
    return distinct(np.minimum(counts, size), size, rng)


def _binomial(n: int, size: int, mean: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    first = rng.integers(size, size=n)
    extra = rng.binomial(size - 1, (mean - 1) / max(size - 1, 1), size=n)
    instance, other = distinct(extra, size - 1, rng)
    other += other >= first[instance]  # numbers of all annotators but the first
    return np.concatenate([np.arange(n), instance]), np.concatenate([first, other])


def _paper(n: int, size: int, mean: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    first = rng.integers(size, size=n)
    by_annotator = np.split(np.argsort(first, kind="stable"), np.cumsum(np.bincount(first, minlength=size))[:-1])
    instances, annotators = [np.arange(n)], [first]
    for annotator, taken in enumerate(by_annotator):
        free = n - len(taken)
        numbers = rng.choice(free, size=min(round((mean - 1) * n / size), free), replace=False, shuffle=False)
        # the v-th free instance is v + the number of taken ones before it
        instances.append(numbers + np.searchsorted(taken - np.arange(len(taken)), numbers, side="right"))
        annotators.append(np.full(len(numbers), annotator))
    return np.concatenate(instances), np.concatenate(annotators)


def _balanced(
    n: int, size: int, per_instance: float, per_annotator: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Deal shuffled decks of all instances, ``per_annotator`` cards to each annotator in turn."""
    if size * per_annotator != n * per_instance:
        raise ConfigError(
            f"{size} annotators x {per_annotator} labels do not equal {n} instances x {per_instance:g} labels; "
            "pass only one of labels_per_annotator and labels_per_instance, or make the products equal"
        )
    dealt = np.empty(0, dtype=np.int64)
    for _ in range(int(per_instance)):
        deck = rng.permutation(n)
        held = len(dealt) % per_annotator  # cards in the hand that the last deck left incomplete
        if held:
            new = ~np.isin(deck, dealt[-held:])
            head = deck[new][: per_annotator - held]  # which must not get a card twice
            deck = np.concatenate([head, deck[~np.isin(deck, head)]])
        dealt = np.concatenate([dealt, deck])
    return dealt, np.repeat(np.arange(size), per_annotator)
