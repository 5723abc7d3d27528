"""Run one cell of a benchmark and record the outcome. True labels are used here, but never by a method."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise
from crowdwise import graph
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.annotations import Annotations
from crowdwise.bench.cells import Cell
from crowdwise.bench.figures import AnnotatorMap, write_map
from crowdwise.bench.sharing import Company, counted
from crowdwise.data.training import TrainingData, from_dataset, from_files
from crowdwise.data.types import Array
from crowdwise.encoders import take_rows
from crowdwise.engine.guard import first_try
from crowdwise.errors import ConfigError, ModelFileError
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.methods.core.labels import POSTERIOR
from crowdwise.quality import calibration
from crowdwise.registry import METHODS
from crowdwise.storage.documents import write_json

Watcher = Callable[[dict[str, Any]], None]
_INSTANCES, _ANNOTATORS = 300, 10  # to compare estimated and true matrices at


def run_cell(
    cell: Cell, folder: Path, shared: Path, *, sharing: int = 1, watch: Watcher | None = None
) -> dict[str, Any]:
    """Train and evaluate, resuming an interrupted run; writes ``record.json`` to ``folder`` and returns it."""
    import torch

    data = load_data(cell)
    train, held_out = split_votes(data.annotations, cell.heldout, cell.seed)
    model: CrowdClassifier = METHODS[cell.method](**cell.parameters, random_state=cell.seed, verbose=0)
    curve = Curve(data, watch)
    _reset_peaks()
    with counted(_gpu(), sharing) as curve.company:
        started = time.perf_counter()
        fit(model, data.X, train, run_folder(folder), shared, curve)
        seconds = time.perf_counter() - started - curve.seconds
    seconds += sum(epoch["seconds"] for epoch in model.history_ if (epoch["index"], epoch["epoch"]) not in curve.seen)
    record = cell.as_json() | {
        "cell": cell.id,
        "dataset": data.name,
        "all_parameters": model._json_parameters(),
        **accuracies(model, data),
        **labels(model, data, train),
        **votes_explained(model, data.X, train, held_out),
        **parts(model, data),
        **times(model, seconds),
        **({"warnings": model.warnings_} if model.warnings_ else {}),
        "sharing": curve.company.most,
        "peak_memory_mb": _peak_memory(),
        **({"peak_gpu_gb": round(torch.cuda.max_memory_allocated() / 1e9, 3)} if torch.cuda.is_available() else {}),
        **versions(),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    keep_map(cell, model, data, folder / "map.npz")
    write_json(folder / "record.json", record)
    discard_runs(folder)
    return record


def run_folder(folder: Path) -> Path:
    """The folder for the state of a run. State left by other code is removed: a record must come from one version."""
    path = folder / f"run-{versions()['code']}"
    for other in folder.glob("run-*"):
        if other != path:
            shutil.rmtree(other, ignore_errors=True)
    return path


def discard_runs(folder: Path) -> None:
    """Remove the state of interrupted runs."""
    for path in folder.glob("run-*"):
        shutil.rmtree(path, ignore_errors=True)


def fit(model: CrowdClassifier, X: Any, annotations: Annotations, path: Path, shared: Path, curve: Curve) -> None:
    """Fit in a run directory. If it is damaged, start over without the shared stages, which may be damaged too."""
    if (path / "run.json").exists():
        with contextlib.suppress(ModelFileError, ConfigError):
            model.fit(X, annotations, resume=path, share=shared, callbacks=[curve])
            return
    elif not path.exists():
        with contextlib.suppress(ModelFileError):
            model.fit(X, annotations, run_dir=path, share=shared, callbacks=[curve])
            return
    for damaged in (path, shared):
        shutil.rmtree(damaged, ignore_errors=True)
    model.fit(X, annotations, run_dir=path, share=shared, callbacks=[curve])


@functools.lru_cache(maxsize=1)
def _load(data: str, simulate: str, seed: int) -> TrainingData:
    options = {key: value for key, value in json.loads(data).items() if key != "content"}
    if "inputs" in options:
        return from_files(options["inputs"], options["annotations"], options.get("ids"))
    annotations = options.pop("annotations", None)
    return from_dataset(options, simulated=json.loads(simulate), annotations=annotations, seed=seed)


def load_data(cell: Cell) -> TrainingData:
    """The cell's instances and annotations; the last ones are cached, as the next cell is often of the same family."""
    return _load(json.dumps(dict(cell.data)), json.dumps(dict(cell.simulate)), cell.seed)


