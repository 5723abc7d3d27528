"""How many more labels would be right if every item had more of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln

from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.correlation import typical
from crowdwise.data.types import Floats
from crowdwise.errors import ConfigError

HALFWAY = 0.5  # between independent errors and those that confidence allows for
DRAWS = 20_000  # items drawn: all of them over and over where there are fewer, some of them where there are more


class MoreLabels(NamedTuple):
    """What is expected if every item gets so many further labels."""

    further: int
    """Further labels of each item."""
    right: float
    """Share of labels expected to be right then."""
    gain: float
    """How much more that is than now."""


def more_labels(
    model: Aggregator, further: Sequence[int] = (1, 2, 3, 5, 10), *, random_state: int = 0
) -> list[MoreLabels]:
    """The share of right labels that a fitted aggregator should reach with ``further`` labels of each item.

    New labels are drawn as the old ones let expect. An item has a rate of right labels of its own, since items differ in
    difficulty: Beta around the crowd's accuracy, given the labels it has. Its correlation is half of that which confidence
    assumes: as annotators are judged, halfway between independent errors and those that all share. Wrong labels go to other
    classes in proportion to their votes. The new labels are then weighed by the same urn. Annotators are those of the crowd,
    at random.

    >>> from crowdwise.aggregation import HierarchicalDawidSkene
    >>> model = HierarchicalDawidSkene().fit([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
    >>> [each.further for each in more_labels(model, (1, 2))]
    [1, 2]
    """
    if min(further, default=1) < 1:
        raise ConfigError(f"further labels per item must be 1 or more, got {min(further)}", parameter="further")
    crowd = model.annotations_
    votes, labelled = crowd.votes(), np.flatnonzero(crowd.labels_per_instance > 0)
    if not len(labelled) or crowd.n_classes < 2:
        return []
    votes, belief = votes[labelled].astype(np.float64), model.posterior_[labelled]
    now = float(belief.max(axis=1).mean())
    accuracy = float(np.clip((belief * votes).sum() / votes.sum(), 1 / crowd.n_classes, 0.99))
    urn = 1.0 / (HALFWAY * _correlation(model)) - 1.0
    rng = np.random.default_rng(random_state)
    if len(labelled) > DRAWS:
        some = rng.choice(len(labelled), DRAWS, replace=False)
        votes, belief = votes[some], belief[some]
    before = float(belief.max(axis=1).mean())
    rounds = -(-DRAWS // len(belief))
    found = []
    for number in further:
        total = sum(_after(belief, votes, number, accuracy, urn, rng) for _ in range(rounds))
        gain = max(total / (rounds * len(belief)) - before, 0.0)  # what is drawn may fall short by luck
        found.append(MoreLabels(number, min(now + gain, 1.0), gain))
    return found


def _correlation(model: Any) -> float:
    """The correlation of the votes of an item that a model's confidence assumes; of a committee, that of its first member."""
    for each in (model, *vars(model).get("members_", {}).values()):
        if hasattr(each, "tempering_"):
            return float(each.tempering_.correlation)
    return typical()


def _after(belief: Floats, votes: Floats, number: int, accuracy: float, urn: float, rng: np.random.Generator) -> float:
    """Sum over the items of the largest probability after so many further labels."""
    n, c = belief.shape
    rows = np.arange(n)
    truth = np.minimum((rng.random((n, 1)) > belief.cumsum(axis=1)).sum(axis=1), c - 1)
    own, all_votes = votes[rows, truth], votes.sum(axis=1)
    rate = rng.beta(urn * accuracy + own, urn * (1.0 - accuracy) + all_votes - own)
    hits = rng.binomial(number, rate)
    weight = votes + urn * (1.0 - accuracy) / (c - 1)  # of wrong labels, whatever the truth is
    wrong = weight.copy()
    wrong[rows, truth] = 0.0
    new = rng.multinomial(number - hits, wrong / wrong.sum(axis=1, keepdims=True)).astype(np.float64)
    new[rows, truth] = hits
    right = urn * accuracy + votes
    against = urn * (1.0 - accuracy) + all_votes[:, None] - votes
    logs = np.log(np.maximum(belief, 1e-300))
    logs += betaln(right + new, against + number - new) - betaln(right, against)
    every = (new * np.log(weight)).sum(axis=1, keepdims=True)
    rest = weight.sum(axis=1, keepdims=True) - weight
    logs += every - new * np.log(weight) - (number - new) * np.log(np.maximum(rest, 1e-300))
    logs -= logs.max(axis=1, keepdims=True)
    return float((1.0 / np.exp(logs).sum(axis=1)).sum())
