"""What every mapping function promises, and what sets graph attention and random walks apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg
from torch.nn import functional as F

from crowdwise import graph
from crowdwise.errors import ConfigError
from crowdwise.graph.mappings import MAPPINGS, DeepWalkHeads, GATHeads, GCNHeads, MappedHeads
from crowdwise.graph.mappings.deepwalk import cooccurrences, positive_information, random_walks, walk_embedding
from crowdwise.graph.mappings.gat import edge_softmax
from crowdwise.networks.transition import corrected_loss, row_loss
from head_pairs import B, C, D, random_pairs

R = 6
every_mapping = pytest.mark.parametrize("mapping", list(MAPPINGS))


def two_groups() -> sp.csr_array:
    """Annotators 0, 1, 2 and 3, 4 are neighbours of each other, annotator 5 is alone; with self loops."""
    return sp.csr_array(linalg.block_diag(np.ones((3, 3)), np.ones((2, 2)), np.ones((1, 1))))


def make(mapping: str, matrix: sp.csr_array | None = None, residual: bool = False, **options) -> MappedHeads:
    torch.manual_seed(0)
    start = torch.randn(D + 1, C, C) if residual else None
    made = MAPPINGS[mapping].from_graph(two_groups() if matrix is None else matrix, D, C, residual=start, **options)
    return made.double()


@pytest.fixture
def pairs():
    return random_pairs(R)


def test_the_registry_names_the_mappings():
    assert list(MAPPINGS) == ["deepwalk", "gat", "gcn"]


@every_mapping
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("heads_first", [False, True])
def test_both_orders_equal_the_heads_at_annotated_pairs(mapping, residual, heads_first, pairs, monkeypatch):
    g, row, annotator, label, target = pairs
    mapped = make(mapping, residual=residual, hidden=8)
    monkeypatch.setattr(type(mapped), "heads_first", lambda *_: heads_first)
    dense = torch.einsum("bd,jdpq->bjpq", g, mapped.heads())
    logits, rows = mapped.pair_logits(g, row, annotator), mapped.row_logits(g, target, row, annotator)
    torch.testing.assert_close(logits, dense[row, annotator])
    torch.testing.assert_close(rows, dense[row, annotator, target[row]])
    class_logits = torch.randn(B, C, dtype=torch.float64)
    losses = [corrected_loss(class_logits, t, row, label).mean() for t in (logits, dense[row, annotator])]
    losses += [row_loss(t, label).mean() for t in (rows, dense[row, annotator, target[row]])]
    gradients = [torch.autograd.grad(loss, list(mapped.parameters()), retain_graph=True) for loss in losses]
    for sparse, full in [*zip(*gradients[:2], strict=True), *zip(*gradients[2:], strict=True)]:
        torch.testing.assert_close(sparse, full)


@every_mapping
@pytest.mark.parametrize("residual", [False, True])
def test_every_parameter_gets_a_gradient_and_constants_none(mapping, residual):
    mapped = make(mapping, residual=residual)
    mapped.heads().square().sum().backward()
    for name, parameter in mapped.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    assert not any(buffer.requires_grad for buffer in mapped.buffers())


@every_mapping
@pytest.mark.parametrize("residual", [False, True])
def test_saved_state_alone_rebuilds_the_heads(mapping, residual):
    mapped = make(mapping, residual=residual, hidden=8).float()
    state = mapped.state_dict()
    again = MAPPINGS[mapping].from_saved(state)
    again.load_state_dict(state)
    assert torch.equal(again.heads(), mapped.heads())


@every_mapping
def test_the_residual_is_added_to_every_head(mapping):
    with_residual, without = make(mapping, residual=True), make(mapping)
    with_residual.load_state_dict(without.state_dict() | {"residual": with_residual.residual})
    added = with_residual.heads() - without.heads()
    torch.testing.assert_close(added, with_residual.residual.expand_as(added))


@every_mapping
@pytest.mark.parametrize("size", [1, 2])
def test_one_or_two_annotators_are_legal(mapping, size):
    heads = make(mapping, sp.csr_array(np.ones((size, size)))).heads()
    assert heads.shape == (size, D + 1, C, C)
    assert torch.isfinite(heads).all()


@every_mapping
def test_a_purified_graph_and_one_that_is_not_are_both_mapped(mapping):
    vectors = np.random.default_rng(0).normal(size=(20, 5))
    before = graph.knn_from_heads(vectors, k=4)
    heads = [make(mapping, after).heads() for after in (graph.purify(before, 3), graph.add_self_loops(before))]
    assert all(torch.isfinite(each).all() for each in heads)
    assert (heads[0] - heads[1]).abs().max() > 0


def test_unknown_sizes_are_named():
    with pytest.raises(ConfigError, match="3 attention heads cannot share 64 hidden units"):
        make("gat", attention_heads=3)
    with pytest.raises(ConfigError, match="walks must be an integer of 1 or more, got 0"):
        make("deepwalk", walks=0)


# graph attention


def dense_attention(heads: GATHeads, matrix: np.ndarray) -> torch.Tensor:
    """The definition with (R, R) matrices, and W applied to all annotators before attention in the last layer."""
    absent = torch.tensor(matrix) == 0

    def attend(projected, vectors):  # (R, F), (2, F)
        scores = (projected @ vectors[0])[:, None] + (projected @ vectors[1])[None]
        return torch.softmax(F.leaky_relu(scores, 0.2).masked_fill(absent, -torch.inf), 1) @ projected

    parts = [attend(heads.first[:, h], heads.attention[:, h]) for h in range(heads.first.shape[1])]
    h = F.elu(torch.cat(parts, 1))
    return attend(h @ heads.last.flatten(1), heads.last_attention).reshape(-1, *heads.last.shape[1:])


def test_attention_over_edges_equals_attention_over_matrices():
    matrix = (np.random.default_rng(0).random((R, R)) < 0.5) | np.eye(R, dtype=bool)
    heads = make("gat", sp.csr_array(matrix.astype(float)))
    torch.testing.assert_close(heads.heads(), dense_attention(heads, matrix))


def test_without_attention_all_neighbours_count_alike():
    heads = make("gat")
    with torch.no_grad():
        heads.attention.zero_()
    degree = torch.tensor([3, 3, 3, 2, 2, 1.0], dtype=torch.float64)
    torch.testing.assert_close(heads.weights(), (1 / degree[heads.edges[0]])[:, None].expand(-1, 4))


def test_attention_of_each_annotator_sums_to_one_also_with_huge_scores():
    heads = make("gat")
    with torch.no_grad():
        heads.attention.mul_(1e4)
    alpha = heads.weights()
    sums = torch.zeros(R, 4, dtype=alpha.dtype).index_add_(0, heads.edges[0], alpha)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_an_isolated_annotator_attends_to_itself_alone():
    heads = make("gat")
    at = heads.edges[0] == 5
    assert heads.edges[:, at].tolist() == [[5], [5]]
    assert heads.weights()[at].tolist() == [[1.0] * 4]


def test_annotators_that_are_no_neighbours_have_no_influence_at_all():
    heads = make("gat")
    heads.heads()[3].sum().backward()
    assert (heads.first.grad[[0, 1, 2, 5]] == 0).all()
    assert (heads.first.grad[[3, 4]] != 0).any()


def test_weights_at_or_below_the_threshold_are_no_edges():
    weak = sp.csr_array([[1.0, 0.1, 0.2], [0.0, 1.0, 0.05], [0.5, 0.0, 0.0]])
    assert make("gat", weak).edges.T.tolist() == [[0, 0], [0, 2], [1, 1], [2, 0], [2, 2]]
    assert make("gat", weak, threshold=0.3).edges.T.tolist() == [[0, 0], [1, 1], [2, 0], [2, 2]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-80, 80), min_size=1, max_size=12), st.integers(1, 4))
def test_softmax_over_edges_equals_softmax_of_each_centre(values, size):
    logits = torch.tensor(values + [0.0] * size, dtype=torch.float64)[:, None]
    centre = torch.cat([torch.arange(len(values)) % size, torch.arange(size)])
    alpha = edge_softmax(logits, centre, size)
    for i in range(size):
        torch.testing.assert_close(alpha[centre == i], torch.softmax(logits[centre == i], 0))


# random walks


def off_diagonal(matrix: sp.csr_array) -> sp.csr_array:
    return sp.csr_array(matrix - sp.diags_array(matrix.diagonal()))


def test_walks_follow_edges_and_end_where_there_are_none():
    weights = sp.csr_array([[0, 1.0, 0], [0.5, 0, 0.5], [0, 0, 0]])
    path = random_walks(weights, 50, np.random.default_rng(0))
    assert path[:, 0].tolist() == [0, 1, 2]
    for walk in path:
        for here, there in itertools.pairwise(walk.tolist()):
            assert there == -1 if here in (2, -1) else weights[here, there] > 0


def test_steps_are_drawn_in_proportion_to_weights():
    weights = sp.csr_array([[0, 0.75, 0.25], [1e-9, 0, 0], [3.0, 0, 0]])
    path = random_walks(weights, 20_001, np.random.default_rng(0))
    after = path[0, 1::2]
    assert (path[0, ::2] == 0).all()
    assert (after == 1).mean() == pytest.approx(0.75, abs=0.015)


def test_disconnected_groups_never_occur_together():
    counts = cooccurrences(random_walks(off_diagonal(two_groups()), 40, np.random.default_rng(0)), 10, R).toarray()
    groups = np.array([0, 0, 0, 1, 1, 2])
    assert (counts[groups[:, None] != groups] == 0).all()
    assert (counts[groups[:, None] == groups][:-1] > 0).all()
    assert counts[5].sum() == 0
    np.testing.assert_array_equal(counts, counts.T)


def test_cooccurrences_equal_counting_by_hand():
    path = np.array([[0, 1, 2, 1], [2, -1, -1, -1]])
    expected = np.zeros((3, 3))
    for i, j in [(0, 1), (1, 2), (2, 1), (0, 2), (1, 1)]:
        expected[i, j] += 1
        expected[j, i] += 1
    np.testing.assert_array_equal(cooccurrences(path, 2, 3).toarray(), expected)
    assert cooccurrences(path[:, :1], 2, 3).nnz == 0


def test_information_is_positive_and_zero_for_independent_occurrences():
    independent = sp.csr_array(np.outer([1.0, 2, 3], [1.0, 2, 3]))
    np.testing.assert_allclose(positive_information(independent).toarray(), 0, atol=1e-12)
    apart = positive_information(sp.csr_array([[0.0, 2, 0], [2, 0, 0], [0, 0, 4]])).toarray()
    np.testing.assert_allclose(apart, [[0, np.log(4), 0], [np.log(4), 0, 0], [0, 0, np.log(2)]])


def test_embeddings_of_groups_are_close_inside_and_orthogonal_between():
    matrix = sp.csr_array(np.kron(np.eye(3), np.ones((8, 8))))
    S = graph.cosine(walk_embedding(matrix, dimension=3))
    same = np.kron(np.eye(3), np.ones((8, 8))) > 0
    assert S[same].min() > 0.95
    assert np.abs(S[~same]).max() < 0.05


def test_a_seed_fixes_the_embedding():
    first, again, other = (walk_embedding(two_groups(), random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0
    torch.testing.assert_close(make("deepwalk").embedding, make("deepwalk").embedding, atol=0, rtol=0)


def test_isolated_annotators_get_vectors_as_long_as_others_and_of_their_own():
    matrix = sp.csr_array(linalg.block_diag(np.ones((10, 10)), np.ones((10, 10)), np.eye(400)))
    embedding = walk_embedding(matrix, dimension=16, walks=5)
    lengths = np.linalg.norm(embedding, axis=1)
    assert np.mean(lengths[:20] ** 2) == pytest.approx(16)
    deviation = np.sqrt(2 / (400 * 16))  # of a mean of 6,400 squares of normal numbers
    assert np.mean(lengths[20:] ** 2) == pytest.approx(16, rel=5 * deviation)
    assert np.linalg.matrix_rank(embedding[20:30]) == 10


def test_a_graph_without_edges_still_gives_heads():
    heads = make("deepwalk", sp.csr_array(np.eye(4))).heads()
    assert torch.isfinite(heads).all()
    assert (heads[0] - heads[1]).abs().max() > 0


def test_lanczos_and_lapack_give_the_same_embedding_up_to_rotation(monkeypatch):
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(np.kron(np.eye(4), np.ones((10, 10))) * rng.random((40, 40)))
    exact = walk_embedding(matrix, dimension=4)
    monkeypatch.setattr("crowdwise.graph._largest.DENSE_SVD", 10)
    np.testing.assert_allclose(exact @ exact.T, (e := walk_embedding(matrix, dimension=4)) @ e.T, atol=1e-6)


def test_the_embedding_is_constant_and_the_bias_starts_at_the_residual():
    heads = make("deepwalk", residual=True)
    assert isinstance(heads, DeepWalkHeads)
    assert "embedding" not in dict(heads.named_parameters())
    with torch.no_grad():
        heads.last.zero_()
    torch.testing.assert_close(heads.heads(), heads.residual.expand(R, -1, -1, -1))


def test_the_last_convolution_of_a_few_annotators_equals_that_of_all(monkeypatch):
    monkeypatch.setattr("crowdwise.graph.mappings.gcn.DENSE_LIMIT", 10)
    matrix = sp.random_array(
        (200, 200), density=0.05, random_state=np.random.default_rng(0), format="csr"
    ) + sp.eye_array(200)
    heads = GCNHeads.from_graph(sp.csr_array(matrix), 3, 2, hidden=4)
    g, row, annotator = torch.randn(5, 4), torch.tensor([0, 0, 1, 4, 2]), torch.tensor([7, 199, 7, 0, 31])
    found = {}
    for limit in (1000, 100):
        monkeypatch.setattr("crowdwise.graph.mappings.gcn.ROWS_BEYOND", limit)
        heads.zero_grad()
        logits = heads.pair_logits(g, row, annotator)
        logits.square().sum().backward()
        found[limit] = [logits.detach(), heads.first.grad.clone(), heads.last.grad.clone()]
    for all_rows, few_rows in zip(found[1000], found[100], strict=True):
        torch.testing.assert_close(few_rows, all_rows)
    assert heads.pair_logits(g, row[:0], annotator[:0]).shape == (0, 2, 2)
