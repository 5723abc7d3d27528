"""IBCC: variational inference and Gibbs sampling against hand-computed numbers and the exact posterior."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from crowds import accuracy, compile_always, real
from scipy.special import gammaln, logsumexp
from sklearn.base import clone

from crowdwise.aggregation.core.history import AnnotatorHistory
from crowdwise.aggregation.ibcc import IBCC
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError
from fixtures import t1, t2
from tolerances import DOUBLE

EXACT = [0.218829, 0.957446, 0.042554, 0.781171, 0.5]
EVIDENCE = -10.597941


def simulated(
    n: int = 300, annotators: int = 25, classes: int = 3, labels: int = 5, seed: int = 0
) -> tuple[Annotations, npt.NDArray[np.int64]]:
    """A crowd of annotators with accuracies in 0.4..0.95, and the true classes."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=n)
    instance = np.repeat(np.arange(n), labels)
    annotator = rng.integers(annotators, size=n * labels)
    right = rng.random(n * labels) < rng.uniform(0.4, 0.95, annotators)[annotator]
    label = np.where(right, truth[instance], (truth[instance] + rng.integers(1, classes, n * labels)) % classes)
    sizes = {"n_instances": n, "n_annotators": annotators, "n_classes": classes}
    return Annotations.from_triples(instance, annotator, label, **sizes), truth


def exact_posterior() -> tuple[npt.NDArray[np.float64], float]:
    """P(class 1) of the instances of T1 and the log evidence, by summing over all 2^5 labellings."""
    a, beta = t1(), np.array([[4.0, 1.0], [1.0, 4.0]])

    def log_b(x: npt.NDArray[np.float64]) -> float:
        return float((gammaln(x).sum(-1) - gammaln(x.sum(-1))).sum())

    labellings = np.array(list(itertools.product([0, 1], repeat=5)))
    joint = []
    for z in labellings:
        counts = np.zeros((3, 2, 2))
        np.add.at(counts, (a.annotator, z[a.instance], a.label), 1)
        proportions = 1.0 + np.bincount(z, minlength=2)
        joint.append(log_b(beta + counts) - 3 * log_b(beta) + log_b(proportions) - log_b(np.ones(2)))
    return np.exp(logsumexp(joint, b=labellings.T, axis=1) - logsumexp(joint)), float(logsumexp(joint))


def test_one_variational_round_on_t1() -> None:
    q = IBCC(max_iter=1, tol=0).fit(t1()).raw_posterior_
    np.testing.assert_allclose(q[:, 1], [0.141014, 0.990028, 0.009972, 0.858986, 0.5], atol=1e-6)


def test_variational_limit_and_bound_on_t1() -> None:
    model = IBCC(max_iter=400, tol=0).fit(t1())
    np.testing.assert_allclose(model.raw_posterior_[:, 1], [0.062218, 0.993150, 0.006850, 0.937782, 0.5], atol=1e-6)
    assert model.objective_[-1] == pytest.approx(-11.321483, abs=1e-6)
    assert model.objective_[-1] <= EVIDENCE


def test_unlabelled_instances_of_t2_are_no_data() -> None:
    q = IBCC(max_iter=400, tol=0).fit(t2()).raw_posterior_
    np.testing.assert_allclose(q[4], [0.054611, 0.620601, 0.310183, 0.014605], atol=1e-6)
    np.testing.assert_allclose(q[5], [0.368219, 0.302581, 0.247258, 0.081942], atol=1e-6)


def test_silent_annotators_keep_the_prior() -> None:
    model = IBCC().fit(t2())
    np.testing.assert_allclose(model.confusion_[4], np.full((4, 4), 1 / 7) + 3 / 7 * np.eye(4))
    assert model.skill_[4] == pytest.approx(4 / 7)
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1)


@pytest.mark.parametrize("class_count", [1.0, "empirical"])
@pytest.mark.parametrize("with_gold", [False, True])
def test_bound_never_falls(class_count: float | str, with_gold: bool) -> None:
    crowd, truth = simulated()
    gold = np.where(np.arange(len(truth)) < 30, truth, -1) if with_gold else None
    model = IBCC(class_count=class_count, max_iter=60, tol=0).fit(crowd, gold)
    assert np.diff(model.objective_).min() > -1e-8
    assert model.objective_[-1] > model.objective_[0]


def test_enumeration_agrees_with_the_published_numbers() -> None:
    posterior, evidence = exact_posterior()
    np.testing.assert_allclose(posterior, EXACT, atol=1e-6)
    assert evidence == pytest.approx(EVIDENCE, abs=1e-6)


