"""What is known about annotators before this crowd: counts of how they labelled what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core.kernels import Floats
from crowdwise.annotations import Annotations
from crowdwise.errors import DataError


@dataclass(frozen=True, eq=False)
class AnnotatorHistory:
    """Counts of known annotators: how often each gave label q to instances of class p.

    ``counts`` (R', C, C) is indexed [annotator, class, label]. Ids that a crowd does not have are left out, annotators
    that the history does not have start without.

    >>> past = AnnotatorHistory(["ann"], ["no", "yes"], np.array([[[9.0, 1.0], [2.0, 8.0]]]))
    >>> crowd = Annotations.coerce((["a", "a"], ["bob", "ann"], ["yes", "no"]))
    >>> past.counts_for(crowd)[1].tolist()
    [[9.0, 2.0], [1.0, 8.0]]
    """

    annotators: Any
    classes: Any
    counts: Floats

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts, np.float64)
        expected = len(self.annotators), len(self.classes), len(self.classes)
        if counts.shape != expected:
            raise DataError(
                f"history counts have shape {counts.shape}, expected {expected}: "
                f"{len(self.annotators)} annotators, {len(self.classes)} classes by as many labels"
            )
        if not np.all(np.isfinite(counts)) or counts.min(initial=0) < 0:
            raise DataError("history counts must be finite and not negative: they are numbers of labels")
        object.__setattr__(self, "counts", counts)

    @classmethod
    def of(cls, model: Any) -> Self:
        """The history that a fitted aggregator leaves: its expected counts, and what it knew before."""
        crowd = model._fitted_crowd()
        table = crowd.counts(model.raw_posterior_)
        if crowd.history is not None:
            table = table + crowd.history
        return cls(crowd.ids("annotators"), crowd.ids("classes"), table.transpose(0, 2, 1))

    @classmethod
    def coerce(cls, history: Any) -> AnnotatorHistory:
        """A history from a fitted aggregator, or as it is."""
        if isinstance(history, AnnotatorHistory):
            return history
        if hasattr(history, "_fitted_crowd"):
            return cls.of(history)
        raise DataError(
            f"cannot read a history from a {type(history).__name__}: expected a fitted aggregator or an "
            "AnnotatorHistory(annotators, classes, counts)"
        )

    def counts_for(self, annotations: Annotations) -> Floats:
        """Counts (R, C, C) as [annotator, label, class], zero for annotators and classes without history."""
        r, c = annotations.n_annotators, annotations.n_classes
        table = np.zeros((r, c, c))
        theirs, ours = _matches(self.annotators, annotations.annotators)
        old, new = _matches(self.classes, annotations.classes)
        if not len(old) and len(self.classes) and c:
            raise DataError(
                f"the history's classes ({', '.join(map(repr, list(self.classes)[:5]))}) are none of this crowd's "
                f"({', '.join(map(repr, annotations.classes[:5].tolist()))})"
            )
        table[np.ix_(ours, new, new)] = self.counts[np.ix_(theirs, old, old)].transpose(0, 2, 1)
        return table


def _matches(theirs: Any, ours: npt.NDArray[Any]) -> tuple[list[int], list[int]]:
    """Positions of the ids that both have, in either."""
    position: Mapping[Any, int] = {identifier: code for code, identifier in enumerate(ours.tolist())}
    listed = theirs.tolist() if isinstance(theirs, np.ndarray) else list(theirs)
    pairs = [(code, position[identifier]) for code, identifier in enumerate(listed) if identifier in position]
    return [old for old, _ in pairs], [new for _, new in pairs]
