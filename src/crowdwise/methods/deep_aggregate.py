"""A network trained on aggregated labels: DL-MV, DL-DS and their like (the paper's Type II baselines)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.methods.base import CrowdClassifier, Fitted
from crowdwise.registry import AGGREGATORS, METHODS


@METHODS.register("deep-aggregate")
@dataclass(kw_only=True, eq=False, repr=False)
class DeepAggregate(CrowdClassifier):
    """First aggregate the annotations of each instance, then train on the result by cross-entropy."""

    name: ClassVar[str] = "deep-aggregate"

    aggregator: str = "majority-vote"
    """Name of the aggregator, with its default parameters."""
    soft: bool = False
    """Train on posteriors instead of the most probable class."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        problem = engine.problem
        posterior = AGGREGATORS[self.aggregator]().fit(problem.annotations).posterior_
        target = torch.from_numpy(posterior).to(problem.device, torch.float32)
        if not self.soft:
            target = F.one_hot(target.argmax(1), problem.n_classes).float()
        classifier = self.new_classifier(engine, "classifier")

        def loss(batch: Batch) -> Tensor:
            losses = F.cross_entropy(classifier(batch.x), target[batch.unit], reduction="none")
            return batch.once(batch.instance_mean(losses))

        yield self.classifier_stage(engine, classifier, loss)
        return Fitted(classifier)
