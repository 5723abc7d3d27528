"""Stacked layers, in the order of products that suits their width."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crowdwise.networks.layers import StackedLinear


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
