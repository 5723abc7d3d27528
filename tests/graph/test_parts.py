"""The parts of annotator graphs at their borders, and against loops."""

from __future__ import annotations

import importlib
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from crowdwise import Annotations, graph
from crowdwise.errors import DataError
from crowdwise.graph import _device, _largest
from crowdwise.graph._largest import by_blocks, largest_triplets, reaching, rows_at_once

purify_module = importlib.import_module("crowdwise.graph.purify")
metrics = importlib.import_module("crowdwise.graph.metrics")


def planted(size: int, groups: int, k: int, seed: int = 0) -> np.ndarray:
    """Every annotator has k neighbours, most of them of its own group."""
    rng = np.random.default_rng(seed)
    group = np.arange(size) * groups // size
    A = np.zeros((size, size))
    for i in range(size):
        weight = np.where(group == group[i], 10.0, 1.0)
        weight[i] = 0
        A[i, rng.choice(size, k, replace=False, p=weight / weight.sum())] = 1
    return A


# similarities


def test_a_pair_given_twice_is_one_member_of_the_set() -> None:
    crowd = Annotations.from_triples([0, 0, 0, 1, 0, 2], [0, 0, 0, 0, 1, 1], [1, 1, 0, 0, 1, 0], n_classes=2)
    # {(0, 1), (0, 0), (1, 0)} and {(0, 1), (2, 0)}
    assert_allclose(graph.jaccard(crowd).toarray(), [[1, 1 / 4], [1 / 4, 1]])


def test_the_l1_version_divides_by_sums_of_sizes() -> None:
    heads = np.array([[3.0, -4.0], [1.0, 1.0], [0.0, 0.0]])
    expected = [[25 / 49, -1 / 14, 0], [-1 / 14, 2 / 4, 0], [0, 0, 0]]
    assert_allclose(graph.l1_normalised(heads), expected)
    turned = graph.SIMILARITIES["l1-normalised"](graph.Evidence(heads[:2] * 2, l1_norms=np.array([14.0, 4.0])))
    assert_allclose(turned @ turned.T, np.array(expected)[:2, :2])


# neighbours


@pytest.mark.parametrize("block", [2, 4, 9])
def test_the_annotator_whose_similarities_are_no_numbers_is_named(block: int) -> None:
    similarity = np.eye(7)
    similarity[5, 1] = np.nan
    similarity[6, 2] = np.inf
    with pytest.raises(DataError, match="the similarities of annotator 5 are not finite"):
        graph.knn_graph(similarity, 2, block=block)


def test_on_a_device_too() -> None:
    heads = np.diag([1.0, 0.0, np.inf, 1.0])
    idle = np.array([0, 3])  # annotators 1 and 2 are not looked at
    with pytest.raises(DataError, match="the similarities of annotator 0 are not finite"):
        list(_device.neighbours(heads, idle, 1, 12, "cpu"))


def test_neighbours_of_a_sparse_similarity_with_negative_entries() -> None:
    similarity = np.array([[0, -0.5, 0.2, 0], [-0.5, 0, 0, 0], [0.2, 0, 0, -0.1], [0, 0, -0.1, 0]])
    expected = [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]
    for given in (similarity, sparse.coo_array(similarity)):
        assert graph.knn_graph(given, 2).toarray().tolist() == expected


@pytest.mark.parametrize("after", [None, 3])
def test_the_largest_of_a_row_with_ties(after: int | None) -> None:
    import torch

    values = torch.tensor([[5.0, 1.0, 5.0, 5.0, 7.0, 5.0]])
    start = None if after is None else torch.tensor([after])
    columns, above, tied = _device.largest(values, 3, start)
    assert sorted(columns[0].tolist()) == ([0, 2, 4] if after is None else [0, 4, 5])
    assert (above.tolist(), tied.tolist()) == ([1], [4])


def test_entries_that_may_be_among_the_largest() -> None:
    rng = np.random.default_rng(0)
    for size in (31, 32, 400):  # of which the last is split into groups
        values = rng.integers(0, 20, (9, size)).astype(float)
        mask = reaching(values, 1, least=3.0)
        kth = values.max(axis=1, keepdims=True)
        assert np.all(mask[values >= np.maximum(kth, 3)])
        assert np.all(values[mask] >= 3)
        wider = reaching(values, 1, slack=2.0)
        assert np.all(wider[values >= kth - 2])
    assert reaching(np.array([[1.0, 2.0]]), 1, least=5.0).sum() == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_cover_all_rows_in_order(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_largest, "n_cores", lambda: threads)
    used = set()

    def ends(start: int, stop: int) -> tuple[int, int]:
        used.add(threading.get_ident())
        return start, stop

    assert list(by_blocks(ends, 10, block=4, rows=9)) == [(0, 4), (4, 8), (8, 9)]
    assert list(by_blocks(ends, 10, block=20)) == [(0, 10)]
    assert list(by_blocks(ends, 0)) == []
    assert threading.get_ident() in used
    assert (len(used) == 1) == (threads == 1)
    assert [rows_at_once(size) for size in (0, 1_000, 3_000_000)] == [2_000_000, 2_000, 1]


