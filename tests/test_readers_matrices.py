"""Matrices with a row per item and a column per annotator: the same cells are labels in every kind of file, and in arrays."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise.annotations import Annotations
from crowdwise.errors import CrowdwiseWarning, ReadError
from crowdwise.readers import read
from sheet_samples import xlsx

NAMES = ("ann", "bob", "cem", "dan")


def put(path: Path, cells: Any, *, ids: bool = True, names: tuple[str, ...] = NAMES) -> Path:
    """Cells in a file of the suffix, with ids of items and names of annotators, where there is a place for them."""
    rows = [list(row) for row in cells]
    if path.suffix == ".npy":
        np.save(path, np.array(cells))
        return path
    if path.suffix == ".npz":
        np.savez(path, first=np.array(cells))
        return path
    header = [*(["item"] if ids else []), *names[: len(rows[0])]]
    body = [[*([f"i{k}"] if ids else []), *row] for k, row in enumerate(rows)]
    if path.suffix == ".xlsx":
        path.write_bytes(xlsx({"A": [header, *body]}))
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        path.write_text("\n".join(mark.join(map(str, row)) for row in [header, *body]) + "\n")
    return path


def filled(crowd: Annotations, shape: tuple[int, int]) -> list[list[Any]]:
    """The matrix that a crowd was read from, None where there is no label."""
    cells: list[list[Any]] = [[None] * shape[1] for _ in range(shape[0])]
    names = crowd.classes.tolist()
    for row in crowd.to_frame().to_pylist():
        i, j = row["instance"], row["annotator"]
        i = int(i.removeprefix("i")) if isinstance(i, str) else i
        j = NAMES.index(j) if isinstance(j, str) else j
        assert row["label"] in names
        cells[i][j] = row["label"]
    return cells


FILES = [".csv", ".tsv", ".xlsx", ".npy", ".npz"]


class TestMinusOne:
    @pytest.mark.parametrize("suffix", FILES)
    @pytest.mark.parametrize("labels", [(-1, 1), (-2, -1, 0, 1, 2), (-3, -1, 2)])
    def test_is_a_class_among_signs_and_on_a_scale(self, tmp_path: Path, suffix: str, labels: tuple[int, ...]) -> None:
        cells = np.random.default_rng(len(labels)).choice(labels, (30, 4))
        cells[0], cells[3] = -1, -1
        export = read(put(tmp_path / f"a{suffix}", cells), "dense")
        assert filled(export.annotations, cells.shape) == cells.tolist()
        assert export.annotations.classes.tolist() == sorted(labels)
        assert filled(Annotations.from_dense(cells), cells.shape) == cells.tolist()
        assert filled(Annotations.from_dense(cells.tolist()), cells.shape) == cells.tolist()
        assert filled(Annotations.from_dense(cells.astype(float)), cells.shape) == cells.tolist()

    @pytest.mark.parametrize("suffix", FILES)
    def test_else_it_is_missing_and_counted(self, tmp_path: Path, suffix: str) -> None:
        cells = np.random.default_rng(0).integers(-1, 2, (40, 4))
        cells[7] = -1
        known = [[None if cell == -1 else cell for cell in row] for row in cells.tolist()]
        path = put(tmp_path / f"a{suffix}", cells)
        export = read(path, "dense")
        assert filled(export.annotations, cells.shape) == known
        assert f"-1 is taken for missing in {np.sum(cells == -1)} cells" in export.message
        if suffix not in (".npy", ".npz"):
            empty = int(np.all(cells == -1, axis=1).sum())
            assert f"left out: {empty} instances without a label" in export.message
        assert filled(read(path, "dense", classes=["-1", "0", "1"]).annotations, cells.shape) == cells.tolist()
        renamed = read(path, "dense", map={"-1": "5"}).annotations
        assert filled(renamed, cells.shape) == np.where(cells == -1, 5, cells).tolist()
        assert "is taken for" not in read(path, "dense", missing="-1").message

    def test_arrays_warn_where_it_may_be_a_class(self) -> None:
        cells = np.random.default_rng(0).integers(-1, 2, (40, 4))
        with pytest.warns(CrowdwiseWarning, match=f"in {np.sum(cells == -1)} of 160 cells"):
            Annotations.from_dense(cells)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Annotations.from_dense(cells, missing=[])
            Annotations.from_dense(np.where(cells == 0, -1, cells + 1))

    def test_of_floats_in_a_text_file_as_well(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", [["-1.0", "0.0", ""], ["1.0", "-1.0", "0.0"], ["1.0", "1.0", "0.0"]])
        export = read(path, "dense")
        assert filled(export.annotations, (3, 3)) == [[None, 0, None], [1, None, 0], [1, 1, 0]]
        assert "-1.0 is taken for missing in 2 cells" in export.message


class TestWords:
    CELLS = (("None", "joy", "None"), ("joy", "joy", "NA"), ("None", "None", "None"), ("joy", "anger", "joy"))

    @pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx"])
    def test_that_may_mean_nothing_are_classes_as_in_long_tables(self, tmp_path: Path, suffix: str) -> None:
        matrix = read(put(tmp_path / f"a{suffix}", self.CELLS), "dense")
        rows = [f"i{i},{NAMES[j]},{cell}" for i, row in enumerate(self.CELLS) for j, cell in enumerate(row)]
        (tmp_path / "long.csv").write_text("\n".join(["item,worker,label", *rows]))
        table = read(tmp_path / "long.csv")
        assert matrix.annotations == table.annotations
        for export in (matrix, table):
            assert "'None' counts as a class, with 5 labels (missing=None leaves it out)" in export.message
        left = read(tmp_path / f"a{suffix}", "dense", missing=["None", "NA"]).annotations
        assert left.classes.tolist() == ["anger", "joy"]

    def test_nan_among_numbers_is_missing_and_counted(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", [[0, "nan", 2], [1, 1, "NaN"], ["", 2, 2]])
        export = read(path, "dense")
        assert filled(export.annotations, (3, 3)) == [[0, None, 2], [1, 1, None], [None, 2, 2]]
        assert "NaN is taken for missing in 1 cell; nan is taken for missing in 1 cell" in export.message
        path = put(tmp_path / "b.csv", [["nan", "a", "b"], ["a", "a", "nan"]])
        assert read(path, "dense").annotations.classes.tolist() == ["a", "b", "nan"]

    def test_a_file_of_floats_without_header(self, tmp_path: Path) -> None:
        cells = np.array([[0, np.nan, 1], [1, 1, np.nan], [0, 0, 1], [0, 1, 1]])
        np.savetxt(tmp_path / "a.csv", cells, delimiter=",")
        crowd = read(tmp_path / "a.csv", "dense").annotations
        assert crowd.votes().tolist() == [[1, 1], [0, 2], [2, 1], [1, 2]]


class TestHeaders:
    """Which line holds names, and which column ids."""

    def test_numbers_as_names_of_annotators(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", [[0, 1, 0], [1, 1, 0], [0, 0, 1]], names=("1", "2", "3"))
        crowd = read(path, "dense").annotations
        assert crowd.annotators.tolist() == [1, 2, 3]
        assert (crowd.n_instances, crowd.classes.tolist()) == (3, [0, 1])

    def test_ids_are_told_by_their_values_where_their_name_is_unusual(self, tmp_path: Path) -> None:
        lines = ["photo,ann,bob", *(f"p{k},{('x', 'y')[k % 2]},x" for k in range(12))]
        (tmp_path / "a.csv").write_text("\n".join(lines))
        crowd = read(tmp_path / "a.csv").annotations
        assert crowd.instances.tolist() == [f"p{k}" for k in range(12)]
        assert crowd.annotators.tolist() == ["ann", "bob"]

    @pytest.mark.parametrize("column", [["x", "y", "x", "y"], ["p", "q", "q", "r"]])
    def test_a_first_column_of_labels_or_repeats_is_an_annotator(self, tmp_path: Path, column: list[str]) -> None:
        lines = ["zoe,ann,bob", *(f"{value},{other},x" for value, other in zip(column, "xyxx", strict=True))]
        (tmp_path / "a.csv").write_text("\n".join(lines))
        crowd = read(tmp_path / "a.csv", "dense").annotations
        assert crowd.annotators.tolist() == ["zoe", "ann", "bob"]
        assert len(crowd) == 12

    def test_names_and_rows_that_do_not_fit_are_refused(self, tmp_path: Path) -> None:
        for text, problem in (
            ("item,ann,ann\n1,x,y\n", "two annotators have the same name"),
            ("item,ann,bob\n1,x,y\n2,x\n", r"record 2: 2 cells, but the first line has 3"),
            ("item,ann,bob\n,x,y\n2,x,y\n", "record 1, item: expected an id"),
            ("\n\n", "no line holds anything"),
        ):
            (tmp_path / "a.csv").write_text(text)
            with pytest.raises(ReadError, match=problem):
                read(tmp_path / "a.csv", "dense")


class TestArrays:
    def test_follow_the_rules_for_labels(self, tmp_path: Path) -> None:
        cells = np.array([["cat", "Cat ", ""], ["dog", "?", "cat"], ["?", "", ""]])
        path = put(tmp_path / "a.npy", cells)
        assert "'Cat' and 'cat' look like one class" in read(path).message
        export = read(path, clean=True, missing="?", map={"dog": "fox"})
        assert export.annotations.to_frame().to_pylist() == [
            {"instance": 0, "annotator": 0, "label": "cat"},
            {"instance": 0, "annotator": 1, "label": "cat"},
            {"instance": 1, "annotator": 0, "label": "fox"},
            {"instance": 1, "annotator": 2, "label": "cat"},
        ]
        assert export.annotations.n_instances == 3
        assert "left out: 2 without a label" in export.message
        listed = read(path, classes=["fox", "cat", "dog"], missing="?").annotations
        assert listed.classes.tolist() == ["fox", "cat", "dog"]

    def test_several_in_a_file_are_questions(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", one=np.array([[0, 1]]), two=np.array([[1, 1]]), flat=np.array([1]))
        with pytest.raises(ReadError, match="2 questions were answered: 'one', 'two'"):
            read(tmp_path / "a.npz")
        export = read(tmp_path / "a.npz", question="two")
        assert export.annotations.votes().tolist() == [[2]]
        assert (export.question, "array 'two'" in export.message) == ("two", True)

    def test_without_labels_are_refused(self, tmp_path: Path) -> None:
        for cells, problem in (
            (np.array([1, 2]), "no array has two axes"),
            (np.array([[1j, 2j]]), "labels cannot be of type complex"),
            (np.full((2, 2), np.nan), "all cells are empty"),
        ):
            np.save(tmp_path / "a.npy", cells)
            with pytest.raises(ReadError, match=problem):
                read(tmp_path / "a.npy")

    def test_infinities_stay_what_they_are(self) -> None:
        """Whole numbers that are floats because of NaN become integers; not beside what no integer is."""
        assert Annotations.from_dense(np.array([[0.0, np.nan], [1.0, 1.0]])).classes.dtype == np.int64
        assert Annotations.from_dense(np.array([[0.0, np.inf], [1.0, 1.0]])).classes.tolist() == [0.0, 1.0, np.inf]
        assert Annotations.from_dense(np.array([[0.0, 0.5], [1.0, 1.0]])).classes.tolist() == [0.0, 0.5, 1.0]
