"""What is compared: methods of the registry, and logistic regression on aggregated labels as the plain alternative."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from sklearn.base import clone

from crowdwise.annotations import Annotations
from crowdwise.data.types import Array
from crowdwise.engine.intake import Intake
from crowdwise.engine.prepare import Prepare
from crowdwise.engine.problem import make_inputs
from crowdwise.errors import ConfigError, suggest
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.registry import AGGREGATORS, METHODS

PLAIN = {
    "logistic-majority-vote": ("majority-vote", "Logistic regression on majority votes"),
    "logistic-dawid-skene": ("hierarchical-dawid-skene", "Logistic regression on Dawid-Skene labels"),
}
"""The plain alternatives, with the aggregator and the title of each."""
SHORT_LIST = (*PLAIN, "ce", "concord", "max-mig", "geo-crowd-net", "taidtm")
"""What is compared unless the caller says otherwise, the simplest first."""
_PIXELS = 1024  # values of a picture up to which logistic regression is worth trying


class Model(Protocol):
    """What can be compared: fitted on annotations, it gives a probability for each of their classes."""

    def fit(self, X: Any, annotations: Annotations) -> Self: ...
    def predict_proba(self, X: Any) -> Array: ...


@dataclass(frozen=True)
class Candidate:
    """One line of the comparison."""

    name: str
    title: str
    model: Model  # not fitted


class LogisticRegression:
    """Logistic regression on labels that an aggregator made, with inputs prepared as the methods prepare them."""

    def __init__(self, aggregator: str, seed: int, prepare: str = "auto") -> None:
        self.aggregator, self.seed, self.prepare_mode = aggregator, seed, prepare

    def fit(self, X: Any, annotations: Annotations) -> Self:
        from sklearn.dummy import DummyClassifier
        from sklearn.linear_model import LogisticRegression as Regression

        labelled = np.flatnonzero(annotations.labels_per_instance)
        aggregated = AGGREGATORS[self.aggregator](random_state=self.seed).fit(annotations)
        label = annotations.class_codes(aggregated.labels_)[labelled]
        self.n_classes = annotations.n_classes
        self.intake, _ = Intake.learn(X, labelled, self.seed)
        raw = self._raw(X)[torch.from_numpy(labelled)]
        self.prepare = Prepare.learn(self.intake.prepare(self.prepare_mode), raw)
        several = len(np.unique(label)) > 1
        self.regression = Regression(max_iter=300) if several else DummyClassifier()
        self.regression.fit(self.prepare(raw).flatten(1).numpy(), label)
        return self

    def predict_proba(self, X: Any) -> Array:
        probabilities = np.zeros((len(self._raw(X)), self.n_classes))
        found = self.regression.predict_proba(self.prepare(self._raw(X)).flatten(1).numpy())
        probabilities[:, self.regression.classes_] = found
        return probabilities

    def _raw(self, X: Any) -> torch.Tensor:
        inputs = make_inputs(self.intake(X), torch.device("cpu"))
        return inputs.take(torch.arange(len(inputs)))


def choose_candidates(
    methods: Iterable[str] | Mapping[str, Any] | None, shape: tuple[int, ...], seed: int, device: str
) -> list[Candidate]:
    """The candidates that the caller named, or the short list; ``shape`` is that of one instance."""
    if isinstance(methods, Mapping):
        return [_titled(title, method, seed, device) for title, method in methods.items()]
    names = list(methods) if methods is not None else list(SHORT_LIST)
    if methods is None and len(shape) > 1 and np.prod(shape) > _PIXELS:
        names = [name for name in names if name not in PLAIN]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"methods must be different names, at least one of them, got {names!r}")
    return [_named(name, seed, device) for name in names]


def _titled(title: str, method: Any, seed: int, device: str) -> Candidate:
    if isinstance(method, str):
        return Candidate(title, title, _named(method, seed, device).model)
    if not isinstance(method, CrowdClassifier):
        raise ConfigError(f"methods[{title!r}] must be a name or a method such as Concord(), got {method!r}")
    return Candidate(title, title, clone(method).set_params(verbose=0))


def _named(name: str, seed: int, device: str) -> Candidate:
    if name in PLAIN:
        aggregator, title = PLAIN[name]
        return Candidate(name, title, LogisticRegression(aggregator, seed))
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}{suggest(name, [*PLAIN, *METHODS])}")
    method = METHODS[name]
    return Candidate(
        name, getattr(method, "title", method.__name__), method(random_state=seed, verbose=0, device=device)
    )
