"""Quality: instances, label issues, and what to label next."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdwise import Annotations, quality
from crowdwise.quality._belief import Belief
from crowdwise.quality._next import _assign
from quality_helpers import SMALL, Array, column, simulated

# -- instances and issues --------------------------------------------------------------------------------------------


def test_instances_of_a_small_crowd_by_hand() -> None:
    table = quality.instances(SMALL)
    assert table.column_names == [
        "instance",
        "consensus_label",
        "consensus_quality_score",
        "annotator_agreement",
        "num_annotations",
        "entropy",
        "disagreement",
    ]
    assert column(table, "consensus_label") == [0, 1, 0, 1, 0]
    assert column(table, "num_annotations") == [3, 3, 3, 3, 2]
    assert column(table, "annotator_agreement") == pytest.approx([2 / 3, 1, 1, 2 / 3, 1 / 2])
    assert column(table, "disagreement") == pytest.approx([2 / 3, 0, 0, 2 / 3, 1])
    assert column(table, "entropy")[4] == pytest.approx(1)
    score = column(table, "consensus_quality_score")
    assert score[4] == pytest.approx(0.5)
    assert 0.5 < score[0] < score[1] < 1


def test_an_instance_without_labels_has_no_consensus_unless_a_posterior_has() -> None:
    crowd = Annotations.from_triples([0], [0], [1], n_instances=2, n_classes=2)
    blank = quality.instances(crowd).to_pylist()[1]
    assert blank["consensus_label"] is None
    assert blank["annotator_agreement"] is None
    assert (blank["num_annotations"], blank["entropy"]) == (0, pytest.approx(1))
    assert quality.instances(crowd, [[0, 1], [0.2, 0.8]]).to_pylist()[1]["consensus_label"] == 1


def test_issues_rank_planted_errors_first() -> None:
    crowd, truth = simulated(300, np.full(8, 0.9), 4, 5, seed=3)
    table = quality.issues(crowd)
    wrong = crowd.label != truth[crowd.instance]
    rows = column(table, "annotation")
    assert wrong[rows[:50]].all()
    assert len(set(np.flatnonzero(wrong)) - set(rows)) < 0.1 * wrong.sum()  # few errors win the vote
    assert column(table, "label_quality") == sorted(column(table, "label_quality"))
    assert all(given != other for given, other in zip(table["given_label"], table["predicted_label"], strict=True))
    assert quality.issues(crowd, limit=7) == table.slice(0, 7)


def test_a_tie_is_no_issue() -> None:
    assert quality.issues([["yes", "no"], ["yes", "yes"]]).num_rows == 0


# -- what to label next ----------------------------------------------------------------------------------------------


def information(prior: Array, matrix: Array) -> float:
    """Mutual information of class and label in bits, term by term."""
    joint = prior[:, None] * matrix
    independent = np.outer(prior, joint.sum(axis=0))
    return float(sum(p * math.log2(p / q) for p, q in zip(joint.ravel(), independent.ravel(), strict=True) if p > 0))


def test_gains_equal_their_definitions() -> None:
    rng = np.random.default_rng(0)
    crowd, _ = simulated(12, np.full(5, 0.7), 3, 2, seed=0)
    posterior, confusion = rng.dirichlet(np.ones(3), 12), rng.dirichlet(np.ones(3), (5, 3))
    table = quality.next_labels(crowd, posterior, confusion=confusion, budget=12)
    assert table.num_rows == 12
    for row in table.to_pylist():
        belief, matrix = posterior[row["instance"]], confusion[row["annotator"]]
        assert row["expected_gain"] == pytest.approx(information(belief, matrix))
        after = sum(max(belief[p] * matrix[p, y] for p in range(3)) for y in range(3))
        assert row["expected_accuracy_gain"] == pytest.approx(after - belief.max())
    assert column(table, "expected_gain") == sorted(column(table, "expected_gain"), reverse=True)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 6), st.integers(1, 10))
@settings(max_examples=60, deadline=None)
def test_assignments_keep_their_promises(seed: int, budget: int, per_annotator: int, panel: int) -> None:
    crowd, _ = simulated(25, np.linspace(0.5, 0.9, 7), 3, 3, seed)
    table = quality.next_labels(crowd, budget=budget, per_annotator=per_annotator, panel=panel)
    pairs = list(zip(column(table, "instance"), column(table, "annotator"), strict=True))
    assert not set(pairs) & set(zip(crowd.instance.tolist(), crowd.annotator.tolist(), strict=True))
    assert len({instance for instance, _ in pairs}) == len(pairs) <= budget
    people = [annotator for _, annotator in pairs]
    assert all(people.count(j) <= per_annotator for j in people)
    assert len(set(people)) <= panel


def test_assignment_takes_the_best_pairs() -> None:
    gains = np.array([[9.0, 1.0], [8.0, 7.0], [6.0, 2.0], [-np.inf, -np.inf]])
    chosen, asked = _assign(gains, budget=3, capacity=2)
    assert list(zip(chosen.tolist(), asked.tolist(), strict=True)) == [(0, 0), (1, 0), (2, 1)]
    assert [len(part) for part in _assign(gains, budget=9, capacity=9)] == [3, 3]


def test_unknown_instances_come_first_and_go_to_the_best_annotator() -> None:
    crowd, _ = simulated(200, np.r_[np.full(6, 0.6), 0.95], 3, 4, seed=1)
    larger = Annotations.from_triples(
        crowd.instance, crowd.annotator, crowd.label, n_instances=203, n_annotators=7, n_classes=3
    )
    table = quality.next_labels(larger, budget=3, per_annotator=10)
    assert sorted(column(table, "instance")) == [200, 201, 202]
    assert column(table, "annotator") == [6, 6, 6]
    others = quality.next_labels(larger, budget=3, per_annotator=10, annotators=[1, 2])
    assert set(column(others, "annotator")) <= {1, 2}


def gains_of_asking(seed: int, budget: int = 150) -> tuple[float, float, float]:
    """How much more of the consensus is right after asking: as advised, as promised, and at random."""
    rng = np.random.default_rng(seed)
    skills = rng.uniform(0.4, 0.95, 20)
    crowd, truth = simulated(400, skills, 4, 3, seed)

    def accuracy(instance: Array, annotator: Array) -> float:
        wrong = (truth[instance] + rng.integers(1, 4, len(instance))) % 4
        label = np.where(rng.random(len(instance)) < skills[annotator], truth[instance], wrong)
        columns = np.r_[crowd.instance, instance], np.r_[crowd.annotator, annotator], np.r_[crowd.label, label]
        return float(np.mean(Belief.of(Annotations.from_triples(*columns), None).label == truth))

    nothing = np.empty(0, np.int64)
    before = accuracy(nothing, nothing)
    table = quality.next_labels(crowd, budget=budget)
    advised = accuracy(np.array(column(table, "instance")), np.array(column(table, "annotator")))
    at_random = accuracy(rng.permutation(400)[:budget], rng.integers(0, 20, budget))
    return advised - before, sum(column(table, "expected_accuracy_gain")) / 400, at_random - before


def test_labels_asked_for_help_as_much_as_promised() -> None:
    """Asking where it pays improves the consensus by about the promised amount, and more than asking at random."""
    gained, promised, at_random = np.mean([gains_of_asking(seed) for seed in range(8)], axis=0)
    assert gained > 2 * at_random
    assert gained == pytest.approx(promised, abs=0.02)
