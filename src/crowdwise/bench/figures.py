"""Figures from records: accuracy against a setting, and maps of annotators before and after purifying.

>>> def run(row, k, seed, accuracy):
...     return {"experiment": "mine", "column": f"birds|k={k}", "row": row, "seed": seed,
...             "dataset": "birds", "parameters": {"k": k}, "test_accuracy": accuracy}
>>> runs = [run("TAIDTM", k, seed, 90 + seed) for k in (1, 10, 100) for seed in range(3)]
>>> figure = accuracy_curves(runs, "k")
>>> figure.axes[0].get_xscale(), [text.get_text() for text in figure.legends[0].get_texts()]
('log', ['TAIDTM'])
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crowdwise.bench.rendering import plain
from crowdwise.bench.selection import Metric, Record, metric_of, select, value_of
from crowdwise.errors import ConfigError, DataError, suggest
from crowdwise.report.pictures import GROUP_COLOURS, INK, MUTED, edges_of, new_figure, save_picture
from crowdwise.storage.arrays import read_npz
from crowdwise.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from crowdwise.graph.purify import Graph

Setting: TypeAlias = Literal["labels_per_instance", "n_groups", "k", "noise_rate"]
SETTINGS: dict[Setting, tuple[str, str]] = {
    "labels_per_instance": ("simulate", "labels per instance"),
    "n_groups": ("simulate", "groups of annotators"),
    "k": ("parameters", "neighbours k"),
    "noise_rate": ("simulate", "noise rate"),
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
FORMATS = ("png", "svg", "pdf")
INSIDE, BETWEEN = "#8fa3b5", "#d55e00"  # edges; told apart by lightness too, for print and for colour-blind readers
MOST_EDGES = 6_000  # drawn in one panel
MOST_PANELS = 8  # side by side
FRAME, GRID = "#d1d5db", "#e5e7eb"


def varied(records: Iterable[Record]) -> list[Setting]:
    """The settings that have more than one value within a row of the records."""
    values: dict[tuple[str, str], set[Any]] = {}
    for record in records:
        for name, (table, _) in SETTINGS.items():
            value = (record.get(table) or {}).get(name)
            if isinstance(value, int | float | str):
                values.setdefault((name, record["row"]), set()).add(value)
    return [name for name in SETTINGS if any(len(found) > 1 for (key, _), found in values.items() if key == name)]


def accuracy_curves(
    records: Iterable[Record],
    x: Setting,
    *,
    metric: str = "test_accuracy",
    experiment: str | None = None,
    highlight: str | None = None,
) -> Figure:
    """A metric by setting: a line for each row with bars of one standard deviation over seeds, a panel for each data set.

    Args:
        records: of one experiment, in which only ``x``, row, seed and data set vary.
        x: the setting that varies. From a ratio of 10 on, its axis is logarithmic.
        metric: a key of `crowdwise.bench.selection.METRICS`.
        experiment: which one, if the records are of several.
        highlight: a row to draw thick and black.
    """
    if x not in SETTINGS:
        raise ConfigError(f"unknown setting {x!r}{suggest(x, SETTINGS)}")
    measure = metric_of(metric)
    panels = _points(select(records, experiment).records, x, measure)
    names = list(dict.fromkeys(row for lines in panels.values() for row in lines))
    figure = new_figure(min(4.6 * len(panels), 14) + 1.9, 4.0)
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        _label_curves(axes, title, sorted({at for line in lines.values() for at in line}), SETTINGS[x][1])
        for number, name in enumerate(names):
            if name in lines:
                aside = (number - (len(names) - 1) / 2) * min(0.008, 0.04 / len(names))
                _draw_line(axes, lines[name], name, _line_style(number, name == highlight), aside)
    figure.axes[0].set_ylabel(measure.label, fontsize=10, color=INK)
    found = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
    entries = {label: handle for pairs in found for handle, label in pairs}
    style = {"frameon": False, "fontsize": 9, "labelcolor": INK}
    figure.legend(list(entries.values()), list(entries), loc="outside right center", **style)
    return figure


@dataclass(frozen=True)
class AnnotatorMap:
    """Annotators as points, and their neighbours before and after purifying."""

    title: str
    positions: NDArray[np.float64]
    """(R, 2)."""
    before: Graph
    """kNN graph (R, R)."""
    after: Graph
    """Purified graph (R, R), weighted."""
    groups: NDArray[np.int64] | None = None
    """(R,) true group of each annotator, if known."""


def annotator_maps(maps: Sequence[AnnotatorMap], *, threshold: float = 0.1) -> Figure:
    """Maps side by side, for instance over k: before purifying above, after purifying below.

    Colour and shape show the group. Edges (entries above ``threshold``, without self loops) inside and between groups
    have different colours, and each panel gives the percentage inside.
    """
    from matplotlib.lines import Line2D

    if not 1 <= len(maps) <= MOST_PANELS:
        raise DataError(f"a figure has 1 to {MOST_PANELS} maps side by side, not {len(maps)}")
    figure = new_figure(max(2.6 * len(maps), 4.2) + 0.4, 6.4)
    grid = figure.subplots(2, len(maps), squeeze=False)
    for column, one in enumerate(maps):
        _check(one)
        for axes, graph in zip(grid[:, column], (one.before, one.after), strict=True):
            _draw_map(axes, one, graph, threshold)
        grid[0, column].set_title(f"{_words(one.title)}\n{grid[0, column].get_title()}", fontsize=10, color=INK)
    for axes, label in zip(grid[:, 0], ("before purifying", "after purifying"), strict=True):
        axes.set_ylabel(label, fontsize=11, color=INK, labelpad=8)
    grouped = any(one.groups is not None for one in maps)
    point = Line2D([], [], linestyle="", marker="o", markersize=7, color=GROUP_COLOURS[0], markeredgecolor="white")
    entries = [(point, "annotator, in its group's colour and shape" if grouped else "annotator")]
    entries.append((Line2D([], [], color=INSIDE, linewidth=2), "edge inside a group" if grouped else "edge"))
    if grouped:
        entries.append((Line2D([], [], color=BETWEEN, linewidth=2), "edge between groups"))
    if any("†" in axes.get_title() for axes in grid.flat):
        entries.append((Line2D([], [], linestyle=""), f"† {MOST_EDGES:,} of them drawn"))
    columns = 1 if len(maps) < 3 else len(entries)
    handles, labels = zip(*entries, strict=True)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, labelcolor=INK)
    return figure


def write_map(path: str | os.PathLike[str], one: AnnotatorMap) -> Path:
    """Write a map atomically, as an .npz file of plain arrays."""
    from crowdwise.graph.purify import as_graph

    _check(one)
    arrays: dict[str, Any] = {"title": np.array(one.title), "positions": np.asarray(one.positions, dtype=np.float64)}
    if one.groups is not None:
        arrays["groups"] = np.asarray(one.groups, dtype=np.int64)
    for name, graph in (("before", as_graph(one.before)), ("after", as_graph(one.after))):
        arrays |= {f"{name}_{part}": getattr(graph, part) for part in ("data", "indices", "indptr")}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def read_map(path: str | os.PathLike[str]) -> AnnotatorMap:
    """Read a map written by :func:`write_map`. Nothing in the file is executed."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"there is no map {path}")
    try:
        arrays = read_npz(path)
        size = len(arrays["positions"])
        graphs = {}
        for name in ("before", "after"):
            parts = tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
            graphs[name] = sparse.csr_array(parts, shape=(size, size))
            graphs[name].check_format(full_check=True)
        found = AnnotatorMap(str(arrays["title"]), arrays["positions"], **graphs, groups=arrays.get("groups"))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{path} is no map of annotators, or damaged: {error}") from error
    _check(found)
    return found


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 200) -> Path:
    """Write a figure as .png, .svg or .pdf, atomically; the same figure gives the same bytes."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        name = Path(path).name
        raise ConfigError(f"{name}: a figure is written as {', '.join(FORMATS)}, not {kind or 'without ending'!r}")
    return save_picture(figure, path, dpi=dpi)


_Line: TypeAlias = dict[float, list[float]]


def _points(records: Sequence[Record], x: Setting, metric: Metric) -> dict[str, dict[str, _Line]]:
    """Values of the metric by data set, row and x."""
    table, label = SETTINGS[x]
    panels: dict[str, dict[str, _Line]] = {}
    seen = set()
    for record in records:
        at, value = (record.get(table) or {}).get(x), value_of(record, metric.name)
        if at is None or value is None:
            continue
        panel, row = str(record.get("dataset", record["column"].split("|")[0])), str(record["row"])
        if (panel, row, at, record["seed"]) in seen:
            raise DataError(
                f"{row} on {panel} has several runs with {label} {at:g} and seed {record['seed']}: "
                f"more than {x} varies; choose the records of one setting"
            )
        seen.add((panel, row, at, record["seed"]))
        panels.setdefault(panel, {}).setdefault(row, {}).setdefault(float(at), []).append(value)
    if not panels:
        raise DataError(f"no record has both {x} and {metric.name}")
    return panels


def _draw_line(axes: Axes, line: _Line, name: str, style: dict[str, Any], aside: float) -> None:
    """A line with its bars, shifted by a fraction of the axis so that bars of different rows do not overlap."""
    at = sorted(line)
    means = [statistics.fmean(line[one]) for one in at]
    spread = [statistics.stdev(line[one]) if len(line[one]) > 1 else 0.0 for one in at]
    first, last = axes.get_xlim()
    logarithmic = axes.get_xscale() == "log"
    moved = [one * (last / first) ** aside if logarithmic else one + (last - first) * aside for one in at]
    axes.errorbar(
        moved,
        means,
        yerr=spread if any(spread) else None,
        label=_words(name),
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.7,
        elinewidth=1.1,
        capsize=2.5,
        **style,
    )


def _line_style(number: int, strong: bool) -> dict[str, Any]:
    """Seven colours; further rows repeat them with other lines and markers."""
    turn, colour = divmod(number, len(GROUP_COLOURS))
    return {
        "color": INK if strong else GROUP_COLOURS[colour],
        "marker": MARKERS[(colour + turn) % len(MARKERS)],
        "linestyle": "-" if strong else LINES[turn % len(LINES)],
        "linewidth": 2.8 if strong else 1.6,
        "zorder": 4 if strong else 3,
    }


def _label_curves(axes: Axes, title: str, at: Sequence[float], label: str) -> None:
    if at[0] > 0 and at[-1] / at[0] >= 10:
        axes.set_xscale("log")
    axes.set_xticks(at, [f"{one:g}" for one in at])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(label, fontsize=10, color=INK)
    axes.set_title(_words(title), loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.tick_params(labelsize=9, colors=MUTED, length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FRAME)
    axes.margins(y=0.08)
    low, high = at[0], at[-1]
    if axes.get_xscale() == "log":
        axes.set_xlim(low / (high / low) ** 0.06, high * (high / low) ** 0.06)
    else:
        space = 0.06 * (high - low) or 0.5
        axes.set_xlim(low - space, high + space)


def _words(text: str) -> str:
    """A user's text taken literally: no formulas between dollars, no leading underscore, which would hide it from legends."""
    shown = plain(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _check(one: AnnotatorMap) -> None:
    from crowdwise.graph.purify import as_graph

    points = np.asarray(one.positions)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise DataError(f"map {one.title!r}: positions must be finite and of shape (annotators, 2), not {points.shape}")
    size = len(points)
    if one.groups is not None and np.shape(one.groups) != (size,):
        raise DataError(f"map {one.title!r}: groups must have shape ({size},), not {np.shape(one.groups)}")
    for name, graph in (("before", one.before), ("after", one.after)):
        if as_graph(graph).shape != (size, size):
            raise DataError(
                f"map {one.title!r}: {name} has shape {as_graph(graph).shape}, but there are {size} annotators"
            )


def _draw_map(axes: Axes, one: AnnotatorMap, graph: Graph, threshold: float) -> None:
    from matplotlib.collections import LineCollection

    points = np.asarray(one.positions, dtype=np.float64)
    membership = np.zeros(len(points), dtype=np.int64)
    if one.groups is not None:
        membership = np.unique(one.groups, return_inverse=True)[1]
    start, end, _, between = edges_of(graph, membership, threshold)
    title = f"{len(start):,} {'edge' if len(start) == 1 else 'edges'}"
    if one.groups is not None and len(start):
        title += f", {100 * np.mean(~between):.1f} % inside"
    if len(start) > MOST_EDGES:
        title += " †"
    axes.set_title(title, fontsize=10, color=INK)
    # in random order, so that neither colour covers the other
    some = np.random.default_rng(0).permutation(len(start))[:MOST_EDGES]
    start, end, between = start[some], end[some], between[some]
    opacity = float(np.clip(40 / max(len(start), 1) ** 0.75, 0.05, 0.6))
    axes.add_collection(
        LineCollection(
            list(np.stack([points[start], points[end]], axis=1)),
            colors=[(BETWEEN, 1.3 * opacity) if wrong else (INSIDE, opacity) for wrong in between],
            linewidths=0.7,
            rasterized=True,  # also in vector files, where thousands of transparent lines are slow
        )
    )
    size = float(np.clip(4000 / max(len(points), 1), 9, 46))
    for number in range(int(membership.max(initial=0)) + 1):
        members = points[membership == number]
        axes.scatter(
            members[:, 0],
            members[:, 1],
            s=size,
            color=GROUP_COLOURS[number % len(GROUP_COLOURS)],
            marker=MARKERS[number // len(GROUP_COLOURS) % len(MARKERS)],
            edgecolors="white",
            linewidths=0.4,
            zorder=3,
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_box_aspect(1)
    axes.spines[:].set_color(FRAME)
    axes.margins(0.08)
