"""Prediction-powered estimates: equal to the published formulas, and intervals that cover."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from crowdwise import Annotations, judges
from crowdwise.aggregation import DawidSkene
from crowdwise.data.shares import wilson
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError, UsageError
from crowdwise.judges._ppi import powered_mean, quantile, sampled_mean


def published(truth, predicted, further, alpha):
    """Interval of a mean with a tuned lambda as ppi_py writes it: population variances, normal quantiles."""
    n, many = len(truth), len(further)
    centred, hat = truth - truth.mean(axis=0), predicted - predicted.mean(axis=0)
    cross = (centred.T @ hat + hat.T @ centred) / n
    spread = np.atleast_2d(np.cov(np.concatenate([predicted, further]).T))
    lam = np.clip(np.trace(np.atleast_2d(cross)) / (2 * (1 + n / many) * np.trace(spread)), 0, 1)
    point = lam * further.mean(axis=0) + (truth - lam * predicted).mean(axis=0)
    error = np.sqrt((lam * further).std(axis=0) ** 2 / many + (truth - lam * predicted).std(axis=0) ** 2 / n)
    z = stats.norm.ppf(1 - alpha / 2)
    return lam, point, point - z * error, point + z * error


@pytest.mark.parametrize("columns", [1, 3])
def test_the_formulas_are_those_of_ppi_py(columns):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(40, columns))
    predicted = 0.7 * truth + 0.4 * rng.normal(size=truth.shape)
    further = rng.normal(size=(900, columns)) * 0.8
    lam, point, low, high = published(truth, predicted, further, 0.1)
    found = powered_mean(truth, predicted, further, ddof=0)
    z = stats.norm.ppf(0.95)
    for ours, theirs in (
        (found.lambda_, lam),
        (found.value, point),
        (found.value - z * found.error, low),
        (found.value + z * found.error, high),
    ):
        np.testing.assert_allclose(ours, np.broadcast_to(theirs, columns), atol=1e-10)
    own = powered_mean(truth, predicted, further)
    np.testing.assert_allclose(own.value, point, atol=1e-10)  # ours differs in the width only: sample variances
    assert (own.error > found.error).all()


def binary(correlation, n, rng):
    """Truth and a prediction with this correlation, both one half."""
    truth = rng.random(n) < 0.5
    return truth.astype(float)[:, None], np.where(rng.random(n) < correlation, truth, rng.random(n) < 0.5)[
        :, None
    ] * 1.0


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [50, 200])
def test_intervals_cover(correlation, n):
    rng = np.random.default_rng(n)
    t, covered, wider, powers = quantile(0.95, n), 0, 0.0, 0.0
    for _ in range(2000):
        truth, predicted = binary(correlation, n + 1000, rng)
        found = powered_mean(truth[:n], predicted[:n], predicted[n:])
        covered += bool(abs(found.value[0] - 0.5) <= t * found.error[0])
        wider += found.error[0] / (0.5 / np.sqrt(n)) / 2000
        powers += found.lambda_[0] / 2000
    assert 0.93 <= covered / 2000 <= 0.97
    assert wider == pytest.approx(np.sqrt(1 - correlation**2 * 1000 / (n + 1000)), abs=0.05)
    assert powers == pytest.approx(correlation / (1 + n / 1000), abs=0.07)


def test_intervals_cover_where_gold_is_drawn_unequally():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        truth, predicted = binary(0.8, 1500, rng)
        truth, predicted = truth * 1.0, predicted * 0.8 + 0.1
        probability = np.where(predicted[:, 0] > 0.5, 0.25, 0.1)
        chosen = rng.random(1500) < probability
        found = sampled_mean(truth, predicted, chosen, probability)
        covered += bool(abs(found.value[0] - 0.5) <= quantile(0.95, int(chosen.sum())) * found.error[0])
    assert 0.92 <= covered / 1000 <= 0.98


def labelled(n=3000, n_gold=200, seed=0, right=0.8):
    """Five people, a model that takes a tenth of the ones for zeros, three classes."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    people = np.where(rng.random((n, 5)) < right, truth[:, None], rng.integers(0, 3, (n, 5)))
    model = np.where((truth == 1) & (rng.random(n) < 0.3), 0, truth)
    crowd = Annotations.from_dense(np.concatenate([people, model[:, None]], axis=1))
    return crowd, truth, {int(i): int(truth[i]) for i in rng.choice(n, n_gold, replace=False)}


