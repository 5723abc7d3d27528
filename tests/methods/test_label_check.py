"""Labels of methods are those of the annotators alone where the classifier adds nothing to them."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise
from crowdwise import Annotations
from crowdwise.aggregation import recommend
from crowdwise.methods.core.label_check import ENOUGH, LabelCheck, check_labels
from tolerances import SINGLE

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")


def crowd(n: int, each: int, seed: int = 0, classes: int = 3) -> tuple[Annotations, np.ndarray]:
    """Labels that are right in 70 of 100, by 8 annotators, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, n)
    rows = [
        (item, who, truth[item] if rng.random() < 0.7 else rng.integers(0, classes))
        for item in range(n)
        for who in rng.choice(8, each, replace=False)
    ]
    return Annotations.from_triples(*np.array(rows).T, n_instances=n, n_annotators=8, n_classes=classes), truth


def log_f(truth: np.ndarray, right: float, classes: int = 3, seed: int = 1) -> np.ndarray:
    """ln f of a classifier that is right so often, and says how sure it may be."""
    rng = np.random.default_rng(seed)
    said = np.where(rng.random(len(truth)) < right, truth, (truth + rng.integers(1, classes, len(truth))) % classes)
    sure = np.full((len(truth), classes), (1 - right) / (classes - 1))
    sure[np.arange(len(truth)), said] = right
    return np.log(sure)


def checked(annotations: Annotations, scores: np.ndarray) -> LabelCheck:
    return check_labels(annotations, scores, np.ones(len(scores), bool), np.inf, 0)


def test_a_good_classifier_makes_labels_better() -> None:
    annotations, truth = crowd(800, 2)
    found = checked(annotations, log_f(truth, 0.95))
    assert found.n == 800
    assert found.tells
    assert found.adds
    assert not found.labels_alone
    assert found.together - found.alone > 0.05
    assert "makes the labels better" in str(found)


def test_a_classifier_that_guesses_tells_nothing() -> None:
    annotations, truth = crowd(300, 4)
    found = checked(annotations, log_f(np.random.default_rng(5).permutation(truth), 0.9))
    assert found.tells is False
    assert found.labels_alone
    assert "annotators alone" in str(found)


def test_a_classifier_that_always_says_the_commonest_class_tells_nothing() -> None:
    annotations, truth = crowd(300, 4)
    found = checked(annotations, log_f(np.zeros_like(truth), 1.0 - 1e-6))
    assert found.excess == pytest.approx(0, abs=1e-12)
    assert found.labels_alone


def test_the_error_of_the_difference_is_its_spread_over_draws() -> None:
    annotations, truth = crowd(200, 3)
    scores = log_f(truth, 0.6)
    drawn = [check_labels(annotations, scores, np.ones(200, bool), np.inf, seed) for seed in range(12)]
    spread = np.std([each.together - each.alone for each in drawn], ddof=1)
    assert 0 < spread < 2 * np.mean([each.error for each in drawn])


def test_single_labels_and_few_items_are_not_compared() -> None:
    annotations, truth = crowd(100, 1)
    found = checked(annotations, log_f(truth, 0.9))
    assert (found.n, found.compared, found.labels_alone) == (0, False, False)
    assert found.tells
    annotations, truth = crowd(ENOUGH - 1, 4)
    few = checked(annotations, log_f(np.random.default_rng(5).permutation(truth), 0.9))
    assert (few.compared, few.tells, few.labels_alone) == (False, None, False)


def test_only_judged_items_are_held_out() -> None:
    annotations, truth = crowd(120, 3)
    judged = np.arange(120) < 40
    found = check_labels(annotations, log_f(truth, 0.9), judged, np.inf, 0)
    assert found.n == 40


@pytest.mark.parametrize("weights", [(10.0, 1.0, 1.0), (1.0, 0.05, 0.05)])
def test_one_who_weighs_more_than_two_others_is_not_overruled(weights: tuple[float, ...]) -> None:
    """Two annotators who always err together may be explained as right: votes by weight decide."""
    n = 120
    truth = np.arange(n) % 2
    X = np.random.default_rng(0).normal(size=(n, 6))
    X[:, 0] += 3 * truth
    annotations = Annotations.from_triples(
        np.repeat(np.arange(n), 3),
        np.tile([0, 1, 2], n),
        np.stack([truth, 1 - truth, 1 - truth], 1).ravel(),
        weight=np.tile(weights, n),
    )
    model = crowdwise.Concord(steps=200, random_state=0).fit(X, annotations)
    assert (model.posterior_.argmax(1) == truth).mean() > 0.95


def grades(seed: int) -> tuple[np.ndarray, Annotations, np.ndarray]:
    """Five grades, rated by four people each who err to the neighbours, and features that tell nothing."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(5, 150, p=[0.35, 0.25, 0.2, 0.12, 0.08])
    bias = rng.normal(0, 0.3, 8)
    rows = [
        (item, who, int(np.clip(np.rint(truth[item] + rng.normal(bias[who], 0.7)), 0, 4)))
        for item in range(150)
        for who in rng.choice(8, 4, replace=False)
    ]
    labels = Annotations.from_triples(*np.array(rows).T, n_instances=150, n_annotators=8, n_classes=5)
    return rng.normal(size=(150, 10)), labels, truth


@pytest.mark.parametrize("seed", range(3))
def test_features_that_tell_nothing_leave_the_labels_of_ordered_classes_alone(seed: int) -> None:
    X, annotations, truth = grades(seed)
    model = crowdwise.Concord(steps=200, random_state=seed).fit(X, annotations)
    alone = recommend(annotations, random_state=seed).estimator.posterior_
    found = LabelCheck.of(model.arrays_)
    assert found is not None
    right, right_alone = ((each.argmax(1) == truth).mean() for each in (model.posterior_, alone))
    if found.labels_alone:
        np.testing.assert_allclose(model.posterior_, alone, atol=SINGLE)
    else:
        assert found.together > found.alone
    assert right > right_alone - 0.05


def test_a_model_keeps_its_check(tmp_path: object) -> None:
    X, annotations, _ = grades(0)
    model = crowdwise.CE(epochs=5, random_state=0).fit(X, annotations)
    loaded = crowdwise.load(model.save(f"{tmp_path}/model"))
    assert str(LabelCheck.of(loaded.arrays_)) == str(LabelCheck.of(model.arrays_))
    assert LabelCheck.of({}) is None
