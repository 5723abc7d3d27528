"""Pictures of results as matplotlib figures; no global state is read or changed.

>>> figure = accuracy_chart({"CE": 0.8, "TAIDTM": 0.9}, highlight="TAIDTM")
>>> [text.get_text() for text in figure.axes[0].texts]
['90.0 %', '80.0 %']
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdwise.errors import DataError
from crowdwise.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from crowdwise.graph.purify import Graph

# Okabe and Ito's colours, which people with colour blindness can tell apart, in an order that begins far apart
GROUP_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#4b5563")
RIGHT, WRONG = "#9aa5b1", "#d62728"  # of edges
INK, MUTED, BAR = "#222222", "#6b7280", "#b8c4d0"
MOST_EDGES = 10_000  # to draw; more would blur and take long
MOST_GROUPS = len(GROUP_COLOURS)


def annotator_graph(
    before: Graph,
    after: Graph,
    positions: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    group_names: Sequence[str] | None = None,
    judge: bool = True,
    skipped: Sequence[int] = (),
    titles: tuple[str, str] = ("before purifying", "after purifying"),
    threshold: float = 0.1,
) -> Figure:
    """The annotator graph before and after purifying, side by side: points are annotators, lines are neighbours.

    Args:
        before: kNN graph (R, R).
        after: purified graph (R, R), weighted; edges above ``threshold`` are drawn, self loops never.
        positions: (R, 2), principal components of what sets each annotator's head apart.
        groups: (R,) group of each annotator, which colours the points; the first six have a colour of their own.
        group_names: names of the groups, in ascending order of their numbers.
        judge: colour edges by whether they stay inside a group; for true ``groups``.
        skipped: annotators with too few examples for a head of their own, drawn hollow.
        titles: of the two graphs.
        threshold: entries up to this do not count as edges.

    >>> ring = np.roll(np.eye(6), 1, axis=1)
    >>> figure = annotator_graph(ring, ring, np.random.default_rng(0).normal(size=(6, 2)), [0, 0, 0, 1, 1, 1])
    >>> figure.axes[0].get_title().splitlines()[1]
    '6 edges, 66.7 % inside a group'
    """
    points = np.asarray(positions, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise DataError(f"positions must have shape (annotators, 2), not {points.shape}")
    membership, names = np.zeros(len(points), dtype=np.int64), ["annotator"]
    if groups is not None:
        values, membership = np.unique(np.asarray(groups), return_inverse=True)
        names = list(group_names) if group_names is not None else [f"group {value}" for value in values.tolist()]
    judged = judge and groups is not None
    colours = np.array(GROUP_COLOURS)[np.minimum(membership, MOST_GROUPS - 1)]

    figure = new_figure(11, 5.6)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    _draw_graph(left, titles[0], before, points, membership if judged else None, threshold)
    _draw_graph(right, titles[1], after, points, membership if judged else None, threshold)
    hollow = np.isin(np.arange(len(points)), list(skipped))
    size = float(np.clip(6000 / max(len(points), 1), 8, 52))
    for axes in (left, right):
        axes.scatter(*points[~hollow].T, s=size, c=colours[~hollow], edgecolors="white", linewidths=0.8, zorder=3)
        axes.scatter(
            *points[hollow].T, s=size, facecolors="white", edgecolors=colours[hollow], linewidths=1.4, zorder=3
        )

    entries = _graph_legend(names, bool(hollow.any()), judged)
    figure.suptitle("Annotators who err alike", fontsize=14, fontweight="bold", color=INK)
    figure.legend(*zip(*entries, strict=True), loc="outside lower center", ncols=min(len(entries), 5), frameon=False)
    return figure


def edges_of(graph: Graph, groups: NDArray[np.int64], threshold: float) -> tuple[NDArray[Any], ...]:
    """Entries of a graph (R, R) above ``threshold``, without self loops, of annotators in ``groups`` (R,).

    Returns start, end, weight, and whether the edge joins different groups.
    """
    from crowdwise.graph.purify import as_graph

    matrix = as_graph(graph).tocoo()
    kept = (matrix.data > threshold) & (matrix.row != matrix.col)
    start, end = matrix.row[kept], matrix.col[kept]
    return start, end, matrix.data[kept], groups[start] != groups[end]


def _graph_legend(names: list[str], hollow: bool, judged: bool) -> list[tuple[Any, str]]:
    """Marks and what they mean: points by group, annotators without a head, edges."""
    from matplotlib.lines import Line2D

    def dot(**style: Any) -> Line2D:
        return Line2D([], [], linestyle="", marker="o", markersize=8, **style)

    shown = names if len(names) <= MOST_GROUPS else [*names[: MOST_GROUPS - 1], "further groups"]
    entries = [
        (dot(color=colour, markeredgecolor="white"), name) for colour, name in zip(GROUP_COLOURS, shown, strict=False)
    ]
    if hollow:
        entries.append((dot(markerfacecolor="white", markeredgecolor=INK), "too few examples"))
    kinds = [(RIGHT, "edge inside a group"), (WRONG, "edge between groups")] if judged else [(RIGHT, "edge")]
    return entries + [(Line2D([], [], color=colour, linewidth=2), kind) for colour, kind in kinds]


@dataclass(frozen=True)
class Matrices:
    """T of one annotator at several instances."""

    title: str
    estimated: NDArray[Any]
    """(instances, C, C)."""
    true: NDArray[Any] | None = None


def transition_matrices(
    annotators: Sequence[Matrices],
    *,
    classes: Sequence[Any],
    instances: Sequence[str],
    images: Sequence[NDArray[Any] | None] | None = None,
    true_classes: Sequence[int] | None = None,
) -> Figure:
    """Transition matrices T[p, q] = P(label q | true class p): a row per instance, a column per annotator.

    Where the true matrices are known, each stands to the right of its estimate.

    Args:
        annotators: whose matrices, at the same instances.
        classes: names of the C classes.
        instances: a title for each instance.
        images: the instances themselves, (height, width[, 3]), drawn at the left; None for what is no image.
        true_classes: true class of each instance: its row, the only one that can be observed there, is framed.

    >>> T = np.full((2, 3, 3), 1 / 3)
    >>> figure = transition_matrices([Matrices("ann", T, T)], classes="abc", instances=["first", "second"])
    >>> len(figure.axes)  # two instances, estimated and true, and the colour bar
    5
    """
    pictured = images is not None and any(image is not None for image in images)
    panels = [
        (one, kind)
        for one in annotators
        for kind in ("estimated", "true")
        if kind == "estimated" or one.true is not None
    ]
    columns = len(panels) + pictured
    figure = new_figure(1.9 * columns + 0.9, 2.0 * len(instances) + 1.2)
    grid = figure.subplots(len(instances), columns, squeeze=False, width_ratios=[0.7] * pictured + [1.0] * len(panels))
    drawn: Any = None
    for row, instance in enumerate(instances):
        if pictured:
            _draw_image(grid[row, 0], images[row] if images is not None else None, instance)
        for column, (one, kind) in enumerate(panels, start=int(pictured)):
            axes = grid[row, column]
            matrix = one.estimated[row] if kind == "estimated" or one.true is None else one.true[row]
            drawn = axes.imshow(matrix, cmap="Blues", vmin=0.0, vmax=1.0)
            _label_matrix(axes, classes, bottom=row == len(instances) - 1, left=column == int(pictured))
            if true_classes is not None:
                _frame_row(axes, true_classes[row], len(classes))
            if row == 0:
                axes.set_title(f"{one.title}\n{kind}" if one.true is not None else one.title, fontsize=9.5, color=INK)
            if not pictured and column == 0:
                axes.set_ylabel(f"{instance}\ntrue class", fontsize=8.5, color=INK)
    figure.suptitle("How annotators err, instance by instance", fontsize=14, fontweight="bold", color=INK)
    if true_classes is not None:
        note = "framed: the row of the instance's true class, the only one its labels inform"
        figure.supxlabel(note, fontsize=9, color=MUTED)
    bar = figure.colorbar(drawn, ax=list(grid[:, -1]), fraction=0.08, aspect=30)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2, colors=MUTED)
    bar.set_label("P(label | true class)", fontsize=9, color=INK)
    return figure


def accuracy_chart(
    accuracies: Mapping[str, float], *, highlight: str | None = None, title: str = "Test accuracy"
) -> Figure:
    """Accuracies (0..1) as horizontal bars, the first on top, each with its value."""
    names, values = list(accuracies), [100 * value for value in accuracies.values()]
    figure = new_figure(7, 1.2 + 0.55 * len(names))
    axes = figure.subplots()
    colours = [GROUP_COLOURS[0] if name == highlight else BAR for name in names]
    at = np.arange(len(names))[::-1]
    axes.barh(at, values, color=colours, height=0.62)
    for position, value, name in sorted(zip(at, values, names, strict=True)):
        weight = "bold" if name == highlight else "normal"
        axes.text(
            value + 0.8, position, f"{value:.1f} %", va="center", ha="left", fontsize=10, fontweight=weight, color=INK
        )
    axes.set_yticks(at, names, fontsize=10, color=INK)
    axes.set_xlim(0, 112)
    axes.set_xticks(range(0, 101, 20))
    axes.tick_params(axis="x", labelsize=8, colors=MUTED, length=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK)
    return figure


def new_figure(width: float, height: float) -> Figure:
    """A figure independent of pyplot; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save_picture(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> Path:
    """Write a picture atomically, .svg and .pdf by its suffix, else as PNG; the same figure gives the same bytes."""
    import matplotlib

    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "crowdwise"}):
        figure.savefig(temporary, format=kind if kind in undated else "png", dpi=dpi, metadata=undated.get(kind))
    return path