def test_shares_sum_to_one_and_are_narrower_than_from_gold_alone():
    crowd, truth, gold = labelled()
    found = judges.estimate(crowd, gold, of=5)
    assert found.value.sum() == pytest.approx(1, abs=1e-12)
    assert np.all(found.lambda_ == found.lambda_[0])
    shares = np.bincount(truth) / len(truth)
    assert np.all((found.low <= shares) & (shares <= found.high))
    width = found.gold_only_interval[:, 1] - found.gold_only_interval[:, 0]
    assert np.all(found.high - found.low < width)
    assert np.all(found.effective_n > 200)
    assert not found.labels_valid[0]  # the model has too many zeros
    assert (found.n, found.N) == (200, 2800)
    assert found.to_table()["class"].to_pylist() == [0, 1, 2]
    by_class = judges.estimate(crowd, gold, of=5, tuning="class")
    assert len(set(by_class.lambda_)) == 3
    gold_only = judges.estimate(crowd, gold, of=5, tuning=0.0)
    np.testing.assert_allclose(gold_only.value, gold_only.gold_only)


def test_accuracy_of_a_model_and_of_a_consensus():
    crowd, truth, gold = labelled()
    model = judges.estimate(crowd, gold, "accuracy", 5)
    right = np.mean(crowd.where(crowd.annotator == 5).label == truth)
    assert model.low <= right <= model.high
    assert model.effective_n > 300
    crowd, truth, gold = labelled(800, right=0.4)
    crowd = crowd.where(crowd.annotator < 5)
    for of in (None, "dawid-skene", DawidSkene(), DawidSkene().fit(crowd).posterior_):
        found = judges.estimate(crowd, gold, "accuracy", of)
        assert found.low < found.value < found.high


def test_confusions_are_rows_of_distributions():
    crowd, truth, gold = labelled(n_gold=300)
    found = judges.estimate(crowd, gold, "confusion", 5)
    label = crowd.where(crowd.annotator == 5).label
    true = np.array([[np.mean(label[truth == p] == q) for q in range(3)] for p in range(3)])
    np.testing.assert_allclose(found.value.sum(axis=1), 1, atol=1e-9)
    inside = (found.low - 1e-3 <= true) & (true <= found.high + 1e-3)
    assert inside.mean() >= 8 / 9
    assert found.effective_n[1, 0] > 300
    assert found.to_table().num_rows == 9


def test_confusions_of_rare_classes_have_no_interval():
    crowd, truth, _ = labelled(600)
    few = [*np.flatnonzero(truth == 0)[:50], *np.flatnonzero(truth == 1)[:50], *np.flatnonzero(truth == 2)[:3]]
    with pytest.warns(CrowdwiseWarning, match="fewer than 5 gold labels, so no interval, for: 2"):
        found = judges.estimate(crowd, {int(i): int(truth[i]) for i in few}, "confusion", 5)
    assert np.isnan(found.low[2]).all()
    assert not np.isnan(found.low[:2]).any()


def test_means_need_numbers():
    crowd, truth, gold = labelled()
    found = judges.estimate(crowd, gold, "mean", 5)
    assert found.low <= truth.mean() <= found.high
    other = judges.estimate(crowd, gold, "mean", 5, values=[0, 10, 20])
    assert other.value == pytest.approx(10 * found.value)


def test_gold_of_other_instances_with_other_shares():
    rng = np.random.default_rng(0)
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth = np.concatenate([rng.random(300) < 0.5, rng.random(2000) < 0.2]).astype(int)
        model = np.where(truth == 1, rng.random(2300) < 0.8, rng.random(2300) < 0.1).astype(int)
        found = judges.estimate(model[:, None], {i: truth[i] for i in range(300)}, of=0, assume="label-shift")
        share = truth[300:].mean()
        covered.append(found.low[1] <= share <= found.high[1])
    assert np.mean(covered) > 0.9
    noise = rng.integers(0, 2, 2300)[:, None]
    with pytest.raises(DataError, match="condition number"):
        judges.estimate(noise, {i: truth[i] for i in range(2000)}, of=0, assume="label-shift")


