"""What mapping functions share: heads as a product of two factors, evaluated at annotated pairs in the cheaper order."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.networks.transition import pair_products
from crowdwise.registry import Registry


class MappedHeads(nn.Module):
    """Heads Theta = H_bar W, with H_bar (R, Z) made from the annotator graph (`hidden`) and W (Z, d+1, C, C) learned.

    W starts uniform in +-1/sqrt((d+1) C^2). ``residual`` (of shape (d+1, C, C), usually the global head) is added to every
    head and trained on.

    Pair logits are sum_z H_bar[j, z] sum_d g[i, d] W[z, d, p, q], evaluated in the cheaper of two orders: all R heads first,
    then pairs; or instances first (g W), then pairs. Neither forms B x R matrices.

    A subclass writes `hidden`, `from_graph` and `from_saved`, and registers itself in `MAPPINGS`.
    """

    def __init__(self, n_annotators: int, hidden: int, width: int, n_classes: int, residual: Tensor | None) -> None:
        super().__init__()
        self.n_annotators = n_annotators
        shape = (width + 1, n_classes, n_classes)
        self.last = nn.Parameter(torch.empty(hidden, *shape).uniform_(-1, 1) / float(np.prod(shape)) ** 0.5)
        self.residual = None if residual is None else nn.Parameter(residual.detach().clone())

    @classmethod
    def from_graph(cls, *args: Any, **options: Any) -> Self:
        """Untrained heads over a graph with self loops: (graph (R, R), width, n_classes, *, hidden, residual, ...)."""
        raise NotImplementedError(f"{cls.__name__} does not say how it is made from a graph")

    @classmethod
    def from_saved(cls, tensors: dict[str, Tensor]) -> Self:
        """Heads into which the saved state ``tensors`` fits; their constants, the graph for instance, are read from it."""
        raise NotImplementedError(f"{cls.__name__} does not say how it is made from saved tensors")

    def hidden(self) -> Tensor:
        """H_bar (R, Z), the rows of which are multiplied with W."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its features of annotators are")

    def product(self) -> Tensor:
        """H_bar W, (R, (d+1) C^2)."""
        return self.hidden() @ self.last.flatten(1)

    def heads(self) -> Tensor:  # (R, d+1, C, C)
        """Theta, the head of every annotator."""
        theta = self.product().reshape(-1, *self.last.shape[1:])
        return theta if self.residual is None else theta + self.residual

    def heads_first(self, n_instances: int, n_pairs: int) -> bool:
        """Whether computing all R heads costs fewer multiplications than going through the instances."""
        hidden, d = self.last.shape[:2]
        return bool(self.n_annotators * hidden * d + n_pairs * d < n_instances * d * hidden + n_pairs * hidden)

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        n_classes = self.last.shape[-1]
        if self.heads_first(len(g), len(row)):
            return pair_products(g, self.heads().flatten(2), row, annotator).reshape(-1, n_classes, n_classes)
        by_instance = g @ self.last.transpose(0, 1).flatten(1)  # (B, Z*C*C)
        by_pair = by_instance.index_select(0, row).reshape(len(row), len(self.last), n_classes**2)  # (P, Z, C*C)
        logits = torch.bmm(self.hidden().index_select(0, annotator)[:, None], by_pair).squeeze(1)
        if self.residual is not None:
            logits = logits + (g @ self.residual.flatten(1))[row]
        return logits.reshape(-1, n_classes, n_classes)

    def row_logits(self, g: Tensor, target: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        if self.heads_first(len(g), len(row)):
            return torch.bmm(g[row, None], self.heads()[annotator, :, target[row]]).squeeze(1)
        by_instance = _by_instance(self.last, g, target)  # (B, Z, C)
        h_bar = self.hidden().index_select(0, annotator)
        logits = torch.bmm(h_bar[:, None], by_instance.index_select(0, row)).squeeze(1)
        if self.residual is not None:
            logits = logits + _by_instance(self.residual[None], g, target)[row, 0]
        return logits


MAPPINGS: Registry[type[MappedHeads]] = Registry("mapping", "crowdwise.graph.mappings")


def _by_instance(weight: Tensor, g: Tensor, target: Tensor) -> Tensor:
    """sum_d g[i, d] weight[z, d, y*_i, q] -> (B, Z, C), class by class; all classes at once where shapes must be static."""
    size, _, n_classes, _ = weight.shape
    if g.is_cuda:
        full = (g @ weight.transpose(0, 1).flatten(1)).reshape(-1, size, n_classes, n_classes)
        return full.gather(2, target[:, None, None, None].expand(-1, size, 1, n_classes)).squeeze(2)
    members = [torch.nonzero(target == p).squeeze(1) for p in range(n_classes)]
    parts = [g[at] @ weight[:, :, p].transpose(0, 1).flatten(1) for p, at in enumerate(members)]
    order = torch.argsort(torch.cat(members))
    return torch.cat(parts)[order].reshape(-1, size, n_classes)
