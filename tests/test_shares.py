"""Intervals of shares hold the share as often as they say, also of few cases and of shares near 0 and 1."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crowdwise.data.shares import wilson
from crowdwise.quality import measured


def coverage(n: int, share: float, level: float = 0.95) -> float:
    """Probability that the interval holds the share, over all outcomes of n cases."""
    right = np.arange(n + 1)
    low, high = wilson(right, n, level)
    return float(stats.binom.pmf(right[(low <= share) & (share <= high)], n, share).sum())


@pytest.mark.parametrize("n", [30, 60, 100, 1000])
def test_the_interval_holds_any_share_nearly_as_often_as_it_says(n: int) -> None:
    """Wilson's own interval holds shares near 0 or 1 in 84 % of cases."""
    shares = np.concatenate([np.linspace(0.001, 0.1, 100), np.linspace(0.1, 0.5, 100)])
    held = [coverage(n, share) for share in shares]
    assert min(held) > 0.915
    assert np.mean(held) > 0.945
    assert np.mean([coverage(n, share, 0.8) for share in shares]) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("right", [4, 9, 15, 36])
def test_of_more_than_a_few_cases_the_interval_is_wilsons(right: int) -> None:
    expected = stats.binomtest(right, 40).proportion_ci(0.9, "wilson")
    assert tuple(map(float, wilson(right, 40, 0.9))) == pytest.approx((expected.low, expected.high))


def test_a_few_errors_leave_room_for_a_share_near_one() -> None:
    """Of 100, 2 are wrong: a share of errors below which 2 or more have a probability of 5 % is left out."""
    low, high = (float(end) for end in wilson(98, 100))
    assert stats.poisson.sf(1, 100 * (1 - high)) == pytest.approx(0.05, abs=1e-6)
    assert low == pytest.approx(stats.binomtest(98, 100).proportion_ci(0.95, "wilson").low)


def test_for_and_against_are_mirrored_and_nothing_is_known_of_no_cases() -> None:
    for right in (0, 0.5, 1, 2, 3, 7, 20):
        low, high = wilson(right, 20)
        other_low, other_high = wilson(20 - right, 20)
        assert (float(low), float(high)) == pytest.approx((1 - float(other_high), 1 - float(other_low)))
    assert tuple(map(float, wilson(0, 0))) == (0.0, 1.0)
    low, high = wilson(np.array([0, 5, 0]), np.array([5, 5, 0]))
    assert low[0] == low[2] == 0
    assert high[1] == high[2] == 1


def test_checks_of_random_items_have_the_interval_of_their_share() -> None:
    found = measured(59, 60, 100, 0.97)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(tuple(map(float, wilson(59, 60))))
    assert found.right == pytest.approx(60 / 62)
    assert found.more == 100
    enough = measured(59, 60, 100, 0.96)
    assert enough is not None
    assert enough.more == 0
