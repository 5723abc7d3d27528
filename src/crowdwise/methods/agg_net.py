"""AggNet: expectation maximisation in which a network is the class prior of every instance.

S. Albarqouni et al., "AggNet: Deep Learning From Crowds for Mitosis Detection in Breast Cancer Histology Images", IEEE TMI 2016.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import torch

from crowdwise.constraints import NonNegativeFloat
from crowdwise.engine import Engine, Group, Stage, StageResult
from crowdwise.methods.core.base import CrowdClassifier, Fitted
from crowdwise.methods.core.steps import annotator_matrices, class_posterior, soft_votes, target_cross_entropy
from crowdwise.networks import ConstantTransition
from crowdwise.registry import METHODS


@METHODS.register("agg-net")
@dataclass(kw_only=True, eq=False, repr=False)
class AggNet(CrowdClassifier):
    """Dawid-Skene's EM with the classifier as prior, a round of EM for every epoch of training.

    E: mu_i(p) is proportional to f_p(x_i) times the product of T^j[p, y_ij]. M: T^j[p, q] is proportional to the sum of
    mu_i(p) where j said q, and f is trained for an epoch on mu. It starts at mu = soft majority vote. Every instance counts
    alike, whatever ``reduction`` says.
    """

    name: ClassVar[str] = "agg-net"
    title: ClassVar[str] = "AggNet"

    smoothing: NonNegativeFloat = 0.01
    """Added to the expected counts behind T^j."""
    floor: NonNegativeFloat = 1e-3
    """Least value of f_p(x) in the E step, so that an overconfident network can still be overruled."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        units, n_annotators = engine.problem.train, engine.problem.n_annotators
        classifier = self.new_classifier(engine, "classifier")
        target = soft_votes(units, engine.problem.n_classes)
        transition = ConstantTransition(annotator_matrices(units, target, n_annotators, self.smoothing))

        def update(epoch: int) -> None:
            if epoch == 0:
                target.copy_(soft_votes(units, engine.problem.n_classes))
            else:  # so many epochs of training lie behind
                f = torch.softmax(engine.evaluate(classifier, units), 1)
                target.copy_(class_posterior(units, f.clamp_min(self.floor).log(), transition.matrices))
            transition.matrices.copy_(annotator_matrices(units, target, n_annotators, self.smoothing))

        result = yield self.classifier_stage(
            engine,
            classifier,
            lambda batch: target_cross_entropy(classifier, batch, target),
            also={"transition": Group(transition, average=False)},  # nothing to train, but checkpoints must hold it
            before_epoch=update,
        )
        update(len(result.history))
        return Fitted(classifier, transition)
