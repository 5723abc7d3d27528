"""What a streamed run leaves: labels partition by partition, annotators' profiles, and figures for a summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.base import Aggregator, share
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.kernels import Floats, Layout
from crowdwise.aggregation.core.queries import against_votes, tied_votes
from crowdwise.annotations import Annotations
from crowdwise.data.codes import cells
from crowdwise.data.repeats import heaviest
from crowdwise.errors import DataError
from crowdwise.figures import Evidence, by_chance_test
from crowdwise.quality import (
    Tally,
    class_counts,
    consensus_shares,
    independent_skill,
    profile,
    skill_of,
    unchecked,
    unchecked_errors,
    unchecked_times,
    ungraded,
)
from crowdwise.readers import format_of, packing
from crowdwise.storage.text import inert_table
from crowdwise.streaming.crowd import StreamedCrowd
from crowdwise.streaming.passes import Question, Sums

FORMATS = ("parquet", "arrow", "csv", "tsv")  # that can be written piece by piece
TESTED = 200_000  # labels, at least, among which the instances are drawn whose agreement is tested
CONFUSION = 1e9  # bytes of confusion matrices above which profiles are made from the posterior alone


@dataclass(frozen=True)
class Figures:
    """Counts and agreement of a crowd and its labels."""

    ties: int
    """Instances of which two or more classes have most votes."""
    changed: int
    """Instances whose label has fewer votes than another class."""
    alpha: float
    """Krippendorff's alpha (nominal); NaN where all labels are the same."""
    raw_agreement: float
    """Share of the pairs of labels of an instance that agree, mean over instances; NaN where there are no pairs."""
    confidence: float = float("nan")
    """Mean confidence in the labels of instances with annotations; NaN without evidence or of vote shares."""
    confidence_low: float = float("nan")
    confidence_high: float = float("nan")
    """Ends of the 95 % interval of the share of right labels, which ``confidence`` is an estimate of."""
    independent: float = float("nan")
    """Mean confidence as if annotators erred independently; NaN where ``confidence`` is."""
    labelled: int = 0
    """Instances with annotations."""
    chosen: tuple[int, ...] = ()
    """Instances with annotations that got each class as their label, (C,); empty for crowds in memory."""
    evidence: Evidence = field(default_factory=lambda: Evidence("labels"))
    """Whether the labels tell right from wrong."""


def check_output(out: Path) -> None:
    """Refuse a file that cannot be written piece by piece."""
    if format_of(out) not in FORMATS or packing(out):
        known = ", ".join(f".{name}" for name in FORMATS)
        raise DataError(f"{out}: labels can be streamed to {known} only; choose another suffix")


def write_labels(
    crowd: StreamedCrowd,
    posterior: Question,
    judging: Question,
    out: Path,
    *,
    proba: bool,
    raw: Question | None = None,
    told: bool = True,
) -> Sums:
    """Write one row per instance in the order of their codes, a row group for each partition; returns `_sums`.

    Annotators are judged by the posterior ``judging``. ``raw`` is the posterior as if errors were independent, if that is
    another one. Unless it is ``told`` which labels are right, probabilities are null.
    """
    ids, classes = crowd.store.vocabulary("instances").arrow, crowd.store.vocabulary("classes")
    names = [f"p_{name}" for name in classes.arrow.to_pylist()] if proba else []
    start = 0
    writer: Any = None

    def take(piece: dict[str, Any]) -> None:
        nonlocal start, writer
        size = len(piece["n_annotations"])
        if not told:
            piece |= {name: pa.nulls(size, pa.float64()) for name in ("confidence", *names)}
        table = pa.table({"instance": ids.slice(start, size), **piece, "label": classes.take(piece["label"])})
        writer = _writer(out, table.schema) if writer is None else writer
        writer.write_table(inert_table(table) if format_of(out) in ("csv", "tsv") else table)
        start += size

    crowd.progress.title = "writing labels"
    try:
        return crowd.pieces(_labels, posterior, judging, raw, names, small(crowd), unchecked_times(), take=take)
    finally:
        if writer is not None:
            writer.close()


