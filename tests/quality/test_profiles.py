"""Quality: every column of a profile computed a second time, label by label, and outlooks by hand."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from crowdwise import Annotations, quality
from crowdwise.errors import ConfigError, DataError
from crowdwise.quality import Outlook, class_counts, independent_skill, outlook, unchecked, unchecked_errors
from crowdwise.quality import unchecked_times as times_of
from quality_helpers import Array, column, one_hot

C, SMOOTHING, PRIOR = 3, 2.0, 4.0


def crowd_of(seed: int) -> tuple[Annotations, Array]:
    """Four annotators who label some of 40 instances, one who labels a single one, and a silent one; a posterior."""
    rng = np.random.default_rng(seed)
    rows = [(i, j) for i in range(40) for j in range(4) if rng.random() < (0.9, 0.5, 0.7, 0.3)[j]] + [(7, 4)]
    instance, annotator = np.array(rows).T
    truth = rng.choice(C, 40, p=[0.6, 0.3, 0.1])
    label = np.where(rng.random(len(rows)) < 0.7, truth[instance], rng.choice(C, len(rows), p=[0.1, 0.2, 0.7]))
    posterior = rng.dirichlet(np.full(C, 0.5), 40)
    posterior[:5] = one_hot(truth[:5], C)
    posterior[5] = [0.5, 0.5, 0.0]
    sizes = {"n_instances": 40, "n_annotators": 6, "n_classes": C}
    return Annotations.from_triples(instance, annotator, label, **sizes), posterior


def tables(crowd: Annotations, posterior: Array) -> Array:
    """Expected numbers (R, C, C) by annotator, true class and label."""
    counts = np.zeros((crowd.n_annotators, C, C))
    for i, j, y in zip(crowd.instance, crowd.annotator, crowd.label, strict=True):
        for p in range(C):
            counts[j, p, y] += posterior[i, p] if posterior[i, p] >= 1e-4 else 0
    return counts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("known", [False, True])
def test_errors_are_those_counted_label_by_label(seed: int, known: bool) -> None:
    crowd, posterior = crowd_of(seed)
    counts = tables(crowd, posterior)
    average = (counts.sum(axis=0) + 1e-9) / (counts.sum(axis=0) + 1e-9).sum(axis=1, keepdims=True)
    confusion = np.random.default_rng(seed).dirichlet(np.ones(C), (6, C)) if known else None
    for j, row in enumerate(quality.annotators(crowd, posterior, confusion=confusion).to_pylist()):
        given = np.bincount(crowd.label[crowd.annotator == j], minlength=C)
        number = given.sum()
        assert row["num_examples_labeled"] == number
        seen = counts[j].sum(axis=1)
        matrix = (counts[j] + SMOOTHING * average) / (seen + SMOOTHING)[:, None]
        if confusion is not None:
            matrix = confusion[j]
        apart = sum(np.sum((matrix[p] - matrix[q]) ** 2) for p in range(C) for q in range(p))
        assert row["spammer_score"] == pytest.approx(1 - apart / (C * (C - 1)))
        recalls = {p: matrix[p, p] for p in range(C) if seen[p] >= 0.5}
        if not number:
            assert row["worst_class"] is row["bias"] is row["overused_class"] is row["confused_class"] is None
            assert row["agreement_with_consensus"] is row["worst_class_quality"] is row["confused_count"] is None
            continue
        worst = min(recalls.values(), default=None)  # half an instance of a class at least
        assert row["worst_class_quality"] == (None if worst is None else pytest.approx(worst))
        assert worst is None or recalls[row["worst_class"]] == worst
        wrong = {(p, y): counts[j, p, y] for p in range(C) for y in range(C) if p != y}
        most = max(wrong.values())
        assert row["confused_count"] == (pytest.approx(most) if most >= 0.5 else None)
        if most >= 0.5:
            assert wrong[row["confused_class"], row["confused_with"]] == most
        mine = crowd.annotator == j
        expected = posterior[crowd.instance[mine]].sum(axis=0)
        assert row["bias"] == pytest.approx(np.abs(given - expected).sum() / 2 / number)
        assert row["overused_class"] == int(np.argmax(given - expected))
        shares = []
        for i, y in zip(crowd.instance[mine], crowd.label[mine], strict=True):
            first = np.flatnonzero(posterior[i] >= posterior[i].max() - 1e-9)
            shares.append((y in first) / len(first))
        assert row["agreement_with_consensus"] == pytest.approx(np.mean(shares))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("confidence", [0.95, 0.5])
def test_skill_is_where_the_likelihood_is_largest(seed: int, confidence: float) -> None:
    """The belief q that a label is right was formed with a skill r; of the label itself nothing may count."""
    crowd, posterior = crowd_of(seed)
    table = quality.annotators(crowd, posterior, confidence=confidence)
    own = posterior[crowd.instance, crowd.label]
    mean = own.mean()
    for j in range(5):
        q = own[crowd.annotator == j]
        r = np.clip((q.sum() + PRIOR * mean) / (len(q) + PRIOR), 0.01, 0.99)

        def likelihood(s: float, q: Array = q, r: float = r) -> float:
            return float(np.log(s * q / r + (1 - s) * (1 - q) / (1 - r) + 1e-9).sum())

        def loss(s: float, likelihood: Any = likelihood) -> float:
            return -likelihood(s) - PRIOR * (mean * math.log(s) + (1 - mean) * math.log(1 - s))

        s = optimize.minimize_scalar(loss, bounds=(1e-6, 1 - 1e-6), method="bounded", options={"xatol": 1e-10}).x
        h = 1e-4 * min(s, 1 - s)
        labels = -(likelihood(s + h) - 2 * likelihood(s) + likelihood(s - h)) / h**2 * s * (1 - s) + PRIOR
        beta = stats.beta(s * labels, (1 - s) * labels)
        found = table.slice(j, 1).to_pylist()[0]
        assert found["annotator_quality"] == pytest.approx(beta.mean(), abs=1e-4)
        ends = beta.ppf([(1 - confidence) / 2, (1 + confidence) / 2])
        assert (found["annotator_quality_low"], found["annotator_quality_high"]) == pytest.approx(ends, abs=2e-3)


@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_drift_is_the_slope_of_a_regression_with_intervals_for_all(confidence: float) -> None:
    crowd, posterior = crowd_of(1)
    rng = np.random.default_rng(0)
    time = rng.permutation(len(crowd)).astype(float)
    time[rng.random(len(crowd)) < 0.1] = math.nan
    table = quality.annotators(crowd, posterior, timestamps=time, confidence=confidence)
    own = posterior[crowd.instance, crowd.label]
    lines = {}
    for j in range(6):
        rows = np.flatnonzero((crowd.annotator == j) & ~np.isnan(time))
        rows = rows[np.argsort(time[rows])]
        if len(rows) >= 4:
            lines[j] = stats.linregress(np.linspace(0, 1, len(rows)), own[rows]), len(rows)
    assert sorted(lines) == [0, 1, 2, 3]
    for j, row in enumerate(table.to_pylist()):
        if j not in lines:
            assert row["drift"] is row["drift_low"] is row["drift_high"] is None
            continue
        line, n = lines[j]
        half = line.stderr * stats.t.ppf((1 + confidence ** (1 / len(lines))) / 2, n - 2)
        found = row["drift"], row["drift_low"], row["drift_high"]
        assert found == pytest.approx((line.slope, line.slope - half, line.slope + half))


def test_distances_on_a_scale_are_expected_ones() -> None:
    """Grades 1, 2 and 5: an error of the last one weighs three or four steps."""
    crowd, posterior = crowd_of(2)
    named = Annotations.from_triples(
        crowd.instance, crowd.annotator, crowd.label, n_annotators=6, classes=["1", "2", "5"], n_instances=40
    )
    value = np.array([1.0, 2.0, 5.0])
    table = quality.annotators(named, posterior, ordered=["1", "2", "5"])
    counts = tables(crowd, posterior)
    for j in range(5):
        error = value[None, :] - value[:, None]  # label minus true class
        total = counts[j].sum()
        assert column(table, "mean_absolute_error")[j] == pytest.approx((counts[j] * np.abs(error)).sum() / total)
        assert column(table, "mean_error")[j] == pytest.approx((counts[j] * error).sum() / total)
    assert column(table, "mean_error")[5] is None
    assert "mean_error" not in quality.annotators(named, posterior, ordered="no").column_names


def test_right_labels_on_gold_are_counted_with_their_interval() -> None:
    crowd, posterior = crowd_of(3)
    gold = {i: int(i % C) for i in range(0, 40, 3)}
    table = quality.annotators(crowd, posterior, gold=gold, confidence=0.8)
    for j, row in enumerate(table.to_pylist()):
        mine = [(i, y) for i, k, y in zip(crowd.instance, crowd.annotator, crowd.label, strict=True) if k == j]
        hits = [gold[i] == y for i, y in mine if i in gold]
        assert row["num_gold"] == len(hits)
        if not hits:
            assert row["gold_accuracy"] is row["gold_accuracy_low"] is None
        elif 4 <= sum(hits) <= len(hits) - 4:  # with fewer, the ends are not Wilson's
            ends = stats.binomtest(sum(hits), len(hits)).proportion_ci(0.8, "wilson")
            found = row["gold_accuracy"], row["gold_accuracy_low"], row["gold_accuracy_high"]
            assert found == pytest.approx((np.mean(hits), ends.low, ends.high))


def test_sums_for_profiles_are_the_same_sparse_and_dense() -> None:
    from crowdwise.aggregation.core.crowd import MemoryCrowd

    crowd, posterior = crowd_of(0)
    memory = MemoryCrowd.of(crowd)
    counts = tables(crowd, posterior).transpose(0, 2, 1).reshape(-1, C)
    expected = np.array([posterior[crowd.instance[crowd.annotator == j]].sum(axis=0) for j in range(6)])
    for dense in (False, True):
        by_label, by_class = class_counts(memory, posterior, dense=dense)
        np.testing.assert_allclose(by_label if dense else by_label.toarray(), counts, atol=1e-12)
        np.testing.assert_allclose(by_class, expected, atol=1e-12)


def test_nothing_is_divided_by_zero() -> None:
    """Perfect annotators, one label each, one instance alone, and a single time."""
    perfect = Annotations.from_dense([[0, 0], [1, 1], [0, 0], [1, 1]])
    lone = Annotations.from_triples([0, 0, 1], [0, 1, 2], [0, 1, 1], n_instances=3, n_annotators=4)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for posterior in (None, one_hot(np.array([0, 1, 0, 1]), 2)):
            table = quality.annotators(perfect, posterior, timestamps=np.arange(8.0))
            assert all(0.5 < low < high <= 1 for low, high in zip(*ends_of(table), strict=True))
        table = quality.annotators(lone, timestamps=np.arange(3.0), durations=[1.0, 2.0, math.nan], gold={0: 1})
        assert column(table, "drift") == [None] * 4
        assert column(table, "seconds_per_label") == [1.0, 2.0, None, None]
        assert column(quality.instances(lone), "disagreement") == [1.0, None, None]
        assert column(quality.instances(lone), "annotator_agreement") == [0.5, 1.0, None]


def ends_of(table: Any) -> tuple[list[float], list[float]]:
    return column(table, "annotator_quality_low"), column(table, "annotator_quality_high")


def test_an_unbiased_annotator_overuses_no_class() -> None:
    posterior = one_hot(np.array([0, 1, 2, 0]), C)
    table = quality.annotators([[0, 0], [1, 0], [2, 2], [0, 0]], posterior)
    assert column(table, "overused_class") == [None, 0]
    assert column(table, "bias") == pytest.approx([0, 0.25])


def test_skills_of_known_numbers_of_right_labels() -> None:
    """8 of 10 and 1 of 5 are right: 4 labels of the mean, 9 of 15, are added to each."""
    found = independent_skill(np.array([8.0, 1.0]), np.array([10, 5]))
    assert found.mean == pytest.approx([(8 + 2.4) / 14, (1 + 2.4) / 9])
    assert found.quantile(0.1) == pytest.approx(stats.beta.ppf(0.1, [10.4, 3.4], [3.6, 5.6]))
    nobody = independent_skill(np.array([0.0]), np.array([0]))
    assert nobody.mean == pytest.approx([0.5])


# -- outlooks -----------------------------------------------------------------------------------------------------


def by_hand(doubt: Array, found: list[tuple[float, bool]], classes: int, alike: float) -> tuple[float, float, float]:
    """Share of right labels with its ends: errors are a multiple of those promised, with a Gamma distribution."""
    promised = sum(1 - sure for sure, _ in found)
    wrong = sum(not right for _, right in found)
    multiple = stats.gamma(5 + alike * wrong, scale=1 / (5 + alike * promised))
    most = 1 - 1 / classes

    def errors(times: float) -> float:
        return float(np.mean([min(times * each, most) for each in doubt]))

    middle, n = errors(multiple.mean()), len(doubt)
    chance = 1.96**2 * middle * (1 - middle) / n
    low = middle - math.sqrt((middle - errors(multiple.ppf(0.025))) ** 2 + chance)
    high = middle + math.sqrt((errors(multiple.ppf(0.975)) - middle) ** 2 + chance)
    return 1 - middle, 1 - min(high, 1), 1 - max(low, 0)


@pytest.mark.parametrize("classes", [2, 4])
def test_an_outlook_is_promised_errors_times_what_checks_found(classes: int) -> None:
    rest = np.array([0.95, 0.9, 0.55, 0.8, 0.99])
    same = [(0.838, False)] * 3 + [(0.838, True)] * 5  # as doubtful as the rest on average
    fewer = [(0.5, False)] * 3 + [(0.5, True)] * 5
    doubt = 1 - rest
    assert tuple_of(outlook(rest, [], classes, 0.97)) == pytest.approx(by_hand(doubt, [], classes, 1))
    assert tuple_of(outlook(rest, same, classes, 0.97)) == pytest.approx(by_hand(doubt, same, classes, 1))
    less = (doubt.mean() / 0.5) ** 2
    assert tuple_of(outlook(rest, fewer, classes, 0.97)) == pytest.approx(by_hand(doubt, fewer, classes, less))
    surer = [(0.99, True)] * 50  # more than as much as the rest: no more weight than one
    assert tuple_of(outlook(rest, surer, classes, 0.97)) == pytest.approx(by_hand(doubt, surer, classes, 1))


def tuple_of(found: Outlook) -> tuple[float, float, float]:
    return found.right, found.low, found.high


def test_the_most_doubtful_items_are_checked_first_until_the_rest_is_good_enough() -> None:
    """Errors expected of the rest after 0, 1, 2, ... checks: 0.18, 0.1, 0.0333, 0.0267, 0.02."""
    rest = 1 - np.array([0.02, 0.5, 0.0466, 0.3, 0.0334])
    for target, more in ((0.8, 0), (0.85, 1), (0.94, 2), (0.97, 3), (0.975, 4), (0.99, 5)):
        assert outlook(rest, [], 2, target).more == more
    assert outlook(np.empty(0), [(0.5, False)], 2, 0.9) == Outlook(1.0, 1.0, 1.0, 0)


def test_labels_that_nobody_checked_have_the_same_outlook_from_sums() -> None:
    rest = np.array([0.95, 0.9, 0.55, 0.8, 0.99, 0.4])
    whole = unchecked(unchecked_errors(rest, 3, times_of()), 6)
    assert tuple_of(whole) == pytest.approx(tuple_of(outlook(rest, [], 3, 0.97)))
    parts = [unchecked_errors(part, 3, times_of()) for part in (rest[:2], rest[2:])]
    assert tuple_of(unchecked((*np.sum(parts, axis=0),), 6)) == pytest.approx(tuple_of(whole))


# -- prices, calibration ------------------------------------------------------------------------------------------


def test_prices_must_be_numbers_above_zero() -> None:
    crowd = [["a", "b", "a"], ["b", "b", "a"], ["a", "a", "a"]]
    for price in (0, -1.0, True, "2", math.nan):
        with pytest.raises(ConfigError, match="annotator 2 needs a price above 0"):
            quality.next_labels(crowd, budget=2, costs={0: 1, 1: 1, 2: price})
    with pytest.raises(DataError, match="kinds has 2 entries, but there are 3 annotators"):
        quality.next_labels(crowd, budget=2, costs={"person": 1}, kinds=["person"] * 2)


def test_an_annotators_own_price_goes_before_its_kind_and_gains_are_ranked_by_price() -> None:
    crowd, posterior = crowd_of(0)
    confusion = np.random.default_rng(1).dirichlet(np.ones(C), (6, C))
    kinds = ["person", "model", "person", "model", "person", "person"]
    options: dict[str, Any] = {"confusion": confusion, "costs": {"person": 3.0, "model": 0.5, 2: 1.0}, "kinds": kinds}
    table = quality.next_labels(crowd, posterior, budget=9.0, votes={1: 0.25}, **options)
    prices = {0: 3.0, 1: 0.5, 2: 1.0, 3: 0.5, 4: 3.0, 5: 3.0}
    rates = []
    for row in table.to_pylist():
        belief, matrix = posterior[row["instance"]], confusion[row["annotator"]]
        joint = belief[:, None] * matrix
        bits = sum(p * math.log2(p / (b * g)) for line, b in zip(joint, belief, strict=True)
                   for p, g in zip(line, joint.sum(axis=0), strict=True) if p > 0)  # fmt: skip
        worth = 0.25 if row["annotator"] == 1 else 1.0
        assert row["expected_gain"] == pytest.approx(worth * bits)
        assert row["cost"] == prices[row["annotator"]]
        rates.append(row["expected_gain"] / row["cost"])
    assert rates == sorted(rates, reverse=True)
    assert 8 < sum(column(table, "cost")) <= 9


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_reliability_is_that_of_bins_filled_one_by_one(strategy: Any) -> None:
    rng = np.random.default_rng(0)
    posterior, truth = rng.dirichlet(np.ones(3), 200), rng.integers(-1, 3, 200)
    found = quality.calibration(posterior, truth, n_bins=7, strategy=strategy)
    known = truth >= 0
    sure, right = posterior[known].max(axis=1), posterior[known].argmax(axis=1) == truth[known]
    edges = np.linspace(0, 1, 8) if strategy == "uniform" else np.quantile(sure, np.linspace(0, 1, 8))
    gaps, counts, rows = [], [], []
    for k in range(7):
        inside = (sure > edges[k]) & (sure <= edges[k + 1]) | (sure == edges[0]) & (k == 0)
        if inside.any():
            gaps.append(abs(sure[inside].mean() - right[inside].mean()))
            counts.append(inside.sum())
            rows.append((edges[k], edges[k + 1], inside.sum(), sure[inside].mean(), right[inside].mean()))
    assert found.n == known.sum() == sum(counts)
    assert found.ece == pytest.approx(np.average(gaps, weights=counts))
    assert found.mce == pytest.approx(max(gaps))
    assert found.accuracy == pytest.approx(right.mean())
    assert found.confidence == pytest.approx(sure.mean())
    for row, expected in zip(found.bins.to_pylist(), rows, strict=True):
        assert tuple(row.values()) == pytest.approx(expected)
