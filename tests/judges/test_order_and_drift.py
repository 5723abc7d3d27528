"""Judges that prefer the first, and models that change between versions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crowdwise import Annotations, judges
from crowdwise.errors import ConfigError, DataError


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


def test_the_test_of_shares_is_bhapkars_for_two_classes():
    crowd = Annotations.from_dense(np.array([[0, 1]] * 30 + [[1, 0]] * 10 + [[0, 0]] * 60))
    p = judges.drift(crowd, pairs=[(0, 1)]).table["shares_p"][0].as_py()
    n, b, c = 100, 30, 10
    wald = (b - c) ** 2 / (b + c - (b - c) ** 2 / n)
    assert p == pytest.approx(stats.chi2.sf(wald, 1))


def test_versions_must_be_there():
    crowd, *_ = versions()
    with pytest.raises(ConfigError, match="no annotator is called 'gpt@3'"):
        judges.drift(crowd, pairs=[("gpt@1", "gpt@3")])
    with pytest.raises(DataError, match="no model has two versions"):
        judges.drift([[0, 1], [1, 1]])