def test_a_labeller_without_errors_on_gold_is_not_taken_for_flawless():
    crowd, truth, _ = labelled(600)
    right = np.flatnonzero(crowd.where(crowd.annotator == 5).label == truth)[:40]
    with pytest.warns(CrowdwiseWarning, match="a rough one"):
        found = judges.estimate(crowd, {int(i): int(truth[i]) for i in right}, "accuracy", 5)
    assert found.value == found.high == 1.0
    assert found.low == pytest.approx(0.912, abs=0.002)


def test_sampling_probabilities_are_used():
    crowd, truth, _ = labelled()
    rng = np.random.default_rng(3)
    probability = np.where(truth == 0, 0.05, 0.2)
    gold = {int(i): int(truth[i]) for i in np.flatnonzero(rng.random(3000) < probability)}
    found = judges.estimate(crowd, gold, of=5, sampling=probability)
    shares = np.bincount(truth) / len(truth)
    assert np.all((found.low - 0.02 <= shares) & (shares <= found.high + 0.02))
    assert np.all(np.abs(judges.estimate(crowd, gold, of=5).gold_only - shares) > 0.05)
    same = judges.estimate(crowd, gold, of=5, sampling=dict(enumerate(probability)))
    np.testing.assert_array_equal(same.value, found.value)


def test_rare_cases_are_warned_about_and_nonsense_refused():
    crowd, _truth, gold = labelled(600, n_gold=10)
    with pytest.warns(CrowdwiseWarning, match="fewer than 5 gold cases"):
        assert judges.estimate(crowd, gold, of=5).warnings
    with pytest.raises(DataError, match="no gold labels"):
        judges.estimate(crowd, {}, of=5)
    with pytest.raises(ConfigError, match="no annotator is called 'gtp'"):
        judges.estimate(crowd, gold, of="gtp")
    with pytest.raises(DataError, match="2 are needed"):
        judges.estimate(crowd, {0: 1}, of=5)
    with pytest.raises(ConfigError, match="unknown what"):
        judges.estimate(crowd, gold, "share")
    with pytest.raises(ConfigError, match="label-shift"):
        judges.estimate(crowd, gold, "mean", assume="label-shift")


def test_a_plan_keeps_its_promise():
    wide = judges.plan(0.8, 5000, width=0.1)
    assert wide.width <= 0.1 < judges.plan(0.8, 5000, budget=wide.n_gold - 1).width
    assert judges.plan(0.0, 5000, width=0.1).effective_n == pytest.approx(judges.plan(0.0, 0, width=0.1).n_gold, abs=1)
    assert wide.effective_n == pytest.approx(wide.n_gold / (1 - 0.64 * 5000 / (wide.n_gold + 5000)))
    assert not judges.plan(0.2, 5000, cost_label=0.5, width=0.1).use_model
    assert judges.plan(1.0, 100_000, width=0.01).n_gold < 100_000
    for options in ({}, {"width": 0.1, "budget": 5}, {"budget": 1}):
        with pytest.raises(UsageError):
            judges.plan(0.5, 10, **options)


def test_a_correlated_label_saves_gold_as_planned():
    rng = np.random.default_rng(0)
    errors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(200):
            truth, predicted = binary(0.7, 2100, rng)
            errors.append(powered_mean(truth[:100], predicted[:100], predicted[100:]).error[0])
    planned = judges.plan(0.7, 2000, budget=100).width / 2 / stats.norm.ppf(0.975)
    assert np.mean(errors) == pytest.approx(planned, rel=0.05)


SIX = np.array([[0, 0], [0, 1], [1, 1], [1, 1], [0, 0], [1, 0], [0, 0], [1, 1], [1, 1], [0, 0]])  # model, truth


