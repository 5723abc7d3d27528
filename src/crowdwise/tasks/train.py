"""Train a classifier in a run directory: plan a run, start it, go on with it, and sum it up.

A run is described by its ``run.json`` alone: method, parameters and a fingerprint of the data, which the engine writes, and
under ``source`` where the data come from. Runs of earlier versions have that in ``invocation.json``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import crowdwise
from crowdwise import presets, simulate
from crowdwise.data.shares import wilson
from crowdwise.data.training import TrainingData, from_dataset, from_files
from crowdwise.encoders import take_rows
from crowdwise.engine.checkpoint import RunDirectory, explicit_parameters
from crowdwise.engine.guard import first_try
from crowdwise.errors import ConfigError, ModelFileError, UsageError, spelled
from crowdwise.figures import Worth, worth
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.methods.core.label_check import LabelCheck
from crowdwise.methods.core.labels import label_summary, label_table
from crowdwise.readers import STDIN, write_table
from crowdwise.registry import METHODS
from crowdwise.storage.documents import read_as, read_json, write_json
from crowdwise.storage.files import tidy
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_parameters, check_workers, refuse_unknown
from crowdwise.tasks.pictures import save_pictures
from crowdwise.tasks.reading import Reading
from crowdwise.tasks.runs import INVOCATION, LABELS, RESULTS, RUN, finished, of_earlier_version, read_run


@dataclass(frozen=True)
class Plan:
    """What a run is made from."""

    method: str
    parameters: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    """Arguments of `datasets.load`; empty where the instances come from a file."""
    simulate: dict[str, Any] = field(default_factory=dict)
    """Arguments of `simulate.aidn`, where the crowd is a simulated one."""
    inputs: str | None = None
    annotations: str | None = None
    ids: str | None = None
    text: str | None = None
    image: str | None = None
    root: str | None = None
    """Columns of texts and of pictures' paths, and the folder these are in: see `crowdwise.data.training.from_files`."""
    reading: dict[str, Any] = field(default_factory=dict)
    """Arguments of `crowdwise.read` for the annotations."""

    @property
    def seed(self) -> int:
        return int(self.parameters.get("random_state", 0))

    @property
    def name(self) -> str:
        """SOURCE-METHOD-seedN."""
        source = self.data.get("name") or Path(self.inputs or self.annotations or "run").stem
        return f"{source}-{self.method}-seed{self.seed}"

    def load(self, path: Path | None = None) -> TrainingData:
        """Read the instances and their annotations; as an earlier version did, if one began the run in the folder ``path``."""
        earlier = path is not None and of_earlier_version(path)
        if self.annotations is not None and not self.data:
            columns: dict[str, Any] = {"text": self.text, "image": self.image, "root": self.root}
            return from_files(self.inputs, self.annotations, self.ids, self.reading, **columns, as_they_appear=earlier)
        return from_dataset(
            self.data, simulated=self.simulate, annotations=self.annotations, reading=self.reading, seed=self.seed
        )

    def model(self, **changed: Any) -> CrowdClassifier:
        model: CrowdClassifier = METHODS[self.method](**self.parameters | changed)
        return model

    def fit(self, data: TrainingData, path: Path, **changed: Any) -> CrowdClassifier:
        """Train in a run directory, from where it stands, with some parameters ``changed``."""
        if (path / RUN).exists():
            parameters = explicit_parameters(self.parameters, getattr(data.X, "shape", (0,))[1:])
            model = dataclasses.replace(self, parameters=parameters).model(**changed)
            return model.fit(data.X, data.annotations, ids=data.ids, resume=path)
        model = self.model(**changed)
        source = {name: getattr(self, name) for name in SOURCE}
        source["parameters"] = {name: value for name, value in self.parameters.items() if name in NEUTRAL}
        return model.fit(data.X, data.annotations, ids=data.ids, run_dir=RunDirectory(path, source))

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The plan of the run in a folder."""
        if not path.is_dir():
            raise ModelFileError(f"{path}: there is no such run directory")
        if (path / INVOCATION).exists():
            return _invocation(path)
        if not (path / RUN).exists():
            raise ModelFileError(f"{path} holds no run: it has no {RUN}")
        run = read_run(path)
        source = run.get("source")
        if source is None:
            raise ModelFileError(
                f"{path} does not say where its data come from: the run was started from Python: "
                "go on with fit(..., resume=...)"
            )
        found = read_as(cls, source, f"{path / RUN}: source", ModelFileError, method=run["method"])
        return dataclasses.replace(found, parameters=run["parameters"] | found.parameters)


SOURCE = tuple(each.name for each in dataclasses.fields(Plan) if each.name != "method")
SILENT_KINDS = ("chance", "one class")  # evidence with which no label has a confidence
NEUTRAL = ("device", "verbose")  # parameters that decide nothing, so that the engine does not note them


@dataclass(frozen=True)
class Trained:
    """A finished run: the model, and how it went."""

    path: Path
    model: CrowdClassifier
    results: dict[str, Any]
    """Accuracy on test and gold labels where there are some, agreement, seconds; as in ``results.json``."""
    pictures: list[Path]
    before: bool = False
    """The run was finished already."""

    def as_json(self) -> dict[str, Any]:
        return {"run": self.path, "method": self.model.name, "results": self.results, "pictures": self.pictures}


@dataclass(frozen=True)
class Run:
    """A run directory and what is trained in it."""

    path: Path
    plan: Plan

    @classmethod
    def new(cls, plan: Plan, out: str | Path | None = None) -> Run:
        """A run to be started, in ``out`` or in a new folder ``runs/SOURCE-METHOD-seedN``."""
        if out is not None:
            return cls(Path(out), plan)
        paths = (Path("runs", plan.name + (f"-{number}" if number > 1 else "")) for number in count(1))
        return cls(next(path for path in paths if not path.exists()), plan)

    @classmethod
    def open(cls, path: str | Path, *, device: str | None = None) -> Run:
        """A run that was started earlier; ``device`` takes the place of the one it was started on."""
        plan = Plan.read(Path(path))
        if device is not None:
            plan = dataclasses.replace(plan, parameters=plan.parameters | {"device": device})
        return cls(Path(path), plan)

    @property
    def started(self) -> bool:
        return (self.path / RUN).exists()

    def start(self, *, ray: str | None = None, workers: int | None = None, observer: Observer = SILENT) -> Trained:
        """Train in a new run directory, in this process or on Ray."""
        check_workers(ray, workers)
        self._refuse_started()
        data = self.plan.load()  # read first: a mistyped file name should leave no run behind
        with RunDirectory(self.path).locked():
            self._refuse_started()  # by another process in the meantime
            return self._train(data, ray, workers, observer)

    def resume(self, *, ray: str | None = None, workers: int | None = None, observer: Observer = SILENT) -> Trained:
        """Go on where the run stopped; a finished one is summed up again."""
        check_workers(ray, workers)
        data = self.plan.load(self.path)
        run = RunDirectory(self.path)
        with run.locked():
            if not finished(self.path):
                return self._train(data, ray, workers, observer)
            run.finish()
            observer.note(f"{self.path}: this run is finished")
            model = crowdwise.load(self.path, device=self.plan.parameters.get("device", "auto"))
            return dataclasses.replace(self._summarise(model, data), before=True)

    def _train(self, data: TrainingData, ray: str | None, workers: int | None, observer: Observer) -> Trained:
        observer.note(data.message)
        if ray is None:
            model = self.plan.fit(data, self.path)
        else:
            from crowdwise.tasks.ray_training import fit_on

            fit_on(ray, workers, self.plan, self.path)
            model = crowdwise.load(self.path)
        return self._summarise(model, data)

    def _summarise(self, model: CrowdClassifier, data: TrainingData) -> Trained:
        """Measure the model, and write ``results.json`` and the pictures."""
        results: dict[str, Any] = {}
        if data.y_test is not None and data.X_test is not None:
            results["test_accuracy"] = model.score(data.X_test, model.classes_[data.y_test])
        if data.gold is not None:
            rows, classes = data.gold
            results["gold_accuracy"] = model.score(take_rows(data.X, rows), classes)
            results["gold_instances"] = len(rows)
            low, high = wilson(results["gold_accuracy"] * len(rows), len(rows))
            results["gold_low"], results["gold_high"] = float(low), float(high)
        agreements = [record["agreement"] for record in model.history_ if record["agreement"] is not None]
        results["agreement"] = agreements[-1] if agreements else None
        repeated = first_try(model.history_[-1]["stage"]) if model.history_ else None
        first = [record["agreement"] for record in model.history_ if record["stage"] == repeated]
        if first:  # of a last stage that was run again; the better of the two counts
            results["first_try_agreement"] = first[-1]
        results["seconds"] = round(sum(record["seconds"] for record in model.history_), 2)
        if hasattr(model, "posterior_"):  # models of earlier versions have none
            found = worth(data.annotations, np.asarray(model.posterior_, np.float64), _truth(data))
            labels = label_table(data.annotations, model, confident=found.evidence.kind not in SILENT_KINDS)
            write_table(labels, self.path / LABELS)
            results["labels"] = label_summary(labels)
            results["right"] = found.sentence
            results["worth"] = _worth_json(found)
            check = LabelCheck.of(model.arrays_)
            if check is not None:
                results["classifier"] = str(check)
                results["label_check"] = dataclasses.asdict(check) if check.compared else None
        if model.warnings_:
            results["warnings"] = model.warnings_
        write_json(self.path / RESULTS, results)
        tidy(self.path / "pictures")
        return Trained(self.path, model, results, save_pictures(model, data, self.path / "pictures"))

    def _refuse_started(self) -> None:
        if self.started:
            raise ConfigError(
                f"{self.path} already holds a run: go on with it ({spelled('resume', str(self.path))}), "
                f"or choose another folder ({spelled('out')})",
                parameter="out",
            )


def _truth(data: TrainingData) -> npt.NDArray[np.int64] | None:
    """True classes of the instances (n,), -1 if unknown; None if none is known."""
    if data.crowd is not None:
        return np.asarray(data.crowd.y, np.int64)
    if data.gold is None:
        return None
    truth = np.full(data.annotations.n_instances, -1, np.int64)
    truth[data.gold[0]] = data.annotations.class_codes(data.gold[1])
    return truth


def _worth_json(found: Worth) -> dict[str, Any]:
    """What the labels are worth, for ``results.json``."""
    shares = {name: getattr(found, name) for name in ("right", "estimated", "measured", "majority")}
    known = {name: None if share is None else dataclasses.asdict(share) for name, share in shares.items()}
    return known | {"evidence": found.evidence.kind, "why": found.why}


def plan(
    method: str,
    *,
    preset: str | None = None,
    data: str | None = None,
    inputs: str | None = None,
    annotations: str | None = None,
    ids: str | None = None,
    text: str | None = None,
    image: str | None = None,
    root: str | None = None,
    reading: Reading | None = None,
    settings: Mapping[str, Any] | None = None,
    download: bool = False,
) -> Plan:
    """What a run consists of: the preset's settings, overridden by ``settings``; all of them checked.

    The data are a public data set (``data``), perhaps with ``annotations`` from a file, or ``inputs`` and ``annotations``
    from files, or ``annotations`` with texts or pictures of their own: the columns ``text`` or ``image`` (files below ``root``),
    which are found by their usual names where they are not given. ``settings`` are parameters of the method, and those of the
    data set (``data.features``) and of a simulated crowd (``simulate.noise_rate``).
    """
    if inputs is not None and (data is not None or annotations is None):
        raise UsageError(
            f"{spelled('inputs')} needs {spelled('annotations')}, and does not go with {spelled('data')}",
            parameter="inputs",
        )
    if reading and annotations is None:
        raise UsageError(
            f"{spelled(next(iter(reading)))} says how {spelled('annotations')} are read", parameter="annotations"
        )
    if ids is not None and inputs is None:
        raise UsageError(f"{spelled('ids')} are ids of the rows of {spelled('inputs')}", parameter="ids")
    columns = {"text": text, "image": image, "root": root}
    named = next((name for name, value in columns.items() if value is not None), None)
    if named is not None and (data is not None or annotations is None):
        raise UsageError(
            f"{spelled(named)} says what {spelled('annotations')} and {spelled('inputs')} hold: it needs the former, and does "
            f"not go with {spelled('data')}",
            parameter=named,
        )
    if STDIN in (inputs, annotations):
        raise UsageError(
            f"a run must be able to go on later, so that it is trained from files, not from standard input ({STDIN})",
            parameter="annotations",
        )
    METHODS[method]  # an unknown method is an error before anything else is looked at
    base = presets.load_preset(preset) if preset is not None else presets.Preset("")
    tables: dict[str, dict[str, Any]] = {"data": {}, "simulate": {}, "": {}}
    for key, value in (settings or {}).items():
        table, dot, name = key.partition(".")
        tables[table if dot and table in tables else ""][name if dot and table in tables else key] = value
    parameters = base.method_parameters(method) | tables[""]
    check_parameters(method, parameters)
    refuse_unknown("[simulate]", tables["simulate"], inspect.signature(simulate.aidn).parameters)
    options = dict(base.data) if data in (None, base.data.get("name")) else {"name": data}
    options |= tables["data"] | ({"download": True} if download else {})
    if "root" in options:
        options["root"] = str(Path(options["root"]).expanduser().absolute())
    simulated = dict(base.simulate) | tables["simulate"]
    own = inputs is not None or (annotations is not None and (named is not None or "name" not in options))
    if download and own:
        raise UsageError(
            f"{spelled('download')} fetches a data set: it needs {spelled('data', 'NAME')}", parameter="download"
        )
    for table, unused in (("data", own), ("simulate", inputs is not None or annotations is not None)):
        if unused and tables[table]:
            setting = f"{table}.{next(iter(tables[table]))}"
            raise UsageError(
                f"{spelled('settings', setting)} is not used: the data are those of {spelled('annotations')}",
                parameter="settings",
            )
    return Plan(
        method=method,
        parameters=parameters,
        data={} if own else options,
        simulate=simulated if inputs is None and annotations is None else {},
        inputs=_absolute(inputs),
        annotations=_absolute(annotations),
        ids=_absolute(ids) if ids is not None and Path(ids).is_file() else ids,
        text=text,
        image=image,
        root=_absolute(root),
        reading=_reading(reading or {}),
    )


@dataclass(frozen=True, kw_only=True)
class _Invocation(Plan):
    """``invocation.json``, in which earlier versions described a run."""

    version: Literal[1]
    crowdwise: str = ""


def _invocation(path: Path) -> Plan:
    """The plan of a run that an earlier version started; its run.json, if there is one, has all parameters."""
    found = read_as(_Invocation, read_json(path / INVOCATION), str(path / INVOCATION), ModelFileError)
    noted = read_run(path)["parameters"] if (path / RUN).exists() else {}
    own = {each.name: getattr(found, each.name) for each in dataclasses.fields(Plan)}
    return Plan(**own | {"parameters": noted | found.parameters})


def _reading(reading: Reading) -> dict[str, Any]:
    """How annotations are read, with the path of a file of gold in full."""
    gold = reading.get("gold")
    return dict(reading) | ({"gold": _absolute(gold)} if gold is not None and Path(gold).is_file() else {})


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())
