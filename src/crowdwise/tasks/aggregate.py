"""Infer the label of every instance, and an opinion on every annotator, from a file of annotations."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise import agreement, streaming
from crowdwise.aggregation import MajorityVote, recommend
from crowdwise.aggregation.core.base import Aggregator, choose
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.errors import CrowdwiseWarning, UsageError, spelled
from crowdwise.figures import Evidence, RightShare, VoteFigures, Worth, annotator_profiles, believed, worth, yardstick
from crowdwise.readers import bare_suffix, write_labels, write_table
from crowdwise.readers.write import LABEL_STUDIO, output_format
from crowdwise.registry import AGGREGATORS
from crowdwise.storage.files import replacing_all
from crowdwise.streaming.output import FORMATS, Figures
from crowdwise.streaming.passes import Passes
from crowdwise.streaming.table import STREAMED as FORMATS_READ
from crowdwise.streaming.table import SUFFIXES, parquet_files
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import AUTO, check_aggregator, check_outputs, check_workers
from crowdwise.tasks.reading import Paths, Reading, paths_of, read_annotations

MANY = 20_000_000  # rows above which a table is streamed unasked: in memory they would take some gigabytes
TABLES = 1e9  # bytes of confusion matrices above which the annotators' table is made from the posterior alone

STREAMED = ("instance", "annotator", "label", "weight", "format", "models", "several", "duplicates")
"""Options of reading that streaming knows."""

Codes = npt.NDArray[Any]


@dataclass(frozen=True)
class GoldAccuracy:
    """How often labels are right where the truth is known."""

    accuracy: float
    low: float
    high: float
    """Ends of the 95 % interval of ``accuracy`` (Wilson)."""
    majority: float
    """Of majority votes; ties are shared."""
    instances: int
    crossed: bool
    """Gold was told to the method, so each half was measured with the other half given."""
    claimed: float | None = None
    """Mean confidence in these labels: what was promised, where ``accuracy`` is what is true; None without evidence."""


@dataclass(frozen=True)
class Promise:
    """How many labels should be right."""

    confidence: float
    """Mean confidence in the labels."""
    low: float
    high: float
    """Ends of its 95 % interval."""
    independent: float
    """The same if annotators erred independently, as models assume."""
    reason: str
    """Why it is what it is."""


@dataclass(frozen=True)
class Aggregated:
    """What `aggregate` found, and where it wrote it."""

    method: str
    reason: str | None
    """Why the method was chosen, where nobody chose it."""
    n_annotations: int
    n_instances: int
    n_annotators: int
    figures: Figures
    """Ties, labels that are not those of the majority, Krippendorff's alpha and raw agreement."""
    ordinal_alpha: float | None
    """Krippendorff's alpha of the classes as a scale, if they are ordered; None if not, and of streamed tables."""
    worth: Worth
    """How many labels are right, which figure to believe, and why."""
    out: Path
    annotators_out: Path
    gold: GoldAccuracy | None = None
    promise: Promise | None = None
    """What the labels promise; None for shares of votes, and if nothing can be said: see ``worth.why``."""
    work: Path | None = None
    """Folder in which a streamed table was prepared, where it is kept."""


@dataclass(frozen=True)
class Fit:
    """An aggregator, fitted to a crowd."""

    name: str
    reason: str | None
    model: Aggregator

    @property
    def labels(self) -> Codes:
        """Code of the most probable class of every instance, (n,); the first of equals."""
        return choose(self.model.posterior_, "first", np.random.default_rng(0))


