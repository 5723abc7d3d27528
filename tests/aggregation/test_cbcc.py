"""CBCC: communities of annotators against hand-computed numbers and planted communities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from crowds import compile_always
from sklearn.base import clone

from crowdwise.aggregation.cbcc import CBCC
from crowdwise.aggregation.core.history import AnnotatorHistory
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError
from fixtures import t1, t2


def communities(n: int = 300, annotators: int = 60, seed: int = 0) -> tuple[Annotations, npt.NDArray[np.int64]]:
    """Three classes; two thirds of the annotators are good, the last third says "next class" most of the time."""
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(3, size=n), 8
    instance, annotator = np.repeat(np.arange(n), labels), rng.integers(annotators, size=n * labels)
    shifted = annotator >= annotators * 2 // 3
    label = np.where(rng.random(n * labels) < 0.85, truth[instance] + shifted, rng.integers(3, size=n * labels)) % 3
    sizes = {"n_instances": n, "n_annotators": annotators, "n_classes": 3}
    return Annotations.from_triples(instance, annotator, label, **sizes), truth


def test_one_community_is_one_pooled_matrix() -> None:
    model = CBCC(n_communities=1, max_iter=400, tol=0).fit(t1())
    np.testing.assert_allclose(model.raw_posterior_[:, 1], [0.206523, 0.982673, 0.017327, 0.793477, 0.5], atol=1e-6)
    assert model.objective_[-1] == pytest.approx(-11.308369, abs=1e-6)
    np.testing.assert_allclose(model.confusion_, np.broadcast_to(model.confusion_[0], (3, 2, 2)))


def test_t1_is_too_small_to_tell_communities_apart() -> None:
    model = CBCC(n_communities=2, n_restarts=1, max_iter=400, tol=0, random_state=0).fit(t1())
    np.testing.assert_allclose(model.membership_, 0.5, atol=0.02)


def test_t2_gives_distributions_and_the_silent_annotator_follows_the_proportions() -> None:
    model = CBCC(random_state=0).fit(t2())
    np.testing.assert_allclose(model.raw_posterior_.sum(axis=1), 1)
    np.testing.assert_allclose(model.membership_.sum(axis=1), 1)
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1)
    assert np.all(np.isfinite(model.confusion_))


@pytest.mark.parametrize("with_gold", [False, True])
def test_bound_never_falls(with_gold: bool) -> None:
    crowd, truth = communities()
    gold = np.where(np.arange(len(truth)) < 30, truth, -1) if with_gold else None
    model = CBCC(n_restarts=3, max_iter=60, tol=0, random_state=0).fit(crowd, gold)
    assert np.diff(model.objective_).min() > -1e-8
    if with_gold:
        assert np.array_equal(model.labels_[:30], truth[:30])


def test_planted_communities_are_found() -> None:
    crowd, truth = communities()
    model = CBCC(n_communities=2, random_state=0).fit(crowd)
    member = model.membership_.argmax(axis=1)
    assert np.all(member[:40] == member[0])
    assert np.all(member[40:] == 1 - member[0])
    assert np.mean(model.labels_ == truth) > np.mean(crowd.votes().argmax(axis=1) == truth)
    np.testing.assert_allclose(np.diagonal(model.community_confusion_[member[0]]), 0.9, atol=0.05)
    np.testing.assert_allclose(model.community_confusion_[member[-1], [0, 1, 2], [1, 2, 0]], 0.9, atol=0.05)


def test_annotators_with_one_label_borrow_from_their_community() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=200)
    instance = np.repeat(np.arange(200), 5)
    label = np.where(rng.random(1000) < 0.8, truth[instance], 1 - truth[instance])
    crowd = Annotations.from_triples(instance, rng.permutation(1000), label)
    model = CBCC(random_state=0).fit(crowd)
    assert np.mean(model.labels_ == truth) >= np.mean(crowd.votes().argmax(axis=1) == truth) - 0.01
    np.testing.assert_allclose(model.skill_, 0.8, atol=0.15)


def test_history_places_an_annotator() -> None:
    crowd, _ = communities()
    silent = Annotations.from_triples(crowd.instance, crowd.annotator, crowd.label, n_annotators=61, n_classes=3)
    past = AnnotatorHistory([60], [0, 1, 2], 50.0 * np.array([[[0, 1, 0], [0, 0, 1], [1, 0, 0]]]))
    model = CBCC(n_communities=2, random_state=0).fit(silent, history=past)
    assert model.membership_[60].argmax() == model.membership_[59].argmax()


def test_compiled_and_scipy_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, _ = communities()
    expected = CBCC(n_restarts=1, max_iter=20, tol=0, random_state=0).fit(crowd)
    compile_always(monkeypatch)
    found = CBCC(n_restarts=1, max_iter=20, tol=0, random_state=0, n_jobs=2).fit(crowd)
    np.testing.assert_allclose(found.raw_posterior_, expected.raw_posterior_, atol=1e-8)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_communities": 0}, "n_communities must be an integer of 1 or more, got 0"),
        ({"community_count": 0.0}, "community_count must be a number above 0, got 0.0"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        clone(CBCC(**parameters)).fit(t1())
