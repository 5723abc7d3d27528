"""A profile of every annotator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse
from scipy.special import stdtrit

from crowdwise.aggregation.core.bayes_kernels import decoded
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.kernels import expected_counts
from crowdwise.agreement import Ordered, scale_of
from crowdwise.annotations import Annotations
from crowdwise.constraints import OpenProbability, checked
from crowdwise.data.codes import row_blocks
from crowdwise.data.factorise import Vocabulary
from crowdwise.data.shares import wilson
from crowdwise.data.types import Floats, Ints, Mask
from crowdwise.errors import DataError
from crowdwise.quality._belief import NUMBERS, Belief, consensus_shares, floats, ids, nothing
from crowdwise.quality._skill import Skill, independent_skill, skill

SMOOTHING = 2.0  # labels of an average annotator added to each row of a confusion matrix
UNLIKELY = 1e-4  # smaller probabilities are ignored in confusion matrices, to keep them sparse


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over the labels of a crowd, from which its annotators' profiles are computed."""

    annotators: Vocabulary
    classes: Vocabulary
    given: Ints  # (R, C) how often each annotator gave each label
    agreeing: Floats  # (R,) labels that are the most likely class of their instance; half of one where two classes tie
    counts: sparse.csr_array[Any]  # (R * C, C) expected number by annotator and label, and by true class
    expected: Floats  # (R, C) expected number of the annotator's instances of each class
    confusion: Floats | None  # (R, C, C) if known
    skill: Skill
    extremes: tuple[Skill, ...] = ()  # with honest confidence, and if annotators erred independently: ends of intervals
    comparable: bool = True  # whether anything tells right labels from wrong ones

    @property
    def labels(self) -> Ints:
        """Number of labels of every annotator, (R,)."""
        return np.asarray(self.given.sum(axis=1))


@checked
def annotators(
    annotations: Any,
    posterior: Any = None,
    *,
    confusion: Any = None,
    timestamps: Any = None,
    durations: Any = None,
    gold: Mapping[Any, Any] | None = None,
    confidence: OpenProbability = 0.95,
    ordered: Ordered = "auto",
) -> pa.Table:
    """One row per annotator, in the order of ``annotations.annotators``; null if unknown.

    ``posterior`` is an array (n, C), a fitted aggregator, or None for a majority vote; ``confusion`` (R, C, C) holds
    known confusion matrices. ``timestamps`` (E,) say when each annotation was made (seconds, or datetime64) and
    ``durations`` (E,) how many seconds it took; NaN is unknown. ``gold`` maps some instances to their true classes.

    Columns: ``annotator``; ``annotator_quality``, the probability that a label is right, with its credible interval
    ``annotator_quality_low`` .. ``annotator_quality_high`` at ``confidence`` (of a fitted aggregator, by its
    ``judging_posterior_``, and the interval reaches down to that of honest confidence and up to that of independent
    errors; where nothing can be compared it is 0 to 1, and the quality null, as is what else would follow from it);
    ``agreement_with_consensus``, the share of labels that are the most likely class (half of one counts if two classes tie);
    ``num_examples_labeled``; ``worst_class`` and ``worst_class_quality``, the class recognised least often;
    ``confused_class``, ``confused_with`` and ``confused_count``: true class, label and expected number of the most
    frequent error; ``spammer_score``, 1 for labels that do not depend on the instance, 0 for perfect ones (1 minus the
    score of Raykar & Yu 2012); ``bias``, the share of labels that would have to change for the class frequencies to be
    right, and ``overused_class``. With times: ``seconds_per_label`` (median) and ``drift``, the change of quality from
    the first label to the last, with ``drift_low`` .. ``drift_high``, which hold for all annotators together (Šidák): that
    somebody's does not contain 0 is no chance finding. With gold: ``gold_accuracy``, the share of labels that equal it, with
    ``gold_accuracy_low`` .. ``gold_accuracy_high`` (Wilson), and ``num_gold``, of so many labels. If the classes are ordered,
    by `crowdwise.agreement.scale_of` with ``ordered``: ``mean_absolute_error``, the expected distance between label and true
    class in steps of the scale, and ``mean_error``, its mean with sign, above 0 if labels are too high.

    >>> table = annotators([[0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1]])
    >>> table.select(["annotator", "agreement_with_consensus", "worst_class", "overused_class"]).to_pylist()[2]
    {'annotator': 2, 'agreement_with_consensus': 0.5, 'worst_class': 0, 'overused_class': 1}
    """
    crowd = Annotations.coerce(annotations)
    belief = Belief.of(crowd, posterior, confusion)
    tally = _tally(crowd, belief, posterior)
    columns = profile(tally, confidence)
    scale = scale_of(crowd, ordered)
    if scale is not None:
        distances = _distances(tally, np.array(scale.values))
        columns.update(distances if belief.comparable else nothing(distances))
    if durations is not None or timestamps is not None:
        columns.update(_speed(crowd, timestamps, durations))
    if timestamps is not None:
        drift = _drift(crowd, belief, seconds_of(crowd, timestamps, "timestamps"), confidence)
        columns.update(drift if belief.comparable else nothing(drift))
    if gold is not None:
        columns.update(_against(crowd, gold, confidence))
    return pa.table(columns)


