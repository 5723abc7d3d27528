"""Votes: ties, labels that differ from them, and the best answer that does not look at the item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core.queries import against_votes, tied_votes
from crowdwise.data.types import Floats


@dataclass(frozen=True)
class VoteFigures:
    """How labels compare with the votes."""

    labelled: int
    """Items with labels."""
    tied: int
    """Items of which two classes or more have most votes."""
    differing: int
    """Items whose label has fewer votes than another class; a label that shares a tie does not differ."""


def vote_figures(votes: npt.NDArray[Any], label: npt.NDArray[Any]) -> VoteFigures:
    """Figures of votes (n, C) and the labels (n,) that were made of them.

    >>> vote_figures(np.array([[2, 1], [1, 1], [0, 0]]), np.array([1, 1, 0]))
    VoteFigures(labelled=2, tied=1, differing=1)
    """
    if not votes.shape[1]:
        return VoteFigures(0, 0, 0)
    labelled = votes.max(axis=1) > 0
    return VoteFigures(
        labelled=int(np.count_nonzero(labelled)),
        tied=int(np.count_nonzero(tied_votes(votes))),
        differing=int(np.count_nonzero(against_votes(votes, label))),
    )


@dataclass(frozen=True)
class Yardstick:
    """The best answer that does not look at the item: what a share of right labels is to be compared with."""

    share: float
    """How often it is right."""
    answer: str | None
    """The class that it always gives; None for a guess among all classes."""

    def __str__(self) -> str:
        named = "a guess" if self.answer is None else f"always “{self.answer}”"
        return f"{named}: right in {self.share:.0%}"


def yardstick(proportions: Floats, classes: Sequence[Any]) -> Yardstick | None:
    """The yardstick for items with these class proportions (C,); None with fewer than two classes.

    >>> print(yardstick(np.array([72, 18, 10]), ["G", "PG", "R"]))
    always “G”: right in 72%
    >>> yardstick(np.array([0.5, 0.5]), ["no", "yes"])
    Yardstick(share=0.5, answer=None)
    """
    if len(proportions) < 2 or not proportions.sum() > 0:
        return None
    proportions = proportions / proportions.sum()
    guess, best = 1 / len(proportions), int(proportions.argmax())
    if proportions[best] <= guess + 1e-9:
        return Yardstick(guess, None)
    return Yardstick(float(proportions[best]), str(classes[best]))
