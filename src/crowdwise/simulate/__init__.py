"""Crowds with known truth: who labels what, how each annotator errs, and the resulting labels.

Every process returns a :class:`SimulatedCrowd`. :func:`aidn` is the annotator- and instance-dependent noise of the TAIDTM
paper; the others are class-conditional: each annotator has one matrix T[p, q] = P(label q | true class p).
:func:`varied` draws crowds of many kinds, for measuring methods on crowds that nobody chose.
"""

from __future__ import annotations

from typing import Any

from crowdwise.simulate.aidn import aidn, label_distribution
from crowdwise.simulate.confusion import adversarial, confusion_matrices, correlated, hammer_spammer, one_coin
from crowdwise.simulate.crowd import SimulatedCrowd
from crowdwise.simulate.pairs import draw_pairs
from crowdwise.simulate.varied import VariedCrowd, varied

__all__ = [
    "SimulatedCrowd",
    "VariedCrowd",
    "adversarial",
    "aidn",
    "confusion_matrices",
    "correlated",
    "draw_pairs",
    "hammer_spammer",
    "label_distribution",
    "one_coin",
    "varied",
]


def __getattr__(name: str) -> Any:
    if name == "Crowd":
        import warnings

        warnings.warn(
            "crowdwise.simulate.Crowd is now crowdwise.simulate.SimulatedCrowd", DeprecationWarning, stacklevel=2
        )
        return SimulatedCrowd
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
