"""MACE: spammers and those who know, against hand-computed numbers and planted spammers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from crowds import compile_always
from sklearn.base import clone

from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.history import AnnotatorHistory
from crowdwise.aggregation.mace import MACE, e_step, odds
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError
from fixtures import t1, t2
from tolerances import DOUBLE


def spammed(n: int = 300, annotators: int = 20, seed: int = 0) -> tuple[Annotations, npt.NDArray[np.int64]]:
    """Three classes; every other annotator always says class 0, the others know 80 % of the answers."""
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(3, size=n), 6
    instance, annotator = np.repeat(np.arange(n), labels), rng.integers(annotators, size=n * labels)
    known = rng.random(n * labels) < 0.8
    label = np.where(annotator % 2, 0, np.where(known, truth[instance], rng.integers(3, size=n * labels)))
    sizes = {"n_instances": n, "n_annotators": annotators, "n_classes": 3}
    return Annotations.from_triples(instance, annotator, label, **sizes), truth


@pytest.mark.parametrize("compiled", [False, True])
def test_e_step_of_t1_at_one_half(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled:
        compile_always(monkeypatch)
    crowd, behaviour, strategy = MemoryCrowd.of(t1()), np.full((2, 3, 1), 0.5), np.full((3, 2, 1), 0.5)
    found = e_step(crowd, behaviour, strategy)
    assert found.log_likelihood[0] == pytest.approx(-9.447875, abs=1e-6)
    np.testing.assert_allclose(found.spam.sum(axis=1)[:, 0], 2.380952, atol=1e-6)
    np.testing.assert_allclose(found.knowing[:, 0], [2.619048, 2.619048, 1.619048], atol=1e-6)
    np.testing.assert_allclose(found.spam.sum(axis=1)[:, 0] + found.knowing[:, 0], [5, 5, 4])
    posterior = crowd.vote_step(odds(behaviour, strategy)[:, :, 0], np.full(2, 0.5)).posterior
    np.testing.assert_allclose(posterior[:, 1], [0.25, 0.964286, 0.035714, 0.75, 0.5], atol=1e-6)


@pytest.mark.parametrize("method", ["vb", "em"])
def test_t2_gives_distributions(method: str) -> None:
    model = MACE(method=method, random_state=0).fit(t2())
    assert np.all(np.isfinite(model.raw_posterior_))
    np.testing.assert_allclose(model.raw_posterior_.sum(axis=1), 1)
    np.testing.assert_allclose(model.raw_posterior_[5], 0.25)  # no labels: classes are uniform
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1)
    assert model.competence_[4] == pytest.approx(0.5)


@pytest.mark.parametrize("method", ["vb", "em"])
@pytest.mark.parametrize("with_gold", [False, True])
def test_objective_never_falls(method: str, with_gold: bool) -> None:
    crowd, truth = spammed()
    gold = np.where(np.arange(len(truth)) < 30, truth, -1) if with_gold else None
    history = MACE(random_state=1, n_restarts=1, max_iter=2).fit(crowd) if with_gold else None
    model = MACE(method=method, n_restarts=1, random_state=0).fit(crowd, gold, history)
    assert np.diff(model.objective_).min() > -1e-8
    assert model.n_iter_ == 50
    if with_gold:
        assert np.array_equal(model.labels_[:30], truth[:30])


@pytest.mark.parametrize("method", ["vb", "em"])
def test_spammers_are_found_and_overruled(method: str) -> None:
    crowd, truth = spammed()
    model = MACE(method=method, random_state=0).fit(crowd)
    assert model.competence_[1::2].max() < 0.3
    assert model.competence_[::2].min() > 0.5
    assert model.strategy_[1::2, 0].min() > 0.6
    assert np.mean(model.labels_ == truth) > np.mean(crowd.votes().argmax(axis=1) == truth) + 0.1


def test_restarts_differ_and_the_best_objective_wins() -> None:
    crowd, _ = spammed(60)
    rng = np.random.default_rng(0)
    single = [MACE(method="em", n_restarts=1, max_iter=5, random_state=rng).fit(crowd).objective_[-1] for _ in range(5)]
    together = MACE(method="em", n_restarts=5, max_iter=5, random_state=0).fit(crowd)
    assert len(set(np.round(single, 6))) == 5
    assert together.objective_[-1] >= np.median(single)


def test_history_is_worth_labels_of_gold_instances() -> None:
    crowd, truth = spammed()
    past, now = crowd.select(np.arange(100)), crowd.select(np.arange(100, 300))
    counts = np.zeros((20, 3, 3))
    np.add.at(counts, (past.annotator, truth[past.instance], past.label), 1)
    gold = np.where(np.arange(300) < 100, truth, -1)
    expected = MACE(random_state=0).fit(crowd, gold)
    found = MACE(random_state=0).fit(now, history=AnnotatorHistory(now.annotators, now.classes, counts))
    np.testing.assert_allclose(found.raw_posterior_, expected.raw_posterior_[100:], atol=1e-9)
    np.testing.assert_allclose(found.competence_, expected.competence_, atol=1e-9)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_compiled_and_scipy_paths_agree(n_jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, truth = spammed()
    gold = np.where(np.arange(300) % 10 == 0, truth, -1)
    expected = MACE(n_restarts=3, random_state=0).fit(crowd, gold)
    compile_always(monkeypatch)
    found = MACE(n_restarts=3, random_state=0, n_jobs=n_jobs).fit(crowd, gold)
    np.testing.assert_allclose(found.raw_posterior_, expected.raw_posterior_, atol=1e-9)
    np.testing.assert_allclose(found.objective_, expected.objective_, rtol=DOUBLE)


def test_thousands_of_labels_on_one_instance_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_always(monkeypatch)
    label = np.r_[np.zeros(3000, int), np.ones(1000, int)]
    crowd = Annotations.from_triples(np.zeros(4000, int), np.arange(4000) % 40, label)
    for gold in (None, [1]):
        model = MACE(n_restarts=2, random_state=0).fit(crowd, gold)
        assert np.all(np.isfinite(model.objective_))
        assert model.raw_posterior_[0].argmax() == (gold is not None)


def test_tol_ends_the_rounds_early() -> None:
    model = MACE(max_iter=2000, tol=1e-6, n_restarts=2, random_state=0).fit(spammed()[0])
    assert model.converged_
    assert model.n_iter_ < 2000


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "mcmc"}, "unknown method 'mcmc'; known: 'vb', 'em'"),
        ({"n_restarts": 0}, "n_restarts must be an integer of 1 or more, got 0"),
        ({"smoothing": 0.0}, "smoothing must be a number above 0, got 0.0"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        clone(MACE(**parameters)).fit(t1())
