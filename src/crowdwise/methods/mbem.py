"""MBEM: model-bootstrapped expectation maximisation, which needs but one label for each instance.

A. Khetan, Z. Lipton and A. Anandkumar, "Learning From Noisy Singly-labeled Data", ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from crowdwise.constraints import PositiveInt
from crowdwise.engine import Engine, Stage, StageResult
from crowdwise.methods.core.base import CrowdClassifier, Fitted
from crowdwise.methods.core.steps import FLOOR, annotator_matrices, class_posterior, soft_votes, target_cross_entropy
from crowdwise.networks import Classifier, ConstantTransition
from crowdwise.registry import METHODS


@METHODS.register("mbem")
@dataclass(kw_only=True, eq=False, repr=False)
class MBEM(CrowdClassifier):
    """EM whose truth is what a network predicts: train, compare annotators with predictions, weigh labels, train anew.

    Round 1 trains on soft majority votes. With t_i the class predicted for a training instance, T^j[p, q] is the share of
    label q where t = p, pi_p the share of t = p, and the targets of the next round are proportional to pi_p times the
    product of T^j[p, y_ij]. Every instance counts alike, whatever ``reduction`` says.
    """

    name: ClassVar[str] = "mbem"
    title: ClassVar[str] = "MBEM"

    rounds: PositiveInt = 2
    """Networks trained one after the other, each from new weights and for ``epochs``; the last one is kept."""
    class_frequencies: bool = True
    """Whether pi has a part in the targets; otherwise it is uniform."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        units, n_classes = engine.problem.train, engine.problem.n_classes
        target = soft_votes(units, n_classes)
        for number in range(1, self.rounds + 1):
            classifier = yield from self._train(engine, f"round {number}", target)
            predicted = F.one_hot(engine.evaluate(classifier, units).argmax(1), n_classes).float()
            matrices = annotator_matrices(units, predicted, engine.problem.n_annotators)
            prior = predicted.mean(0) if self.class_frequencies else torch.ones_like(predicted[0])
            target = class_posterior(units, prior.clamp_min(FLOOR).log(), matrices)
        return Fitted(classifier, ConstantTransition(matrices))

    def _train(self, engine: Engine, name: str, target: Tensor) -> Generator[Stage, StageResult, Classifier]:
        classifier = self.new_classifier(engine, name)
        yield self.classifier_stage(
            engine, classifier, lambda batch: target_cross_entropy(classifier, batch, target), name=name
        )
        return classifier
