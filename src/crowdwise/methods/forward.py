"""Forward correction: a classifier trained through one class-dependent matrix T, read off anchor instances.

G. Patrini et al., "Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach", CVPR 2017.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from crowdwise.constraints import NonNegativeFloat, NonNegativeInt
from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.methods.ce import annotation_cross_entropy
from crowdwise.methods.core.anchors import Percentile, estimate_matrix
from crowdwise.methods.core.base import CrowdClassifier, Fitted, build
from crowdwise.methods.core.revision import Slack, revision_stage
from crowdwise.networks import Classifier, ConstantTransition
from crowdwise.registry import METHODS


@METHODS.register("forward")
@dataclass(kw_only=True, eq=False, repr=False)
class Forward(CrowdClassifier):
    """A network trained through one matrix T for the whole crowd, estimated beforehand (forward correction)."""

    name: ClassVar[str] = "forward"
    title: ClassVar[str] = "Forward"

    warmup_epochs: NonNegativeInt | None = None
    """Epochs of the classifier that learns the noisy labels as they are, and whose anchors give T; by default 5, and as many
    more as make 100 steps."""
    warmup_lr: NonNegativeFloat | None = None
    """Learning rate of the warm-up; by default that of the recipe."""
    anchor_percentile: Percentile | None = None
    """At which percentile of P(class) its anchor lies; by default 100 (the surest instance) for up to 10 classes, else 97."""
    classifier_start: Literal["afresh", "warm-up"] = "afresh"
    """Where the corrected classifier starts: ``"afresh"``, or at the ``"warm-up"`` classifier."""
    revision: bool = False
    """Tune T and the classifier together afterwards (T-Revision, Xia et al., NeurIPS 2019), by Adam."""
    revision_epochs: NonNegativeInt = 20
    """Epochs of that."""
    revision_lr: NonNegativeFloat = 5e-7
    """Learning rate of that."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        afresh = self.classifier_start == "afresh"
        warm = yield from self.warm_up(engine)
        matrix = estimate_matrix(engine, warm, self.anchor_percentile)
        classifier = self.new_classifier(engine, "classifier") if afresh else copy.deepcopy(warm)

        def loss(batch: Batch, transition: Callable[[], Tensor] = lambda: matrix) -> Tensor:
            return batch.mean(self.annotation_loss(classifier(batch.x)[batch.row], transition(), batch.label))

        yield self.classifier_stage(engine, classifier, loss)
        slack: Slack = build(engine, "slack", lambda: Slack(engine.problem.n_classes))
        if self.revision:
            yield revision_stage(
                self,
                engine,
                classifier,
                slack,
                lambda batch: loss(batch, lambda: slack(matrix)),
                name="revision",
                epochs=self.revision_epochs,
                lr=self.revision_lr,
            )
        return Fitted(classifier, ConstantTransition(slack(matrix)[None]))

    def warm_up(self, engine: Engine) -> Generator[Stage, StageResult, Classifier]:
        """Train on the noisy labels for a few epochs; the epoch that agrees best with held-out annotations counts."""
        classifier = self.new_classifier(engine, "warm-up")
        yield self.warm_up_stage(
            engine,
            classifier,
            lambda batch: annotation_cross_entropy(classifier, batch),
            self.warmup_epochs,
            self.warmup_lr,
        )
        return classifier

    def annotation_loss(self, logits: Tensor, matrix: Tensor, label: Tensor) -> Tensor:
        """The loss of each annotation: logits (P, C), T (C, C), labels (P,) -> (P,)."""
        return forward_loss(logits, matrix, label)


def forward_loss(logits: Tensor, matrix: Tensor, label: Tensor) -> Tensor:
    """-ln sum_p f_p T[p, y] for each annotation, in log space: logits (P, C), T (C, C), labels (P,) -> (P,).

    >>> T = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    >>> round(forward_loss(torch.tensor([[0.7, 0.2, 0.1]]).log(), T, torch.tensor([0])).item(), 6)
    0.494296
    """
    column = matrix.clamp_min(1e-30).log().T[label]  # (P, C)
    return -torch.logsumexp(F.log_softmax(logits, 1) + column, 1)