def _labels(
    layout: Layout,
    q: Floats,
    judging: Floats,
    raw: Floats | None,
    names: list[str],
    dense: bool,
    times: tuple[float, float],
) -> tuple[dict[str, Any], Sums]:
    """Codes of the labels and other columns of a part, and its `_sums`."""
    part = MemoryCrowd(layout)
    labels = part.choose(q, "first", np.random.default_rng(0))
    columns = {
        "label": labels,
        "confidence": q[np.arange(len(q)), labels],
        "n_annotations": np.diff(layout.indptr) if layout.weight is None else part.annotators_per_instance,
        **{name: np.ascontiguousarray(q[:, code]) for code, name in enumerate(names)},
    }
    labelled = part.labels_per_instance > 0
    independent = float((q if raw is None else raw).max(axis=1)[labelled].sum())
    chosen = np.bincount(labels[labelled], minlength=part.n_classes)
    return columns, (independent, chosen, *_sums(part, q, judging, labels, dense, times))


def small(crowd: StreamedCrowd) -> bool:
    """Whether tables (R, C, C) are small beside what may be used."""
    return 8.0 * crowd.n_annotators * crowd.n_classes**2 <= min(CONFUSION, crowd.memory / 16)


def _writer(out: Path, schema: pa.Schema) -> Any:
    kind = format_of(out)
    if kind == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(out, schema)
    if kind == "arrow":
        return pa.ipc.new_file(str(out), schema)
    from pyarrow import csv

    options = csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
    return csv.CSVWriter(str(out), schema, write_options=options)


def _sums(part: MemoryCrowd, q: Floats, judging: Floats, labels: Any, dense: bool, times: tuple[float, float]) -> Sums:
    """Of a part: ties, changes; shares of agreeing pairs, instances that have pairs, disagreement, labels (C,) in pairs;
    repeated (instance, annotator) pairs; expected errors, three sums; labels like the most likely class (R,), right labels
    (R,), class mass (C,), counts, and expected classes (R, C)."""
    votes = np.ascontiguousarray(part.votes().T)  # (C, n): numpy reduces short rows slowly
    hard, repeats = _hard(part)
    plain = votes if hard is part else np.ascontiguousarray(hard.votes().T)
    number = hard.labels_per_instance
    paired = number >= 2
    pairs = number * (number - 1.0)
    agreeing = (plain * (plain - 1.0)).sum(axis=0)
    return (
        int(np.count_nonzero(tied_votes(votes.T))),
        int(np.count_nonzero(against_votes(votes.T, labels))),
        float((agreeing[paired] / pairs[paired]).sum()),
        int(np.count_nonzero(paired)),
        float(((pairs - agreeing)[paired] / (number[paired] - 1.0)).sum()),
        plain @ paired.astype(np.float64),
        repeats,
        *unchecked_errors(q.max(axis=1)[number > 0], part.n_classes, times),
        part.hits(consensus_shares(q)).sum(axis=1),
        part.hits(judging).sum(axis=1),
        part.mass(judging),
        *class_counts(part, judging, dense=dense),
    )


def _hard(part: MemoryCrowd) -> tuple[MemoryCrowd, int]:
    """Without weights: of every (instance, annotator) the label that weighs most; and how many annotations are repeats."""
    layout = part.layout
    annotator = layout.cells // np.uint32(part.n_classes)
    if layout.weight is None:
        same = annotator[1:] == annotator[:-1]  # repeats lie beside each other
        same[layout.indptr[1:-1] - 1] = False  # the first of the next instance
        return part, int(np.count_nonzero(same))
    instance = kernels.instances(layout)
    rows = heaviest(cells(instance, part.n_annotators, annotator), layout.weight)
    indptr = np.searchsorted(instance[rows], np.arange(part.n_instances + 1))
    return MemoryCrowd(layout._replace(cells=layout.cells[rows], indptr=indptr, weight=None)), 0


def figures(sums: Sums, n_labelled: int, given: Evidence, *, shares: bool) -> tuple[Figures, int]:
    """The summary of all parts, from `_labels`, and the number of repeats; vote ``shares`` are not probabilities."""
    independent, chosen, ties, changed, agreeing, n_paired, observed, labels, repeats, *errors = sums[:12]
    total = float(labels.sum())
    expected = total**2 - float(labels @ labels)
    alpha = 1.0 - (total - 1.0) * observed / expected if expected > 1e-12 * total**2 else float("nan")
    raw = agreeing / n_paired if n_paired else float("nan")
    certain = (float("nan"),) * 4
    if given.enough and not shares and n_labelled:
        found = unchecked((errors[0], errors[1], errors[2]), n_labelled)
        certain = found.right, found.low, found.high, independent / n_labelled
    per_class = tuple(int(number) for number in chosen)
    return Figures(ties, changed, alpha, raw, *certain, n_labelled, per_class, given), repeats


