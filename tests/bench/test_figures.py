"""Figures show the records' means and spreads, and maps show which edges stay inside a group."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.image import imread
from scipy import sparse

from crowdwise.bench.figures import (
    BETWEEN,
    INSIDE,
    MOST_EDGES,
    AnnotatorMap,
    accuracy_curves,
    annotator_maps,
    read_map,
    save,
    write_map,
)
from crowdwise.errors import ConfigError, DataError
from crowdwise.graph import edge_precision

Run = dict[str, Any]


def run(row: str, seed: int, accuracy: float, *, dataset: str = "birds", k: int = 5, **simulate: float) -> Run:
    return {
        "experiment": "mine",
        "column": f"{dataset}|{k}|{simulate}",
        "row": row,
        "seed": seed,
        "dataset": dataset,
        "simulate": simulate,
        "parameters": {"k": k},
        "test_accuracy": accuracy,
    }


def lines(axes: Any) -> dict[str, Any]:
    return {container.get_label(): container.lines[0] for container in axes.containers}


def ring(title: str = "ring", groups: Any = (0, 0, 0, 1, 1, 1)) -> AnnotatorMap:
    """Each annotator's neighbour is the next one: four edges of six inside the groups; half of them survive."""
    positions = np.random.default_rng(0).normal(size=(6, 2))
    before = sparse.csr_array(np.roll(np.eye(6), 1, axis=1))
    after = sparse.csr_array(np.eye(6) + 0.8 * np.roll(np.eye(6), 1, axis=1) * np.array([[1, 1, 0.01, 1, 1, 0.01]]).T)
    return AnnotatorMap(title, positions, before, after, None if groups is None else np.asarray(groups))


def edge_colours(axes: Any) -> list[str]:
    (drawn,) = [one for one in axes.collections if isinstance(one, LineCollection)]
    return sorted(to_hex(colour) for colour in drawn.get_colors()) if len(drawn.get_segments()) else []


class TestCurves:
    def test_lines_have_the_means_and_bars_the_standard_deviations(self) -> None:
        records = [
            run("TAIDTM", seed, 80 + 5 * r + seed, labels_per_instance=r) for r in (1, 2, 3) for seed in range(3)
        ]
        axes = accuracy_curves(records, "labels_per_instance").axes[0]
        np.testing.assert_allclose(lines(axes)["TAIDTM"].get_xydata(), [[1, 86], [2, 91], [3, 96]])
        (bars,) = axes.containers[0].lines[2]
        np.testing.assert_allclose([segment[:, 1] for segment in bars.get_segments()], [[85, 87], [90, 92], [95, 97]])
        assert axes.get_xscale() == "linear"
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3"]

    def test_another_metric_of_one_of_several_experiments(self) -> None:
        records = [run("CE", 0, 80.0, noise_rate=p) | {"seconds": 100 * p} for p in (0.1, 0.2)]
        others = [run("CE", 0, 90.0, noise_rate=p) | {"seconds": 1.0, "experiment": "other"} for p in (0.1, 0.2)]
        axes = accuracy_curves([*others, *records], "noise_rate", metric="seconds", experiment="mine").axes[0]
        np.testing.assert_allclose(lines(axes)["CE"].get_xydata(), [[0.1, 10], [0.2, 20]])
        assert axes.get_ylabel() == "seconds"
        with pytest.raises(DataError, match="several experiments"):
            accuracy_curves([*others, *records], "noise_rate")

    @pytest.mark.parametrize(
        ("values", "limits"), [([5], (4.5, 5.5)), ([1, 3], (0.88, 3.12)), ([1, 10], (10**-0.06, 10**1.06))]
    )
    def test_there_is_room_at_both_ends(self, values: list[int], limits: tuple[float, float]) -> None:
        axes = accuracy_curves([run("CE", 0, 80.0, n_groups=g) for g in values], "n_groups").axes[0]
        assert axes.get_xlim() == pytest.approx(limits)

    def test_one_seed_has_no_bars(self) -> None:
        axes = accuracy_curves([run("CE", 0, 80.0, n_groups=g) for g in (1, 3)], "n_groups").axes[0]
        assert axes.containers[0].has_yerr is False

    @pytest.mark.parametrize("x", ["labels_per_instance", "n_groups", "k", "noise_rate"])
    def test_every_setting_can_be_the_axis(self, x: str) -> None:
        records = [
            run("CE", 0, 80.0, **({"k": at} if x == "k" else {x: at}))  # type: ignore[arg-type]
            for at in (1, 2, 40)
        ]
        axes = accuracy_curves(records, x).axes[0]  # type: ignore[arg-type]
        np.testing.assert_allclose(lines(axes)["CE"].get_xdata(orig=False), [1, 2, 40])
        assert axes.get_xscale() == "log"

    def test_data_sets_have_panels_and_rows_keep_their_colour(self) -> None:
        records = [run(row, 0, 80.0, dataset="a", noise_rate=p) for row in ("CE", "TAIDTM") for p in (0.1, 0.2)]
        records += [run("TAIDTM", 0, 70.0, dataset="b", noise_rate=p) for p in (0.1, 0.2)]
        figure = accuracy_curves(records, "noise_rate", highlight="CE")
        first, second = figure.axes
        assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
        assert lines(first)["TAIDTM"].get_color() == lines(second)["TAIDTM"].get_color()
        assert lines(first)["CE"].get_linewidth() > lines(first)["TAIDTM"].get_linewidth()
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["CE", "TAIDTM"]

    def test_eighteen_methods_can_be_told_apart(self) -> None:
        records = [run(f"m{i}", 0, 80.0 + i, noise_rate=p) for i in range(18) for p in (0.1, 0.2)]
        drawn = lines(accuracy_curves(records, "noise_rate").axes[0]).values()
        assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in drawn}) == 18

    def test_settings_that_are_mixed_up_are_refused(self) -> None:
        records = [run("CE", 0, 80.0, k=5, noise_rate=p) for p in (0.1, 0.2)]
        with pytest.raises(DataError, match="CE on birds has several runs with neighbours k 5 and seed 0: more than k"):
            accuracy_curves(records, "k")

    def test_nothing_to_draw_is_an_error(self) -> None:
        with pytest.raises(DataError, match="no record has both n_groups and test_accuracy"):
            accuracy_curves([run("CE", 0, 80.0)], "n_groups")
        with pytest.raises(ConfigError, match="unknown setting 'groups'"):
            accuracy_curves([run("CE", 0, 80.0)], "groups")  # type: ignore[arg-type]

    def test_names_are_no_formulas(self, tmp_path: Path) -> None:
        names = ("$x_$", "_hidden", "\\frac{", "a\nb")
        records = [run(name, 0, 80.0, noise_rate=p, dataset="$d^$") for name in names for p in (0.1, 0.2)]
        figure = accuracy_curves(records, "noise_rate")
        save(figure, tmp_path / "figure.png", dpi=40)
        assert len(figure.legends[0].get_texts()) == 4