@pytest.mark.filterwarnings("ignore:.*fewer than 5 gold cases")
def test_estimates_of_ten_instances_by_hand():
    """Gold of the first six; lambda is cov(truth, model) / ((1 + 6/4) var(model)), 1/12 / (5/2 * 5/18)."""
    model, truth = SIX.T
    gold = {i: int(truth[i]) for i in range(6)}
    found = judges.estimate(model[:, None], gold, of=0, level=0.9)
    power = (1 / 12) / (2.5 * 5 / 18)
    assert found.lambda_ == pytest.approx([power, power])
    rest = truth[:6] - power * model[:6]
    value = rest.mean() + power * model[6:].mean()
    error = np.sqrt((power * model[6:].std(ddof=1)) ** 2 / 4 + rest.var(ddof=1) / 6)
    half = stats.t.ppf(0.95, 5) * error
    alone = truth[:6].std(ddof=1) / np.sqrt(6)
    assert found.value == pytest.approx([1 - value, value])
    assert found.gold_only == pytest.approx([0.5, 0.5])
    assert found.labels_only == pytest.approx([0.5, 0.5])
    assert found.effective_n == pytest.approx([6 * alone**2 / error**2] * 2)
    assert (found.n, found.N, found.of, found.what, found.level) == (6, 4, "0", "shares", 0.9)
    by_gold = tuple(map(float, wilson(3, 6, 0.9)))
    assert found.gold_only_interval[1] == pytest.approx(by_gold)
    assert found.low[1] == pytest.approx(max(min(value - half, by_gold[0]), 0))  # of few cases the wider one
    assert found.high[1] == pytest.approx(min(max(value + half, by_gold[1]), 1))
    labels = model.std(ddof=1) / np.sqrt(10) * stats.t.ppf(0.95, 5)
    assert found.labels_only_interval[1] == pytest.approx((0.5 - labels, 0.5 + labels))
    mean = judges.estimate(model[:, None], gold, "mean", 0, level=0.9, values=[10, 30])
    assert (mean.value, mean.low, mean.high) == pytest.approx(
        [10 + 20 * x for x in (value, value - half, value + half)]
    )
    assert isinstance(mean.value, float)
    fixed = judges.estimate(model[:, None], gold, of=0, tuning=1.0)
    assert fixed.value[1] == pytest.approx(0 + model[6:].mean())  # truth and model have the same mean on gold
    assert fixed.lambda_ == pytest.approx([1, 1])


def test_labels_are_valid_where_their_interval_meets_the_combined_one():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 1000)
    biased = np.where(rng.random(1000) < 0.3, 0, truth)
    gold = {int(i): int(truth[i]) for i in range(300)}
    for model, valid in ((truth, True), (biased, False)):
        found = judges.estimate(model[:, None], gold, of=0)
        meets = (found.labels_only_interval[:, 0] <= found.high) & (found.labels_only_interval[:, 1] >= found.low)
        assert found.labels_valid.tolist() == meets.tolist() == [valid, valid]


@pytest.mark.filterwarnings("ignore:.*fewer than 5 gold cases")
def test_sampled_gold_is_weighed_by_hand():
    model, truth = SIX.T
    probability = np.linspace(0.3, 0.9, 10)
    chosen = np.array([0, 1, 2, 5, 7, 9])
    gold = {int(i): int(truth[i]) for i in chosen}
    found = judges.estimate(model[:, None], gold, of=0, sampling=probability, tuning=0.5)
    drawn = np.isin(np.arange(10), chosen)
    terms = 0.5 * model + np.where(drawn, truth - 0.5 * model, 0) / probability
    error = terms.std(ddof=1) / np.sqrt(10)
    half = stats.t.ppf(0.975, 5) * error
    assert found.value[1] == pytest.approx(terms.mean())
    ends = np.clip([terms.mean() - half, terms.mean() + half], 0, 1)
    assert (found.low[1], found.high[1]) == pytest.approx(tuple(ends))
    assert found.gold_only[1] == pytest.approx(np.mean(drawn * truth / probability))
    tuned = judges.estimate(model[:, None], gold, of=0, sampling=probability)
    ratio = (1 - probability) / probability
    above, below = 0.0, 0.0
    for column, predicted in ((truth, model), (1 - truth, 1 - model)):
        above += np.sum(drawn / probability * ratio * column * predicted)
        below += np.sum(ratio * predicted)
    assert tuned.lambda_ == pytest.approx([np.clip(above / below, 0, 1)] * 2)
    for bad in (np.zeros(10), np.full(10, 1.1), np.ones(9)):
        with pytest.raises(DataError, match="a probability above 0 for each of the 10 instances"):
            judges.estimate(model[:, None], gold, of=0, sampling=bad)
    with pytest.raises(DataError, match=r"sampling lacks instance 3 and 6 more"):
        judges.estimate(model[:, None], gold, of=0, sampling={0: 0.5, 1: 0.5, 2: 0.5})
    with pytest.raises(ConfigError, match="not for confusions"):
        judges.estimate(model[:, None], gold, "confusion", 0, sampling=probability)


