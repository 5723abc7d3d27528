from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from crowdwise.errors import ConfigError, DataError
from crowdwise.graph import add_self_loops, edge_precision, knn_from_heads, normalise, purify

# `crowdwise.graph.purify` is the function; its module is needed to lower the limits
purify_module = importlib.import_module("crowdwise.graph.purify")

TWO_GROUPS = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))
ONE_WRONG_EDGE = TWO_GROUPS.copy()
ONE_WRONG_EDGE[0] = [0, 0, 1, 1, 0, 0]


def planted(size, n_groups, k, wrong, seed=0):
    """kNN graph of groups of equal size in which a share of the edges is random."""
    rng = np.random.default_rng(seed)
    groups = np.arange(size) * n_groups // size
    A = np.zeros((size, size))
    for i in range(size):
        mates = np.flatnonzero((groups == groups[i]) & (np.arange(size) != i))
        others = np.flatnonzero(groups != groups[i])
        n_wrong = rng.binomial(k, wrong)
        A[i, rng.choice(mates, k - n_wrong, replace=False)] = 1
        A[i, rng.choice(others, n_wrong, replace=False)] = 1
    return A, groups


def test_two_complete_groups_become_flat_inside_and_empty_between():
    A = purify(TWO_GROUPS, rank=2).toarray()
    inside = np.kron(np.eye(2), np.ones((3, 3))) > 0
    assert_allclose(A[inside & ~np.eye(6, dtype=bool)], 2 / 3, atol=1e-9)
    assert_array_equal(A[~inside], 0)
    assert_array_equal(np.diag(A), 1)
    normalised = normalise(A).toarray()
    assert_allclose(np.diag(normalised), 3 / 7, atol=1e-9)
    assert_allclose(normalised[0, 1:3], 2 / 7, atol=1e-9)


def test_hand_checked_asymmetric_graph():
    assert_allclose(np.linalg.svd(ONE_WRONG_EDGE)[1], [2.157647, 1.791858, 1.414214, 1, 1, 0.365789], atol=1e-6)
    A = purify(ONE_WRONG_EDGE, rank=2).toarray()
    assert_allclose(A[0, 1:], [0.184428, 0.574867, 0.709002, 0.318563, 0.318563], atol=1e-6)
    assert_allclose(A.sum(axis=0), [2.621666, 1.505404, 2.746183, 3.694667, 2.413211, 2.413211], atol=1e-6)
    expected = [0.381437, 0.092835, 0.214247, 0.227809, 0.126651, 0.126651]
    assert_allclose(normalise(A, "ref").toarray()[0], expected, atol=1e-6)


def test_purifying_the_reversed_graph_reverses_the_purified_graph():
    A, _ = planted(30, 3, 5, 0.2)
    assert_allclose(purify(A.T).toarray(), purify(A).toarray().T, atol=1e-9)
    assert_allclose(purify(ONE_WRONG_EDGE.T, 2).toarray(), purify(ONE_WRONG_EDGE, 2).toarray().T, atol=1e-9)


def test_purifying_removes_wrong_edges():
    A, groups = planted(120, 3, 20, 0.2)
    before, after = (edge_precision(graph, groups, threshold=0.2) for graph in (A, purify(A, rank=3)))
    assert before.overall == pytest.approx(0.8, abs=0.02)
    assert after.overall > 0.95


def test_weights_stay_in_the_unit_interval():
    A = purify(planted(60, 3, 10, 0.3)[0])
    assert A.format == "csr"
    assert A.data.min() >= 1e-6
    assert A.data.max() <= 1.0


def test_lanczos_equals_lapack(monkeypatch):
    A, _ = planted(200, 4, 12, 0.2)
    exact = purify(A).toarray()
    monkeypatch.setattr("crowdwise.graph._largest.DENSE_SVD", 50)
    assert_allclose(purify(A).toarray(), exact, atol=1e-8)
    assert_array_equal(purify(A).toarray(), purify(A).toarray())


def test_lanczos_handles_groups_with_equal_singular_values(monkeypatch):
    A = np.kron(np.eye(5), np.ones((30, 30)) - np.eye(30))
    monkeypatch.setattr("crowdwise.graph._largest.DENSE_SVD", 50)
    assert_allclose(purify(A, rank=5).toarray()[0, 1:30], 29 / 30, atol=1e-6)


def test_a_big_graph_stays_sparse_and_keeps_its_row_sums(monkeypatch):
    A, groups = planted(300, 3, 20, 0.1)
    complete = purify(A, rank=3).toarray()
    monkeypatch.setattr(purify_module, "DENSE_ROWS", 100)
    monkeypatch.setattr(purify_module, "ROW_LIMIT", 30)
    limited = purify(A, rank=3)
    assert np.diff(limited.indptr).max() <= 31  # 30 and the self loop
    off = limited.toarray() - np.eye(300)
    assert_allclose(off.sum(axis=1), (complete - np.eye(300)).sum(axis=1), rtol=0.05)
    assert edge_precision(limited, groups).overall == 1.0


