"""Quality: annotator profiles, instances, label issues, what to label next, calibration."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdwise import Annotations, agreement, quality
from crowdwise.errors import ConfigError, DataError
from crowdwise.quality._belief import Belief, majority_posterior
from crowdwise.quality._next import _assign

Array = npt.NDArray[Any]

# Five instances, three annotators, two classes; the last instance is a tie.
SMALL = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, None]]


def simulated(
    n: int, skills: Array, classes: int, votes: int, seed: int, skew: float = 0.0
) -> tuple[Annotations, Array]:
    """A crowd whose annotator j is right with chance ``skills[j]``, and the true classes."""
    rng = np.random.default_rng(seed)
    size = len(skills)
    truth = np.where(rng.random(n) < skew, 0, rng.integers(0, classes, n))
    i = np.repeat(np.arange(n), votes)
    j = np.argsort(rng.random((n, size)), axis=1)[:, :votes].ravel()
    wrong = (truth[i] + rng.integers(1, classes, n * votes)) % classes
    y = np.where(rng.random(n * votes) < skills[j], truth[i], wrong)
    return Annotations.from_triples(i, j, y, n_instances=n, n_annotators=size, n_classes=classes), truth


def column(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    return values


def one_hot(truth: Array, classes: int) -> Array:
    return np.eye(classes)[truth]


# -- belief ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_the_default_belief_is_the_majority_vote(seed: int, classes: int, votes: int) -> None:
    crowd, _ = simulated(30, np.full(6, 0.6), classes, votes, seed)
    posterior = majority_posterior(crowd)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    np.testing.assert_array_equal(posterior.argmax(axis=1), crowd.votes().argmax(axis=1))


def test_the_default_belief_is_calibrated_where_annotators_are_alike() -> None:
    for votes, accuracy in ((1, 0.75), (3, 0.6), (5, 0.8)):
        crowd, truth = simulated(4000, np.full(40, accuracy), 4, votes, seed=votes)
        assert quality.calibration(majority_posterior(crowd), truth).ece < 0.03


def test_an_aggregator_brings_its_posterior_and_confusion() -> None:
    crowd, truth = simulated(40, np.full(5, 0.8), 3, 3, seed=0)
    posterior, confusion = one_hot(truth, 3), np.tile(np.eye(3), (5, 1, 1))
    fitted = SimpleNamespace(posterior_=posterior, confusion_=confusion)
    assert quality.annotators(crowd, fitted) == quality.annotators(crowd, posterior, confusion=confusion)
    assert quality.instances(crowd, fitted) == quality.instances(crowd, posterior)


# -- annotators ------------------------------------------------------------------------------------------------------


def test_annotators_of_a_small_crowd_by_hand() -> None:
    table = quality.annotators(SMALL)
    assert column(table, "annotator") == [0, 1, 2]
    assert column(table, "num_examples_labeled") == [5, 5, 4]
    assert column(table, "agreement_with_consensus") == [1, 0.8, 0.5]  # of a tie, the first class is the consensus
    best, middle, last = column(table, "annotator_quality")
    assert best == pytest.approx(middle, abs=0.1)  # 0 and 1 differ on the tie alone, which tells nothing
    assert last < middle


def test_annotators_has_the_names_that_users_know() -> None:
    names = quality.annotators(SMALL).column_names
    assert {"annotator_quality", "agreement_with_consensus", "worst_class", "num_examples_labeled"} <= set(names)
    assert "drift" not in names
    assert "drift" in quality.annotators(SMALL, timestamps=np.arange(14)).column_names


def test_quality_intervals_cover_the_true_skill() -> None:
    hits, total, errors = 0, 0, []
    for seed in range(10):
        skills = np.random.default_rng(seed).uniform(0.5, 0.95, 40)
        crowd, _ = simulated(500, skills, 4, 4, seed)
        table = quality.annotators(crowd, confidence=0.9)
        low, high = (np.array(column(table, f"annotator_quality_{end}")) for end in ("low", "high"))
        hits += int(((low <= skills) & (skills <= high)).sum())
        total += 40
        errors.append(np.array(column(table, "annotator_quality")) - skills)
    assert 0.84 < hits / total < 0.96
    assert abs(np.mean(errors)) < 0.02


def test_quality_of_known_truth_is_the_beta_posterior() -> None:
    """With certain classes the interval is that of a binomial share, but for the weak prior."""
    crowd, truth = simulated(400, np.array([0.9, 0.6]), 3, 2, seed=1)
    table = quality.annotators(crowd, one_hot(truth, 3))
    share = np.array(column(table, "agreement_with_consensus"))
    assert column(table, "annotator_quality") == pytest.approx(share, abs=0.01)
    width = np.array(column(table, "annotator_quality_high")) - np.array(column(table, "annotator_quality_low"))
    np.testing.assert_allclose(width, 2 * 1.96 * np.sqrt(share * (1 - share) / 400), rtol=0.05)


def bayes(crowd: Annotations, skills: Array) -> Array:
    """The exact posterior (n, C) where annotators' skills are known and errors are alike."""
    classes = crowd.n_classes
    wrong = (1 - skills) / (classes - 1)
    logs = np.zeros((crowd.n_instances, classes))
    np.add.at(logs, (crowd.instance, crowd.label), np.log(skills / wrong)[crowd.annotator])
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def test_instances_that_nobody_else_labelled_tell_nothing_of_skill() -> None:
    """Neither under a majority vote nor under a model that is sure of a good annotator's labels."""
    crowd, _ = simulated(200, np.array([0.9, 0.6]), 3, 1, seed=1)
    for posterior in (None, bayes(crowd, np.array([0.9, 0.6]))):
        table = quality.annotators(crowd, posterior)
        low, high = (np.array(column(table, f"annotator_quality_{end}")) for end in ("low", "high"))
        assert (high - low > 0.45).all()  # of 200 labels each; with known truth it would be 0.1


