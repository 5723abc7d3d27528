"""Importance reweighting: every annotation counts as much as its label is likelier true than it is to be given.

T. Liu and D. Tao, "Classification with Noisy Labels by Importance Reweighting", IEEE TPAMI 2016.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from crowdwise.constraints import NonNegativeFloat
from crowdwise.engine import Engine, Stage, StageResult
from crowdwise.methods.core.base import Fitted
from crowdwise.methods.core.steps import rows
from crowdwise.methods.forward import Forward
from crowdwise.networks import ConstantTransition
from crowdwise.registry import METHODS


@METHODS.register("reweight")
@dataclass(kw_only=True, eq=False, repr=False)
class Reweight(Forward):
    """A network trained by cross-entropy weighted through one matrix T for the whole crowd, estimated beforehand.

    After fitting: ``transition(X)``, ``capped_share_``.
    """

    name: ClassVar[str] = "reweight"
    title: ClassVar[str] = "Reweight"

    weight_cap: NonNegativeFloat = 10.0
    """Largest weight of an annotation; 0: no bound."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        fitted = yield from super().stages(engine)
        assert isinstance(fitted.transition, ConstantTransition)
        units = engine.problem.train
        logits = engine.evaluate(fitted.classifier, units)[rows(units)]
        weights = importance(logits, fitted.transition.matrices[0].to(engine.device), units.label)
        capped = weights > self.weight_cap if self.weight_cap else torch.zeros_like(weights)
        fitted.arrays["capped_share"] = np.array([capped.double().mean().item()])
        return fitted

    def annotation_loss(self, logits: Tensor, matrix: Tensor, label: Tensor) -> Tensor:
        weights = importance(logits, matrix, label)
        if self.weight_cap:
            weights = weights.clamp_max(self.weight_cap)
        return weights * F.cross_entropy(logits, label, reduction="none")

    @property
    def capped_share_(self) -> float:
        """Share of the training annotations whose weight, by the fitted classifier, is cut down to ``weight_cap``."""
        self._fitted_classifier()
        return float(self.arrays_["capped_share"][0])


def importance(logits: Tensor, matrix: Tensor, label: Tensor) -> Tensor:
    """beta = f_y / sum_p f_p T[p, y] of each annotation: logits (P, C), T (C, C), labels (P,) -> (P,).

    The classifier gets no gradient through it; T, where it is revised, does.

    >>> T = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    >>> round(importance(torch.tensor([[0.7, 0.2, 0.1]]).log(), T, torch.tensor([0])).item(), 6)
    1.147541
    """
    f = torch.softmax(logits.detach(), 1)
    noisy = (f * matrix.T[label]).sum(1)  # (P,); a matrix product would run in half precision under autocast
    return f.gather(1, label[:, None]).squeeze(1) / noisy.clamp_min(1e-6)
