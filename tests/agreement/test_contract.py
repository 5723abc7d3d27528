"""Agreement: what every measure promises, what classes may be, and how results read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from agreement_helpers import LEVELS, MEASURES, UNITS, simulated, value
from crowdwise import Annotations, agreement
from crowdwise.errors import AnnotationError, ConfigError

# -- what holds for every measure ------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
def test_order_of_rows_and_names_of_annotators_are_irrelevant(measure: str) -> None:
    crowd = simulated(40, 6, 3, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    rows, people = rng.permutation(len(crowd)), rng.permutation(6)
    shuffled = Annotations.from_triples(crowd.instance[rows], people[crowd.annotator[rows]], crowd.label[rows])
    assert value(MEASURES[measure], shuffled) == pytest.approx(value(MEASURES[measure], crowd))


@pytest.mark.parametrize("measure", MEASURES)
def test_unlabelled_instances_and_silent_annotators_change_nothing(measure: str) -> None:
    crowd = simulated(40, 6, 3, np.random.default_rng(0))
    larger = Annotations.from_triples(
        crowd.instance + 2, crowd.annotator + 1, crowd.label, n_instances=50, n_annotators=9, n_classes=3
    )
    assert value(MEASURES[measure], larger) == pytest.approx(value(MEASURES[measure], crowd))


@pytest.mark.parametrize("measure", MEASURES)
def test_perfect_agreement_is_one(measure: str) -> None:
    assert value(MEASURES[measure], [[0, 0, 0], [1, 1, 1], [2, 2, None]]) == pytest.approx(1)


@pytest.mark.parametrize("measure", [name for name in MEASURES if name != "raw"])
def test_labels_drawn_at_random_agree_by_chance_only(measure: str) -> None:
    labels = np.random.default_rng(0).integers(0, 4, (4000, 5))
    assert value(MEASURES[measure], labels) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(
    "crowd",
    [
        Annotations.from_triples([], [], []),
        Annotations.from_triples([], [], [], n_instances=3, n_annotators=2, n_classes=2),
        Annotations.from_triples([0, 1, 2], [0, 0, 0], [0, 1, 0]),
        Annotations.from_triples([0, 1], [0, 1], [0, 1], n_classes=1000),
    ],
    ids=["nothing", "no labels", "a crowd of one", "nothing shared"],
)
def test_without_shared_instances_agreement_is_undefined(crowd: Annotations) -> None:
    for measure in MEASURES.values():
        result = measure(crowd, n_bootstrap=20)
        assert math.isnan(result.value)
        assert all(math.isnan(end) for end in result.interval)
        assert result.n == 0
    pairs = agreement.pairwise(crowd, n_bootstrap=20)
    assert pairs.matrix().shape == (crowd.n_annotators, crowd.n_annotators)
    assert len(pairs.value) == 0
    assert "raw agreement" in str(agreement.report(crowd))


def test_one_class_leaves_only_raw_agreement_defined() -> None:
    crowd = Annotations.from_dense([[0, 0], [0, 0]])
    for name, measure in MEASURES.items():
        assert value(measure, crowd) == pytest.approx(1 if name == "raw" else math.nan, nan_ok=True)
    assert agreement.pairwise(crowd, "raw").value.tolist() == [1]
    assert np.isnan(agreement.pairwise(crowd, "cohen").value).all()


def test_a_class_chosen_always_leaves_chance_corrected_agreement_undefined() -> None:
    crowd = Annotations.from_triples([0, 0, 1, 1], [0, 1, 0, 1], [7, 7, 7, 7], n_classes=9)
    for name in ("fleiss", "scott", "cohen", *(f"alpha-{level}" for level in LEVELS)):
        assert math.isnan(value(MEASURES[name], crowd)), name
    assert value(MEASURES["gwet"], crowd) == 1


def test_repeated_labels_of_one_annotator_count_as_labels_but_not_as_a_pair() -> None:
    crowd = Annotations.from_triples([0, 0, 0], [0, 0, 1], [0, 0, 1], n_classes=2)
    assert value(agreement.raw_agreement, crowd) == pytest.approx(1 / 3)
    pairs = agreement.pairwise(crowd, "raw")
    assert (pairs.value.tolist(), pairs.n_common.tolist()) == ([0], [2])


def test_silent_annotators_have_nan_on_the_diagonal() -> None:
    crowd = Annotations.from_triples([0, 0], [0, 1], [1, 1], n_annotators=3, n_classes=2)
    matrix = agreement.pairwise(crowd, "raw").matrix()
    np.testing.assert_array_equal(matrix, [[1, 1, math.nan], [1, 1, math.nan], [math.nan, math.nan, math.nan]])
    assert agreement.pairwise(crowd).common().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_a_thousand_classes() -> None:
    crowd = simulated(300, 10, 1000, np.random.default_rng(0))
    for name, measure in MEASURES.items():
        assert 0.2 < measure(crowd, n_bootstrap=10).value < 0.7, name
    assert np.isfinite(agreement.pairwise(crowd, weights="linear").value).all()


# -- classes that are numbers ----------------------------------------------------------------------------------------


def test_classes_that_are_numbers_or_digits_are_their_own_values() -> None:
    numbers = [[1, 2], [10, 10], [1, 1], [10, 2]]
    digits = [[str(label) for label in row] for row in numbers]
    for level in ("ordinal", "interval", "ratio"):
        assert value(agreement.krippendorff_alpha, digits, level) == pytest.approx(
            value(agreement.krippendorff_alpha, numbers, level)
        )


def test_interval_alpha_knows_neither_unit_nor_origin() -> None:
    plain = value(agreement.krippendorff_alpha, UNITS, "interval")
    for scale, origin in ((1e-6, 0.0), (3.0, 1e9)):
        values = [origin + scale * label for label in range(1, 6)]
        assert value(agreement.krippendorff_alpha, UNITS, "interval", values=values) == pytest.approx(plain, abs=1e-6)


def test_ordinal_alpha_depends_on_the_order_of_values_only() -> None:
    words = [["good", "ok"], ["bad", "bad"], ["good", "good"], ["ok", "ok"], ["bad", "good"]]
    rank = {"bad": 1, "ok": 2, "good": 3}
    numbers = [[rank[word] for word in row] for row in words]
    by_number = value(agreement.krippendorff_alpha, numbers, "ordinal")
    assert value(agreement.krippendorff_alpha, words, "ordinal", values=[1, 9, 2]) == pytest.approx(by_number)
    assert value(agreement.krippendorff_alpha, words, "ordinal") != pytest.approx(by_number)  # bad < good < ok


@pytest.mark.parametrize("level", ["interval", "ratio"])
def test_words_cannot_be_measured_on_a_numeric_scale(level: Any) -> None:
    with pytest.raises(AnnotationError, match=rf"{level} alpha needs classes that are numbers, but class 'cat' is not"):
        agreement.krippendorff_alpha([["cat", "dog"]], level)


def test_ratio_needs_non_negative_numbers() -> None:
    with pytest.raises(AnnotationError, match="ratio alpha needs classes of 0 or more, got -2"):
        agreement.krippendorff_alpha(Annotations.from_dense([[-2, 1]], missing=()), "ratio")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agreement.krippendorff_alpha(UNITS, "nomnal"), "unknown level 'nomnal'; did you mean 'nominal'"),
        (lambda: agreement.krippendorff_alpha(UNITS, "interval", values=[1, 2]), "for each of the 5 classes"),
        (lambda: agreement.krippendorff_alpha(UNITS, "ordinal", values=[1, 1, 2, 3, 4]), "different values"),
        (lambda: agreement.cohen_kappa(UNITS, weights="cubic"), "unknown weights 'cubic'"),
        (lambda: agreement.pairwise(UNITS, weights="cubic"), "unknown weights 'cubic'"),
        (lambda: agreement.pairwise(UNITS, "cohn"), "unknown measure 'cohn'; did you mean 'cohen'"),
        (lambda: agreement.pairwise(UNITS, "scott", weights="linear"), "weights='linear' is for Cohen's kappa"),
        (lambda: agreement.raw_agreement(UNITS, n_bootstrap=-1), "n_bootstrap must be an integer of 0 or more, got -1"),
        (
            lambda: agreement.raw_agreement(UNITS, confidence=95),
            "confidence must be a number above 0 and below 1, got 95",
        ),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


# -- results ---------------------------------------------------------------------------------------------------------


def test_report_holds_every_measure() -> None:
    report = agreement.report(UNITS, levels=LEVELS, n_bootstrap=50, random_state=0)
    assert report["Krippendorff's alpha (ratio)"].value == pytest.approx(0.797, abs=5e-4)
    assert report["Cohen's kappa"].value == value(agreement.cohen_kappa, UNITS)
    table = report.to_table()
    assert table.column_names == ["measure", "value", "low", "high", "n"]
    assert table.num_rows == len(str(report).splitlines()) - 3 == 9
    assert "Krippendorff's alpha (ordinal)" in str(report)


def test_pairwise_table_speaks_in_the_users_ids() -> None:
    frame = {"task": ["t", "t", "u", "u"], "worker": ["bob", "ann", "bob", "ann"], "label": ["x", "x", "y", "x"]}
    table = agreement.pairwise(frame).to_table()
    assert isinstance(table, pa.Table)
    assert table.select(["first", "second", "n_common"]).to_pylist() == [
        {"first": "bob", "second": "ann", "n_common": 2}
    ]


def test_result_reads_as_a_number_and_as_a_sentence() -> None:
    result = agreement.raw_agreement([[0, 0]], n_bootstrap=0)
    assert float(result) == 1
    assert str(result) == "raw agreement: 1.000, 1 instance"
