"""The probability that each annotator is right, with an interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from crowdwise.annotations import Annotations
from crowdwise.data.types import Floats
from crowdwise.quality._belief import Belief

PRIOR_LABELS = 4.0  # an annotator starts with the crowd's mean skill, worth this many labels
BOUNDS = 0.01, 0.99  # of the skill a label is assumed to have been counted with
STEPS = 30  # bisection steps


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
    a = q / r and b = (1 - q) / (1 - r), so that an instance without further labels is not informative. The
    log-likelihood is concave in s: its maximum is found by bisection of the slope, and the curvature there says how
    many labels of known truth the evidence is worth (Louis 1982).
    """
    size, who = annotations.n_annotators, annotations.annotator
    own = belief.posterior[annotations.instance, annotations.label]  # (E,)
    mean = float(np.clip(own.mean() if len(own) else 0.5, *BOUNDS))
    reference = np.full(size, mean)
    if not belief.majority:  # a model distinguishes annotators; a majority vote treats all as average
        total = np.bincount(who, own, size) + PRIOR_LABELS * mean
        reference = np.clip(total / (annotations.labels_per_annotator + PRIOR_LABELS), *BOUNDS)
    right, wrong = own / reference[who] + 1e-9, (1 - own) / (1 - reference[who]) + 1e-9
    gain = right - wrong
    low, high = np.full(size, 1e-6), np.full(size, 1 - 1e-6)
    for _ in range(STEPS):
        s = (low + high) / 2
        prior = PRIOR_LABELS * (mean / s - (1 - mean) / (1 - s))
        rising = np.bincount(who, gain / (wrong + s[who] * gain), size) + prior > 0
        low, high = np.where(rising, s, low), np.where(rising, high, s)
    s = (low + high) / 2
    curvature = np.bincount(who, (gain / (wrong + s[who] * gain)) ** 2, size)
    return Skill.at(s, np.asarray(curvature, np.float64))
