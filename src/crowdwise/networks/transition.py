"""Noise-transition networks: T^j(x)[p, q] = P(annotator j says q | true class p, instance x).

A network is a feature extractor g(x), shared by all annotators, and a head that turns features and an annotator into a
C x C matrix of logits. Only annotated (instance, annotator) pairs are evaluated, and only row y* if y* is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.data.types import Floats
from crowdwise.networks.backbones import build_backbone
from crowdwise.networks.rows import CorrectedLoss

_GROUPED_LIMIT = 512  # annotators up to which pairs are grouped on the CPU
_CALL = 300_000  # multiplications that take as long as starting a product
_PAIRS_AT_ONCE = 4096  # transition matrices evaluated at a time


class Head(Protocol):
    """Maps features and annotators to logits of T^j(x). ``g`` is (B, d+1), with a constant 1 in the last column."""

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        """Logits (P, C, C) of pair k = (instance ``row[k]`` of the batch, ``annotator[k]``)."""

    def row_logits(self, g: Tensor, target: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        """Logits (P, C) of row ``target[row[k]]`` alone."""


class Transition(Protocol):
    """Estimates T^j(x): features of instances, then logits of annotated pairs; for example a `TransitionNetwork`."""

    def features(self, x: Tensor) -> Tensor:
        """(B, ...) -> (B, d)."""

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        """Logits (P, C, C) of pair k = (instance ``row[k]`` of the batch, ``annotator[k]``)."""


def stretches(network: Transition, features: Tensor, row: Tensor, annotator: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Logits (P', C, C) of the pairs of instances ``row`` and ``annotator`` (P,), in parts, without gradients."""
    for start in range(0, len(row), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        with torch.no_grad():
            used, local = torch.unique(row[part], return_inverse=True)
            logits = network.pair_logits(features[used], local, annotator[part])
        yield part, logits


class ConstantTransition(nn.Module):
    """Matrices T^j that do not depend on the instance: (R, C, C), or (1, C, C) for all annotators."""

    matrices: Tensor

    def __init__(self, matrices: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrices", matrices.detach().float().clone())

    def features(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), 0)

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        at = annotator if len(self.matrices) > 1 else torch.zeros_like(annotator)
        return self.matrices.clamp_min(1e-30).log().index_select(0, at)


class GlobalHead(nn.Module):
    """One head for all annotators: T(x), the transition matrix of the crowd as a single source (BLTM).

    It is initialised like ``nn.Linear(d, C * C)``.
    """

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__()
        linear = nn.Linear(width, n_classes * n_classes)
        theta = torch.cat([linear.weight.detach().T, linear.bias.detach()[None]])
        self.theta = nn.Parameter(theta.reshape(width + 1, n_classes, n_classes).clone())  # (d+1, C, C)

    def logits(self, g: Tensor) -> Tensor:  # (B, C, C)
        return (g @ self.theta.flatten(1)).reshape(-1, *self.theta.shape[1:])

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        return self.logits(g).index_select(0, row)

    def row_logits(self, g: Tensor, target: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        return take_row(self.logits(g), target)[row]


class IndividualHeads(nn.Module):
    """A head for each annotator, stacked: theta (R, d+1, C, C), all starting at the global head (section 3.3, L2)."""

    def __init__(self, n_annotators: int, width: int, n_classes: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(n_annotators, width + 1, n_classes, n_classes))

    @classmethod
    def from_global(cls, head: GlobalHead, n_annotators: int) -> IndividualHeads:
        width, n_classes = head.theta.shape[0] - 1, head.theta.shape[1]
        with head.theta.device:  # so many heads may not fit elsewhere
            heads = cls(n_annotators, width, n_classes)
        with torch.no_grad():
            heads.theta.copy_(head.theta)
        return heads

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        return pair_products(g, self.theta.flatten(2), row, annotator).reshape(-1, *self.theta.shape[2:])

    def row_logits(self, g: Tensor, target: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        return torch.bmm(g[row, None], self.theta[annotator, :, target[row]]).squeeze(1)

    def coordinates(self, origin: Tensor) -> tuple[Floats, Floats]:
        """Heads (R, D) and ``origin`` (D,), flattened, in double precision, as heads differ little after a few epochs."""
        heads, start = (theta.detach().cpu().double().numpy() for theta in (self.theta.flatten(1), origin.flatten()))
        return heads, start

    def l1_norms(self) -> Floats:
        """sum |theta_j| of every head, (R,)."""
        norms: Floats = self.theta.detach().double().flatten(1).norm(1, 1).cpu().numpy()
        return norms


class TransitionNetwork(nn.Module):
    """Backbone, optional bottleneck (Linear + ReLU) and a head.

    The paper resizes the classifier's last layer to C^2; the authors' code puts a bottleneck of 64 units before it, so
    that heads are small enough to have one for each annotator. ``bottleneck=0`` omits it.
    """

    def __init__(
        self,
        backbone: str | nn.Module,
        shape: tuple[int, ...],
        *,
        bottleneck: int = 64,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.backbone, width = build_backbone(backbone, shape, options)
        self.bottleneck = nn.Sequential(nn.Linear(width, bottleneck), nn.ReLU()) if bottleneck else nn.Sequential()
        self.width = bottleneck or width
        self.head: nn.Module = nn.Module()  # set by the stage that trains one

    def features(self, x: Tensor) -> Tensor:  # (B, d+1)
        features: Tensor = self.backbone(x)
        with torch.autocast(x.device.type, enabled=False):
            return append_one(self.bottleneck(features.float()))

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:  # (P, C, C)
        with torch.autocast(g.device.type, enabled=False):
            return cast(Head, self.head).pair_logits(g, row, annotator)

    def row_logits(self, g: Tensor, target: Tensor, row: Tensor, annotator: Tensor) -> Tensor:  # (P, C)
        with torch.autocast(g.device.type, enabled=False):
            return cast(Head, self.head).row_logits(g, target, row, annotator)


def append_one(g: Tensor) -> Tensor:
    """(B, d) -> (B, d+1): a head's bias is then its last row."""
    return torch.cat([g, g.new_ones(len(g), 1)], dim=1)


def pair_products(g: Tensor, theta: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
    """g[row[k]] @ theta[annotator[k]] for every pair k: (B, d+1), (R, d+1, M) -> (P, M).

    On the CPU, copying a head for every pair would cost more than the product, so pairs are grouped by annotator.
    """
    if g.is_cuda or len(theta) > _GROUPED_LIMIT or len(row) == 0:
        heads = theta.index_select(0, annotator)  # (P, d+1, M)
        return torch.bmm(g.index_select(0, row)[:, None], heads).squeeze(1)
    products: Tensor = GroupedProducts.apply(g, theta, row, annotator)  # type: ignore[no-untyped-call]
    return products


class GroupedProducts(torch.autograd.Function):
    """`pair_products`, annotator by annotator. Autograd would keep a node for each of them."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, theta: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        groups = _Groups.of(annotator, theta)
        features = g.new_zeros(groups.rows, g.shape[1]).index_copy_(0, groups.place, g.index_select(0, row))
        products = features.new_empty(groups.rows, theta.shape[2])
        for part, head, product in groups(features, theta, products):
            _multiply(part, head, product)
        ctx.save_for_backward(features, theta, row)
        ctx.groups, ctx.size = groups, len(g)
        return products.index_select(0, groups.place)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        (features, theta, row), groups = ctx.saved_tensors, ctx.groups
        slopes = gradient.new_zeros(groups.rows, gradient.shape[1]).index_copy_(0, groups.place, gradient)
        by_theta = by_g = None
        if ctx.needs_input_grad[1]:
            by_theta = torch.zeros_like(theta) if 0 in groups.counts else torch.empty_like(theta)
            for part, head, slope in groups(features, by_theta, slopes):
                _multiply(part.mT, slope, head)
        if ctx.needs_input_grad[0]:
            by_part = torch.empty_like(features)
            for part, head, slope in groups(by_part, theta, slopes):
                _multiply(slope, head.mT, part)
            by_pair = by_part.index_select(0, groups.place)
            by_g = features.new_zeros(ctx.size, features.shape[1]).index_add_(0, row, by_pair)
        return by_g, by_theta, None, None


def _multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """a @ b, of matrices or batches of them; `torch.matmul` would go through a copy."""
    torch.mm(a, b, out=out) if a.ndim == 2 else torch.bmm(a, b, out=out)


class _Groups(NamedTuple):
    """Pairs sorted by annotator. The last annotators share one batched product, for which all have as many rows.

    That saves most where those with many pairs come first.
    """

    place: Tensor  # (P,) the row of each pair
    counts: list[int]  # rows of each of the first annotators, who have products of their own
    others: int  # annotators after these
    width: int  # rows of each of them

    @classmethod
    def of(cls, annotator: Tensor, theta: Tensor) -> _Groups:
        size, call = (
            len(theta),
            _CALL / (theta.shape[1] * theta.shape[2]),
        )  # rows that take as long as a product's start
        codes = annotator.numpy()  # whose functions take less time to start
        number = np.bincount(codes, minlength=size)
        counts = number.tolist()
        widest, least = 0, math.inf
        first = width = 0
        for at in range(size - 1, -1, -1):
            widest = max(widest, counts[at])
            cost = at * call + (size - at) * widest
            if cost < least:
                least, first, width = cost, at, widest
        rows = number.copy()
        rows[first:] = width
        order = np.argsort(codes, kind="stable")
        skipped = np.cumsum(rows - number) - (rows - number)  # rows before an annotator's that are no pairs
        place = np.empty_like(order)
        place[order] = np.arange(len(order)) + np.repeat(skipped, number)
        return cls(torch.from_numpy(place), counts[:first], size - first, width)

    @property
    def rows(self) -> int:
        return sum(self.counts) + self.others * self.width

    def __call__(self, rows: Tensor, heads: Tensor, others: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The rows of an annotator, its head, and its part of other rows; at the end, those of many at once."""
        number = len(self.counts)
        sizes = [*self.counts, self.others * self.width]
        *parts, last = rows.split(sizes)
        *slopes, rest = others.split(sizes)
        for part, head, slope in zip(parts, heads[:number].unbind(0), slopes, strict=True):
            if len(part):
                yield part, head, slope
        if len(last):
            shape = self.others, self.width, -1
            yield last.view(shape), heads[number:], rest.view(shape)


def row_loss(logits: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of row y* of T^j(x) and the given label, per pair: the losses L1, L2 and L3. (P, C) -> (P,)."""
    return F.cross_entropy(logits, label, reduction="none")


def corrected_loss(class_logits: Tensor, transition_logits: Tensor, row: Tensor, label: Tensor) -> Tensor:
    """Forward-corrected loss L4 per pair: -ln sum_p f_p(x_i) T^j(x_i)[p, label], in log space.

    ``class_logits`` (B, C), ``transition_logits`` (P, C, C), ``row`` and ``label`` (P,) -> (P,).

    >>> f = torch.log(torch.tensor([[0.7, 0.3]]))
    >>> t = torch.log(torch.tensor([[[0.25, 0.75], [0.8, 0.2]]]))
    >>> round(corrected_loss(f, t, torch.tensor([0]), torch.tensor([1])).item(), 6)
    0.536143
    """
    if class_logits.device.type == "cpu":
        losses: Tensor = CorrectedLoss.apply(class_logits.float(), transition_logits, row, label)  # type: ignore[no-untyped-call]
        return losses
    log_f = F.log_softmax(class_logits, dim=1).index_select(0, row)  # (P, C)
    log_t = F.log_softmax(transition_logits, dim=2)  # (P, C, C)
    index = label[:, None, None].expand(-1, log_t.shape[1], 1)
    return -torch.logsumexp(log_f + log_t.gather(2, index).squeeze(2), dim=1)


def take_row(logits: Tensor, target: Tensor) -> Tensor:
    """(B, C, C) -> (B, C): row ``target`` of each matrix."""
    return logits.gather(1, target[:, None, None].expand(-1, 1, logits.shape[2])).squeeze(1)
