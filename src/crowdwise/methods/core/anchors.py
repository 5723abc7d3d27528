"""One class-dependent matrix T from a classifier of noisy labels: what it says of instances that surely belong to a class.

G. Patrini et al., "Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach", CVPR 2017.
"""

from __future__ import annotations

import warnings
from typing import Annotated

import torch
from torch import Tensor, nn

from crowdwise.constraints import Interval, check_value
from crowdwise.engine import Engine
from crowdwise.errors import CrowdwiseWarning

Percentile = Annotated[float, Interval(0, 100)]


def anchor_matrix(posterior: Tensor, percentile: float = 100.0) -> Tensor:
    """T (C, C) whose row c is the posterior of class c's anchor, from noisy posteriors (n, C).

    The anchor is the instance at the given percentile of P(c): at 100 the surest one, below it passes over outliers.

    >>> anchor_matrix(torch.tensor([[0.75, 0.25], [0.125, 0.875], [0.5, 0.5]])).tolist()
    [[0.75, 0.25], [0.125, 0.875]]
    """
    check_value("anchor_percentile", percentile, Percentile)
    order = torch.argsort(posterior, dim=0, descending=True, stable=True)
    rows = posterior[order[int((100 - percentile) * (len(posterior) - 1) / 100)]]
    return rows / rows.sum(1, keepdim=True)


def estimate_matrix(engine: Engine, classifier: nn.Module, percentile: float | None = None) -> Tensor:
    """T (C, C) from anchors among the training instances; rows of classes that are never predicted are half identity.

    By default the anchors are at percentile 100 for up to 10 classes, and at 97 for more.
    """
    posterior = torch.softmax(engine.evaluate(classifier, engine.problem.train).double(), 1)
    n_classes = posterior.shape[1]
    if percentile is None:
        percentile = 100.0 if n_classes <= 10 else 97.0
    matrix = anchor_matrix(posterior, percentile)
    unsure = torch.bincount(posterior.argmax(1), minlength=n_classes) == 0
    if bool(unsure.any()):
        names = engine.problem.annotations.classes[unsure.cpu().numpy()].tolist()
        warnings.warn(
            f"the warm-up classifier never predicts classes {names}, which leaves them without anchors: half of their rows "
            "of T is taken from the identity; train it longer (warmup_epochs) if annotators use these classes",
            CrowdwiseWarning,
            stacklevel=2,
        )
    identity = torch.eye(n_classes, dtype=matrix.dtype, device=matrix.device)
    return torch.where(unsure[:, None], (matrix + identity) / 2, matrix).float()
