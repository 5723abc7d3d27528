"""How many labels are right: what their confidence promises, corrected by what checks have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crowdwise.data.shares import wilson
from crowdwise.data.types import Floats

PRIOR = 5.0  # expected errors before checks outweigh what the model promised


@dataclass(frozen=True)
class Outlook:
    """What is expected of labels that nobody has checked."""

    right: float
    """Share of them expected to be right, given how often the consensus was wrong where it was checked; ``low`` and ``high``
    are the ends of its 95 % interval."""
    low: float
    high: float
    more: int
    """Checks after which the rest is expected to reach the target, the most doubtful first."""


def measured(right: int, checked: int, left: int, target: float) -> Outlook | None:
    """What to expect of the ``left`` items where only checks tell anything, of items drawn at random: so many, so many right.

    The share of right labels has a uniform prior, and Wilson's interval. None without any check.

    >>> round(measured(18, 20, 100, 0.97).right, 2), measured(0, 0, 100, 0.97)
    (0.86, None)
    """
    if not checked:
        return None
    share = (right + 1) / (checked + 2)
    low, high = wilson(right, checked)
    return Outlook(share, float(low), float(high), 0 if share >= target else left)


def outlook(confidence: Floats, checked: Sequence[tuple[float, bool]], n_classes: int, target: float) -> Outlook:
    """What to expect of items with this ``confidence`` (k,), given pairs of confidence and rightness of those ``checked``.

    Errors are Poisson with a rate that is a multiple of the promised one; the multiple has a Gamma prior around 1. Who checks
    the most doubtful items first learns little about the others: checks count as the square of how doubtful the rest is,
    compared with them.

    >>> outlook(np.array([0.9, 0.9]), [], 2, 0.97).right
    0.9
    >>> round(outlook(np.array([0.9, 0.9]), [(0.9, False)] * 10, 2, 0.97).right, 2)
    0.75
    """
    from scipy.stats import gamma  # slow to import

    doubt = np.sort(1 - confidence)[::-1]
    if not len(doubt):
        return Outlook(1.0, 1.0, 1.0, 0)
    expected = sum(1 - promised for promised, _ in checked)
    wrong = sum(not right for _, right in checked)
    alike = min(1.0, float(doubt.mean()) * len(checked) / expected) ** 2 if expected > 0 else 1.0
    shape, rate = PRIOR + alike * wrong, PRIOR + alike * expected
    most = 1 - 1 / max(n_classes, 2)

    def share(times: float) -> float:
        return float(np.minimum(times * doubt, most).mean())

    doubts = np.minimum(shape / rate * doubt, most)
    left = np.arange(len(doubt), 0, -1)
    rest = doubts[::-1].cumsum()[::-1] / left  # mean of what remains after 0, 1, ... checks
    enough = np.flatnonzero(rest <= 1 - target)
    more = int(enough[0]) if len(enough) else len(doubt)
    low, high = (float(gamma.ppf(tail, shape, scale=1 / rate)) for tail in (0.025, 0.975))
    return _between(share(low), share(shape / rate), share(high), len(doubt), more)


def unchecked_times() -> tuple[float, float]:
    """How many times the promised errors there may be, at the least and at the most, if nobody has checked any label."""
    from scipy.stats import gamma  # slow to import

    low, high = (float(gamma.ppf(tail, PRIOR, scale=1 / PRIOR)) for tail in (0.025, 0.975))
    return low, high


def unchecked_errors(confidence: Floats, n_classes: int, times: tuple[float, float]) -> tuple[float, float, float]:
    """Sums of the errors expected of labels with this ``confidence`` (k,): at the least, as promised, and at the most."""
    doubt, most = 1 - confidence, 1 - 1 / max(n_classes, 2)
    least, largest = (float(np.minimum(each * doubt, most).sum()) for each in times)
    return least, float(doubt.sum()), largest


def unchecked(errors: tuple[float, float, float], number: int) -> Outlook:
    """`outlook` of ``number`` labels that nobody has checked, from the sums of `unchecked_errors` over all of them.

    >>> confidence = np.array([0.9, 0.8, 0.7])
    >>> found = unchecked(unchecked_errors(confidence, 2, unchecked_times()), 3)
    >>> bool(np.isclose(found.low, outlook(confidence, [], 2, 1.0).low))
    True
    """
    least, promised, largest = (each / number for each in errors)
    return _between(least, promised, largest, number, 0)


def _between(least: float, wrong: float, largest: float, number: int, more: int) -> Outlook:
    """What to expect if a share of the labels is wrong: between the ``least`` and the ``largest``, of so many items."""
    chance = 1.96**2 * wrong * (1 - wrong) / number  # of so few items, more or fewer may be wrong
    most_wrong = wrong + float(np.sqrt((largest - wrong) ** 2 + chance))
    least_wrong = wrong - float(np.sqrt((wrong - least) ** 2 + chance))
    return Outlook(1 - wrong, 1 - min(most_wrong, 1.0), 1 - max(least_wrong, 0.0), more)
