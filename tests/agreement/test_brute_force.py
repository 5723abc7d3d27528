"""Agreement: measures equal their definitions, spelt out pair by pair, on small crowds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agreement_helpers import MEASURES, Matrix, simulated, value
from crowdwise import Annotations, agreement
from crowdwise.agreement._pairwise import NUMBERS


def labels_of(matrix: Matrix) -> list[list[int]]:
    """The labels that are there, by instance."""
    return [[label for label in row if label is not None] for row in matrix]


def pairs_of(matrix: Matrix) -> list[tuple[int, int, int]]:
    """Every ordered pair of labels of an instance, with the number of labels of the instance."""
    return [(a, b, len(row)) for row in labels_of(matrix) for a, b in itertools.permutations(row, 2)]


def brute_alpha(matrix: Matrix, level: str) -> float:
    pairs = pairs_of(matrix)
    labels = [label for row in labels_of(matrix) if len(row) >= 2 for label in row]
    count = {c: labels.count(c) for c in labels}

    def difference(c: int, k: int) -> float:
        low, high = min(c, k), max(c, k)
        if level == "nominal":
            return float(c != k)
        if level == "interval":
            return float((c - k) ** 2)
        if level == "ratio":
            return ((c - k) / (c + k)) ** 2 if c + k else 0.0
        between = sum(number for g, number in count.items() if low <= g <= high)
        return (between - (count[low] + count[high]) / 2) ** 2

    observed = sum(difference(a, b) / (m - 1) for a, b, m in pairs) / max(len(labels), 1)
    expected = sum(difference(a, b) for a, b in itertools.permutations(labels, 2))
    if not expected:
        return math.nan
    return 1 - observed * len(labels) * (len(labels) - 1) / expected


def brute_observed(matrix: Matrix) -> float:
    rows = [row for row in labels_of(matrix) if len(row) >= 2]
    if not rows:
        return math.nan
    return float(np.mean([np.mean([a == b for a, b in itertools.permutations(row, 2)]) for row in rows]))


def brute_shares(matrix: Matrix, classes: int) -> npt.NDArray[np.float64]:
    rows = [row for row in labels_of(matrix) if row]
    return np.mean([[row.count(c) / len(row) for c in range(classes)] for row in rows], axis=0)


def brute(measure: str, matrix: Matrix, classes: int) -> float:
    """A measure by its textbook formula, one pair of labels after the other."""
    if measure.startswith("alpha-"):
        return brute_alpha(matrix, measure.removeprefix("alpha-"))
    observed = brute_observed(matrix)
    if measure == "raw" or math.isnan(observed):
        return observed
    if measure == "fleiss":
        chance = float((brute_shares(matrix, classes) ** 2).sum())
    elif measure == "gwet":
        shares = brute_shares(matrix, classes)
        chance = float((shares * (1 - shares)).sum()) / (classes - 1) if classes > 1 else math.nan
    elif measure == "scott":
        pairs = pairs_of(matrix)
        observed = float(np.mean([a == b for a, b, _ in pairs]))
        chance = sum(np.mean([a == c for a, _, _ in pairs]) ** 2 for c in range(classes))
    else:
        columns = [[label for label in column if label is not None] for column in zip(*matrix, strict=True)]
        shares = np.array([[column.count(c) / len(column) for c in range(classes)] for column in columns if column])
        if len(shares) < 2:
            return math.nan
        chance = float(np.mean([first @ second for first, second in itertools.permutations(shares, 2)]))
    return math.nan if math.isnan(chance) or chance > 1 - 1e-12 else (observed - chance) / (1 - chance)


def kappa_of_two(pairs: list[tuple[int, int]], credit: npt.NDArray[np.float64]) -> float:
    table = np.zeros(credit.shape)
    for a, b in pairs:
        table[a, b] += 1 / len(pairs)
    chance = (np.outer(table.sum(1), table.sum(0)) * credit).sum()
    return math.nan if chance > 1 - 1e-12 else ((table * credit).sum() - chance) / (1 - chance)


@st.composite
def crowds(draw: st.DrawFn, largest: int = 6) -> tuple[Matrix, int]:
    """A small matrix of labels, with gaps, and its number of classes, not all of which need be chosen."""
    classes = draw(st.integers(1, 4))
    instances, annotators = draw(st.integers(1, largest)), draw(st.integers(1, 5))
    label = st.one_of(st.none(), st.integers(0, classes - 1))
    row = st.lists(label, min_size=annotators, max_size=annotators)
    return draw(st.lists(row, min_size=instances, max_size=instances)), classes


def annotations_of(matrix: Matrix, classes: int) -> Annotations:
    rows = [(i, j, label) for i, row in enumerate(matrix) for j, label in enumerate(row) if label is not None]
    i, j, y = zip(*rows, strict=True) if rows else ((), (), ())
    return Annotations.from_triples(i, j, y, n_instances=len(matrix), n_annotators=len(matrix[0]), n_classes=classes)


@pytest.mark.parametrize("measure", MEASURES)
@given(crowd=crowds())
@settings(max_examples=60, deadline=None)
def test_measures_equal_brute_force(measure: str, crowd: tuple[Matrix, int]) -> None:
    matrix, classes = crowd
    found = value(MEASURES[measure], annotations_of(matrix, classes))
    assert found == pytest.approx(brute(measure, matrix, classes), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
@given(crowd=crowds())
@settings(max_examples=60, deadline=None)
def test_pairwise_kappa_equals_brute_force(weights: Any, crowd: tuple[Matrix, int]) -> None:
    matrix, classes = crowd
    distance = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes))) / max(classes - 1, 1)
    credit = {None: np.eye(classes), "linear": 1 - distance, "quadratic": 1 - distance**2}[weights]
    found = agreement.pairwise(annotations_of(matrix, classes), weights=weights)
    shared = 0
    for a, b in itertools.combinations(range(len(matrix[0])), 2):
        pairs = [(row[a], row[b]) for row in matrix if row[a] is not None and row[b] is not None]
        assert found.common()[a, b] == found.common()[b, a] == len(pairs)
        expected = kappa_of_two(pairs, credit) if pairs else math.nan
        assert found.matrix()[a, b] == pytest.approx(expected, abs=1e-9, nan_ok=True)
        shared += bool(pairs)
    assert len(found.value) == shared


@pytest.mark.parametrize("measure", ["scott", "gwet", "raw"])
@given(crowd=crowds())
@settings(max_examples=40, deadline=None)
def test_other_pairwise_measures_are_those_of_two_annotators(measure: Any, crowd: tuple[Matrix, int]) -> None:
    matrix, classes = crowd
    found = agreement.pairwise(annotations_of(matrix, classes), measure)
    for a, b, of_pair in zip(found.first, found.second, found.value, strict=True):
        both = [[row[a], row[b]] for row in matrix if row[a] is not None and row[b] is not None]
        assert of_pair == pytest.approx(brute(measure, both, classes), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
def test_kappa_of_two_equals_scikit_learn(weights: Any) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(3)
    first = rng.integers(0, 4, 200)
    second = np.where(rng.random(200) < 0.5, first, rng.integers(0, 4, 200))
    expected = metrics.cohen_kappa_score(first, second, weights=weights)
    data = np.stack([first, second], axis=1)
    assert value(agreement.cohen_kappa, data, weights=weights) == pytest.approx(expected)
    assert agreement.pairwise(data, weights=weights).value == pytest.approx([expected])


def test_pairs_in_many_blocks_equal_pairs_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = simulated(60, 12, 4, np.random.default_rng(0))
    whole = agreement.pairwise(crowd, n_bootstrap=20, random_state=1)
    monkeypatch.setattr("crowdwise.agreement._pairwise.NUMBERS", NUMBERS // 2**21)
    split = agreement.pairwise(crowd, n_bootstrap=20, random_state=1)
    assert len(whole.value) == 66
    for name in ("first", "second", "value", "n_common", "low", "high"):
        np.testing.assert_allclose(getattr(split, name), getattr(whole, name))
