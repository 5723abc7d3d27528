"""What a report is made from: find out what the input is, and read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from crowdwise import datasets
from crowdwise.agreement import Ordered
from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.data.factorise import Vocabulary
from crowdwise.data.frames import ALIASES, find_column
from crowdwise.errors import (
    ConfigError,
    DataError,
    DatasetError,
    ReadError,
    UsageError,
    spelled,
    suggest,
)
from crowdwise.readers import FORMATS, STDIN, InputFile, bare_suffix, load_columns
from crowdwise.report.content import Content, about_comparison, about_model, empty
from crowdwise.report.source import Source, from_dataset, from_export, from_training, with_instances
from crowdwise.tasks.aggregate import beside
from crowdwise.tasks.observer import Observer
from crowdwise.tasks.reading import Reading, read_annotations
from crowdwise.tasks.runs import INVOCATION, RESULTS, RUN, finished, is_run, result_facts, resumable

if TYPE_CHECKING:
    from crowdwise.data.training import TrainingData
    from crowdwise.methods.core.base import CrowdClassifier

MARKER = "comparison.json"  # of a folder of `crowdwise compare`
RESULT = ("instance", "label", "confidence")  # columns of every table of labels that crowdwise writes
LABELS = ("reading", "inputs", "root", "method")  # what a report about annotations may be told


@dataclass(frozen=True)
class Request:
    """What the report is to be about.

    What only folders need is imported where it is needed: it brings torch, which takes longer than a page of labels.
    """

    what: str
    annotations: Path | None = None
    inputs: Path | None = None
    bench: Path | None = None
    method: str = "auto"
    reading: Reading = dataclasses.field(default_factory=dict)
    budget: int = 200
    seed: int = 0
    cost: float | None = None
    """Price of a label."""
    root: Path | None = None
    """Folder of the pictures; by default that of the file."""
    ordered: Ordered = "auto"
    """Whether the classes are ordered, and how."""

    @property
    def path(self) -> Path:
        return Path(self.what)

    @property
    def is_run(self) -> bool:
        return self.path.is_dir() and is_run(self.path)

    @property
    def records(self) -> Path | None:
        """The file of a benchmark whose methods are compared."""
        folders = [folder for folder in (self.path, self.bench) if folder is not None and folder.is_dir()]
        if not folders:
            return self.bench
        from crowdwise.bench.records import RECORDS

        return next((folder / RECORDS for folder in folders if (folder / RECORDS).exists()), self.bench)

    def crowd_stamp(self) -> str:
        """Changes with everything that decides what is said about the crowd."""
        files = [self.annotations, self.inputs]
        if not self.path.is_dir():
            return _stamp([*files, self.path])
        names = (RUN, INVOCATION, RESULTS, MARKER, "result.json", "model/model.json")
        return _stamp([*files, *(self.path / name for name in names)])


def find(request: Request, observer: Observer) -> Source | Content:
    """The crowd that the input is about; content where there is no crowd, but a benchmark or a model."""
    path = request.path
    if request.what == STDIN:
        _refuse_unused(request, "the annotations", ("reading", "root", "method"))
        return dataclasses.replace(_labels(path, request, observer), title="standard input")
    if path.is_dir():
        if request.is_run:
            return _run(request, observer)
        if request.records is not None:
            _refuse_unused(request, "a benchmark", ())
            return empty(path.resolve().name)
        if (path / MARKER).is_file():
            _refuse_unused(request, "a comparison", ())
            return _comparison(path)
        try:
            _refuse_unused(request, "the annotations", LABELS)
            return _labels(path, request, observer)
        except ReadError as error:
            missing = (
                f"{path} is neither a run directory (it has no {RUN}) nor a benchmark (no records.jsonl) nor a comparison "
                f"(no {MARKER})"
            )
            raise DataError(f"{missing}, nor is it read as labels: {error}") from error
    if path.is_file():
        if is_result(path, request.reading):
            return _result(request, observer)
        _refuse_unused(request, "the annotations", LABELS)
        return _labels(path, request, observer)
    if request.what in datasets.names():
        _refuse_unused(request, "a data set", ("method",))
        try:
            return from_dataset(datasets.load(request.what))
        except DatasetError as error:
            raise DataError(f"{request.what}: {error}") from error
    raise ConfigError(
        f"there is no file or directory {path}, nor a data set of that name{suggest(request.what, datasets.names())}"
    )


def _refuse_unused(request: Request, what: str, used: Sequence[str]) -> None:
    """Refuse options of a request that mean nothing for such an input, which ``what`` names."""
    given = {
        "annotations": request.annotations,
        "inputs": request.inputs,
        "root": request.root,
        "method": None if request.method == "auto" else request.method,
    }
    if "reading" not in used:
        given |= request.reading
    for name, value in given.items():
        if value is not None and name not in used:
            raise UsageError(f"{spelled(name)} is not used: {request.what} is {what}", parameter=name)


def _comparison(path: Path) -> Content:
    """What `crowdwise compare` found, or how far it is."""
    from crowdwise.comparison import Comparison
    from crowdwise.comparison.result import RESULT

    title = path.resolve().name
    if (path / RESULT).is_file():
        return about_comparison(Comparison.load(path), title)
    page, fits = empty(title), len(list(path.glob("*-fold*.json")))
    page.note = (
        f"This comparison has no result yet, only {count(fits, 'fits')}. Repeat the command that began it; it goes on where "
        "it stopped."
    )
    return page


def is_result(path: Path, reading: Reading | None = None) -> bool:
    """Whether a file is a table of labels: of `aggregate`, `train`, `predict --annotations`, `route` or `review`.

    Such a table has no column of annotators, neither by its name nor by what the user says.
    """
    if bare_suffix(path) not in FORMATS or (reading or {}).get("annotator") is not None:
        return False
    names = InputFile(path).names
    return set(RESULT) <= set(names) and find_column(ALIASES["annotator"], names) is None


def _labels(path: Path, request: Request, observer: Observer) -> Source:
    if request.root is not None and not request.root.is_dir():
        raise DataError(f"{request.root}: there is no such folder of pictures", parameter="root")
    source = from_export(path, read_annotations(path, request.reading, observer, details=True), request.root)
    return source if request.inputs is None else _with_inputs(source, path, request)


def _with_inputs(source: Source, path: Path, request: Request) -> Source:
    """The labels, and the rows of the inputs that belong to their instances."""
    from crowdwise import encoders

    data = _joined(request, path)
    row = {str(name): at for at, name in enumerate(data.annotations.instances.tolist())}
    rows = np.array([row[str(name)] for name in source.annotations.instances.tolist()], np.int64)
    X = encoders.take_rows(encoders.opened(data.X), rows)
    return with_instances(dataclasses.replace(source, message=f"{source.message}\n{data.message.splitlines()[0]}"), X)


def _joined(request: Request, annotations: Path, expects: str = "") -> TrainingData:
    """The inputs of a request together with a file of labels."""
    from crowdwise.data.training import from_files

    root = None if request.root is None else str(request.root)
    return from_files(str(request.inputs), str(annotations), None, request.reading, root=root, expects=expects)


def _run(request: Request, observer: Observer) -> Source | Content:
    """The labels of a run, and its classifier where it is finished."""
    import crowdwise
    from crowdwise.storage.documents import read_json
    from crowdwise.tasks.train import Plan

    path = request.path
    model = crowdwise.load(path) if finished(path) else None
    if not resumable(path):
        alone = () if request.annotations is None else (*LABELS, "annotations")
        _refuse_unused(request, "a run started from Python", ("method", *alone))
        return _run_from_python(request, model, observer)
    _refuse_unused(request, "a run that knows its data", ("method",))
    plan = Plan.read(path)
    source = from_training(plan.load(path), model, path.resolve().name)
    facts = {"classifier": plan.method, "seed": str(plan.seed)}
    if model is not None and (path / RESULTS).exists():
        results = result_facts(read_json(path / RESULTS))
        facts |= {name: value for name, value in results.items() if value is not None}
    return dataclasses.replace(source, facts=facts)


def _run_from_python(request: Request, model: CrowdClassifier | None, observer: Observer) -> Source | Content:
    """What the files that are named beside the run tell; without any, what the model alone does."""
    title = request.path.resolve().name
    if request.annotations is None:
        page = empty(title) if model is None else about_model(model, title)
        page.note = (
            "This run was started from Python: its folder holds neither the labels nor the instances. "
            f"Pass {spelled('annotations', 'FILE')} and {spelled('inputs', 'FILE')} to see agreement, items, and how each "
            "annotator errs on them."
        )
        return page
    if request.inputs is None or model is None:
        return dataclasses.replace(_labels(request.annotations, request, observer), title=title)
    encoder = model.intake_.encoder
    data = _joined(request, request.annotations, "" if encoder is None else encoder.takes)
    observer.note(data.message)
    return from_training(_known_to(model, data), model, title, same=False)


def _known_to(model: CrowdClassifier, data: TrainingData) -> TrainingData:
    """The data in the vocabularies of a model that was trained on them."""
    crowd, places = data.annotations, {}
    for what, own, known in (
        ("annotator", crowd.annotators, model.annotators_),
        ("class", crowd.classes, model.classes_),
    ):
        code = {str(name): place for place, name in enumerate(known.tolist())}
        unknown = [name for name in own.tolist() if str(name) not in code]
        if unknown:
            raise DataError(f"the run knows no {what} {str(unknown[0])!r}: was it trained on other labels?")
        places[what] = np.array([code[str(name)] for name in own.tolist()], np.int64)
    annotations = crowd.recoded(
        annotators=(places["annotator"], Vocabulary.of(model.annotators_, "annotators")),
        classes=(places["class"], Vocabulary.of(model.classes_, "classes")),
    )
    gold = data.gold
    if gold is not None:
        gold = gold[0], model.classes_[places["class"][crowd.class_codes(gold[1])]]
    return dataclasses.replace(data, annotations=annotations, gold=gold)


def _result(request: Request, observer: Observer) -> Source:
    """A table of labels with confidence; with the annotations behind it where they are given."""
    path = request.path
    behind = () if request.annotations is None else (*LABELS, "annotations")
    _refuse_unused(request, "a table of labels", behind)
    found = load_columns(path, lambda names: [each for each in names if each in RESULT or each.startswith("p_")])
    loaded = {name: _plain(column) for name, column in found.items()}
    classes = [name[2:] for name in loaded if name.startswith("p_")] or sorted(set(map(str, loaded["label"])))
    method = f"the labels of {path.name}"
    if request.annotations is None:
        nobody = [np.empty(0, np.int64)] * 3
        ids = [str(each) for each in loaded["instance"]]
        crowd = Annotations.from_triples(*nobody, instances=ids, n_annotators=0, classes=classes)
        source = Source(path.name, crowd, f"{path.name}: labels of {crowd.n_instances:,} items", method=method)
        sidecar = beside(path)
        if sidecar.is_file():
            table = load_columns(sidecar, list)
            source = dataclasses.replace(source, profiles=pa.table({k: _typed(k, v) for k, v in table.items()}))
    else:
        source = _labels(request.annotations, request, observer)
        source = dataclasses.replace(source, title=path.name, method=method)
    return dataclasses.replace(source, posterior=_posterior(source.annotations, loaded, classes, path))


def _posterior(crowd: Annotations, loaded: Mapping[str, Any], classes: list[str], path: Path) -> Any:
    """Posterior (n, C) from the columns p_CLASS, or from label and confidence: the rest is then shared by the others."""
    labels, confidence = loaded["label"], np.array(loaded["confidence"], np.float64)
    rows = {str(name): row for row, name in enumerate(loaded["instance"])}
    unknown = np.flatnonzero(np.isnan(confidence))
    if len(unknown):
        raise DataError(
            f"{path}, record {int(unknown[0]) + 1}: the label has no confidence, as the annotations did not show "
            f"how many labels are right; make the report of the annotations themselves"
        )
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
