"""EBCC: subtypes of classes against hand-computed numbers and against IBCC."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from crowds import compile_always
from sklearn.base import clone

from crowdwise.aggregation import ebcc
from crowdwise.aggregation.core.history import AnnotatorHistory
from crowdwise.aggregation.core.kernels import Step
from crowdwise.aggregation.ebcc import EBCC, occupied
from crowdwise.aggregation.ibcc import IBCC
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError
from fixtures import t1, t2
from tolerances import DOUBLE

IBCC_LIMIT = [0.062218, 0.993150, 0.006850, 0.937782, 0.5]


def misleading(n: int = 400, annotators: int = 12, seed: int = 0) -> tuple[Annotations, npt.NDArray[np.int64]]:
    """Two classes, of which a fifth of the instances misleads half of the annotators in the same way."""
    rng = np.random.default_rng(seed)
    truth, hard = rng.integers(2, size=n), rng.random(n) < 0.2
    instance, annotator = np.repeat(np.arange(n), annotators), np.tile(np.arange(annotators), n)
    fooled = hard[instance] & (annotator < annotators // 2)
    label = np.where(rng.random(len(instance)) < np.where(fooled, 0.95, 0.15), 1 - truth[instance], truth[instance])
    return Annotations.from_triples(instance, annotator, label, n_classes=2), truth


@pytest.mark.parametrize("crowd", [t1(), t2(), misleading(60)[0]], ids=["t1", "t2", "misleading"])
def test_one_subtype_is_ibcc(crowd: Annotations) -> None:
    expected = IBCC(max_iter=30, tol=0).fit(crowd)
    found = EBCC(n_subtypes=1, class_count=1.0, max_iter=30, tol=0).fit(crowd)
    np.testing.assert_allclose(found.raw_posterior_, expected.raw_posterior_, atol=DOUBLE)
    np.testing.assert_allclose(found.confusion_, expected.confusion_, atol=DOUBLE)
    np.testing.assert_allclose(found.class_prior_, expected.class_prior_, atol=DOUBLE)
    np.testing.assert_allclose(found.objective_, expected.objective_, rtol=DOUBLE)


@pytest.mark.parametrize(("subtypes", "bound"), [(3, -13.679809), (10, -16.146363)])
@pytest.mark.parametrize("seed", [0, 1])
def test_limit_and_bound_on_t1(subtypes: int, bound: float, seed: int) -> None:
    model = EBCC(n_subtypes=subtypes, class_count=1.0, n_restarts=1, max_iter=400, tol=0, random_state=seed).fit(t1())
    np.testing.assert_allclose(model.raw_posterior_[:, 1], IBCC_LIMIT, atol=1e-6)
    assert model.objective_[-1] == pytest.approx(bound, abs=1e-6)


def test_t2_gives_distributions_and_leaves_the_silent_annotator_its_prior() -> None:
    model = EBCC(random_state=0).fit(t2())
    assert np.all(np.isfinite(model.raw_posterior_))
    np.testing.assert_allclose(model.raw_posterior_.sum(axis=1), 1)
    np.testing.assert_allclose(model.confusion_[4], np.full((4, 4), 1 / 7) + 3 / 7 * np.eye(4))


@pytest.mark.parametrize("concentration", [0.1, 20.0])
def test_bound_never_falls_even_when_subtypes_are_dropped(concentration: float) -> None:
    crowd, truth = misleading()
    gold = np.where(np.arange(len(truth)) < 20, truth, -1)
    model = EBCC(concentration=concentration, n_restarts=2, max_iter=80, tol=0, random_state=0).fit(crowd, gold)
    assert np.diff(model.objective_).min() > -1e-6
    assert np.array_equal(model.labels_[:20], truth[:20])


def test_dropping_empty_subtypes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, _ = misleading(150)
    dropped = EBCC(n_restarts=1, max_iter=60, tol=0, random_state=0).fit(crowd)
    monkeypatch.setattr(ebcc, "EMPTY", -1.0)
    kept = EBCC(n_restarts=1, max_iter=60, tol=0, random_state=0).fit(crowd)
    np.testing.assert_allclose(dropped.raw_posterior_, kept.raw_posterior_, atol=1e-7)
    np.testing.assert_allclose(dropped.objective_, kept.objective_, atol=1e-6)


def test_every_class_keeps_as_many_subtypes_as_the_class_with_most() -> None:
    mass = np.array([0.0, 5.0, 1.0, 0.0, 0.0, 2.0])  # two classes of three subtypes
    kept, counts = occupied(Step(np.empty((0, 6)), np.arange(6.0)[None], mass, 0.0), 2)
    np.testing.assert_array_equal(kept, [[5.0, 1.0], [2.0, 0.0]])
    np.testing.assert_array_equal(counts.ravel(), [1, 2, 5, 3])


def test_subtypes_explain_common_mistakes_better_than_independence() -> None:
    crowd, _ = misleading()
    independent = IBCC().fit(crowd)
    dependent = EBCC(n_subtypes=2, class_count=1.0, random_state=0).fit(crowd)
    assert dependent.objective_[-1] > independent.objective_[-1] + 50


def test_subtypes_gain_where_many_are_misled_alike() -> None:
    gains = []
    for seed in range(50, 54):
        rng = np.random.default_rng(seed)
        truth, hard = rng.integers(4, size=300), rng.random(300) < 0.35
        instance, annotator = np.repeat(np.arange(300), 12), np.tile(np.arange(12), 300)
        misled = hard[instance] & (annotator < 5)  # five of twelve mostly take one class for the next one
        right = rng.random(len(instance)) < np.where(misled, 0.1, 0.6)
        wrong = (truth[instance] + np.where(misled, 1, rng.integers(1, 4, len(instance)))) % 4
        crowd = Annotations.from_triples(instance, annotator, np.where(right, truth[instance], wrong), n_classes=4)
        models = EBCC(n_restarts=5, random_state=0), IBCC()
        gains.append(np.subtract(*((model.fit_predict(crowd) == truth).mean() for model in models)))
    assert np.mean(gains) > 0.02


def test_best_restart_wins_and_restarts_differ() -> None:
    crowd, _ = misleading(100)
    rng = np.random.default_rng(0)
    single = [EBCC(n_restarts=1, random_state=rng).fit(crowd).objective_[-1] for _ in range(4)]
    together = EBCC(n_restarts=4, random_state=0).fit(crowd)
    assert len(set(np.round(single, 6))) > 1
    assert together.objective_[-1] == pytest.approx(max(single))


def test_history_informs_all_subtypes() -> None:
    always_wrong = np.array([[[0.0, 500.0], [500.0, 0.0]]])
    model = EBCC(random_state=0).fit(t1(), history=AnnotatorHistory([2], [0, 1], always_wrong))
    assert model.confusion_[2, 0, 0] < 0.05
    assert model.raw_posterior_[0, 1] < EBCC(random_state=0).fit(t1()).raw_posterior_[0, 1]


def test_compiled_and_scipy_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, truth = misleading(100)
    gold = np.where(np.arange(100) % 10 == 0, truth, -1)
    expected = EBCC(n_restarts=1, max_iter=25, tol=0, random_state=0).fit(crowd, gold)
    compile_always(monkeypatch)
    found = EBCC(n_restarts=1, max_iter=25, tol=0, random_state=0, n_jobs=2).fit(crowd, gold)
    np.testing.assert_allclose(found.raw_posterior_, expected.raw_posterior_, atol=1e-7)
    np.testing.assert_allclose(found.objective_, expected.objective_, atol=1e-6)


def test_a_thousand_classes_cost_no_more_than_the_labels_that_occur() -> None:
    rng = np.random.default_rng(0)
    instance, truth = np.repeat(np.arange(30), 3), rng.integers(1000, size=30)
    label = np.where(rng.random(90) < 0.7, truth[instance], rng.integers(1000, size=90))
    crowd = Annotations.from_triples(instance, np.tile([0, 1, 2], 30), label, n_classes=1000)
    for model in (IBCC(max_iter=5, tol=0), EBCC(n_restarts=1, max_iter=5, tol=0, random_state=0)):
        rows = model.fit(crowd)._rows(model._crowd)
        assert rows.beta.shape[0] <= 90
        np.testing.assert_allclose(model.raw_posterior_.sum(axis=1), 1)
        np.testing.assert_allclose(model.confusion_.sum(axis=2), 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_subtypes": 0}, "n_subtypes must be an integer of 1 or more, got 0"),
        ({"n_restarts": 1.5}, "n_restarts must be an integer of 1 or more, got 1.5"),
        ({"concentration": -1.0}, "concentration must be a number above 0, got -1.0"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        clone(EBCC(**parameters)).fit(t1())