def test_label_shift_is_rogan_and_gladens_correction():
    """Of classes 0, 1, 2 the model finds other shares; 1 is added to each cell of what it said on gold."""
    rng = np.random.default_rng(2)
    truth = np.concatenate([rng.choice(3, 200, p=[0.6, 0.3, 0.1]), rng.choice(3, 900, p=[0.25, 0.3, 0.45])])
    model = np.where(rng.random(1100) < [0.9, 0.8, 0.7][0], truth, (truth + rng.integers(1, 3, 1100)) % 3)
    found = judges.estimate(
        model[:, None], dict(enumerate(truth[:200].tolist())), of=0, assume="label-shift", level=0.8
    )
    table = np.ones((3, 3))
    for said, true in zip(model[:200], truth[:200], strict=True):
        table[said, true] += 1
    share = np.bincount(model[200:], minlength=3) / 900

    def corrected(table, share):
        return np.linalg.solve(table / table.sum(axis=0), share)

    assert found.value == pytest.approx(corrected(table, share))
    assert found.labels_only == pytest.approx(share)
    assert found.value.sum() == pytest.approx(1)
    variance = np.zeros(3)  # by the delta method: each count moves the shares a little
    step = 1e-6
    for columns, of in ((table / table.sum(axis=0), table.sum(axis=0)), (share[:, None], [900])):
        for p, n in enumerate(of):
            slopes = []
            for q in range(3):
                moved = columns.copy()
                moved[q, p] += step
                changed = np.linalg.solve(moved, share) if len(of) == 3 else corrected(table, moved[:, 0])
                slopes.append((changed - corrected(table, share)) / step)
            chance = columns[:, p]
            spread = (np.diag(chance) - np.outer(chance, chance)) / n
            variance += np.einsum("qk,qr,rk->k", slopes, spread, slopes)
    half = stats.norm.ppf(0.9) * np.sqrt(variance)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-3)
    assert (found.high + found.low) / 2 == pytest.approx(found.value)
    naive = stats.norm.ppf(0.9) * np.sqrt(share * (1 - share) / 900)
    assert found.labels_only_interval == pytest.approx(np.stack([share - naive, share + naive], axis=1))
    assert (found.n, found.N) == (200, 900)
    assert np.isnan(found.gold_only).all()


def test_confusions_of_a_model_without_doubt_are_counted():
    """With gold of everything, rows are those of the table of counts, and the interval is that of a ratio of means."""
    rng = np.random.default_rng(1)
    truth = rng.choice(3, 300, p=[0.5, 0.3, 0.2])
    model = np.where(rng.random(300) < 0.7, truth, rng.integers(0, 3, 300))
    found = judges.estimate(model[:, None], dict(enumerate(truth.tolist())), "confusion", 0)
    for p in range(3):
        n = np.sum(truth == p)
        shares = np.bincount(model[truth == p], minlength=3) / n
        assert found.value[p] == pytest.approx(shares)
        assert found.gold_only[p] == pytest.approx(shares)
        half = stats.t.ppf(0.975, 299) * np.sqrt(shares * (1 - shares) / n * 300 / 299)
        assert found.high[p] - found.value[p] == pytest.approx(half)
        assert found.value[p] - found.low[p] == pytest.approx(half)
    assert found.N == 0
    assert found.lambda_ == pytest.approx(np.zeros((3, 3)))
    assert found.effective_n == pytest.approx(np.full((3, 3), 300))
    names = found.to_table().select(["class", "label", "value"]).to_pylist()
    assert [(row["class"], row["label"]) for row in names] == [(p, q) for p in range(3) for q in range(3)]
    assert [row["value"] for row in names] == pytest.approx(found.value.ravel())


@pytest.mark.filterwarnings("ignore:.*fewer than 5 gold cases")
def test_the_table_of_an_estimate_has_every_figure():
    crowd, _, gold = labelled(600, n_gold=100)
    found = judges.estimate(crowd, gold, of=5)
    table = found.to_table()
    assert table["value"].to_pylist() == found.value.tolist()
    assert table["low"].to_pylist() == found.low.tolist()
    assert table["high"].to_pylist() == found.high.tolist()
    assert table["gold_only"].to_pylist() == found.gold_only.tolist()
    for name, ends in (("gold_only", found.gold_only_interval), ("labels_only", found.labels_only_interval)):
        assert table[f"{name}_low"].to_pylist() == ends[:, 0].tolist()
        assert table[f"{name}_high"].to_pylist() == ends[:, 1].tolist()
    assert table["lambda"].to_pylist() == found.lambda_.tolist()
    assert table["effective_n"].to_pylist() == found.effective_n.tolist()
    accuracy = judges.estimate(crowd, gold, "accuracy", "majority-vote").to_table().to_pylist()
    assert [row["what"] for row in accuracy] == ["accuracy"]


