"""Ordered classes: which are recognised, in which order, and what is measured on their scale."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from crowdwise import Annotations, agreement, quality
from crowdwise.agreement._scales import KNOWN, numbers_of
from crowdwise.errors import ConfigError


def crowd_of(names: list[Any]) -> Annotations:
    """One annotator who gives every class once."""
    return Annotations.from_dense([[name] for name in names])


def graded(rng: np.random.Generator, n: int, grades: int, names: Any = None, *, near: bool = True) -> Annotations:
    """Four annotators who err to neighbouring grades, or to any."""
    truth = rng.integers(0, grades, (n, 1))
    labels = np.where(rng.random((n, 4)) < 0.6, truth, rng.integers(0, grades, (n, 4)))
    if near:
        labels = np.clip(np.rint(truth + rng.normal(0, 0.7, (n, 4))), 0, grades - 1).astype(int)
    return Annotations.from_dense((labels if names is None else np.array(names)[labels]).tolist())


@pytest.mark.parametrize(
    "in_order",
    [
        ["none", "mild", "severe"],
        ["Strongly disagree", "Disagree", "Neither agree nor disagree", "Agree", "Strongly agree"],
        ["LOW", "MEDIUM", "HIGH"],
        ["never", "rarely", "sometimes", "often", "always"],
        ["poor", "fair", "good", "very good", "excellent"],
        ["very_negative", "negative", "neutral", "positive", "very_positive"],
        ["negative", "neutral", "positive"],
        ["not at all", "somewhat", "very"],
    ],
)
def test_words_of_a_scale_are_recognised_in_any_order(in_order: list[str]) -> None:
    for names in (in_order, in_order[::-1], sorted(in_order)):
        scale = agreement.scale_of(crowd_of(names))
        assert scale is not None
        assert scale.source == "known"
        assert list(scale.in_order) == in_order
        by_name = dict(zip(scale.classes, scale.values, strict=True))
        assert [by_name[name] for name in in_order] == list(range(len(in_order)))


def test_every_known_scale_is_found_by_its_first_words() -> None:
    for text in KNOWN:
        first = [words.split(",")[0].strip() for words in text.split("|")]
        scale = agreement.scale_of(crowd_of(sorted(first)))
        assert scale is not None
        assert list(scale.in_order) == first


def test_no_word_has_two_places_on_a_scale() -> None:
    for text in KNOWN:
        words = [word.strip() for part in text.split("|") for word in part.split(",")]
        assert len(set(words)) == len(words)


@pytest.mark.parametrize(
    "names",
    [
        ["cat", "dog", "owl"],
        ["none", "severe"],  # two classes: no order can be told from the other
        ["none", "mild", "severe", "unreadable"],
        ["low", "mild", "often"],  # of several scales
        ["medium", "moderate", "low"],  # the same place
        ["a1", "b2", "c3"],
    ],
)
def test_names_without_a_common_scale_have_no_order(names: list[str]) -> None:
    assert agreement.scale_of(crowd_of(names)) is None


@pytest.mark.parametrize(
    "names", [None, ["1", "2", "3", "4", "5"], [f"grade {k}" for k in range(5)], [10, 20, 30, 40, 50]]
)
def test_numbers_are_ordered_if_labels_that_differ_are_near(names: Any) -> None:
    rng = np.random.default_rng(0)
    near = agreement.scale_of(graded(rng, 80, 5, names))
    assert near is not None
    assert near.source == "numbers"
    assert list(near.values) == list(numbers_of([str(name) for name in near.classes]) or [])
    assert agreement.scale_of(graded(rng, 80, 5, names, near=False)) is None


def test_codes_of_names_are_seldom_taken_for_grades() -> None:
    """Errors that go to any class, or no agreement at all, show no order."""
    rng = np.random.default_rng(1)
    taken = 0
    for grades, n, near in itertools.product((3, 5, 10), (20, 100), (False, None)):
        for _ in range(20):
            crowd = graded(rng, n, grades, near=False)
            if near is None:
                crowd = Annotations.from_dense(rng.integers(0, grades, (n, 3)).tolist())
            taken += agreement.scale_of(crowd) is not None
    assert taken <= 2  # of 240


@pytest.mark.parametrize("numbers", [[1, 10, 100], [3, 1071, 20045, 20046], [0, 1, 1000]])
def test_numbers_far_apart_are_names(numbers: list[int]) -> None:
    crowd = graded(np.random.default_rng(2), 200, len(numbers), numbers)
    assert agreement.scale_of(crowd) is None


def test_a_declared_order_holds() -> None:
    crowd = crowd_of(["cold", "hot", "warm"])
    scale = agreement.scale_of(crowd, ["frosty", "Cold", "warm", "hot"])
    assert scale is not None
    assert scale.in_order == ("cold", "warm", "hot")
    assert scale.values == (1.0, 3.0, 2.0)  # of cold, hot, warm
    numbers = agreement.scale_of(crowd_of(["1", "2", "5"]), ["1", "2", "5"])
    assert numbers is not None
    assert numbers.values == (1.0, 2.0, 5.0)
    falling = agreement.scale_of(crowd_of([1, 2, 5]), [5, 2, 1])
    assert falling is not None
    assert falling.values == (2.0, 1.0, 0.0)
    assert agreement.scale_of(crowd_of(["low", "mid", "high"]), "no") is None


@pytest.mark.parametrize(
    ("ordered", "problem"),
    [
        (["cold", "hot"], "class 'warm' is not in the order cold < hot"),
        (["cold", "hot", "Cold ", "warm"], "listed twice"),
        (["cold"], "two classes or more"),
        ("yes", "'auto', 'no' or a list"),
    ],
)
def test_an_order_that_does_not_fit_is_an_error(ordered: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        agreement.scale_of(crowd_of(["cold", "hot", "warm"]), ordered)


def test_the_report_measures_ordered_classes_on_their_scale() -> None:
    names = ["low", "medium", "high"]  # high < low < medium in the alphabet
    crowd = graded(np.random.default_rng(3), 60, 3, names)
    report = agreement.report(crowd, n_bootstrap=0)
    values = [names.index(name) for name in crowd.classes.tolist()]
    alpha = agreement.krippendorff_alpha(crowd, "ordinal", values=values, n_bootstrap=0).value
    kappa = agreement.cohen_kappa(crowd, weights="quadratic", values=values, n_bootstrap=0).value
    assert report["Krippendorff's alpha (ordinal)"].value == pytest.approx(alpha)
    assert report["Cohen's kappa (quadratic)"].value == pytest.approx(kappa)
    assert alpha > report["Krippendorff's alpha (nominal)"].value + 0.1
    assert str(report.scale) == "low < medium < high"
    plain = agreement.report(crowd, n_bootstrap=0, ordered="no")
    assert plain.scale is None
    assert len(plain.rows) == len(report.rows) - 2
    named = agreement.report(crowd, levels=["ordinal"], n_bootstrap=0)
    assert [row.measure for row in named.rows].count("Krippendorff's alpha (ordinal)") == 1


def test_the_test_of_chance_takes_the_scale() -> None:
    names = ["never", "rarely", "sometimes", "often"]
    low = np.array([0, 1, 2] * 12)
    crowd = Annotations.from_dense(np.array(names)[np.stack([low, low + 1], axis=1)].tolist())
    assert not agreement.chance_test(crowd).within_chance
    assert agreement.chance_test(crowd, ordered="no").within_chance
    assert agreement.chance_test(crowd).alpha == pytest.approx(agreement.report(crowd, n_bootstrap=0)[
        "Krippendorff's alpha (ordinal)"
    ].value)  # fmt: skip


def test_annotators_distances_from_the_truth() -> None:
    """Gold says what is true: ann is right, bob one step too high, cem off by 1 and 2 to either side."""
    grades = ["poor", "fair", "good", "excellent"]
    truth = [0, 1, 2, 2]
    said = {"ann": [0, 1, 2, 2], "bob": [1, 2, 3, 3], "cem": [2, 0, 3, 1]}
    crowd = Annotations.from_frame(
        {
            "item": [k for _ in said for k in range(4)],
            "worker": [who for who in said for _ in range(4)],
            "label": [grades[label] for labels in said.values() for label in labels],
        }
    )
    posterior = np.zeros((4, 4))
    for item, grade in enumerate(truth):
        posterior[item, crowd.classes.tolist().index(grades[grade])] = 1.0
    rows = {row["annotator"]: row for row in quality.annotators(crowd, posterior).to_pylist()}
    absolute = {who: row["mean_absolute_error"] for who, row in rows.items()}
    signed = {who: row["mean_error"] for who, row in rows.items()}
    assert absolute == pytest.approx({"ann": 0.0, "bob": 1.0, "cem": (2 + 1 + 1 + 1) / 4})
    assert signed == pytest.approx({"ann": 0.0, "bob": 1.0, "cem": (2 - 1 + 1 - 1) / 4})
    table = quality.annotators(crowd, posterior, ordered="no")
    assert "mean_error" not in table.column_names
    upside_down = quality.annotators(crowd, posterior, ordered=grades[::-1]).to_pylist()
    assert [row["mean_error"] for row in upside_down] == pytest.approx([-signed[who] for who in said])


def test_distances_of_uncertain_labels_are_expected_ones() -> None:
    crowd = Annotations.from_dense([["low", None], ["medium", None], [None, "high"]])
    chances = {"low": 0.25, "medium": 0.25, "high": 0.5}
    posterior = np.array([[chances[name] for name in crowd.classes.tolist()]] * 3)
    one, other = quality.annotators(crowd, posterior).to_pylist()
    assert one["mean_absolute_error"] == pytest.approx(((0.25 + 1.0) + (0.25 + 0.5)) / 2)
    assert one["mean_error"] == pytest.approx((-(0.25 + 1.0) + (0.25 - 0.5)) / 2)
    assert other["mean_absolute_error"] == pytest.approx(2 * 0.25 + 0.25)