def _draw_graph(
    axes: Axes, title: str, graph: Graph, points: NDArray[Any], membership: NDArray[Any] | None, threshold: float
) -> None:
    from matplotlib.collections import LineCollection

    from crowdwise.graph.purify import as_graph

    if as_graph(graph).shape != (len(points), len(points)):
        raise DataError(
            f"there are positions of {len(points)} annotators, but the graph has shape {as_graph(graph).shape}"
        )
    grouped = membership if membership is not None else np.zeros(len(points), dtype=np.int64)
    start, end, weight, wrong = edges_of(graph, grouped, threshold)
    count = f"{len(start):,} edges"
    if membership is not None and len(start):
        count += f", {100 * np.mean(~wrong):.1f} % inside a group"
    if len(start) > MOST_EDGES:
        some = np.random.default_rng(0).choice(len(start), MOST_EDGES, replace=False)
        start, end, weight, wrong = start[some], end[some], weight[some], wrong[some]
        count += f" ({MOST_EDGES:,} drawn)"
    if len(start):
        opacity = np.clip(45 / len(start) ** 0.75, 0.02, 0.6) * weight / weight.max()
        lines = np.stack([points[start], points[end]], axis=1)
        order = np.argsort(wrong, kind="stable")  # the wrong ones on top
        colours = np.where(wrong[order], WRONG, RIGHT).tolist()
        axes.add_collection(
            LineCollection(list(lines[order]), colors=colours, linewidths=0.9, alpha=opacity[order], zorder=1)
        )
    axes.set_title(f"{title}\n{count}", fontsize=11, color=INK)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel("1st principal component", fontsize=9, color=MUTED)
    axes.set_ylabel("2nd principal component", fontsize=9, color=MUTED)
    axes.spines[:].set_color("#d1d5db")
    axes.margins(0.08)