GRADES = (
    "annotator_quality",
    "worst_class",
    "worst_class_quality",
    "confused_class",
    "confused_with",
    "confused_count",
    "spammer_score",
    "bias",
    "overused_class",
    "mean_absolute_error",
    "mean_error",
    "drift",
    "drift_low",
    "drift_high",
)
"""Columns of `annotators` that follow from which labels are taken for right."""


def ungraded(table: pa.Table) -> pa.Table:
    """The table of `annotators` without grades: for labels that agree no more than by chance (`agreement.chance_test`).

    Skills and errors are null and intervals of skill reach from 0 to 1, as if nothing could be compared.

    >>> table = ungraded(annotators([[0, 1], [1, 0], [0, 0]]))
    >>> table.select(["annotator_quality", "annotator_quality_low", "annotator_quality_high"]).to_pylist()[0]
    {'annotator_quality': None, 'annotator_quality_low': 0.0, 'annotator_quality_high': 1.0}
    """
    columns = {name: table[name] for name in table.column_names}
    columns |= nothing({name: columns[name] for name in GRADES if name in columns})
    ends = {"annotator_quality_low": np.zeros, "annotator_quality_high": np.ones}
    columns |= {name: pa.array(end(table.num_rows)) for name, end in ends.items()}
    return pa.table(columns)


def _against(crowd: Annotations, gold: Mapping[Any, Any], confidence: float) -> dict[str, Any]:
    """How often annotators are right, on instances of known class."""
    truth = np.full(crowd.n_instances, -1)
    truth[crowd.instance_codes(list(gold))] = crowd.class_codes(list(gold.values()))
    known = truth[crowd.instance] >= 0
    who = crowd.annotator[known]
    right = np.bincount(who, truth[crowd.instance[known]] == crowd.label[known], crowd.n_annotators)
    number = np.bincount(who, minlength=crowd.n_annotators)
    low, high = wilson(right, number, confidence)
    return {
        "gold_accuracy": floats(right / np.maximum(number, 1), number == 0),
        "gold_accuracy_low": floats(low, number == 0),
        "gold_accuracy_high": floats(high, number == 0),
        "num_gold": number,
    }


def profile(tally: Tally, confidence: float) -> dict[str, Any]:
    """The columns of `annotators` that need no times."""
    number, tail = tally.labels, (1 - confidence) / 2
    skills = [tally.skill, *tally.extremes]
    low = np.min([skill.quantile(tail) for skill in skills], axis=0) if tally.comparable else np.zeros(len(number))
    high = np.max([skill.quantile(1 - tail) for skill in skills], axis=0) if tally.comparable else np.ones(len(number))
    errors = {**_errors(tally), **_bias(tally)}
    if not tally.comparable:  # what follows from taking every label for right
        errors = nothing(errors)
    return {
        "annotator": tally.annotators.arrow,
        "annotator_quality": floats(tally.skill.mean, np.full(len(number), not tally.comparable)),
        "annotator_quality_low": low,
        "annotator_quality_high": high,
        "agreement_with_consensus": floats(tally.agreeing / np.maximum(number, 1), number == 0),
        "num_examples_labeled": number,
        **errors,
    }


