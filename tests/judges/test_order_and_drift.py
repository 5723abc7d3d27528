"""Judges that prefer the first, and models that change between versions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from crowdwise import Annotations, judges
from crowdwise.data.shares import wilson
from crowdwise.errors import ConfigError, DataError
from crowdwise.judges import _drift


def verdicts(n=400, bias=0.0, seed=0, ties=0.0):
    """Each pair in both orders; with probability ``bias``, the first place wins."""
    rng = np.random.default_rng(seed)
    rows = []
    for item in range(n):
        better = rng.random() < 0.5
        for swapped in (False, True):
            pair = ("b", "a") if swapped else ("a", "b")
            winner = "first" if rng.random() < bias else ("a" if better else "b")
            rows.append((item, "judge", *pair, "tie" if rng.random() < ties else winner))
    columns = ("item", "judge", "first", "second", "winner")
    return {name: [row[k] for row in rows] for k, name in enumerate(columns)}


def test_a_fair_judge_is_consistent():
    row = judges.order(verdicts()).table.to_pylist()[0]
    assert (row["n_pairs"], row["consistency"], row["n_inconsistent"]) == (400, 1.0, 0)
    assert row["first_share"] is None
    assert row["p_value"] is None


def test_a_biased_judge_is_found_out():
    row = judges.order(verdicts(bias=0.3)).table.to_pylist()[0]
    assert row["consistency"] == pytest.approx(1 - 0.3, abs=0.06)
    assert row["first_share"] == 1.0
    assert row["p_value"] < 1e-6
    assert row["first_low"] > 0.9
    tied = judges.order(verdicts(ties=0.2)).table.to_pylist()[0]
    assert tied["tie_rate"] == pytest.approx(0.2, abs=0.04)
    assert tied["n_inconsistent"] == 0


def test_two_orders_weigh_a_half_each():
    found = judges.order(verdicts(bias=0.3))
    half, tie, drop = (found.to_table(inconsistent=rule) for rule in ("half", "tie", "drop"))
    assert sum(half["weight"].to_pylist()) == sum(tie["weight"].to_pylist()) == 400
    assert set(half["weight"].to_pylist()) == {0.5}
    inconsistent = found.table["n_inconsistent"][0].as_py()
    assert tie["label"].to_pylist().count("tie") == inconsistent
    assert sum(drop["weight"].to_pylist()) == 400 - inconsistent


def test_pairs_in_one_order_are_counted_apart():
    table = {name: values[:3] for name, values in verdicts().items()}
    row = judges.order(table).table.to_pylist()[0]
    assert (row["n_pairs"], row["n_single"]) == (1, 1)
    with pytest.raises(DataError, match="no column 'winner'"):
        judges.order({name: values for name, values in table.items() if name != "winner"})
    with pytest.raises(DataError, match="row 0: the winner 'c' is neither"):
        judges.order({**table, "winner": ["c", "a", "a"]})


MIXED = [  # item, judge, first, second, winner
    (1, "j", "a", "b", "first"), (1, "j", "b", "a", "a"),  # consistent
    (2, "j", "a", "b", "first"), (2, "j", "b", "a", "b"),  # the first place, both times
    (3, "j", "b", "a", "second"), (3, "j", "a", "b", "b"),  # the second place, both times
    (4, "j", "x", "a", "tie"), (4, "j", "a", "x", "a"),  # a tie and a winner
    (5, "j", "a", "b", "tie"), (5, "j", "b", "a", "tie"),  # consistent
    (6, "j", "b", "c", "b"),  # one order only
    (7, "j", "a", "b", "b"), (7, "j", "a", "b", "a"), (7, "j", "b", "a", "a"),  # asked twice: the last answer counts
    (1, "k", "a", "b", "second"), (1, "k", "b", "a", "second"),  # the second place, by another judge
]  # fmt: skip


def mixed():
    columns = ("item", "judge", "first", "second", "winner")
    return {name: [row[k] for row in MIXED] for k, name in enumerate(columns)}


def test_verdicts_of_all_kinds_are_counted_by_hand():
    j, k = judges.order(mixed(), level=0.9).table.to_pylist()
    assert (j["judge"], j["n_pairs"], j["n_inconsistent"], j["n_single"]) == ("j", 6, 2, 1)
    assert j["consistency"] == pytest.approx(3 / 6)
    assert j["first_share"] == pytest.approx(1 / 2)
    assert j["p_value"] == pytest.approx(1)
    assert j["tie_rate"] == pytest.approx(3 / 14)
    assert (j["low"], j["high"]) == pytest.approx(tuple(map(float, wilson(3, 6, 0.9))))
    assert (j["first_low"], j["first_high"]) == pytest.approx(tuple(map(float, wilson(1, 2, 0.9))))
    assert (k["n_pairs"], k["consistency"], k["first_share"], k["p_value"], k["tie_rate"]) == (1, 0, 0, 1, 0)
    biased = [(i, "j", *pair, "first") for i in range(9) for pair in (("a", "b"), ("b", "a"))]
    biased += [(9, "j", "a", "b", "second"), (9, "j", "b", "a", "second")]
    table = {name: [row[k] for row in biased] for k, name in enumerate(mixed())}
    row = judges.order(table).table.to_pylist()[0]
    assert row["first_share"] == 0.9
    assert row["p_value"] == pytest.approx(2 * 11 / 2**10)  # 9 or 10 of 10, either way


def test_verdicts_are_weighed_by_hand():
    def weights(rule):
        table = judges.order(mixed()).to_table(rule).to_pylist()
        found = {}
        for row in table:
            key = row["instance"][0], row["annotator"], row["label"]
            found[key] = found.get(key, 0) + row["weight"]
        return found

    agreed = {("1", "j", "a"): 1, ("5", "j", "tie"): 1, ("6", "j", "b"): 1}
    halves = {("2", "j", "a"): 0.5, ("2", "j", "b"): 0.5, ("3", "j", "a"): 0.5, ("3", "j", "b"): 0.5}
    halves |= {("4", "j", "tie"): 0.5, ("4", "j", "a"): 0.5, ("7", "j", "b"): 0.25, ("7", "j", "a"): 0.75}
    halves |= {("1", "k", "a"): 0.5, ("1", "k", "b"): 0.5}
    assert weights("half") == agreed | halves
    assert weights("drop") == agreed
    ties = {(item, judge, "tie"): 1 for item, judge in (("2", "j"), ("3", "j"), ("4", "j"), ("7", "j"), ("1", "k"))}
    assert weights("tie") == agreed | ties
    names = judges.order(mixed()).to_table()["instance"].to_pylist()
    assert names[0] == "1: a vs b"
    assert "4: a vs x" in names
    with pytest.raises(ConfigError, match="inconsistent"):
        judges.order(mixed()).to_table("both")


def test_nonsense_about_pairs_is_refused():
    with pytest.raises(DataError, match="row 0: 'a' is compared with itself"):
        judges.order({name: [value] for name, value in zip(mixed(), (1, "j", "a", "a", "a"), strict=True)})
    with pytest.raises(DataError, match="no verdicts"):
        judges.order({name: [] for name in mixed()})
    verdicts_ = judges.order(mixed()).verdicts.to_pylist()
    assert [row["winner"] for row in verdicts_[:5]] == ["a", "a", "a", "b", "a"]


def versions(change=0.0, n=400, seed=0, people=4):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    said = [np.where(rng.random(n) < 0.9, truth, rng.integers(0, 3, n)) for _ in range(people)]
    before = np.where(rng.random(n) < 0.8, truth, rng.integers(0, 3, n))
    after = np.where(rng.random(n) < change, 2, before)
    names = [*(f"p{j}" for j in range(people)), "gpt@1", "gpt@2"]
    columns = np.stack([*said, before, after], axis=1)
    crowd = Annotations.from_triples(
        np.repeat(np.arange(n), len(names)), np.tile(np.arange(len(names)), n), columns.ravel(), annotators=names
    )
    return crowd, truth, before, after


def test_an_unchanged_model_shows_no_change():
    crowd, truth, *_ = versions()
    row = judges.drift(crowd, truth).table.to_pylist()[0]
    assert row["flip_rate"] == 0
    assert row["p_adjusted"] == 1.0
    assert row["accuracy_p"] == 1.0


def test_a_changed_model_is_found_out():
    crowd, truth, before, after = versions(0.3)
    found = judges.drift(crowd, truth)
    row = found.table.to_pylist()[0]
    assert row["model"] == "gpt"
    assert found.reference == "gold"
    assert row["flip_rate"] == pytest.approx(np.mean(before != after))
    assert row["low"] < row["flip_rate"] < row["high"]
    assert row["p_adjusted"] < 1e-3
    assert row["accuracy_after"] < row["accuracy_before"]
    assert row["kappa_high"] < 0
    worse, better = np.sum((before == truth) & (after != truth)), np.sum((before != truth) & (after == truth))
    assert row["accuracy_p"] == pytest.approx(stats.binomtest(int(better), int(better + worse)).pvalue)
    assert "changed" in str(found)


def test_people_are_the_reference_without_gold():
    crowd, *_ = versions(0.3)
    found = judges.drift(crowd, models=["gpt@1", "gpt@2"])
    assert found.reference == "people"
    assert found.table["n_reference"][0].as_py() == 400


def shares_p(labels, **options):
    return judges.drift(Annotations.from_dense(labels), pairs=[(0, 1)], **options).table["shares_p"][0].as_py()


def test_the_test_of_shares_is_exact_for_two_classes():
    """Of 40 labels that differ, 30 went one way; the 60 that are the same do not count."""
    p = shares_p(np.array([[0, 1]] * 30 + [[1, 0]] * 10 + [[0, 0]] * 60))
    assert p == pytest.approx(stats.binomtest(10, 40).pvalue)


def test_the_test_of_shares_is_the_share_of_all_exchanges():
    """Every exchange of the two labels of nine items that differ is tried out."""
    labels = np.array([[0, 1], [0, 2], [0, 1], [0, 3], [1, 2], [0, 3], [2, 1], [3, 0], [0, 2], [1, 1], [2, 2]])

    def statistic(pairs):
        first, second = (np.bincount(column, minlength=4) for column in pairs.T)
        spread = np.zeros((4, 4))
        for a, b in pairs:
            spread += np.outer(np.eye(4)[a] - np.eye(4)[b], np.eye(4)[a] - np.eye(4)[b])
        return (first - second) @ np.linalg.pinv(spread) @ (first - second)

    values = []
    for turned in itertools.product([False, True], repeat=9):
        pairs = labels.copy()
        pairs[:9][list(turned)] = pairs[:9][list(turned)][:, ::-1]
        values.append(statistic(pairs))
    share = np.mean(np.array(values) >= statistic(labels) - 1e-9)
    assert 0.05 < share < 0.5
    assert shares_p(labels) == pytest.approx(share, abs=4 * np.sqrt(share / 10_000))


def test_exchanges_and_the_chi_square_distribution_agree_on_many_labels(monkeypatch):
    rng = np.random.default_rng(0)
    labels = rng.choice(4, (900, 2), p=[0.4, 0.3, 0.2, 0.1])
    labels[:40] = [0, 3]
    exact = shares_p(labels)
    monkeypatch.setattr(_drift, "FEW_FLIPS", 10)
    assert 0.001 < exact < 0.2
    assert shares_p(labels) == pytest.approx(exact, rel=0.15)


def test_small_samples_of_many_classes_give_no_false_alarm():
    rng = np.random.default_rng(1)
    p = []
    for _ in range(200):
        truth = rng.integers(0, 6, 25)
        p.append(shares_p(np.where(rng.random((25, 2)) < 0.5, truth[:, None], rng.integers(0, 6, (25, 2)))))
    assert np.mean(np.array(p) < 0.05) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
    assert np.mean(np.array(p) < 0.5) > 0.35  # and the test is not needlessly strict


@pytest.mark.parametrize("gold", [True, False])
def test_versions_need_not_use_the_same_classes(gold):
    """The last class is given by one version only, or by none."""
    labels = np.array([[0, 0, 0, 1]] * 12 + [[1, 1, 1, 2]] * 12 + [[1, 1, 2, 1]] * 6)
    truth = np.array([0] * 12 + [1] * 12 + [2] * 6)
    crowd = Annotations.from_dense(labels, classes=range(4))
    row = judges.drift(crowd, truth if gold else None, pairs=[(2, 3)]).table.to_pylist()[0]
    y = truth if gold else np.array([0] * 12 + [1] * 18)
    assert row["accuracy_before"] == pytest.approx(np.mean(labels[:, 2] == y))
    assert row["accuracy_after"] == pytest.approx(np.mean(labels[:, 3] == y))
    assert row["kappa_before"] == pytest.approx(cohen_kappa_score(labels[:, 2], y))
    assert row["kappa_after"] == pytest.approx(cohen_kappa_score(labels[:, 3], y))


def test_the_level_and_the_resamples_of_drift():
    crowd, truth, *_ = versions(0.3)
    wide, narrow = (judges.drift(crowd, truth, level=level).table.to_pylist()[0] for level in (0.99, 0.5))
    for low, high in (("low", "high"), ("kappa_low", "kappa_high")):
        assert wide[low] < narrow[low] < narrow[high] < wide[high]
    n = 400
    flips = round(wide["flip_rate"] * n)
    expected = stats.binomtest(flips, n).proportion_ci(0.99, "wilson")
    assert (wide["low"], wide["high"]) == pytest.approx((expected.low, expected.high))
    none = judges.drift(crowd, truth, n_bootstrap=0).table.to_pylist()[0]
    assert none["kappa_low"] is None
    assert none["kappa_after"] == wide["kappa_after"]
    one, same, other = (judges.drift(crowd, truth, random_state=seed).table for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_kinds_say_which_annotators_are_versions():
    """A person called ann@home is not a version of anybody."""
    crowd, truth, *_ = versions(0.3)
    named = Annotations.from_triples(
        crowd.instance, crowd.annotator, crowd.label, annotators=["p@1", "p@2", "p2", "p3", "gpt@1", "gpt@2"]
    )
    kinds = ["person"] * 4 + ["model"] * 2
    assert judges.drift(named, kinds=kinds).table["model"].to_pylist() == ["gpt"]
    assert judges.drift(named, truth).table["model"].to_pylist() == ["p", "gpt"]


def test_versions_must_be_there():
    crowd, *_ = versions()
    with pytest.raises(ConfigError, match="no annotator is called 'gpt@3'"):
        judges.drift(crowd, pairs=[("gpt@1", "gpt@3")])
    with pytest.raises(DataError, match="no model has two versions"):
        judges.drift([[0, 1], [1, 1]])


def test_several_changes_are_corrected_for_their_number():
    """Holm: the smallest p-value counts three times, the next one twice; each is the smaller of two, times two."""
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 200)

    def version(right):
        return np.where(rng.random(200) < right, truth, 0)

    labels = np.stack([version(right) for right in (0.9, 0.9, 0.75, 0.55)], axis=1)
    pairs = [(0, 1), (1, 2), (2, 3)]
    rows = judges.drift(Annotations.from_dense(labels), truth, pairs=pairs).table.to_pylist()
    for row, (a, b) in zip(rows, pairs, strict=True):
        up = int(np.sum((labels[:, a] == 0) & (labels[:, b] == 1)))
        down = int(np.sum((labels[:, a] == 1) & (labels[:, b] == 0)))
        better = int(np.sum((labels[:, a] != truth) & (labels[:, b] == truth)))
        worse = int(np.sum((labels[:, a] == truth) & (labels[:, b] != truth)))
        shares, right = (stats.binomtest(x, x + y).pvalue for x, y in ((up, down), (better, worse)))
        assert row["shares_p"] == pytest.approx(shares)
        assert row["accuracy_p"] == pytest.approx(right)
        assert row["p_value"] == pytest.approx(min(1, 2 * min(shares, right)))
        assert (row["model"], row["before"], row["after"]) == (str(b), a, b)
    order = np.argsort([row["p_value"] for row in rows])
    steps = np.maximum.accumulate([rows[k]["p_value"] * (3 - place) for place, k in enumerate(order)])
    assert [rows[k]["p_adjusted"] for k in order] == pytest.approx(np.minimum(steps, 1).tolist())


def test_the_interval_of_kappas_difference_is_that_of_resampled_instances():
    crowd, truth, before, after = versions(0.2, n=150)
    row = judges.drift(crowd, truth, n_bootstrap=2000, level=0.8).table.to_pylist()[0]
    rng = np.random.default_rng(9)
    gains = []
    for _ in range(2000):
        k = rng.integers(0, 150, 150)
        gains.append(cohen_kappa_score(after[k], truth[k]) - cohen_kappa_score(before[k], truth[k]))
    gain = cohen_kappa_score(after, truth) - cohen_kappa_score(before, truth)
    bias = stats.norm.ppf(np.mean(np.array(gains) < gain))  # corrected for bias and for few instances
    half = stats.t.ppf(0.9, 149) * np.sqrt(150 / 149)
    ends = np.quantile(gains, stats.norm.cdf([2 * bias - half, 2 * bias + half]))
    assert (row["kappa_low"], row["kappa_high"]) == pytest.approx(ends, abs=0.015)


def test_versions_without_common_instances_are_not_compared():
    labels = {"item": [1, 2, 3, 4], "worker": ["m@1", "m@1", "m@2", "m@2"], "label": ["a", "b", "a", "b"]}
    row = judges.drift(labels).table.to_pylist()[0]
    assert (row["n_common"], row["shares_p"], row["p_value"], row["p_adjusted"]) == (0, None, None, None)
    assert (row["low"], row["high"]) == (0, 1)
