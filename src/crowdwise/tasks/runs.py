"""What run directories hold. Nothing here needs torch, so that a page about labels does not, either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from crowdwise.errors import ModelFileError
from crowdwise.storage.documents import json_value, read_json

RUN, RESULTS, METRICS = "run.json", "results.json", "metrics.jsonl"
LABELS = "labels.csv"  # of the training instances
INVOCATION = "invocation.json"  # beside run.json in runs of earlier versions
_EPOCH: dict[str, type] = {"stage": str, "index": int, "epoch": int, "loss": float, "seconds": float}


@dataclass(frozen=True)
class StageSummary:
    """What a history says of one stage: its last loss and agreement, and the seconds of all epochs."""

    name: str
    epochs: int
    loss: float
    agreement: float | None
    seconds: float


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (path / RUN).exists() or (path / INVOCATION).exists()


def finished(path: Path) -> bool:
    return (path / "model" / "model.json").exists()


def resumable(path: Path) -> bool:
    """Whether a run can go on by itself: its folder says where the data come from."""
    return (path / INVOCATION).exists() or read_run(path).get("source") is not None


def of_earlier_version(path: Path) -> bool:
    """Whether a run was begun by a version that took data in the order of their files, and noted less of them."""
    return (path / RUN).exists() and "content" not in read_run(path)["data"]


def read_run(path: Path) -> dict[str, Any]:
    """``run.json`` of a folder; before training began, earlier versions left ``invocation.json`` alone."""
    file = path / (RUN if (path / RUN).exists() else INVOCATION)
    run = read_json(file)
    known = isinstance(run, dict) and isinstance(run.get("method"), str)
    if not known or not all(isinstance(run.get(key), dict) for key in ("parameters", "data")):
        raise ModelFileError(f"{file} is damaged: method, parameters or data are missing")
    found: dict[str, Any] = run
    return found


def read_history(path: Path) -> list[dict[str, Any]]:
    """The epochs that a run has finished; a line that was cut off by a crash, and what follows it, does not count."""
    records: list[dict[str, Any]] = []
    log = path / METRICS
    for line in log.read_bytes().splitlines() if log.exists() else []:
        try:
            record = json_value(line)
            known = {key: kind(record[key]) for key, kind in _EPOCH.items()}
            known["agreement"] = None if record["agreement"] is None else float(record["agreement"])
        except (ValueError, KeyError, TypeError, OverflowError):
            break
        records.append(record | known)
    return records


def stages(history: Sequence[Mapping[str, Any]]) -> list[StageSummary]:
    """The stages of a history."""
    found = []
    for _, records in groupby(history, lambda record: record["index"]):
        epochs = list(records)
        last, seconds = epochs[-1], sum(record["seconds"] for record in epochs)
        found.append(StageSummary(last["stage"], len(epochs), last["loss"], last["agreement"], seconds))
    return found


def result_facts(results: Mapping[str, Any]) -> dict[str, str | None]:
    """``results.json`` in words."""
    test, gold, agreement = (results.get(key) for key in ("test_accuracy", "gold_accuracy", "agreement"))
    return {
        "test accuracy": None if test is None else f"{100 * test:.2f} %",
        "accuracy on gold": None if gold is None else _on_gold(results),
        "validation agreement": None if agreement is None else f"{agreement:.3f}",
        "labels": results.get("labels"),
        "right": results.get("right"),
        "classifier": results.get("classifier"),
        "warning": " ".join(results.get("warnings", ())) or None,
        "training": f"{results['seconds']:.1f} s",
    }


def _on_gold(results: Mapping[str, Any]) -> str:
    """How often the classifier is right on instances with gold, with a 95 % interval where the run notes one."""
    line = f"{100 * results['gold_accuracy']:.2f} % of {results['gold_instances']:,} instances"
    if "gold_low" not in results:  # runs of earlier versions
        return line
    return f"{line}, between {100 * results['gold_low']:.1f} and {100 * results['gold_high']:.1f}"
