"""From the annotator graph to heads: the mapping functions of the second transfer (paper section 3.4)."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.networks.transition import pair_products
from crowdwise.registry import Registry

DENSE_LIMIT = 2048  # annotators up to which the normalised graph is held as a dense matrix

MAPPINGS: Registry[Callable[..., nn.Module]] = Registry("mapping")


class SparseProduct(torch.autograd.Function):
    """A @ H for a constant CSR matrix; the gradient uses the transpose that was prepared once."""

    @staticmethod
    def forward(ctx, matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:  # type: ignore[no-untyped-def,override]
        ctx.save_for_backward(transposed)
        return matrix @ dense

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[None, None, Tensor]:  # type: ignore[no-untyped-def,override]
        (transposed,) = ctx.saved_tensors
        return None, None, transposed @ gradient.contiguous()


class Graph(nn.Module):
    """The normalised annotator graph, constant in training: ``graph(H)`` is A_hat @ H for H (R, Z)."""

    matrix: Tensor

    def __init__(self, matrix: sp.csr_array) -> None:
        super().__init__()
        self.dense = matrix.shape[0] <= DENSE_LIMIT
        if self.dense:
            self.register_buffer("matrix", torch.tensor(matrix.toarray(), dtype=torch.float32))
            return
        for name, part in (("forward", matrix), ("backward", sp.csr_array(matrix.T))):
            self.register_buffer(f"{name}_indptr", torch.tensor(part.indptr, dtype=torch.int64))
            self.register_buffer(f"{name}_indices", torch.tensor(part.indices, dtype=torch.int64))
            self.register_buffer(f"{name}_values", torch.tensor(part.data, dtype=torch.float32))

    def _csr(self, name: str) -> Tensor:
        parts = [getattr(self, f"{name}_{part}") for part in ("indptr", "indices", "values")]
        size = len(parts[0]) - 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(parts[0], parts[1], parts[2], size=(size, size), check_invariants=False)

    def forward(self, hidden: Tensor) -> Tensor:
        if self.dense:
            return self.matrix @ hidden
        product: Tensor = SparseProduct.apply(self._csr("forward"), self._csr("backward"), hidden)  # type: ignore[no-untyped-call]
        return product


@MAPPINGS.register("gcn")
class GCNHeads(nn.Module):
    """Heads by a graph convolutional network over annotators (Kipf & Welling, ICLR 2017; the paper's Eq. 7 and L3).

    H^0 = I_R; two layers: Theta = A_hat LeakyReLU(A_hat W^0) W^1 with W^0 (R, Z) and W^1 (Z, d+1, C, C); one layer:
    Theta = A_hat W^0 with W^0 (R, d+1, C, C). No bias, no activation after the last layer. Starting values are uniform in
    +-1/sqrt(columns). ``residual`` (of shape (d+1, C, C), usually the global head) is added to every head and trained on.

    Pair logits are sum_z H_bar[j, z] sum_d g[i, d] W^1[z, d, p, q] with H_bar = A_hat H^1, evaluated in the cheaper of two
    orders: all R heads first, then pairs; or instances first (g W^1), then pairs. Neither forms B x R matrices.
    """

    def __init__(
        self,
        graph: sp.csr_array,
        width: int,
        n_classes: int,
        *,
        layers: int = 2,
        hidden: int = 64,
        residual: Tensor | None = None,
    ) -> None:
        super().__init__()
        n_annotators = graph.shape[0]
        self.graph = Graph(graph)
        head_shape = (width + 1, n_classes, n_classes)
        head_size = int(np.prod(head_shape))
        if layers == 2:
            self.first = nn.Parameter(torch.empty(n_annotators, hidden).uniform_(-1, 1) / hidden**0.5)
        else:
            self.register_parameter("first", None)
            hidden = n_annotators
        self.last = nn.Parameter(torch.empty(hidden, *head_shape).uniform_(-1, 1) / head_size**0.5)
        self.residual = None if residual is None else nn.Parameter(residual.detach().clone())

    def hidden(self) -> Tensor | None:
        """H_bar (R, Z), the rows of which are multiplied with W^1; None for one layer, where it is A_hat itself."""
        if self.first is None:
            return None
        h_bar: Tensor = self.graph(F.leaky_relu(self.graph(self.first), 0.2))
        return h_bar

    def heads(self) -> Tensor:  # (R, d+1, C, C)
        """Theta, the head of every annotator."""
        h_bar = self.hidden()
        flat = self.last.flatten(1)
        theta: Tensor = self.graph(flat) if h_bar is None else h_bar @ flat
        theta = theta.reshape(-1, *self.last.shape[1:])
        return theta if self.residual is None else theta + self.residual

    def heads_first(self, n_instances: int, n_pairs: int) -> bool:
        """Whether computing all R heads costs fewer multiplications than going through the instances."""
        if self.first is None:
            return True
        n_annotators, hidden = self.first.shape
        d = self.last.shape[1]
        return bool(n_annotators * hidden * d + n_pairs * d < n_instances * d * hidden + n_pairs * hidden)

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        n_classes = self.last.shape[-1]
        if self.heads_first(len(g), len(row)):
            return pair_products(g, self.heads().flatten(2), row, annotator).reshape(-1, n_classes, n_classes)
        h_bar = self.hidden()
        assert h_bar is not None
        by_instance = g @ self.last.transpose(0, 1).flatten(1)  # (B, Z*C*C)
        by_pair = by_instance.index_select(0, row).reshape(len(row), len(self.last), n_classes**2)  # (P, Z, C*C)
        logits = torch.bmm(h_bar.index_select(0, annotator)[:, None], by_pair).squeeze(1)
        if self.residual is not None:
            logits = logits + (g @ self.residual.flatten(1))[row]
        return logits.reshape(-1, n_classes, n_classes)

    def row_logits(self, g: Tensor, target: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        if self.heads_first(len(g), len(row)):
            return torch.bmm(g[row, None], self.heads()[annotator, :, target[row]]).squeeze(1)
        h_bar = self.hidden()
        assert h_bar is not None
        by_instance = self._by_instance(self.last, g, target)  # (B, Z, C)
        logits = torch.bmm(h_bar.index_select(0, annotator)[:, None], by_instance.index_select(0, row)).squeeze(1)
        if self.residual is not None:
            logits = logits + self._by_instance(self.residual[None], g, target)[row, 0]
        return logits

    @staticmethod
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
