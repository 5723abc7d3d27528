"""Columns that may be taken for another: a word about each; rows that are there twice; and frames by the rules of files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise.annotations import Annotations
from crowdwise.errors import AnnotationError, CrowdwiseWarning, ReadError
from crowdwise.readers import read, read_table


def put(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


class TestRoles:
    def test_a_header_that_is_read_as_a_row_is_told(self, tmp_path: Path) -> None:
        rows = ("u1,ann,x", "u1,bob,x", "u2,ann,y", "u2,bob,x")
        names = ["item", "annotator", "label"]
        export = read(put(tmp_path / "a.csv", "URL,Wer,Urteil", *rows), columns=names)
        assert len(export.annotations) == 5
        told = (
            "record 1 ('URL', 'Wer', 'Urteil') is read as a row, but may be a header: none of its values occurs again"
        )
        assert told in export.message
        for first in ("u2,cem,z", "u3,ann,z", "u3,cem,x"):  # a value that occurs again
            assert "may be a header" not in read(put(tmp_path / "b.csv", first, *rows), columns=names).message
        assert "may be a header" not in read(put(tmp_path / "c.csv", *rows), columns=names).message

    @pytest.mark.parametrize(
        "header", ["item,worker,Label,label", "item,worker,label,Label", "item,worker,LABEL_,label"]
    )
    def test_of_names_that_differ_by_case_the_usual_spelling_is_taken_and_told(
        self, tmp_path: Path, header: str
    ) -> None:
        names = header.split(",")
        cells = {name: "right" if name == "label" else "wrong" for name in names[2:]}
        path = put(tmp_path / "a.csv", header, f"1,a,{','.join(cells.values())}")
        export = read(path)
        assert export.annotations.classes.tolist() == ["right"]
        (other,) = (name for name in cells if name != "label")
        assert f"column {other!r} differs from 'label' by case only, which is the label" in export.message
        assert "by case only" not in read(path, label=other).message
        assert read(path, label=other).annotations.classes.tolist() == ["wrong"]

    @pytest.mark.parametrize("suffix", ["parquet", "arrow"])
    def test_columns_of_the_same_name_are_refused(self, tmp_path: Path, suffix: str) -> None:
        values = [pa.array([1]), pa.array(["a"]), pa.array(["x"]), pa.array(["y"])]
        table = pa.Table.from_arrays(values, ["item", "worker", "label", "label"])
        path = tmp_path / f"a.{suffix}"
        if suffix == "parquet":
            pq.write_table(table, path)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        with pytest.raises(ReadError, match="several columns are called 'label'"):
            read(path)

    def test_a_constant_that_is_taken_for_an_id_is_told(self, tmp_path: Path) -> None:
        rows = [f"sentiment,s{k // 2},w{k % 2},{'xy'[k % 2]},t" for k in range(8)]
        path = put(tmp_path / "a.csv", "task,sample,worker,label,user", *rows)
        assert "all labels have the same instance, 'sentiment': if 'task' is not the column" in read(path).message
        right = read(path, instance="sample")
        assert right.annotations.shape == (4, 2)
        assert "have the same" not in right.message
        assert "all labels have the same annotator, 't'" in read(path, annotator="user").message


class TestCopies:
    ROWS = ("1,a,x,10", "1,b,x,11", "2,a,y,12", "2,b,y,13")

    def test_of_rows_are_counted(self, tmp_path: Path) -> None:
        """An export that is pasted twice, with one more label that is only repeated."""
        path = put(tmp_path / "a.csv", "item,worker,label,time", *self.ROWS, *self.ROWS, "1,a,x,99", "2,a,x,12")
        message = read(path).message
        assert "exact copies of earlier rows: 4 (duplicates=first leaves repeats out)" in message
        assert "kept 6 repeats" in message
        assert "5 rows with instance, annotator and label of an earlier one" in read(path, details=False).message
        assert "copies" not in read(path, duplicates="first").message

    @pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
    def test_of_rows_with_columns_of_any_type(self, tmp_path: Path, suffix: str) -> None:
        frame = pd.DataFrame(
            {
                "item": [1, 1, 1, 1],
                "worker": ["a"] * 4,
                "label": ["x"] * 4,
                "tags": [["p"], ["p"], ["q"], ["p"]],
                "cost": [0.5, 0.5, 0.5, None],
            }
        )
        path = tmp_path / f"a.{suffix}"
        frame.to_json(path, orient="records", lines=True) if suffix == "jsonl" else frame.to_parquet(path)
        assert "exact copies of earlier rows: 1 " in read(path).message

    def test_where_nothing_repeats_nothing_is_told(self, tmp_path: Path) -> None:
        assert (
            "cop"
            not in read(put(tmp_path / "b.csv", "item,worker,label,time", *self.ROWS)).message.partition("otherwise)")[
                2
            ]
        )


class TestModels:
    def test_left_out_of_a_table_leave_no_trace(self, tmp_path: Path) -> None:
        rows = ("1,m,x,model,2", "1,a,y,person,3", "2,m,x,model,2", "3,b,x,person,1")
        path = put(tmp_path / "a.csv", "item,worker,label,kind,weight", *rows)
        crowd = read(path, models=False).annotations
        expected = read(put(tmp_path / "b.csv", "item,worker,label,weight", "1,a,y,3", "3,b,x,1")).annotations
        assert crowd == expected
        assert "left out: 2 by models" in read(path, models=False).message
        only = put(tmp_path / "c.csv", "item,worker,label,kind", "1,m,x,model")
        with pytest.raises(ReadError, match=r"there are no annotations \(left out: 1 by models\)"):
            read(only, models=False)


FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table, "mapping": dict}


class TestFrames:
    """A table in memory is read as the same table in a file."""

    TABLE: ClassVar[dict[str, list[Any]]] = {
        "item": [1, 1, 2, 2, 3, 3],
        "worker": list("ababab"),
        "label": ["cat", "cat ", "Cat", "", None, "dog"],
    }

    @pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
    @pytest.mark.parametrize("clean", [True, False])
    def test_by_the_rules_of_files(self, tmp_path: Path, make: Any, clean: bool) -> None:
        pd.DataFrame(self.TABLE).to_parquet(tmp_path / "a.parquet")
        file = read(tmp_path / "a.parquet", clean=clean)
        with pytest.warns(CrowdwiseWarning, match="left out: 2 rows without a label; blanks at the ends of 1 label"):
            crowd = Annotations.from_frame(make(self.TABLE), clean=clean)
        assert crowd == file.annotations
        assert crowd.classes.tolist() == (["cat", "dog"] if clean else ["Cat", "cat", "dog"])

    def test_a_list_of_classes_is_taken_as_it_is_spelled(self) -> None:
        table = {"item": [1, 1], "worker": ["a", "b"], "label": ["cat ", "cat"]}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert Annotations.from_frame(table, classes=["cat", "cat "]).label.tolist() == [1, 0]
        with pytest.raises(AnnotationError, match="'cat ' is unknown"):
            Annotations.from_frame(table, classes=["cat"])

    def test_weights_follow_the_rows_that_have_a_label(self) -> None:
        table = {"item": [1, 2, 3], "worker": ["a"] * 3, "label": ["x", "", "y"], "w": [1.0, None, 3.0]}
        with pytest.warns(CrowdwiseWarning, match="left out: 1 row without a label"):
            crowd = Annotations.from_frame(table, weight="w")
        assert crowd.to_frame().to_pylist() == [
            {"instance": 1, "annotator": "a", "label": "x", "weight": 1.0},
            {"instance": 3, "annotator": "a", "label": "y", "weight": 3.0},
        ]

    @pytest.mark.parametrize(
        ("values", "names"),
        [
            (pd.period_range("2026-01", periods=2, freq="M"), ["2026-01", "2026-02"]),
            (pd.cut([1, 5], [0, 3, 6]), ["(0, 3]", "(3, 6]"]),
            (pd.IntervalIndex.from_tuples([(0, 1), (1, 2)]), ["(0, 1]", "(1, 2]"]),
            (pd.Categorical([7, 5]), [5, 7]),
        ],
        ids=["periods", "cut", "intervals", "categories"],
    )
    def test_types_of_pandas_are_what_pandas_shows(self, values: Any, names: list[Any]) -> None:
        frame = pd.DataFrame({"item": [0, 0], "worker": ["a", "b"], "label": values})
        assert Annotations.from_frame(frame).classes.tolist() == names
        assert Annotations.from_frame(pa.Table.from_pandas(frame)).classes.tolist() == names
        assert len(Annotations.from_frame(frame, "label", "worker", "item").instances) == 2

    def test_columns_that_differ_in_length_are_named(self) -> None:
        with pytest.raises(AnnotationError, match="column 'item' has 2, column 'worker' has 1"):
            Annotations.from_frame({"item": [1, 2], "worker": ["a"], "label": ["x", "y"]})

    def test_what_is_no_table_is_refused(self) -> None:
        for given in (3, "item", [1, 2], np.zeros(3)):
            with pytest.raises(AnnotationError, match=r"expected a table|dense"):
                Annotations.from_frame(given)


def test_read_table_tells_the_same(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "item,worker,Label,label", "1,a,x,p", "1,a,x,q")
    assert "by case only" in read_table(path).message
