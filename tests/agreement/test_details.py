"""Agreement: repeated labels by hand, p-values of few draws, and how results read."""

from __future__ import annotations

import inspect
import math
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from agreement_helpers import MEASURES, simulated
from crowdwise import Annotations, agreement
from crowdwise.agreement._scales import Scale, numbers_of, scale_of
from crowdwise.errors import ConfigError

# -- self-consistency -----------------------------------------------------------------------------------------------


def test_repeated_labels_are_compared_by_hand() -> None:
    """m labels three items several times and one once, s every item once; nobody is compared with anybody else."""
    said = {("m", 1): "aab", ("m", 2): "bbbb", ("m", 3): "ab", ("m", 4): "c", ("s", 1): "a", ("s", 2): "b"}
    rows = [(item, who, label) for (who, item), labels in said.items() for label in labels]
    table = {name: [row[k] for row in rows] for k, name in enumerate(("item", "worker", "label"))}
    m, s = agreement.self_consistency(Annotations.from_frame(table, duplicates="keep")).to_pylist()
    assert (m["annotator"], m["n_repeated"], m["labels_each"]) == ("m", 3, 3.0)
    assert m["same"] == pytest.approx(1 / 3)
    two_to_one = -(2 / 3 * math.log2(2 / 3) + 1 / 3 * math.log2(1 / 3))
    assert m["entropy"] == pytest.approx((two_to_one + 0 + 1) / 3)
    # disagreeing ordered pairs over labels - 1: 4/2 + 0 + 2/1; a 3 times and b 6 times, 36 of 72 pairs differ
    assert m["alpha"] == pytest.approx(1 - ((4 / 2 + 2) / 9) / (36 / 72))
    assert s == {"annotator": "s", "n_repeated": 0, "labels_each": None, "same": None, "alpha": None, "entropy": None}
    steady = Annotations.from_triples([0, 0, 1, 1], [0] * 4, [1, 1, 1, 1], n_annotators=2)
    row, silent = agreement.self_consistency(steady).to_pylist()
    assert (row["same"], row["entropy"], row["alpha"]) == (1.0, 0.0, None)
    assert silent["n_repeated"] == 0


# -- the test of chance ---------------------------------------------------------------------------------------------