def test_quality_intervals_of_a_model_cover_the_true_skill() -> None:
    hits = 0
    for seed in range(10):
        skills = np.random.default_rng(seed).uniform(0.5, 0.95, 20)
        crowd, _ = simulated(300, skills, 3, 5, seed)
        table = quality.annotators(crowd, bayes(crowd, skills))
        low, high = (np.array(column(table, f"annotator_quality_{end}")) for end in ("low", "high"))
        hits += int(((low <= skills) & (skills <= high)).sum())
    assert hits / 200 > 0.93


def test_spammer_score_is_one_for_a_spammer_and_zero_for_an_oracle() -> None:
    crowd = Annotations.from_dense([[0, 1, 0], [1, 1, 0], [2, 1, 1]])
    spam = np.tile([0.2, 0.5, 0.3], (3, 1))
    half = 0.5 * spam + 0.5 * np.eye(3)
    table = quality.annotators(crowd, confusion=np.stack([np.eye(3), spam, half]))
    assert column(table, "spammer_score") == pytest.approx([0, 1, 0.75])


def test_spammers_are_found_from_labels_alone() -> None:
    crowd, _ = simulated(400, np.r_[np.full(9, 0.85), 1 / 4], 4, 5, seed=0)
    constant = np.where(crowd.annotator == 8, 2, crowd.label)
    crowd = Annotations.from_triples(crowd.instance, crowd.annotator, constant, n_annotators=10, n_classes=4)
    score = np.array(column(quality.annotators(crowd), "spammer_score"))
    assert (score[8:] > 0.85).all()
    assert (score[:8] < 0.6).all()


def test_worst_class_and_most_frequent_error_are_found() -> None:
    truth = np.tile([0, 1, 2], 40)
    sloppy = np.where(truth == 2, 1, truth)  # takes c for b
    matrix = np.array(["a", "b", "c"])[np.stack([truth, truth, sloppy], axis=1)]
    row = quality.annotators(matrix).to_pylist()[2]
    assert (row["worst_class"], row["confused_class"], row["confused_with"]) == ("c", "c", "b")
    assert row["confused_count"] == pytest.approx(40, abs=4)  # two votes to one are not certain
    assert row["worst_class_quality"] < 0.15
    assert row["overused_class"] == "b"
    assert row["bias"] == pytest.approx(1 / 3, abs=0.05)
    honest = quality.annotators(matrix).to_pylist()[0]
    assert honest["confused_count"] is None or honest["confused_count"] < 4
    assert honest["bias"] < 0.05


