"""Factored heads are full heads of low rank: same logits, gradients, similarities and training, in far less memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from crowdwise import graph
from crowdwise.networks import FactoredHeads, GlobalHead, IndividualHeads
from crowdwise.networks import factored as factored_module
from crowdwise.networks.transition import append_one, corrected_loss, row_loss
from head_pairs import B, C, D, random_pairs

R, RANK = 5, 2
SIZE = (D + 1) * C * C


@pytest.fixture
def pairs():
    return random_pairs(R)


def factored(rank: int = RANK, scale: float = 1.0) -> tuple[FactoredHeads, GlobalHead]:
    torch.manual_seed(0)
    head = GlobalHead(D, C).double()
    heads = FactoredHeads.from_global(head, R, rank).double()
    torch.nn.init.normal_(heads.scores, std=scale)
    return heads, head


def full(heads: FactoredHeads) -> IndividualHeads:
    """Full heads with the same values."""
    same = IndividualHeads(R, D, C).double()
    with torch.no_grad():
        same.theta.copy_(heads.residual + torch.einsum("jz,zdpq->jdpq", heads.scores, heads.last))
    return same


@pytest.mark.parametrize(("heads_first", "waste"), [(False, 1000), (False, 0), (True, 0)])
def test_logits_and_gradients_are_those_of_full_heads(pairs, heads_first, waste, monkeypatch):
    g, row, annotator, label, target = pairs
    monkeypatch.setattr(FactoredHeads, "heads_first", lambda *_: heads_first)
    monkeypatch.setattr(factored_module, "_WASTE", waste)  # 0: groups of unequal size, one after the other
    heads, _ = factored()
    same = full(heads)
    class_logits = torch.randn(B, C, dtype=torch.float64)
    for loss in (
        lambda h: corrected_loss(class_logits, h.pair_logits(g, row, annotator), row, label).mean(),
        lambda h: row_loss(h.row_logits(g, target, row, annotator), label).mean(),
    ):
        torch.testing.assert_close(loss(heads), loss(same))
        by_theta = torch.autograd.grad(loss(same), same.theta)[0].flatten(1)  # the chain rule, from the full heads
        by_scores, by_last, by_start = torch.autograd.grad(loss(heads), [heads.scores, heads.last, heads.residual])
        torch.testing.assert_close(by_scores, by_theta @ heads.last.flatten(1).T)
        torch.testing.assert_close(by_last.flatten(1), heads.scores.T @ by_theta)
        torch.testing.assert_close(by_start.flatten(), by_theta.sum(0))


def test_gradients_equal_finite_differences(pairs):
    g, row, annotator, _, target = pairs
    heads, _ = factored()
    names = ("scores", "last", "residual")

    def logits(*values):
        at = dict(zip(names, values, strict=True))
        return torch.func.functional_call(heads, at, (), {"g": g, "target": target, "row": row, "annotator": annotator})

    heads.forward = heads.row_logits
    assert torch.autograd.gradcheck(logits, tuple(getattr(heads, name).detach().requires_grad_() for name in names))


def test_they_start_at_the_global_head_and_every_factor_can_leave(pairs):
    g, row, annotator, label, _ = pairs
    heads, head = factored(scale=0.0)
    torch.testing.assert_close(heads.pair_logits(g, row, annotator), head.pair_logits(g, row, annotator))
    row_loss(heads.pair_logits(g, row, annotator)[:, 0], label).mean().backward()
    assert heads.scores.grad.abs().sum() > 0


def test_enough_rank_can_be_any_full_heads(pairs):
    """With an orthonormal basis of everything, U = (theta - theta_0) V^T gives any theta."""
    g, row, annotator, _, _ = pairs
    heads, _ = factored(rank=10 * SIZE)
    assert heads.last.shape == (SIZE, D + 1, C, C)  # more would be of no use
    wanted = IndividualHeads(R, D, C).double()
    torch.nn.init.normal_(wanted.theta)
    with torch.no_grad():
        heads.scores.copy_((wanted.theta - heads.residual).flatten(1) @ heads.last.flatten(1).T)
    torch.testing.assert_close(heads.heads(), wanted.theta, atol=1e-5, rtol=1e-5)  # V was rounded to float32
    expected = wanted.pair_logits(g, row, annotator)
    torch.testing.assert_close(heads.pair_logits(g, row, annotator), expected, atol=1e-5, rtol=1e-5)


def test_with_enough_rank_training_the_scores_is_training_full_heads(pairs):
    g, row, annotator, label, target = pairs
    heads, head = factored(rank=SIZE, scale=0.0)
    same = IndividualHeads.from_global(head, R).double()
    for parameter, module in ((heads.scores, heads), (same.theta, same)):
        optimiser = torch.optim.SGD([parameter], lr=0.5, momentum=0.9)
        for _ in range(5):
            optimiser.zero_grad()
            row_loss(module.row_logits(g, target, row, annotator), label).mean().backward()
            optimiser.step()
    torch.testing.assert_close(heads.heads(), same.theta)


def test_aligned_directions_are_the_singular_vectors_of_the_annotators_gradients(pairs):
    g, _, _, _, _ = pairs
    generator = torch.Generator().manual_seed(1)
    row = torch.randint(B, (60,), generator=generator)
    annotator, label = torch.randint(R, (60,), generator=generator), torch.randint(C, (60,), generator=generator)
    target = torch.randint(C, (60,), generator=generator)
    heads, head = factored(scale=0.0)
    gradients = []
    for j in range(R):
        theta, mine = head.theta.detach().clone().requires_grad_(), annotator == j
        logits = torch.einsum("ed,deq->eq", g[row[mine]], theta[:, target[mine]])
        gradients.append(torch.autograd.grad(F.cross_entropy(logits, label[mine]), theta)[0].flatten())
    right = torch.linalg.svd(torch.stack(gradients), full_matrices=False).Vh[:RANK]
    heads.align(g, row, target, annotator, label, rounds=60)
    found = heads.last.detach().flatten(1)
    torch.testing.assert_close(found @ found.T, torch.eye(RANK, dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.svdvals(found @ right.T), torch.ones(RANK, dtype=torch.float64))
    assert heads.scores.abs().sum() == 0


@pytest.mark.parametrize("similarity", ["delta-cosine", "cosine", "l1-normalised"])
@pytest.mark.parametrize("moved", [False, True])
def test_similarities_are_those_of_the_full_heads(similarity, moved):
    heads, head = factored(scale=1e-3)
    with torch.no_grad():
        heads.scores[2] = 0
        if moved:  # the shared start was trained on, as in the reference protocol
            heads.residual += 1e-3 * torch.randn_like(heads.residual)
    vectors = {}
    for each in (heads, full(heads)):
        found, origin = each.coordinates(head.theta)
        norms = each.l1_norms() if similarity == "l1-normalised" else None
        vectors[type(each)] = graph.SIMILARITIES[similarity](graph.Evidence(found, origin, norms))
    assert vectors[FactoredHeads].shape == (R, RANK + 2)
    products = [v @ v.T for v in vectors.values()]
    np.testing.assert_allclose(products[0], products[1], atol=1e-9)
    if similarity == "delta-cosine" and not moved:
        np.testing.assert_array_equal(products[0][2], 0)  # never left the global head, and is similar to nobody


def test_saved_heads_are_the_same_heads(pairs):
    g, row, annotator, _, _ = pairs
    heads, _ = factored()
    loaded = FactoredHeads.from_saved(heads.state_dict()).double()
    loaded.load_state_dict(heads.state_dict())
    torch.testing.assert_close(loaded.pair_logits(g, row, annotator), heads.pair_logits(g, row, annotator))
    left, right = heads.factors()
    np.testing.assert_allclose(np.einsum("jz,zdpq->jdpq", left, right), heads.heads().detach().numpy())


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that is made inside."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, torch.Tensor):
                self.entries = max(self.entries, each.numel())
        return result


@pytest.mark.parametrize("n_annotators", [20_000, 100_000])
def test_no_tensor_of_a_step_is_larger_than_the_scores_or_the_annotated_pairs(n_annotators):
    width, n_classes, rank, batch = 64, 10, 16, 128
    heads = FactoredHeads.from_global(GlobalHead(width, n_classes), n_annotators, rank)
    g, row = append_one(torch.randn(batch, width)), torch.arange(2 * batch) % batch
    annotator, label = torch.randint(n_annotators, (2 * batch,)), torch.randint(n_classes, (2 * batch,))
    optimiser = torch.optim.SGD(heads.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    with Largest() as seen:
        logits = heads.pair_logits(g, row, annotator)
        corrected_loss(torch.randn(batch, n_classes), logits, row, label).mean().backward()
        optimiser.step()
    assert seen.entries <= max(n_annotators * rank, 2 * batch * rank * n_classes**2)
    assert seen.entries < batch * n_annotators
    assert seen.entries < n_annotators * (width + 1) * n_classes**2 / 10  # full heads


def test_with_many_classes_fewer_annotations_are_evaluated_at_once():
    assert FactoredHeads.from_global(GlobalHead(4, 10), 3, 16).pairs_at_once == 62_500
    assert FactoredHeads.from_global(GlobalHead(4, 100), 3, 16).pairs_at_once == 1024
