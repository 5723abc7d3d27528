"""A crowd with known truth for the instances of a data set, as tables."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise import datasets
from crowdwise import simulate as processes
from crowdwise.annotations import Annotations
from crowdwise.data.training import named, with_truth
from crowdwise.errors import ConfigError, spelled
from crowdwise.readers import write_table
from crowdwise.simulate import SimulatedCrowd
from crowdwise.tasks.parameters import refuse_unknown

_PAIRS = ("labels_per_annotator", "pairs")  # keywords of every process, see simulate.draw_pairs


@dataclass(frozen=True)
class Simulated:
    """The crowd, and where it was written."""

    annotations: Annotations
    wrong: float
    """Share of the labels that are wrong."""
    out: Path
    truth: Path | None

    def as_json(self) -> dict[str, Any]:
        made = self.annotations
        sizes = {"annotations": len(made), "instances": made.n_instances, "annotators": made.n_annotators}
        return {**sizes, "wrong": self.wrong, "out": self.out, "truth": self.truth}


def simulate(
    dataset: str,
    out: str | Path,
    *,
    process: str = "aidn",
    annotators: int = 60,
    groups: int | None = None,
    labels_per_instance: float = 3.0,
    noise_rate: float = 0.4,
    seed: int = 0,
    truth: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    download: bool = False,
) -> Simulated:
    """Write labels of a data set's training instances, and to ``truth`` what is true of instances and annotators.

    ``settings`` are further arguments of the process, which is a function of `crowdwise.simulate`.
    """
    out, truth = Path(out), None if truth is None else Path(truth)
    for path in filter(None, (out, truth)):
        path.parent.mkdir(parents=True, exist_ok=True)
    data = datasets.load(dataset, download=download)
    X, y = with_truth(data)
    function = getattr(processes, process.replace("-", "_"))
    known = set(inspect.signature(function).parameters) - {"X", "y", "n_classes", "random_state"} | set(_PAIRS)
    refuse_unknown(f"process {process!r}", settings or {}, known)
    given: dict[str, Any] = {"n_annotators": annotators, "accuracy": 1 - noise_rate}
    if process == "aidn":
        groups = min(3, annotators) if groups is None else groups
        given = {"X": X, "n_annotators": annotators, "n_groups": groups, "noise_rate": noise_rate}
    elif groups is not None:
        raise ConfigError(
            f"{spelled('groups')} goes with {spelled('process', 'aidn')} only, not with {process!r}", parameter="groups"
        )
    elif process == "one-coin":
        given = {"accuracies": np.full(annotators, 1 - noise_rate)}
    given |= {"labels_per_instance": labels_per_instance, "random_state": seed, "n_classes": data.n_classes}
    crowd: SimulatedCrowd = function(y=y, **given | dict(settings or {}))
    annotations = named(crowd.annotations, data.class_names)
    write_table(annotations.to_frame(), out)
    if truth is not None:
        write_table(_truth_table(crowd, data.class_names), truth)
    wrong = float(np.mean(annotations.label != crowd.y[annotations.instance]))
    return Simulated(annotations, wrong, out, truth)


def _truth_table(crowd: SimulatedCrowd, class_names: tuple[str, ...]) -> pa.Table:
    """One row for each instance (its class) and each annotator (its group)."""
    n, size = len(crowd.y), len(crowd.groups)
    return pa.table(
        {
            "kind": ["instance"] * n + ["annotator"] * size,
            "id": np.concatenate([np.arange(n), np.arange(size)]),
            "truth": [class_names[code] for code in crowd.y.tolist()] + [str(group) for group in crowd.groups.tolist()],
        }
    )
