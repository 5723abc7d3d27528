"""Win rates: the plain estimate that stands next to every score."""

from __future__ import annotations

import numpy as np

from crowdwise.data.types import Floats
from crowdwise.ranking.votes import LEFT, RIGHT, TIE, Votes


def tally(votes: Votes) -> Floats:
    """Weights of wins of the row's contestant over the column's, of losses, and of ties: (3, K, K).

    >>> tally(Votes.of(["a", "a"], ["b", "b"], ["a", "tie"]))[:, 0, 1].tolist()
    [1.0, 0.0, 1.0]
    """
    size = votes.size
    key = (votes.outcome.astype(np.int64) * size + votes.left) * size + votes.right
    shown = np.bincount(key, votes.weight, 3 * size * size).reshape(3, size, size).astype(np.float64)
    wins = shown[LEFT] + shown[RIGHT].T
    ties = shown[TIE] + shown[TIE].T
    return np.stack([wins, wins.T, ties])


def win_rate(counts: Floats) -> Floats:
    """Mean over opponents of (wins + ties / 2) / votes, (K,); NaN without votes. ``counts`` is that of `tally`."""
    wins, losses, ties = counts
    number = wins + losses + ties
    share = np.divide(wins + ties / 2, number, out=np.zeros_like(wins), where=number > 0)
    opponents = (number > 0).sum(axis=1)
    return _quotient(share.sum(axis=1), opponents)


def pooled_rate(counts: Floats) -> Floats:
    """(Wins + ties / 2) / votes of each contestant, (K,): opponents who met more often count more."""
    wins, losses, ties = counts.sum(axis=2)
    number = wins + losses + ties
    return _quotient(wins + ties / 2, number)


def _quotient(above: Floats, below: Floats) -> Floats:
    return np.asarray(np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0))
