"""Concord: networks that learn from the crowd, and from what other networks, which never saw an instance, believe of it.

Expectation maximisation in which a classifier is the class prior of every instance (Raykar et al., JMLR 2010; AggNet), with
three changes. The prior of an instance comes from networks that were not trained on it. How much the prior and the labels
count is learnt from the crowd: whatever best predicts each label from the others. And matrices of annotators with few labels
lean on the crowd's common matrix.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.engine import Batch, Engine, Group, Stage, StageResult
from crowdwise.engine.device import derive_seed
from crowdwise.engine.tensors import Units
from crowdwise.methods.core.base import CrowdClassifier, Fitted
from crowdwise.methods.core.steps import FLOOR, rows, soft_votes
from crowdwise.methods.geo_crowd_net import volume_loss
from crowdwise.networks import ConstantTransition, Stacked
from crowdwise.registry import METHODS

_TRUSTS = (0.25, 0.35, 0.5, 0.7, 1.0)  # exponents that are tried


@METHODS.register("concord")
@dataclass(kw_only=True, eq=False, repr=False)
class Concord(CrowdClassifier):
    """EM with honest priors, learnt trust and shrunken matrices: the method to start with."""

    name: ClassVar[str] = "concord"

    networks: int | None = None  # type: ignore[assignment]
    held_out: float = 1 / 3
    """Share of the instances that each of several networks is not trained on: they get their prior from it."""
    trust: float | None = None
    """Exponent of the classifier's prediction in the E step; None: learnt from the crowd."""
    temper: float | None = None
    """Exponent of the labels in the E step; None: learnt from the crowd."""
    strength: float = 5.0
    """Labels' worth of the crowd's common matrix in every row of an annotator's."""
    volume: float = 0.01
    """Weight of the volume that predictions span: classes do not die out."""
    start: float = 0.1
    """Share of the epochs after which the classifier has a say in the E step."""
    rounds: int = 3
    shrink_prior: bool = True
    each: float = 0.0

    def _networks(self, shape: tuple[int, ...]) -> int:
        if self.networks is not None:
            return self.networks
        return 6 if len(shape) == 1 else 1

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        problem = engine.problem
        units, n_classes = problem.train, problem.n_classes
        classifier = self.new_classifier(engine, "classifier")
        networks = self._networks(problem.shape)
        members = training_members(len(units), networks, self.held_out, derive_seed(problem.seed, "folds")).to(units.device)
        crowd = CrowdModel(units, n_classes, problem.n_annotators, self.strength)
        target = crowd.start()
        transition = ConstantTransition(crowd.matrices)
        epochs = self.training(problem).epochs
        first = max(1, math.ceil(self.start * epochs))
        self._log = []

        def update(epoch: int) -> None:
            if epoch < first:
                return
            log_f = honest(engine, classifier, units, members)
            crowd.matrices = transition.matrices.clone()
            target.copy_(crowd.update(log_f, self.trust, self.temper, self.rounds, self.shrink_prior, self.each))
            transition.matrices.copy_(crowd.matrices)
            self._log.append((epoch, crowd.trust, crowd.temper))

        def loss(batch: Batch) -> Tensor:
            logits = classifier(batch.x)
            size = len(batch.unit) // networks
            member = torch.arange(networks, device=logits.device).repeat_interleave(size)
            def of(unit: Tensor) -> Tensor:
                return target[unit] * members[member, unit][:, None]
            wanted = of(batch.unit)
            if batch.partner is not None:
                other, share = batch.partner
                wanted = torch.lerp(of(other), wanted, share[:, None])
            log_f = F.log_softmax(logits.float(), 1)
            total = -(wanted * log_f).sum(1).sum() / wanted.sum().clamp_min(1e-6)
            if self.volume and not batch.partner:
                f = log_f.exp().double().unflatten(0, (networks, size))
                gram = f.transpose(1, 2) @ f
                eye = torch.eye(n_classes, dtype=gram.dtype, device=gram.device)
                value = -torch.linalg.slogdet(gram + 1e-6 * eye).logabsdet
                total = total + self.volume * torch.where(value <= 100, value, 0.0).float().mean()
            return total

        yield self.classifier_stage(
            engine, classifier, loss, also={"transition": Group(transition, average=False)}, before_epoch=update
        )
        update(epochs)
        return Fitted(classifier, transition, {"honest": honest(engine, classifier, units, members).exp().cpu().numpy(), "q": crowd.q.cpu().numpy(), "train": units.instance.cpu().numpy(),
           "trust": np.array([crowd.trust, crowd.temper])})


def training_members(n: int, networks: int, held_out: float, seed: int) -> Tensor:
    """Which networks are trained on which instances: (K, n) of 0 and 1."""
    members = torch.ones(networks, n)
    left_out = round(networks * held_out)
    if networks > 1 and left_out:
        place = torch.from_numpy(np.random.default_rng(seed).permutation(n))
        for offset in range(left_out):
            members[(place + offset) % networks, torch.arange(n)] = 0.0
    return members