def test_speed_is_the_median_of_durations_or_of_the_time_between_labels() -> None:
    crowd = Annotations.from_triples([0, 1, 2, 3, 0, 1], [0, 0, 0, 0, 1, 1], [0, 1, 0, 1, 0, 1], n_annotators=3)
    durations = [3.0, 4.0, math.nan, 100.0, 8.0, 6.0]
    assert column(quality.annotators(crowd, durations=durations), "seconds_per_label") == [4, 7, None]
    start = np.datetime64("2026-01-02T10:00:00")
    times = start + np.array([60, 0, 10, 3610, 5, 7]).astype("timedelta64[s]")
    for form in (times, times.tolist(), (times - start) / np.timedelta64(1, "s")):
        assert column(quality.annotators(crowd, timestamps=form), "seconds_per_label") == [50, 2, None]


def test_drift_finds_who_tires() -> None:
    crowd, truth = simulated(600, np.full(4, 0.9), 3, 4, seed=0)
    rng = np.random.default_rng(0)
    late = crowd.instance / 600  # labelled in order of instance
    tired = (crowd.annotator == 2) & (rng.random(len(crowd)) < late)
    label = np.where(tired, rng.integers(0, 3, len(crowd)), crowd.label)
    crowd = Annotations.from_triples(crowd.instance, crowd.annotator, label)
    table = quality.annotators(crowd, one_hot(truth, 3), timestamps=crowd.instance)
    low, high = column(table, "drift_low"), column(table, "drift_high")
    assert column(table, "drift")[2] == pytest.approx(-0.57, abs=0.12)  # from 0.9 to chance
    assert high[2] < 0
    assert all(low[j] < 0 < high[j] for j in (0, 1, 3))


def test_renaming_annotators_and_shuffling_rows_changes_nothing() -> None:
    crowd, _ = simulated(80, np.linspace(0.4, 0.9, 6), 3, 3, seed=2)
    rng = np.random.default_rng(0)
    rows, people = rng.permutation(len(crowd)), rng.permutation(6)
    shuffled = Annotations.from_triples(crowd.instance[rows], people[crowd.annotator[rows]], crowd.label[rows])
    mine, theirs = quality.annotators(crowd), quality.annotators(shuffled)
    for name in mine.column_names[1:]:
        for j in range(6):
            assert column(theirs, name)[people[j]] == pytest.approx(column(mine, name)[j]), name
    assert quality.instances(shuffled) == quality.instances(crowd)


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
    assert score[4] == 0.5 < score[0] < score[1] < 1


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


# -- calibration -----------------------------------------------------------------------------------------------------


def test_calibration_by_hand() -> None:
    result = quality.calibration([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.45, 0.55]], [0, 1, 1, -1], n_bins=2)
    assert (result.n, result.accuracy) == (3, pytest.approx(2 / 3))
    assert result.confidence == pytest.approx(2.3 / 3)
    assert result.ece == result.mce == pytest.approx(0.1)
    assert result.bins.to_pylist() == [
        {"low": 0.5, "high": 1.0, "count": 3, "confidence": pytest.approx(2.3 / 3), "accuracy": pytest.approx(2 / 3)}
    ]
    assert "expected calibration error 0.100" in str(result)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_calibration_tells_honest_from_boastful(strategy: Any) -> None:
    rng = np.random.default_rng(0)
    posterior = rng.dirichlet(np.ones(4), 20_000)
    truth = (rng.random((20_000, 1)) > posterior.cumsum(axis=1)).sum(axis=1)
    boastful = posterior**3 / (posterior**3).sum(axis=1, keepdims=True)
    assert quality.calibration(posterior, truth, strategy=strategy).ece < 0.015
    assert quality.calibration(boastful, truth, strategy=strategy).ece > 0.1


def test_bins_count_every_known_instance_once() -> None:
    posterior = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.7, 0.3]])
    for strategy in ("uniform", "quantile"):
        for bins in (1, 2, 10):
            result = quality.calibration(posterior, [0, 0, 0, 0], n_bins=bins, strategy=strategy)  # type: ignore[arg-type]
            assert sum(column(result.bins, "count")) == 4


def test_calibration_without_known_truth_is_undefined() -> None:
    for posterior, truth in (([[0.5, 0.5]], [-1]), (np.empty((0, 3)), np.empty(0, int))):
        result = quality.calibration(posterior, truth)
        assert math.isnan(result.ece)
        assert (result.n, result.bins.num_rows) == (0, 0)


