"""Generalised cross-entropy: between cross-entropy (q to 0) and mean absolute error (q = 1), which tolerates wrong labels.

Z. Zhang and M. Sabuncu, "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels", NeurIPS 2018.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from crowdwise.constraints import NonNegativeFloat, OpenProbability, Probability
from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.methods.core.base import CrowdClassifier, Fitted
from crowdwise.registry import METHODS

_CROSS_ENTROPY = 1e-4  # below this q the limit is taken


def generalised_cross_entropy(logits: Tensor, label: Tensor, q: float) -> Tensor:
    """(1 - f_y^q) / q for each annotation, Eq. 6: logits (P, C), labels (P,) -> (P,).

    >>> f = torch.tensor([[0.7, 0.2, 0.1]])
    >>> round(generalised_cross_entropy(f.log(), torch.tensor([0]), 0.7).item(), 6)
    0.315634
    """
    return power_loss(-F.cross_entropy(logits, label, reduction="none"), q)


def power_loss(log_f: Tensor, q: float) -> Tensor:
    """(1 - f^q) / q for logarithms of f; its limit -ln f where q is (nearly) 0."""
    return -log_f if q < _CROSS_ENTROPY else -torch.expm1(q * log_f) / q


@METHODS.register("gce")
@dataclass(kw_only=True, eq=False, repr=False)
class GCE(CrowdClassifier):
    """A network trained by generalised cross-entropy on all annotations.

    >>> import numpy as np, crowdwise
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> annotations = np.stack([X[:, 0] > 0, X[:, 0] > 0.1], axis=1).astype(int)
    >>> crowdwise.GCE(epochs=30, lr=0.1).fit(X, annotations).score(X, X[:, 0] > 0) > 0.9
    True
    """

    name: ClassVar[str] = "gce"
    title: ClassVar[str] = "GCE"

    q: Probability = 0.7
    """0: cross-entropy; 1: mean absolute error, the most tolerant of wrong labels and the slowest to train."""
    truncate: OpenProbability | None = None
    """Labels that the network gives at most this probability (0.5 in the paper) no longer pull at it."""
    truncate_from: NonNegativeFloat = 2 / 3
    """When truncation begins: a number of epochs, or a share of ``epochs`` if below 1."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        classifier = self.new_classifier(engine, "classifier")
        epochs = self.training(engine.problem).epochs
        first = round(self.truncate_from * epochs) if self.truncate_from < 1 else int(self.truncate_from)
        ceiling = torch.tensor(torch.inf, device=engine.device)

        def loss(batch: Batch) -> Tensor:
            losses = generalised_cross_entropy(classifier(batch.x)[batch.row], batch.label, self.q)
            return batch.mean(torch.minimum(losses, ceiling))

        def before_epoch(epoch: int) -> None:
            if self.truncate is not None and epoch >= first:
                ceiling.copy_(power_loss(torch.tensor(self.truncate).log(), self.q))
            else:
                ceiling.fill_(torch.inf)

        yield self.classifier_stage(engine, classifier, loss, before_epoch=before_epoch)
        return Fitted(classifier)
