"""The annotators of a report: a row for each, their matrices, who errs alike, and change over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crowdwise import graph
from crowdwise.data.types import Floats, Ints
from crowdwise.figures import Person, annotator_profiles, people, verdicts
from crowdwise.readers import MODEL
from crowdwise.report.analysis import Analysis
from crowdwise.report.limits import MATRIX_NUMBERS, MOST_ANNOTATORS, MOST_EDGES, number

if TYPE_CHECKING:
    from crowdwise.methods.core.base import CrowdClassifier

NEIGHBOURS = 5  # similar annotators to name
SMALLEST_MAP = 3  # annotators
MATRICES_PER_ANNOTATOR = 4  # instances at which T^j(x) is shown
CURVE_POINTS = 10  # over time
CURVE_LABELS = 20  # labels with times that such a curve needs
FAINT = 0.1  # edges of a purified graph up to this weight do not count
COLUMNS = {  # of `quality.annotators` -> of a row
    "num_examples_labeled": "labels",
    "annotator_quality": "skill",
    "annotator_quality_low": "low",
    "annotator_quality_high": "high",
    "agreement_with_consensus": "agreement",
    "worst_class": "worst",
    "worst_class_quality": "worstSkill",
    "confused_class": "confused",
    "confused_with": "with",
    "spammer_score": "spammer",
    "mean_absolute_error": "off",
    "bias": "bias",
    "overused_class": "overused",
    "seconds_per_label": "seconds",
    "drift": "drift",
    "drift_low": "driftLow",
    "drift_high": "driftHigh",
}
CLASSES = ("worst", "confused", "with", "overused")  # ids, which may be numbers


@dataclass(frozen=True, eq=False)
class ShownAnnotators:
    """The annotators on the page, and everything the page says about them."""

    shown: Ints  # codes, (K,); the busiest first
    total: int
    rows: list[dict[str, Any]]
    chart: dict[str, Any] | None
    """The map: positions, groups and edges; None for fewer than three annotators."""
    people: list[Person]
    """Skills and verdicts of everybody; empty where nobody can be judged."""


def profiles(analysis: Analysis) -> ShownAnnotators:
    """Profiles of the busiest annotators, at most `MOST_ANNOTATORS` of them."""
    source, crowd = analysis.source, analysis.source.annotations
    if source.profiles is not None:
        rows = source.profiles.slice(0, MOST_ANNOTATORS).to_pylist()
        earlier = [_row(row, str(row["annotator"])) for row in rows]
        return ShownAnnotators(np.empty(0, np.int64), source.profiles.num_rows, earlier, None, [])
    shown = np.argsort(-crowd.labels_per_annotator, kind="stable")[:MOST_ANNOTATORS]
    shown = shown[crowd.labels_per_annotator[shown] > 0]
    fits = analysis.fitted is not None and analysis.confusion is not None
    table = annotator_profiles(
        crowd,
        analysis.fitted if fits else analysis.judging,
        analysis.evidence,
        confusion=analysis.confusion,
        timestamps=source.timestamps,
        durations=source.durations,
        gold=None if analysis.comparable else source.gold,
        ordered=source.ordered,
    )
    profiles = table.take(shown).to_pylist()
    rows = [_row(row, str(row["annotator"])) for row in profiles]
    for row, code in zip(rows, shown.tolist() if source.kinds is not None else [], strict=False):
        if source.kinds[code] == MODEL:  # type: ignore[index]
            row["kind"] = MODEL
    if not analysis.comparable:  # neither skills nor matrices: only what was measured
        return ShownAnnotators(shown, int(np.count_nonzero(crowd.labels_per_annotator)), rows, None, [])
    models = {str(name) for name in source.models}
    judged = verdicts(people(table.to_pylist(), models), crowd.n_classes)
    verdict = {person.name: person.verdict for person in judged}
    for row in rows:
        if verdict.get(row["name"]) is not None:
            row["verdict"] = str(verdict[row["name"]])
    _add_curves(rows, analysis, shown)
    chart = None
    if len(shown) and crowd.n_classes:
        matrices = analysis.matrices(shown)
        _add_matrices(rows, matrices)
        _add_matrices_by_item(rows, analysis, shown)
        weight = crowd.labels_per_annotator[shown].astype(float)
        chart = _map(rows, shown, matrices, weight, source.model)
    return ShownAnnotators(shown, int(np.count_nonzero(crowd.labels_per_annotator)), rows, chart, judged)


def profiles_of_model(model: CrowdClassifier) -> ShownAnnotators:
    """What a model alone knows about its annotators: skill, matrices that do not depend on the instance, the graph."""
    from crowdwise.networks.transition import ConstantTransition

    total = len(model.annotators_)
    shown = np.arange(min(total, MOST_ANNOTATORS))
    rows: list[dict[str, Any]] = [{"name": str(name)} for name in model.annotators_[shown].tolist()]
    for row, skill in zip(rows, model.skill_[shown].tolist(), strict=True):
        if number(skill) is not None:
            row["skill"] = number(skill)
    matrices = None
    if isinstance(model.transition_, ConstantTransition):
        constant, size = model.transition_.matrices.detach().cpu().double().numpy(), len(model.classes_)
        matrices = np.broadcast_to(constant, (total, size, size))[shown]
        _add_matrices(rows, matrices)
    return ShownAnnotators(shown, total, rows, _map(rows, shown, matrices, np.ones(len(shown)), model), [])


def _row(values: dict[str, Any], name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name}
    if values.get("annotator_quality") is None:  # where nothing can be compared: measured by gold, or not at all
        values = values | {
            f"annotator_quality{end}": values.get(f"gold_accuracy{end}") for end in ("", "_low", "_high")
        }
        values["agreement_with_consensus"] = None
    for column, key in COLUMNS.items():
        value = values.get(column)
        if value is not None and key in CLASSES:
            row[key] = str(value)
        elif value is not None:
            row[key] = number(value) if isinstance(value, float) else value
    return row


def whole_percent(matrices: npt.NDArray[Any]) -> list[list[int]]:
    """Matrices (K, C, C) as flat lists of whole percentages."""
    flat: list[list[int]] = np.rint(100 * matrices).astype(int).reshape(len(matrices), -1).tolist()
    return flat


def _add_matrices(rows: Sequence[dict[str, Any]], matrices: Floats) -> None:
    """The matrices of as many annotators as fit into the page."""
    fitting = max(1, MATRIX_NUMBERS // max(matrices.shape[1] ** 2, 1))
    for row, matrix in zip(rows, whole_percent(matrices[:fitting]), strict=False):
        row["matrix"] = matrix


def _add_matrices_by_item(rows: Sequence[dict[str, Any]], analysis: Analysis, shown: Ints) -> None:
    """T^j(x) at instances that annotator j labelled, from the one most likely wrong to the one most likely right."""
    transitions, crowd, right = analysis.transitions, analysis.source.annotations, analysis.right
    if transitions is None or not transitions.varies or right is None:
        return
    fitting = max(0, MATRIX_NUMBERS // (crowd.n_classes**2 * MATRICES_PER_ANNOTATOR))
    for row, annotator in zip(rows[:fitting], shown.tolist(), strict=False):
        own = crowd.by_annotator[annotator]
        own = own[np.argsort(right[own], kind="stable")]
        chosen = own[np.unique(np.linspace(0, len(own) - 1, min(MATRICES_PER_ANNOTATOR, len(own))).astype(int))]
        instance = crowd.instance[chosen].astype(np.int64)
        matrices = whole_percent(transitions.pairs(instance, np.full(len(chosen), annotator)))
        row["moments"] = [
            {"item": str(name), "right": number(chance), "matrix": matrix}
            for name, chance, matrix in zip(crowd.instances[instance], right[chosen].tolist(), matrices, strict=True)
        ]


def _add_curves(rows: Sequence[dict[str, Any]], analysis: Analysis, shown: Ints) -> None:
    """Mean probability that an annotator's labels are right, from the first to the last."""
    source, crowd = analysis.source, analysis.source.annotations
    if source.timestamps is None:
        return
    right = analysis.judging[crowd.instance, crowd.label]
    for row, annotator in zip(rows, shown.tolist(), strict=True):
        own = crowd.by_annotator[annotator]
        own = own[~np.isnan(source.timestamps[own])]
        if len(own) < CURVE_LABELS:
            continue
        own = own[np.argsort(source.timestamps[own], kind="stable")]
        parts = np.array_split(own, min(CURVE_POINTS, len(own) // 5))
        row["curve"] = [
            [int(at), number(right[part].mean())]
            for at, part in zip(np.cumsum([len(part) for part in parts]), parts, strict=True)
        ]


def _map(
    rows: Sequence[dict[str, Any]], shown: Ints, matrices: Floats | None, weight: Floats, model: CrowdClassifier | None
) -> dict[str, Any] | None:
    """Positions, groups, and edges before and after purifying, from a model's heads or else from matrices (K, C, C).

    Matrices are weighted by ``weight`` (K,). Adds ``group`` and ``similar`` to the rows.
    """
    heads = model is not None and "graph_positions" in model.arrays_
    if len(rows) < SMALLEST_MAP or (matrices is None and not heads):
        return None
    if heads:
        found = model.annotator_graph_  # type: ignore[union-attr]
        positions = found.positions[shown]
        before, after = (sparse.csr_array(each)[shown][:, shown] for each in (found.before, found.after))
        groups = graph.found_groups(found.after)[shown]
    else:
        assert matrices is not None
        flat = matrices.reshape(len(matrices), -1)
        average = np.average(flat, axis=0, weights=weight)
        positions = graph.pca(flat)
        k = int(np.clip(len(shown) // 8, 2, 10))
        before = graph.knn_from_heads(flat, k, similarity="delta-cosine", global_head=average)
        after = graph.purify(before)
        groups = graph.found_groups(after, max_groups=6)
    groups = largest_first(groups)
    for place, row in enumerate(rows):
        row["group"] = int(groups[place])
        row["similar"] = _strongest(after, before, place)
    edges, counts = zip(_edges(before), _edges(after), strict=True)
    return {
        "heads": heads,
        "x": [number(value, 5) for value in positions[:, 0].tolist()],
        "y": [number(value, 5) for value in positions[:, 1].tolist()],
        "before": edges[0],
        "after": edges[1],
        "counts": counts,
    }


def _strongest(after: Any, before: Any, place: int) -> list[int]:
    """The nearest annotators by weight in the purified graph; ties go to those that were neighbours before."""
    weight = after[[place]].toarray()[0] + 1e-6 * before[[place]].toarray()[0]
    weight[place] = 0
    order = np.argsort(-weight, kind="stable")[:NEIGHBOURS]
    nearest: list[int] = order[weight[order] > FAINT].tolist()
    return nearest


def _edges(adjacency: Any) -> tuple[list[list[Any]], int]:
    """[from, to, weight] of the strongest edges, each pair once; and how many there are."""
    matrix = sparse.csr_array(adjacency)
    pairs = sparse.coo_array(sparse.triu(matrix.maximum(matrix.T), k=1))
    kept = np.flatnonzero(pairs.data > FAINT)
    first = kept[np.argsort(-pairs.data[kept], kind="stable")][:MOST_EDGES]
    entries = zip(pairs.row[first].tolist(), pairs.col[first].tolist(), pairs.data[first].tolist(), strict=True)
    return [[a, b, number(weight)] for a, b, weight in entries], len(kept)


def largest_first(groups: npt.NDArray[Any]) -> Ints:
    """The same groups, numbered by size."""
    values, codes = np.unique(groups, return_inverse=True)
    rank = np.argsort(np.argsort(-np.bincount(codes, minlength=len(values)), kind="stable"))
    return np.asarray(rank[codes], np.int64)
