from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from crowdwise.errors import ConfigError, DataError
from crowdwise.graph import adjusted_rand, edge_precision, found_groups, neighbourhood_recall

BLOCKS = np.kron(np.eye(3), np.ones((8, 8)))
GROUPS = np.repeat([0, 1, 2], 8)


def test_edges_inside_groups_are_right():
    assert edge_precision(BLOCKS, GROUPS) == (1.0, 1.0, 1.0)
    assert neighbourhood_recall(BLOCKS, GROUPS) == 1.0


def test_mean_and_minimum_are_over_annotators_and_overall_is_over_edges():
    A = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 0.05], [0, 0, 1, 1]])
    precision = edge_precision(A, ["a", "a", "b", "b"])
    assert precision.mean == pytest.approx((1 + 1 / 3 + 1) / 3)  # annotator 2 has no edge above the threshold
    assert precision.minimum == pytest.approx(1 / 3)
    assert precision.overall == pytest.approx(3 / 5)
    assert neighbourhood_recall(A, ["a", "a", "b", "b"]) == pytest.approx(3 / 4)


def test_the_threshold_decides_what_an_edge_is():
    A = np.array([[0, 0.3], [0.05, 0]])
    assert edge_precision(A, [0, 0], threshold=0.01).overall == 1.0
    assert neighbourhood_recall(A, [0, 0], threshold=0.01) == 1.0
    assert neighbourhood_recall(A, [0, 0]) == 0.5


def test_self_loops_are_no_edges_and_nothing_to_measure_is_nan():
    assert all(math.isnan(value) for value in edge_precision(np.eye(3), [0, 0, 0]))
    assert math.isnan(neighbourhood_recall(np.ones((3, 3)), [0, 1, 2]))
    assert neighbourhood_recall(np.eye(3), [0, 0, 0]) == 0.0


def test_groups_are_found_with_and_without_their_number():
    assert_array_equal(found_groups(BLOCKS), GROUPS)
    assert_array_equal(found_groups(BLOCKS, n_groups=3), GROUPS)


def test_groups_are_found_in_a_noisy_directed_graph():
    rng = np.random.default_rng(0)
    A = (rng.random((90, 90)) < np.where(np.kron(np.eye(3), np.ones((30, 30))) > 0, 0.4, 0.04)).astype(float)
    truth = np.repeat([0, 1, 2], 30)
    assert adjusted_rand(found_groups(A), truth) > 0.9


def test_groups_are_numbered_by_their_first_member_and_the_same_every_time():
    order = np.random.default_rng(1).permutation(24)
    groups = found_groups(BLOCKS[np.ix_(order, order)], random_state=7)
    assert adjusted_rand(groups, GROUPS[order]) == 1.0
    firsts = [int(np.flatnonzero(groups == g)[0]) for g in range(3)]
    assert firsts == sorted(firsts)
    assert_array_equal(groups, found_groups(BLOCKS[np.ix_(order, order)], random_state=7))


def test_lanczos_finds_the_same_groups(monkeypatch):
    import crowdwise.graph.metrics as metrics

    rng = np.random.default_rng(2)
    A = (rng.random((120, 120)) < np.where(np.kron(np.eye(3), np.ones((40, 40))) > 0, 0.5, 0.05)).astype(float)
    exact = found_groups(A)
    monkeypatch.setattr(metrics, "DENSE_SVD", 50)
    assert_array_equal(found_groups(A), exact)


def test_extremes_one_annotator_one_group_no_edges():
    assert found_groups([[1.0]]).tolist() == [0]
    assert found_groups(np.ones((6, 6))).tolist() == [0] * 6
    assert found_groups(np.eye(4)).tolist() == [0, 1, 2, 3]
    assert found_groups(np.ones((3, 3)), n_groups=3).tolist() == [0, 1, 2]


def test_an_isolated_annotator_is_a_group_of_its_own():
    A = np.zeros((9, 9))
    A[:4, :4] = A[4:8, 4:8] = 1
    assert found_groups(A).tolist() == [0] * 4 + [1] * 4 + [2]


def test_adjusted_rand_ignores_names_and_is_low_for_unrelated_groupings():
    assert adjusted_rand([0, 0, 1, 1], ["x", "x", "y", "y"]) == 1.0
    rng = np.random.default_rng(0)
    assert abs(adjusted_rand(rng.integers(3, size=500), rng.integers(3, size=500))) < 0.05


def test_wrong_input_is_named():
    with pytest.raises(DataError, match=r"one entry per annotator, \(24,\), not \(3,\)"):
        edge_precision(BLOCKS, [0, 1, 2])
    with pytest.raises(ConfigError, match="n_groups must be between 1 and the number of annotators, 24, not 25"):
        found_groups(BLOCKS, n_groups=25)
