from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from crowdwise import Annotations
from crowdwise.errors import ConfigError, DataError
from crowdwise.graph import Evidence, cosine, delta_cosine, knn_from_heads, knn_graph, nearest

HEADS = np.array([[3.0, 4.0], [4.0, 3.0], [3.0, -4.0]])


def brute_force(similarity, k):
    size = len(similarity)
    A = np.zeros((size, size))
    for i in range(size):
        others = sorted(
            (j for j in range(size) if j != i), key=lambda j: (-round(similarity[i, j], 12), (j - i) % size)
        )
        A[i, others[:k]] = 1
    return A


def test_hand_checked_neighbours():
    A = knn_graph(cosine(HEADS), k=1)
    assert_array_equal(A.toarray(), [[0, 1, 0], [1, 0, 0], [0, 1, 0]])


def test_rows_are_centres_with_exactly_k_neighbours_and_no_self_loop():
    heads = np.random.default_rng(0).normal(size=(40, 5))
    A = knn_graph(cosine(heads), k=7)
    assert A.format == "csr"
    assert A.dtype == np.float64
    assert_array_equal(A.sum(axis=1), np.full(40, 7.0))
    assert_array_equal(A.diagonal(), np.zeros(40))


def test_k_is_clipped_to_all_others():
    A = knn_graph(cosine(HEADS), k=50)
    assert_array_equal(A.toarray(), np.ones((3, 3)) - np.eye(3))


def test_coinciding_vectors_take_the_next_in_number_so_that_nobody_is_everybodys_neighbour():
    A = knn_from_heads(np.tile([0.1, 0.2, 0.7], (5, 1)), k=2).toarray()
    assert_array_equal(A[[0, 4]], [[0, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    assert_array_equal(A, brute_force(np.ones((5, 5)), 2))
    assert_array_equal(A.sum(axis=0), np.full(5, 2.0))


def test_annotators_that_are_similar_to_nobody_take_the_next_in_number():
    A = knn_from_heads(np.zeros((4, 3)), k=2).toarray()
    assert_array_equal(A[[1, 3]], [[0, 0, 1, 1], [1, 1, 0, 0]])


def test_a_single_annotator_has_no_neighbour():
    assert knn_from_heads([[1.0, 2.0]], k=5).toarray().tolist() == [[0.0]]
    assert knn_graph([[1.0]], k=5).shape == (1, 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.integers(1, 12), st.integers(1, 8), st.integers(0, 10_000))
def test_blocks_dense_sparse_and_brute_force_agree_also_with_many_ties(size, k, block, seed):
    heads = np.random.default_rng(seed).integers(-1, 2, size=(size, 3)).astype(float)
    S = cosine(heads)
    expected = brute_force(S, k)
    assert_array_equal(knn_graph(S, k, block=block).toarray(), expected)
    assert_array_equal(knn_graph(sparse.csr_array(S), k, block=block).toarray(), expected)
    assert_array_equal(knn_from_heads(heads, k, block=block).toarray(), expected)


@pytest.mark.parametrize("alone", [0, 100, 200])
@pytest.mark.parametrize("k", [1, 6])
def test_long_rows_agree_with_brute_force_with_and_without_ties(k, alone):
    """Rows that are long beside k are not sorted whole; those of annotators who are similar to nobody not at all."""
    rng = np.random.default_rng(k)
    for heads in (rng.normal(size=(200, 4)), rng.integers(-1, 2, size=(200, 3)).astype(float)):
        heads[rng.permutation(200)[:alone]] = 0
        found = nearest(Evidence(heads), k, "cosine")
        S = cosine(heads)
        assert_array_equal(found.graph.toarray(), brute_force(S, k))
        rounded = np.round(S, 12)[~np.eye(200, dtype=bool)].reshape(200, 199)
        kth = -np.sort(-rounded, axis=1)[:, k - 1 : k]
        above, reached = (rounded > kth).sum(axis=1), (rounded >= kth).sum(axis=1)
        assert found.arbitrary == pytest.approx((k - above)[reached > k].sum() / (200 * k))
        assert found.unrelated == pytest.approx((rounded == 0).mean())


def test_heads_of_any_similarity_agree_with_its_matrix():
    rng = np.random.default_rng(3)
    heads, reference = rng.normal(size=(50, 8)), rng.normal(size=8)
    blockwise = knn_from_heads(heads, 6, similarity="delta-cosine", global_head=reference, block=16)
    assert_array_equal(blockwise.toarray(), knn_graph(delta_cosine(heads, reference), 6).toarray())


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match="k must be an integer of 1 or more, got 0"):
        knn_graph(np.eye(3), k=0)
    with pytest.raises(DataError, match=r"not \(2, 3\)"):
        knn_graph(np.zeros((2, 3)), k=1)
    with pytest.raises(DataError, match="similarities of annotator 1 are not finite"):
        knn_graph([[1.0, 0.0], [np.nan, 1.0]], k=1)


def test_shares_of_unrelated_pairs_and_of_arbitrary_edges():
    """Annotators 0 and 1 share labels; 2 and 3 have nothing in common with anybody."""
    crowd = Annotations.from_triples([0, 1, 0, 1, 2, 3], [0, 0, 1, 1, 2, 3], [0, 1, 0, 0, 0, 0], n_classes=2)
    found = nearest(Evidence(annotations=crowd), 1, "jaccard")
    assert found.graph.indices.tolist() == [1, 0, 3, 0]
    assert found.unrelated == pytest.approx(5 / 6)
    assert found.arbitrary == pytest.approx(2 / 4)
    assert nearest(Evidence(annotations=crowd), 3, "jaccard").arbitrary == 0  # all others: nothing to decide
    assert nearest(Evidence(annotations=crowd), 2, "jaccard").arbitrary == pytest.approx(6 / 8)


def test_nearest_is_the_graph_of_the_similarity_in_blocks_of_any_size():
    heads = np.random.default_rng(0).normal(size=(30, 4))
    expected = knn_from_heads(heads, 5, similarity="l1-normalised").toarray()
    for block in (1, 7, 100):
        assert_array_equal(nearest(Evidence(heads), 5, "l1-normalised", block=block).graph.toarray(), expected)
