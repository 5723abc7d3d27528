"""Infer the label of every instance, and an opinion on every annotator, from a file of annotations."""

from __future__ import annotations

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

from crowdwise import agreement, quality, streaming
from crowdwise.aggregation import recommend
from crowdwise.aggregation.core.base import Aggregator, choose
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.aggregation.core.queries import against_votes
from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.errors import CrowdwiseWarning, UsageError, spelled
from crowdwise.readers import bare_suffix, write_labels, write_table
from crowdwise.readers.write import LABEL_STUDIO, output_format
from crowdwise.registry import AGGREGATORS
from crowdwise.storage.files import replacing_all
from crowdwise.streaming.output import FORMATS, Figures
from crowdwise.streaming.passes import Passes
from crowdwise.streaming.table import STREAMED as FORMATS_READ
from crowdwise.streaming.table import SUFFIXES
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
    majority: float
    """Of majority votes."""
    instances: int
    crossed: bool
    """Gold was told to the method, so each half was measured with the other half given."""
    claimed: float = float("nan")
    """Mean confidence in these labels: what was promised, where ``accuracy`` is what is true."""


@dataclass(frozen=True)
class Promise:
    """How many labels should be right."""

    confidence: float
    """Mean confidence in the labels."""
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
    out: Path
    annotators_out: Path
    gold: GoldAccuracy | None = None
    promise: Promise | None = None
    """What the labels promise; None for shares of votes."""
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
    check_outputs([out, profile], [*paths, None if gold is None else Path(gold)])
    check_aggregator(method)
    if reason is not None:
        bound = streaming.parse_memory(memory)
        observer.note(f"{paths[0].name}: streamed {reason}, within about {bound / 1e9:.1f} GB of memory")
        options = {"work": work, "passes": _passes(ray, workers), "proba": proba, "random_state": seed}
        return _streamed(paths[0], out, profile, method, reading, {"memory": bound, **options}, observer)
    export = read_annotations(paths, source, observer, details=to == LABEL_STUDIO)
    crowd, known = export.annotations, export.gold
    with observer.step("inferring labels"):
        fitted = fit(method, crowd, known if informed else None, seed, models=export.models)
        votes = crowd.votes()
        majority = votes.argmax(axis=1)
        labels = fitted.labels
        measured = _accuracy(fitted, crowd, known, majority, seed, informed=informed) if known else None
        tables = {out: label_table(crowd, fitted, proba=proba), profile: annotator_table(crowd, fitted.model)}
        alpha = agreement.krippendorff_alpha(crowd, n_bootstrap=0).value
        raw = agreement.raw_agreement(crowd, n_bootstrap=0).value
    write_together(tables, {out: partial(write_labels, to=to, export=export, model=fitted.name)})
    ties = int(np.count_nonzero((votes == votes.max(axis=1)[:, None]).sum(axis=1) > 1))
    promised = promise(fitted)
    confidence = float(fitted.model.posterior_[votes.sum(axis=1) > 0].max(axis=1).mean())
    figures = Figures(ties, int(np.count_nonzero(against_votes(votes, labels))), alpha, raw, confidence)
    sizes = len(crowd), crowd.n_instances, crowd.n_annotators
    return Aggregated(fitted.name, fitted.reason, *sizes, figures, out, profile, gold=measured, promise=promised)


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
    sizes = result.n_annotations, result.n_instances, result.n_annotators
    promised = _streamed_promise(result)
    return Aggregated(
        result.method, result.reason, *sizes, result.figures, out, profile, promise=promised, work=options["work"]
    )


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


def promise(fitted: Fit) -> Promise | None:
    """What a fitted aggregator promises about its labels, and why; None without labels, and for shares of votes."""
    model = fitted.model
    labelled = model.annotations_.labels_per_instance > 0
    if not np.any(labelled) or model.posterior_.shape[1] < 2 or _only_shares(model):
        return None
    honest, raw = (float(q[labelled].max(axis=1).mean()) for q in (model.posterior_, model.raw_posterior_))
    return Promise(honest, honest if model.holds_shares else raw, _why(model, comparable=model.comparable_))


