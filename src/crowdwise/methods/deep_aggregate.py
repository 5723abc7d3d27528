"""A network trained on aggregated labels: DL-MV, DL-DS and their like (the paper's Type II and III baselines)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn import functional as F

from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.queries import TIE_TOLERANCE, choose
from crowdwise.engine import Engine, Stage, StageResult
from crowdwise.engine.device import derive_seed
from crowdwise.methods.core.base import CrowdClassifier, Fitted
from crowdwise.methods.core.steps import target_cross_entropy
from crowdwise.networks import ConstantTransition
from crowdwise.registry import AGGREGATORS, METHODS


@METHODS.register("deep-aggregate")
@dataclass(kw_only=True, eq=False, repr=False)
class DeepAggregate(CrowdClassifier):
    """A network trained on labels that an aggregator infers from the annotations alone.

    Every instance counts alike, whatever ``reduction`` says. ``transition`` gives the aggregator's confusion matrices.
    """

    name: ClassVar[str] = "deep-aggregate"

    aggregator: str = "majority-vote"
    """Name of the aggregator."""
    aggregator_options: Mapping[str, Any] | None = None
    """Its parameters, ``{"tie": "random"}`` for instance. ``random_state`` follows this model's unless it is given."""
    soft: bool = False
    """Train on posteriors instead of the most probable class."""

    @property
    def tie_share_(self) -> float:
        """Share of the training instances whose class was decided by the aggregator's rule for ties.

        With two labels an instance, majority vote ties wherever they differ: the rule then matters a lot.
        """
        self._fitted_classifier()
        return float(self.arrays_["tie_share"][0])

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        problem, seed = engine.problem, derive_seed(engine.problem.seed, "aggregator")
        aggregator: Aggregator = AGGREGATORS[self.aggregator]()
        aggregator.set_params(**{"random_state": seed, **(self.aggregator_options or {})})
        posterior = aggregator.fit(problem.annotations).raw_posterior_
        target = torch.from_numpy(posterior)
        if not self.soft:
            codes = choose(posterior, aggregator.tie, np.random.default_rng(seed))
            target = F.one_hot(torch.from_numpy(codes), problem.n_classes)
        target = target.to(problem.device, torch.float32)
        classifier = self.new_classifier(engine, "classifier")
        yield self.classifier_stage(engine, classifier, lambda batch: target_cross_entropy(classifier, batch, target))
        tied = (posterior >= posterior.max(1, keepdims=True) - TIE_TOLERANCE).sum(1) > 1
        transition = ConstantTransition(torch.from_numpy(aggregator.confusion_))
        return Fitted(classifier, transition, {"tie_share": np.array([tied.mean()])})


@METHODS.register("dl-mv")
@dataclass(kw_only=True, eq=False, repr=False)
class DLMV(DeepAggregate):
    """A network trained on majority votes."""

    name: ClassVar[str] = "dl-mv"
    title: ClassVar[str] = "DL-MV"


@METHODS.register("dl-crh")
@dataclass(kw_only=True, eq=False, repr=False)
class DLCRH(DeepAggregate):
    """A network trained on labels found by CRH truth discovery (Li et al., SIGMOD 2014)."""

    name: ClassVar[str] = "dl-crh"
    title: ClassVar[str] = "DL-CRH"
    aggregator: str = "crh"


@METHODS.register("dl-mmsr")
@dataclass(kw_only=True, eq=False, repr=False)
class DLMMSR(DeepAggregate):
    """A network trained on labels found by M-MSR (Ma and Olshevsky, NeurIPS 2020)."""

    name: ClassVar[str] = "dl-mmsr"
    title: ClassVar[str] = "DL-MMSR"
    aggregator: str = "mmsr"


@METHODS.register("dl-ds")
@dataclass(kw_only=True, eq=False, repr=False)
class DLDS(DeepAggregate):
    """A network trained on labels found by Dawid and Skene's EM (1979)."""

    name: ClassVar[str] = "dl-ds"
    title: ClassVar[str] = "DL-DS"
    aggregator: str = "dawid-skene"


@METHODS.register("dl-ibcc")
@dataclass(kw_only=True, eq=False, repr=False)
class DLIBCC(DeepAggregate):
    """A network trained on labels found by IBCC, Bayesian Dawid-Skene (Kim and Ghahramani, AISTATS 2012)."""

    name: ClassVar[str] = "dl-ibcc"
    title: ClassVar[str] = "DL-IBCC"
    aggregator: str = "ibcc"


@METHODS.register("dl-ebcc")
@dataclass(kw_only=True, eq=False, repr=False)
class DLEBCC(DeepAggregate):
    """A network trained on labels found by EBCC, which knows correlated annotators (Li et al., ICML 2019)."""

    name: ClassVar[str] = "dl-ebcc"
    title: ClassVar[str] = "DL-EBCC"
    aggregator: str = "ebcc"
