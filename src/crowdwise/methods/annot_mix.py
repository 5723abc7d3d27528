"""Annot-Mix: a network T(x, a) of instance and annotator, trained on mixed annotations.

M. Herde, L. Luehrs, D. Huseljic and B. Sick, "Annot-Mix: Learning with Noisy Class Labels from Multiple Annotators via a
Mixup Extension", ECAI 2024.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.engine import Batch, Engine, Group, Stage, StageResult
from crowdwise.engine.augment import Mixup
from crowdwise.methods.core.base import CrowdClassifier, Fitted, build
from crowdwise.methods.core.joint import present
from crowdwise.networks import MeanFeatures
from crowdwise.networks.backbones import RowNorm
from crowdwise.registry import METHODS


class PairNetwork(nn.Module):
    """Logits of T(x, a) from an embedding of the annotator and one of the instance's features, E values each."""

    def __init__(self, width: int, n_annotators: int, n_classes: int, embedding: int = 128, eta: float = 0.9) -> None:
        super().__init__()
        self.instance = nn.Linear(width, embedding)
        self.annotator = nn.Embedding(n_annotators, embedding)
        self.hidden = nn.Sequential(nn.Dropout(), nn.Linear(2 * embedding, embedding), RowNorm(embedding), nn.ReLU())
        self.last = nn.Linear(embedding, n_classes * n_classes)
        start = math.log(eta * max(n_classes - 1, 1) / (1 - eta)) * torch.eye(n_classes)  # T[p, p] is eta at first
        with torch.no_grad():
            self.last.bias.copy_(start.flatten())

    def forward(self, v: Tensor, u: Tensor) -> Tensor:
        """Embeddings of instances and annotators, (P, E) each -> (P, C, C)."""
        logits: Tensor = self.last(self.hidden(torch.cat([v, u], 1)))
        n_classes = math.isqrt(logits.shape[1])
        return logits.view(-1, n_classes, n_classes)


