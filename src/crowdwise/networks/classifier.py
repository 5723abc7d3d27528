"""The classification network f(x; phi)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from crowdwise.networks.backbones import build_backbone
from crowdwise.networks.layers import StackedLinear, in_turn


class Classifier(nn.Module):
    """Backbone and a linear layer: logits (B, C). The linear layer always runs in full precision."""

    def __init__(
        self,
        backbone: str | nn.Module,
        shape: tuple[int, ...],
        n_classes: int,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.backbone, width = build_backbone(backbone, shape, options)
        self.linear: nn.Linear | StackedLinear = nn.Linear(width, n_classes)

    def features(self, x: Tensor) -> Tensor:  # (B, d)
        features: Tensor = self.backbone(x)
        return features.float()

    def forward(self, x: Tensor) -> Tensor:  # (B, C)
        features = self.features(x)
        with torch.autocast(x.device.type, enabled=False):
            logits: Tensor = self.linear(features)
        return logits

    def for_many(self) -> Callable[[Tensor], Tensor]:
        """The same function of many batches, with the weights as they are now; quicker in evaluation on the CPU.

        The last product is transposed there, as one with few columns takes four times as long as one with few rows.
        """
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()[:, None]  # (C, d), (C, 1)
        if self.training or torch.is_autocast_enabled("cpu") or weight.device.type != "cpu":
            return self
        features = in_turn(self.backbone)
        return lambda x: torch.addmm(bias, weight, features(x).float().T).T

    def sharpen(self, factor: float) -> None:
        """Multiply all logits by ``factor``."""
        with torch.no_grad():
            self.linear.weight.mul_(factor)
            self.linear.bias.mul_(factor)

    @property
    def width(self) -> int:
        """d, the number of features."""
        return self.linear.in_features
