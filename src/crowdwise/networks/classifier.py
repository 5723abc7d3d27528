"""The classification network f(x; phi)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from crowdwise.networks.backbones import build_backbone


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
        self.linear = nn.Linear(width, n_classes)

    def features(self, x: Tensor) -> Tensor:  # (B, d)
        features: Tensor = self.backbone(x)
        return features.float()

    def forward(self, x: Tensor) -> Tensor:  # (B, C)
        features = self.features(x)
        with torch.autocast(x.device.type, enabled=False):
            logits: Tensor = self.linear(features)
        return logits
