"""The rule that picks a method without knowing the truth."""

from __future__ import annotations

import numpy as np
import pytest
from crowds import LABEL_ONLY, accuracy, real, simulated, sparse

from crowdwise.aggregation import recommend
from crowdwise.aggregation import recommend as choose
from crowdwise.annotations import Annotations


def test_majority_vote_always_stands_beside() -> None:
    crowd, _ = simulated(100, 10, 3, 5, seed=0)
    chosen = recommend(crowd)
    assert chosen.name == "committee"
    differs = (chosen.estimator.labels_ != chosen.majority_vote.labels_).mean()
    assert chosen.disagreement == pytest.approx(differs)
    assert chosen.reason.endswith(".")
    assert chosen.reason.count(". ") == 0
    assert str(chosen).startswith("committee: ")


@pytest.mark.parametrize(
    ("crowd", "reason"),
    [
        (Annotations.from_triples([], [], [], n_instances=3, n_classes=2), "fewer than three annotators"),
        (Annotations.from_triples([0, 0, 1], [0, 1, 0], [0, 1, 1]), "fewer than three annotators"),
        (Annotations.from_triples([0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 1, 0]), "one label per instance"),
        (simulated(300, 10, 3, 5, (0.999, 1.0))[0], "agree almost always"),
        (simulated(2_000, 10, 2, 3, (0.5, 0.5))[0], "no more than by chance"),
    ],
)
def test_where_nothing_can_be_gained_it_is_majority_vote(crowd: Annotations, reason: str) -> None:
    chosen = recommend(crowd)
    assert chosen.name == "majority-vote"
    assert reason in chosen.reason
    assert chosen.disagreement == 0


def test_too_many_classes_for_matrices_leave_one_accuracy_each() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5_000, 100)
    labels = np.where(rng.random((100, 20)) < 0.7, truth[:, None], rng.integers(0, 5_000, (100, 20)))
    crowd = Annotations.from_triples(np.repeat(range(100), 20), list(range(20)) * 100, labels.ravel(), n_classes=5_000)
    assert recommend(crowd).name == "one-coin"


def test_gold_is_passed_on() -> None:
    crowd, truth = simulated(50, 8, 3, 4, seed=1)
    chosen = choose(crowd, gold={0: int(truth[0] + 1) % 3})
    assert chosen.estimator.labels_[0] == chosen.majority_vote.labels_[0] == (truth[0] + 1) % 3


@pytest.mark.parametrize("n", [300, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("labels_per_annotator", [1, 5, 50])
def test_it_does_not_lose_to_majority_vote(labels_per_annotator: int, n: int) -> None:
    gains = []
    for seed in range(3):
        crowd, truth = sparse(labels_per_annotator, seed, n)
        chosen = recommend(crowd)
        gains.append(accuracy(chosen.estimator.labels_, truth) - accuracy(chosen.majority_vote.labels_, truth))
    assert np.mean(gains) > -0.5


@pytest.mark.parametrize("name", LABEL_ONLY)
def test_real_sets_never_lose_two_points(name: str) -> None:
    crowd, truth = real(name)
    chosen = recommend(crowd)
    assert accuracy(chosen.estimator.labels_, truth) > accuracy(chosen.majority_vote.labels_, truth) - 2
