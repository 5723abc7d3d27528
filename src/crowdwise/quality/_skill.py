"""The probability that each annotator is right, with an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from crowdwise.aggregation.core import weights
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.annotations import Annotations
from crowdwise.data.types import Floats, Ints
from crowdwise.quality._belief import Belief

PRIOR_LABELS = 4.0  # an annotator starts with the crowd's mean skill, worth this many labels
BOUNDS = 0.01, 0.99  # of the skill a label is assumed to have been counted with
STEPS = 30  # at most, to the maximum
EXACT = 1e-9  # change of a skill below which it is found

Slopes = Callable[[Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True, eq=False)
class Skill:
    """Beta distributions of the annotators' probabilities to be right, (R,) each."""

    alpha: Floats
    beta: Floats

    @classmethod
    def at(cls, s: Floats, curvature: Floats) -> Skill:
        """The distribution with its mode at about ``s`` (R,), where the log-likelihood has this ``curvature`` (R,)."""
        labels = curvature * s * (1 - s) + PRIOR_LABELS
        return cls(s * labels, (1 - s) * labels)

    @property
    def mean(self) -> Floats:
        """Expected skill."""
        return self.alpha / (self.alpha + self.beta)

    def quantile(self, share: float) -> Floats:
        """The skill with ``share`` of the distribution below it."""
        return np.asarray(betaincinv(self.alpha, self.beta, share))


def skill(annotations: Annotations, belief: Belief) -> Skill:
    """Posterior of each annotator's skill s, given the posterior of the instances.

    A label is right with probability s, so its likelihood is s * a + (1 - s) * b, with a if it is right and b if it is
    wrong. The belief q that a label is right already counts the label itself, at some skill r: dividing that out leaves
    a = q / r and b = (1 - q) / (1 - r), so that an instance without further labels is not informative.
    """
    who, size, weight = annotations.annotator, annotations.n_annotators, None
    if annotations.weight is not None:  # in labels, as the prior is
        weight = weights.as_written(annotations.weight) * MemoryCrowd.of(annotations).scale
    own = belief.judging[annotations.instance, annotations.label]  # (E,)

    def slopes(reference: Floats, s: Floats) -> tuple[Floats, Floats]:
        wrong = (1 - own) / (1 - reference[who]) + 1e-9
        gain = own / reference[who] + 1e-9 - wrong
        ratio = gain / (wrong + s[who] * gain)
        return _sums(who, ratio, size, weight), _sums(who, ratio**2, size, weight)

    # a model distinguishes annotators; a majority vote treats all as average
    right = _sums(who, own, size, weight)
    number = annotations.labels_per_annotator if weight is None else _sums(who, np.ones(len(who)), size, weight)
    return skill_of(right, number, slopes, apart=not belief.majority)


def independent_skill(right: Floats, number: Ints | Floats) -> Skill:
    """Skills from expected numbers of right labels and all labels, (R,) each."""
    mean = float(np.clip(right.sum() / number.sum() if number.sum() else 0.5, *BOUNDS))
    return Skill(right + PRIOR_LABELS * mean, np.maximum(number - right, 0.0) + PRIOR_LABELS * (1 - mean))


def skill_of(right: Floats, number: Ints | Floats, slopes: Slopes, *, apart: bool = True) -> Skill:
    """`skill` from sums over labels: expected right ones and all of them, (R,) each, and the slopes of the likelihood.

    ``slopes`` takes the skills r and s (R,), and returns the first derivative of every annotator's log-likelihood in s, and
    minus the second. The log-likelihood is concave: its maximum is found by Newton steps within a bracket, and the curvature
    there says how many labels of known truth the evidence is worth (Louis 1982). ``apart``: r differs between annotators.
    """
    mean = float(np.clip(right.sum() / number.sum() if number.sum() else 0.5, *BOUNDS))
    reference = np.full(len(right), mean)
    if apart:
        reference = np.clip((right + PRIOR_LABELS * mean) / (number + PRIOR_LABELS), *BOUNDS)
    s, low, high = reference, np.full(len(right), 1e-6), np.full(len(right), 1 - 1e-6)
    curvature = np.zeros(len(right))
    for _ in range(STEPS):
        slope, curvature = slopes(reference, s)
        slope = slope + PRIOR_LABELS * (mean / s - (1 - mean) / (1 - s))
        low, high = np.where(slope > 0, s, low), np.where(slope > 0, high, s)
        newton = s + slope / (curvature + PRIOR_LABELS * (mean / s**2 + (1 - mean) / (1 - s) ** 2))
        before, s = s, np.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        if np.abs(s - before).max(initial=0) < EXACT:
            break
    return Skill.at(s, curvature)


def _sums(who: npt.NDArray[np.int32], values: Floats, size: int, weight: Floats | None) -> Floats:
    return np.bincount(who, values if weight is None else values * weight, size).astype(np.float64)
