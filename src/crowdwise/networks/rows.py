"""Softmax over a few classes on the CPU, where torch's own takes five times as long, and losses with written-out derivatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_TINY = 1e-37  # least probability of a label before its logarithm is taken


def few_softmax(x: Tensor) -> Tensor:
    """Softmax over the last axis, without a derivative.

    >>> few_softmax(torch.tensor([[0.0, 0.0], [1000.0, 0.0]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    e = (x - x.amax(-1, keepdim=True)).exp_()
    return e.div_(e.sum(-1, keepdim=True))


def few_log_softmax(x: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Logarithm of the softmax over an axis, and the softmax itself, without a derivative; quickest where rows come last."""
    x = x - x.amax(dim, keepdim=True)
    e = x.exp()
    total = e.sum(dim, keepdim=True)
    return x.sub_(total.log()), e.div_(total)


class CorrectedLoss(torch.autograd.Function):
    """`crowdwise.networks.transition.corrected_loss` on the CPU, with its derivative written out.

    -ln sum_p f_p T[p, y], of logits of f (B, C) and of T (P, C, C), which instance each pair is of, and its label: (P,).
    """

    @staticmethod
    def forward(ctx: Any, class_logits: Tensor, transition_logits: Tensor, row: Tensor, label: Tensor) -> Tensor:
        f, matrix = few_softmax(class_logits), few_softmax(transition_logits)
        index = label[:, None, None].expand(-1, matrix.shape[1], 1)
        joint = matrix.gather(2, index).squeeze(2).mul_(f.index_select(0, row))  # (P, C)
        total = joint.sum(1).clamp_min_(_TINY)
        ctx.save_for_backward(f, matrix, row, index, joint.div_(total[:, None]))
        return total.log_().neg_()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        f, matrix, row, index, share = ctx.saved_tensors
        share = share * gradient[:, None]  # minus the derivative by ln f_p and by ln T[p, y]
        by_class = by_matrix = None
        if ctx.needs_input_grad[0]:
            by_class = torch.zeros_like(f).index_add_(0, row, share, alpha=-1)
            by_class -= f * by_class.sum(1, keepdim=True)
        if ctx.needs_input_grad[1]:
            by_matrix = matrix * share[:, :, None]
            by_matrix.scatter_add_(2, index, -share[:, :, None])
        return by_class, by_matrix, None, None