def clear(n: int) -> Any:
    """Three annotators who nearly always agree."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, (n, 1))
    return np.where(rng.random((n, 3)) < 0.95, truth, rng.integers(0, 3, (n, 3)))


def weak(seed: int, n: int = 60) -> Any:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, (n, 1))
    return np.where(rng.random((n, 3)) < 0.45, truth, rng.integers(0, 3, (n, 3)))


def test_the_p_value_has_the_precision_of_its_draws() -> None:
    """No draw is as large: p is 1 in as many draws and one more; far above all of them, it is smaller still."""
    found = [agreement.chance_test(weak(seed), n_permutations=30, random_state=1).p_value for seed in range(40)]
    at_most = [p for p in found if p < 20 / 30]
    assert all(round(p * 31) == pytest.approx(p * 31) for p in at_most)
    assert min(found) == pytest.approx(1 / 31)
    more = [agreement.chance_test(weak(seed), n_permutations=3000, random_state=1).p_value for seed in range(12)]
    plain = [p for p in more if 1e-3 < p < 20 / 3000]
    assert plain  # beyond the first 39 draws, and not far
    assert all(p * 3001 == pytest.approx(round(p * 3001)) for p in plain)
    assert agreement.chance_test(clear(100)).p_value < 1e-9
    assert agreement.chance_test(clear(100), n_permutations=30).p_value == pytest.approx(1 / 31)


def test_clear_results_take_few_draws_and_do_not_depend_on_them() -> None:
    drawn = []

    class Counting(np.random.Generator):
        def random(self, *arguments: Any, **options: Any) -> Any:
            drawn.append(1)
            return super().random(*arguments, **options)

    def draws_for(crowd: Any, most: int) -> int:
        drawn.clear()
        agreement.chance_test(crowd, n_permutations=most, random_state=Counting(np.random.PCG64(3)))
        return len(drawn)

    assert draws_for(clear(100), 999) == 39
    assert draws_for(np.random.default_rng(1).integers(0, 3, (60, 3)), 999) < 200  # 20 as large are enough
    assert draws_for(weak(0), 250) == 250
    assert draws_for(np.tile(weak(0), (600, 1)), 999) <= 199  # fewer of large crowds


@pytest.mark.parametrize("level", ["ordinal", "interval"])
def test_the_p_value_of_ordered_classes_does_not_depend_on_their_unit(level: Any) -> None:
    crowd = Annotations.from_dense(weak(3), classes=range(3))
    tests = [
        agreement.chance_test(crowd, level, values=values)
        for values in ([1, 2, 4], [1e6, 2e6, 4e6], [5e-7, 1e-6, 2e-6])
    ]
    assert tests[0].p_value == tests[1].p_value == tests[2].p_value
    assert 0.001 < tests[0].p_value < 0.9


def test_a_result_of_the_test_reads_as_a_sentence() -> None:
    far = str(agreement.chance_test(clear(100)))
    assert far.startswith("agreement is more than chance: Krippendorff's alpha 0.8")
    assert far.endswith("p < 0.001 (300 labels of 100 instances)")
    assert "within chance" in str(agreement.ChanceTest(0.1, 0.05, 10, 20))
    assert "more than chance" in str(agreement.ChanceTest(0.1, 0.049, 10, 20))
    assert "p = 0.001 (" in str(agreement.ChanceTest(0.1, 0.001, 10, 20))


# -- measures -------------------------------------------------------------------------------------------------------


def test_every_measure_has_the_same_number_of_resamples_by_default() -> None:
    functions = [agreement.raw_agreement, agreement.fleiss_kappa, agreement.gwet_ac1, agreement.scott_pi]
    for function in (*functions, agreement.krippendorff_alpha, agreement.cohen_kappa, agreement.report):
        defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
        assert (defaults["n_bootstrap"], defaults["confidence"]) == (1000, 0.95)
    assert inspect.signature(agreement.pairwise).parameters["n_bootstrap"].default == 0


@pytest.mark.parametrize("measure", [name for name in MEASURES if name != "alpha-ordinal"])
def test_degenerate_crowds_are_undefined_without_a_warning(measure: str) -> None:
    same = Annotations.from_dense([[0, 0], [0, 0], [0, None]], classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for crowd in (same, Annotations.from_triples([0, 1], [0, 1], [0, 1])):
            found = MEASURES[measure](crowd, n_bootstrap=20, random_state=0)
            if measure not in ("raw", "gwet") or crowd is not same:
                assert math.isnan(found.value)
        values = np.array([[0, 1], [1, 1], [0, 0]])
        if measure in ("alpha-interval", "alpha-ratio"):
            level: Any = measure.removeprefix("alpha-")
            assert math.isnan(agreement.krippendorff_alpha(values, level, values=[2, 2], n_bootstrap=0).value)


@pytest.mark.parametrize("level", ["interval", "ratio", "ordinal"])
def test_alpha_of_numbers_equals_all_pairs_one_by_one(level: str) -> None:
    """Unequal steps, missing labels, and numbers far from zero."""
    rng = np.random.default_rng(2)
    number = np.array([1.0, 2.0, 4.5, 40.0])
    labels = np.where(rng.random((25, 4)) < 0.25, -1, rng.integers(0, 4, (25, 4)))
    units = [[y for y in row if y >= 0] for row in labels]
    units = [unit for unit in units if len(unit) > 1]
    pooled = [y for unit in units for y in unit]
    frequency = np.bincount(pooled, minlength=4)

    def difference(c: int, k: int) -> float:
        if level == "interval":
            return float((number[c] - number[k]) ** 2)
        if level == "ratio":
            return float(((number[c] - number[k]) / (number[c] + number[k])) ** 2)
        low, high = min(c, k), max(c, k)
        return float((frequency[low : high + 1].sum() - (frequency[c] + frequency[k]) / 2) ** 2)

    inside = sum(2 * sum(difference(*pair) for pair in combinations(unit, 2)) / (len(unit) - 1) for unit in units)
    across = 2 * sum(difference(*pair) for pair in combinations(pooled, 2))
    expected = 1 - (inside / len(pooled)) / (across / (len(pooled) * (len(pooled) - 1)))
    crowd = Annotations.from_dense(labels, missing=[-1], classes=range(4))
    found = agreement.krippendorff_alpha(crowd, level, values=number, n_bootstrap=0)  # type: ignore[arg-type]
    assert found.value == pytest.approx(expected)
    assert found.n == len(units)


def test_a_report_is_a_table_in_text() -> None:
    crowd = simulated(60, 5, 3, np.random.default_rng(0))
    found = agreement.report(crowd, levels=("nominal", "ordinal"), confidence=0.9, n_bootstrap=50, random_state=0)
    lines = str(found).splitlines()
    assert lines[1] == "60 with two or more labels"
    assert lines[2].endswith("value   90% interval")
    widest = max(len(row.measure) for row in found.rows)
    for line, row in zip(lines[3:], found.rows, strict=True):
        low, high = row.interval
        assert line == f"{row.measure:<{widest}}  {row.value:6.3f}  {low:6.3f} {high:6.3f}"
        assert found[row.measure] is row
    for row, line in zip(found.rows, found.to_table().to_pylist(), strict=True):
        assert line == {
            "measure": row.measure,
            "value": row.value,
            "low": row.interval[0],
            "high": row.interval[1],
            "n": row.n,
        }
    one = agreement.Agreement("x", 0.5, (math.nan, math.nan), 1)
    assert str(one) == "x: 0.500, 1 instance"
    assert str(agreement.Agreement("x", 0.5, (0.25, 1.0), 1200)) == "x: 0.500 [0.250, 1.000], 1,200 instances"
    assert float(one) == 0.5


def test_pairs_as_matrices_and_rows() -> None:
    rows = [(0, "x", "a"), (0, "y", "a"), (1, "x", "b"), (1, "y", "a"), (2, "x", "b"), (2, "y", "b"), (2, "z", "b")]
    crowd = Annotations.from_frame(
        {name: [row[k] for row in rows] for k, name in enumerate(("item", "worker", "label"))}
    )
    pairs = agreement.pairwise(crowd, "raw")
    assert pairs.common().tolist() == [[3, 3, 1], [3, 3, 1], [1, 1, 1]]
    assert pairs.matrix().round(3).tolist() == [[1, 0.667, 1], [0.667, 1, 1], [1, 1, 1]]
    assert [(row["first"], row["second"], row["n_common"]) for row in pairs.to_table().to_pylist()] == [
        ("x", "y", 3),
        ("x", "z", 1),
        ("y", "z", 1),
    ]
    assert np.isnan(pairs.low).all()


# -- scales ---------------------------------------------------------------------------------------------------------


def test_numbers_in_names() -> None:
    assert numbers_of(["1 star", "2 stars", "10 stars"]) == (1, 2, 10)
    assert numbers_of(["3) good", "1) bad"]) == (3, 1)
    assert numbers_of(["-1", "0", "1.5"]) == (-1, 0, 1.5)
    for names in (["grade 1", "level 2"], ["1", "1.0"], ["one", "2"], ["1 - a", "b"], ["1-2", "3-4"]):
        assert numbers_of(names) is None


def grades(rng: np.random.Generator, places: np.ndarray, n: int = 150) -> Any:
    """Two labels of an item that are the same or next to each other."""
    truth = rng.integers(0, len(places), n)
    other = np.clip(truth + rng.choice([-1, 0, 1], n), 0, len(places) - 1)
    return np.stack([places[truth], places[other]], axis=1)


def test_numbers_are_a_scale_if_half_of_its_places_are_taken() -> None:
    rng = np.random.default_rng(0)
    for places, ordered in (([1, 2, 3], True), ([1, 2, 4, 6], True), ([1, 2, 5, 9], False), ([10, 20, 40], True)):
        found = scale_of(grades(rng, np.array(places)))
        assert (found is not None) == ordered
        if found is not None:
            assert found.source == "numbers"
            assert sorted(found.values) == places
    assert scale_of(grades(rng, np.array([1, 2]))) is None  # two classes


def test_a_declared_order_is_by_place_or_by_number() -> None:
    crowd = Annotations.from_dense([["x", "y"], ["z", "x"], ["y", "z"]])
    assert scale_of(crowd, ["z", "x", "y"]) == Scale((1.0, 2.0, 0.0), ("x", "y", "z"), "declared")
    numbers = Annotations.from_dense([["1", "10"], ["2", "1"]])
    rising, falling = scale_of(numbers, ["1", "2", "10"]), scale_of(numbers, ["10", "2", "1"])
    assert rising is not None
    assert falling is not None
    assert dict(zip(rising.classes, rising.values, strict=True)) == {"1": 1, "2": 2, "10": 10}
    assert dict(zip(falling.classes, falling.values, strict=True)) == {"10": 0, "2": 1, "1": 2}
    assert rising.in_order == ("1", "2", "10")
    assert str(falling) == "10 < 2 < 1"
    assert scale_of(numbers, [1, 2, 10]) == rising
    for order, message in (
        (["x"], "two classes"),
        (["x", "X", "y"], "'X' is listed twice"),
        (["x", "y"], "'z' is not in"),
    ):
        with pytest.raises(ConfigError, match=message):
            scale_of(crowd, order)
