"""How many votes annotators are worth, where it is known."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from crowdwise import Annotations, judges, read
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError
from crowdwise.judges import Sides
from crowdwise.judges._joint_errors import against_others, unmixed

DATA = Path(os.environ.get("CROWDWISE_DATA", "nothing")) / "alttest"


def alike(k, copied, n=4000, error=0.3, seed=0):
    """K binary judges who, with probability ``copied``, take their error from one shared draw: its square correlates."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    shared = rng.random(n) < error
    wrong = np.where(rng.random((n, k)) < copied, shared[:, None], rng.random((n, k)) < error)
    return np.where(wrong, 1 - truth[:, None], truth[:, None]), truth


@pytest.mark.parametrize("copied", [0.0, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("k", [3, 6, 12])
def test_votes_of_judges_with_a_shared_source_of_error(k, copied):
    labels, truth = alike(k, copied)
    found = judges.dependence(labels, truth)
    assert found.effective_votes == pytest.approx(k / (1 + (k - 1) * copied**2), rel=0.1)
    assert found.weights == pytest.approx(np.full(k, 1 / k), abs=0.08)
    assert found.effective_votes <= k


def test_copies_count_once():
    labels, truth = alike(1, 0.0)
    found = judges.dependence(np.repeat(labels, 5, axis=1), truth)
    assert found.effective_votes == pytest.approx(1, abs=0.01)
    pair = found.pairs.to_pylist()[0]
    assert pair["n_common"] == 4000
    assert pair["both_wrong"] == pair["same_wrong"] == np.sum(labels[:, 0] != truth)


def test_the_correlation_is_pearsons_on_common_instances_shrunk():
    rng = np.random.default_rng(0)
    labels, truth = alike(2, 0.6, n=300)
    labels[rng.random(labels.shape) < 0.3] = -1
    found = judges.dependence(Annotations.from_dense(labels, missing=[-1]), truth).pairs.to_pylist()[0]
    both = (labels >= 0).all(axis=1)
    n = int(both.sum())
    errors = labels[both] != truth[both, None]
    r = np.corrcoef(errors.T)[0, 1]
    assert found["n_common"] == n
    assert found["correlation"] == pytest.approx(r * n / (n + 20), abs=1e-12)


def test_soft_references_and_repeats():
    labels, truth = alike(3, 0.6, n=500)
    hard = judges.dependence(labels, truth)
    soft = judges.dependence(labels, np.eye(2)[truth])
    crowd = Annotations.from_dense(labels)
    twice = judges.dependence(Annotations.concat([crowd, crowd]), truth)
    for other in (soft, twice):
        np.testing.assert_allclose(other.correlation, hard.correlation, atol=1e-12)
        assert other.pairs["same_wrong"].to_pylist() == hard.pairs["same_wrong"].to_pylist()


def test_few_common_instances_and_flawless_annotators():
    labels, truth = alike(2, 0.5, n=15)
    found = judges.dependence(labels, truth)
    assert found.pairs["correlation"].to_pylist() == [None]
    assert np.isnan(found.effective_votes)
    right = np.repeat(np.arange(40)[:, None] % 2, 3, axis=1)
    assert judges.dependence(right, right[:, 0]).effective_votes == 3


def test_people_are_the_reference_where_there_is_no_gold():
    labels, truth = alike(4, 0.8, n=2000)
    rng = np.random.default_rng(1)
    people = np.where(rng.random((2000, 5)) < 0.9, truth[:, None], 1 - truth[:, None])
    everyone = np.concatenate([people, labels], axis=1)
    found = judges.dependence(everyone, models=[5, 6, 7, 8])
    assert found.reference == "people"
    assert found.annotators == [5, 6, 7, 8]
    assert found.effective_votes == pytest.approx(judges.dependence(labels, truth).effective_votes, rel=0.1)
    with pytest.raises(DataError, match="neither people nor gold"):
        judges.dependence(labels, models=[0, 1, 2, 3])


def independent(rng, n, k, c, right):
    truth = rng.integers(0, c, n)
    return np.where(rng.random((n, k)) < right, truth[:, None], rng.integers(0, c, (n, k))), truth


@pytest.mark.parametrize(("n", "k", "c", "right"), [(300, 5, 3, 0.75), (200, 4, 2, 0.8), (600, 8, 5, 0.6)])
def test_independent_annotators_do_not_seem_to_err_alike_without_gold(n, k, c, right):
    """They are compared with a consensus of the others, of which some is wrong."""
    rng = np.random.default_rng(0)
    found = [judges.dependence(independent(rng, n, k, c, right)[0]) for _ in range(8)]
    assert {one.reference for one in found} == {"people"}
    means = [one.mean_correlation for one in found]
    assert abs(np.mean(means)) < 2 * np.std(means) / np.sqrt(8) + 0.015
    assert np.mean([one.effective_votes for one in found]) > 0.93 * k


@pytest.mark.parametrize("people", [2, 4])
def test_errors_of_people_do_not_make_independent_models_err_alike(people):
    """Where people are wrong, all models that are right differ from them."""
    rng = np.random.default_rng(1)
    means = []
    for _ in range(8):
        labels, _ = independent(rng, 400, people + 3, 3, 0.75)
        means.append(judges.dependence(labels, models=range(people, people + 3)).mean_correlation)
    assert abs(np.mean(means)) < 2 * np.std(means) / np.sqrt(8) + 0.015


def test_copies_among_people_are_found_without_gold():
    """Two of six share most of their errors; with gold, the correlation of the pair is 0.7."""
    rng = np.random.default_rng(2)
    labels, truth = independent(rng, 1500, 6, 3, 0.75)
    labels[:, 1] = np.where(rng.random(1500) < 0.7, labels[:, 0], labels[:, 1])
    with_gold, without = judges.dependence(labels, truth), judges.dependence(labels)
    assert without.correlation[0, 1] == pytest.approx(with_gold.correlation[0, 1], abs=0.08)
    others = without.correlation[2:, 2:][np.triu_indices(4, 1)]
    assert np.max(np.abs(others)) < 0.2


def test_correlations_by_others_are_those_by_gold_where_others_are_sure():
    rng = np.random.default_rng(3)
    labels, truth = independent(rng, 200, 3, 3, 0.7)
    labels[rng.random(labels.shape) < 0.3] = -1
    by_hand, common = against_others(labels.T, np.eye(3)[truth])
    for j, k in ((0, 1), (0, 2), (1, 2)):
        both = (labels[:, j] >= 0) & (labels[:, k] >= 0)
        wrong = labels[both][:, [j, k]] != truth[both, None]
        assert common[j, k] == both.sum()
        assert by_hand[j, k] == pytest.approx(np.corrcoef(wrong.T)[0, 1], abs=1e-9)


def test_unmixed_takes_out_the_mean_doubt_of_a_consensus():
    """Averages of what is unmixed, by true class, are the true classes, however unsure the consensus is."""
    rng = np.random.default_rng(4)
    truth = rng.choice(3, 40_000, p=[0.5, 0.3, 0.2])
    evidence = rng.normal(np.eye(3)[truth] * 0.8, 0.7) * 0.8 / 0.7**2
    odds = np.array([0.5, 0.3, 0.2]) * np.exp(evidence)
    posterior = odds / odds.sum(axis=1, keepdims=True)
    plain = np.array([posterior[truth == z].mean(axis=0) for z in range(3)])
    found = np.array([unmixed(posterior)[truth == z].mean(axis=0) for z in range(3)])
    assert np.abs(plain - np.eye(3)).max() > 0.2
    np.testing.assert_allclose(found, np.eye(3), atol=0.05)


def test_pairs_need_enough_instances_in_common():
    labels, truth = alike(3, 0.5, n=60)
    labels[:30, 2] = -1  # 30 in common with the others
    crowd = Annotations.from_dense(labels, missing=[-1])
    for least, known in ((20, 3), (31, 1), (61, 0)):
        for reference in (truth, None):
            pairs = judges.dependence(crowd, reference, min_common=least).pairs
            assert pairs.num_rows - pairs["correlation"].null_count == known
    with pytest.raises(ConfigError, match="min_common"):
        judges.dependence(crowd, truth, min_common=0)


def test_groups_and_redundant_ones():
    labels, truth = alike(2, 0.0, n=1000)
    labels = labels[:, [0, 0, 1]]
    groups = {0: "one", 1: "one", 2: "two"}
    with pytest.warns(CrowdwiseWarning, match="group 'one' count as 1.0 votes"):
        found = judges.dependence(labels, truth, groups)
    assert found.groups["group"].to_pylist() == ["one", "two"]
    assert found.groups["effective_votes"].to_pylist()[1] == 1.0
    with pytest.warns(CrowdwiseWarning):
        by_function = judges.dependence(labels, truth, lambda name: "one" if name < 2 else "two")
    assert by_function.groups == found.groups


def test_the_order_of_annotators_is_irrelevant():
    labels, truth = alike(4, 0.5, n=500)
    one, other = judges.dependence(labels, truth), judges.dependence(labels[:, ::-1], truth)
    assert one.effective_votes == pytest.approx(other.effective_votes, abs=1e-12)


@pytest.mark.skipif(not DATA.is_dir(), reason="CROWDWISE_DATA/alttest is not here")
@pytest.mark.parametrize(("name", "votes"), [("wax", 1.91), ("lgbteen", 2.06), ("mtbench", 1.74)])
def test_six_language_models_count_as_two_votes(name, votes):
    export = read(DATA / f"{name}.csv")
    people = Sides.of(export).of_people().votes()
    best = people.max(axis=1)
    unique = (people.sum(axis=1) >= 2) & ((people == best[:, None]).sum(axis=1) == 1)
    ids, classes = export.annotations.instances, export.annotations.classes
    plurality = {ids[i]: classes[people[i].argmax()] for i in np.flatnonzero(unique)}
    assert judges.dependence(export, plurality).effective_votes == pytest.approx(votes, abs=0.01)


def test_few_items_do_not_make_independent_models_err_alike():
    """The error of the mean correlation is that of crowds drawn anew, and few of them are beyond chance."""
    rng = np.random.default_rng(5)
    found = [judges.dependence(*independent(rng, 60, 5, 2, 0.8)) for _ in range(200)]
    means, errors = np.array([(one.mean_correlation, one.error) for one in found]).T
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(means.std(), rel=0.2)
    assert np.mean([one.beyond_chance for one in found]) < 0.05
    labels, truth = alike(4, 0.7, n=300)
    assert judges.dependence(labels, truth).beyond_chance
    assert np.isnan(judges.dependence(labels).error)
    assert judges.dependence(labels).beyond_chance  # not known, so not denied


@pytest.mark.parametrize("missing", [0, 2])
def test_items_that_an_annotator_skipped_do_not_count_without_gold(missing):
    """Of 400 items, one annotator skipped half; those of another, who labelled no others, tell as much."""
    rng = np.random.default_rng(6)
    labels, _ = independent(rng, 400, 5, 3, 0.75)
    labels[:200, missing] = -1
    found = judges.dependence(Annotations.from_dense(labels, missing=[-1]))
    for row in found.pairs.to_pylist():
        assert row["n_common"] == (200 if missing in (row["first"], row["second"]) else 400)
    pairs = found.correlation[np.triu_indices(5, 1)]
    assert np.abs(pairs).max() < 0.3
    np.testing.assert_allclose(found.correlation, found.correlation.T, atol=1e-9)
