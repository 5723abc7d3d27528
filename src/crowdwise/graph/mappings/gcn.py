"""The graph convolution: the mapping function of the TAIDTM paper (section 3.4)."""

from __future__ import annotations

import warnings
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.graph.mappings.base import MAPPINGS, MappedHeads
from crowdwise.graph.purify import normalise

DENSE_LIMIT = 2048  # annotators up to which the normalised graph is a dense matrix
ROWS_BEYOND = 10_000  # annotators beyond which, on the CPU, the last convolution is computed only for those in a batch


class SparseProduct(torch.autograd.Function):
    """A @ H for a constant CSR matrix; the gradient uses a transpose prepared once."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:
        ctx.save_for_backward(transposed)
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:
        (transposed,) = ctx.saved_tensors
        return None, None, transposed @ gradient.contiguous()


class RowsProduct(torch.autograd.Function):
    """A @ H for a few rows of a constant matrix, on the CPU, without a prepared transpose."""

    @staticmethod
    def forward(ctx: Any, matrix: sp.csr_array, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return torch.from_numpy(matrix @ dense.detach().numpy())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, torch.from_numpy(ctx.matrix.T @ gradient.contiguous().numpy())


class NormalisedGraph(nn.Module):
    """The normalised annotator graph, a constant: ``graph(H)`` is A_hat @ H for H (R, Z)."""

    matrix: Tensor
    forward_indptr: Tensor
    forward_indices: Tensor
    forward_values: Tensor

    def __init__(self, matrix: sp.csr_array) -> None:
        super().__init__()
        self.dense = matrix.shape[0] <= DENSE_LIMIT
        self._first: Tensor | None = None
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

    def alike(self, annotator: Tensor) -> Tensor:
        """For each of annotators (P,) the first with the same row; in a large graph itself."""
        if not self.dense:
            return annotator
        if self._first is None:  # not before use: a model that is being loaded has no values yet
            self._first = first_equal(self.matrix)
        return self._first[annotator]

    def rows(self, annotator: Tensor, hidden: Tensor) -> Tensor:
        """The rows of A_hat @ H for annotators (P,), (P, Z); only these are computed if they are few in a large crowd."""
        size = len(hidden)
        if self.dense and len(annotator) < size:
            return self.matrix.index_select(0, annotator) @ hidden
        if self.dense or hidden.is_cuda or size <= ROWS_BEYOND or 4 * len(annotator) > size:
            return cast(Tensor, self(hidden)).index_select(0, annotator)
        used, place = torch.unique(annotator, return_inverse=True)
        indptr, indices, values = self.forward_indptr, self.forward_indices, self.forward_values
        counts = indptr.diff()[used]
        stops = counts.cumsum(0)
        at = torch.arange(int(counts.sum())) + (indptr[used] - stops + counts).repeat_interleave(counts)
        parts = (values[at].numpy(), indices[at].numpy(), F.pad(stops, (1, 0)).numpy())
        product: Tensor = RowsProduct.apply(sp.csr_array(parts, shape=(len(used), size)), hidden)  # type: ignore[no-untyped-call]
        return product.index_select(0, place)


@MAPPINGS.register("gcn")
class GCNHeads(MappedHeads):
    """Heads by a graph convolutional network over annotators (Kipf & Welling, ICLR 2017; the paper's Eq. 7 and L3).

    H^0 = I_R; two layers: H_bar = A_hat LeakyReLU(A_hat W^0) with W^0 (R, Z); one layer: H_bar = A_hat. No bias, no
    activation after the last layer. W^0 starts uniform in +-1/sqrt(Z).

    One layer has a head's worth of weights W^0 (R, (d+1) C^2) for every annotator. With ``rank`` they are a product
    U V, U (R, rank) and V (rank, d+1, C, C), and the convolution acts on U alone: Theta = (A_hat U) V.
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
        rank: int | None = None,
    ) -> None:
        """``graph`` is normalised, A_hat."""
        n_annotators = graph.shape[0]
        inner = hidden if layers == 2 else rank or n_annotators
        super().__init__(n_annotators, inner, width, n_classes, residual)
        self.graph = NormalisedGraph(graph)
        self.register_parameter("first", None)
        self.register_parameter("factor", None)
        if layers == 2:
            self.first = nn.Parameter(torch.empty(n_annotators, hidden).uniform_(-1, 1) / hidden**0.5)
        elif rank is not None:  # entries of U V have the variance of those of V
            self.factor = nn.Parameter(torch.empty(n_annotators, rank).uniform_(-1, 1) * (3 / rank) ** 0.5)

    @classmethod
    def from_graph(
        cls, graph: sp.csr_array, width: int, n_classes: int, *, norm: str = "ref", layers: int = 2, **options: Any
    ) -> Self:
        """``norm`` is as in `crowdwise.graph.normalise`; ``layers`` is 1 or 2."""
        return cls(normalise(graph, cast(Any, norm)), width, n_classes, layers=layers, **options)

    @classmethod
    def from_saved(cls, tensors: dict[str, Tensor]) -> Self:
        hidden, d, n_classes, _ = tensors["last"].shape
        layers = 2 if "first" in tensors else 1
        rank = hidden if "factor" in tensors else None
        residual = tensors.get("residual")
        return cls(_saved_graph(tensors), d - 1, n_classes, layers=layers, hidden=hidden, residual=residual, rank=rank)

    def hidden(self) -> Tensor:
        if self.factor is not None:
            return cast(Tensor, self.graph(self.factor))
        if self.first is None:
            return self.graph(torch.eye(self.n_annotators, device=self.last.device))
        h_bar: Tensor = self.graph(F.leaky_relu(self.graph(self.first), 0.2))
        return h_bar

    def hidden_of(self, annotator: Tensor) -> Tensor:
        if self.first is None:
            return super().hidden_of(annotator)
        return self.graph.rows(annotator, F.leaky_relu(self.graph(self.first), 0.2))

    def alike(self, annotator: Tensor) -> Tensor:
        return self.graph.alike(annotator)

    def product_of(self, annotator: Tensor) -> Tensor:
        if self._full:
            return self.graph.rows(annotator, self.last.flatten(1))
        return super().product_of(annotator)

    def product(self) -> Tensor:
        return cast(Tensor, self.graph(self.last.flatten(1))) if self._full else super().product()

    def heads_first(self, n_instances: int, n_pairs: int, share: float = 1.0) -> bool:
        # with one full layer Z = R, and instances first would need products with all of A_hat
        return self._full or super().heads_first(n_instances, n_pairs, share)

    @property
    def _full(self) -> bool:
        """Whether the last layer has a row for each annotator."""
        return self.first is None and self.factor is None


def first_equal(matrix: Tensor) -> Tensor:
    """For each row of a matrix (R, M) the number of the first row that equals it, (R,).

    >>> first_equal(torch.tensor([[1, 2], [3, 4], [1, 2]])).tolist()
    [0, 1, 0]
    """
    first: dict[bytes, int] = {}
    rows = np.ascontiguousarray(matrix.cpu().numpy())
    return torch.tensor([first.setdefault(row.tobytes(), number) for number, row in enumerate(rows)])


def _saved_graph(tensors: dict[str, Tensor]) -> sp.csr_array:
    if "graph.matrix" in tensors:
        return sp.csr_array(tensors["graph.matrix"].numpy())
    parts = [tensors[f"graph.forward_{part}"].numpy() for part in ("values", "indices", "indptr")]
    size = len(parts[2]) - 1
    return sp.csr_array(tuple(parts), shape=(size, size))
