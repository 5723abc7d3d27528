"""GeoCrowdNet: coupled cross-entropy with a volume regulariser that makes classifier and confusion matrices identifiable.

S. Ibrahim, T. Nguyen and X. Fu, "Deep Learning From Crowdsourced Labels: Coupled Cross-Entropy Minimization, Identifiability,
and Regularization", ICLR 2023.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from crowdwise.constraints import NonNegativeFloat, OpenProbability
from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.engine.distributed import sum_over_ranks
from crowdwise.errors import CrowdwiseWarning
from crowdwise.methods.core.base import Fitted
from crowdwise.methods.core.joint import (
    AnnotatorMatrices,
    JointClassifier,
    identities,
    label_losses,
    log_vote_confusion,
    present,
)
from crowdwise.networks import ConstantTransition
from crowdwise.registry import METHODS


@METHODS.register("geo-crowd-net")
@dataclass(kw_only=True, eq=False, repr=False)
class GeoCrowdNet(JointClassifier):
    """A confusion matrix for each annotator, and predictions (or matrices) that span a large volume."""

    name: ClassVar[str] = "geo-crowd-net"
    title: ClassVar[str] = "GeoCrowdNet"

    regulariser: Literal["F", "W", "none"] = "F"
    """Maximise ln det(F'F) of a batch's predictions (``"F"``), ln det(W'W) of the stacked matrices (``"W"``), or ``"none"``."""
    lam: NonNegativeFloat = 0.001
    """Weight of the regulariser. F'F is a sum over the batch: with another ``batch_size`` choose another weight."""
    start: Literal["identity", "votes"] = "identity"
    """Logits of the matrices at first: the ``"identity"``, or the logarithm of annotators' confusion with ``"votes"``."""
    epsilon: OpenProbability = 1e-2
    """What is added to the confusion with the votes before the logarithm."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        regulariser, votes = self.regulariser, self.start == "votes"
        batch_size = self.training(engine.problem).batch_size
        if regulariser == "F" and batch_size < engine.problem.n_classes:
            warnings.warn(
                f"regulariser 'F' needs a batch_size of at least the number of classes, {engine.problem.n_classes}, got "
                f"{batch_size}: it will have little or no effect",
                CrowdwiseWarning,
                stacklevel=2,
            )
        classifier = self.new_classifier(engine, "classifier")
        annotators = AnnotatorMatrices(log_vote_confusion(engine, self.epsilon) if votes else identities(engine))
        counted = present(engine)[:, None, None]

        def loss(batch: Batch) -> Tensor:
            logits = classifier(batch.x)
            with torch.autocast(logits.device.type, enabled=False):
                log_t = torch.log_softmax(annotators.values, 2)
                total = batch.mean(label_losses(logits, log_t, batch))
                if regulariser == "F":
                    f = torch.softmax(logits, 1).double()
                    total = total + batch.once(self.lam * volume_loss(sum_over_ranks(f.T @ f)))
                elif regulariser == "W":
                    total = total + batch.once(self.lam * volume_loss(stacked_gram(log_t.exp() * counted)))
                return total

        yield self.joint_stage(engine, classifier, annotators, loss)
        return Fitted(classifier, ConstantTransition(torch.softmax(annotators.values, 2)))


def stacked_gram(matrices: Tensor) -> Tensor:
    """W'W of the stacked matrices: sum_jq T^j[p, q] T^j[p', q]: (R, C, C) -> (C, C)."""
    w = matrices.double().transpose(0, 1).flatten(1)  # (C, R C)
    return w @ w.T


def volume_loss(gram: Tensor) -> Tensor:
    """-ln det of a Gram matrix (C, C) + 1e-6 I; 0 without gradient where it is not finite or above 100, as at a collapse.

    >>> f = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], dtype=torch.float64)
    >>> round(volume_loss(f.T @ f).item(), 4)
    0.3011
    """
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    usable = torch.isfinite(gram).all()
    value = -torch.linalg.slogdet(torch.where(usable, gram, identity) + 1e-6 * identity).logabsdet
    return torch.where(usable & (value <= 100), value, 0.0).float()
