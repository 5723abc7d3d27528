"""`crowdwise train`: plan a run, train it in a run directory, go on with it, and sum it up."""

from __future__ import annotations

import dataclasses
import inspect
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import crowdwise
from crowdwise import presets, simulate
from crowdwise.cli import _settings
from crowdwise.cli._aggregation import as_options, options_named
from crowdwise.cli._console import say, show_facts, show_table
from crowdwise.cli._pictures import save_pictures
from crowdwise.engine.checkpoint import RunDirectory, read_json, write_json
from crowdwise.errors import ConfigError, ModelFileError, StorageError
from crowdwise.material import Material, from_dataset, from_files
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.registry import METHODS
from crowdwise.storage.documents import json_value
from crowdwise.storage.files import tidy

INVOCATION, RESULTS = "invocation.json", "results.json"
_VERSION = 1


@dataclass(frozen=True)
class Invocation:
    """Everything that a run is made from, as it is written into its run directory."""

    method: str
    parameters: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    """Arguments of `datasets.load`; empty where the inputs come from a file."""
    simulate: dict[str, Any] = field(default_factory=dict)
    inputs: str | None = None
    annotations: str | None = None
    ids: str | None = None
    reading: dict[str, Any] = field(default_factory=dict)
    """Arguments of `crowdwise.read` for the annotations."""

    @property
    def seed(self) -> int:
        return int(self.parameters.get("random_state", 0))

    def material(self) -> Material:
        given = {"reading": self.reading}
        with options_named():
            if self.inputs is not None and self.annotations is not None:
                return from_files(self.inputs, self.annotations, self.ids, **given)
            return from_dataset(self.data, simulated=self.simulate, table=self.annotations, seed=self.seed, **given)

    def model(self) -> CrowdClassifier:
        model: CrowdClassifier = METHODS[self.method](**self.parameters)
        return model

    def write(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        content = {"version": _VERSION, "crowdwise": crowdwise.__version__, **dataclasses.asdict(self)}
        write_json(path / INVOCATION, content)

    @classmethod
    def read(cls, path: Path) -> Invocation:
        if not path.is_dir():
            raise ModelFileError(f"{path}: there is no such run directory")
        if not (path / INVOCATION).exists():
            hint = "; the run was started from Python: go on with fit(..., resume=...)" if _started(path) else ""
            raise ModelFileError(f"{path} holds no run of `crowdwise train`: it has no {INVOCATION}{hint}")
        content = read_json(path / INVOCATION)
        if not isinstance(content, dict) or content.pop("version", None) != _VERSION:
            raise ModelFileError(f"{path / INVOCATION} is not of version {_VERSION}, the one this crowdwise reads")
        content.pop("crowdwise", None)
        names = {f.name for f in dataclasses.fields(cls)}
        if "method" not in content or not set(content) <= names:
            raise ModelFileError(f"{path / INVOCATION} is damaged: it has the keys {sorted(content)}")
        return cls(**content)


def plan(
    *,
    method: str,
    preset: str | None = None,
    data: str | None = None,
    inputs: str | None = None,
    annotations: str | None = None,
    ids: str | None = None,
    reading: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    download: bool = False,
) -> Invocation:
    """What a run consists of: the preset's settings, overridden by those of the command line; all of them checked."""
    METHODS[method]  # an unknown method is an error before anything else
    base = presets.load_preset(preset) if preset is not None else presets.Preset("")
    tables: dict[str, dict[str, Any]] = {"data": {}, "simulate": {}, "": {}}
    for key, value in (settings or {}).items():
        table, dot, name = key.partition(".")
        tables[table if dot and table in tables else ""][name if dot and table in tables else key] = value
    parameters = base.method_parameters(method) | tables[""]
    _settings.check_parameters(method, parameters)
    _settings.refuse_unknown("[simulate]", tables["simulate"], inspect.signature(simulate.aidn).parameters)
    options = dict(base.data) if data in (None, base.data.get("name")) else {"name": data}
    options |= tables["data"] | ({"download": True} if download else {})
    if "root" in options:
        options["root"] = str(Path(options["root"]).expanduser().absolute())
    simulated = dict(base.simulate) | tables["simulate"]
    return Invocation(
        method=method,
        parameters=parameters,
        data=options if inputs is None else {},
        simulate=simulated if inputs is None and annotations is None else {},
        inputs=_absolute(inputs),
        annotations=_absolute(annotations),
        ids=_absolute(ids) if ids is not None and Path(ids).is_file() else ids,
        reading=dict(reading or {}),
    )


def start(invocation: Invocation, out: Path | None, ray: str | None = None, workers: int | None = None) -> None:
    """Train in a new run directory, in this process or on a Ray."""
    path = out if out is not None else _new_directory(invocation)
    _refuse_started(path)
    material = invocation.material()  # read first: a mistyped file name should leave no run behind
    with RunDirectory(path).locked():
        _refuse_started(path)  # by another process in the meantime
        invocation.write(path)
        _train(invocation, material, path, ray, workers)


def resume(path: Path, device: str | None = None, ray: str | None = None, workers: int | None = None) -> None:
    """Go on with a run where it stopped; of a finished one, print the summary."""
    invocation = Invocation.read(path)
    if device is not None:
        invocation = dataclasses.replace(invocation, parameters=invocation.parameters | {"device": device})
    try:
        material = invocation.material()
    except KeyboardInterrupt:
        raise _interrupted(path) from None
    run = RunDirectory(path)
    with run.locked():
        if finished(path):
            run.finish()
            say(f"{path}: this run is finished")
            _summarise(crowdwise.load(path, device=device or "auto"), material, path)
        else:
            _train(invocation, material, path, ray, workers)


def finished(path: Path) -> bool:
    return (path / "model" / "model.json").exists()


def stages_table(history: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Stage, epochs, last loss, last agreement and seconds of each stage in a history."""
    rows = []
    for _, records in groupby(history, lambda record: record["index"]):
        epochs = list(records)
        last = epochs[-1]
        agreement = "-" if last["agreement"] is None else f"{last['agreement']:.3f}"
        seconds = sum(record["seconds"] for record in epochs)
        rows.append([last["stage"], str(len(epochs)), f"{last['loss']:.4f}", agreement, f"{seconds:.1f}"])
    return rows


def read_history(path: Path) -> list[dict[str, Any]]:
    """The epochs that a run has finished; a line that was cut off by a crash, and what follows it, does not count."""
    records: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            record = json_value(line)
            known = {key: kind(record[key]) for key, kind in _EPOCH.items()}
            known["agreement"] = None if record["agreement"] is None else float(record["agreement"])
        except (ValueError, KeyError, TypeError, OverflowError):
            break
        records.append(record | known)
    return records


_EPOCH: dict[str, type] = {"stage": str, "index": int, "epoch": int, "loss": float, "seconds": float}
STAGE_COLUMNS = ("stage", "epochs", "loss", "agreement", "seconds")


def _train(invocation: Invocation, material: Material, path: Path, ray: str | None, workers: int | None) -> None:
    say(as_options(material.message))
    try:
        if ray is None:
            model = fit(invocation, material, path)
        else:
            from crowdwise.cli._ray_training import fit_on

            fit_on(ray, workers, invocation, path)
            model = crowdwise.load(path)
        _summarise(model, material, path)
    except KeyboardInterrupt:
        raise _interrupted(path) from None
    except StorageError as error:
        raise StorageError(f"{error}; then {_go_on(path)}" if _started(path) else str(error)) from error


def fit(invocation: Invocation, material: Material, path: Path) -> CrowdClassifier:
    """Train in a run directory, from where it stands."""
    model = invocation.model()
    if _started(path):
        return model.fit(material.X, material.annotations, resume=path)
    return model.fit(material.X, material.annotations, run_dir=path)


def _summarise(model: CrowdClassifier, material: Material, path: Path) -> None:
    """Print stages and results, and write ``results.json`` and the pictures."""
    show_table(f"{model.name} in {path}", STAGE_COLUMNS, stages_table(model.history_), right=STAGE_COLUMNS[1:])
    results: dict[str, Any] = {}
    if material.y_test is not None and material.X_test is not None:
        results["test_accuracy"] = model.score(material.X_test, model.classes_[material.y_test])
    if material.gold is not None:
        rows, classes = material.gold
        results["gold_accuracy"], results["gold_instances"] = model.score(material.X[rows], classes), len(rows)
    agreements = [record["agreement"] for record in model.history_ if record["agreement"] is not None]
    results["agreement"] = agreements[-1] if agreements else None
    results["seconds"] = round(sum(record["seconds"] for record in model.history_), 2)
    write_json(path / RESULTS, results)
    show_facts("results", result_facts(results))
    show_facts("files", {"model": path / "model", "metrics": path / "metrics.jsonl", "results": path / RESULTS})
    tidy(path / "pictures")
    for picture in save_pictures(model, material, path / "pictures"):
        say(f"  picture  {picture}")


def result_facts(results: Mapping[str, Any]) -> dict[str, str | None]:
    """``results.json`` in words."""
    test, gold, agreement = (results.get(key) for key in ("test_accuracy", "gold_accuracy", "agreement"))
    return {
        "test accuracy": None if test is None else f"{100 * test:.2f} %",
        "accuracy on gold": None if gold is None else f"{100 * gold:.2f} % of {results['gold_instances']:,} instances",
        "validation agreement": None if agreement is None else f"{agreement:.3f}",
        "training": f"{results['seconds']:.1f} s",
    }


def _interrupted(path: Path) -> KeyboardInterrupt:
    return KeyboardInterrupt(_go_on(path))


def _go_on(path: Path) -> str:
    return f"go on with  crowdwise train --resume {shlex.quote(str(path))}"


def _refuse_started(path: Path) -> None:
    if _started(path):
        raise ConfigError(
            f"{path} already holds a run: go on with it (crowdwise train --resume {shlex.quote(str(path))}), "
            "or choose another directory (-o)"
        )


def _started(path: Path) -> bool:
    return (path / "run.json").exists()


def _new_directory(invocation: Invocation) -> Path:
    """``runs/SOURCE-METHOD-seedN``, with a number behind it where that is taken."""
    source = invocation.data.get("name") or Path(invocation.inputs or "run").stem
    stem = f"{source}-{invocation.method}-seed{invocation.seed}"
    names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, 10_000))
    return next(path for path in (Path("runs") / name for name in names) if not path.exists())


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())
