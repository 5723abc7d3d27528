"""BLTM as its own authors run it: the transition network is fixed once it is trained, and a slack revises its matrices.

S. Yang et al., ICML 2022. Their script takes one step of the transition network in each epoch, and divides |T + delta| by the
sums of its columns; here every batch is a step, and rows sum to 1.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.engine.tensors import Units
from crowdwise.methods.core.base import build
from crowdwise.methods.core.revision import Slack, revision_stage
from crowdwise.networks import Classifier, GlobalHead, TransitionNetwork
from crowdwise.networks.transition import corrected_loss

if TYPE_CHECKING:
    from crowdwise.methods.bltm import BLTM


class RevisedNetwork(TransitionNetwork):
    """T(x) from a head of C^2 outputs on the backbone, revised by a slack that all instances share."""

    def __init__(
        self,
        backbone: str | nn.Module,
        shape: tuple[int, ...],
        n_classes: int,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(backbone, shape, bottleneck=0, options=options)
        self.head = GlobalHead(self.width, n_classes)
        self.slack = Slack(n_classes)

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:  # (P, C, C)
        revised: Tensor = self.slack(torch.softmax(super().pair_logits(g, row, annotator), 2))
        return revised.clamp_min(1e-30).log()


def fit_original(
    method: BLTM, engine: Engine, warm: Classifier, distilled: Units
) -> Generator[Stage, StageResult, tuple[Classifier, RevisedNetwork]]:
    """Train the transition network from the warm-up's parameters, then tune classifier and slack through it by Adam."""
    transition: RevisedNetwork = build(
        engine, "transition", lambda: method.revised_network(engine.problem.shape, engine.problem.n_classes)
    )
    with torch.no_grad():  # parameters only: statistics of batch norm are those of a new network
        for mine, learned in zip(transition.backbone.parameters(), warm.backbone.parameters(), strict=True):
            mine.copy_(learned)
    yield method.global_stage(engine, transition, distilled)

    classifier = copy.deepcopy(warm)
    # from here on the network is fixed, in evaluation mode: its features are computed once
    transition.head.requires_grad_(False)
    features = engine.evaluate(transition, engine.problem.train, transition.features)  # (N, d+1)

    def loss(batch: Batch) -> Tensor:
        t = transition.pair_logits(features[batch.unit], batch.row, batch.annotator)
        return batch.mean(corrected_loss(classifier(batch.x), t, batch.row, batch.label))

    slack, epochs, lr = transition.slack, method.training(engine.problem).epochs, method.revision_lr
    yield revision_stage(method, engine, classifier, slack, loss, name="correction", epochs=epochs, lr=lr)
    return classifier, transition
