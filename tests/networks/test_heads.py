"""Heads evaluate annotated pairs only; these tests compare them with the dense tensors that they avoid."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from crowdwise import graph
from crowdwise.graph.mappings import GCNHeads
from crowdwise.networks import GlobalHead, IndividualHeads
from crowdwise.networks.transition import append_one, corrected_loss, row_loss
from head_pairs import B, C, D, P, random_pairs

R = 5


@pytest.fixture
def pairs():
    return random_pairs(R)


def random_graph(size: int = R) -> sp.csr_array:
    dense = np.random.default_rng(1).random((size, size)) * (np.random.default_rng(2).random((size, size)) < 0.6)
    return graph.normalise(graph.add_self_loops(sp.csr_array(dense)), "ref")


def dense_theta(heads: GCNHeads, matrix: sp.csr_array) -> torch.Tensor:
    """The definition: Theta = A_hat LeakyReLU(A_hat W^0) W^1, all R heads at once."""
    a_hat = torch.tensor(matrix.toarray())
    if heads.first is None:
        theta = a_hat @ heads.last.flatten(1)
    else:
        theta = a_hat @ F.leaky_relu(a_hat @ heads.first, 0.2) @ heads.last.flatten(1)
    theta = theta.unflatten(1, heads.last.shape[1:])
    return theta if heads.residual is None else theta + heads.residual


def dense_logits(theta: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bd,jdpq->bjpq", g, theta)  # (B, R, C, C), what is never formed


def gcn(layers: int, residual: bool) -> tuple[GCNHeads, sp.csr_array]:
    matrix = random_graph()
    start = torch.randn(D + 1, C, C) if residual else None
    heads = GCNHeads(matrix, D, C, layers=layers, hidden=6, residual=start).double()
    heads.graph.matrix = torch.tensor(matrix.toarray())
    return heads, matrix


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("heads_first", [False, True])
def test_sparse_pairs_equal_dense_evaluation(pairs, layers, residual, heads_first, monkeypatch):
    if layers == 1 and not heads_first:
        pytest.skip("one layer has only one order")
    g, row, annotator, label, target = pairs
    heads, matrix = gcn(layers, residual)
    monkeypatch.setattr(GCNHeads, "heads_first", lambda *_: heads_first)
    g = g.clone().requires_grad_()
    parameters = [g, *heads.parameters()]
    expected = dense_logits(dense_theta(heads, matrix), g)[row, annotator]
    actual = heads.pair_logits(g, row, annotator)
    torch.testing.assert_close(actual, expected)
    class_logits = torch.randn(B, C, dtype=torch.float64)
    gradients = [
        torch.autograd.grad(corrected_loss(class_logits, logits, row, label).mean(), parameters)
        for logits in (actual, expected)
    ]
    for sparse, dense in zip(*gradients, strict=True):
        torch.testing.assert_close(sparse, dense)
    expected_rows = dense_logits(dense_theta(heads, matrix), g)[row, annotator, target[row]]
    rows = heads.row_logits(g, target, row, annotator)
    torch.testing.assert_close(rows, expected_rows)
    gradients = [torch.autograd.grad(row_loss(logits, label).mean(), parameters) for logits in (rows, expected_rows)]
    for sparse, dense in zip(*gradients, strict=True):
        torch.testing.assert_close(sparse, dense)


def test_annotators_with_equal_rows_share_a_head_that_is_computed_once(pairs, monkeypatch):
    g, row, annotator, *_ = pairs
    matrix = random_graph().toarray()
    matrix[1::2] = matrix[1]
    heads = GCNHeads(sp.csr_array(matrix), D, C, hidden=6)
    monkeypatch.setattr(GCNHeads, "heads_first", lambda *_: True)
    theta, which = heads._heads_of(annotator)
    assert len(theta) == len(set(torch.where(annotator % 2 == 1, 1, annotator).tolist()))
    torch.testing.assert_close(theta[which], heads.heads()[annotator])
    expected = dense_logits(heads.heads(), g.float())[row, annotator]
    torch.testing.assert_close(heads.pair_logits(g.float(), row, annotator), expected)


def test_the_cheaper_order_is_chosen():
    few = GCNHeads(random_graph(5), 64, 10, hidden=64)
    many = GCNHeads(random_graph(300), 64, 10, hidden=64)
    assert few.heads_first(128, 256)
    assert not many.heads_first(128, 256)
    assert not few.heads_first(128, 256, share=1 / 100)  # one row of many is cheap by instances


def test_a_large_graph_stays_sparse_and_gives_the_same_heads(monkeypatch):
    matrix = random_graph(40)
    torch.manual_seed(0)
    dense = GCNHeads(matrix, D, C, hidden=6)
    monkeypatch.setattr("crowdwise.graph.mappings.gcn.DENSE_LIMIT", 10)
    sparse = GCNHeads(matrix, D, C, hidden=6)
    assert not sparse.graph.dense
    sparse.load_state_dict({**sparse.state_dict(), "first": dense.first, "last": dense.last})
    torch.testing.assert_close(sparse.heads(), dense.heads())
    for network in (sparse, dense):
        network.heads().square().sum().backward()
    torch.testing.assert_close(sparse.first.grad, dense.first.grad)
    torch.testing.assert_close(sparse.last.grad, dense.last.grad)


def test_example_of_the_papers_appendix_groups_share_a_head():
    """A_hat = blockdiag(1/2, 1/2), one layer: both annotators of a group get the mean of their weights."""
    matrix = sp.csr_array(np.kron(np.eye(2), np.full((2, 2), 0.5)))
    heads = GCNHeads(matrix, D, C, layers=1)
    theta = heads.heads()
    torch.testing.assert_close(theta[0], 0.5 * (heads.last[0] + heads.last[1]))
    torch.testing.assert_close(theta[1], theta[0])
    torch.testing.assert_close(theta[2], 0.5 * (heads.last[2] + heads.last[3]))
    torch.testing.assert_close(theta[3], theta[2])


def test_an_isolated_annotator_learns_alone():
    matrix = sp.csr_array(np.eye(3))
    heads = GCNHeads(matrix, D, C, layers=1)
    torch.testing.assert_close(heads.heads(), heads.last)


def test_close_heads_give_close_logits(pairs):
    """Corollary of Theorem 3: |t^j - t^i| <= |theta_j - theta_i| |g|."""
    g, *_ = pairs
    theta = torch.randn(2, D + 1, C, C, dtype=torch.float64)
    logits = dense_logits(theta, g)
    difference = (logits[:, 0] - logits[:, 1]).flatten(1).norm(dim=1)
    assert (difference <= (theta[0] - theta[1]).norm() * g.norm(dim=1) + 1e-12).all()


def test_individual_heads_equal_dense_evaluation(pairs):
    g, row, annotator, _, target = pairs
    heads = IndividualHeads(R, D, C).double()
    torch.nn.init.normal_(heads.theta)
    expected = dense_logits(heads.theta, g)
    torch.testing.assert_close(heads.pair_logits(g, row, annotator), expected[row, annotator])
    torch.testing.assert_close(heads.row_logits(g, target, row, annotator), expected[row, annotator, target[row]])


def test_equal_heads_give_the_loss_of_the_global_head(pairs):
    """TAIDTM-FT with all heads equal to the global one is BLTM."""
    g, row, annotator, label, _ = pairs
    head = GlobalHead(D, C).double()
    heads = IndividualHeads.from_global(head, R).double()
    class_logits = torch.randn(B, C, dtype=torch.float64)
    losses = [corrected_loss(class_logits, h.pair_logits(g, row, annotator), row, label) for h in (head, heads)]
    torch.testing.assert_close(losses[0], losses[1])


def test_only_the_row_of_the_distilled_label_gets_a_gradient(pairs):
    g, row, annotator, label, _ = pairs
    head = GlobalHead(D, C).double()
    target = torch.zeros(B, dtype=torch.int64)
    row_loss(head.row_logits(g, target, row, annotator), label).mean().backward()
    assert head.theta.grad[:, 0].abs().sum() > 0
    assert head.theta.grad[:, 1:].abs().sum() == 0


def test_logits_of_zero_give_ln_c(pairs):
    _, _, _, label, _ = pairs
    losses = row_loss(torch.zeros(P, C), label)
    torch.testing.assert_close(losses, torch.full((P,), np.log(C), dtype=torch.float32))


def test_corrected_loss_with_identity_is_cross_entropy(pairs):
    _, row, _, label, _ = pairs
    class_logits = torch.randn(B, C)
    identity = torch.where(torch.eye(C) > 0, 0.0, -1e9).expand(P, C, C)
    expected = F.cross_entropy(class_logits[row], label, reduction="none")
    torch.testing.assert_close(corrected_loss(class_logits, identity, row, label), expected)


def test_a_batch_without_annotations_has_no_loss_and_no_nan():
    heads, _ = gcn(2, False)
    none = torch.zeros(0, dtype=torch.int64)
    g = append_one(torch.randn(B, D, dtype=torch.float64))
    losses = corrected_loss(torch.randn(B, C), heads.pair_logits(g, none, none), none, none)
    assert losses.shape == (0,)
    assert losses.sum() == 0
