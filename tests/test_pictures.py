"""Pictures say what the data say, and leave matplotlib's global state alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.image import imread
from numpy.typing import NDArray

from crowdwise.errors import DataError
from crowdwise.report import Matrices, accuracy_chart, annotator_graph, save_picture, transition_matrices
from crowdwise.report.pictures import MOST_EDGES, RIGHT, WRONG

POSITIONS = np.random.default_rng(0).normal(size=(6, 2))
GROUPS = [0, 0, 0, 1, 1, 1]


def ring() -> NDArray[np.float64]:
    """Each annotator's neighbour is the next one: four edges of six inside the groups."""
    return np.roll(np.eye(6), 1, axis=1)


def edge_colours(axes: object) -> list[str]:
    (lines,) = [one for one in axes.collections if isinstance(one, LineCollection)]  # type: ignore[attr-defined]
    return [to_hex(colour) for colour in lines.get_colors()]


def test_edges_are_coloured_by_whether_they_stay_inside_a_group() -> None:
    weak = ring() * 0.05  # below the threshold
    weak[0, 1] = 0.9
    np.fill_diagonal(weak, 1)
    figure = annotator_graph(ring(), weak, POSITIONS, GROUPS)
    before, after = figure.axes[:2]
    assert sorted(edge_colours(before)) == sorted([RIGHT] * 4 + [WRONG] * 2)
    assert edge_colours(after) == [RIGHT]  # self loops are not drawn
    assert after.get_title() == "after purifying\n1 edges, 100.0 % inside a group"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["group 0", "group 1", "edge inside a group", "edge between groups"]


def test_found_groups_colour_points_but_judge_no_edges() -> None:
    figure = annotator_graph(ring(), ring(), POSITIONS, GROUPS, group_names=["x", "y"], judge=False, skipped=[2])
    assert set(edge_colours(figure.axes[0])) == {RIGHT}
    assert figure.axes[0].get_title() == "before purifying\n6 edges"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["x", "y", "too few examples", "edge"]


def test_odd_crowds_can_be_drawn(tmp_path: Path) -> None:
    nobody = np.zeros((1, 1))
    save_picture(annotator_graph(nobody, nobody, np.zeros((1, 2))), tmp_path / "one.png")
    many = np.eye(30)
    figure = annotator_graph(
        np.roll(many, 1, axis=1), many, np.random.default_rng(0).normal(size=(30, 2)), np.arange(30)
    )
    assert "further groups" in [text.get_text() for text in figure.legends[0].get_texts()]
    save_picture(figure, tmp_path / "many.png")
    assert figure.axes[1].get_title() == "after purifying\n0 edges"


def test_a_dense_graph_is_drawn_in_part_and_says_so() -> None:
    size = 200
    figure = annotator_graph(np.ones((size, size)), np.eye(size), np.random.default_rng(0).normal(size=(size, 2)))
    assert len(edge_colours(figure.axes[0])) == MOST_EDGES
    assert f"39,800 edges ({MOST_EDGES:,} drawn)" in figure.axes[0].get_title()


def test_positions_must_fit_the_graph() -> None:
    with pytest.raises(DataError, match=r"positions of 5 annotators, but the graph has shape \(6, 6\)"):
        annotator_graph(ring(), ring(), POSITIONS[:5])
    with pytest.raises(DataError, match=r"positions must have shape \(annotators, 2\)"):
        annotator_graph(ring(), ring(), POSITIONS[:, :1])


def test_estimates_stand_beside_the_truth() -> None:
    rng = np.random.default_rng(0)
    estimated, true = rng.dirichlet(np.ones(3), size=(2, 2, 3))
    figure = transition_matrices(
        [Matrices("ann", estimated, true), Matrices("bob", estimated)],
        classes=["cat", "dog", "fox"],
        instances=["first", "second"],
        images=[np.zeros((8, 8), np.uint8), np.zeros((8, 8), np.uint8)],
        true_classes=[2, 0],
    )
    panels = [axes for axes in figure.axes if axes.images and axes.images[0].get_array().shape == (3, 3)]
    drawn = [np.asarray(axes.images[0].get_array()) for axes in panels]
    np.testing.assert_array_equal(drawn[:3], [estimated[0], true[0], estimated[0]])
    np.testing.assert_array_equal(drawn[3:], [estimated[1], true[1], estimated[1]])
    assert [axes.get_title() for axes in panels[:3]] == ["ann\nestimated", "ann\ntrue", "bob"]
    assert [axes.patches[0].get_y() for axes in (panels[0], panels[3])] == [1.5, -0.5]


def test_bars_have_the_length_of_the_accuracies() -> None:
    figure = accuracy_chart({"CE": 0.5, "TAIDTM": 0.75}, highlight="TAIDTM")
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars] == [50, 75]
    assert bars[0].get_y() > bars[1].get_y()
    assert to_hex(bars[0].get_facecolor()) != to_hex(bars[1].get_facecolor())


def test_a_picture_appears_whole_in_a_new_folder(tmp_path: Path) -> None:
    path = save_picture(accuracy_chart({"CE": 0.5}), tmp_path / "new" / "chart.png", dpi=50)
    assert imread(path).shape[1] == 350
    assert [file.name for file in path.parent.iterdir()] == ["chart.png"]
