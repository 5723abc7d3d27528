"""`crowdwise report`: find out what the input is, gather what there is to say about it, and write or serve the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import crowdwise
from crowdwise import datasets
from crowdwise.annotations import Annotations
from crowdwise.bench.runner import RECORDS, read_records
from crowdwise.cli import _training
from crowdwise.cli._aggregation import beside, check_method, read_export
from crowdwise.cli._console import complain, say
from crowdwise.engine.checkpoint import read_json
from crowdwise.errors import ConfigError, DataError, DatasetError, suggest
from crowdwise.readers._files import FORMATS, load_columns
from crowdwise.report.content import Content, comparison, empty, gather, training
from crowdwise.report.page import render, write
from crowdwise.report.serve import ReportServer
from crowdwise.report.source import Source, from_dataset, from_export, from_material

RESULT = ("instance", "label", "confidence", "n_annotations")  # columns that `crowdwise aggregate` writes
METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Request:
    """What the report is to be about."""

    what: str
    annotations: Path | None = None
    bench: Path | None = None
    method: str = "auto"
    reading: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How files of labels are read: arguments of `crowdwise.read`."""
    budget: int = 200
    seed: int = 0

    @property
    def path(self) -> Path:
        return Path(self.what)

    @property
    def is_run(self) -> bool:
        return any((self.path / name).exists() for name in ("run.json", _training.INVOCATION))

    def crowd_stamp(self) -> str:
        """Changes with everything that decides what is said about the crowd."""
        files = [self.path, self.annotations] if not self.path.is_dir() else [self.annotations]
        files += [self.path / name for name in (_training.INVOCATION, _training.RESULTS)]
        return _stamp([*files, self.path / "model" / "model.json"])

    def stamp(self) -> str:
        """Changes with everything that the page is made from."""
        benches = [] if self.bench is None else [self.bench / RECORDS]
        return _stamp([self.path / METRICS, self.path / RECORDS, *benches]) + self.crowd_stamp()


def write_report(request: Request, out: Path) -> None:
    """Make the page, and say where it is."""
    inputs = [request.path, request.annotations]
    if any(each is not None and each.exists() and each.resolve() == out.resolve() for each in inputs):
        raise DataError(f"{out} would overwrite what is read; choose another name")
    if out.is_dir():
        raise DataError(f"{out} is a folder; name a file")
    page = make(request)
    write(page, out)
    for warning in page.overview.get("warnings", []):
        complain("note", warning)
    say(f"{out}: {out.stat().st_size / 1e6:.1f} MB; open it in a browser")


def serve_report(request: Request, port: int, out: Path | None) -> None:
    """Serve the page until Ctrl-C, and write it to ``out`` too, if that is given."""
    first = make(request)  # what is wrong shows before a browser asks
    if out is not None:
        write(first, out)
    kept: dict[str, Content] = {}

    def build(stamp: str) -> str:
        crowd = request.crowd_stamp()
        if crowd not in kept:  # the crowd changes rarely, the metrics of a run every epoch
            kept.clear()
            kept[crowd] = about_crowd(request)
        return render(with_training(kept[crowd], request), live=stamp)

    kept[request.crowd_stamp()] = first
    try:
        server = ReportServer(port, request.stamp, build)
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}; choose another with --port") from error
    say(f"{server.address}  (Ctrl-C ends it)")
    with server:
        server.serve_forever()


def make(request: Request) -> Content:
    """Everything that the page shows."""
    check_method(request.method)
    return with_training(about_crowd(request), request)


def about_crowd(request: Request) -> Content:
    """All but training and comparison."""
    source = find(request)
    if source is None:
        return empty(request.path.resolve().name)
    return gather(source, method=request.method, budget=request.budget, seed=request.seed)


def with_training(page: Content, request: Request) -> Content:
    """The page with the curves of a run and the methods of a benchmark, as they are now."""
    page = dataclasses.replace(page)
    if request.is_run:
        history = _training.read_history(request.path / METRICS)
        page.training = training(history)
        done = _training.finished(request.path)
        page.state = "finished run" if done else f"run in progress, {len(history)} epochs so far"
    bench = request.path if (request.path / RECORDS).exists() else request.bench
    if bench is not None:
        page.comparison = comparison(read_records(bench))
    return page


def find(request: Request) -> Source | None:
    """The crowd that the input is about; None for a benchmark."""
    path = request.path
    if path.is_dir():
        if request.is_run:
            return _run(request)
        if (path / RECORDS).exists():
            return None
        raise DataError(f"{path} is neither a run directory (it has no run.json) nor a benchmark (no {RECORDS})")
    if path.is_file():
        return _result(request) if _is_result(path) else _labels(path, request)
    if request.what in datasets.names():
        try:
            return from_dataset(datasets.load(request.what))
        except DatasetError as error:
            raise DataError(f"{request.what}: {error}") from error
    raise ConfigError(
        f"there is no file or directory {path}, nor a data set of that name{suggest(request.what, datasets.names())}"
    )


