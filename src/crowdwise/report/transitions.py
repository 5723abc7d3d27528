"""Transition matrices of annotated pairs, and a trained model's posterior given the labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from crowdwise.annotations import Annotations
from crowdwise.data.codes import row_blocks
from crowdwise.data.types import Floats, Ints
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.networks.transition import ConstantTransition, Transition

NUMBERS = 2**24  # entries of matrices to evaluate at once


@dataclass(frozen=True, eq=False)
class Transitions:
    """T^j(x) of a fitted model, for pairs of an instance of ``X`` and an annotator; features are computed once."""

    network: Transition
    features: Tensor  # (n, d)
    n_classes: int
    varies: bool
    """Whether matrices depend on the instance."""

    @classmethod
    def of(cls, model: CrowdClassifier, X: Any) -> Transitions | None:
        """None for a model without transition matrices."""
        module = model.transition_
        if module is None:
            return None
        network = cast(Transition, module)
        features = model._evaluate(module, X, network.features)
        return cls(network, features, len(model.classes_), not isinstance(module, ConstantTransition))

    def pairs(self, instance: Ints, annotator: Ints) -> Floats:
        """T of each pair, (P, C, C)."""
        device = self.features.device
        row = torch.from_numpy(np.ascontiguousarray(instance, np.int64)).to(device)
        who = torch.from_numpy(np.ascontiguousarray(annotator, np.int64)).to(device)
        with torch.no_grad():
            logits = self.network.pair_logits(self.features[row], torch.arange(len(row), device=device), who)
            return np.asarray(torch.softmax(logits.double(), 2).cpu())

    def blocks(self, annotations: Annotations) -> Iterator[tuple[Ints, Floats]]:
        """All annotations in blocks: their rows (b,), and the matrices of their pairs (b, C, C)."""
        for block in row_blocks(len(annotations), self.n_classes**2, NUMBERS):
            rows = np.arange(block.start, block.stop)
            instance = annotations.instance[rows].astype(np.int64)
            yield rows, self.pairs(instance, annotations.annotator[rows].astype(np.int64))


def posterior(predicted: Floats, annotations: Annotations, transitions: Transitions) -> tuple[Floats, Floats]:
    """P(class | x, labels) ∝ f(x) Π_j T^j(x)[class, label j], (n, C), and the probability that each label is right, (E,).

    The latter is sum_p f_p(x) T^j(x)[p, p], whatever the label.
    """
    logs = np.log(np.maximum(predicted, 1e-12))
    right = np.zeros(len(annotations))
    for rows, matrices in transitions.blocks(annotations):
        instance, label = annotations.instance[rows], annotations.label[rows]
        column = np.take_along_axis(matrices, label[:, None, None].astype(np.int64), axis=2)[:, :, 0]
        np.add.at(logs, instance, np.log(np.maximum(column, 1e-12)))
        right[rows] = np.einsum("bp,bpp->b", predicted[instance], matrices)
    logs -= logs.max(axis=1, keepdims=True)
    weights = np.exp(logs)
    return weights / weights.sum(axis=1, keepdims=True), right


def mean_matrices(annotations: Annotations, transitions: Transitions, shown: Ints) -> Floats:
    """Mean of each shown annotator's matrices over the instances that it labelled, (K, C, C)."""
    size, classes = len(shown), transitions.n_classes
    place = np.full(annotations.n_annotators, -1)
    place[shown] = np.arange(size)
    total, count = np.zeros((size, classes, classes)), np.zeros(size)
    of_shown = annotations.where(place[annotations.annotator] >= 0)
    for rows, matrices in transitions.blocks(of_shown):
        at = place[of_shown.annotator[rows]]
        np.add.at(total, at, matrices)
        count += np.bincount(at, minlength=size)
    silent = np.flatnonzero(count == 0)
    if len(silent) and annotations.n_instances:  # only the matrix at some instance is known
        total[silent] = transitions.pairs(np.zeros(len(silent), np.int64), shown[silent])
    return np.asarray(total / np.maximum(count, 1)[:, None, None])
