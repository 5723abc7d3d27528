"""TraceReg: confusion matrices with the smallest trace that explains the labels.

R. Tanno et al., "Learning From Noisy Labels By Regularized Estimation Of Annotator Confusion", CVPR 2019.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from crowdwise.constraints import NonNegativeFloat, NonNegativeInt
from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.methods.core.base import Fitted
from crowdwise.methods.core.joint import AnnotatorMatrices, JointClassifier, identities, label_losses, present
from crowdwise.networks import ConstantTransition
from crowdwise.registry import METHODS


@METHODS.register("trace-reg")
@dataclass(kw_only=True, eq=False, repr=False)
class TraceReg(JointClassifier):
    """A confusion matrix for each annotator; of those that explain the labels, the least reliable ones."""

    name: ClassVar[str] = "trace-reg"
    title: ClassVar[str] = "TraceReg"

    annotator_lr: NonNegativeFloat = 0.1
    """Learning rate of the matrices; larger than elsewhere: near the identity, where they start, gradients are small."""
    lam: NonNegativeFloat = 0.01
    """Weight of the mean trace of the matrices, which is minimised."""
    warm_start: NonNegativeInt = 0
    """Epochs without the regulariser at the beginning."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        classifier = self.new_classifier(engine, "classifier")
        annotators = AnnotatorMatrices(identities(engine, 6.0) - 5)
        share = present(engine)
        share /= share.sum()
        weight = torch.zeros((), device=engine.device)

        def loss(batch: Batch) -> Tensor:
            logits = classifier(batch.x)
            with torch.autocast(logits.device.type, enabled=False):
                log_t = log_matrices(annotators.values)
                trace = log_t.diagonal(dim1=1, dim2=2).exp().sum(1)  # (R,)
                return batch.mean(label_losses(logits, log_t, batch)) + batch.once(weight * (share * trace).sum())

        def before_epoch(epoch: int) -> None:
            weight.fill_(0.0 if epoch < self.warm_start else self.lam)

        yield self.joint_stage(engine, classifier, annotators, loss, before_epoch)
        return Fitted(classifier, ConstantTransition(log_matrices(annotators.values).exp()))


def log_matrices(values: Tensor) -> Tensor:
    """ln T^j, T^j being softplus of the values with rows scaled to sum to 1: (R, C, C).

    >>> [round(value, 6) for value in log_matrices(6 * torch.eye(3)[None] - 5).exp()[0, 0].tolist()]
    [0.989877, 0.005062, 0.005062]
    """
    return F.log_softmax(F.softplus(values).clamp_min(1e-30).log(), 2)
