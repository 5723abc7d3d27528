"""Does a classifier add anything to the labels? Both sides foretell labels that they were not given."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation import recommend
from crowdwise.aggregation.core.queries import TIE_TOLERANCE
from crowdwise.annotations import Annotations
from crowdwise.data.codes import cells, count
from crowdwise.errors import CrowdwiseWarning
from crowdwise.methods.core.label_model import Floats, Ints, LabelModel, LabelRows

Bools = npt.NDArray[np.bool_]

CHECK = "label_check"  # name of the array that a model keeps
ENOUGH = 20  # held-out labels from which on they decide
MOST = 200_000  # labels above which items are drawn for the comparison
CERTAIN = 2.0  # standard errors by which a difference is more than luck
SURE = 2.33  # of agreement beyond chance, which then comes by luck once in a hundred times


@dataclass(frozen=True)
class LabelCheck:
    """How many held-out labels agree with labels that were made without them."""

    n: int
    """Held-out labels: one of each item that has labels of two annotators, and that some network did not learn."""
    together: float
    """Share that agrees with labels from the classifier and the other annotators."""
    alone: float
    """Share that agrees with labels from the other annotators alone, as `recommend` makes them."""
    error: float
    """Standard error of the difference."""
    excess: float
    """Agreement of the classifier's own predictions with labels, beyond what the same predictions would have by chance."""
    excess_error: float
    """Its standard error."""

    @property
    def compared(self) -> bool:
        """Whether there were enough labels to hold out."""
        return self.n >= ENOUGH

    @property
    def labels_alone(self) -> bool:
        """Whether labels without the classifier are taken, as it tells nothing or does not make them better."""
        return self.tells is False or (self.compared and not self.together > self.alone + TIE_TOLERANCE)

    @property
    def adds(self) -> bool:
        """Whether the classifier makes labels better by more than luck would."""
        return self.compared and self.together - self.alone > CERTAIN * self.error

    @property
    def tells(self) -> bool | None:
        """Whether the classifier's own predictions agree with labels more often than by chance; None: too few to tell.

        Networks that learn from each other's targets may agree by some hundredths more than chance also on pure noise.
        """
        return None if math.isnan(self.excess) else bool(self.excess > SURE * self.excess_error)

    def __str__(self) -> str:
        if self.tells is False:
            return "tells nothing about labels that it has not learnt, so the labels are those of the annotators alone"
        if not self.compared:
            return "not compared with labels alone: too few items that it did not learn have labels of two annotators"
        shares = (
            f"of {count(self.n, 'held-out labels')}, {self.together:.1%} agree with labels from the classifier and the "
            f"annotators, {self.alone:.1%} with labels from the annotators alone"
        )
        if self.labels_alone:
            return f"adds nothing, so the labels are those of the annotators alone ({shares})"
        if self.adds:
            return f"makes the labels better ({shares})"
        return f"adds nothing that these labels can show ({shares})"

    def to_array(self) -> Floats:
        return np.array(astuple(self), np.float64)

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> LabelCheck | None:
        """The check among a model's arrays; models of earlier versions have none."""
        values = arrays.get(CHECK)
        if values is None or values.shape != (len(fields(cls)),) or not np.isfinite(values[0]):
            return None
        n, *others = values.tolist()
        return cls(int(n), *others)


def check_labels(crowd: Annotations, log_f: Floats, judged: Bools, most: float, seed: int) -> LabelCheck:
    """Compare labels with and without the classifier, whose ln f (n, C) comes from networks that did not learn the items.

    One label of each item that is ``judged`` (n,) is held out. ``most`` is that of `LabelModel.fit`.
    """
    rng = np.random.default_rng(seed)
    excess, excess_error = _beyond_chance(crowd, log_f, judged)
    if len(crowd) > MOST:
        drawn = rng.permutation(crowd.n_instances)
        labels = np.bincount(crowd.instance, minlength=crowd.n_instances)[drawn]
        items = np.sort(drawn[np.cumsum(labels) <= MOST])
        crowd, log_f, judged = crowd.select(instances=items), log_f[items], judged[items]
    held = _one_of_each(crowd, judged, rng)
    item, label = crowd.instance[held].astype(np.int64), crowd.label[held].astype(np.int64)
    n = len(np.unique(item))
    if n < ENOUGH:
        return LabelCheck(n, math.nan, math.nan, math.nan, excess, excess_error)
    rest = crowd.where(~held)
    alone = by_labels_alone(rest, seed)
    _, together = LabelModel.fit(log_f, LabelRows.of(rest), judged, most)
    weight = np.ones(len(item)) if crowd.weight is None else crowd.weight[held].astype(np.float64)
    hits = [_hits(posterior[item], label) for posterior in (together, alone)]
    total = weight.sum()
    shares = [float(weight @ each / total) for each in hits]
    difference = np.bincount(item, weight * (hits[0] - hits[1] - (shares[0] - shares[1])))
    error = math.sqrt(float(difference @ difference)) / float(total)
    return LabelCheck(n, shares[0], shares[1], error, excess, excess_error)


def by_labels_alone(crowd: Annotations, seed: int) -> Floats:
    """The posterior (n, C) that `recommend` gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdwiseWarning)  # what it says is about a method that nobody asked for
        warnings.simplefilter("ignore", UserWarning)
        return np.asarray(recommend(crowd, random_state=seed).estimator.posterior_, np.float64)


def _one_of_each(crowd: Annotations, judged: Bools, rng: np.random.Generator) -> Bools:
    """All labels that one annotator, drawn at random, gave each judged item that others labelled too: (N,)."""
    pair = cells(crowd.instance, crowd.n_annotators, crowd.annotator)
    pairs = rng.permutation(np.unique(pair))
    item = pairs // max(crowd.n_annotators, 1)
    items, first, number = np.unique(item, return_index=True, return_counts=True)
    chosen = pairs[first[(number > 1) & judged[items]]]
    return np.isin(pair, chosen)


def _hits(posterior: Floats, label: Ints) -> Floats:
    """1 where the most probable class is the label, shared where several are."""
    top = posterior >= posterior.max(1, keepdims=True) - TIE_TOLERANCE
    return np.asarray(top[np.arange(len(label)), label] / top.sum(1))


def _beyond_chance(crowd: Annotations, log_f: Floats, judged: Bools) -> tuple[float, float]:
    """Agreement of predictions with labels minus what they would have if they were dealt at random, and its error."""
    votes = np.asarray(crowd.votes(), np.float64) * judged[:, None]
    total = votes.sum()
    if np.count_nonzero(votes.sum(1)) < ENOUGH:
        return math.nan, math.nan
    predicted = log_f.argmax(1)
    shares = np.bincount(predicted[judged], minlength=log_f.shape[1]) / judged.sum()
    each = votes[np.arange(len(votes)), predicted] - votes @ shares
    value = float(each.sum() / total)
    residuals = each - value * votes.sum(1)
    return value, math.sqrt(float(residuals @ residuals)) / float(total)
