"""`crowdwise simulate`: a crowd with known truth, as tables."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise import datasets
from crowdwise import simulate as processes
from crowdwise.cli._console import say
from crowdwise.cli._settings import refuse_unknown
from crowdwise.errors import ConfigError, DataError
from crowdwise.material import named
from crowdwise.readers import write_table

_PAIRS = ("labels_per_annotator", "pairs")  # keywords of every process, see simulate.draw_pairs


def write_crowd(
    name: str,
    process: str,
    out: Path,
    truth: Path | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    download: bool = False,
) -> None:
    """Simulate a crowd for a data set's training instances, and write it and, with ``truth``, what is true of it."""
    for path in filter(None, (out, truth)):
        path.parent.mkdir(parents=True, exist_ok=True)
    data = datasets.load(name, download=download)
    crowd = make_crowd(data, process, options, settings)
    annotations = named(crowd.annotations, data.class_names)
    write_table(annotations.to_frame(), out)
    wrong = float(np.mean(annotations.label != crowd.y[annotations.instance]))
    say(
        f"{out}: {len(annotations):,} labels of {annotations.n_instances:,} instances by {annotations.n_annotators:,} "
        f"annotators, {100 * wrong:.1f} % of them wrong"
    )
    if truth is not None:
        write_table(truth_table(crowd, data.class_names), truth)
        say(f"{truth}: the true class of each instance, the group of each annotator")


def make_crowd(
    data: datasets.Dataset, process: str, options: Mapping[str, Any], settings: Mapping[str, Any]
) -> processes.Crowd:
    """A crowd by the name of its process; ``options`` are common to all processes, ``settings`` are of this one."""
    if data.X_train is None or data.y_train is None:
        raise DataError(f"data set {data.name!r} has no instances with known classes: no crowd can be simulated for it")
    function = getattr(processes, process.replace("-", "_"))
    known = set(inspect.signature(function).parameters) - {"X", "y", "n_classes", "random_state"} | set(_PAIRS)
    refuse_unknown(f"--set, process {process!r}", settings, known)
    common = dict(options)
    groups, noise_rate = common.pop("n_groups"), common.pop("noise_rate")
    if process == "aidn":
        groups = min(3, common["n_annotators"]) if groups is None else groups
        common |= {"noise_rate": noise_rate, "n_groups": groups, "n_classes": data.n_classes}
        return processes.aidn(data.X_train, data.y_train, **common | dict(settings))
    if groups is not None:
        raise ConfigError(f"--groups goes with --process aidn only, not with {process!r}")
    common["n_classes"] = data.n_classes
    if process == "one-coin":
        common["accuracies"] = np.full(common.pop("n_annotators"), 1 - noise_rate)
    else:
        common["accuracy"] = 1 - noise_rate
    crowd: processes.Crowd = function(data.y_train, **common | dict(settings))
    return crowd


def truth_table(crowd: processes.Crowd, class_names: tuple[str, ...]) -> pa.Table:
    """One row for each instance (its class) and each annotator (its group)."""
    n, size = len(crowd.y), len(crowd.groups)
    return pa.table(
        {
            "kind": ["instance"] * n + ["annotator"] * size,
            "id": np.concatenate([np.arange(n), np.arange(size)]),
            "truth": [class_names[code] for code in crowd.y.tolist()] + [str(group) for group in crowd.groups.tolist()],
        }
    )
