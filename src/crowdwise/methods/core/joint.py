"""What methods share that train the classifier and some parameters of every annotator together, in one stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.constraints import NonNegativeFloat
from crowdwise.engine import Batch, Engine, Group, Stage
from crowdwise.engine.stage import Loss
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.methods.core.steps import annotator_matrices, soft_votes


@dataclass(kw_only=True, eq=False, repr=False)
class JointClassifier(CrowdClassifier):
    """Base of these methods: annotators' parameters are a group of their own, without weight decay."""

    # with sgd annotators hardly learn: gradients are as small as their shares of the labels
    settings: ClassVar[Mapping[str, Any]] = {"optimiser": "adamw", "lr": 1e-3}
    paper_settings: ClassVar[Mapping[str, Any]] = {"optimiser": "adam", "lr": 1e-3}

    annotator_lr: NonNegativeFloat = 1e-2
    """Learning rate of annotators' parameters."""

    def joint_stage(
        self,
        engine: Engine,
        classifier: nn.Module,
        annotators: nn.Module,
        loss: Loss,
        before_epoch: Callable[[int], None] | None = None,
    ) -> Stage:
        """The stage that trains ``classifier`` and ``annotators``. Annotators without labels stay as they are."""
        also = {"annotators": Group(annotators, self.annotator_lr)}
        return self.classifier_stage(engine, classifier, loss, also=also, before_epoch=before_epoch)


class AnnotatorMatrices(nn.Module):
    """A C x C matrix of free values for each annotator, stacked: (R, C, C)."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(values)


def identities(engine: Engine, scale: float = 1.0) -> Tensor:
    """``scale`` times the identity for each annotator: (R, C, C)."""
    problem = engine.problem
    identity = scale * torch.eye(problem.n_classes, device=problem.device)
    return identity.expand(problem.n_annotators, -1, -1).contiguous()


def log_vote_confusion(engine: Engine, epsilon: float) -> Tensor:
    """ln(T^j + epsilon), T^j being the confusion of each annotator with the votes of its crowd: (R, C, C)."""
    problem = engine.problem
    votes = soft_votes(problem.train, problem.n_classes)
    return (annotator_matrices(problem.train, votes, problem.n_annotators) + epsilon).log()


def present(engine: Engine) -> Tensor:
    """1 for annotators with training labels, 0 for silent ones: (R,)."""
    problem = engine.problem
    return (torch.bincount(problem.train.annotator, minlength=problem.n_annotators) > 0).float()


def label_losses(class_logits: Tensor, log_t: Tensor, batch: Batch) -> Tensor:
    """-ln sum_p f_p(x_i) T^j[p, y] of every annotation (i, j, y), in log space: (B, C), (R, C, C) -> (P,)."""
    log_f = F.log_softmax(class_logits, dim=1).index_select(0, batch.row)
    columns = log_t.transpose(1, 2).flatten(0, 1)  # (R C, C): ln T^j[:, y] in row j C + y
    return -torch.logsumexp(log_f + columns.index_select(0, batch.annotator * log_t.shape[2] + batch.label), dim=1)