def honest(engine: Engine, classifier: nn.Module, units: Units, members: Tensor) -> Tensor:
    """ln f(x) by the networks that were not trained on the instance, where there are such: (N, C)."""
    if not isinstance(classifier, Stacked):
        return F.log_softmax(engine.evaluate(classifier, units).double(), 1)
    each = engine.evaluate(classifier, units, classifier.member_logits).double().softmax(2)  # (N, K, C)
    outside = 1 - members.T.double()[:, :, None]
    if not bool(outside.any()):
        outside = torch.ones_like(outside)
    return ((each * outside).sum(1) / outside.sum(1)).clamp_min(FLOOR).log()


class CrowdModel:
    def __init__(self, units: Units, n_classes: int, n_annotators: int, strength: float) -> None:
        self.units, self.n_classes, self.n_annotators, self.strength = units, n_classes, n_annotators, strength
        self.row = rows(units)
        self.several = torch.bincount(self.row, minlength=len(units))[self.row] > 1
        self.trust, self.temper = 1.0, 1.0
        self.matrices = torch.zeros(0)

    def start(self, rounds: int = 20) -> Tensor:
        q = soft_votes(self.units, self.n_classes).double()
        for _ in range(rounds):
            self.m_step(q)
            q = self.posterior(((q.sum(0) + 1) / (q.sum() + self.n_classes)).log(), self.log_t())
        return q.float()

    def m_step(self, q: Tensor, single: bool = False) -> None:
        counts = torch.zeros(self.n_annotators * self.n_classes, self.n_classes, dtype=torch.float64, device=q.device)
        counts.index_add_(0, self.units.annotator * self.n_classes + self.units.label, q.double() if single else q.double()[self.row])
        counts = counts.view(self.n_annotators, self.n_classes, self.n_classes).transpose(1, 2)
        common = counts.sum(0)
        eye = torch.eye(self.n_classes, dtype=common.dtype, device=q.device)
        common = (common + 0.5 * eye + 0.5 / self.n_classes) / (common.sum(1, keepdim=True) + 1)
        self.matrices = ((counts + self.strength * common) / (counts.sum(2, keepdim=True) + self.strength)).float()

    def log_t(self) -> Tensor:
        return self.matrices.double().clamp_min(FLOOR).log()[self.units.annotator, :, self.units.label]  # (E, C)

    def total(self, log_t: Tensor) -> Tensor:
        total = torch.zeros(len(self.units), self.n_classes, dtype=torch.float64, device=log_t.device)
        return total.index_add_(0, self.row, log_t)

    def posterior(self, log_prior: Tensor, log_t: Tensor, temper: float = 1.0) -> Tensor:
        return torch.softmax(log_prior + temper * self.total(log_t), 1)

    def update(self, log_f: Tensor, trust: float | None, temper: float | None, rounds: int, shrink: bool, each: float = 0.0) -> Tensor:
        q = log_f.exp()
        for round_ in range(rounds):
            log_t = self.log_t()
            log_pi = (log_f.exp().mean(0) + 1e-3).log() if shrink else torch.zeros(self.n_classes, device=log_f.device)
            if round_ == 0 and (trust is None or temper is None):
                self.trust, self.temper = self.learn(log_f, log_pi, log_t, trust, temper)
            else:
                self.trust, self.temper = (self.trust if trust is None else trust), (self.temper if temper is None else temper)
            prior = self.trust * log_f + (1 - self.trust) * log_pi
            q = self.posterior(prior, log_t, self.temper)
            if each:
                single = torch.softmax(prior[self.row] + log_t, 1)  # (E, C)
                single = each * single + (1 - each) * q[self.row]
                self.m_step(single, True)
                votes = torch.bincount(self.row, minlength=len(q)).clamp_min(1)[:, None]
                wanted = torch.zeros_like(q).index_add_(0, self.row, single) / votes
            else:
                self.m_step(q)
                wanted = q
        self.q = q.float()
        return wanted.float()

    def learn(self, log_f: Tensor, log_pi: Tensor, log_t: Tensor, trust: float | None, temper: float | None) -> tuple[float, float]:
        """The exponents under which each label is best predicted from the classifier and the instance's other labels."""
        rest = (self.total(log_t)[self.row] - log_t)[self.several]
        if len(rest) < 20:
            return (1.0 if trust is None else trust), (1.0 if temper is None else temper)
        own, row = log_t[self.several], self.row[self.several]
        best, found = -math.inf, (1.0, 1.0)
        for a in _TRUSTS if trust is None else (trust,):
            prior = (a * log_f + (1 - a) * log_pi)[row]
            for b in _TRUSTS if temper is None else (temper,):
                value = float(torch.logsumexp(torch.log_softmax(prior + b * rest, 1) + own, 1).mean())
                if value > best:
                    best, found = value, (a, b)
        return found
