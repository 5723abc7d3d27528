"""Crowds whose truth is known: who labels what, how each annotator errs, and what the labels then are.

Every process returns a :class:`Crowd`. :func:`aidn` is the annotator- and instance-dependent noise of the TAIDTM paper;
the others are class-conditional: each annotator has one matrix T[p, q] = P(label q | true class p).
"""

from __future__ import annotations

from crowdwise.simulate.aidn import aidn, label_distribution
from crowdwise.simulate.confusion import adversarial, confusion_matrices, correlated, hammer_spammer, one_coin
from crowdwise.simulate.crowd import Crowd
from crowdwise.simulate.pairs import draw_pairs

__all__ = [
    "Crowd",
    "adversarial",
    "aidn",
    "confusion_matrices",
    "correlated",
    "draw_pairs",
    "hammer_spammer",
    "label_distribution",
    "one_coin",
]
