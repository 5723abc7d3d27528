"""Agreement: confidence intervals by the bootstrap over instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from agreement_helpers import MEASURES, UNITS, simulated, value
from crowdwise import Annotations, agreement
from crowdwise.agreement import _measures
from crowdwise.agreement._votes import Bootstrap, Votes


def repeated(annotations: Annotations, times: npt.NDArray[Any]) -> Annotations:
    """The crowd with instance i taken ``times[i]`` times, as instances of their own."""
    codes = np.repeat(np.arange(annotations.n_instances), times)
    rows = [(new, row) for new, code in enumerate(codes) for row in annotations.by_instance[code]]
    new, old = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Annotations.from_triples(
        new,
        annotations.annotator[old],
        annotations.label[old],
        n_annotators=annotations.n_annotators,
        n_classes=annotations.n_classes,
    )


STATISTICS = {
    "raw": _measures.raw_statistic,
    "fleiss": _measures.fleiss_statistic,
    "scott": _measures.scott_statistic,
    "gwet": _measures.gwet_statistic,
}


@pytest.mark.parametrize("measure", [name for name in MEASURES if name != "cohen"])
def test_a_weighted_instance_counts_like_a_repeated_one(measure: str) -> None:
    crowd = simulated(12, 6, 3, np.random.default_rng(0))
    votes, times = Votes.of(crowd), np.array([3, 0, 1, 1, 2, 0, 1, 1, 0, 5, 1, 1])
    if measure.startswith("alpha-"):
        level: Any = measure.removeprefix("alpha-")
        statistic = _measures.alpha_statistic(crowd, votes, level, None)
    else:
        statistic = STATISTICS[measure](votes)
    weights = np.bincount(votes.pattern, times, len(votes.count))
    expected = value(MEASURES[measure], repeated(crowd, times))
    assert statistic(np.stack([weights, weights])) == pytest.approx([expected, expected])


def test_cohen_and_pairwise_intervals_equal_those_of_rebuilt_crowds() -> None:
    crowd = simulated(30, 5, 3, np.random.default_rng(1))
    draws = Bootstrap(40, 0.9, 7).draws(30)
    assert draws.sum(axis=1).tolist() == [30] * 40
    rebuilt = [repeated(crowd, times) for times in draws]
    overall = agreement.cohen_kappa(crowd, n_bootstrap=40, confidence=0.9, random_state=7)
    samples = [value(agreement.cohen_kappa, other) for other in rebuilt]
    assert overall.interval == pytest.approx(interval_of(samples, overall.value, 30, 0.9))
    pairs = agreement.pairwise(crowd, n_bootstrap=40, confidence=0.9, random_state=7)
    matrices = np.array([agreement.pairwise(other).matrix() for other in rebuilt])
    labels = np.full((30, 5), -1)
    labels[crowd.instance, crowd.annotator] = crowd.label
    for k, (one, other) in enumerate(zip(pairs.first, pairs.second, strict=True)):
        both = labels[(labels[:, one] >= 0) & (labels[:, other] >= 0)][:, [one, other]]
        same = both[both[:, 0] == both[:, 1], 0]
        telling = len(both) - np.bincount(same).max(initial=0)  # without the class they agree on most often
        low, high = interval_of(matrices[:, one, other], pairs.value[k], telling, 0.9)
        assert (pairs.low[k], pairs.high[k]) == pytest.approx((low, high))


def interval_of(samples: Any, value: float, n: int, confidence: float) -> tuple[float, float]:
    """Percentiles of the samples, corrected for bias and for few instances, one step at a time."""
    known = [each for each in samples if not np.isnan(each)]
    below = sum(each < value - 1e-9 for each in known) + sum(abs(each - value) <= 1e-9 for each in known) / 2
    shift = stats.norm.ppf(min(max(below / len(known), 0.01), 0.99))
    half = stats.t.ppf((1 + confidence) / 2, n - 1) * np.sqrt(n / (n - 1))
    low, high = stats.norm.cdf([2 * shift - half, 2 * shift + half])
    return float(np.quantile(known, low)), float(np.quantile(known, high))


@pytest.mark.parametrize("measure", MEASURES)
def test_intervals_hold_the_value_and_shrink_with_more_instances(measure: str) -> None:
    rng = np.random.default_rng(0)
    widths = []
    for n in (50, 2000):
        result = MEASURES[measure](simulated(n, 10, 3, rng), n_bootstrap=200, random_state=0)
        low, high = result.interval
        assert low < result.value < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3


def test_intervals_cover_the_agreement_of_the_population() -> None:
    rng = np.random.default_rng(5)
    population = 0.7 + 0.3 / 3  # chance that a label is right
    truth = population**2 + (1 - population) ** 2 / 2
    hits = 0
    for _ in range(200):
        low, high = agreement.raw_agreement(simulated(100, 10, 3, rng), n_bootstrap=300, random_state=rng).interval
        hits += low <= truth <= high
    assert 180 <= hits <= 199  # 95 % of 200 are 190


def test_many_patterns_are_resampled_like_few() -> None:
    """Whether patterns or instances are drawn, the interval is the same but for chance."""
    crowd = simulated(400, 20, 8, np.random.default_rng(2), votes=12)
    assert len(Votes.of(crowd).count) > 400 / 8
    coarse = agreement.raw_agreement(crowd, n_bootstrap=4000, random_state=0).interval
    direct = np.array([np.mean(_shares(crowd)[np.random.default_rng(k).integers(0, 400, 400)]) for k in range(4000)])
    assert coarse == pytest.approx(tuple(np.quantile(direct, [0.025, 0.975])), abs=3e-3)


@pytest.mark.parametrize("measure", ["alpha-nominal", "fleiss", "cohen"])
def test_intervals_of_small_samples_cover_no_agreement(measure: str) -> None:
    """Of 30 items labelled at random, plain percentiles hold 0 in 92% of cases."""
    rng = np.random.default_rng(6)
    hits = 0
    for _ in range(150):
        crowd = rng.integers(0, 3, (30, 3))
        low, high = MEASURES[measure](crowd, n_bootstrap=200, random_state=rng).interval
        hits += low <= 0 <= high
    assert hits >= 0.93 * 150 - 2 * np.sqrt(150 * 0.93 * 0.07)


def _shares(crowd: Annotations) -> npt.NDArray[np.float64]:
    votes = crowd.votes()
    return ((votes**2).sum(1) - votes.sum(1)) / (votes.sum(1) * (votes.sum(1) - 1))


def test_the_same_seed_gives_the_same_interval() -> None:
    first, again, other = (agreement.fleiss_kappa(UNITS, random_state=seed).interval for seed in (4, 4, 5))
    assert first == again != other