def evidence_of(crowd: StreamedCrowd, model: Aggregator) -> Evidence:
    """`crowdwise.figures.evidence` of a streamed crowd; agreement is tested on as many partitions as are needed."""
    if not crowd.n_annotations:
        return Evidence("no labels")
    if np.count_nonzero(crowd.label_counts.sum(axis=0)) < 2:
        return Evidence("one class")
    if not model.comparable_:
        people = np.count_nonzero(crowd.labels_per_annotator)
        return Evidence("one annotator" if people < 2 else "one label")
    return by_chance_test(_sample(crowd))


def _sample(crowd: StreamedCrowd) -> Annotations:
    """The annotations of the first partitions, which hold instances in no order: at least `TESTED`, or all of them."""
    instance, cell, weight = [], [], []
    size, number = 0, 0
    while size < TESTED and number < len(crowd.store):
        layout = crowd.store.load(number).layout
        instance.append(kernels.instances(layout).astype(np.int64) + size)  # apart from those of other partitions
        cell.append(layout.cells.astype(np.int64))
        weight.append(np.ones(len(layout.cells)) if layout.weight is None else layout.weight)
        size, number = size + len(layout.cells), number + 1
    annotator, label = np.divmod(np.concatenate(cell), crowd.n_classes)
    # As the file has them: in single precision, a sum of scaled weights may break a tie that the file holds.
    weights = (np.concatenate(weight) / crowd.scale).astype(np.float32)
    return Annotations.from_triples(
        np.concatenate(instance),
        annotator,
        label,
        n_annotators=crowd.n_annotators,
        classes=crowd.store.vocabulary("classes").arrow.to_pylist(),
        weight=None if np.all(weights == 1) else weights,
    )


def annotator_table(
    crowd: StreamedCrowd, model: Aggregator, judging: Question, sums: Sums, given: Evidence
) -> pa.Table:
    """`crowdwise.quality.annotators` from sums, worst first; also sets what the model derives from its posterior."""
    agreeing, right, mass, counts, expected = sums[12:]
    number = crowd.labels_per_annotator
    vars(model).setdefault("skill_", share(right, number, crowd.n_classes))
    vars(model).setdefault("class_prior_", mass / crowd.n_labelled)
    crowd.progress.title = "annotators"

    ends = (model.posterior_, model.raw_posterior_) if small(crowd) else ()
    tally = Tally(
        annotators=crowd.store.vocabulary("annotators"),
        classes=crowd.store.vocabulary("classes"),
        given=crowd.label_counts,
        agreeing=agreeing,
        counts=sparse.csr_array(counts),
        expected=expected,
        confusion=model.confusion_ if small(crowd) else None,
        skill=skill_of(right, number, partial(crowd.total, _slopes, judging)),
        extremes=tuple(independent_skill(crowd.hits(end).sum(axis=1), number) for end in ends),
        comparable=model.comparable_,
    )
    table = pa.table(profile(tally, 0.95))
    table = table if given.enough else ungraded(table)
    return table.sort_by([("annotator_quality", "ascending"), ("num_examples_labeled", "descending")])


def _slopes(layout: Layout, posterior: Floats, reference: Floats, s: Floats) -> Sums:
    """First derivative of every annotator's log-likelihood in the skill, and minus the second, (R,) each."""
    slope, curvature = np.zeros(len(s)), np.zeros(len(s))
    weight = np.empty(0) if layout.weight is None else layout.weight
    _slope_kernel()(layout.cells, weight, layout.indptr, posterior, reference, s, slope, curvature)
    return slope, curvature


@cache
def _slope_kernel() -> Any:
    def slopes(cells, weight, indptr, posterior, reference, s, slope, curvature):  # type: ignore[no-untyped-def]
        classes = posterior.shape[1]
        for i in range(len(posterior)):
            for e in range(indptr[i], indptr[i + 1]):
                j = cells[e] // classes
                own = posterior[i, cells[e] - j * classes]
                wrong = (1.0 - own) / (1.0 - reference[j]) + 1e-9
                gain = own / reference[j] + 1e-9 - wrong
                ratio = gain / (wrong + s[j] * gain)
                share = weight[e] if len(weight) else 1.0
                slope[j] += share * ratio
                curvature[j] += share * ratio * ratio

    return kernels.jit()(slopes)
