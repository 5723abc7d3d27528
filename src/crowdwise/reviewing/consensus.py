"""The consensus of crowd and reviewers, fitted anew after answers, and what it promises about the rest."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy.special import entr

from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.recommend import suitable_method
from crowdwise.annotations import Annotations
from crowdwise.data.comparing import comparable
from crowdwise.data.factorise import Vocabulary, is_text
from crowdwise.data.types import Array, Floats, Ints
from crowdwise.figures import evidence
from crowdwise.registry import AGGREGATORS
from crowdwise.reviewing.answers import Answers

Trust = Literal["gold", "expert"]
SLOW, FAST = "committee", "hierarchical-dawid-skene"
EXPERT, EXPERT_LABELS = 0.95, 50.0  # an expert is right so often, as if seen so often in every class


@dataclass(frozen=True, eq=False)
class Consensus:
    """Posterior (n, C) of every item, and how it was made."""

    version: int
    method: str
    reason: str
    annotations: Annotations
    """The crowd's labels, then those of the reviewers."""
    posterior: Floats
    reviewed: Array  # (n,) whether anybody has reviewed the item
    comparable: bool = True
    """Whether the crowd itself tells right labels from wrong ones; if not, probabilities and skills are made up."""

    @cached_property
    def label(self) -> Ints:
        """Most likely class of every item, (n,); the first if tied."""
        return np.asarray(self.posterior.argmax(axis=1))

    @cached_property
    def confidence(self) -> Floats:
        """Probability of the most likely class, (n,)."""
        return np.asarray(self.posterior.max(axis=1))

    @cached_property
    def information(self) -> Floats:
        """Bits that a reviewer's label is expected to tell about the class, (n,): H(label) - H(label | class)."""
        classes = self.posterior.shape[1]
        wrong = (1 - EXPERT) / max(classes - 1, 1)
        labels = wrong + (EXPERT - wrong) * self.posterior
        given = entr(EXPERT) + (classes - 1) * entr(wrong)
        return np.asarray(np.maximum(entr(labels).sum(axis=1) - given, 0) / np.log(2))

    @cached_property
    def skill(self) -> Floats:
        """Expected share of right labels of every annotator, (R,); NaN without labels."""
        crowd = self.annotations
        expected = self.posterior[crowd.instance, crowd.label]
        if crowd.weight is not None:
            expected = expected * crowd.weight
        right = np.bincount(crowd.annotator, expected, crowd.n_annotators)
        number = crowd.labels_per_annotator
        return np.asarray(np.divide(right, number, out=np.full(len(right), np.nan), where=number > 0))

    @cached_property
    def disagreement(self) -> Floats:
        """Share of pairs of labels that differ, (n,); 0 where there are no pairs.

        With weights, a pair counts as the product of its two.
        """
        crowd = self.annotations
        number, votes = crowd.labels_per_instance, crowd.votes()
        squares = None if crowd.weight is None else crowd.weight.astype(np.float64) ** 2
        itself = np.bincount(crowd.instance, squares, crowd.n_instances)
        rows = np.bincount(crowd.instance, minlength=crowd.n_instances)
        pairs, differing = number**2 - itself, number**2 - (votes**2).sum(axis=1)
        return np.asarray(np.where(rows > 1, differing / np.where(rows > 1, pairs, 1), 0.0))


def merged(crowd: Annotations, answers: Answers) -> Annotations:
    """The annotations of the crowd and, after them, those of the reviewers, who follow in the order of their names.

    Where the crowd's labels have weights, a reviewer's label has the weight 1.
    """
    items, who, labels, _ = answers.triples()
    if not len(items):
        return crowd
    names = sorted(set(who))
    ids = crowd.annotator_vocabulary.arrow
    known = ids if is_text(ids.type) else pa.array([str(name) for name in ids.to_pylist()], pa.string())
    annotators = pa.concat_arrays([known, pa.array(names, known.type)])
    code = {name: crowd.n_annotators + at for at, name in enumerate(names)}
    weight = crowd.weight
    if weight is not None:
        weight = np.concatenate([weight, np.ones(len(items), np.float32)])
    return Annotations(
        np.concatenate([crowd.instance, items]).astype(np.int32),
        np.concatenate([crowd.annotator, np.array([code[name] for name in who])]).astype(np.int32),
        np.concatenate([crowd.label, labels]).astype(np.int32),
        crowd.instance_vocabulary,
        Vocabulary(len(annotators), annotators),
        crowd.class_vocabulary,
        weight,
    )


def refit(
    annotations: Annotations,
    n_crowd: int,
    agreed: Array,
    known: Array,
    *,
    version: int = 0,
    method: str = "auto",
    trust: Trust = "gold",
    seed: int = 0,
    told: bool | None = None,
) -> Consensus:
    """Fit a method to ``annotations``, in which annotators from ``n_crowd`` on are reviewers.

    Gold: what reviewers ``agreed`` on (n,), -1 where nothing, is true, as is what was ``known`` (n,) before; reviewers
    count as experts where they do not agree. Expert: reviewers are annotators who start with a good record, see `EXPERT`.
    ``told`` is what `tells` says of the crowd, if that is known.
    """
    crowd = MemoryCrowd.of(annotations)
    name, reason = suitable_method(crowd) if method == "auto" else (method, "")
    name = FAST if name == SLOW else name  # after every answer: quickly, and with reviewers' records
    kind: Any = AGGREGATORS[name]
    as_gold = trust == "gold" or not kind.uses_history
    gold = np.where(agreed >= 0, agreed, known).astype(np.int32) if as_gold else known
    history = _experts(annotations, n_crowd) if kind.uses_history and annotations.n_annotators > n_crowd else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it was said before the review began
        model = kind(random_state=seed, calibration="usual").fit_crowd(MemoryCrowd.of(annotations, gold, history))
    reviewed = np.zeros(annotations.n_instances, bool)
    reviewed[annotations.instance[annotations.annotator >= n_crowd]] = True
    if told is None:
        told = tells(annotations.where(annotations.annotator < n_crowd))
    return Consensus(version, name, reason, annotations, model.posterior_, reviewed, told)


def tells(crowd: Annotations) -> bool:
    """Whether the labels of a crowd tell right from wrong: some can be compared, and agree more often than by chance."""
    return comparable(crowd) and evidence(crowd).enough


def _experts(annotations: Annotations, n_crowd: int) -> Floats:
    """Earlier labels of the reviewers, (R, C, C) as [annotator, label, class]."""
    classes = annotations.n_classes
    history = np.zeros((annotations.n_annotators, classes, classes))
    record = np.full((classes, classes), (1 - EXPERT) / max(classes - 1, 1))
    np.fill_diagonal(record, EXPERT)
    history[n_crowd:] = EXPERT_LABELS * record
    return history