def split_votes(annotations: Annotations, fraction: float, seed: int) -> tuple[Annotations, Annotations | None]:
    """Annotations to train on, and a random fraction for evaluation; every instance keeps at least one.

    Fewer than the fraction are evaluated on if instances have too few annotations for it.
    """
    if not fraction:
        return annotations, None
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(annotations))
    rank = np.empty(len(annotations), dtype=np.int64)  # position among the votes of its instance, in random order
    by_instance = order[np.argsort(annotations.instance[order], kind="stable")]
    number = np.bincount(annotations.instance, minlength=annotations.n_instances)
    first = np.cumsum(number) - number
    rank[by_instance] = np.arange(len(annotations)) - first[annotations.instance[by_instance]]
    spare = np.flatnonzero(rank > 0)
    size = min(round(fraction * len(annotations)), len(spare))
    out = np.zeros(len(annotations), dtype=bool)
    out[rng.choice(spare, size, replace=False)] = True
    return annotations.where(~out), annotations.where(out)


class Curve:
    """Adds test accuracy to the record of every epoch, where it survives interruptions."""

    def __init__(self, data: TrainingData, watch: Watcher | None) -> None:
        self.data, self.watch, self.seconds = data, watch, 0.0
        self.seen: set[tuple[int, int]] = set()
        """Stage and epoch of what was trained in this process, for this method."""
        self.company: Company | None = None

    def epoch(self, record: dict[str, Any], predict: Callable[[Any], Array] | None) -> None:
        started = time.perf_counter()
        self.seen.add((record["index"], record["epoch"]))
        if predict is not None and self.data.y_test is not None:
            right = predict(self.data.X_test).argmax(1) == self.data.y_test
            record["test_accuracy"] = round(100 * float(right.mean()), 3)
        if self.company is not None:
            self.company.count()
        if self.watch is not None:
            self.watch(record)
        self.seconds += time.perf_counter() - started


def accuracies(model: CrowdClassifier, data: TrainingData) -> dict[str, Any]:
    """Accuracy after the last epoch, and in the epoch of the last stage that agreed best with held-out instances."""
    found: dict[str, Any] = {}
    last = [record for record in model.history_ if record["stage"] == model.history_[-1]["stage"]]
    if data.y_test is not None:
        right = model.predict_proba(data.X_test).argmax(1) == data.y_test
        found["test_accuracy"] = round(100 * float(right.mean()), 3)
        found["curve"] = [[r["epoch"], r["agreement"], r.get("test_accuracy")] for r in last]
    if data.gold is not None:
        rows, classes = data.gold
        found.setdefault("test_accuracy", round(100 * model.score(take_rows(data.X, rows), classes), 3))
    repeated = first_try(last[-1]["stage"])
    first = [record for record in model.history_ if record["stage"] == repeated]
    if first and first[-1]["agreement"] is not None:  # the better of the two counts
        found["first_try"] = {"epochs": len(first), "validation_agreement": round(first[-1]["agreement"], 5)}
        if "test_accuracy" in first[-1]:
            found["first_try"]["test_accuracy"] = first[-1]["test_accuracy"]
    if last[-1]["agreement"] is not None:
        found["validation_agreement"] = round(last[-1]["agreement"], 5)
        best = max(last, key=lambda record: record["agreement"])
        if "test_accuracy" in best:
            found["test_accuracy_at_best_agreement"] = best["test_accuracy"]
    return found


def labels(model: CrowdClassifier, data: TrainingData, train: Annotations) -> dict[str, Any]:
    """How many labels of the training instances are right, how many the method claims, and the calibration error."""
    if data.y_train is None or POSTERIOR not in model.arrays_:
        return {}
    known = (data.y_train >= 0) & (train.labels_per_instance > 0)
    truth, posterior, votes = data.y_train[known], model.posterior_[known], train.votes()[known]
    return {
        "labels_right": round(100 * float((posterior.argmax(1) == truth).mean()), 3),
        "claimed": round(100 * float(posterior.max(1).mean()), 3),
        "calibration_error": round(calibration(posterior, truth).ece, 4),
        "majority_vote_right": round(100 * float((votes.argmax(1) == truth).mean()), 3),
    }


