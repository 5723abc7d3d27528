"""CrowdLayer: an annotator-specific layer on top of the classifier's probabilities.

F. Rodrigues and F. Pereira, "Deep Learning from Crowds", AAAI 2018.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.methods.core.base import Fitted
from crowdwise.methods.core.joint import JointClassifier, identities
from crowdwise.networks import ConstantTransition
from crowdwise.networks.transition import pair_products
from crowdwise.registry import METHODS


class AnnotatorLayer(nn.Module):
    """z^j = f W^j, v^j * f, f + b^j, v^j * f + b^j or s^j f, from class probabilities f; at first z^j = f."""

    def __init__(self, variant: str, identity: Tensor) -> None:
        super().__init__()
        n_annotators, n_classes = identity.shape[:2]
        self.weight = self.bias = None
        if variant == "MW":
            self.weight = nn.Parameter(identity)
        elif variant != "VB":
            self.weight = nn.Parameter(identity.new_ones(n_annotators, 1 if variant == "SW" else n_classes))
        if "B" in variant:
            self.bias = nn.Parameter(identity.new_zeros(n_annotators, n_classes))

    def forward(self, f: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        """(B, C) -> (P, C): what annotator ``annotator[k]`` makes of instance ``row[k]``."""
        if self.weight is not None and self.weight.ndim == 3:
            return pair_products(f, self.weight, row, annotator)
        z = f.index_select(0, row)
        if self.weight is not None:
            z = z * self.weight.index_select(0, annotator)
        return z if self.bias is None else z + self.bias.index_select(0, annotator)

    def logits(self, n_classes: int) -> Tensor:
        """z^j for f = one-hot p in row p: (R, C, C)."""
        if self.weight is not None and self.weight.ndim == 3:
            return self.weight
        z = torch.eye(n_classes, device=next(self.parameters()).device)[None]
        z = z if self.weight is None else z * self.weight[:, None]
        return z if self.bias is None else z + self.bias[:, None]


@METHODS.register("crowd-layer")
@dataclass(kw_only=True, eq=False, repr=False)
class CrowdLayer(JointClassifier):
    """A layer for each annotator turns the classifier's probabilities into the annotator's labels."""

    name: ClassVar[str] = "crowd-layer"
    title: ClassVar[str] = "CrowdLayer"

    variant: Literal["MW", "VW", "VB", "VW+B", "SW"] = "MW"
    """A matrix for each annotator (``"MW"``), a weight (``"VW"``) or bias (``"VB"``) for each class, both (``"VW+B"``), or
    one weight (``"SW"``)."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        classifier = self.new_classifier(engine, "classifier")
        layer = AnnotatorLayer(self.variant, identities(engine))

        def loss(batch: Batch) -> Tensor:
            logits = classifier(batch.x)
            with torch.autocast(logits.device.type, enabled=False):
                z = layer(torch.softmax(logits, 1), batch.row, batch.annotator)
                return batch.mean(F.cross_entropy(z, batch.label, reduction="none"))

        yield self.joint_stage(engine, classifier, layer, loss)
        return Fitted(classifier, ConstantTransition(torch.softmax(layer.logits(engine.problem.n_classes), 2)))
