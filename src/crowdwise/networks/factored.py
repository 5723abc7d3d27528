"""Heads as products of factors, which make a head for each annotator affordable in a very large crowd.

Full heads theta (R, d+1, C, C) take 20 GB for 100,000 annotators, 512 features and 10 classes, and training holds several
copies. Products need R x Z numbers and Z shared matrices, and a training step touches no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from crowdwise.data.types import Floats
from crowdwise.networks.transition import GlobalHead, pair_products, take_row

PAIRS_AT_ONCE = 65_536  # annotations evaluated at a time, at most
_ENTRIES = 100_000_000  # of heads, or intermediate results, formed at a time
_WASTE = 8  # times as many rows as there are, at most, where groups of rows are all made as wide as the largest


class ProductHeads(nn.Module):
    """Heads Theta = H W + theta_0: H (R, Z) per annotator (`hidden`), W (Z, d+1, C, C) shared, theta_0 optional.

    Pair logits sum_z H[j, z] sum_d g[i, d] W[z, d, p, q] are evaluated in the cheaper of two orders: all R heads first,
    then pairs; or instances first (g W), then pairs. Neither forms B x R matrices.
    """

    def __init__(self, n_annotators: int, last: Tensor, residual: Tensor | None) -> None:
        """``last`` is W; ``residual`` is theta_0 (d+1, C, C), usually the global head, and is trained further."""
        super().__init__()
        self.n_annotators = n_annotators
        self.last = nn.Parameter(last)
        self.residual = None if residual is None else nn.Parameter(residual.detach().clone())

    def hidden(self) -> Tensor:
        """H (R, Z), whose rows are multiplied with W."""
        raise NotImplementedError(f"{type(self).__name__} must define hidden()")

    def hidden_of(self, annotator: Tensor) -> Tensor:
        """The rows of H for annotators (P,), (P, Z)."""
        return self.hidden().index_select(0, annotator)

    def product(self) -> Tensor:
        """H W, (R, (d+1) C^2)."""
        return self.hidden() @ self.last.flatten(1)

    def heads(self) -> Tensor:  # (R, d+1, C, C)
        """Theta, the head of every annotator."""
        theta = self.product().reshape(-1, *self.last.shape[1:])
        return theta if self.residual is None else theta + self.residual

    def alike(self, annotator: Tensor) -> Tensor:
        """For each of annotators (P,) one that always has the same head: the first of these, or itself."""
        return annotator

    def product_of(self, annotator: Tensor) -> Tensor:
        """The rows of H W for annotators (P,), (P, (d+1) C^2)."""
        return self.hidden_of(annotator) @ self.last.flatten(1)

    def _heads_of(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        """The heads that annotators (P,) have, each once and the most frequent first, and which of them is whose, (P,)."""
        used, which, counts = np.unique(self.alike(annotator).numpy(), return_inverse=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        theta = self.product_of(torch.from_numpy(used[order])).reshape(-1, *self.last.shape[1:])
        theta = theta if self.residual is None else theta + self.residual
        return theta, torch.from_numpy(np.argsort(order)[which])

    @torch.no_grad()
    def factors(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """H (R, Z) and W (Z, d+1, C, C); theta_0, if any, is the last of W, with ones in H."""
        left, right = self.hidden(), self.last.detach()
        if self.residual is not None:
            left = torch.cat([left, left.new_ones(len(left), 1)], 1)
            right = torch.cat([right, self.residual[None]])
        return np.asarray(left.cpu()), np.asarray(right.cpu())

    def heads_first(self, n_instances: int, n_pairs: int, share: float = 1.0) -> bool:
        """Whether computing all R heads takes fewer multiplications than going through the instances.

        These need only a ``share`` of the products where one row of a matrix is asked for.
        """
        hidden, d = self.last.shape[:2]
        through_instances = share * (n_instances * d * hidden + n_pairs * hidden)
        return bool(self.n_annotators * hidden * d + n_pairs * d < through_instances)

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        n_classes = self.last.shape[-1]
        if self.heads_first(len(g), len(row)):
            heads, which = (self.heads(), annotator) if g.is_cuda else self._heads_of(annotator)
            return pair_products(g, heads.flatten(2), row, which).reshape(-1, n_classes, n_classes)
        by_instance = (g @ self.last.transpose(0, 1).flatten(1)).view(len(g), len(self.last), -1)  # (B, Z, C*C)
        logits = _of_pairs(self.hidden_of(annotator), by_instance, row)
        if self.residual is not None:
            logits = logits + (g @ self.residual.flatten(1)).index_select(0, row)
        return logits.reshape(-1, n_classes, n_classes)

    def row_logits(self, g: Tensor, target: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        if self.heads_first(len(g), len(row), 1.0 if g.is_cuda else 1 / self.last.shape[-1]):
            if not g.is_cuda:  # products are cheap, but the derivative of chosen rows of heads is not
                return take_row(self.pair_logits(g, row, annotator), target[row])
            return torch.bmm(g[row, None], self.heads()[annotator, :, target[row]]).squeeze(1)
        by_instance = _by_instance(self.last, g, target)  # (B, Z, C)
        logits = _of_pairs(self.hidden_of(annotator), by_instance, row)
        if self.residual is not None:
            logits = logits + _by_instance(self.residual[None], g, target)[:, 0].index_select(0, row)
        return logits


class FactoredHeads(ProductHeads):
    """Individual heads of rank r: theta_j = theta_0 + sum_z U[j, z] V[z], with U (R, r) and V (r, d+1, C, C).

    They start at the global head: theta_0 is a copy of it, U is 0 (``scores``) and V orthonormal (``last``), so a
    gradient step on U alone moves theta_j by the part of its gradient in the span of V. If V spans everything,
    r = (d+1) C^2, this is training full heads; `align` chooses the r directions that matter most.
    """

    residual: nn.Parameter

    def __init__(self, n_annotators: int, rank: int, residual: Tensor) -> None:
        rank = min(rank, residual.numel())
        basis = _orthonormal(torch.randn(rank, residual.numel()))
        super().__init__(n_annotators, basis.reshape(rank, *residual.shape), residual)
        self.scores = nn.Parameter(torch.zeros(n_annotators, rank))

    @classmethod
    def from_global(cls, head: GlobalHead, n_annotators: int, rank: int) -> Self:
        return cls(n_annotators, rank, head.theta.detach().cpu())

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Heads for the saved state ``tensors``."""
        n_annotators, rank = tensors["scores"].shape
        return cls(n_annotators, rank, tensors["residual"])

    def hidden(self) -> Tensor:
        return self.scores

    def heads_first(self, n_instances: int, n_pairs: int, share: float = 1.0) -> bool:
        # all R heads must not take more memory than going through the instances either
        rank, d = self.last.shape[:2]
        return self.n_annotators * d <= n_instances * rank and super().heads_first(n_instances, n_pairs, share)

    @property
    def pairs_at_once(self) -> int:
        """Annotations evaluated at a time: few if there are many classes."""
        entries = len(self.last) * self.last.shape[-1] ** 2
        return max(1024, min(PAIRS_AT_ONCE, _ENTRIES // entries))

    def train_scores_only(self, only: bool) -> None:
        """Freeze V and theta_0, which all annotators share, or train them too."""
        self.last.requires_grad_(not only)
        self.residual.requires_grad_(not only)

    def align(self, g: Tensor, row: Tensor, target: Tensor, annotator: Tensor, label: Tensor, rounds: int = 4) -> None:
        """Set V to the r directions in which annotators differ most from the global head.

        They are the top r right singular vectors of G (R, (d+1) C^2), whose row j is the gradient of annotator j's loss
        L2 at the global head. Subspace iteration V <- orthonormal(G^T G V) finds them: with the losses' derivatives
        fixed, G V is the derivative by U, and G^T P the one by V at U = P. G is never formed.

        Examples (E,): the row of the features ``g`` (n, d+1), the distilled label, the annotator, the given label.
        """
        count = torch.bincount(annotator, minlength=self.n_annotators)

        def derivative(parameter: Tensor) -> Tensor:
            total = torch.zeros_like(parameter)
            for part in torch.arange(len(row), device=g.device).split(self.pairs_at_once):
                features, each = g[row[part]], torch.arange(len(part), device=g.device)
                logits = self.row_logits(features, target[part], each, annotator[part])
                with torch.no_grad():  # derivative of each annotator's mean loss by logits, at the global head
                    expected = torch.softmax(_by_instance(self.residual[None], features, target[part])[:, 0], 1)
                    slope = expected - nn.functional.one_hot(label[part], expected.shape[1])
                    slope /= count[annotator[part], None]
                total += torch.autograd.grad((slope * logits).sum(), parameter)[0]
            return total

        for _ in range(rounds):
            towards = derivative(self.scores)
            with torch.no_grad():
                self.scores.copy_(towards)
            turned = derivative(self.last)
            with torch.no_grad():
                self.last.copy_(_orthonormal(turned.flatten(1)).reshape(self.last.shape))
        with torch.no_grad():
            self.scores.zero_()

    def coordinates(self, origin: Tensor) -> tuple[Floats, Floats]:
        """Heads (R, r+2) and ``origin`` (r+2,) in an orthonormal basis of the span of V, theta_0 and ``origin``.

        Inner products and distances are those of the full heads (R, (d+1) C^2), which are not formed.
        """
        start = origin.detach().double().flatten().cpu()
        shift = self.residual.detach().double().flatten().cpu() - start  # exactly 0 if theta_0 was not trained
        spanning = torch.cat([self.last.detach().double().flatten(1).cpu(), shift[None], start[None]])  # (r+2, D)
        in_basis = np.asarray(torch.linalg.qr(spanning.T).R)
        scores = np.asarray(self.scores.detach().double().cpu())
        return scores @ in_basis[:, :-2].T + in_basis[:, -2] + in_basis[:, -1], in_basis[:, -1]

    def l1_norms(self) -> Floats:
        """sum |theta_j| of every head, (R,); a few heads are formed at a time."""
        return np.concatenate([np.abs(theta).sum(1) for theta in self._blocks()])

    def _blocks(self) -> Iterator[Floats]:
        shared, start = (each.detach().double().cpu() for each in (self.last.flatten(1), self.residual.flatten()))
        for scores in self.scores.detach().double().cpu().split(max(1, _ENTRIES // (8 * len(start)))):
            yield np.asarray(scores @ shared + start)


def _orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows with the same span, (r, D), computed in double precision."""
    basis: Tensor = torch.linalg.qr(rows.double().T).Q
    return basis.T.to(rows.dtype).contiguous()


def _by_instance(weight: Tensor, g: Tensor, target: Tensor) -> Tensor:
    """sum_d g[i, d] weight[z, d, y*_i, q] -> (B, Z, C), class by class; all classes at once if shapes must be static."""
    size, _, n_classes, _ = weight.shape
    if g.is_cuda:
        full = (g @ weight.transpose(0, 1).flatten(1)).reshape(-1, size, n_classes, n_classes)
        return full.gather(2, target[:, None, None, None].expand(-1, size, 1, n_classes)).squeeze(2)
    place, width = _places(target, n_classes)
    if n_classes * width > _WASTE * len(g):
        members = [torch.nonzero(target == p).squeeze(1) for p in range(n_classes)]
        parts = [g[at] @ weight[:, :, p].transpose(0, 1).flatten(1) for p, at in enumerate(members)]
        return torch.cat(parts)[torch.argsort(torch.cat(members))].reshape(-1, size, n_classes)
    by_class = torch.bmm(_laid_out(g, place, n_classes, width), weight.permute(2, 1, 0, 3).flatten(2))
    return by_class.flatten(0, 1).index_select(0, place).view(len(g), size, n_classes)


def _of_pairs(hidden: Tensor, by_instance: Tensor, row: Tensor) -> Tensor:
    """hidden[k] @ by_instance[row[k]] for every pair k: (P, Z), (B, Z, M) -> (P, M).

    On the CPU a product for each instance, with as many rows as the largest has pairs, so that nothing is copied for a pair.
    """
    if not hidden.is_cuda:
        place, width = _places(row, len(by_instance))
        if len(by_instance) * width <= _WASTE * len(row):
            products = torch.bmm(_laid_out(hidden, place, len(by_instance), width), by_instance)
            return products.flatten(0, 1).index_select(0, place)
    return torch.bmm(hidden[:, None], by_instance.index_select(0, row)).squeeze(1)


def _places(group: Tensor, n_groups: int) -> tuple[Tensor, int]:
    """A place for each of P rows in a table of groups that are all as wide as the largest: (P,), and this width."""
    codes = group.numpy()  # whose functions take less time to start
    counts = np.bincount(codes, minlength=n_groups)
    width = int(counts.max(initial=0))
    order = np.argsort(codes, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) + np.repeat(np.arange(n_groups) * width - np.cumsum(counts) + counts, counts)
    return torch.from_numpy(place), width


def _laid_out(rows: Tensor, place: Tensor, n_groups: int, width: int) -> Tensor:
    """Rows (P, d) at their places in a table of groups, (n_groups, width, d); 0 where none is."""
    table = rows.new_zeros(n_groups * width, rows.shape[1]).index_copy(0, place, rows)
    return table.view(n_groups, width, rows.shape[1])
