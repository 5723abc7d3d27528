"""Cross-entropy on every annotation, as if all came from one reliable source: the baseline without noise handling."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.engine import Batch, Engine, Stage, StageResult
from crowdwise.methods.core.base import CrowdClassifier, Fitted
from crowdwise.registry import METHODS


def annotation_cross_entropy(classifier: nn.Module, batch: Batch) -> Tensor:
    """Mean of -ln f_y(x) over annotations."""
    return batch.mean(F.cross_entropy(classifier(batch.x)[batch.row], batch.label, reduction="none"))


@METHODS.register("ce")
@dataclass(kw_only=True, eq=False, repr=False)
class CE(CrowdClassifier):
    """A network trained by cross-entropy on all annotations.

    >>> import numpy as np, crowdwise
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> annotations = np.stack([X[:, 0] > 0, X[:, 0] > 0.1], axis=1).astype(int)
    >>> model = crowdwise.CE(epochs=30, lr=0.1).fit(X, annotations)
    >>> model.score(X, X[:, 0] > 0) > 0.9
    True
    """

    name: ClassVar[str] = "ce"
    title: ClassVar[str] = "CE"

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        classifier = self.new_classifier(engine, "classifier")
        yield self.classifier_stage(engine, classifier, lambda batch: annotation_cross_entropy(classifier, batch))
        return Fitted(classifier)
