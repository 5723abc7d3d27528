"""What mapping functions share: heads as a product of two factors, one of them made from the annotator graph."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from crowdwise.networks.factored import ProductHeads
from crowdwise.registry import Registry


class MappedHeads(ProductHeads):
    """Heads Theta = H_bar W, with H_bar (R, Z) made from the annotator graph (`hidden`) and W (Z, d+1, C, C) learned.

    W starts uniform in +-1/sqrt((d+1) C^2). ``residual`` (d+1, C, C), usually the global head, is added to every head and
    trained further.

    A subclass defines `hidden`, `from_graph` and `from_saved`, and registers itself in `MAPPINGS`.
    """

    def __init__(self, n_annotators: int, hidden: int, width: int, n_classes: int, residual: Tensor | None) -> None:
        shape = (width + 1, n_classes, n_classes)
        last = torch.empty(hidden, *shape).uniform_(-1, 1) / float(np.prod(shape)) ** 0.5
        super().__init__(n_annotators, last, residual)

    @classmethod
    def from_graph(cls, *args: Any, **options: Any) -> Self:
        """Untrained heads over a graph with self loops: (graph (R, R), width, n_classes, *, hidden, residual, ...)."""
        raise NotImplementedError(f"{cls.__name__} must define from_graph()")

    @classmethod
    def from_saved(cls, tensors: dict[str, Tensor]) -> Self:
        """Heads for the saved state ``tensors``, with constants such as the graph taken from it."""
        raise NotImplementedError(f"{cls.__name__} must define from_saved()")


MAPPINGS: Registry[type[MappedHeads]] = Registry("mapping", "crowdwise.graph.mappings")
