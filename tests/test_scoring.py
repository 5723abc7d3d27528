"""Scores of predictions by labels and by the truth, against loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdwise import Annotations, scoring
from crowdwise.aggregation import HierarchicalDawidSkene
from crowdwise.errors import DataError
from engine_helpers import crowd


def weighted(seed: int = 0) -> Annotations:
    """Soft and weighted labels of an uneven crowd; somebody's are worse than chance."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, 40)
    i, j = np.nonzero(rng.random((40, 5)) < 0.7)
    right = rng.random(len(i)) < np.array([0.9, 0.8, 0.6, 0.4, 0.1])[j]
    y = np.where(right, truth[i], (truth[i] + rng.integers(1, 3, len(i))) % 3)
    sizes = {"n_instances": 41, "n_annotators": 5, "n_classes": 3}
    return Annotations.from_triples(i, j, y, **sizes, weight=rng.choice([0.5, 1.0, 2.0], len(i)))


def test_weights_of_annotators_are_what_they_are_better_than_chance() -> None:
    annotations = weighted()
    skill = HierarchicalDawidSkene(random_state=0).fit(annotations).skill_
    expected = [min(max((3 * each - 1) / 2, 0.0), 1.0) for each in skill]
    found = scoring.annotator_weights(annotations)
    np.testing.assert_allclose(found, expected)
    assert found[4] == 0 < found[0] < 1
    one = Annotations.from_triples([0, 1], [0, 1], [0, 0])
    assert scoring.annotator_weights(one).tolist() == [1, 1]
    two = annotations.where(annotations.label < 2)
    binary = Annotations.from_triples(two.instance, two.annotator, two.label, n_classes=2)
    skill = HierarchicalDawidSkene(random_state=0).fit(binary).skill_
    np.testing.assert_allclose(scoring.annotator_weights(binary), np.clip(2 * skill - 1, 0, 1))


def test_where_nobody_is_better_than_chance_all_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(self: Any, annotations: Annotations) -> Any:
        self.skill_ = np.array([1 / 3, 0.9])  # of whom the second has not labelled anything
        return self

    monkeypatch.setattr(HierarchicalDawidSkene, "fit", fit)
    crowd_ = Annotations.from_triples([0, 1], [0, 0], [0, 2], n_annotators=2, n_classes=3)
    assert scoring.annotator_weights(crowd_).tolist() == [1, 1]


def test_agreement_counts_labels_by_their_weights_and_annotators() -> None:
    annotations, weight = weighted(), np.array([0.9, 0.7, 0.5, 0.1, 0.0])
    predicted = np.random.default_rng(1).integers(0, 4, 41)  # 3 is no class of the crowd
    hits = total = 0.0
    support = np.zeros((41, 3))
    rows = zip(annotations.instance, annotations.annotator, annotations.label, annotations.weight, strict=True)
    for i, j, y, w in rows:
        total += w * weight[j]
        hits += w * weight[j] * (y == predicted[i])
        support[i, y] += w * weight[j]
    np.testing.assert_allclose(scoring.support_of(annotations, weight), support)
    assert scoring.skill_weighted_agreement(annotations, predicted, weight) == pytest.approx(hits / total)
    assert scoring.skill_weighted_agreement(annotations, predicted, np.zeros(5)) is not None
    assert math.isnan(scoring.skill_weighted_agreement(annotations, predicted, np.zeros(5)))


def test_soft_labels_agree_by_their_shares() -> None:
    """Labels of 0.9 to 0.1 on every item: a prediction of the first class agrees with 90 % of them."""
    soft = Annotations.from_soft(np.tile([0.9, 0.1], (20, 3, 1)))
    assert scoring.skill_weighted_agreement(soft, np.zeros(20, int), np.ones(3)) == pytest.approx(0.9, abs=1e-6)


def test_agreement_in_the_users_words_and_with_nothing() -> None:
    labels = [["cat", "cat"], ["dog", "cat"], [None, "dog"]]
    even = scoring.skill_weighted_agreement(labels, ["cat", "dog", "cow"], np.ones(2))
    assert even == pytest.approx(3 / 5)
    assert math.isnan(scoring.skill_weighted_agreement(Annotations.from_triples([], [], [], n_instances=2), [0, 1]))
    with pytest.raises(DataError, match=r"predicted has shape \(2,\), but the annotations cover 3 instances"):
        scoring.skill_weighted_agreement(labels, ["cat", "dog"])


class Says:
    """A stand-in for a fitted classifier."""

    def __init__(self, *classes: Any) -> None:
        self.classes = np.array(classes)

    def predict(self, X: Any) -> Any:
        return self.classes[: len(X)]


def test_a_scorer_knows_annotators_by_name() -> None:
    X, annotations, _ = crowd(60)
    names = list("abcdefgh")
    everything = Annotations.from_triples(
        annotations.instance, annotations.annotator, annotations.label, annotators=names, classes=[0, 1, 2]
    )
    of = dict(zip(names, scoring.annotator_weights(everything), strict=True))
    held_out = Annotations.from_triples([0, 0, 1], [0, 1, 1], [0, 1, 1], annotators=["g", "b"], classes=[0, 1, 2])
    scorer = scoring.Agreement(everything)
    found = scorer(Says(0, 0), X[:2], held_out)
    assert found == pytest.approx(of["g"] / (of["g"] + 2 * of["b"]))
    own = scoring.Agreement()(Says(0, 0), X[:2], held_out)
    assert own == scoring.skill_weighted_agreement(held_out, [0, 0])
    stranger = Annotations.from_triples([0, 1], [0, 1], [0, 1], annotators=["a", "z"], classes=[0, 1, 2])
    with pytest.raises(DataError, match="does not know the annotators 'z'"):
        scorer(Says(0, 0), X[:2], stranger)


def test_accuracy_is_of_instances_whose_class_is_known() -> None:
    X = np.zeros((4, 2))
    labels = Annotations.from_triples([0, 1, 2, 3], [0] * 4, [0, 1, 0, 1], instances=[0, 1, 2, 3])
    assert scoring.Accuracy({0: 1, 1: 1, 3: 0, 9: 1})(Says(1, 0, 0, 0), X, labels) == pytest.approx(2 / 3)
    assert math.isnan(scoring.Accuracy({9: 1})(Says(1, 0, 0, 0), X, labels))
