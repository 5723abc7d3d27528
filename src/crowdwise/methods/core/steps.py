"""The steps of Dawid and Skene's EM on the engine's units, and training on class distributions: what EM methods share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.engine import Batch
from crowdwise.engine.tensors import Units, pairs_of

FLOOR = 1e-10  # probabilities are kept at or above this before a logarithm


def target_cross_entropy(classifier: nn.Module, batch: Batch, target: Tensor) -> Tensor:
    """Mean over instances of -sum_p target_p ln f_p(x); ``target`` (N, C) holds a distribution for every unit."""
    losses = F.cross_entropy(classifier(batch.x), batch.of_units(target), reduction="none")
    return batch.once(batch.instance_mean(losses))


def label_amounts(units: Units) -> Callable[[Batch], Tensor]:
    """A function that says how much of a label each annotation of a batch is, (P,): 1 or its weight; 0 for padding.

    Losses weigh annotations by `Batch.weight`, of which ``reduction`` makes shares of an instance. What an instance's labels
    say together does not depend on that.
    """
    if units.given is None:
        return lambda batch: (batch.weight > 0).float()
    first = units.indptr[:-1]
    size = units.given[first] / units.weight[first]  # the same for all annotations of a unit

    def amounts(batch: Batch) -> Tensor:
        unit, weight = batch.unit[batch.row], batch.weight
        if batch.partner is not None and batch.share is not None:  # the second half belongs to what is mixed in
            half = len(unit) // 2
            unit = torch.cat([unit[:half], batch.partner[0][batch.row[half:]]])
            weight = weight / batch.share.clamp_min(1e-12)
        return weight * size[unit]

    return amounts


def soft_votes(units: Units, n_classes: int) -> Tensor:
    """Share of each class among the labels of each instance: (N, C); uniform where there are none."""
    votes = torch.zeros(len(units), n_classes, device=units.device)
    votes.index_add_(0, rows(units), units.weighed(F.one_hot(units.label, n_classes).float()))
    return normalised(votes)


def annotator_matrices(units: Units, posterior: Tensor, n_annotators: int, smoothing: float = 0.0) -> Tensor:
    """M step: T^j[p, q], the share of label q where ``posterior`` (N, C) says class p: (R, C, C), rows without any uniform."""
    n_classes = posterior.shape[1]
    counts = torch.zeros(n_annotators * n_classes, n_classes, device=units.device)
    counts.index_add_(0, units.annotator * n_classes + units.label, units.weighed(posterior.float()[rows(units)]))
    return normalised(counts.reshape(n_annotators, n_classes, n_classes).transpose(1, 2) + smoothing)


def class_posterior(units: Units, log_prior: Tensor, matrices: Tensor) -> Tensor:
    """E step: P(class p) proportional to prior_p times the product of T^j[p, y] over the labels of an instance.

    ``log_prior`` is (N, C) or (C,), ``matrices`` (R, C, C); the result (N, C).
    """
    log_t = matrices.clamp_min(FLOOR).log()
    total = log_prior.expand(len(units), -1).clone()
    total.index_add_(0, rows(units), units.weighed(log_t[units.annotator, :, units.label]))
    return torch.softmax(total, 1)


def rows(units: Units) -> Tensor:
    """Which unit every annotation belongs to: (E,)."""
    return pairs_of(units.indptr, torch.arange(len(units), device=units.device))[0]


def normalised(values: Tensor) -> Tensor:
    """Non-negative values scaled to sum to 1 over the last axis; uniform where they are all 0."""
    total = values.sum(-1, keepdim=True)
    return torch.where(total > 0, values / total.clamp_min(1e-30), 1 / values.shape[-1])
