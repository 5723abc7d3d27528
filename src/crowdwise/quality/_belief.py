"""The posterior of every instance: given, or from a majority vote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import softmax

from crowdwise.annotations import Annotations
from crowdwise.data.comparing import comparable
from crowdwise.data.factorise import Vocabulary
from crowdwise.data.types import Floats, Ints, Mask
from crowdwise.errors import DataError

NUMBERS = 2**23  # numbers held in memory at a time by computations in blocks
TIED = 1e-9  # difference of probabilities below which classes tie
TYPICAL = 0.75  # assumed accuracy of a crowd without any shared instance


@dataclass(frozen=True, eq=False)
class Belief:
    """Posterior of the instances, and the annotators' confusion matrices if known."""

    posterior: Floats  # (n, C)
    judging: Floats  # (n, C) the one by which annotators are judged
    confusion: Floats | None  # (R, C, C)
    majority: bool = False  # whether the posterior comes from a majority vote
    comparable: bool = True  # whether anything tells right labels from wrong ones

    @classmethod
    def of(cls, annotations: Annotations, posterior: Any, confusion: Any = None) -> Belief:
        """From an array (n, C), a fitted aggregator (``posterior_``, ``confusion_``), or None for a majority vote."""
        if posterior is None:
            votes = majority_posterior(annotations)
            return cls(
                votes, votes, _confusion(annotations, confusion), majority=True, comparable=comparable(annotations)
            )
        if confusion is None:
            confusion = getattr(posterior, "confusion_", None)
        given = checked_posterior(getattr(posterior, "posterior_", posterior))
        expected = annotations.n_instances, annotations.n_classes
        if given.shape != expected:
            raise DataError(f"posterior has shape {given.shape}, but the annotations need {expected} (n, C)")
        told = bool(getattr(posterior, "comparable_", True))  # an array may come from anywhere
        judging = np.asarray(getattr(posterior, "judging_posterior_", given))
        return cls(given, judging, _confusion(annotations, confusion), comparable=told)

    @property
    def label(self) -> Ints:
        """Most likely class of every instance, (n,); the first if tied."""
        if not self.posterior.shape[1]:
            return np.zeros(len(self.posterior), np.int64)
        return np.asarray(self.posterior.argmax(axis=1))

    @property
    def confidence(self) -> Floats:
        """Probability of the most likely class, (n,)."""
        return np.asarray(self.posterior.max(axis=1, initial=0))


def consensus_shares(posterior: Floats) -> Floats:
    """1 for the most likely class of every instance, (n, C); classes that tie share it.

    >>> consensus_shares(np.array([[0.2, 0.8], [0.5, 0.5]])).tolist()
    [[0.0, 1.0], [0.5, 0.5]]
    """
    most_likely = posterior >= posterior.max(axis=1, keepdims=True, initial=0) - TIED
    return np.asarray(most_likely / np.maximum(most_likely.sum(axis=1, keepdims=True), 1))


def majority_posterior(annotations: Annotations) -> Floats:
    """Majority vote with honest confidence, (n, C).

    All annotators are assumed to be equally accurate, with uniform errors; their accuracy follows from how often two
    labels of an instance agree. The most likely class is the one with most votes; without votes, all are equal.
    """
    votes, classes = annotations.votes(), annotations.n_classes
    if classes < 2:
        return np.ones(votes.shape)
    labels = annotations.labels_per_instance
    pairs = float((labels * (labels - 1)).sum())
    agreeing = float((votes * (votes - 1)).sum())
    typical = TYPICAL**2 + (1 - TYPICAL) ** 2 / (classes - 1)
    agreement = (agreeing + 2 * typical) / (pairs + 2)
    # two labels agree if both are right, or wrong in the same way: a = p^2 + (1 - p)^2 / (C - 1), solved for p
    accuracy = (1 + np.sqrt(max((classes - 1) * (classes * agreement - 1), 0))) / classes
    accuracy = np.clip(accuracy, (1 + 0.05) / classes, 0.999)
    return np.asarray(softmax(votes * np.log(accuracy * (classes - 1) / (1 - accuracy)), axis=1))


def checked_posterior(posterior: Any) -> Floats:
    """A posterior as floats (n, C), with rows that sum to 1."""
    array = np.asarray(posterior, np.float64)
    if array.ndim != 2:
        raise DataError(f"posterior must have two axes (n, C), got shape {array.shape}")
    bad = ~((array >= 0).all(axis=1) & (np.abs(array.sum(axis=1) - 1) < 1e-3))
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"posterior, row {row}: {array[row].tolist()} is not a distribution over {array.shape[1]} classes"
        )
    return array


def _confusion(annotations: Annotations, confusion: Any) -> Floats | None:
    if confusion is None:
        return None
    array = np.asarray(confusion, np.float64)
    expected = annotations.n_annotators, annotations.n_classes, annotations.n_classes
    if array.shape != expected:
        raise DataError(f"confusion has shape {array.shape}, but the annotations need {expected} (R, C, C)")
    if not ((array >= 0).all() and (np.abs(array.sum(axis=2) - 1) < 1e-3).all()):
        raise DataError(
            "confusion must hold distributions: confusion[j, p] is the one of annotator j's labels for class p"
        )
    return array


def floats(values: Floats, missing: Mask) -> pa.Array:
    """A column of numbers, null where ``missing``."""
    return pa.array(values, mask=missing)


def nothing(columns: Mapping[str, Any]) -> dict[str, pa.Array]:
    """The same columns, all null: where nothing can be compared, they would be made up."""
    return {name: pa.nulls(len(column), pa.array(column).type) for name, column in columns.items()}


def ids(vocabulary: Vocabulary, codes: Ints, missing: Mask) -> pa.Array:
    """A column of ids, null where ``missing``."""
    return vocabulary.arrow.take(pa.array(codes, mask=missing))
