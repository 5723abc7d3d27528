"""Weights of labels: a column is used whole or not at all, and never without a word; and they survive every format."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.errors import CrowdwiseWarning, ReadError
from crowdwise.readers import read, write, write_table
from crowdwise.tasks.aggregate import aggregate

HEADER = "item,worker,label,weight"


def put(folder: Path, *rows: str, header: str = HEADER, name: str = "w.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


class TestColumn:
    ROWS = ("1,a,x,5", "1,b,y,1", "1,c,y,1")

    @pytest.mark.parametrize(
        ("cell", "problem"), [("", "None|''"), ("-1", "-1.0"), ("heavy", "'heavy'"), ("nan", "nan"), ("1_0", "'1_0'")]
    )
    def test_a_cell_that_is_no_weight_is_refused_by_name(self, tmp_path: Path, cell: str, problem: str) -> None:
        assert read(put(tmp_path, *self.ROWS)).annotations.votes().tolist() == [[5, 2]]
        path = put(tmp_path, *self.ROWS, f"2,a,x,{cell}")
        with pytest.raises(ReadError, match=rf"column 'weight', record 4: weight ({problem}) "):
            read(path)

    def test_a_row_without_a_label_needs_none(self, tmp_path: Path) -> None:
        assert read(put(tmp_path, *self.ROWS, "2,a,,")).annotations.votes().tolist() == [[5, 2]]

    def test_a_column_of_something_else_is_not_used_and_told(self, tmp_path: Path) -> None:
        export = read(put(tmp_path, "1,a,x,heavy", "1,b,y,light"))
        assert export.annotations.weight is None
        assert "weight not used: column 'weight', record 1: weight 'heavy' is not a number" in export.message
        assert export.extra is not None
        assert export.extra["weight"].to_pylist() == ["heavy", "light"]

    def test_decimal_commas_are_read_and_told(self, tmp_path: Path) -> None:
        path = put(tmp_path, "1;a;x;0,5", "1;b;y;1", "1;c;y;1,25", header=HEADER.replace(",", ";"))
        export = read(path)
        assert export.annotations.votes().tolist() == [[0.5, 2.25]]
        assert "weights have decimal commas: 0,5 is 0.5" in export.message
        with pytest.raises(ReadError, match=r"weight '1,000' is not a number"):  # a thousand, or one?
            read(put(tmp_path, "1;a;x;1,000", "1;b;y;1", header=HEADER.replace(",", ";")))
        with pytest.raises(ReadError, match=r"weight '1,000' is not a number"):
            read(put(tmp_path, "1;a;x;1,000", "1;b;y;2,000", header=HEADER.replace(",", ";")))

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    @pytest.mark.parametrize("mark", [".", ","])
    def test_texts_of_any_type_are_numbers(self, tmp_path: Path, kind: pa.DataType, mark: str) -> None:
        weights = pa.array([f"0{mark}5", "1", f"1{mark}25"]).cast(kind)
        table = pa.table({"item": [1, 1, 1], "worker": list("abc"), "label": list("xyy"), "weight": weights})
        write_table(table, tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet").annotations.votes().tolist() == [[0.5, 2.25]]

    @pytest.mark.parametrize("details", [True, False])
    def test_rows_of_weight_0_are_left_out_with_what_belongs_to_them(self, tmp_path: Path, details: bool) -> None:
        rows = ["1,a,x,0,p,5,person", "1,b,y,1,p,6,model", "2,a,x,0,q,7,person", "2,c,x,2,q,8,person"]
        export = read(put(tmp_path, *rows, header=f"{HEADER},text,seconds,kind"), details=details)
        kept = {row["annotator"]: row["weight"] for row in export.annotations.to_frame().to_pylist()}
        assert kept == {"b": 1, "c": 2}
        assert dict(zip(export.annotations.annotators.tolist(), export.kinds.tolist(), strict=True))["b"] == "model"
        if details:
            assert export.texts is not None
            assert export.texts.to_pylist() == ["p", "q"]
            assert export.durations is not None
            assert export.durations.tolist() == [6, 8]

    @pytest.mark.parametrize("gold", [False, True])
    def test_an_item_whose_rows_all_weigh_0_has_no_label_and_is_not_there(self, tmp_path: Path, gold: bool) -> None:
        rows = ("1,a,x,1,one,x", "2,a,x,0,,y", "2,b,x,0,two,y", "3,a,y,2,,y", "3,b,y,0,three,y", "4,b,y,0,,x")
        path = put(tmp_path, *rows, header=f"{HEADER},text,truth")
        export = read(path, gold="truth" if gold else None)
        assert export.texts is not None
        texts = dict(zip(export.annotations.instances.tolist(), export.texts.to_pylist(), strict=True))
        assert texts == {1: "one", 3: "three"}
        assert export.annotations.annotators.tolist() == ["a"]
        assert export.gold == {1: "x", 3: "y"}
        assert "left out: 4 of weight 0" in export.message
        out = tmp_path / "out.csv"
        aggregate(path, out, method="majority-vote")
        assert [line.split(",")[0] for line in out.read_text().splitlines()[1:]] == ["1", "3"]

    def test_weights_of_rows_without_a_label_are_not_looked_at(self, tmp_path: Path) -> None:
        export = read(put(tmp_path, "1,a,x,2", "1,b,,much", "1,c,?,-1", "1,d,y,1"), missing=["?"])
        assert export.annotations.weight is not None
        assert export.annotations.weight.tolist() == [2, 1]

    def test_without_any_weight_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ReadError, match="column 'weight': all weights are 0"):
            read(put(tmp_path, "1,a,x,0", "1,b,y,0.0"))


class TestWriting:
    @pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow", "json"])
    def test_weights_survive_every_format(self, tmp_path: Path, suffix: str) -> None:
        rng = np.random.default_rng(3)
        rows = [f"{i},w{j},{'xyz'[rng.integers(3)]},{rng.integers(1, 9) / 4}" for i in range(6) for j in range(4)]
        export = read(put(tmp_path, *rows, "0,w0,x,2", "0,w0,y,1"))  # with repeats
        write(export, tmp_path / f"again.{suffix}")
        again = read(tmp_path / f"again.{suffix}")

        def annotations(crowd: Any) -> list[tuple[Any, ...]]:
            return sorted(tuple(row.values()) for row in crowd.to_frame().to_pylist())

        assert annotations(again.annotations) == annotations(export.annotations)

    def test_soft_labels_become_their_likeliest_class_in_label_studio_with_a_word(self, tmp_path: Path) -> None:
        export = read(put(tmp_path, "1,a,x,0.3", "1,a,y,0.7", "2,a,x,1", "2,b,y,0.5"))
        with pytest.warns(CrowdwiseWarning, match="the class that weighs most is written, and 1 row"):
            write(export, tmp_path / "again.json")
        rows = read(tmp_path / "again.json").annotations.to_frame().to_pylist()
        assert [tuple(row.values()) for row in rows] == [(1, "a", "y", 1), (2, "a", "x", 1), (2, "b", "y", 0.5)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write(export, tmp_path / "again.csv")

    def test_a_weight_in_label_studio_must_be_one(self, tmp_path: Path) -> None:
        write(read(put(tmp_path, "1,a,x,0.5", "1,b,y,2")), tmp_path / "a.json")
        text = (tmp_path / "a.json").read_text()
        (tmp_path / "a.json").write_text(text.replace('"weight": 0.5', '"weight": -3'))
        with pytest.raises(ReadError, match="weight -3 must be a number above 0"):
            read(tmp_path / "a.json")
