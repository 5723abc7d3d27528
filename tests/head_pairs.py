"""Annotated pairs on which heads are evaluated."""

from __future__ import annotations

import torch
from torch import Tensor

from crowdwise.networks.transition import append_one

B, C, D, P = 7, 3, 4, 11


def random_pairs(annotators: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Features (B, D + 1) of a batch, P pairs (row, annotator, label), and the batch's true classes (B,)."""
    generator = torch.Generator().manual_seed(0)
    g = append_one(torch.randn(B, D, generator=generator, dtype=torch.float64))
    row = torch.randint(B, (P,), generator=generator)
    annotator = torch.randint(annotators, (P,), generator=generator)
    label = torch.randint(C, (P,), generator=generator)
    target = torch.randint(C, (B,), generator=generator)
    return g, row, annotator, label, target