class TestMaps:
    def test_edges_inside_and_between_groups_have_two_colours(self) -> None:
        figure = annotator_maps([ring()])
        before, after = figure.axes
        assert edge_colours(before) == sorted([INSIDE] * 4 + [BETWEEN] * 2)
        assert edge_colours(after) == [INSIDE] * 4
        assert before.get_title() == "ring\n6 edges, 66.7 % inside"
        assert after.get_title() == "4 edges, 100.0 % inside"

    def test_edges_are_the_entries_above_the_threshold(self) -> None:
        graph = np.array([[1.0, 0.05, 0.3], [0.2, 1.0, 0.0], [0.0, 0.1, 1.0]])
        one = AnnotatorMap("", np.eye(3)[:, :2], graph, graph, np.array([0, 0, 1]))
        titles = [annotator_maps([one], threshold=least).axes[1].get_title() for least in (0.1, 0.01, 0.25)]
        assert titles == ["2 edges, 50.0 % inside", "4 edges, 50.0 % inside", "1 edge, 0.0 % inside"]
        assert annotator_maps([one]).axes[1].get_title() == titles[0]

    def test_the_share_is_the_edge_precision(self) -> None:
        rng = np.random.default_rng(1)
        graph = np.where(rng.random((40, 40)) < 0.2, rng.random((40, 40)), 0)
        groups = np.arange(40) % 3
        figure = annotator_maps([AnnotatorMap("", rng.normal(size=(40, 2)), graph, graph, groups)])
        assert f"{100 * edge_precision(graph, groups).overall:.1f} % inside" in figure.axes[0].get_title()

    def test_maps_stand_side_by_side(self) -> None:
        figure = annotator_maps([ring("k = 1"), ring("k = 2"), ring("k = 3", groups=None)])
        assert [axes.get_title().splitlines()[0] for axes in figure.axes[:3]] == ["k = 1", "k = 2", "k = 3"]
        assert figure.axes[2].get_title() == "k = 3\n6 edges"
        assert [figure.axes[i].get_ylabel() for i in (0, 3)] == ["before purifying", "after purifying"]

    def test_groups_differ_in_colour_or_shape(self) -> None:
        size = 30
        positions = np.random.default_rng(0).normal(size=(size, 2))
        nothing = np.zeros((size, size))
        axes = annotator_maps([AnnotatorMap("30 groups", positions, nothing, nothing, np.arange(size))]).axes[0]
        points = [one for one in axes.collections if isinstance(one, PathCollection)]
        looks = {(to_hex(one.get_facecolors()[0]), one.get_paths()[0].vertices.tobytes()) for one in points}
        assert len(looks) == size

    def test_one_annotator_and_equal_annotators_are_a_point(self, tmp_path: Path) -> None:
        one = AnnotatorMap("one", np.zeros((1, 2)), np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1, dtype=np.int64))
        equal = AnnotatorMap("equal", np.zeros((5, 2)), np.ones((5, 5)), np.ones((5, 5)), np.zeros(5, dtype=np.int64))
        figure = annotator_maps([one, equal])
        assert [axes.get_title() for axes in figure.axes[:2]] == ["one\n0 edges", "equal\n20 edges, 100.0 % inside"]
        picture = imread(save(figure, tmp_path / "points.png", dpi=50))
        assert (picture[..., :3].min(axis=-1) < 0.5).any()

    def test_dense_graphs_are_drawn_in_part_and_say_so(self) -> None:
        full = np.ones((200, 200))
        figure = annotator_maps([AnnotatorMap("", np.random.default_rng(0).normal(size=(200, 2)), full, np.eye(200))])
        assert len(edge_colours(figure.axes[0])) == MOST_EDGES
        assert figure.axes[0].get_title().endswith("39,800 edges †")
        assert f"† {MOST_EDGES:,} of them drawn" in [text.get_text() for text in figure.legends[0].get_texts()]

    def test_shapes_must_fit(self) -> None:
        good = ring()
        with pytest.raises(DataError, match=r"before has shape \(6, 6\), but there are 5 annotators"):
            annotator_maps([AnnotatorMap("x", good.positions[:5], good.before, good.after)])
        with pytest.raises(DataError, match=r"groups must have shape \(6,\), not \(2,\)"):
            annotator_maps([ring(groups=(0, 1))])
        with pytest.raises(DataError, match="positions must be finite"):
            annotator_maps([AnnotatorMap("x", np.full((6, 2), np.nan), good.before, good.after)])
        with pytest.raises(DataError, match="1 to 8 maps side by side, not 0"):
            annotator_maps([])


