"""Rows to learn from, out of files: what is a row, what is an id, what is a feature, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from crowdwise.data.inputs import describe, read_inputs, read_lines
from crowdwise.encoders import Pictures
from crowdwise.errors import AnnotationError, DataError
from crowdwise.readers import write_table

NUMBERS = np.arange(12, dtype=np.float64).reshape(4, 3) ** 2


def text(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def pictures(folder: Path, *names: str) -> Path:
    """Pictures that differ in width: the first is one pixel wide."""
    folder.mkdir(parents=True, exist_ok=True)
    for width, name in enumerate(names, start=1):
        Image.new("RGB", (width, 2)).save(folder / name)
    return folder


class TestArrays:
    def test_the_only_one_the_usual_one_or_the_one_that_is_named(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", NUMBERS)
        np.savez(tmp_path / "one.npz", any_name=NUMBERS)
        np.savez(tmp_path / "usual.npz", other=NUMBERS + 1, X=NUMBERS, keys=np.array([7, 5, 9, 6]))
        for file in ("a.npy", "one.npz", "usual.npz", "usual.npz:X"):
            found = read_inputs(f"{tmp_path}/{file}")
            np.testing.assert_array_equal(found.X, NUMBERS)
            assert (found.ids, found.n) == (None, 4)
        np.testing.assert_array_equal(read_inputs(f"{tmp_path}/usual.npz:other").X, NUMBERS + 1)
        named = read_inputs(tmp_path / "usual.npz", "keys")
        assert named.ids.tolist() == [7, 5, 9, 6]
        assert named.message == "usual.npz: 4 instances of 3 float64; ids from array 'keys'"

    def test_a_file_whose_name_has_a_colon_is_itself(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz:X.npz", first=NUMBERS)
        assert read_inputs(f"{tmp_path}/a.npz:X.npz").n == 4

    def test_of_which_none_is_meant_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "two.npz", left=NUMBERS, right=NUMBERS)
        with pytest.raises(DataError, match=r"holds 2 arrays: say which, .*two\.npz:NAME.*left"):
            read_inputs(tmp_path / "two.npz")
        with pytest.raises(DataError, match="has no array 'lift'; did you mean 'left'"):
            read_inputs(f"{tmp_path}/two.npz:lift")

    def test_need_a_row_for_every_instance(self, tmp_path: Path) -> None:
        np.save(tmp_path / "flat.npy", np.arange(4.0))
        with pytest.raises(DataError, match=r"inputs need one row per instance.*not \(4,\)"):
            read_inputs(tmp_path / "flat.npy")
        np.save(tmp_path / "texts.npy", np.array(["a", "b"]))
        assert read_inputs(tmp_path / "texts.npy").X.tolist() == ["a", "b"]


class TestIds:
    def test_from_a_file_a_column_or_a_number_mean_the_same(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", NUMBERS)
        np.save(tmp_path / "ids.npy", np.array([1, 2, 3, 4]))
        text(tmp_path / "ids.txt", "1", "2", "3", "4")
        text(tmp_path / "ids.csv", "other,item", "x,1", "y,2", "z,3", "w,4")
        text(tmp_path / "single.csv", "whatever", "1", "2", "3", "4")
        sources = [str(tmp_path / name) for name in ("ids.npy", "ids.txt", "ids.csv", "single.csv")]
        for ids in (*sources, "1.."):
            found = read_inputs(tmp_path / "x.npy", ids)
            assert found.ids.tolist() == [1, 2, 3, 4]
            assert found.ids.dtype.kind == "i"
            source = ids if ids in sources else "the numbers 1.."
            assert found.message == f"x.npy: 4 instances of 3 float64; ids from {source}"

    @pytest.mark.parametrize(
        ("lines", "ids"),
        [
            (["07", "8", "9", "10"], ["07", "8", "9", "10"]),
            (["7", "8", "9", "1" * 20], ["7", "8", "9", "1" * 20]),
            (["7", "-8", "9", "10"], [7, -8, 9, 10]),
            (["a", "8", "9", "10"], ["a", "8", "9", "10"]),
        ],
    )
    def test_are_numbers_only_where_nothing_is_lost_by_it(self, tmp_path: Path, lines: list[str], ids: Any) -> None:
        np.save(tmp_path / "x.npy", NUMBERS)
        found = read_inputs(tmp_path / "x.npy", str(text(tmp_path / "ids.txt", *lines)))
        assert found.ids.tolist() == ids

    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            (["1", "2", "3"], r"has 4 instances, but there are ids of shape \(3,\)"),
            (["a", "b", "a", "c"], "row 2: id 'a' occurs twice"),
            (["a", "b", "", "c"], "row 2: the id is empty"),
        ],
    )
    def test_that_do_not_tell_rows_apart_are_refused(self, tmp_path: Path, lines: list[str], problem: str) -> None:
        np.save(tmp_path / "x.npy", NUMBERS)
        with pytest.raises(DataError, match=problem):
            read_inputs(tmp_path / "x.npy", str(text(tmp_path / "ids.txt", *lines)))

    def test_that_are_nowhere_are_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", NUMBERS)
        with pytest.raises(DataError, match=r"key.*: neither a column of x\.npy nor a file"):
            read_inputs(tmp_path / "x.npy", "key")
        table = text(tmp_path / "t.csv", "first,second", "1,2", "3,4", "5,6", "7,8")
        with pytest.raises(DataError, match=r"t\.csv: no column of ids; columns: 'first', 'second'"):
            read_inputs(tmp_path / "x.npy", str(table))
        with pytest.raises(DataError, match="no such file"):
            read_inputs(tmp_path / "missing.npy")

    def test_of_a_table_are_its_column_with_a_usual_name(self, tmp_path: Path) -> None:
        path = text(tmp_path / "t.csv", "x1,Task ID,x2,key", "1,30,2,5", "3,20,4,6")
        found = read_inputs(path)
        assert found.ids.tolist() == [30, 20]
        assert found.X.tolist() == [[1, 2, 5], [3, 4, 6]]
        named = read_inputs(path, "key")
        assert named.ids.tolist() == [5, 6]
        assert named.X.tolist() == [[1, 30, 2], [3, 20, 4]]
        learnt = read_inputs(path, trained={"ids": "KEY"})
        assert learnt.ids.tolist() == [5, 6]
        without = read_inputs(path, trained={"ids": "gone"})
        assert without.ids.tolist() == [30, 20]

    def test_alone_are_no_features(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no columns with features; columns: 'id'"):
            read_inputs(text(tmp_path / "t.csv", "id", "1", "2"))


class TestTables:
    def test_of_numbers_are_one_array_and_others_columns_by_name(self, tmp_path: Path) -> None:
        numbers = read_inputs(text(tmp_path / "n.csv", "id,a,b", "1,2,3.5", "2,4,-1"))
        assert numbers.X.dtype == np.float32
        assert numbers.X.tolist() == [[2, 3.5], [4, -1]]
        mixed = read_inputs(text(tmp_path / "m.csv", "id,a,colour", "1,2,red", "2,,blue", "3,5,"))
        assert list(mixed.X) == ["a", "colour"]
        np.testing.assert_array_equal(mixed.X["a"], [2, np.nan, 5])
        assert mixed.X["colour"].tolist()[:2] == ["red", "blue"]
        assert mixed.n == 3
        assert mixed.message == "m.csv: 3 instances with the columns 'a', 'colour'; ids from column 'id'"
        table = read_inputs(tmp_path / "n.csv", expects="table")
        assert {name: values.tolist() for name, values in table.X.items()} == {"a": [2, 4], "b": [3.5, -1]}

    @pytest.mark.parametrize(("bad", "numeric"), [(1, True), (2, True), (3, False)])
    def test_a_column_that_is_half_numbers_is_one_of_numbers_with_mistakes(
        self, tmp_path: Path, bad: int, numeric: bool
    ) -> None:
        cells = ["x"] * bad + [str(k) for k in range(4 - bad)]
        path = text(tmp_path / "t.csv", "id,a,b", *(f"{k},{k},{cell}" for k, cell in enumerate(cells)))
        if not numeric:
            assert read_inputs(path).X["b"].tolist() == cells
            return
        with pytest.raises(DataError, match="record 1: column 'b' holds 'x', features must be numbers"):
            read_inputs(path)

    def test_an_empty_cell_among_numbers_is_named(self, tmp_path: Path) -> None:
        path = text(tmp_path / "t.csv", "id,a,b", "1,2,3", "2,4,", "3,5,6")
        with pytest.raises(DataError, match="record 2: column 'b' is empty"):
            read_inputs(path)

    def test_texts_are_the_named_the_usual_or_the_only_column_of_words(self, tmp_path: Path) -> None:
        path = text(tmp_path / "t.csv", "id,a,review,note", "1,2,so dull,x", "2,4,,y")
        assert read_inputs(path, text="review").X.tolist() == ["so dull", ""]
        assert read_inputs(path, text="note", expects="text").X.tolist() == ["x", "y"]
        assert read_inputs(path, expects="text").X.tolist() == ["so dull", ""]
        assert read_inputs(path, expects="text", trained={"text": "Note"}).X.tolist() == ["x", "y"]
        only = text(tmp_path / "only.csv", "id,a,remark", "1,2,so dull", "2,4,so warm")
        assert read_inputs(only, expects="text").X.tolist() == ["so dull", "so warm"]
        single = text(tmp_path / "single.csv", "id,a", "1,2", "2,4")
        assert read_inputs(single, expects="text").X.tolist() == ["2", "4"]
        unclear = text(tmp_path / "unclear.csv", "id,p,q", "1,one,two", "2,three,four")
        with pytest.raises(DataError, match=r"which column holds the texts.*columns: 'p', 'q'"):
            read_inputs(unclear, expects="text")
        with pytest.raises(AnnotationError, match=r"no column 'revue' for the text; did you mean 'review'"):
            read_inputs(path, text="revue")
        with pytest.raises(DataError, match="pass one of them"):
            read_inputs(path, text="review", image="note")

    def test_pictures_lie_below_the_folder_of_the_table_or_the_one_that_is_named(self, tmp_path: Path) -> None:
        pictures(tmp_path / "p", "one.png", "two.png")
        path = text(tmp_path / "t.csv", "id,a,image", "x,2,p/two.png", "y,3,p/one.png")
        for found in (
            read_inputs(path, image="image"),
            read_inputs(path, expects="pictures"),
            read_inputs(path, image="image", root=tmp_path / "p"),
        ):
            assert isinstance(found.X, Pictures)
            assert list(found.X.ids) == found.ids.tolist() == ["x", "y"]
            assert [file.name for file in found.X.files] == ["two.png", "one.png"]
            assert found.message == "t.csv: 2 pictures; ids from column 'id'"
        bare = text(tmp_path / "bare.csv", "image", "p/two.png", "p/one.png")
        assert list(read_inputs(bare, image="image").X.ids) == ["0", "1"]

    @pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
    def test_of_every_format_are_the_same_rows(self, tmp_path: Path, suffix: str) -> None:
        table = pa.table({"id": ["b", "a"], "x": [1.5, 2.5], "y": [3, 4]})
        write_table(table, tmp_path / f"t.{suffix}")
        found = read_inputs(tmp_path / f"t.{suffix}")
        assert found.ids.tolist() == ["b", "a"]
        assert found.X.tolist() == [[1.5, 3], [2.5, 4]]


class TestTextsAndFolders:
    def test_a_line_is_a_text(self, tmp_path: Path) -> None:
        path = tmp_path / "t.txt"
        path.write_text("﻿first, with a comma\n\nthird \n", encoding="utf-8")
        found = read_inputs(path)
        assert found.X.tolist() == read_lines(path) == ["first, with a comma", "", "third "]
        assert (found.ids, found.message) == (None, "t.txt: 3 texts")
        assert read_inputs(path, "5..").ids.tolist() == [5, 6, 7]
        (tmp_path / "bad.txt").write_bytes(b"caf\xe9")
        with pytest.raises(DataError, match=r"bad\.txt cannot be read as text in UTF-8"):
            read_inputs(tmp_path / "bad.txt")

    def test_a_folder_holds_pictures_that_are_called_as_the_labels_call_them(self, tmp_path: Path) -> None:
        folder = pictures(tmp_path / "p", "one.png", "two.png")
        found = read_inputs(folder)
        assert [Path(name).name for name in found.ids.tolist()] == ["one.png", "two.png"]
        assert found.message == "p: 2 pictures; ids from file names"
        assert found.called(np.array(["two", "one"])).ids.tolist() == ["one", "two"]
        with pytest.raises(DataError, match="called by their file names"):
            read_inputs(folder, "id")
        numbers = np.zeros((2, 2))
        np.save(tmp_path / "x.npy", numbers)
        rows = read_inputs(tmp_path / "x.npy", "1..")
        assert rows.called(np.array(["two"])) is rows

    def test_what_rows_are_is_said_in_words(self) -> None:
        assert describe(np.zeros((1200, 3, 4), np.float32)) == "1,200 instances of 3 x 4 float32"
        assert describe({"a": [1, 2], "b": [3, 4]}) == "2 instances with the columns 'a', 'b'"