def _draw_image(axes: Axes, image: NDArray[Any] | None, title: str) -> None:
    axes.set_axis_off()
    axes.set_title(title, fontsize=9.5, color=INK)
    if image is not None:
        axes.imshow(image.squeeze(), cmap="gray_r" if image.squeeze().ndim == 2 else None)


def _label_matrix(axes: Axes, classes: Sequence[Any], *, bottom: bool, left: bool) -> None:
    n_classes = len(classes)
    names = [str(name) for name in classes]
    named = n_classes <= 12
    axes.set_xticks(range(n_classes) if named else [], names if named and bottom else [], fontsize=7, color=MUTED)
    axes.set_yticks(range(n_classes) if named else [], names if named and left else [], fontsize=7, color=MUTED)
    if named and max(map(len, names)) > 2:
        axes.tick_params(axis="x", labelrotation=90)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_color("#d1d5db")
    if bottom:
        axes.set_xlabel("label", fontsize=8.5, color=INK)
    if left:
        axes.set_ylabel("true class", fontsize=8.5, color=INK)


def _frame_row(axes: Axes, row: int, n_classes: int) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle((-0.5, row - 0.5), n_classes, 1, fill=False, edgecolor=GROUP_COLOURS[1], linewidth=1.6, clip_on=False)
    )