# -- degenerate crowds -----------------------------------------------------------------------------------------------

DEGENERATE = {
    "nothing at all": Annotations.from_triples([], [], []),
    "no labels": Annotations.from_triples([], [], [], n_instances=3, n_annotators=2, n_classes=2),
    "no instances": Annotations.from_triples([], [], [], n_annotators=2, n_classes=2),
    "no classes": Annotations.from_triples([], [], [], n_instances=3, n_annotators=2),
    "a crowd of one": Annotations.from_triples([0, 1, 2], [0, 0, 0], [0, 1, 0]),
    "one class": Annotations.from_dense([[0, 0], [0, 0]]),
    "one label": Annotations.from_triples([0], [0], [0], n_instances=2, n_annotators=3, n_classes=3),
    "repeated labels": Annotations.from_triples([0, 0, 0], [0, 0, 1], [0, 1, 1]),
    "silent annotator, unlabelled instance, unseen class": Annotations.from_triples(
        [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4],
        [0, 1, 0, 1, 2, 0, 1, 2, 0, 2, 3, 1, 2],
        [0, 0, 1, 1, 1, 2, 2, 0, 0, 0, 0, 1, 2],
        n_instances=6,
        n_annotators=5,
        n_classes=4,
    ),
    "everybody disagrees": Annotations.from_dense([[0, 1, 2], [2, 0, 1], [1, 2, 0]]),
}