def aggregate(
    path: Paths,
    out: str | Path,
    *,
    method: str = AUTO,
    gold: str | Path | None = None,
    gold_column: str | None = None,
    annotators_out: str | Path | None = None,
    to: str = "auto",
    proba: bool = False,
    seed: int = 0,
    stream: bool | None = None,
    memory: str | None = None,
    work: str | Path | None = None,
    ray: str | None = None,
    workers: int | None = None,
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> Aggregated:
    """Write the labels of all instances to ``out``, and the annotators' table beside it; ``path`` may be several files.

    ``gold`` is a table of true classes of some instances, or like ``gold_column`` a column of the file with them; both
    inform the method and measure it. ``stream`` works on parts of a parquet table on disk; by default, tables with many rows are
    streamed. ``memory``, ``work``, ``ray`` and ``workers`` are those of `crowdwise.streaming.aggregate`.
    """
    paths, out = paths_of(path), Path(out)
    work = None if work is None else Path(work)
    profile = beside(out) if annotators_out is None else Path(annotators_out)
    reading = dict(reading or {})
    gold = gold if gold is not None else reading.get("gold")
    source = reading | {"gold": gold, "gold_column": gold_column}
    informed = gold is not None or gold_column is not None  # a column that merely looks like gold only measures
    asked = bool(stream) or any(value is not None for value in (memory, work, ray))
    unknown = _not_streamed(reading, to)
    streamable = not unknown and len(paths) == 1
    check_workers(ray, workers)
    if asked and len(paths) > 1:
        raise UsageError(
            f"one table is streamed, and these are {len(paths)} files: put Parquet files that are one table into a folder, and "
            "name the folder",
            parameter="stream",
        )
    _check_streaming(stream, asked, informed, unknown, ray)
    reason = _why_stream(paths[0], out, method, asked) if stream is not False and not informed and streamable else None
    if reason is None:
        to = output_format(out, to)
        if proba and to == LABEL_STUDIO:
            raise UsageError(
                f"{spelled('proba')} is not used: Label Studio has no place for the probability of every class",
                parameter="proba",
            )
    check_outputs([out, profile], [*paths, None if gold is None else Path(gold)])
    check_aggregator(method)
    if reason is not None:
        parquet_files(paths[0])  # what cannot be streamed is refused before a folder is made for it
        bound = streaming.parse_memory(memory)
        observer.note(f"{paths[0].name}: streamed {reason}, within about {bound / 1e9:.1f} GB of memory")
        options = {"work": work, "passes": _passes(ray, workers), "proba": proba, "random_state": seed}
        return _streamed(paths[0], out, profile, method, reading, {"memory": bound, **options}, observer)
    export = read_annotations(paths, source, observer, details=to == LABEL_STUDIO)
    crowd, known = export.annotations, export.gold
    with observer.step("inferring labels"):
        fitted = fit(method, crowd, known if informed else None, seed, models=export.models)
        truth = gold_codes(crowd, known) if known else None
        checked = _crossed(fitted, crowd, known, seed) if known and informed else None
        found = labels_worth(fitted, crowd, truth, checked, models=export.models)
        posterior = fitted.model.posterior_ if checked is None else checked
        told = np.full(crowd.n_instances, found.evidence.enough or _only_shares(fitted.model))
        if informed and truth is not None:
            told |= truth >= 0
        tables = {
            out: label_table(crowd, fitted, proba=proba, told=told, shared=found.evidence.kind == "models"),
            profile: annotator_table(crowd, fitted.model, found.evidence),
        }
        alpha = agreement.krippendorff_alpha(crowd, n_bootstrap=0).value
        raw = agreement.raw_agreement(crowd, n_bootstrap=0).value
        scale, ordinal = found.scale, None
        if scale is not None:
            ordinal = agreement.krippendorff_alpha(crowd, "ordinal", values=scale.values, n_bootstrap=0).value
    write_together(tables, {out: partial(write_labels, to=to, export=export, model=fitted.name)})
    promised = promise(fitted, found)
    certain = (math.nan,) * 4
    if promised is not None:
        certain = promised.confidence, promised.low, promised.high, promised.independent
    votes = found.votes
    figures = Figures(votes.tied, votes.differing, alpha, raw, *certain, votes.labelled, evidence=found.evidence)
    return Aggregated(
        method=fitted.name,
        reason=fitted.reason,
        n_annotations=len(crowd),
        n_instances=crowd.n_instances,
        n_annotators=crowd.n_annotators,
        figures=figures,
        ordinal_alpha=ordinal,
        worth=found,
        out=out,
        annotators_out=profile,
        gold=_accuracy(found, posterior, truth, crossed=checked is not None),
        promise=promised,
    )


def _streamed(
    path: Path, out: Path, profile: Path, method: str, reading: Reading, options: Mapping[str, Any], observer: Observer
) -> Aggregated:
    for file in (out, profile):
        file.parent.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {role: reading.get(role) for role in ("instance", "annotator", "label", "weight")}
    columns["format"] = reading.get("format", AUTO)
    try:
        result = streaming.aggregate(path, method, out=out, annotators_out=profile, verbose=1, **columns, **options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("run it again to go on where it stopped") from None
    observer.note(result.message)
    found = _streamed_worth(result)
    return Aggregated(
        method=result.method,
        reason=result.reason,
        n_annotations=result.n_annotations,
        n_instances=result.n_instances,
        n_annotators=result.n_annotators,
        figures=result.figures,
        ordinal_alpha=None,
        worth=found,
        out=out,
        annotators_out=profile,
        promise=_streamed_promise(result, found),
        work=options["work"],
    )


def _streamed_worth(result: streaming.Streamed) -> Worth:
    """What streamed labels are worth, of which only sums are known; nothing measures them."""
    figures = result.figures
    expected = None
    if not math.isnan(figures.confidence):
        expected = RightShare(
            figures.confidence, figures.confidence_low, figures.confidence_high, "estimated", figures.labelled
        )
    right, why = believed(expected, None, figures.evidence, shares=_only_shares(result.model))
    votes = VoteFigures(figures.labelled, figures.ties, figures.changed)
    proportions = np.array(figures.chosen, np.float64)
    best = None if right is None else yardstick(proportions, result.classes)
    return Worth(figures.evidence, votes, right, expected, None, None, best, why)


def _passes(ray: str | None, workers: int | None) -> Passes | None:
    """None: threads of this process."""
    if ray is None:
        return None
    from crowdwise.cluster import RayPasses

    return RayPasses(ray, workers)


def _not_streamed(reading: Reading, to: str) -> list[str]:
    """What is asked for that streaming does not know, as a user writes it."""
    unknown = [spelled(name) for name, value in reading.items() if value and name not in STREAMED]
    if reading.get("format", AUTO) not in (AUTO, *FORMATS_READ):
        unknown.append(spelled("format", reading["format"]))
    if not reading.get("models", True):
        unknown.append("how to leave out models")
    if reading.get("duplicates") not in (None, "keep"):
        unknown.append(spelled("duplicates", reading["duplicates"]))
    if to not in ("auto", "table"):
        unknown.append(spelled("to", to))
    return unknown


def _check_streaming(stream: bool | None, asked: bool, informed: bool, unknown: Sequence[str], ray: str | None) -> None:
    """Refuse streaming of what cannot be streamed."""
    no_gold = f"knows no gold labels; leave out {spelled('gold')} and {spelled('gold_column')}"
    three = f"{spelled('memory')}, {spelled('work')} and {spelled('ray')}"
    if stream and informed:
        raise UsageError(f"{spelled('stream')} {no_gold}", parameter="stream")
    if stream is False and asked:
        raise UsageError(f"{three} are for streaming, which is turned off", parameter="stream")
    if ray is not None and informed:
        raise UsageError(f"{spelled('ray')} is for streaming, which {no_gold}", parameter="ray")
    if asked and unknown:
        raise UsageError(
            f"streaming does not know {', '.join(unknown)}: leave it out, or aggregate in memory, without "
            f"{spelled('stream')}, {three}",
            parameter="stream",
        )


def _why_stream(path: Path, out: Path, method: str, asked: bool) -> str | None:
    """Why to stream a table, or None; unasked, only what can be streamed is."""
    if asked:
        return "as asked for"
    if path.is_dir() and any(file.suffix.lower() in SUFFIXES for file in path.rglob("*")):
        return "as it is a folder"
    possible = out.suffix.lower().lstrip(".") in FORMATS and method in (AUTO, *streaming.streamable())
    if not possible or path.suffix.lower() not in SUFFIXES or not path.is_file():
        return None
    rows = streaming.count_rows(path)
    return f"with {rows:,} rows" if rows > MANY else None


def beside(out: Path) -> Path:
    """Where the annotators' table goes by default.

    >>> beside(Path("labels.csv.gz")).name, beside(Path("predictions.json")).name
    ('labels-annotators.csv.gz', 'predictions-annotators.csv')
    """
    suffix = re.search(r"\.[^.]+(\.gz|\.zst)?$", out.name, re.IGNORECASE)
    end = suffix.start() if suffix else len(out.name)
    document = bare_suffix(out) == "json"  # of labels for a tool; of annotators there is only the table
    return out.with_name(f"{out.name[:end]}-annotators{'.csv' if document else out.name[end:]}")


def fit(
    method: str, crowd: Annotations, gold: Mapping[Any, Any] | None, seed: int, *, models: Sequence[Any] = ()
) -> Fit:
    """Fit an aggregator by name; "auto" chooses one, and says why. ``models`` are ids of annotators that are models."""
    if method == AUTO:
        chosen = recommend(crowd, gold, models=models, random_state=seed)
        return Fit(chosen.name, chosen.reason, chosen.estimator)
    options = {"models": list(models)} if method == "panel" and len(models) > 1 else {}
    if len(models) > 1 and method != "panel":
        warnings.warn(
            f"{len(models)} annotators are models, which err together, and {method} takes errors for independent: its labels "
            f"and confidence lean on them too much; use {spelled('method')} panel",
            CrowdwiseWarning,
            stacklevel=3,
        )
    return Fit(method, None, AGGREGATORS[method](random_state=seed, **options).fit(crowd, gold))


def labels_worth(
    fitted: Fit,
    crowd: Annotations,
    truth: Codes | None = None,
    checked: Codes | None = None,
    *,
    models: Sequence[Any] = (),
) -> Worth:
    """What the labels of a fitted aggregator are worth; ``models`` are ids of annotators that are models.

    If the aggregator was told gold, ``checked`` is a posterior (n, C) that saw none of an instance's own.
    """
    model = fitted.model
    gold, confidence = 0, None
    if truth is not None and checked is not None:  # what was told is certain, and no estimate
        gold = int(np.count_nonzero(truth >= 0))
        confidence = np.where(truth >= 0, checked.max(axis=1, initial=0), model.posterior_.max(axis=1, initial=0))
    return worth(
        crowd,
        model.posterior_,
        truth,
        label=fitted.labels,
        confidence=confidence,
        scores=crowd.votes() if isinstance(model, MajorityVote) else checked,
        gold=gold,
        estimate=not _only_shares(model),
        models=models,
    )


def promise(fitted: Fit, found: Worth) -> Promise | None:
    """What a fitted aggregator promises about its labels, and why; None if there is no estimate."""
    model, expected = fitted.model, found.estimated
    if expected is None:
        return None
    labelled = model.annotations_.labels_per_instance > 0
    raw = expected.share if model.holds_shares else float(model.raw_posterior_[labelled].max(axis=1).mean())
    return Promise(expected.share, expected.low, expected.high, raw, _why(model))


def _streamed_promise(result: streaming.Streamed, found: Worth) -> Promise | None:
    """`promise` of a streamed table, of which only sums are known."""
    expected = found.estimated
    if expected is None:
        return None
    independent = expected.share if result.model.holds_shares else result.figures.independent
    return Promise(expected.share, expected.low, expected.high, independent, _why(result.model))


def _only_shares(model: Aggregator) -> bool:
    return model.holds_shares and model.calibration == "none"


def _why(model: Aggregator) -> str:
    n_gold = model.tempering_.n_gold if hasattr(model, "tempering_") else 0
    if model.calibration == "none":
        return "as if annotators erred independently"
    if n_gold:
        return f"corrected by {count(n_gold, 'gold labels')}"
    return "as in crowds with known truth, where errors are not independent"


def label_table(crowd: Annotations, fitted: Fit, *, proba: bool, told: Codes, shared: bool = False) -> pa.Table:
    """One row per instance: instance, label, confidence, n_annotations; with ``proba`` also p_CLASS for each class.

    Probabilities are null unless it is ``told`` (n,) whether the label is right: without evidence they would be made up.
    ``shared`` adds the column agreement, the share of the instance's labels that are the same.
    """
    posterior, labels = fitted.model.posterior_, fitted.labels
    columns: dict[str, Any] = {
        "instance": crowd.instance_vocabulary.arrow,
        "label": crowd.class_vocabulary.take(labels),
        "confidence": pa.array(posterior[np.arange(len(labels)), labels], mask=~told),
        "n_annotations": crowd.labels_per_instance if crowd.weight is None else crowd.annotators_per_instance,
    }
    if shared:
        votes = crowd.votes()
        total = np.maximum(votes.sum(axis=1), 1e-12)
        columns["agreement"] = votes[np.arange(len(labels)), labels] / total
    if proba:
        names = crowd.class_vocabulary.arrow.to_pylist()
        columns |= {
            f"p_{name}": pa.array(np.ascontiguousarray(posterior[:, code]), mask=~told)
            for code, name in enumerate(names)
        }
    return pa.table(columns)


def annotator_table(crowd: Annotations, model: Aggregator, given: Evidence, **more: Any) -> pa.Table:
    """`quality.annotators`, worst first; ``more`` are its arguments. Without evidence, what would be made up is null."""
    small = 8.0 * crowd.n_annotators * crowd.n_classes**2 <= TABLES
    belief = model if small else model.judging_posterior_
    table = annotator_profiles(crowd, belief, given, **more)
    return table.sort_by([("annotator_quality", "ascending"), ("num_examples_labeled", "descending")])


def write_together(
    tables: Mapping[Path, pa.Table], writers: Mapping[Path, Callable[[pa.Table, Path], None]] = {}
) -> None:
    """Write all of the tables, or none; those that have a writer of their own, with it."""
    for path in tables:
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_all(tables) as staged:
        for path, table in tables.items():
            writers.get(path, write_table)(table, staged[path])


def _crossed(fitted: Fit, crowd: Annotations, gold: Mapping[Any, Any], seed: int) -> Codes:
    """The posterior (n, C), where each half of the instances with gold is that of a method told only the other half."""
    posterior = fitted.model.posterior_.copy()
    pairs = list(gold.items())
    for half, other in ((pairs[::2], pairs[1::2]), (pairs[1::2], pairs[::2])):
        held = np.flatnonzero(gold_codes(crowd, dict(half)) >= 0)  # type: ignore[operator]
        posterior[held] = _again(fitted, crowd, dict(other), seed).model.posterior_[held]
    return posterior


def _accuracy(found: Worth, posterior: Codes, truth: Codes | None, *, crossed: bool) -> GoldAccuracy | None:
    """What was measured on gold labels that the method did not see, and what the ``posterior`` promised there."""
    if truth is None or found.measured is None or found.majority is None:
        return None
    own, known = found.measured, truth >= 0
    return GoldAccuracy(
        accuracy=own.share,
        low=own.low,
        high=own.high,
        majority=found.majority.share,
        instances=own.items,
        crossed=crossed,
        claimed=None if found.estimated is None else float(posterior[known].max(axis=1).mean()),
    )


def _again(fitted: Fit, crowd: Annotations, gold: Mapping[Any, Any], seed: int) -> Fit:
    """The same method with the same parameters, told other gold labels."""
    parameters = fitted.model.get_params() | {"random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Fit(fitted.name, None, type(fitted.model)(**parameters).fit(crowd, gold))
