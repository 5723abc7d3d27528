"""Worth: how many labels are right, which figure to believe, and what to compare it with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core.queries import TIE_TOLERANCE
from crowdwise.agreement import Ordered, Scale, scale_of
from crowdwise.annotations import Annotations
from crowdwise.data.types import Floats
from crowdwise.figures.evidence import ENOUGH, Evidence, evidence
from crowdwise.figures.right import RightShare, estimated, measured
from crowdwise.figures.votes import VoteFigures, Yardstick, vote_figures, yardstick

Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Worth:
    """What the labels made from a crowd are worth."""

    evidence: Evidence
    votes: VoteFigures
    right: RightShare | None
    """The share of right labels to believe; None if nothing can be said: ``why`` tells why."""
    estimated: RightShare | None
    """From the confidence in the labels."""
    measured: RightShare | None
    """On items with a true label."""
    majority: RightShare | None
    """The share of majority votes that are right, on the same items as ``measured``; ties are shared."""
    yardstick: Yardstick | None
    """The best answer that does not look at the item."""
    why: str
    """Which figure to believe, and why; or why there is none."""
    scale: Scale | None = None
    """The order of the classes, if they are ordered."""
    near: RightShare | None = None
    """The share of labels that are right or one step of the scale off, on the basis of ``right``; None without a scale."""
    votes_estimated: RightShare | None = None
    """The share of majority votes that should be right by the same probabilities; ties are shared."""

    @property
    def contradicted(self) -> bool:
        """Whether the estimate lies outside the interval of what was measured."""
        return (
            self.measured is not None and self.estimated is not None and not self.measured.holds(self.estimated.share)
        )

    @property
    def sentence(self) -> str:
        """The share of right labels to believe, and why; or why there is none."""
        if self.right is None:
            return f"unknown. {self.why}"
        share, low, high = self.right.share, self.right.low, self.right.high
        about = "about " if self.right.basis == "estimated" else ""
        near = "" if self.near is None else f" {self.near.share:.1%} are right or one step off."
        return f"{about}{share:.1%} of the labels, between {low:.1%} and {high:.1%}.{near} {self.why}"


def worth(
    crowd: Annotations,
    posterior: Floats,
    truth: Codes | None = None,
    *,
    label: Codes | None = None,
    confidence: Floats | None = None,
    scores: npt.NDArray[Any] | None = None,
    gold: int = 0,
    ordered: Ordered = "auto",
    estimate: bool = True,
    models: Collection[Any] = (),
) -> Worth:
    """What labels with this posterior (n, C) are worth; ``truth`` (n,) holds true classes, -1 if unknown.

    ``label`` (n,) and ``confidence`` (n,) are those of the posterior by default. ``scores`` (n, C) are measured in place of the
    posterior, if that was told true labels (``gold`` of them) or broke the ties of votes. ``estimate`` is off if the posterior
    holds vote shares, which are no probabilities. ``models`` are ids of annotators that are models, whose agreement with each
    other is no evidence.
    """
    classes, votes = crowd.n_classes, crowd.votes()
    labelled = crowd.labels_per_instance > 0 if len(crowd) else np.ones(crowd.n_instances, bool)
    label = posterior.argmax(axis=1) if label is None and classes else label
    label = np.zeros(len(posterior), np.int64) if label is None else label
    confidence = posterior.max(axis=1, initial=0) if confidence is None else confidence
    known = np.full(crowd.n_instances, -1) if truth is None else np.where(labelled, truth, -1)

    scale = scale_of(crowd, ordered) if len(crowd) else None
    given = evidence(crowd, gold=gold, ordered=ordered, models=models)
    enough = given.enough or given.kind == "no labels"  # labels whose annotations are missing still have a confidence
    expected = estimated(confidence[labelled], classes) if enough and estimate else None
    voted = None
    if expected is not None and len(crowd):
        first = tied_for_first(votes)
        of_votes = (posterior * first).sum(axis=1) / first.sum(axis=1)
        voted = estimated(np.clip(of_votes[labelled], 0, 1), classes)
    scores = posterior if scores is None else scores
    found = measured(scores, known) if classes > 1 else None
    right, why = believed(expected, found, given, shares=not estimate)
    if found is not None and found is right:
        proportions = np.bincount(known[known >= 0], minlength=classes)
    else:
        proportions = np.bincount(label[labelled], minlength=classes)
    return Worth(
        evidence=given,
        votes=vote_figures(votes, label),
        right=right,
        estimated=expected,
        measured=found,
        majority=measured(votes, known) if found is not None and len(crowd) else None,
        yardstick=None if right is None else yardstick(proportions.astype(np.float64), crowd.classes.tolist()),
        why=why,
        scale=scale,
        near=None if scale is None or right is None else _near(right, scale, scores, known, posterior, label, labelled),
        votes_estimated=voted,
    )


def tied_for_first(scores: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which classes share the first place in each row of scores, (n, C).

    >>> tied_for_first(np.array([[2, 1], [1, 1]])).tolist()
    [[True, False], [True, True]]
    """
    return np.asarray(scores >= scores.max(axis=1, keepdims=True) - TIE_TOLERANCE)


def _near(
    right: RightShare, scale: Scale, scores: Any, known: Codes, posterior: Floats, label: Codes, labelled: Any
) -> RightShare | None:
    """How many labels are at most one step from the true class, measured or estimated as those that are ``right``."""
    step = np.argsort(np.argsort(scale.values, kind="stable"), kind="stable")
    close = (np.abs(step[:, None] - step) <= 1).astype(np.float64)  # (C, C)
    if right.basis == "measured":
        return measured(scores, known, close)
    confidence = np.einsum("nc,nc->n", posterior, close[label])[labelled]
    return estimated(np.clip(confidence, 0, 1), posterior.shape[1])


def believed(
    expected: RightShare | None, found: RightShare | None, given: Evidence, *, shares: bool = False
) -> tuple[RightShare | None, str]:
    """Which share of right labels to believe, and why: the measured one from `ENOUGH` true labels on, else the estimate."""
    if found is not None and found.items >= ENOUGH:
        return found, f"Measured on {_items(found.items)} with a true label.{_against(expected, found)}"
    if expected is None:
        reason = "Vote shares are not probabilities of being right." if shares and given.enough else given.sentence
        few = "" if found is None else f" {_few(found)}"
        return None, f"{reason}{few}"
    if found is None:
        return expected, (
            "Estimated from agreement, not checked against true labels: errors that annotators share stay unseen."
        )
    words = "Estimated from agreement: errors that annotators share stay unseen."
    if found.holds(expected.share):
        return expected, f"{words} {_few(found)}"
    return expected, f"{words} {_few(found)} They contradict the estimate: check more items before you rely on it."


def _against(expected: RightShare | None, found: RightShare) -> str:
    """What the measured share says of the estimate."""
    if expected is None:
        return ""
    said = f" The estimate from agreement, {expected.share:.1%},"
    if found.holds(expected.share):
        return f"{said} fits."
    if expected.share > found.high:
        return f"{said} is too high: annotators share errors, which agreement cannot show. Believe the measured share."
    return f"{said} is too low. Believe the measured share, if those items are typical."


def _few(found: RightShare) -> str:
    """What was measured on too few items."""
    right = f"{found.share * found.items:.1f}".removesuffix(".0")
    return f"{right} of {_items(found.items)} with a true label are right; {ENOUGH} are needed to measure."


def _items(number: int) -> str:
    return f"{number:,} item{'' if number == 1 else 's'}"