def votes_explained(model: CrowdClassifier, X: Any, train: Annotations, out: Annotations | None) -> dict[str, Any]:
    """How well held-out votes are predicted, by classes alone and through confusion matrices counted on the training votes.

    For every method the matrices come from the classifier's predictions, so that methods without matrices can compete.
    """
    if out is None or not len(out):
        return {}
    f = model.predict_proba(X)
    counts = MemoryCrowd.of(train).counts(f.astype(np.float64)).transpose(0, 2, 1)
    crowd = counts.sum(0) + 1
    crowd /= crowd.sum(1, keepdims=True)
    matrices = counts + 5 * crowd  # shrinks annotators with few votes towards the average
    matrices /= matrices.sum(2, keepdims=True)
    predicted = (f[out.instance] * matrices[out.annotator, :, out.label]).sum(1)
    return {
        "heldout_log_likelihood": round(float(np.log(np.maximum(predicted, 1e-12)).mean()), 5),
        "heldout_agreement": round(float((f.argmax(1)[out.instance] == out.label).mean()), 5),
        "heldout_votes": len(out),
    }


def parts(model: CrowdClassifier, data: TrainingData) -> dict[str, Any]:
    """Quality of distillation, annotator graph and matrices, measured against the simulated crowd."""
    found: dict[str, Any] = {}
    crowd = data.crowd
    if "distilled_instance" in model.arrays_:
        at, labels = model.arrays_["distilled_instance"], model.arrays_["distilled_class"]
        found["distilled"] = len(at)
        if crowd is not None:
            found["distilled_accuracy"] = round(100 * float((labels == crowd.y[at]).mean()), 3)
    if crowd is not None and "graph_positions" in model.arrays_:
        edges = model.annotator_graph_
        for when, one in (("before", edges.before), ("after", edges.after)):
            found[f"edge_precision_{when}"] = round(graph.edge_precision(one, crowd.groups).overall, 4)
            found[f"edge_recall_{when}"] = round(graph.neighbourhood_recall(one, crowd.groups), 4)
    if crowd is not None and model.transition_ is not None:
        at = np.arange(0, len(crowd.y), max(1, len(crowd.y) // _INSTANCES))
        who = np.arange(0, len(model.annotators_), max(1, len(model.annotators_) // _ANNOTATORS))
        estimate = model.transition(take_rows(data.X, at), model.annotators_[who])
        true = np.stack([crowd.transition(data.X, at, np.full(len(at), j)) for j in who], axis=1)
        row = crowd.y[at][:, None, None, None]
        difference = np.abs(estimate - true)
        found["transition_error"] = round(float(difference.mean()), 5)
        found["transition_row_error"] = round(float(np.take_along_axis(difference, row, axis=2).mean()), 5)
    return found


def times(model: CrowdClassifier, seconds: float) -> dict[str, Any]:
    """Seconds of the fit, of its stages (including shared ones and earlier processes), and of the median epoch."""
    epochs: dict[str, list[float]] = {}
    for record in model.history_:
        epochs.setdefault(record["stage"], []).append(record["seconds"])
    return {
        "seconds": round(seconds, 2),
        "stage_seconds": {name: round(sum(values), 3) for name, values in epochs.items()},
        "median_epoch_seconds": {name: round(float(np.median(values)), 4) for name, values in epochs.items()},
    }


def keep_map(cell: Cell, model: CrowdClassifier, data: TrainingData, path: Path) -> None:
    """Save the annotator map for figures, if the method has one."""
    if "graph_positions" not in model.arrays_:
        return
    edges = model.annotator_graph_
    groups = None if data.crowd is None else data.crowd.groups
    write_map(path, AnnotatorMap(f"{cell.column}, {cell.row}", edges.positions, edges.before, edges.after, groups))


@functools.cache
def versions() -> dict[str, Any]:
    """Versions of crowdwise (with a digest of its source), its libraries and Python, and the device."""
    import torch

    source = Path(crowdwise.__file__).parent
    code = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        code.update(path.read_bytes())
    return {
        "crowdwise": crowdwise.__version__,
        "code": code.hexdigest()[:12],
        **commit(source),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else f"cpu x{os.cpu_count()}",
    }


def commit(source: Path) -> dict[str, str]:
    """The last commit of the source, where it lies in a repository; elsewhere what CROWDWISE_COMMIT says."""
    if "CROWDWISE_COMMIT" in os.environ:
        return {"commit": os.environ["CROWDWISE_COMMIT"]}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(source), "rev-list", "-1", "HEAD", "--", "."]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
        return {"commit": found[:12]} if found else {}
    return {}


def _gpu() -> str | None:
    """What identifies the GPU in use, for every process of this machine."""
    import torch

    return str(torch.cuda.get_device_properties().uuid) if torch.cuda.is_available() else None


def _reset_peaks() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # no Linux: the peak of the process is reported
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_memory() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        fields: Mapping[str, str] = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        if "VmHWM" in fields:
            return int(fields["VmHWM"].split()[0]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
