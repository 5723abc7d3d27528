"""Concord's loss with its derivative written out: small networks on the CPU spend more time in autograd than in products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crowdwise.networks.rows import few_log_softmax, few_softmax

REGULAR = 1e-6  # added to the diagonal of F'F
_TINY = 1e-37  # least probability of a label before its logarithm is taken
FEWEST = 1e-12  # labels in a batch by which is divided, at least
LARGEST = 100.0  # -ln det(F'F) above which it is left out


@dataclass(frozen=True)
class Evidence:
    """What a batch of B instances with P annotations says, and how much each term of the loss counts."""

    row: Tensor  # (P,) which of the B instances
    annotator: Tensor  # (P,)
    label: Tensor  # (P,)
    weight: Tensor  # (P,) of the annotation; 0: padding
    amount: Tensor  # (P,) how much of a label it is; 0: padding
    pull: Tensor  # (P,) decay / labels of the annotator
    log_prior: Tensor  # (B, C)
    log_share: Tensor  # (C,) ln of C times the classes' shares
    learns: Tensor  # (K, B) 1 where a network learns from an instance, else 0
    per_instance: float  # what the cross-entropy of an instance counts
    per_label: float  # what the likelihood of a label counts, times its weight
    volume: float
    excess: Tensor  # (C,) see `crowdwise.methods.concord.volume_loss`


class CoupledLoss(torch.autograd.Function):
    """The loss of `crowdwise.methods.Concord`, of logits (K, B, C), ``common`` (C, C) and ``deviation`` (R, C, C)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, common: Tensor, deviation: Tensor, given: Evidence) -> Tensor:
        row, annotator, label = given.row, given.annotator, given.label
        n_classes = logits.shape[2]
        whole = len(deviation) <= len(row)  # every annotator's matrix once, or the matrices of the annotations
        own = deviation if whole else deviation.index_select(0, annotator)
        at = annotator if whole else torch.arange(len(row))
        cell = at * n_classes + label
        log_matrix, matrix = few_log_softmax(common + own)
        log_t = log_matrix.transpose(1, 2).flatten(0, 1).index_select(0, cell)  # (P, C)
        share = given.amount / given.amount.sum().clamp_min(FEWEST)
        votes = torch.zeros_like(given.log_prior).index_add_(0, row, log_t * given.amount[:, None])
        target = few_softmax(votes.add_(given.log_prior))  # (B, C)
        pulls = torch.zeros(len(own)).index_add_(0, at, given.pull * share)
        wanted = target.index_select(0, row) * share[:, None]
        loss = (own.square().sum((1, 2)) * pulls).sum() / 2 - (wanted * log_t).sum()

        # the networks' cross-entropy with the targets; ``slope`` is the derivative by log_f
        log_f, f = few_log_softmax(logits)
        slope = (target * (-given.log_share).exp()) * (-given.per_instance * given.learns[:, :, None])  # (K, B, C)
        loss += (slope * log_f).sum()

        # each label on its own
        balanced = bool(given.log_share.any())
        h = few_softmax(log_f + given.log_share) if balanced else f
        joint = h.index_select(1, row).mul_(log_t.exp())  # (K, P, C)
        counts = given.learns.index_select(1, row).mul_(given.weight * given.per_label)  # (K, P)
        evidence = joint.sum(2).clamp_min_(_TINY)
        shares = joint.mul_((counts / evidence)[:, :, None])
        loss -= (evidence.log_() * counts).sum()
        by_t = wanted + shares.sum(0)  # minus the derivative by log_t
        by_h = torch.zeros_like(f).index_add_(1, row, shares)
        slope -= by_h - h * by_h.sum(2, keepdim=True) if balanced else by_h

        if given.volume:
            value, by_p = volume_and_slope(f, given.excess)
            loss += given.volume * value
            slope.addcmul_(by_p, f, value=given.volume)
        slope -= f * slope.sum(2, keepdim=True)  # by logits

        # the matrices: ln T[p, y] by the entries of row p is (q = y) - T[p, q]
        by_cell = torch.zeros(len(own) * n_classes, n_classes).index_add_(0, cell, by_t)
        by_cell = by_cell.view(-1, n_classes, n_classes).transpose(1, 2)
        by_matrix = matrix.mul_(by_cell.sum(2, keepdim=True)).sub_(by_cell)
        by_common = by_matrix.sum(0)
        by_matrix += own * pulls[:, None, None]
        if not whole:
            by_matrix = torch.zeros_like(deviation).index_add_(0, annotator, by_matrix)
        ctx.save_for_backward(slope, by_common, by_matrix)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        slope, by_common, by_matrix = ctx.saved_tensors
        return slope * gradient, by_common * gradient, by_matrix * gradient, None


def volume_and_slope(f: Tensor, excess: Tensor) -> tuple[Tensor, Tensor]:
    """`crowdwise.methods.concord.volume_loss` of predictions (K, B, C) on one process, and its derivative."""
    p = f.double()
    gram = p.transpose(1, 2) @ p
    gram.diagonal(dim1=1, dim2=2).add_(REGULAR)
    root = torch.linalg.cholesky_ex(gram).L
    value = -2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
    counts = (value <= LARGEST).double() / len(f)
    slope = p @ (torch.linalg.inv_ex(gram).inverse * (-2 * counts[:, None, None]))
    numbers = p.sum(1) + REGULAR  # (K, C)
    value = value + numbers.log() @ excess.double()
    slope += (counts[:, None] * excess / numbers)[:, None]
    return (value * counts).sum().float(), slope.float()