def test_gibbs_approaches_the_exact_posterior() -> None:
    model = IBCC(method="gibbs", max_iter=4000, random_state=0).fit(t1())
    np.testing.assert_allclose(model.raw_posterior_[:, 1], exact_posterior()[0], atol=0.015)
    assert model.n_iter_ == len(model.objective_) == 4000
    assert model.converged_


def test_gibbs_and_variational_agree_where_data_are_plentiful() -> None:
    crowd, truth = simulated(labels=9)
    variational = IBCC().fit(crowd)
    gibbs = IBCC(method="gibbs", max_iter=150, burn_in=50, random_state=1).fit(crowd)
    assert np.mean(variational.labels_ == gibbs.labels_) > 0.97
    assert np.mean(gibbs.labels_ == truth) > 0.9
    assert np.abs(variational.confusion_ - gibbs.confusion_).max() < 0.1


def test_gibbs_repeats_with_its_seed_only() -> None:
    chains = [IBCC(method="gibbs", max_iter=20, burn_in=5, random_state=seed).fit(t1()) for seed in (3, 3, 4)]
    assert np.array_equal(chains[0].raw_posterior_, chains[1].raw_posterior_)
    assert not np.array_equal(chains[0].raw_posterior_, chains[2].raw_posterior_)


@pytest.mark.parametrize("method", ["variational", "gibbs"])
def test_gold_labels_are_kept(method: str) -> None:
    model = IBCC(method=method, max_iter=120, random_state=0).fit(t1(), gold={0: 1, 4: 1})
    np.testing.assert_allclose(model.raw_posterior_[[0, 4], 1], 1)
    np.testing.assert_allclose(model.raw_posterior_.sum(axis=1), 1)


def test_history_informs_the_matrix_of_an_annotator() -> None:
    always_wrong = np.array([[[0.0, 500.0], [500.0, 0.0]]])
    model = IBCC().fit(t1(), history=AnnotatorHistory([2], [0, 1], always_wrong))
    assert model.confusion_[2, 0, 0] < 0.05
    assert model.raw_posterior_[4, 1] == pytest.approx(0.5)
    assert model.raw_posterior_[0, 1] < IBCC().fit(t1()).raw_posterior_[0, 1]


def test_compiled_and_scipy_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, truth = simulated()
    gold = np.where(np.arange(len(truth)) % 10 == 0, truth, -1)
    expected = IBCC(max_iter=20, tol=0).fit(crowd, gold)
    compile_always(monkeypatch)
    for n_jobs in (1, 2):
        found = IBCC(max_iter=20, tol=0, n_jobs=n_jobs).fit(crowd, gold)
        np.testing.assert_allclose(found.raw_posterior_, expected.raw_posterior_, atol=1e-9)
        np.testing.assert_allclose(found.objective_, expected.objective_, rtol=DOUBLE)


def test_renaming_annotators_and_classes_changes_nothing() -> None:
    crowd, _ = simulated()
    annotators, classes = np.random.default_rng(1).permutation(25), np.array([2, 0, 1])
    renamed = Annotations.from_triples(
        crowd.instance, annotators[crowd.annotator], classes[crowd.label], n_instances=300, n_annotators=25, n_classes=3
    )
    expected, found = IBCC().fit(crowd), IBCC().fit(renamed)
    np.testing.assert_allclose(found.raw_posterior_[:, classes], expected.raw_posterior_, atol=DOUBLE)
    np.testing.assert_allclose(found.skill_[annotators], expected.skill_, atol=DOUBLE)


def test_interval_of_a_silent_annotator_is_that_of_the_prior() -> None:
    low, high = IBCC().fit(t2()).skill_interval(0.9)[4]
    assert low < 4 / 7 < high
    assert high - low > 0.4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"diagonal": 0.0}, "diagonal must be a number above 0, got 0.0"),
        ({"off_diagonal": np.inf}, "off_diagonal"),
        ({"class_count": "much"}, "class_count must be a number above 0 or 'empirical', got 'much'"),
        ({"method": "vb"}, "unknown method 'vb'; known: 'variational', 'gibbs'"),
        ({"method": "gibbs", "burn_in": 500}, "burn_in must be less than max_iter=500, got 500"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        clone(IBCC(**parameters)).fit(t1())


def test_better_than_majority_vote_on_bluebird() -> None:
    crowd, truth = real("agg_bluebird")
    assert accuracy(IBCC().fit_predict(crowd), truth) > accuracy(crowd.votes().argmax(axis=1), truth) + 10
