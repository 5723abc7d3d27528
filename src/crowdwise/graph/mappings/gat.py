"""Graph attention: the weights of neighbours are learned; in a graph convolution they come from the graph."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.errors import ConfigError
from crowdwise.graph.mappings.base import MAPPINGS, MappedHeads


@MAPPINGS.register("gat")
class GATHeads(MappedHeads):
    """Heads by a graph attention network over annotators (Velickovic et al., ICLR 2018), two layers.

    Annotator i attends to its neighbours j, and to itself, with weights alpha_ij = softmax_j LeakyReLU(a . [W h_i, W h_j]);
    its new features are sum_j alpha_ij W h_j. The first layer has several attention heads side by side, one-hot inputs
    (so that W h_j is row j of ``first``) and ELU; the last has one and no activation. In the last, a . W h_j = (W a) . h_j,
    and the sum over neighbours may be taken before W: so H_bar_i = sum_j alpha_ij h_j.
    """

    edges: Tensor

    def __init__(
        self,
        edges: Tensor,
        n_annotators: int,
        width: int,
        n_classes: int,
        *,
        hidden: int = 64,
        attention_heads: int = 4,
        residual: Tensor | None = None,
    ) -> None:
        """``edges`` (2, E): pairs (centre i, neighbour j); every annotator is its own neighbour."""
        if attention_heads < 1 or hidden % attention_heads:
            raise ConfigError(
                f"{attention_heads} attention heads cannot share {hidden} hidden units: "
                "attention_heads must divide the hidden width"
            )
        super().__init__(n_annotators, hidden, width, n_classes, residual)
        self.register_buffer("edges", edges)
        each = hidden // attention_heads
        self.first = nn.Parameter(torch.empty(n_annotators, attention_heads, each).uniform_(-1, 1) / hidden**0.5)
        self.attention = nn.Parameter(torch.empty(2, attention_heads, each).uniform_(-1, 1) / each**0.5)
        size = self.last[0].numel()
        self.last_attention = nn.Parameter(torch.empty(2, size).uniform_(-1, 1) / size**0.5)

    @classmethod
    def from_graph(
        cls, graph: sp.csr_array, width: int, n_classes: int, *, threshold: float = 0.1, **options: Any
    ) -> Self:
        """Edges are the weights of the graph above ``threshold``."""
        size = graph.shape[0]
        pattern = sp.csr_array(sp.csr_array(graph > threshold).astype(np.float64) + sp.eye_array(size))
        edges = torch.from_numpy(np.stack(pattern.nonzero()).astype(np.int64))
        return cls(edges, size, width, n_classes, **options)

    @classmethod
    def from_saved(cls, tensors: dict[str, Tensor]) -> Self:
        hidden, d, n_classes, _ = tensors["last"].shape
        n_annotators, heads, _ = tensors["first"].shape
        residual = tensors.get("residual")
        return cls(
            tensors["edges"], n_annotators, d - 1, n_classes, hidden=hidden, attention_heads=heads, residual=residual
        )

    def weights(self) -> Tensor:
        """alpha of the first layer, (E, attention heads)."""
        return self._weights(torch.einsum("rhf,shf->srh", self.first, self.attention))

    def hidden(self) -> Tensor:
        h = F.elu(self._mean(self.weights(), self.first)).flatten(1)  # (R, Z)
        projected = self.last_attention @ self.last.flatten(1).T  # W a, (2, Z)
        return self._mean(self._weights((projected @ h.T)[:, :, None]), h[:, None]).squeeze(1)

    def _weights(self, scores: Tensor) -> Tensor:
        """An annotator's part of the score as centre and as neighbour, (2, R, heads) -> alpha (E, heads)."""
        centre, neighbour = self.edges
        logits = F.leaky_relu(scores[0].index_select(0, centre) + scores[1].index_select(0, neighbour), 0.2)
        return edge_softmax(logits, centre, self.n_annotators)

    def _mean(self, alpha: Tensor, features: Tensor) -> Tensor:
        """sum_j alpha_ij h_j: (E, heads) and (R, heads, F) -> (R, heads, F)."""
        centre, neighbour = self.edges
        weighted = alpha[:, :, None] * features.index_select(0, neighbour)
        return torch.zeros_like(features).index_add(0, centre, weighted)


def edge_softmax(logits: Tensor, centre: Tensor, size: int) -> Tensor:
    """Softmax of ``logits`` (E, heads) over the edges of each centre; every centre must have an edge.

    >>> edge_softmax(torch.tensor([[0.0], [0.0], [1000.0]]), torch.tensor([0, 0, 1]), 2).squeeze(1).tolist()
    [0.5, 0.5, 1.0]
    """
    at = centre[:, None].expand_as(logits)
    top = logits.new_full((size, logits.shape[1]), -torch.inf).scatter_reduce(0, at, logits.detach(), "amax")
    shifted = logits - top.index_select(0, centre)
    total = torch.zeros_like(top).index_add(0, centre, shifted.exp())
    return (shifted - total.log().index_select(0, centre)).exp()
