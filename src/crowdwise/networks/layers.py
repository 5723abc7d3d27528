"""Layers that stand for several layers of the same kind."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """K linear layers: (K, B, in) -> (K, B, out)."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.in_features, self.out_features = layers[0].in_features, layers[0].out_features
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))  # (K, in, out)
        self.bias = nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in layers]))  # (K, 1, out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)
