"""UnionNet: all annotators as one source that says one of R C (annotator, label) pairs.

H. Wei et al., "Deep Learning From Multiple Noisy Annotators as A Union", IEEE TNNLS 34(12), 2023.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from crowdwise.constraints import OpenProbability
from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.methods.core.base import Fitted
from crowdwise.methods.core.joint import (
    AnnotatorMatrices,
    JointClassifier,
    identities,
    label_losses,
    log_vote_confusion,
)
from crowdwise.networks import ConstantTransition
from crowdwise.registry import METHODS


@METHODS.register("union-net")
@dataclass(kw_only=True, eq=False, repr=False)
class UnionNet(JointClassifier):
    """One transition from classes to the union of all annotators' labels.

    The loss is the mean over instances of the sum over their annotations (``reduction="instance"``: of the mean).
    """

    name: ClassVar[str] = "union-net"
    title: ClassVar[str] = "UnionNet"

    variant: Literal["A", "B"] = "B"
    """``"A"``: softmax of f Theta, B x R C values for a batch; ``"B"``: f times the softmax of Theta's rows, which is cheaper."""
    start: Literal["identity", "votes"] = "identity"
    """Theta at first: near ``"identity"`` in every block, or the logarithm of annotators' confusion with ``"votes"``."""
    epsilon: OpenProbability = 1e-5
    """Probability of all errors together (identity), or what is added before the logarithm (votes)."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        classifier = self.new_classifier(engine, "classifier")
        annotators = AnnotatorMatrices(self._start(engine))
        losses = {"A": losses_a, "B": losses_b}[self.variant]

        def loss(batch: Batch) -> Tensor:
            logits = classifier(batch.x)
            with torch.autocast(logits.device.type, enabled=False):
                return batch.mean(losses(logits, annotators.values, batch)) * batch.total / batch.size

        yield self.joint_stage(engine, classifier, annotators, loss)
        return Fitted(classifier, ConstantTransition(torch.softmax(annotators.values, 2)))

    def _start(self, engine: Engine) -> Tensor:
        if self.start == "votes":
            return log_vote_confusion(engine, self.epsilon)
        error = self.epsilon / max(engine.problem.n_classes - 1, 1)  # of a single class there are none
        return error + identities(engine, 1 - self.epsilon - error)


def losses_a(class_logits: Tensor, theta: Tensor, batch: Batch) -> Tensor:
    """-ln o[j, y] of every annotation, o = softmax over all (j, y) of f Theta: (B, C), (R, C, C) -> (P,)."""
    union = torch.softmax(class_logits, 1) @ theta.transpose(0, 1).flatten(1)  # (B, R C)
    log_o = F.log_softmax(union, 1)
    return -log_o.flatten().index_select(0, batch.row * log_o.shape[1] + batch.annotator * theta.shape[2] + batch.label)


def losses_b(class_logits: Tensor, theta: Tensor, batch: Batch) -> Tensor:
    """-ln o[j, y] of every annotation, o = f times the softmax of Theta over all (j, y): (B, C), (R, C, C) -> (P,)."""
    return label_losses(class_logits, theta - torch.logsumexp(theta, dim=(0, 2), keepdim=True), batch)
