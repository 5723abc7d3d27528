"""Stacked layers, in the order of products that suits their width."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crowdwise.networks.layers import StackedLinear
from tolerances import SINGLE


@pytest.mark.parametrize("width", [1, 8, 15, 16])
def test_stacked_layers_and_their_derivatives_are_those_of_the_layers(width):
    torch.manual_seed(0)
    layers = [nn.Linear(5, width) for _ in range(3)]
    stacked = StackedLinear(layers)
    x = torch.randn(3, 7, 5, requires_grad=True)
    slope = torch.randn(3, 7, width)
    expected = torch.stack([layer(part) for layer, part in zip(layers, x, strict=True)])
    torch.testing.assert_close(stacked(x), expected)
    (by_x,) = torch.autograd.grad(expected, x, slope, retain_graph=True)
    expected.backward(slope, inputs=[p for layer in layers for p in layer.parameters()])
    found = torch.autograd.grad(stacked(x), [x, stacked.weight, stacked.bias], slope)
    torch.testing.assert_close(found[0], by_x)
    torch.testing.assert_close(found[1], torch.stack([layer.weight.grad.T for layer in layers]))
    torch.testing.assert_close(found[2], torch.stack([layer.bias.grad[None] for layer in layers]))


def test_narrow_layers_take_instances_that_all_networks_share():
    stacked = StackedLinear([nn.Linear(5, 2) for _ in range(3)])
    x = torch.randn(7, 5)
    torch.testing.assert_close(stacked(x.expand(3, 7, 5)), x @ stacked.weight + stacked.bias)


def test_products_in_half_precision_are_nearly_those_in_full():
    torch.manual_seed(0)
    stacked = StackedLinear([nn.Linear(200, 30) for _ in range(3)])
    x, slope = torch.randn(50, 200).expand(3, 50, 200), torch.randn(3, 50, 30)
    parameters = [stacked.weight, stacked.bias]
    full = stacked(x)
    by_full = torch.autograd.grad(full, parameters, slope)
    stacked.in_half = True
    half = stacked(x)
    assert half.dtype == torch.float32
    assert not torch.equal(half, full)
    torch.testing.assert_close(half, full, atol=0.02, rtol=0.02)
    by_half = torch.autograd.grad(half, parameters, slope)
    torch.testing.assert_close(by_half[0], by_full[0], atol=0.2, rtol=0.02)  # sums of 50 products around 1
    torch.testing.assert_close(by_half[1], by_full[1])


@pytest.mark.parametrize("width", [199, 200])
def test_half_precision_is_for_wide_layers_in_training_that_share_their_inputs(width):
    stacked = StackedLinear([nn.Linear(width, 20) for _ in range(2)])
    x = torch.randn(7, width)
    shared, own = x.expand(2, 7, width), torch.stack([x, x])
    full = stacked(own)
    stacked.in_half = True
    assert torch.equal(stacked(own), full)
    with torch.no_grad():
        torch.testing.assert_close(stacked(shared), full)
    distance = (stacked(shared) - full).abs().max()
    assert distance > 1e-4 if width == 200 else distance < SINGLE
