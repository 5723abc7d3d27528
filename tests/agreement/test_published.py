"""Agreement: the worked examples of the literature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agreement_helpers import UNITS, Matrix, value
from crowdwise import agreement

# Fleiss (1971), table 1: 30 patients, 6 psychiatrists, 5 diagnoses.
DIAGNOSES = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""
# Wikipedia, "Fleiss' kappa": 10 subjects, 14 raters, 5 categories.
SUBJECTS = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]


def from_counts(counts: Any) -> Matrix:
    """A row of labels for each row of votes by class."""
    return [np.repeat(np.arange(len(row)), row).tolist() for row in np.asarray(counts)]


def from_table(table: Matrix) -> Matrix:
    """Two annotators' labels with this contingency table."""
    cells = np.asarray(table)
    first, second = np.divmod(np.repeat(np.arange(cells.size), cells.ravel()), cells.shape[1])
    return [list(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)]
)
def test_krippendorffs_own_example(level: Any, published: float) -> None:
    result = agreement.krippendorff_alpha(UNITS, level, n_bootstrap=0)
    assert result.value == pytest.approx(published, abs=5e-4)
    assert result.n == 11  # the unit with one label cannot be paired


def test_krippendorffs_coincidence_matrix() -> None:
    third = 1 / 3
    published = [
        [7, 4 * third, third, third, 0],
        [4 * third, 10, 4 * third, third, 0],
        [third, 4 * third, 8, third, 0],
        [third, third, third, 4, 0],
        [0, 0, 0, 0, 3],
    ]
    np.testing.assert_allclose(agreement.coincidences(UNITS), published, atol=1e-12)


def test_krippendorffs_two_observer_examples() -> None:
    """Krippendorff (2011), examples A (binary) and B (nominal)."""
    for first, second, published in (
        ("0100000010", "1110010000", 0.095),
        ("aabbdcccedda", "babbbccceddd", 0.692),
    ):
        pairs = [list(pair) for pair in zip(first, second, strict=True)]
        assert value(agreement.krippendorff_alpha, pairs) == pytest.approx(published, abs=5e-4)


def test_fleiss_example_of_1971() -> None:
    counts = [[int(digit) for digit in row] for row in DIAGNOSES.split()]
    assert np.mean(counts, axis=0) / 6 == pytest.approx([0.144, 0.144, 0.167, 0.306, 0.239], abs=5e-4)
    assert value(agreement.fleiss_kappa, from_counts(counts)) == pytest.approx(0.430, abs=5e-4)


def test_fleiss_example_of_wikipedia() -> None:
    data = from_counts(SUBJECTS)
    assert value(agreement.raw_agreement, data) == pytest.approx(0.378, abs=5e-4)
    assert value(agreement.fleiss_kappa, data) == pytest.approx(0.210, abs=5e-4)


def test_cohen_examples() -> None:
    """Cohen (1960), kappa = .492, repeated in Cohen (1968); and the 50 proposals of Wikipedia."""
    assert value(agreement.cohen_kappa, from_table([[88, 14, 18], [10, 40, 10], [2, 6, 12]])) == pytest.approx(
        0.492, abs=5e-4
    )
    assert value(agreement.cohen_kappa, from_table([[20, 5], [10, 15]])) == pytest.approx(0.4)


def test_gwets_pregnancy_example() -> None:
    """Gwet (2014): two abstractors, 100 charts, three diagnoses."""
    data = from_table([[13, 0, 0], [0, 20, 7], [0, 4, 56]])
    assert value(agreement.cohen_kappa, data) == pytest.approx(0.7964094, abs=5e-8)
    assert value(agreement.scott_pi, data) == pytest.approx(0.7962397, abs=5e-8)


def test_scott_example_of_wikipedia() -> None:
    assert value(agreement.scott_pi, from_table([[1, 2, 3], [4, 5, 6], [7, 8, 9]])) == pytest.approx(-0.057, abs=1e-3)


def test_gwet_examples() -> None:
    """Gwet (2002), where kappa is paradoxical: 94 % of labels agree, kappa is negative; Gwet (2014), missing labels."""
    paradox = from_table([[118, 5], [2, 0]])
    assert value(agreement.gwet_ac1, paradox) == pytest.approx(0.941, abs=5e-4)
    assert value(agreement.cohen_kappa, paradox) == pytest.approx(-0.023, abs=5e-4)
    assert value(agreement.gwet_ac1, UNITS) == pytest.approx(0.77544, abs=5e-6)
    assert value(agreement.fleiss_kappa, UNITS) == pytest.approx(0.76117, abs=5e-6)


def test_quadratic_conger_example() -> None:
    """Units 2 to 9 of the example, which all four rated, with quadratic weights: 0.6719243."""
    assert value(agreement.cohen_kappa, UNITS[1:9], weights="quadratic") == pytest.approx(0.6719243, abs=5e-8)
