"""GLAD: abilities and difficulties against hand-computed numbers, finite differences and planted difficulties."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from crowds import accuracy, compile_always, real
from scipy.optimize import minimize
from scipy.special import expit

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.bayes_kernels import glad_step
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.history import AnnotatorHistory
from crowdwise.aggregation.glad import GLAD, evaluate
from crowdwise.annotations import Annotations
from fixtures import t1, t2
from tolerances import DOUBLE

CROWDKIT_ACCURACY = {"bluebird": 0.7222, "cf_weather": 0.88, "dog": 0.8339, "rte": 0.925, "web": 0.8217}  # 1.4.2


def graded(n: int = 200, annotators: int = 20, seed: int = 0) -> tuple[Annotations, npt.NDArray[np.int64]]:
    """Three classes; the first half of the instances is easy, the other hard; the last annotator is an adversary."""
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(3, size=n), 8
    instance, annotator = np.repeat(np.arange(n), labels), rng.integers(annotators, size=n * labels)
    ability = np.where(annotator == annotators - 1, -1.5, 1.0)
    right = rng.random(n * labels) < expit(ability * np.where(instance < n // 2, 3.0, 0.5))
    label = np.where(right, truth[instance], (truth[instance] + rng.integers(1, 3, n * labels)) % 3)
    sizes = {"n_instances": n, "n_annotators": annotators, "n_classes": 3}
    return Annotations.from_triples(instance, annotator, label, **sizes), truth


@pytest.mark.parametrize("small", [0, 10**9], ids=["compiled", "scipy"])
def test_first_e_step_of_t1(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SMALL", small)
    layout = MemoryCrowd.of(t1()).layout
    found = glad_step(layout, np.ones(3), np.ones(5)).posterior[:, 1]
    np.testing.assert_allclose(found, [0.061903, 0.999713, 0.000287, 0.938097, 0.5], atol=1e-6)
    found = glad_step(layout, np.ones(3), np.zeros(5)).posterior[:, 1]
    np.testing.assert_allclose(found, [0.268941, 0.952574, 0.047426, 0.731059, 0.5], atol=1e-6)


@pytest.mark.parametrize("small", [0, 10**9], ids=["compiled", "scipy"])
def test_gradient_agrees_with_finite_differences(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SMALL", small)
    history = np.random.default_rng(1).uniform(0, 5, (5, 4, 4))
    crowd = MemoryCrowd.of(t2(), np.array([-1, 2, -1, 0, -1, -1], np.int32), history)
    at, step = np.random.default_rng(0).normal(0.5, 1, 11), 1e-6
    differences = [
        (evaluate(crowd, at + step * unit).objective - evaluate(crowd, at - step * unit).objective) / (2 * step)
        for unit in np.eye(11)
    ]
    np.testing.assert_allclose(evaluate(crowd, at).gradient, differences, atol=1e-6)


def test_compiled_and_scipy_steps_agree_at_large_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, truth = graded()
    gold = np.where(np.arange(200) % 10 == 0, truth, -1).astype(np.int32)
    rng = np.random.default_rng(0)
    ability, easiness = rng.normal(1, 2, 20), rng.normal(1, 0.7, 200)
    expected = glad_step(MemoryCrowd.of(crowd, gold).layout, ability, easiness)
    compile_always(monkeypatch)
    found = glad_step(MemoryCrowd.of(crowd, gold).layout, ability, easiness)
    np.testing.assert_allclose(found.posterior, expected.posterior, atol=DOUBLE)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood)
    np.testing.assert_allclose(found.by_ability, expected.by_ability, atol=1e-7)
    np.testing.assert_allclose(found.by_easiness, expected.by_easiness, atol=1e-7)


def test_em_with_conjugate_gradients_finds_the_same_maximum() -> None:
    """The M step of the paper: fix the posterior, maximise Q, repeat."""
    a, _ = graded(60)
    crowd, at = MemoryCrowd.of(a), np.ones(80)
    for _ in range(60):
        q = evaluate(crowd, at).posterior[a.instance, a.label]

        def loss(x: npt.NDArray[np.float64], q: npt.NDArray[np.float64] = q) -> float:
            margin = x[a.annotator] * np.exp(x[20:])[a.instance]
            return float(0.5 * np.sum((x - 1) ** 2) - np.sum(q * margin - np.logaddexp(0, margin)))

        def slope(x: npt.NDArray[np.float64], q: npt.NDArray[np.float64] = q) -> npt.NDArray[np.float64]:
            scale = np.exp(x[20:])[a.instance]
            surprise = q - expit(x[a.annotator] * scale)
            by_ability = np.bincount(a.annotator, surprise * scale, 20)
            return x - 1 - np.r_[by_ability, np.bincount(a.instance, surprise * scale * x[a.annotator], 60)]

        at = minimize(loss, at, jac=slope, method="CG", options={"maxiter": 25}).x
    model = GLAD(tol=1e-10).fit(a)
    assert model.objective_[-1] == pytest.approx(evaluate(crowd, at).objective, abs=1e-4)
    np.testing.assert_allclose(model.ability_, at[:20], atol=0.01)
    np.testing.assert_allclose(model.difficulty_, np.exp(-at[20:]), atol=0.01)


@pytest.mark.parametrize("with_gold", [False, True])
def test_objective_never_falls(with_gold: bool) -> None:
    crowd, truth = graded()
    gold = np.where(np.arange(len(truth)) < 30, truth, -1) if with_gold else None
    model = GLAD().fit(crowd, gold)
    assert np.diff(model.objective_).min() >= 0
    assert model.converged_
    if with_gold:
        assert np.array_equal(model.labels_[:30], truth[:30])


def test_rounds_after_the_maximum_change_nothing() -> None:
    short, long = GLAD(tol=1e-12).fit(t1()), GLAD(tol=0, max_iter=150).fit(t1())
    assert long.n_iter_ == 150
    np.testing.assert_allclose(long.posterior_, short.posterior_, atol=1e-5)


def test_t2_gives_distributions_and_priors_where_nothing_is_known() -> None:
    model = GLAD().fit(t2())
    assert np.all(np.isfinite(model.posterior_))
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
    np.testing.assert_allclose(model.posterior_[5], 0.25)
    assert model.ability_[4] == pytest.approx(1.0)
    assert model.difficulty_[5] == pytest.approx(np.exp(-1))


def test_hard_instances_and_adversaries_are_found() -> None:
    crowd, truth = graded()
    model = GLAD().fit(crowd)
    assert np.median(model.difficulty_[100:]) > 2 * np.median(model.difficulty_[:100])
    assert model.ability_[-1] < 0 < model.ability_[:-1].min()
    assert np.mean(model.labels_ == truth) >= np.mean(crowd.votes().argmax(axis=1) == truth)


def test_history_moves_ability() -> None:
    past = AnnotatorHistory([0, 1], [0, 1], np.array([[[50.0, 0.0], [0.0, 50.0]], [[0.0, 50.0], [50.0, 0.0]]]))
    model = GLAD().fit(t1(), history=past)
    assert model.ability_[0] > 1 > 0 > model.ability_[1]
    assert model.labels_[0] == 1  # the expert says 0, the adversary as well, so that annotator 2 decides


def test_two_threads_and_one_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, _ = graded()
    compile_always(monkeypatch)
    one, two = GLAD().fit(crowd), GLAD(n_jobs=2).fit(crowd)
    np.testing.assert_allclose(one.posterior_, two.posterior_, atol=1e-8)


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
@pytest.mark.parametrize("name", CROWDKIT_ACCURACY)
def test_at_least_as_accurate_as_crowdkit(name: str) -> None:
    crowd, truth = real(f"agg_{name}")
    assert accuracy(GLAD().fit_predict(crowd), truth) >= 100 * CROWDKIT_ACCURACY[name] - 0.1
