"""T-Revision: transition matrices tuned together with the classifier, after both were trained.

X. Xia et al., "Are Anchor Points Really Indispensable in Label-Noise Learning?", NeurIPS 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crowdwise.engine import Engine, Group, Stage
from crowdwise.engine.stage import Loss
from crowdwise.methods.core.base import CrowdClassifier


class Slack(nn.Module):
    """A correction delta (C, C), at first 0: rows of T become those of |T + delta|, scaled to sum to 1.

    >>> slack = Slack(2)
    >>> _ = slack.delta.data[0].copy_(torch.tensor([0.25, 0.0]))
    >>> [[round(p, 6) for p in row] for row in slack(torch.tensor([[0.75, 0.25], [0.4, 0.6]])).tolist()]
    [[0.8, 0.2], [0.4, 0.6]]
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.delta = nn.Parameter(torch.zeros(n_classes, n_classes))

    def forward(self, matrices: Tensor) -> Tensor:  # (..., C, C)
        revised = (matrices + self.delta).abs()
        return revised / revised.sum(-1, keepdim=True).clamp_min(1e-30)


def revision_stage(
    method: CrowdClassifier,
    engine: Engine,
    classifier: nn.Module,
    slack: Slack,
    loss: Loss,
    *,
    name: str,
    epochs: int,
    lr: float,
) -> Stage:
    """The stage that tunes ``classifier`` and ``slack`` by Adam, at a constant and usually very small rate."""
    recipe, train = method.training(engine.problem), engine.problem.train
    groups = {"classifier": Group(classifier, lr, recipe.weight_decay), "slack": Group(slack, lr)}
    return Stage(name, train, loss, groups, epochs, recipe.batch_size, "adam", score=classifier)