def _tally(annotations: Annotations, belief: Belief, posterior: Any) -> Tally:
    crowd = MemoryCrowd.of(annotations)
    ends = (posterior.posterior_, posterior.raw_posterior_) if hasattr(posterior, "raw_posterior_") else ()
    counts, expected = class_counts(crowd, belief.judging)
    return Tally(
        annotators=annotations.annotator_vocabulary,
        classes=annotations.class_vocabulary,
        given=crowd.label_counts,
        agreeing=crowd.hits(consensus_shares(belief.posterior)).sum(axis=1),
        counts=counts,
        expected=expected,
        confusion=belief.confusion,
        skill=skill(annotations, belief),
        extremes=tuple(independent_skill(crowd.hits(end).sum(axis=1), crowd.labels_per_annotator) for end in ends),
        comparable=belief.comparable,
    )


def class_counts(crowd: MemoryCrowd, posterior: Floats, *, dense: bool = False) -> tuple[Any, Floats]:
    """Expected numbers of labels by annotator and label, and by true class (R * C, C), without unlikely classes, sparse or
    dense; and expected numbers of the annotators' instances that have each class (R, C)."""
    likely = np.where(posterior < UNLIKELY, 0.0, posterior)
    if dense:
        return crowd.counts(likely).reshape(-1, crowd.n_classes), crowd.counts(posterior).sum(axis=1)
    layout = crowd.layout
    annotators = layout._replace(cells=decoded(layout)[0], shape=(crowd.n_annotators, 1))
    counts = sparse.csr_array(expected_counts(layout, sparse.csr_array(likely)))
    return counts, np.asarray(expected_counts(annotators, posterior), np.float64)


def _errors(tally: Tally) -> dict[str, Any]:
    """How each annotator errs, from expected counts (R, C, C), computed in blocks of annotators."""
    size, classes, counts = tally.annotators.size, tally.classes.size, tally.counts
    average = _average(counts, classes)
    worst, confused = np.zeros(size, np.int64), np.zeros(size, np.int64)
    quality, number, spam = np.zeros(size), np.zeros(size), np.zeros(size)
    for rows in row_blocks(size if classes else 0, classes**2, NUMBERS):
        given = counts[rows.start * classes : rows.stop * classes].toarray().reshape(-1, classes, classes)
        expected = given.transpose(0, 2, 1)  # (b, C, C), by true class and label
        seen = expected.sum(axis=2)
        if tally.confusion is None:
            matrix = (expected + SMOOTHING * average) / (seen + SMOOTHING)[:, :, None]
        else:
            matrix = tally.confusion[rows]
        diagonal = np.where(seen >= 0.5, np.diagonal(matrix, axis1=1, axis2=2), np.inf)
        worst[rows], quality[rows] = diagonal.argmin(axis=1), diagonal.min(axis=1)
        spam[rows] = 1 - _spread(matrix) / max(classes * (classes - 1), 1)
        wrong = (expected * (1 - np.eye(classes))).reshape(len(expected), -1)
        confused[rows], number[rows] = wrong.argmax(axis=1), wrong.max(axis=1)
    unseen, unerring = ~np.isfinite(quality) | (tally.labels == 0), number < 0.5
    true, label = np.divmod(confused, max(classes, 1))
    names = tally.classes
    return {
        "worst_class": ids(names, worst, unseen),
        "worst_class_quality": floats(quality, unseen),
        "confused_class": ids(names, true, unerring),
        "confused_with": ids(names, label, unerring),
        "confused_count": floats(number, unerring),
        "spammer_score": floats(spam, np.full(size, classes < 2)),
    }


def _average(counts: sparse.csr_array[Any], classes: int) -> Floats:
    """The crowd's mean confusion matrix (C, C); a class that does not occur gets uniform labels."""
    entries = counts.tocoo()
    place = entries.col.astype(np.int64) * classes + entries.row % max(classes, 1)
    total = np.bincount(place, entries.data, classes**2).reshape(classes, classes) + 1e-9
    return np.asarray(total / total.sum(axis=1, keepdims=True))


def _spread(matrix: Floats) -> Floats:
    """Sum of the squared distances between rows, (b,): 0 for a matrix of rank one."""
    return np.asarray(matrix.shape[1] * (matrix**2).sum(axis=(1, 2)) - (matrix.sum(axis=1) ** 2).sum(axis=1))


def _bias(tally: Tally) -> dict[str, Any]:
    """Frequencies of the labels given, compared with those expected on the same instances."""
    silent, classes = tally.labels == 0, tally.classes.size
    excess = (tally.given - tally.expected) / np.maximum(tally.labels, 1)[:, None]
    overused = excess.argmax(axis=1) if classes else np.zeros(len(excess), np.int64)
    unbiased = excess.max(axis=1, initial=0) < 1e-9
    return {
        "bias": floats(np.abs(excess).sum(axis=1) / 2, silent),
        "overused_class": ids(tally.classes, overused, silent | unbiased),
    }


