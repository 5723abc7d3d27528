"""Hierarchical Dawid-Skene: safe where little can be learnt, sharp where much can."""

from __future__ import annotations

import numpy as np
import pytest
from crowds import LABEL_ONLY, accuracy, compile_always, compile_never, real, simulated, sparse

from crowdwise.aggregation import DawidSkene, HierarchicalDawidSkene, MajorityVote, Wawa
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.hierarchical import evidence, scaled_diagonal
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError
from fixtures import t1, t2
from tolerances import DOUBLE


def matrices_of(kind: str, r: int, c: int, rng: np.random.Generator) -> np.ndarray:
    """Confusion matrices (R, C, C) of several kinds of crowds."""

    def coins(low: float, high: float) -> np.ndarray:
        skill = rng.uniform(low, high, r)[:, None, None]
        return np.where(np.eye(c, dtype=bool), skill, (1 - skill) / (c - 1))

    table = coins(0.6, 0.95)
    if kind == "good":
        return coins(0.8, 0.99)
    if kind == "poor":
        return coins(1 / c + 0.1, 1 / c + 0.4)
    if kind == "experts":
        return np.where((rng.random(r) < 0.2)[:, None, None], coins(0.97, 0.97), coins(1 / c + 0.15, 1 / c + 0.15))
    if kind == "spammers":
        spam = np.broadcast_to(rng.dirichlet(np.full(c, 0.3), r)[:, None, :], (r, c, c))
        return np.where((rng.random(r) < 0.3)[:, None, None], spam, table)
    if kind == "adversaries":
        return np.where((rng.random(r) < 0.12)[:, None, None], np.roll(table, 1, axis=2), table)
    if kind == "biased":
        bias, weight = rng.dirichlet(np.full(c, 0.5), r)[:, None, :], rng.uniform(0, 0.4, r)[:, None, None]
        return np.asarray((1 - weight) * table + weight * bias)
    if kind == "confusing pairs":
        shared = 0.65 * np.eye(c) + 0.35 * np.roll(np.eye(c), 1, axis=1)
        weight = rng.beta(2, 2, r)[:, None, None]
        return np.asarray((1 - weight) * shared + weight * np.eye(c))
    return table


KINDS = ("even", "good", "poor", "experts", "spammers", "adversaries", "biased", "confusing pairs", "imbalanced")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n_classes", "seeds"),
    [(4, 2), pytest.param(4, 4, marks=pytest.mark.slow), pytest.param(2, 4, marks=pytest.mark.slow)],
)
def test_never_two_points_under_majority_vote(kind: str, n_classes: int, seeds: int) -> None:
    gains = []
    for seed in range(seeds):
        for votes, labels in ((2, 2), (3, 10), (5, 50)):
            r = 400 * votes // labels
            table = matrices_of(kind, r, n_classes, np.random.default_rng([seed, votes]))
            prior = [0.8] + [0.2 / (n_classes - 1)] * (n_classes - 1) if kind == "imbalanced" else None
            crowd, truth = simulated(400, r, n_classes, votes, matrices=table, class_prior=prior, seed=seed)
            model = HierarchicalDawidSkene().fit(crowd)
            vote = MajorityVote(tie="random", random_state=0)  # the first class would often be right by construction
            gains.append(accuracy(model.labels_, truth) - accuracy(vote.fit_predict(crowd), truth))
    assert np.mean(gains) > -1
    assert np.mean(np.reshape(gains, (seeds, 3)), axis=0).min() > -2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("votes", "labels"), [(3, 10), (5, 25)])
def test_no_single_crowd_of_a_thousand_loses_two_points(kind: str, votes: int, labels: int) -> None:
    r = 1_000 * votes // labels
    table = matrices_of(kind, r, 3, np.random.default_rng([votes, labels]))
    prior = [0.8, 0.1, 0.1] if kind == "imbalanced" else None
    crowd, truth = simulated(1_000, r, 3, votes, matrices=table, class_prior=prior, seed=50)
    vote = MajorityVote(tie="random", random_state=0)
    found = HierarchicalDawidSkene().fit_predict(crowd)
    assert accuracy(found, truth) > accuracy(vote.fit_predict(crowd), truth) - 2


@pytest.mark.parametrize("labels_per_annotator", [1, 2, 5, 20])
def test_sparse_crowds_are_safe(labels_per_annotator: int) -> None:
    gains = []
    for seed in range(5):
        crowd, truth = sparse(labels_per_annotator, seed)
        vote = accuracy(MajorityVote().fit_predict(crowd), truth)
        gains.append(accuracy(HierarchicalDawidSkene().fit_predict(crowd), truth) - vote)
    assert np.mean(gains) > -0.5


def test_one_label_per_annotator_teaches_nothing_about_annotators() -> None:
    crowd, _ = simulated(100, 300, 3, 3, seed=1)
    model = HierarchicalDawidSkene().fit(crowd)
    assert np.ptp(model.skill_) < 0.2
    assert (model.labels_ == MajorityVote().fit_predict(crowd)).mean() > 0.95


def test_dense_crowds_are_read_as_well_as_by_dawid_skene() -> None:
    table = np.random.default_rng(0).dirichlet(np.ones(3), (12, 3)) * 0.6 + 0.4 * np.eye(3)
    crowd, truth = simulated(1_500, 12, 3, 6, matrices=table, seed=2)
    model = HierarchicalDawidSkene().fit(crowd)
    assert accuracy(model.labels_, truth) > accuracy(DawidSkene().fit_predict(crowd), truth) - 0.5
    assert np.abs(model.confusion_ - table).max() < 0.15


