"""The rule that picks a method without knowing the truth."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest
from crowds import LABEL_ONLY, accuracy, real, simulated, sparse

from crowdwise.aggregation import Committee, HierarchicalDawidSkene, recommend
from crowdwise.aggregation import recommend as choose
from crowdwise.annotations import Annotations
from crowdwise.figures import shared_hits


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
        (simulated(2_000, 10, 2, 3, (0.5, 0.5))[0], "agree hardly more often than guesses"),
    ],
)
def test_where_nothing_can_be_gained_it_is_majority_vote(crowd: Annotations, reason: str) -> None:
    chosen = recommend(crowd)
    assert chosen.name == "majority-vote"
    assert reason in chosen.reason
    assert chosen.disagreement == 0


@pytest.mark.parametrize("n_items", [1, 2, 4, 8, 40])
@pytest.mark.parametrize("n_classes", [2, 4, 9])
def test_a_reason_contains_no_number_that_contradicts_it(n_items: int, n_classes: int) -> None:
    """Few pairs of labels may agree far more often than by chance, and still tell nothing."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        crowd = Annotations.from_dense(rng.integers(0, n_classes, (n_items, 3)))
        reason = recommend(crowd, random_state=0).reason
        assert not re.search(r"\d beyond|by chance", reason), reason


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


def bias_alone(seed: int, n: int = 300) -> tuple[Annotations, npt.NDArray[np.int64]]:
    """Two labels of every item, and a bias of everybody towards the first of three classes."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    instance = np.repeat(np.arange(n), 2)
    annotator = np.argsort(rng.random((n, 12)), axis=1)[:, :2].ravel()
    chances = np.array([[0.9, 0.05, 0.05], [0.4, 0.55, 0.05], [0.4, 0.05, 0.55]])[truth[instance]]
    label = (rng.random((2 * n, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=2)
    return Annotations.from_triples(instance, annotator, label, n_instances=n, n_classes=3), truth


def test_two_labels_per_item_do_not_identify_matrices() -> None:
    losses: dict[str, list[float]] = {"committee": [], "hierarchical-dawid-skene": []}
    for seed in range(3):
        crowd, truth = bias_alone(seed)
        chosen = recommend(crowd)
        assert list(chosen.estimator.members_) == ["wawa", "majority-vote"]
        assert "too few labels are beyond two per item" in chosen.reason
        fixed = HierarchicalDawidSkene().fit(crowd)
        vote = shared_hits(crowd.votes(), truth).mean()
        for name, model in (("committee", chosen.estimator), ("hierarchical-dawid-skene", fixed)):
            losses[name].append(vote - shared_hits(model.posterior_, truth).mean())
    assert np.mean(losses["committee"]) < 0.02 < np.mean(losses["hierarchical-dawid-skene"])


def test_third_labels_or_gold_labels_identify_matrices() -> None:
    crowd, truth = bias_alone(0)
    gold = {item: int(truth[item]) for item in range(45)}  # five for each entry of a matrix of three classes
    assert "ebcc" in Committee(n_restarts=2).fit(crowd, gold).members_
    assert "ebcc" not in Committee(n_restarts=2).fit(crowd, dict(list(gold.items())[:44])).members_
    assert "ebcc" in Committee(n_restarts=2).fit(simulated(45, 9, 3, 3, seed=1)[0]).members_
    assert "ebcc" not in Committee(n_restarts=2).fit(simulated(44, 9, 3, 3, seed=1)[0]).members_


def panel_of(names: list[str], n: int = 60) -> Annotations:
    """Everybody labels everything."""
    crowd, _ = simulated(n, len(names), 2, len(names), seed=3)
    return Annotations.coerce(
        {
            "item": crowd.instance.tolist(),
            "annotator": [names[code] for code in crowd.annotator],
            "label": crowd.label.tolist(),
        }
    )


MODELS = ["gpt-4o", "claude-3-opus", "llama3:latest", "mistral-7b-instruct", "flan-t5-xl"]


def test_names_of_models_are_known_and_their_agreement_is_no_probability() -> None:
    chosen = recommend(panel_of(MODELS))
    assert (chosen.name, chosen.confidence) == ("hierarchical-dawid-skene", "agreement")
    assert "5 of 5 annotators are models" in chosen.reason
    told = recommend(panel_of(MODELS), gold=dict.fromkeys(range(20), 0))
    assert told.confidence == "probability"
    assert recommend(panel_of(MODELS), models=()).confidence == "probability"


def test_people_beside_models_make_a_probability() -> None:
    chosen = recommend(panel_of([*MODELS, "ann", "ben"]))
    assert (chosen.name, chosen.confidence) == ("panel", "probability")
    assert recommend(panel_of(["ann", "ben", "claude", "gemma", "eve"])).name == "committee"