@pytest.mark.parametrize("crowd", DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_crowds_have_tables_without_nan(crowd: Annotations) -> None:
    times = np.arange(len(crowd), dtype=float)
    people = quality.annotators(crowd, timestamps=times, durations=times)
    tables = people, quality.instances(crowd), quality.issues(crowd), quality.next_labels(crowd, budget=5)
    assert people.num_rows == crowd.n_annotators
    assert tables[1].num_rows == crowd.n_instances
    for table in tables:
        for name in table.column_names:
            assert not any(isinstance(value, float) and not math.isfinite(value) for value in column(table, name)), name
    silent = crowd.labels_per_annotator == 0
    for name in ("agreement_with_consensus", "worst_class", "bias"):
        assert [value is None for value in column(people, name)] == silent.tolist()
    assert all(0 < value < 1 for value in column(people, "annotator_quality"))


@pytest.mark.parametrize("name", [name for name, crowd in DEGENERATE.items() if crowd.n_classes])
def test_degenerate_crowds_take_a_posterior_and_confusion(name: str) -> None:
    crowd = DEGENERATE[name]
    classes = crowd.n_classes
    posterior = np.full((crowd.n_instances, classes), 1 / classes)
    confusion = np.full((crowd.n_annotators, classes, classes), 1 / classes)
    people = quality.annotators(crowd, posterior, confusion=confusion)
    assert all(0 < value < 1 for value in column(people, "annotator_quality"))
    asked = quality.next_labels(crowd, posterior, confusion=confusion, budget=3)
    assert column(asked, "expected_gain") == pytest.approx([0] * asked.num_rows)


# -- real crowds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bluebird", "rte", "dog", "web"])
def test_quality_of_real_annotators_goes_with_their_accuracy(name: str) -> None:
    path = Path(os.environ.get("CROWDWISE_DATA", "")) / f"agg_{name}.npz"
    if not path.is_file():
        pytest.skip(f"needs agg_{name}.npz in the folder that CROWDWISE_DATA names")
    with np.load(path, allow_pickle=False) as data:
        sizes = {size: int(data[size]) for size in ("n_instances", "n_annotators", "n_classes")}
        crowd = Annotations.from_triples(data["instance"], data["annotator"], data["label"], **sizes)
        truth = data["clean"].astype(np.int64)[crowd.instance]
    known = truth >= 0
    right, who = (crowd.label == truth)[known], crowd.annotator[known]
    count = np.bincount(who, minlength=crowd.n_annotators)
    busy = count >= 20
    accuracy = np.bincount(who, right, crowd.n_annotators)[busy] / count[busy]
    believed = np.array(column(quality.annotators(crowd), "annotator_quality"))[busy]
    assert np.corrcoef(believed, accuracy)[0, 1] > 0.7
    rows = column(quality.issues(crowd), "annotation")
    worst = [row for row in rows if truth[row] >= 0][: len(rows) // 4]
    assert np.mean(crowd.label[worst] == truth[worst]) < np.mean(right)


# -- errors, scale, imports ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: quality.annotators(SMALL, np.ones((4, 2)) / 2), DataError, r"shape \(4, 2\).*need \(5, 2\)"),
        (
            lambda: quality.annotators(SMALL, np.ones((5, 2))),
            DataError,
            r"posterior, row 0: \[1.0, 1.0\] is no distrib",
        ),
        (lambda: quality.annotators(SMALL, [0.5, 0.5]), DataError, r"two axes \(n, C\), got shape \(2,\)"),
        (lambda: quality.annotators(SMALL, confusion=np.eye(2)), DataError, r"need \(3, 2, 2\)"),
        (lambda: quality.annotators(SMALL, confusion=np.ones((3, 2, 2))), DataError, "must hold distributions"),
        (lambda: quality.annotators(SMALL, confidence=2), ConfigError, "confidence must lie between 0 and 1, got 2"),
        (
            lambda: quality.annotators(SMALL, timestamps=[1, 2]),
            DataError,
            r"timestamps has shape \(2,\).*14 annotations",
        ),
        (lambda: quality.annotators(SMALL, durations=["x"] * 14), DataError, "durations must be seconds or datetime64"),
        (lambda: quality.issues(SMALL, limit=-1), ConfigError, "limit must be 0 or more, got -1"),
        (lambda: quality.next_labels(SMALL, budget=-1), ConfigError, "budget must be 0 or more, got -1"),
        (lambda: quality.next_labels(SMALL, budget=1, panel=0), ConfigError, "panel must be 1 or more, got 0"),
        (lambda: quality.next_labels(SMALL, budget=1, annotators=[7]), ValueError, "annotator 7 is out of range"),
        (lambda: quality.calibration([[0.5, 0.5]], [2]), DataError, r"class codes 0\.\.1"),
        (lambda: quality.calibration([[0.5, 0.5]], [0.0]), DataError, r"class codes 0\.\.1"),
        (lambda: quality.calibration([[0.5, 0.5]], [0, 1]), DataError, r"truth has shape \(2,\).*1 rows"),
        (lambda: quality.calibration([[0.5, 0.5]], [0], n_bins=0), ConfigError, "n_bins must be 1 or more, got 0"),
        (
            lambda: quality.calibration([[0.5, 0.5]], [0], strategy="quantil"),  # type: ignore[arg-type]
            ConfigError,
            "did you mean 'quantile'",
        ),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_nothing_of_size_instances_times_annotators_is_made() -> None:
    n = 30_000  # n x R would be 900 MB of bytes
    rng = np.random.default_rng(0)
    i, j = np.repeat(np.arange(n), 3), rng.integers(0, n, 3 * n)
    crowd = Annotations.from_triples(i, j, rng.integers(0, 3, 3 * n), n_annotators=n)
    tracemalloc.start()
    quality.annotators(crowd, timestamps=np.arange(3 * n))
    quality.instances(crowd)
    quality.issues(crowd)
    quality.next_labels(crowd, budget=2000)
    agreement.pairwise(crowd)
    agreement.report(crowd, n_bootstrap=5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6


def test_large_numbers_of_classes_are_worked_off_in_blocks() -> None:
    crowd, truth = simulated(500, np.full(30, 0.8), 1000, 4, seed=0)
    table = quality.annotators(crowd)
    assert np.corrcoef(column(table, "annotator_quality"), column(table, "agreement_with_consensus"))[0, 1] > 0.5
    assert quality.next_labels(crowd, budget=20).num_rows == 20
    assert np.mean(np.array(column(quality.instances(crowd), "consensus_label")) == truth) > 0.85


def test_import_is_light() -> None:
    code = (
        "import sys, crowdwise.agreement, crowdwise.quality\n"
        "print(*(name for name in ('torch', 'pandas', 'polars', 'sklearn', 'numba') if name in sys.modules))"
    )
    here = {**os.environ, "PYTHONPATH": str(Path(quality.__file__).parents[2])}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=here)
    assert result.stdout.strip() == ""
