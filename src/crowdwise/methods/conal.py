"""CoNAL: errors that all annotators share, and errors of each, mixed by instance and annotator.

Z. Chu, J. Ma and H. Wang, "Learning from Crowds by Modeling Common Confusions", AAAI 2021.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.constraints import NonNegativeFloat, PositiveInt
from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.methods.core.base import Fitted, build
from crowdwise.methods.core.joint import JointClassifier, identities, present
from crowdwise.networks import Classifier, MeanFeatures
from crowdwise.networks.transition import pair_products
from crowdwise.registry import METHODS


class CommonNoise(nn.Module):
    """The two noise layers, and what mixes them: omega_ij = sigmoid(v_i' u_j), with unit vectors v_i and u_j.

    ``common`` is W^g (C, C), ``individual`` W^j (R, C, C), ``annotator`` u_j (R, e) before it is scaled.
    """

    def __init__(self, width: int, embedding: int, individual: Tensor) -> None:
        super().__init__()
        self.instance = nn.Linear(width, embedding)
        self.annotator = nn.Parameter(torch.randn(len(individual), embedding) / embedding**0.5)
        self.common = nn.Parameter(individual[0].clone())
        self.individual = nn.Parameter(individual.clone())

    def embed(self, features: Tensor) -> Tensor:  # (B, d) -> (B, e)
        return F.normalize(self.instance(features), dim=1)

    def omega(self, v: Tensor, row: Tensor, annotator: Tensor) -> Tensor:  # (P, 1)
        u = F.normalize(self.annotator, dim=1).index_select(0, annotator)
        return torch.sigmoid((v.index_select(0, row) * u).sum(1, keepdim=True))

    def forward(self, f: Tensor, v: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        """o_ij = omega_ij f W^g + (1 - omega_ij) f W^j for every pair: (P, C)."""
        common = (f @ self.common).index_select(0, row)
        return torch.lerp(
            pair_products(f, self.individual, row, annotator), common, self.omega(v, row, annotator).expand_as(common)
        )

    def distances(self) -> Tensor:
        """Frobenius norm of W^j - W^g, with a finite gradient at 0, where they start: (R,)."""
        return (self.individual - self.common).square().sum((1, 2)).add(1e-12).sqrt()


class CommonNoiseTransition(nn.Module):
    """T^j(x)[p] = softmax of o for f = one-hot p. The backbone is a copy of the trained classifier's."""

    def __init__(self, backbone: nn.Module, noise: CommonNoise) -> None:
        super().__init__()
        self.backbone, self.noise = backbone, noise

    def features(self, x: Tensor) -> Tensor:  # v_i (B, e)
        features = self.backbone(x)
        with torch.autocast(x.device.type, enabled=False):
            return self.noise.embed(features.float())

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        omega = self.noise.omega(g, row, annotator)[:, :, None]
        return omega * self.noise.common + (1 - omega) * self.noise.individual.index_select(0, annotator)


@METHODS.register("conal")
@dataclass(kw_only=True, eq=False, repr=False)
class CoNAL(JointClassifier):
    """Noise common to all annotators and noise of each one, mixed by instance and annotator.

    Instances are embedded by a linear layer on the classifier's features, which it does not train.
    """

    name: ClassVar[str] = "conal"
    title: ClassVar[str] = "CoNAL"

    embedding: PositiveInt = 20
    """Size of the embeddings v_i and u_j."""
    lam: NonNegativeFloat = 1e-5
    """Weight of the sum of the distances between W^j and W^g, which are kept large."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        stage, noise = self.joint_training(engine)
        yield stage
        classifier = cast(Classifier, stage.score)
        backbone = copy.deepcopy(classifier.backbone)
        if self.networks > 1:
            backbone = MeanFeatures(backbone, self.networks)
        return Fitted(classifier, CommonNoiseTransition(backbone, noise))

    def joint_training(self, engine: Engine) -> tuple[Stage, CommonNoise]:
        """The one stage of this method, and the noise layers that it trains beside the classifier."""
        classifier = self.new_classifier(engine, "classifier")
        start, width = identities(engine, 2.0).cpu(), classifier.width
        noise: CommonNoise = build(engine, "annotators", lambda: CommonNoise(width, self.embedding, start))
        counted = present(engine)

        def loss(batch: Batch) -> Tensor:
            features = classifier.features(batch.x)
            with torch.autocast(features.device.type, enabled=False):
                f = torch.softmax(classifier.linear(features), 1)
                o = noise(f, noise.embed(features.detach()), batch.row, batch.annotator)
                losses = F.cross_entropy(o, batch.label, reduction="none")
                return batch.mean(losses) - batch.once(self.lam * (counted * noise.distances()).sum())

        return self.joint_stage(engine, classifier, noise, loss), noise

    def build_transition(self, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> CommonNoiseTransition:
        backbone = self._classifier(shape, 1).backbone
        if self.networks > 1:
            backbone = MeanFeatures(backbone, self.networks)
        embedding, width = tensors["noise.instance.weight"].shape
        return CommonNoiseTransition(backbone, CommonNoise(width, embedding, tensors["noise.individual"]))