@pytest.mark.filterwarnings("ignore:.*fewer than 5 gold cases")
def test_labellers_are_annotators_before_methods_and_all_are_told_apart():
    crowd, truth, gold = labelled(600, n_gold=100)
    posterior = np.full((600, 3), 0.1)
    posterior[np.arange(600), truth] = 0.8
    found = judges.estimate(crowd, gold, "accuracy", posterior)
    assert found.of == "the posterior"
    assert found.value == pytest.approx(1, abs=0.01)
    for wrong in (posterior[:5], posterior[:, :2]):
        with pytest.raises(DataError, match="of has shape"):
            judges.estimate(crowd, gold, of=wrong)
    names = ["a", "b", "c", "d", "e", "majority-vote"]
    named = Annotations.from_triples(crowd.instance, crowd.annotator, crowd.label, annotators=names)
    by_name, by_code = judges.estimate(named, gold, of="majority-vote"), judges.estimate(crowd, gold, of=5)
    assert by_name.value == pytest.approx(by_code.value)
    assert judges.estimate(crowd, gold, of="majority-vote").of == "majority-vote"
    some = crowd.where((crowd.annotator != 5) | (crowd.instance >= 300))
    half = judges.estimate(some, gold, of=5)
    assert (half.n, half.N) == (sum(i >= 300 for i in gold), 300 - sum(i >= 300 for i in gold))


def test_rare_cases_are_told_of_in_words():
    crowd, truth, _ = labelled(600)
    right = np.flatnonzero(crowd.where(crowd.annotator == 5).label == truth)[:40]
    with pytest.warns(CrowdwiseWarning, match="^there are fewer than 5 gold cases for or against"):
        judges.estimate(crowd, {int(i): int(truth[i]) for i in right}, "accuracy", "majority-vote")
    common = np.flatnonzero(truth < 2)[:60]
    with pytest.warns(CrowdwiseWarning, match="^1 of the 3 classes have fewer than 5 gold cases"):
        found = judges.estimate(crowd, {int(i): int(truth[i]) for i in common}, of=5)
    assert found.warnings == (
        "1 of the 3 classes have fewer than 5 gold cases for or against: the interval is a rough one",
    )


def test_a_flawless_labeller_is_worth_as_many_gold_labels_as_there_are():
    """All labels are the same: nothing varies, and no error can be made smaller."""
    found = judges.estimate(np.zeros((30, 1), int), dict.fromkeys(range(10), 0), "mean", 0, values=[3.0])
    assert found.effective_n == 10
    assert (found.value, found.low, found.high) == (3.0, 3.0, 3.0)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_a_plan_by_hand(level):
    found = judges.plan(0.6, 1000, cost_gold=2.0, cost_label=0.1, budget=500, deviation=0.4, level=level)
    n = 200  # (500 - 100) / 2
    saved = 1 - 0.36 * 1000 / (n + 1000)
    z = stats.norm.ppf((1 + level) / 2)
    assert found.n_gold == n
    assert found.n_labels == 1000
    assert found.width == pytest.approx(2 * z * 0.4 * np.sqrt(saved / n))
    assert found.effective_n == pytest.approx(n / saved)
    assert found.cost == 500
    assert found.cost_gold_only == pytest.approx(2 * n / saved)
    assert found.use_model == (found.cost_gold_only > 500)
    again = judges.plan(0.6, 1000, cost_gold=2.0, cost_label=0.1, width=found.width, deviation=0.4, level=level)
    assert again.n_gold == n
    assert again.use_model == found.use_model
    dear = judges.plan(0.1, 1000, cost_gold=2.0, cost_label=0.1, budget=500)
    assert not dear.use_model
    assert "use people only" in str(dear)
    assert "instead of" in str(judges.plan(0.9, 1000, budget=100))