def _distances(tally: Tally, value: Floats) -> dict[str, Any]:
    """Expected distance of the labels from the true classes on a scale with a ``value`` (C,) for every class."""
    entries = tally.counts.tocoo()
    annotator, label = np.divmod(entries.row, len(value))
    distance = value[label] - value[entries.col]
    size = tally.annotators.size
    total = np.bincount(annotator, entries.data, size)
    absolute = np.bincount(annotator, entries.data * np.abs(distance), size)
    signed = np.bincount(annotator, entries.data * distance, size)
    silent = total <= 0
    return {
        "mean_absolute_error": floats(absolute / np.where(silent, 1, total), silent),
        "mean_error": floats(signed / np.where(silent, 1, total), silent),
    }


def _speed(annotations: Annotations, timestamps: Any, durations: Any) -> dict[str, Any]:
    """Median seconds per label: of the durations, else of the times between consecutive labels."""
    who = annotations.annotator.astype(np.int64)
    if durations is not None:
        seconds = seconds_of(annotations, durations, "durations")
    else:
        time = seconds_of(annotations, timestamps, "timestamps")
        order = np.lexsort((time, who))
        seconds = np.diff(time[order], prepend=np.nan)
        who = who[order]
        seconds[np.diff(who, prepend=-1) != 0] = np.nan  # nothing precedes an annotator's first label
    median, missing = _medians(who, seconds, annotations.n_annotators)
    return {"seconds_per_label": floats(median, missing)}


def _medians(group: Ints, values: Floats, size: int) -> tuple[Floats, Mask]:
    """Median of each group's values without NaN, (size,), and which groups have none."""
    order = np.lexsort((values, group))
    order = order[~np.isnan(values[order])]
    count = np.bincount(group[order], minlength=size)
    start = np.cumsum(count) - count
    ranked = np.append(values[order], 0.0)  # an empty group at the end points past the last value
    return (ranked[start + (count - 1) // 2 * (count > 0)] + ranked[start + count // 2]) / 2, count == 0


def _drift(annotations: Annotations, belief: Belief, time: Floats, confidence: float) -> dict[str, Any]:
    """Least-squares change of the probability to be right from an annotator's first label (0) to the last (1)."""
    known = np.flatnonzero(~np.isnan(time))
    order = known[np.lexsort((time[known], annotations.annotator[known]))]
    who, size = annotations.annotator[order], annotations.n_annotators
    count = np.bincount(who, minlength=size)
    start = np.cumsum(count) - count
    position = (np.arange(len(who)) - start[who]) / np.maximum(count - 1, 1)[who] - 0.5
    right = belief.judging[annotations.instance[order], annotations.label[order]]
    right = right - (np.bincount(who, right, size) / np.maximum(count, 1))[who]
    spread = np.maximum(np.bincount(who, position**2, size), 1e-12)
    slope = np.bincount(who, position * right, size) / spread
    residual = np.bincount(who, (right - slope[who] * position) ** 2, size)
    few = count < 4
    each = confidence ** (1.0 / max(int(np.count_nonzero(~few)), 1))  # of one interval, so that all hold together
    free = np.maximum(count - 2, 1)
    error = np.sqrt(residual / free / spread) * -stdtrit(free, (1 - each) / 2)
    return {
        "drift": floats(slope, few),
        "drift_low": floats(slope - error, few),
        "drift_high": floats(slope + error, few),
    }


def seconds_of(annotations: Annotations, values: Any, name: str) -> Floats:
    """Times or durations of the annotations as seconds, (E,); NaN where unknown."""
    array = np.asarray(values)
    try:
        if array.dtype == object:
            array = array.astype("datetime64[us]")
        if array.dtype.kind in "mM":
            unknown = np.isnat(array)
            unit = array.astype("timedelta64[us]" if array.dtype.kind == "m" else "datetime64[us]").astype(np.int64)
            array = np.where(unknown, np.nan, unit / 1e6)
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be seconds or datetime64, got {np.asarray(values).dtype} ({error})") from error
    if array.shape != (len(annotations),):
        raise DataError(f"{name} has shape {array.shape}, but there are {len(annotations)} annotations")
    return array