def _streamed_promise(result: streaming.Streamed) -> Promise | None:
    """`promise` of a streamed table, of which only the mean confidence is known."""
    if not result.n_annotations or result.n_classes < 2 or _only_shares(result.model):
        return None
    comparable = not np.isnan(result.figures.raw_agreement)
    return Promise(result.figures.confidence, result.figures.confidence, _why(result.model, comparable=comparable))


def _only_shares(model: Aggregator) -> bool:
    return model.holds_shares and model.calibration == "none"


def _why(model: Aggregator, *, comparable: bool) -> str:
    n_gold = model.tempering_.n_gold if hasattr(model, "tempering_") else 0
    if not comparable:
        return "a typical value: without a second label per instance or gold it cannot be estimated"
    if model.calibration == "none":
        return "as if annotators erred independently"
    if n_gold:
        return f"corrected by {count(n_gold, 'gold labels')}"
    return "as in crowds with known truth, where errors are not independent"


def label_table(crowd: Annotations, fitted: Fit, *, proba: bool) -> pa.Table:
    """One row per instance: instance, label, confidence, n_annotations; with ``proba`` also p_CLASS for each class."""
    posterior, labels = fitted.model.posterior_, fitted.labels
    columns: dict[str, Any] = {
        "instance": crowd.instance_vocabulary.arrow,
        "label": crowd.class_vocabulary.take(labels),
        "confidence": posterior[np.arange(len(labels)), labels],
        "n_annotations": crowd.labels_per_instance if crowd.weight is None else crowd.annotators_per_instance,
    }
    if proba:
        names = crowd.class_vocabulary.arrow.to_pylist()
        columns |= {f"p_{name}": np.ascontiguousarray(posterior[:, code]) for code, name in enumerate(names)}
    return pa.table(columns)


def annotator_table(crowd: Annotations, model: Aggregator, **more: Any) -> pa.Table:
    """`quality.annotators`, worst first; ``more`` are its arguments."""
    small = 8.0 * crowd.n_annotators * crowd.n_classes**2 <= TABLES
    belief = model if small else model.judging_posterior_
    table = quality.annotators(crowd, belief, **more)
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


def _accuracy(
    fitted: Fit, crowd: Annotations, gold: Mapping[Any, Any], majority: Codes, seed: int, *, informed: bool
) -> GoldAccuracy | None:
    """Accuracy on gold labels that the method did not see: where it is told gold, on each half when told the other."""
    truth = gold_codes(crowd, gold)
    known = np.flatnonzero(truth >= 0) if truth is not None else np.empty(0, np.int64)
    if truth is None or not known.size:
        return None
    labels, confidence = fitted.labels, fitted.model.posterior_.max(axis=1)
    if informed:
        pairs = list(gold.items())
        for half, other in ((pairs[::2], pairs[1::2]), (pairs[1::2], pairs[::2])):
            held = np.flatnonzero(gold_codes(crowd, dict(half)) >= 0)  # type: ignore[operator]
            crossed = _again(fitted, crowd, dict(other), seed)
            labels[held], confidence[held] = crossed.labels[held], crossed.model.posterior_[held].max(axis=1)
    own, vote = (float(np.mean(codes[known] == truth[known])) for codes in (labels, majority))
    return GoldAccuracy(own, vote, int(known.size), crossed=informed, claimed=float(confidence[known].mean()))


def _again(fitted: Fit, crowd: Annotations, gold: Mapping[Any, Any], seed: int) -> Fit:
    """The same method with the same parameters, told other gold labels."""
    parameters = fitted.model.get_params() | {"random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Fit(fitted.name, None, type(fitted.model)(**parameters).fit(crowd, gold))