class TestFiles:
    @pytest.mark.parametrize("groups", [(0, 0, 0, 1, 1, 1), None])
    def test_a_map_survives_its_file(self, tmp_path: Path, groups: Any) -> None:
        one = ring("Größe k = 5", groups)
        found = read_map(write_map(tmp_path / "new" / "map.npz", one))
        assert found.title == one.title
        np.testing.assert_array_equal(found.positions, one.positions)
        for name in ("before", "after"):
            np.testing.assert_array_equal(getattr(found, name).toarray(), getattr(one, name).toarray())
        np.testing.assert_array_equal(found.groups, one.groups)
        assert [file.name for file in (tmp_path / "new").iterdir()] == ["map.npz"]

    def test_nothing_is_unpickled(self, tmp_path: Path) -> None:
        path = tmp_path / "evil.npz"
        np.savez(path, title=np.array([{"a": 1}], dtype=object), positions=np.zeros((1, 2)))
        with pytest.raises(DataError, match=r"evil.npz is no map of annotators, or damaged"):
            read_map(path)
        path.write_bytes(pickle.dumps([1]))
        with pytest.raises(DataError, match="no map of annotators"):
            read_map(path)

    @pytest.mark.parametrize("change", ["missing", "indices", "truncated", "text", "plain array"])
    def test_damaged_maps_are_named(self, tmp_path: Path, change: str) -> None:
        path = write_map(tmp_path / "map.npz", ring())
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        if change == "missing":
            del arrays["after_data"]
            np.savez(path, **arrays)
        elif change == "indices":
            arrays["before_indices"] = arrays["before_indices"] + 100
            np.savez(path, **arrays)
        elif change == "truncated":
            path.write_bytes(path.read_bytes()[:-200])
        elif change == "text":
            path.write_text("hello")
        else:
            with path.open("wb") as file:
                np.save(file, np.zeros((3, 2)))
        with pytest.raises(DataError, match=r"map.npz is no map of annotators, or damaged"):
            read_map(path)

    def test_a_missing_map_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="there is no map"):
            read_map(tmp_path / "none.npz")

    @pytest.mark.parametrize(("kind", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
    def test_figures_are_written_whole_and_alike(self, tmp_path: Path, kind: str, begin: bytes) -> None:
        first = save(annotator_maps([ring()]), tmp_path / f"a.{kind}").read_bytes()
        second = save(annotator_maps([ring()]), tmp_path / f"b.{kind}").read_bytes()
        assert first.startswith(begin)
        assert first == second
        assert len(list(tmp_path.iterdir())) == 2

    def test_a_figure_that_fails_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "figure.png"
        path.write_bytes(b"old")
        figure = annotator_maps([ring()])
        figure.savefig = None  # type: ignore[assignment, method-assign]
        with pytest.raises(TypeError):
            save(figure, path)
        assert path.read_bytes() == b"old"
        assert len(list(tmp_path.iterdir())) == 1

    def test_other_formats_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="written as png, svg, pdf, not 'gif'"):
            save(annotator_maps([ring()]), tmp_path / "figure.gif")
