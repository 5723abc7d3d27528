"""Spellings of labels: numbers by value, blanks, characters that nobody sees, and gold labels that are no class."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crowdwise.data.label_rules import alike, misspelt, settled_texts
from crowdwise.errors import ReadError
from crowdwise.readers import read, write_table

HEADER = "item,worker,label"


def table(folder: Path, *rows: str, header: str = HEADER, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def classes(path: Path, **options: Any) -> list[Any]:
    return read(path, **options).annotations.classes.tolist()


class TestNumbers:
    MIXED = ("0,a,1", "0,b,1.0", "1,a,2", "1,b,2.0")

    def test_are_one_class_by_value_beside_a_word_as_well(self, tmp_path: Path) -> None:
        assert classes(table(tmp_path, *self.MIXED)) == [1, 2]
        path = table(tmp_path, *self.MIXED, "2,a,unsure", "2,b,1")
        assert classes(path) == ["1", "2", "unsure"]
        assert "'1.0' is read as '1'; '2.0' is read as '2'" in read(path).message

    def test_spelled_unusually_are_reported_and_merged_on_request(self, tmp_path: Path) -> None:
        path = table(tmp_path, "0,a,01", "0,b,1", "1,a,+1", "1,b,-0", "2,a,0", "2,b,1")
        export = read(path)
        assert export.annotations.classes.tolist() == ["+1", "0", "01", "1"]
        assert "'+1', '01' and '1' look like one class" in export.message
        assert classes(path, clean=True) == [0, 1]

    def test_of_sections_stay_apart(self, tmp_path: Path) -> None:
        path = table(tmp_path, "0,a,1.1", "0,b,1.10", "1,a,1.0", "1,b,2.0")
        assert classes(path) == ["1.0", "1.1", "1.10", "2.0"]
        assert "'1.1' and '1.10' look like one class" in read(path).message

    @pytest.mark.parametrize("old", ["1", "1.0"])
    def test_are_renamed_and_missing_by_value(self, tmp_path: Path, old: str) -> None:
        path = table(tmp_path, "0,a,1", "0,b,1.0", "1,a,3", "1,b,3.0")
        export = read(path, map={old: "2"})
        assert export.annotations.to_frame()["label"].to_pylist() == [2, 2, 3, 3]
        assert classes(path, missing=old) == [3]
        assert "no label is" not in read(path, map={old: "2"}).message

    def test_of_a_column_of_numbers_are_renamed_by_value(self, tmp_path: Path) -> None:
        columns = {"item": [0, 0, 1, 1], "worker": list("abab")}
        write_table(pa.table(columns | {"label": [1.0, 3.0, 1.0, None]}), tmp_path / "a.parquet")
        assert classes(tmp_path / "a.parquet", map={"1": "2"}) == [2.0, 3.0]
        assert classes(tmp_path / "a.parquet", map={"1": "good"}) == ["3", "good"]
        assert classes(tmp_path / "a.parquet", missing="1") == [3.0]
        write_table(pa.table(columns | {"label": [True, False, True, True]}), tmp_path / "b.parquet")
        assert classes(tmp_path / "b.parquet", map={"true": "yes"}) == ["false", "yes"]

    def test_a_spelling_that_is_named_comes_before_an_equal_number(self, tmp_path: Path) -> None:
        assert classes(table(tmp_path, *self.MIXED), map={"1": "one", "1.0": "two"}) == ["2", "one", "two"]

    def test_that_differ_are_never_merged(self, tmp_path: Path) -> None:
        near = ["9007199254740993", "9007199254740992", "1_0", "10", "1e5", "100000"]
        path = table(tmp_path, *(f"{k // 2},w{k % 2},{label}" for k, label in enumerate(near)))
        assert sorted(classes(path, clean=True)) == sorted(near)
        assert len({alike(label) for label in near}) == len(near)


class TestUnseenCharacters:
    ROWS = ("0,ann,cat", "0,bob,cat\u200b", "1,ann,dog", "1,bob\u2060,\u202adog")

    def test_are_reported_and_merged_on_request(self, tmp_path: Path) -> None:
        path = table(tmp_path, *self.ROWS)
        message = read(path).message
        assert "'cat' and 'cat\\u200b' look like one class" in message
        assert "annotators 'bob' and 'bob\\u2060' may be the same one" in message
        assert classes(path, clean=True) == ["cat", "dog"]

    def test_stay_where_they_join_letters(self, tmp_path: Path) -> None:
        family = "\U0001f469\u200d\U0001f467"
        path = table(tmp_path, f"0,a,{family}", f"0,b,{family} ", f"1,a,{family.upper()}", "1,b,x")
        assert classes(path, clean=True) == ["x", family]


def test_blanks_at_the_ends_of_labels_are_left_out_and_counted(tmp_path: Path) -> None:
    path = table(tmp_path, "0,a,cat", "0,b,cat ", "1,a,\u00a0dog", "1,b,dog")
    assert classes(path) == ["cat", "dog"]
    assert "blanks at the ends of 2 labels are left out" in read(path).message
    assert settled_texts([" a", "a", "2.0", "2", "3.0"]) == ["a", "a", "2", "2", "3.0"]


class TestGold:
    ROWS = ("0,a,positive", "0,b,negative", "1,a,positive", "1,b,negative")

    @pytest.mark.parametrize("separately", [True, False])
    def test_a_misspelt_class_is_refused_with_the_one_it_may_be(self, tmp_path: Path, separately: bool) -> None:
        if separately:
            path = table(tmp_path, *self.ROWS)
            gold = str(table(tmp_path, "0,postive", "1,negative", header="item,gold", name="gold.csv"))
        else:
            rows = [f"{row},{truth}" for row, truth in zip(self.ROWS, ["postive", "", "negative", ""], strict=True)]
            path, gold = table(tmp_path, *rows, header=f"{HEADER},truth"), "truth"
        with pytest.raises(ReadError, match=r"gold label 'postive' \(1 time\) .* did you mean 'positive'"):
            read(path, gold=gold)
        assert read(path, gold=gold, map={"postive": "positive"}).gold == {0: "positive", 1: "negative"}
        listed = read(path, gold=gold, classes=["positive", "negative", "postive"])
        assert listed.gold == {0: "postive", 1: "negative"}

    def test_a_class_that_nobody_chose_is_kept_and_told(self, tmp_path: Path) -> None:
        gold = str(table(tmp_path, "0,neutral", "1,negative", header="item,gold", name="gold.csv"))
        export = read(table(tmp_path, *self.ROWS), gold=gold)
        assert export.gold == {0: "neutral", 1: "negative"}
        assert "nobody chose 'neutral', which is gold of 1 row" in export.message

    def test_of_another_vocabulary_is_refused(self, tmp_path: Path) -> None:
        gold = str(table(tmp_path, "0,pos", "1,neg", header="item,gold", name="gold.csv"))
        path = table(tmp_path, *self.ROWS)
        with pytest.raises(ReadError, match=r"none of the gold labels .* is among the labels, which are 'negative'"):
            read(path, gold=gold)
        renamed = read(path, gold=gold, map={"pos": "positive", "neg": "negative"})
        assert renamed.gold == {0: "positive", 1: "negative"}

    def test_is_not_renamed_twice(self, tmp_path: Path) -> None:
        """Names that change places: labels and gold labels change them once."""
        gold = str(table(tmp_path, "0,positive", "1,negative", header="item,gold", name="gold.csv"))
        swap = {"positive": "negative", "negative": "positive"}
        export = read(table(tmp_path, *self.ROWS), gold=gold, map=swap)
        assert export.gold == {0: "negative", 1: "positive"}
        assert export.annotations.to_frame()["label"].to_pylist()[:2] == ["negative", "positive"]

    def test_ids_with_zeros_in_front_are_other_ids(self, tmp_path: Path) -> None:
        """As between a table and another: 001 is not 1."""
        path = table(tmp_path, "1,a,positive", "1,b,positive", "2,a,negative")
        gold = table(tmp_path, "001,negative", "002,positive", header="item,gold", name="gold.csv")
        with pytest.raises(ReadError, match=r"none of its 2 instances \(such as '001'\) is in the crowd"):
            read(path, gold=str(gold))
        gold = table(tmp_path, "001,negative", "2,negative", header="item,gold", name="gold.csv")
        export = read(path, gold=str(gold))
        assert export.gold == {2: "negative"}
        assert "1 more not in the crowd" in export.message

    @pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.string()])
    def test_of_a_table_with_types_is_found_by_value(self, tmp_path: Path, kind: pa.DataType) -> None:
        numbers = pa.array([1, 2]).cast(kind)
        write_table(pa.table({"item": numbers, "gold": numbers}), tmp_path / "gold.parquet")
        export = read(table(tmp_path, "1,a,1", "1,b,2", "2,a,2"), gold=str(tmp_path / "gold.parquet"))
        assert export.gold == {1: 1, 2: 2}


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("postive", ["positive", "negative"], "positive"),
        ("psoitive", ["positive"], "positive"),
        ("Negativ", ["negative"], "negative"),
        ("male", ["female"], None),
        ("sad", ["bad"], None),
        ("grade 4", ["grade 3"], None),
        ("fox", ["cat", "dog"], None),
    ],
)
def test_what_is_misspelt(name: str, known: list[str], meant: str | None) -> None:
    assert misspelt(name, known) == meant


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("us")])
def test_rules_for_labels_hold_for_dates(tmp_path: Path, kind: pa.DataType) -> None:
    """They are compared as texts, also where a file has a type for them."""
    days = [datetime.datetime(2026, 1, day) for day in (1, 2, 3, 2, 1, 3)]
    labels = pa.array(days, pa.timestamp("us")).cast(kind)
    table = pa.table({"item": [1, 1, 1, 2, 2, 2], "worker": list("abcabc"), "label": labels})
    write_table(table, tmp_path / "a.parquet")
    plain = read(tmp_path / "a.parquet")
    first, second, third = (str(label) for label in labels.cast(pa.string()).to_pylist()[:3])
    assert plain.annotations.n_classes == 3
    left = read(tmp_path / "a.parquet", missing=[first])
    assert [str(name) for name in left.annotations.classes] == [second, third]
    assert len(left.annotations) == 4
    renamed = read(tmp_path / "a.parquet", map={third: "later"})
    assert sorted(map(str, renamed.annotations.classes)) == [first, second, "later"]
    with pytest.raises(ReadError, match="is none of the classes"):
        read(tmp_path / "a.parquet", classes=[first, second])


@pytest.mark.parametrize(("old", "labels", "gold"), [("2.25", "1.5", "1.5"), ("9", "2.25", "other")])
def test_gold_of_numbers_stays_gold_where_a_new_name_is_a_word(
    tmp_path: Path, old: str, labels: str, gold: str
) -> None:
    """A new name makes texts of the labels, or of the gold labels alone."""
    truth = [1.5, 1.5, 9.0, 9.0] if old == "9" else [1.5, 1.5, None, None]
    table = pa.table({"item": [1, 1, 2, 2], "worker": list("abab"), "label": [1.5, 2.25, 1.5, 1.5], "gold": truth})
    write_table(table, tmp_path / "a.parquet")
    export = read(tmp_path / "a.parquet", map={old: "other"}, gold="gold")
    assert export.gold is not None
    assert export.gold[1] == "1.5"
    assert gold in map(str, export.gold.values())
    assert labels in map(str, export.annotations.classes)


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_gold_that_has_a_type_of_dates_is_gold_of_labels_that_are_texts(tmp_path: Path, kind: pa.DataType) -> None:
    truth = pa.array([datetime.date(2026, 1, 2), None, datetime.date(2026, 1, 3), None], pa.date32()).cast(kind)
    labels = ["2026-01-02", "2026-01-03", "2026-01-03", "2026-01-03"]
    table = pa.table({"item": [1, 1, 2, 2], "worker": list("abab"), "label": labels, "gold": truth})
    write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").gold == {1: "2026-01-02", 2: "2026-01-03"}


@pytest.mark.parametrize(("labels", "name"), [(("-0", "0.0"), "0"), (("1.0", "1.00"), "1")])
def test_equal_numbers_are_one_class_where_nobody_writes_it_plainly(
    tmp_path: Path, labels: tuple[str, str], name: str
) -> None:
    rows = [f"1,a,{labels[0]}", f"1,b,{labels[1]}", "2,a,unsure", "2,b,unsure"]
    (tmp_path / "a.csv").write_text("\n".join(["item,worker,label", *rows]))
    assert sorted(read(tmp_path / "a.csv").annotations.classes) == [name, "unsure"]
