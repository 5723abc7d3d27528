"""Quality: degenerate, real and large crowds, and what errors say."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from crowds import real

from crowdwise import Annotations, agreement, quality
from crowdwise.aggregation import DawidSkene, MajorityVote
from crowdwise.data.comparing import comparable
from crowdwise.errors import ConfigError, DataError
from quality_helpers import SMALL, column, simulated

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
    told = comparable(crowd)
    assert [value is None for value in column(people, "agreement_with_consensus")] == silent.tolist()
    for name in ("worst_class", "bias"):
        assert [value is None for value in column(people, name)] == (silent | (not told)).tolist()
    assert all(0 < value < 1 if told else value is None for value in column(people, "annotator_quality"))


@pytest.mark.parametrize("model", [None, MajorityVote, DawidSkene])
def test_what_cannot_be_compared_is_not_made_up(model: type | None) -> None:
    """One label per instance, or one annotator who labels some instances twice."""
    single = Annotations.from_triples(range(12), [0, 1] * 6, [0, 1, 1] * 4)
    alone = Annotations.from_triples([*range(12), 0, 1], [0] * 14, [0, 1, 1] * 4 + [0, 1])
    for crowd in (single, alone):
        posterior = None if model is None else model().fit(crowd)
        people = quality.annotators(crowd, posterior, timestamps=np.arange(float(len(crowd))))
        for name in ("annotator_quality", "worst_class", "confused_class", "spammer_score", "bias", "drift"):
            assert column(people, name) == [None] * crowd.n_annotators
        assert set(column(people, "annotator_quality_low")) == {0.0}
        assert set(column(people, "annotator_quality_high")) == {1.0}
        rows = quality.instances(crowd, posterior).to_pylist()
        assert all(row["consensus_quality_score"] is None and row["entropy"] is None for row in rows)
        assert quality.issues(crowd, posterior).num_rows == 0
        asked = quality.next_labels(crowd, posterior, budget=3)
        assert all(row["expected_gain"] is None and row["consensus_quality_score"] is None for row in asked.to_pylist())
    told = DawidSkene().fit(single, gold={0: 0, 1: 1})
    assert None not in column(quality.annotators(single, told), "annotator_quality")


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
    crowd, clean = real(f"agg_{name}")
    truth = clean[crowd.instance]
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
            r"posterior, row 0: \[1.0, 1.0\] is not a distrib",
        ),
        (lambda: quality.annotators(SMALL, [0.5, 0.5]), DataError, r"two axes \(n, C\), got shape \(2,\)"),
        (lambda: quality.annotators(SMALL, confusion=np.eye(2)), DataError, r"need \(3, 2, 2\)"),
        (lambda: quality.annotators(SMALL, confusion=np.ones((3, 2, 2))), DataError, "must hold distributions"),
        (
            lambda: quality.annotators(SMALL, confidence=2),
            ConfigError,
            "confidence must be a number above 0 and below 1, got 2",
        ),
        (
            lambda: quality.annotators(SMALL, timestamps=[1, 2]),
            DataError,
            r"timestamps has shape \(2,\).*14 annotations",
        ),
        (lambda: quality.annotators(SMALL, durations=["x"] * 14), DataError, "durations must be seconds or datetime64"),
        (lambda: quality.issues(SMALL, limit=-1), ConfigError, "limit must be an integer of 0 or more, got -1"),
        (lambda: quality.next_labels(SMALL, budget=-1), ConfigError, "budget must be an integer of 0 or more, got -1"),
        (
            lambda: quality.next_labels(SMALL, budget=1, panel=0),
            ConfigError,
            "panel must be an integer of 1 or more, got 0",
        ),
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
