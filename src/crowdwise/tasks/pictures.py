"""The pictures of a training run: which annotators and instances they show, and where they go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise import graph, report
from crowdwise.data.training import TrainingData
from crowdwise.encoders import Pictures, take_rows
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.methods.taidtm import TAIDTM
from crowdwise.report.annotators import largest_first

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANNOTATORS, INSTANCES = 3, 3  # shown as matrices


def save_pictures(model: CrowdClassifier, data: TrainingData, folder: Path) -> list[Path]:
    """The annotator graph and a few transition matrices of TAIDTM and its variants; nothing of other methods."""
    if not isinstance(model, TAIDTM):
        return []
    figures: dict[str, Figure] = {}
    groups = None if data.crowd is None else data.crowd.groups
    if model.transfer == "graph":
        found, kind = model.annotator_graph_, "true"
        if groups is None:
            groups, kind = largest_first(graph.found_groups(found.after)), "found"
        purified = model.purify and model.neighbours(len(model.annotators_)) > 1
        figures["annotator-graph.png"] = report.annotator_graph(
            found.before,
            found.after,
            found.positions,
            groups,
            group_names=[f"{kind} group {number + 1}" for number in range(len(np.unique(groups)))],
            judge=kind == "true",
            skipped=found.skipped.tolist(),
            titles=("before purifying", "after purifying")
            if purified
            else ("nearest neighbours", "as used, not purified"),
        )
    figures["transition-matrices.png"] = _matrices(model, data, groups)
    return [report.save_picture(figure, folder / name) for name, figure in figures.items()]


def _matrices(model: TAIDTM, data: TrainingData, groups: npt.NDArray[Any] | None) -> Figure:
    annotators, instances = _annotators(data, groups), _instances(model)
    X, pictured = _rows(data.X, instances)
    estimated = model.transition(X, model.annotators_[annotators])  # (instances, annotators, C, C)
    crowd, columns = data.crowd, []
    for position, annotator in enumerate(annotators):
        member = "" if groups is None else f" (group {np.searchsorted(np.unique(groups), groups[annotator]) + 1})"
        true = None if crowd is None else crowd.transition(data.X, instances, [annotator] * len(instances))
        columns.append(
            report.Matrices(f"annotator {model.annotators_[annotator]}{member}", estimated[:, position], true)
        )
    return report.transition_matrices(
        columns,
        classes=model.classes_.tolist(),
        instances=[f"instance {data.annotations.instances[instance]}" for instance in instances],
        images=pictured,
        true_classes=None if crowd is None else crowd.y[instances].tolist(),
    )


def _rows(X: Any, rows: list[int]) -> tuple[Any, list[Any] | None]:
    """Some instances, and what people see of them where that is pictures."""
    if isinstance(X, Pictures):
        return X[rows], [X[row] for row in rows]
    if isinstance(X, dict) or np.ndim(X[rows[0]]) == 0:
        return take_rows(X, np.array(rows)), None
    found = [X[row] for row in rows]
    pixels = np.stack([row[0] if isinstance(row, tuple) else row for row in found])  # a data set gives (pixels, number)
    return pixels, list(pixels) if pixels.ndim >= 3 else None


def _annotators(data: TrainingData, groups: npt.NDArray[Any] | None) -> list[int]:
    """The busiest annotator of each of the first groups, then the busiest of all."""
    busiest = np.argsort(-data.annotations.labels_per_annotator, kind="stable")
    chosen = [] if groups is None else [int(busiest[groups[busiest] == group][0]) for group in np.unique(groups)]
    others = [annotator for annotator in busiest.tolist() if annotator not in chosen]
    return [*chosen, *others][:ANNOTATORS]


def _instances(model: TAIDTM) -> list[int]:
    """Distilled instances of different classes: that is where the matrices were learned."""
    instances, classes = model.arrays_["distilled_instance"], model.arrays_["distilled_class"]
    first = np.unique(classes, return_index=True)[1]
    some = np.linspace(0, len(first) - 1, min(INSTANCES, len(first))).astype(int)
    chosen: list[int] = instances[first[some]].tolist()
    return chosen