def test_a_row_of_a_big_graph_keeps_its_largest_entries(monkeypatch):
    A, _ = planted(300, 3, 20, 0.1)
    complete = purify(A, rank=3).toarray()
    np.fill_diagonal(complete, 0)
    monkeypatch.setattr(purify_module, "DENSE_ROWS", 100)
    monkeypatch.setattr(purify_module, "ROW_LIMIT", 4)
    limited = purify(A, rank=3).toarray()
    np.fill_diagonal(limited, 0)
    for kept, row in zip(limited, complete, strict=True):
        largest = np.sort(row)[::-1][:4]
        assert set(np.flatnonzero(kept)) <= set(np.flatnonzero(row >= largest[-1] - 1e-12))
        assert 3 <= np.count_nonzero(kept) <= 4  # the diagonal may have been one of them


@pytest.mark.parametrize("size", [1, 2])
def test_tiny_crowds_are_left_as_they_are(size):
    A = np.ones((size, size)) - np.eye(size)
    assert_array_equal(purify(A, k=5).toarray(), np.ones((size, size)))


def test_one_neighbour_each_is_not_purified_because_singular_values_repeat():
    A = knn_from_heads(np.random.default_rng(0).normal(size=(20, 3)), k=1)
    assert_array_equal(purify(A, rank=5).toarray(), add_self_loops(A).toarray())
    assert_array_equal(purify(TWO_GROUPS, rank=2, k=1).toarray(), add_self_loops(TWO_GROUPS).toarray())


def test_a_rank_above_the_number_of_annotators_keeps_the_graph():
    assert_array_equal(purify(ONE_WRONG_EDGE, rank=50).toarray(), ONE_WRONG_EDGE + np.eye(6))


def test_skipped_annotators_form_a_clique():
    A = purify(TWO_GROUPS, rank=2, skipped=[0, 4, 5]).toarray()
    assert_array_equal(A[np.ix_([0, 4, 5], [0, 4, 5])], 1)
    assert A[0, 3] == 0
    assert A[0, 1] == pytest.approx(2 / 3)


def test_self_loops_are_set_not_added():
    A = add_self_loops(np.full((3, 3), 0.5), skipped=[1, 2])
    assert_array_equal(A.toarray(), [[1, 0.5, 0.5], [0.5, 1, 1], [0.5, 1, 1]])


def test_the_clique_of_a_big_graph_is_a_ring_with_the_same_sums(monkeypatch):
    monkeypatch.setattr(purify_module, "DENSE_ROWS", 10)
    monkeypatch.setattr(purify_module, "ROW_LIMIT", 4)
    A = add_self_loops(sparse.csr_array((20, 20)), skipped=range(12)).toarray()
    assert_allclose(A[:12].sum(axis=1), 12)
    assert_allclose(A[:, :12].sum(axis=0), 12)
    assert_array_equal((A[:12] > 0).sum(axis=1), 5)
    assert_array_equal(A[12:], np.eye(20)[12:])


def test_normalisations_differ_in_the_degree_they_use():
    A = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.5, 1.0, 1.0]])
    columns, rows = A.sum(axis=0), A.sum(axis=1)
    assert_allclose(normalise(A, "ref").toarray(), A / np.sqrt(np.outer(columns, columns)))
    assert_allclose(normalise(A, "sym_row").toarray(), A / np.sqrt(np.outer(rows, rows)))
    assert_allclose(normalise(A, "row").toarray().sum(axis=1), 1)


def test_an_isolated_annotator_keeps_itself_only():
    A = add_self_loops(np.zeros((3, 3)))
    for norm in ("ref", "sym_row", "row"):
        assert_array_equal(normalise(A, norm).toarray(), np.eye(3))


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="annotator 0 has degree 0; add self loops"):
        normalise(np.zeros((2, 2)))
    with pytest.raises(ConfigError, match="unknown norm 'l2'"):
        normalise(np.eye(2), "l2")
    with pytest.raises(ConfigError, match="rank must be an integer of 1 or more, got 0"):
        purify(TWO_GROUPS, rank=0)
    with pytest.raises(DataError, match=r"skipped annotator 6 is out of range: this graph has 6 annotators \(0..5\)"):
        purify(TWO_GROUPS, skipped=[6])
    with pytest.raises(DataError, match=r"not \(2, 3\)"):
        purify(np.zeros((2, 3)))
    with pytest.raises(DataError, match="not finite"):
        purify([[0, np.inf], [1, 0]])


@pytest.mark.slow
def test_examples_of_the_module_leave_the_function_of_its_name_in_its_place():
    root = Path(__file__).parents[2]
    together = ["src/crowdwise/graph/purify.py", "tests/graph/test_purify.py", "-m", "not slow"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *together]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