def _labels(path: Path, request: Request) -> Source:
    read = read_export(path, request.reading, details=True)
    say(read.message)
    return from_export(path, read)


def _run(request: Request) -> Source | None:
    """The labels of a run, and its classifier where it is finished; None where the labels are not at hand."""
    path = request.path
    model = crowdwise.load(path) if _training.finished(path) else None
    if not (path / _training.INVOCATION).exists():  # started from Python
        return None if request.annotations is None else _labels(request.annotations, request)
    invocation = _training.Invocation.read(path)
    source = from_material(invocation.material(), model, path.resolve().name)
    facts = {"classifier": invocation.method, "seed": str(invocation.seed)}
    if model is not None and (path / _training.RESULTS).exists():
        results = _training.result_facts(read_json(path / _training.RESULTS))
        facts |= {name: value for name, value in results.items() if value is not None}
    return dataclasses.replace(source, facts=facts)


def _is_result(path: Path) -> bool:
    """Whether a table has the columns that `crowdwise aggregate` writes."""
    names: list[str] = []

    def look(columns: Any) -> Any:
        names.extend(columns)
        return columns[:1]

    if path.name.lower().removesuffix(".gz").rpartition(".")[2] not in FORMATS:
        return False
    load_columns(path, look)
    return set(RESULT) <= set(names)


def _result(request: Request) -> Source:
    """A table of labels with confidence; with the annotations behind it where they are given."""
    path = request.path
    names: list[str] = []

    def choose(columns: Any) -> Any:
        names.extend(name for name in columns if name in RESULT[:3] or name.startswith("p_"))
        return names

    loaded = {name: _plain(column) for name, column in load_columns(path, choose).items()}
    labels, confidence = loaded["label"], np.array(loaded["confidence"], np.float64)
    classes = [name[2:] for name in names if name.startswith("p_")] or sorted({str(label) for label in labels})
    method = f"the labels of {path.name}"
    if request.annotations is None:
        nobody = np.empty(0, np.int64)
        crowd = Annotations.from_triples(
            nobody,
            nobody,
            nobody,
            instances=[str(each) for each in loaded["instance"]],
            n_annotators=0,
            classes=classes,
        )
        source = Source(path.name, crowd, f"{path.name}: labels of {crowd.n_instances:,} items", method=method)
        sidecar = beside(path)
        if sidecar.is_file():
            table = load_columns(sidecar, list)
            source = dataclasses.replace(source, profiles=pa.table({k: _typed(k, v) for k, v in table.items()}))
    else:
        source = _labels(request.annotations, request)
        source = dataclasses.replace(source, title=path.name, method=method)
    return dataclasses.replace(
        source, posterior=_posterior(source.annotations, loaded, classes, labels, confidence, path)
    )


def _posterior(
    crowd: Annotations, loaded: Mapping[str, Any], classes: list[str], labels: Any, confidence: Any, path: Path
) -> Any:
    """Posterior (n, C) from the columns p_CLASS, or from label and confidence: the rest is then shared by the others."""
    rows = {str(name): row for row, name in enumerate(loaded["instance"])}
    try:
        order = np.array([rows[str(name)] for name in crowd.instances.tolist()], np.int64)
        code = {str(name): place for place, name in enumerate(crowd.classes.tolist())}
        place = np.array([code[str(label)] for label in labels], np.int64)
        columns = [code[name] for name in classes]
    except KeyError as error:
        raise DataError(f"{path} does not fit the annotations: {error.args[0]!r} is in one of them only") from error
    size = crowd.n_classes
    if "p_" + classes[0] in loaded:
        posterior = np.zeros((len(labels), size))
        for column, name in zip(columns, classes, strict=True):
            posterior[:, column] = np.array(loaded[f"p_{name}"], np.float64)
    else:
        posterior = np.repeat(((1 - confidence) / max(size - 1, 1))[:, None], size, axis=1)
        posterior[np.arange(len(labels)), place] = confidence if size > 1 else 1.0
    return (posterior / posterior.sum(axis=1, keepdims=True))[order]


def _plain(column: Any) -> list[Any]:
    values: list[Any] = column if isinstance(column, list) else column.to_pylist()
    return values


def _typed(name: str, column: Any) -> pa.Array:
    """A column of the annotators' table: ids and classes as text, all others as numbers."""
    values = pa.array(_plain(column))
    ids = name == "annotator" or name.endswith(("_class", "_with"))
    return values.cast(pa.string() if ids else pa.float64())


def _stamp(files: list[Path | None]) -> str:
    parts = []
    for path in files:
        if path is not None and path.is_file():
            about = path.stat()
            parts.append(f"{path.name}-{about.st_size}-{about.st_mtime_ns}")
    return ";".join(parts)