@pytest.mark.parametrize("rank", [2, 30])
def test_triplets_give_the_best_approximation(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    A = planted(50, 3, 6)
    u, s, v = np.linalg.svd(A)
    exact = (u[:, :rank] * s[:rank]) @ v[:rank]
    for limit in (1_000, 20):
        monkeypatch.setattr(_largest, "DENSE_SVD", limit)
        for matrix in (A, sparse.csr_array(A)):
            left, values, right = largest_triplets(matrix, rank)
            assert left.shape[1] == len(values) == len(right) == rank
            assert_allclose((left * values) @ right, exact, atol=1e-8)


# purifying


def test_up_to_a_number_of_annotators_all_entries_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    A = planted(30, 2, 6)
    whole = graph.purify(A, 3, skipped=[1, 2, 5, 7, 9, 11, 20]).toarray()
    monkeypatch.setattr(purify_module, "row_limit", lambda size: 4)
    for rows, same in ((30, True), (29, False)):
        monkeypatch.setattr(purify_module, "DENSE_ROWS", rows)
        found = graph.purify(A, 3, skipped=[1, 2, 5, 7, 9, 11, 20], device="cpu").toarray()
        assert np.allclose(found, whole) is same


def test_a_low_rank_graph_by_its_formula() -> None:
    A = planted(40, 3, 7, seed=1)
    u, s, v = np.linalg.svd(A)
    expected = np.clip((u[:, :4] * s[:4]) @ v[:4], 0, 1)
    expected[expected < 1e-6] = 0
    expected[np.ix_([3, 9], [3, 9])] = 1
    np.fill_diagonal(expected, 1)
    assert_allclose(graph.purify(A, 4, skipped=[9, 3, 9]).toarray(), expected, atol=1e-9)
    assert_array_equal(graph.purify(A, 40).toarray(), np.maximum(A, np.eye(40)))
    assert_array_equal(graph.purify(A, 39, k=1).toarray(), np.maximum(A, np.eye(40)))
    two = np.array([[0.0, 1, 0], [1, 0, 0], [0, 1, 0]])
    assert_array_equal(graph.purify(two, 1).toarray(), np.maximum(two, np.eye(3)))  # one neighbour each


def test_what_a_row_keeps_is_scaled_to_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purify_module, "DENSE_ROWS", 3)
    monkeypatch.setattr(purify_module, "row_limit", lambda size: 2)
    rows = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.4, 0.4, 0.4], [-3.0, 2.0, 1e-7, 0.0], [0.0, 0.0, 0.0, 0.0]])
    expected = [[0.5 / 0.8, 0.3 / 0.8, 0, 0], [0, 1.3 / 2, 1.3 / 2, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert_allclose(purify_module._sparse_rows(rows.copy()).toarray(), expected)
    left = np.eye(4)
    parts = list(_device.purified_rows(left, rows, 2, 1e-6, 12, "cpu"))
    weights, row, column = (np.concatenate(each) for each in zip(*parts, strict=True))
    assert_allclose(sparse.csr_array((weights, (row, column)), shape=(4, 4)).toarray(), expected)


def test_rings_of_members_keep_sums() -> None:
    members = np.array([1, 3, 4, 6])
    whole = purify_module._clique(members, 8).toarray()
    expected = np.zeros((8, 8))
    expected[np.ix_(members, members)] = 1 - np.eye(4)
    assert_array_equal(whole, expected)
    assert purify_module._clique(np.array([], int), 3).nnz == 0
    assert purify_module._clique(np.array([2]), 3).nnz == 0


# measures


def test_groups_are_the_widest_gap_of_the_laplacian() -> None:
    A = planted(60, 4, 9, seed=2)
    weights = (A + A.T) / 2
    degree = weights.sum(axis=1)
    values = np.linalg.eigvalsh(np.eye(60) - weights / np.sqrt(np.outer(degree, degree)))
    found, vectors = metrics._smallest_eigenpairs(sparse.csr_array(A + 5 * np.eye(60)), 10)
    assert_allclose(found, values[:10], atol=1e-9)
    assert vectors.shape == (60, 10)
    gaps = np.diff(values[:21])
    assert len(np.unique(graph.found_groups(A))) == np.argmax(gaps) + 1 == 4
    assert len(np.unique(graph.found_groups(A, max_groups=3))) == np.argmax(gaps[:3]) + 1
    assert graph.found_groups(np.zeros((0, 0))).shape == (0,)


def test_components_are_ordered_by_their_size() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 3)) * [1.0, 9.0, 4.0] + 100
    found = graph.pca(points, 3)
    assert_allclose(np.linalg.norm(found, axis=0), np.linalg.svd(points - points.mean(axis=0))[1])
    assert_allclose(found @ found.T, (points - points.mean(axis=0)) @ (points - points.mean(axis=0)).T, atol=1e-8)
    tied = graph.pca([[1.0], [-1.0], [0.0]])
    assert_allclose(tied[:, 0], [1, -1, 0])  # of equal entries the first is positive


def test_edges_without_loops_and_groups_by_any_name() -> None:
    A = np.array([[0.5, 0.2, 0.1], [0.3, 0.9, 0.3], [0.0, 0.0, 0.7]])
    assert graph.edge_precision(A, ["x", "x", "y"]) == pytest.approx((0.75, 0.5, 2 / 3))
    assert graph.neighbourhood_recall(A, ["x", "x", "y"]) == 1.0
    assert graph.edge_precision(A, ["x", "y", "x"], threshold=0.05) == pytest.approx((0.25, 0.0, 1 / 4))
