"""Quality: what is believed of instances, and the profiles of annotators."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdwise import Annotations, quality
from crowdwise.quality._belief import majority_posterior
from quality_helpers import SMALL, Array, column, one_hot, simulated

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
    assert column(table, "agreement_with_consensus") == [0.9, 0.9, 0.5]  # a tie counts half
    best, middle, last = column(table, "annotator_quality")
    assert best == pytest.approx(middle, abs=0.1)  # 0 and 1 differ on the tie alone, which tells nothing
    assert last < middle


def test_agreement_with_the_consensus_does_not_depend_on_the_order_of_classes() -> None:
    """Ties between the first and the last class, the first and another, and all three."""
    rows = [
        ["a", "c", "c", "a"],
        ["a", "b", None, None],
        ["a", "b", "c", None],
        ["b", "b", "c", "b"],
        ["c", "c", "c", "a"],
    ]
    by_annotator = {
        0: 1 / 2 + 1 / 2 + 1 / 3 + 1 + 1,
        1: 1 / 2 + 1 / 2 + 1 / 3 + 1 + 1,
        2: 1 / 2 + 1 / 3 + 0 + 1,
        3: 1 / 2 + 1 + 0,
    }
    labels = {0: 5, 1: 5, 2: 4, 3: 3}
    for renamed in ({}, {"a": "z"}, {"a": "z", "b": "y", "c": "x"}):
        crowd = Annotations.from_dense([[renamed.get(name, name) if name else None for name in row] for row in rows])
        expected = [by_annotator[j] / labels[j] for j in range(4)]
        assert column(quality.annotators(crowd), "agreement_with_consensus") == pytest.approx(expected)


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


def test_gold_says_how_often_each_annotator_is_right() -> None:
    labels = [["a", "a", None], ["b", "a", "b"], ["a", "a", "b"], ["b", "b", "a"]]
    table = quality.annotators(labels, gold={0: "a", 1: "b"})
    assert table["num_gold"].to_pylist() == [2, 2, 1]
    assert table["gold_accuracy"].to_pylist() == [1.0, 0.5, 1.0]
    assert all(
        low < share <= high
        for low, share, high in zip(
            *(table[f"gold_accuracy{end}"].to_pylist() for end in ("_low", "", "_high")), strict=True
        )
    )
    nobody = quality.annotators(labels, gold={})
    assert nobody["gold_accuracy"].to_pylist() == [None] * 3