class PairTransition(nn.Module):
    """T(x, a) as a `Transition`. The backbone is a copy of the trained classifier's."""

    def __init__(self, backbone: nn.Module, pairs: PairNetwork) -> None:
        super().__init__()
        self.backbone, self.pairs = backbone, pairs

    def features(self, x: Tensor) -> Tensor:  # (B, E)
        features = self.backbone(x)
        with torch.autocast(x.device.type, enabled=False):
            embedded: Tensor = self.pairs.instance(features.float())
        return embedded

    def pair_logits(self, g: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        logits: Tensor = self.pairs(g.index_select(0, row), self.pairs.annotator(annotator))
        return logits


@METHODS.register("annot-mix")
@dataclass(kw_only=True, eq=False, repr=False)
class AnnotMix(CrowdClassifier):
    """Inputs, annotators' embeddings and one-hot labels are mixed in pairs of annotations.

    For annotations r and r', with shares lambda and 1 - lambda: x~, a~ and z~ are the mixed input, embedding and label, and the
    loss is -sum_q z~_q ln sum_p f_p(x~) T_pq(x~, a~). T has no parameters of its own for an annotator but an
    embedding, so that large crowds are cheap. The features that it sees do not train the classifier.

    >>> import numpy as np, crowdwise
    >>> X = np.random.default_rng(0).normal(size=(90, 5))
    >>> annotations = np.stack([X[:, 0] > 0, X[:, 0] > 0.1, X[:, 1] > 0], axis=1).astype(int)
    >>> model = crowdwise.AnnotMix(steps=200).fit(X, annotations)
    >>> model.transition(X[:4], annotators=[0, 2]).shape
    (4, 2, 2, 2)
    """

    name: ClassVar[str] = "annot-mix"
    title: ClassVar[str] = "Annot-Mix"
    paper_settings: ClassVar[Mapping[str, Any]] = {"optimiser": "radam", "lr": 1e-3}

    alpha: float = 1.0
    """Shares are drawn from Beta(alpha, alpha); 0: nothing is mixed."""
    embedding: int = 128
    """E, the size of the embeddings of instances and annotators."""

    def settings_for(self, shape: tuple[int, ...]) -> Mapping[str, Any]:
        if len(shape) > 1:
            return self.paper_settings
        # the paper's on Music and LabelMe: 50 epochs there are 800 steps
        return {"optimiser": "radam", "lr": 0.01, "weight_decay": 0.0, "ema": 0.0, "epochs": 10, "steps": 800}

    def network_options(self, shape: tuple[int, ...]) -> dict[str, Any]:
        options = super().network_options(shape)
        return {"batch_norm": True, **options} if self.backbone in ("auto", "mlp") and len(shape) == 1 else options

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        problem = engine.problem
        classifier = self.new_classifier(engine, "classifier")
        sizes = classifier.width, problem.n_annotators, problem.n_classes, self.embedding
        pairs: PairNetwork = build(engine, "annotators", lambda: PairNetwork(*sizes))
        mixup = Mixup(self.alpha, problem.device) if self.alpha else None

        def loss(batch: Batch) -> Tensor:
            first, second, share = partners(batch, mixup)  # (P,) each
            u, x = pairs.annotator(batch.annotator), batch.x
            if mixup is not None:
                shares = share.view(-1, *[1] * (x.ndim - 1)).to(x.dtype)
                x = torch.lerp(x[batch.row[second]], x[batch.row[first]], shares)
                u = torch.lerp(u[second], u[first], share[:, None])
            features = classifier.features(x)
            with torch.autocast(features.device.type, enabled=False):
                log_f, v = F.log_softmax(classifier.linear(features), 1), pairs.instance(features.detach())
                if mixup is None:
                    log_f, v = log_f[batch.row], v[batch.row]  # x is there once for each instance
                log_t = F.log_softmax(pairs(v, u), 2)
                log_z = torch.logsumexp(log_f[:, :, None] + log_t, 1)  # (P, C): what the annotators are expected to say
                own = F.nll_loss(log_z, batch.label[first], reduction="none")
                other = F.nll_loss(log_z, batch.label[second], reduction="none")
                return batch.mean(torch.lerp(other, own, share))

        # T must not learn faster than f: depending on x, it could explain all labels by itself
        also = {"annotators": Group(pairs, self.training(problem).lr)}
        yield self.classifier_stage(engine, classifier, loss, also=also)
        with torch.no_grad():  # annotators without labels are taken for average ones
            known = present(engine)[:, None]
            mean = (pairs.annotator.weight * known).sum(0) / known.sum()
            pairs.annotator.weight.copy_(torch.where(known > 0, pairs.annotator.weight, mean))
        backbone = copy.deepcopy(classifier.backbone)
        if self.networks > 1:
            backbone = MeanFeatures(backbone, self.networks)
        return Fitted(classifier, PairTransition(backbone, pairs))

    def build_transition(self, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> PairTransition:
        backbone = self._classifier(shape, 1).backbone
        embedding, width = tensors["pairs.instance.weight"].shape
        n_annotators = len(tensors["pairs.annotator.weight"])
        pairs = PairNetwork(width, n_annotators, math.isqrt(len(tensors["pairs.last.bias"])), embedding)
        if self.networks > 1:
            backbone = MeanFeatures(backbone, self.networks)
        return PairTransition(backbone, pairs)


def partners(batch: Batch, mixup: Mixup | None) -> tuple[Tensor, Tensor, Tensor]:
    """Positions of the annotations that are mixed, and the shares of the first ones: (P,) each.

    Annotations of one network are mixed among each other. Padding stands for other annotations of the batch.
    """
    real = batch.weight.view(batch.networks, -1) > 0  # (K, P / K)
    place = torch.arange(real.shape[1], device=real.device).expand_as(real)
    others = real.int().argsort(dim=1, descending=True, stable=True).gather(1, place % real.sum(1, True).clamp_min(1))
    first = torch.where(real, place, others)
    second = first.gather(1, torch.rand(real.shape, device=real.device).argsort(1))
    start = torch.arange(batch.networks, device=real.device)[:, None] * real.shape[1]
    if mixup is None:
        share = torch.ones_like(batch.weight)
    else:
        drawn = (torch.rand_like(batch.weight) * len(mixup.shares)).long().clamp_max(len(mixup.shares) - 1)
        share = mixup.shares[drawn]
    return (first + start).flatten(), (second + start).flatten(), share
