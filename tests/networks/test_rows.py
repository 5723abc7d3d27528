"""What has a form of its own on the CPU, beside the usual one: losses with derivatives written out, dropout."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from crowdwise.networks import transition
from crowdwise.networks.layers import ByteDropout
from crowdwise.networks.rows import few_log_softmax, few_softmax
from crowdwise.networks.transition import corrected_loss, pair_products


def test_softmax_over_few_classes_is_the_usual_one():
    x = 30 * torch.randn(7, 4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(few_softmax(x), torch.softmax(x, 2))
    log_p, p = few_log_softmax(x)
    torch.testing.assert_close(log_p, torch.log_softmax(x, 2))
    torch.testing.assert_close(p, torch.softmax(x, 2))


def test_corrected_loss_and_its_derivatives():
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(6, 4, generator=generator, requires_grad=True)
    t = torch.randn(11, 4, 4, generator=generator, requires_grad=True)
    row, label = (torch.randint(high, (11,), generator=generator) for high in (6, 4))
    weight = torch.rand(11, generator=generator)
    found = corrected_loss(f, t, row, label)
    log_t = F.log_softmax(t, 2)[torch.arange(11), :, label]
    expected = -torch.logsumexp(F.log_softmax(f, 1)[row] + log_t, 1)
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(
        torch.autograd.grad((found * weight).sum(), (f, t)),
        torch.autograd.grad((expected * weight).sum(), (f, t)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("call", [0, 20, 10**9])  # every annotator on its own, the first of them, all at once
def test_products_of_pairs_and_their_derivatives(call, monkeypatch):
    monkeypatch.setattr(transition, "_CALL", call)
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(5, 3, generator=generator, requires_grad=True)
    theta = torch.randn(4, 3, 6, generator=generator, requires_grad=True)
    row, annotator = torch.tensor([0, 4, 4, 2, 1, 0]), torch.tensor([3, 0, 3, 0, 0, 3])  # nobody is annotator 1 or 2
    slope = torch.randn(6, 6, generator=generator)
    found = pair_products(g, theta, row, annotator)
    expected = torch.einsum("pd,pdm->pm", g[row], theta[annotator])
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(
        torch.autograd.grad((found * slope).sum(), (g, theta)),
        torch.autograd.grad((expected * slope).sum(), (g, theta)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("p", [0.0, 1e-3, 0.25, 0.5, 0.999, 1.0])
def test_bytes_decide_what_is_dropped_and_the_mean_stays(p):
    torch.manual_seed(0)
    dropout = ByteDropout(p)
    values = dropout(torch.ones(3, 7, 10_001))
    assert (values == 0).float().mean().item() == pytest.approx(p, abs=0.004)
    assert values.mean().item() == pytest.approx(1 if p < 1 else 0, abs=0.01 if p < 0.9 else 0.1)
    assert torch.equal(dropout.eval()(values), values)
