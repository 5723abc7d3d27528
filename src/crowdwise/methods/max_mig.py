"""Max-MIG: a classifier and an aggregator of labels that know as much as possible of each other.

P. Cao, Y. Xu, Y. Kong and Y. Wang, "Max-MIG: an Information Theoretic Approach for Joint Learning from Crowds", ICLR 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.constraints import NonNegativeFloat, Probability
from crowdwise.engine import Batch, Engine, Group, Stage, StageResult
from crowdwise.engine.distributed import rank, sum_over_ranks, world_size
from crowdwise.errors import ConfigError
from crowdwise.methods.core.base import CrowdClassifier, Fitted
from crowdwise.methods.core.steps import annotator_matrices, label_amounts, normalised, soft_votes
from crowdwise.networks import ConstantTransition
from crowdwise.registry import METHODS

# for each f-divergence: the reward f'(m) of a pair that belongs together, from ln m, and the price f*(f'(m)) of any other
DIVERGENCES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "kl": (lambda log_m: 1 + log_m, lambda m: m),
    "pearson": (lambda log_m: 2 * (log_m.exp() - 1), lambda m: m.square() - 1),
    "js": (lambda log_m: math.log(2) - F.softplus(-log_m), lambda m: ((1 + m) / 2).log()),
}


class LabelAggregator(nn.Module):
    """g(y_i) = softmax(ln p + sum over the labels of i of A^j[:, y_ij]), with A^j = ln(T^j + epsilon) at the start."""

    log_prior: Tensor

    def __init__(self, matrices: Tensor, prior: Tensor, epsilon: float) -> None:
        super().__init__()
        n_annotators, n_classes, _ = matrices.shape
        scores = (matrices + epsilon).log().transpose(1, 2).reshape(n_annotators * n_classes, n_classes)
        self.scores = nn.Parameter(scores.clone())  # (R C, C): A^j[p, q] in row j C + q, so that a label takes one row
        self.register_buffer("log_prior", prior.log())

    def forward(self, batch: Batch, amount: Tensor) -> Tensor:
        """ln g (B, C), where each annotation is ``amount`` (P,) of a label."""
        given = self.scores.index_select(0, batch.annotator * len(self.log_prior) + batch.label)
        return F.log_softmax(self.log_prior + batch.instance_sum(given, amount), 1)

    def matrices(self) -> Tensor:
        """T^j[p, :] = softmax of A^j[p, :]: (R, C, C)."""
        n_classes = len(self.log_prior)
        return self.scores.detach().reshape(-1, n_classes, n_classes).softmax(1).transpose(1, 2)


def mutual_information_loss(log_h: Tensor, log_g: Tensor, log_prior: Tensor, size: Tensor, divergence: str) -> Tensor:
    """Minus the f-mutual information of classifier h and aggregator g, both (B, C), in a batch of ``size`` instances.

    With m_ab = sum_c h_c(x_a) g_c(y_b) / p_c, it is minus the mean over a of f'(m_aa) plus the mean over a != b of
    f*(f'(m_ab)): for KL, 1 + ln m_aa and m_ab. A batch of one has no pairs to tell apart: 0.

    >>> log_h, log_g = torch.tensor([[0.8, 0.2], [0.3, 0.7]]).log(), torch.tensor([[0.9, 0.1], [0.4, 0.6]]).log()
    >>> prior = torch.tensor([0.5, 0.5])
    >>> round(mutual_information_loss(log_h, log_g, prior.log(), torch.tensor(2.0), "kl").item(), 6)
    -0.454502
    """
    reward, price = DIVERGENCES[divergence]
    with torch.autocast(log_h.device.type, enabled=False):
        log_own = torch.logsumexp(log_h + log_g - log_prior, 1)  # ln m_aa
        m = log_h.exp() @ of_global_batch((log_g - log_prior).exp(), size).T
        others = price(m).sum() - price(log_own.exp()).sum()
        loss = others / (size * (size - 1)).clamp_min(1) - reward(log_own).sum() / size
        return loss * (size > 1)


def of_global_batch(values: Tensor, size: Tensor) -> Tensor:
    """Rows (B, ...) of this process's part of a batch -> the rows of all processes, in the order of the batch."""
    if world_size() == 1:
        return values
    everything = values.new_zeros(int(size), *values.shape[1:])
    everything[rank() :: world_size()] = values
    return sum_over_ranks(everything)


@METHODS.register("max-mig")
@dataclass(kw_only=True, eq=False, repr=False)
class MaxMIG(CrowdClassifier):
    """A classifier and a label aggregator trained to maximise their mutual information.

    It knows nothing of how annotators depend on each other. Every instance counts alike, whatever ``reduction`` says.
    ``transition`` gives the rows of exp A^j, scaled to sum to 1.
    """

    name: ClassVar[str] = "max-mig"
    title: ClassVar[str] = "Max-MIG"
    settings: ClassVar[Mapping[str, Any]] = {"optimiser": "adamw", "lr": 1e-3}
    paper_settings: ClassVar[Mapping[str, Any]] = {
        "optimiser": "adam",
        "lr": 1e-3,
        "epochs": 50,
        "batch_size": 64,
        "milestones": (),
    }

    aggregator_lr: NonNegativeFloat = 1e-4
    """Learning rate of the aggregator."""
    divergence: Literal["kl", "pearson", "js"] = "kl"
    """The f-divergence behind the mutual information: ``"kl"``, ``"pearson"`` or ``"js"``."""
    epsilon: Probability = 0.01
    """Added to the confusion matrices (under soft majority vote) at which the aggregator starts."""
    prior: Literal["uniform", "votes"] = "uniform"
    """The class prior p, which is not trained: ``"uniform"``, or the classes' shares of ``"votes"``."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        problem = engine.problem
        batch_size = self.training(problem).batch_size
        if batch_size < 2:
            raise ConfigError(f"batch_size must be an integer of 2 or more, got {batch_size}")
        votes = soft_votes(problem.train, problem.n_classes)
        prior = votes.mean(0).clamp_min(1e-3) if self.prior == "votes" else torch.ones_like(votes[0])
        matrices = annotator_matrices(problem.train, votes, problem.n_annotators)
        classifier = self.new_classifier(engine, "classifier")
        aggregator = LabelAggregator(matrices, normalised(prior), self.epsilon)
        amounts = label_amounts(problem.train)

        def loss(batch: Batch) -> Tensor:
            log_h = F.log_softmax(classifier(batch.x), 1).chunk(batch.networks)
            log_g = aggregator(batch, amounts(batch)).chunk(batch.networks)
            prior, size = aggregator.log_prior, batch.size / batch.networks
            losses = [
                mutual_information_loss(h, g, prior, size, self.divergence) for h, g in zip(log_h, log_g, strict=True)
            ]
            return sum(losses[1:], losses[0]) / batch.networks

        also = {"aggregator": Group(aggregator, self.aggregator_lr)}
        yield self.classifier_stage(engine, classifier, loss, also=also)
        return Fitted(classifier, ConstantTransition(aggregator.matrices()))