def test_strengths_follow_the_crowd() -> None:
    even = simulated(1_000, 50, 3, 5, (0.75, 0.75), seed=3)[0]
    uneven = simulated(1_000, 50, 3, 5, (0.4, 0.99), seed=3)[0]
    alike, unlike = HierarchicalDawidSkene().fit(even), HierarchicalDawidSkene().fit(uneven)
    assert alike.skill_strength_ > 2 * unlike.skill_strength_


def test_evidence_grows_with_agreement_and_labels() -> None:
    def trust(votes: int, low: float) -> float:
        return evidence(MemoryCrowd.of(simulated(300, 20, 2, votes, (low, low), seed=4)[0])).trust

    assert trust(2, 0.6) < trust(2, 0.7) < trust(5, 0.7)
    assert trust(10, 0.9) == 1.0


def test_scaling_by_one_changes_nothing_and_columns_sum_to_one() -> None:
    mean = np.array([[0.7, 0.1, 0.2], [0.2, 0.8, 0.2], [0.1, 0.1, 0.6]])
    annotator, label = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    np.testing.assert_allclose(scaled_diagonal(mean, np.ones((1, 3)), annotator[:3], label[:3]), mean)
    tables = scaled_diagonal(mean, np.random.default_rng(0).uniform(0.1, 5, (4, 3)), annotator, label)
    np.testing.assert_allclose(tables.reshape(4, 3, 3).sum(axis=1), 1.0)


def test_labels_that_nobody_gave_change_nothing_but_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)  # far more cells than annotations
    instance, annotator = np.repeat(np.arange(40), 3), rng.integers(0, 8, 120)
    crowd = Annotations.from_triples(instance, annotator, rng.integers(0, 60, 120), n_classes=60)
    compile_never(monkeypatch)
    few = HierarchicalDawidSkene().fit(crowd)
    monkeypatch.setattr("crowdwise.aggregation.core.kernels._SPARSE", np.inf)  # every cell is gone through
    monkeypatch.setattr("crowdwise.aggregation.hierarchical._told", lambda crowd: np.ones((8, 60), bool))
    every = HierarchicalDawidSkene().fit(crowd)
    np.testing.assert_allclose(few.posterior_, every.posterior_, atol=DOUBLE)
    np.testing.assert_allclose(few.confusion_, every.confusion_, atol=DOUBLE)
    np.testing.assert_allclose(few.confusion_.sum(axis=2), 1.0)


def test_compiled_and_scipy_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, _ = simulated(100, 10, 3, 4, (0.4, 0.9), seed=5)
    compile_never(monkeypatch)
    slow = HierarchicalDawidSkene().fit(crowd)
    compile_always(monkeypatch)
    fast = HierarchicalDawidSkene().fit(crowd)
    np.testing.assert_allclose(slow.posterior_, fast.posterior_, atol=1e-9)


def test_gold_and_history_are_used() -> None:
    crowd, truth = simulated(100, 5, 2, 5, matrices=np.array([np.eye(2)] + [0.8 * np.eye(2)[::-1] + 0.1] * 4), seed=6)
    gold = truth[:40].tolist() + [-1] * 60
    plain, helped = HierarchicalDawidSkene().fit(crowd), HierarchicalDawidSkene().fit(crowd, gold=gold)
    assert accuracy(helped.labels_[40:], truth[40:]) > accuracy(plain.labels_[40:], truth[40:]) + 20
    informed = HierarchicalDawidSkene().fit(crowd, history=helped)
    assert accuracy(informed.labels_, truth) > accuracy(plain.labels_, truth) + 20


def test_tiny_and_odd_crowds() -> None:
    assert HierarchicalDawidSkene().fit_predict(t1()).tolist() == [0, 1, 0, 1, 0]
    assert HierarchicalDawidSkene().fit_predict(t2())[:4].tolist() == [0, 1, 2, 0]
    single = Annotations.from_triples(range(6), range(6), [0, 1, 2, 0, 1, 2])
    assert HierarchicalDawidSkene().fit_predict(single).tolist() == [0, 1, 2, 0, 1, 2]
    with pytest.raises(ConfigError, match="strength must be a number above 0, got 0"):
        HierarchicalDawidSkene(strength=0).fit(t1())


@pytest.mark.parametrize("name", LABEL_ONLY)
def test_real_sets_never_lose_two_points(name: str) -> None:
    crowd, truth = real(name)
    vote = accuracy(MajorityVote().fit_predict(crowd), truth)
    assert accuracy(HierarchicalDawidSkene().fit_predict(crowd), truth) > vote - 2


@pytest.mark.filterwarnings("ignore:this crowd is too sparse")
def test_mean_on_real_sets_is_above_maximum_likelihood_and_wawa() -> None:
    scores = []
    for name in LABEL_ONLY:
        crowd, truth = real(name)
        models = HierarchicalDawidSkene(), DawidSkene(prior=None, max_iter=500), Wawa()
        scores.append([accuracy(model.fit_predict(crowd), truth) for model in models])
    ours, theirs, wawa = np.mean(scores, axis=0)
    assert ours > theirs + 1
    assert ours > wawa + 1
