"""Small things that readers understand: places, times, numbers, layouts, headers, encodings; and what is written back."""

from __future__ import annotations

import codecs
import io
import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.annotations import Annotations
from crowdwise.errors import AnnotationError, ConfigError, CrowdwiseWarning, DataError, ReadError
from crowdwise.readers import _doubts, _sheets, read, write
from crowdwise.readers._export import ReadOptions
from crowdwise.readers._node import Node, decoded, parse_jsonl, parse_text, probability, seconds, storable, ticks
from crowdwise.readers._text import Layout, bare_suffix, encoding_of, head, packing
from crowdwise.readers._together import _one_column
from crowdwise.readers.write import output_format, write_labels

NEW_YEAR = 1_767_225_600  # 2026-01-01 in UTC, in seconds since 1970


class TestTimes:
    @pytest.mark.parametrize(
        "value",
        [
            NEW_YEAR,
            NEW_YEAR * 1000,
            NEW_YEAR * 1_000_000,
            float(NEW_YEAR),
            str(NEW_YEAR),
            "2026-01-01",
            " 2026-01-01T00:00:00Z ",
            "2026-01-01T02:00:00+02:00",
            "Wed Dec 31 16:00:00 PST 2025",
            datetime(2026, 1, 1),
            datetime(2026, 1, 1, tzinfo=UTC),
        ],
    )
    def test_are_known_in_every_spelling(self, value: Any) -> None:
        assert ticks(value) == NEW_YEAR * 1_000_000

    @pytest.mark.parametrize("value", [True, None, "soon", 9.9e7, 1e17, "Wed Dec 31 16:00:00 XYZ 2025", [], "nan"])
    def test_that_are_none_are_not_guessed(self, value: Any) -> None:
        assert ticks(value) is None

    def test_are_seconds_milliseconds_or_microseconds_by_their_size(self) -> None:
        for value, scale in ((1e8, 1e6), (1e11 - 1, 1e6), (1e11, 1e3), (1e14 - 1, 1e3), (1e14, 1)):
            assert ticks(value) == pytest.approx(value * scale, rel=1e-14)

    def test_durations_are_numbers_of_0_or_more(self) -> None:
        values = ["1.5", 0, timedelta(minutes=2), -1, "much", True, float("inf"), None, 10**400]
        assert [seconds(value) for value in values] == [1.5, 0, 120, None, None, None, None, None, None]
        assert [probability(value) for value in (0, 1, "0.25", 1.01, -0.1)] == [0, 1, 0.25, None, None]


class TestPlaces:
    def test_of_values_are_named_from_the_record_on(self) -> None:
        record = Node({"a": {"b": [1, {"c": None, "d": ""}]}}, "record 3")
        inner = record.need("x", "a").list("b")[1]
        assert inner.where == "record 3, a.b[1]"
        assert inner.get("c") is None
        assert inner.get("d").where == "record 3, a.b[1].d"
        assert record.first("x", "a").where == "record 3, a"
        with pytest.raises(ReadError, match=r"record 3, a\.b\[1\]: field 'x' or 'y' is missing"):
            inner.need("x", "y")
        with pytest.raises(ReadError, match=r"record 3, a\.b: expected an object"):
            record.need("a").record("b")
        with pytest.raises(ReadError, match=r"record 3, a: expected a list"):
            record.list("a")
        with pytest.raises(ReadError, match="expected text, got 1"):
            Node({"a": 1}, "x").text("a")
        assert record.list("none") == []

    @pytest.mark.parametrize(
        ("value", "label", "known"),
        [(True, "true", None), (2, 2, 2), (2.5, 2.5, None), ("é", "é", "é"), ("", None, None), (None, None, None)],
    )
    def test_labels_and_ids_are_texts_or_numbers(self, value: Any, label: Any, known: Any) -> None:
        for expected, find in ((label, Node(value, "x").label), (known, Node(value, "x").id)):
            if expected is None:
                with pytest.raises(ReadError, match="expected"):
                    find()
            else:
                assert find() == expected
        with pytest.raises(ReadError, match="expected a label"):
            Node(float("nan"), "x").label()

    def test_long_values_are_cut_and_half_pairs_refused(self) -> None:
        for size, shown in ((58, f"got '{'x' * 58}'$"), (59, f"got '{'x' * 56}\\.\\.\\.$")):
            with pytest.raises(ReadError, match=shown):
                Node("x" * size, "r").fields()
        with pytest.raises(ReadError, match="half of a surrogate pair"):
            Node("\ud800", "x").id()
        assert storable("a\ud800é") == "a?é"

    def test_of_broken_json_are_line_and_character(self) -> None:
        assert [node.value for node in parse_jsonl(b'{"a": 1}\n\n {"a": 2}\n', "")] == [{"a": 1}, {"a": 2}]
        with pytest.raises(ReadError, match="line 3, character 7: not valid JSON"):
            parse_jsonl(b'{"a": 1}\n\n{"a": }', "")
        with pytest.raises(ReadError, match=r"^line 2: expected an object"):
            parse_jsonl(b'{"a": 1}\n[1]', "")
        with pytest.raises(ReadError, match=r"^f, line 5: not usable JSON"):
            parse_text("[" * 100_000, "f, ", 5)
        with pytest.raises(ReadError, match="line 2: byte 0xe9 is not UTF-8"):
            decoded(b"a\ncaf\xe9", "")
        with pytest.raises(ReadError, match="the file is UTF-16"):
            decoded("a".encode("utf-16"), "")
        assert decoded("﻿é".encode(), "") == "é"


class TestLayouts:
    @pytest.mark.parametrize(
        ("given", "separator"),
        [("tab", "\t"), ("TAB", "\t"), ("semicolon", ";"), ("pipe", "|"), ("space", " "), (",", ",")],
    )
    def test_separators_have_names(self, given: str, separator: str) -> None:
        assert Layout.of(None, given, None, None).separator == separator

    @pytest.mark.parametrize("separator", ["", ",,", '"', "\n", "é", "comas"])
    def test_a_separator_is_one_character(self, separator: str) -> None:
        with pytest.raises(ConfigError, match="one character is needed, or tab"):
            Layout.of(None, separator, None, None)

    @pytest.mark.parametrize("columns", [[], ["a", ""], ["a", "b", "a"]])
    def test_columns_have_names_that_differ(self, columns: list[str]) -> None:
        with pytest.raises(ConfigError, match="takes the name of every column, none of them twice"):
            Layout.of(None, None, columns, None)
        assert Layout.of(None, None, ["a", "b"], None).columns == ("a", "b")

    def test_encodings_are_those_of_text(self) -> None:
        assert Layout.of("Latin-1", None, None, None).encoding == "iso8859-1"
        for name in ("base64", "utf-7000"):
            with pytest.raises(ConfigError, match=f"unknown encoding='{name}'"):
                Layout.of(name, None, None, None)

    @pytest.mark.parametrize(
        ("lines", "names", "separator", "data"),
        [
            (("a;b,c", "1;2", "3;4"), ["a", "b,c"], ";", 1),  # by commas, the lines would differ in width
            (("a,b", "1;2,3", "4;5,6"), ["a", "b"], ",", 1),
            (("", " ", "a|b", "1|2"), ["a", "b"], "|", 3),
            (("sep=;", "a;b,c"), ["a", "b,c"], ";", 2),
            (('"a', 'x",b', "1,2"), ["a\nx", "b"], ",", 2),
            (("a", "1"), ["a"], ",", 1),
            (("a\tb,c", "1\t2,3"), ["a\tb", "c"], ",", 1),
        ],
    )
    def test_a_header_is_the_first_line_that_is_not_blank(
        self, tmp_path: Path, lines: tuple[str, ...], names: list[str], separator: str, data: int
    ) -> None:
        path = tmp_path / "a.csv"
        path.write_text("\n".join(lines) + "\n")
        found = head(path)
        assert (found.names, found.separator, found.data) == (names, separator, data)

    def test_packed_files_are_known_by_their_last_suffix(self) -> None:
        names = ["a.csv", "a.csv.gz", "A.TSV.ZST", "a.gz", "a.b.parquet"]
        assert [packing(Path(name)) for name in names] == ["", ".gz", ".zst", ".gz", ""]
        assert [bare_suffix(Path(name)) for name in names] == ["csv", "csv", "tsv", "a", "parquet"]

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    @pytest.mark.parametrize("name", ["Ünal", "Дима", "ann"])
    def test_unicode_is_told_by_its_mark_or_its_zeros(self, tmp_path: Path, encoding: str, name: str) -> None:
        path, rows = tmp_path / "a.csv", [f"item {k},{name},{'xy'[k % 2]}" for k in range(40)]
        path.write_bytes("\n".join(["item,worker,label", *rows]).encode(encoding))
        found = read(path).annotations
        assert found.annotators.tolist() == [name]
        assert found.label.tolist() == [0, 1] * 20
        assert codecs.lookup(encoding_of(path)).name.startswith(codecs.lookup(encoding).name[:6].rstrip("-"))

    def test_too_little_text_to_tell_is_the_usual_encoding(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_bytes("item,worker,label\n1,José,x\n2,José,y\n".encode("cp1252"))
        assert read(path).annotations.annotators.tolist() == ["José"]
        path.write_bytes("item,worker,label\n1,Jos\xff,x\n2,ann,y\n".encode("latin-1"))
        with pytest.raises(ReadError, match="line 2: byte 0xff is not UTF-8"):
            read(path)
        path.write_bytes("item,worker,label\n1,é,x\n2,é,y\n".encode() + b"3,\xe9,x\n")
        with pytest.raises(ReadError, match="line 4: byte 0xe9 is not UTF-8"):  # damaged, not another encoding
            read(path)


class TestChoices:
    def test_a_question_is_the_only_one_or_named(self) -> None:
        assert ReadOptions().choose(["mood", "mood"]) == "mood"
        assert ReadOptions(question="topic").choose(["mood", "topic"]) == "topic"
        for options, questions, problem in (
            (ReadOptions(), [], "no question was answered by choosing a class"),
            (ReadOptions(), ["mood", "topic"], "2 questions were answered: 'mood', 'topic'"),
            (ReadOptions(question="moot"), ["mood"], "no question 'moot'; did you mean 'mood'.*questions: 'mood'"),
            (ReadOptions(question="moot"), [], "questions: none"),
        ):
            with pytest.raises(ReadError, match=problem):
                options.choose(questions)

    def test_of_several_choices_none_is_taken_silently(self) -> None:
        two, one, none = (Node(value, "r") for value in (["x", "y"], ["x"], []))
        assert [ReadOptions().label_of(each) for each in (one, none, None)] == ["x", None, None]
        assert ReadOptions(several="first").label_of(two) == "x"
        assert ReadOptions(several="skip").label_of(two) is None
        with pytest.raises(ReadError, match="r: 2 choices, but one label is read"):
            ReadOptions().label_of(two)

    @pytest.mark.parametrize(
        ("weight", "problem"),
        [
            (["x", "y"], "weight must hold numbers"),
            ([1, 0], "row 1: weight 0 must be"),
            ([1, np.inf], "row 1: weight inf"),
        ],
    )
    def test_weights_are_numbers_above_0(self, weight: Any, problem: str) -> None:
        with pytest.raises(AnnotationError, match=problem):
            Annotations.from_triples([0, 1], [0, 0], [0, 1], weight=weight)


class TestWriting:
    @pytest.mark.parametrize(
        ("name", "to", "format"),
        [
            ("a.csv", "auto", "table"),
            ("a.JSON", "auto", "label-studio"),
            ("a.jsonl.gz", "crowd-kit", "crowd-kit"),
            ("a.json", "table", None),
            ("a.csv", "label-studio", None),
            ("a.csv", "tables", None),
        ],
    )
    def test_a_format_goes_with_its_suffix(self, name: str, to: str, format: str | None) -> None:
        if format is None:
            with pytest.raises((DataError, ConfigError), match=r"written as|did you mean 'table'"):
                output_format(Path(name), to)
        else:
            assert output_format(Path(name), to) == format

    def test_columns_of_one_name_get_numbers(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("item,worker,label,instance,gold\na,ann,x,7,x\nb,ann,y,8,x\n")
        export = read(path, instance="item", gold="gold")
        write(export, tmp_path / "b.parquet")
        back = read(tmp_path / "b.parquet", instance="instance")
        assert back.annotations == export.annotations
        assert back.gold == export.gold == {"a": "x", "b": "x"}
        assert [str(value) for value in back.extra.column("instance 2").to_pylist()] == ["7", "8"]

    def test_times_that_are_not_known_stay_empty(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("item,worker,label,timestamp\na,ann,x,2026-01-02T03:04:05Z\nb,ann,y,\n")
        write(read(path), tmp_path / "b.csv")
        assert read(tmp_path / "b.csv").timestamps.astype(str).tolist() == ["2026-01-02T03:04:05.000000", "NaT"]

    def test_soft_labels_are_their_heaviest_class_for_label_studio(self, tmp_path: Path) -> None:
        table = tmp_path / "a.csv"
        rows = ["a,ann,x,0.3", "a,ann,y,0.7", "a,bob,x,2", "b,bob,x,1", "b,bob,y,1", "b,ann,y,0.5"]
        table.write_text("\n".join(["item,worker,label,weight", *rows]) + "\n")
        with pytest.warns(CrowdwiseWarning, match="1 row"):
            write(read(table), tmp_path / "a.json")
        tasks = json.loads((tmp_path / "a.json").read_text())
        found = {
            (task["id"], one["completed_by"]["email"], one["result"][0]["value"]["choices"][0]): one["result"][0].get(
                "meta"
            )
            for task in tasks
            for one in task["annotations"]
        }
        assert found == {
            ("a", "ann", "y"): None,
            ("a", "bob", "x"): {"weight": 2.0},
            ("b", "bob", "x"): None,
            ("b", "bob", "y"): None,
            ("b", "ann", "y"): {"weight": 0.5},
        }

    def test_labels_become_predictions_of_their_own_model(self, tmp_path: Path) -> None:
        table = tmp_path / "a.csv"
        table.write_text("item,worker,label,text\na,ann,x,first\nb,ann,y,second\n")
        export = read(table)
        labels = pa.table({"instance": ["b"], "label": ["x"], "confidence": [0.75]})
        with pytest.raises(ConfigError, match="needs export="):
            write_labels(labels, tmp_path / "l.json", "label-studio")
        write_labels(labels, tmp_path / "l.json", export=export, model="glad")
        tasks = json.loads((tmp_path / "l.json").read_text())
        assert [task["data"] for task in tasks] == [{"text": "first"}, {"text": "second"}]
        assert [len(task["predictions"]) for task in tasks] == [0, 1]
        assert tasks[1]["predictions"][0]["model_version"] == "crowdwise-glad"
        assert tasks[1]["predictions"][0]["score"] == 0.75
        assert tasks[1]["predictions"][0]["result"][0]["value"] == {"choices": ["x"]}
        write_labels(labels, tmp_path / "l.csv", "crowd-kit")
        assert (tmp_path / "l.csv").read_text().splitlines()[0].replace('"', "") == "task,agg_label,confidence"

    def test_parts_of_a_column_have_one_type(self) -> None:
        numbers, texts, blank = pa.array([1, 2]), pa.array(["x"]), pa.nulls(2)
        for parts, values in (
            ([numbers, blank], [1, 2, None, None]),
            ([numbers, texts, blank], ["1", "2", "x", None, None]),
            ([blank, blank], [None] * 4),
            ([numbers, pa.array([1.0, 2.5])], ["1", "2", "1", "2.5"]),
        ):
            kinds = {part.type for part in parts if part.null_count < len(part)}
            assert _one_column(parts, kinds).to_pylist() == values


def sheet_xml(rows: str) -> Any:
    """The elements of a sheet, each as it ends, as they come from a file."""
    text = f'<worksheet xmlns="http://example.org/main"><sheetData>{rows}</sheetData></worksheet>'
    return io.BytesIO(text.encode())


class TestSheets:
    LONG = str(2**53 + 1)

    def archive(self, path: Path, rows: str) -> zipfile.ZipFile:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("sheet.xml", sheet_xml(rows).read())
        return zipfile.ZipFile(path)

    def test_cells_are_where_they_say_or_next_to_each_other(self, tmp_path: Path) -> None:
        cell = f"<v>{self.LONG}</v>"
        rows = [
            f'<row r="3"><c r="B3">{cell}</c><c>{cell}</c><c r="AB3">{cell}</c></row>',
            f'<row><c>{cell}</c><c t="s">{cell}</c><c t="n">{cell}</c><c><v>12</v></c><c/></row>',
            f'<row r="9"><c r="a9">{cell}</c></row>',
        ]
        with self.archive(tmp_path / "a.xlsx", "".join(rows)) as file:
            found = _sheets._long_of_xlsx(file, "sheet.xml")
        assert sorted(found) == [(2, 1), (2, 2), (2, 27), (3, 0), (3, 2), (8, 0)]
        assert set(found.values()) == {self.LONG}

    def test_a_sheet_spans_to_its_last_cell_and_counts_shared_texts(self) -> None:
        rows = '<row><c r="C2" t="s"><v>1</v></c><c r="A7" t="s"><v>0</v></c><c t="s"><v>9</v></c><c t="s"/><c><v>1</v></c></row>'
        elements = ((_sheets._tag(element), element) for _, element in ElementTree.iterparse(sheet_xml(rows)))
        assert _sheets._span_of_xlsx(elements, [5, 100]) == (7 * 3, 5, 105)

    def test_repeated_cells_and_rows_count_as_often_as_they_stand(self) -> None:
        wide, tall = "number-columns-repeated", "number-rows-repeated"
        cells = f'<c {wide}="2"><p>abc</p></c><c {wide}="5"/><c><p>d</p></c><c {wide}="9"/>'
        last = "<table-row><c><p>e</p></c></table-row>"
        rows = f'<table-row {tall}="3">{cells}</table-row><table-row {tall}="1000"><c/></table-row>{last}'
        elements = ((_sheets._tag(element), element) for _, element in ElementTree.iterparse(sheet_xml(rows)))
        assert _sheets._span_of_ods(elements) == ((3 + 1) * 8, 2 * 8, 3 * (2 * 3 + 1) + 1)

    @pytest.mark.parametrize(("letters", "number"), [("A", 1), ("z", 26), ("AA", 27), ("XFD", 16384)])
    def test_columns_are_numbers_in_letters(self, letters: str, number: int) -> None:
        assert _sheets._column(letters) == number

    @pytest.mark.parametrize(
        ("text", "long"),
        [
            (str(2**53), True),
            (f" -{2**53} ", True),
            (str(2**53 - 1), False),
            ("1e30", False),
            ("٣" * 20, False),
            ("", False),
        ],
    )
    def test_numbers_that_floats_round_are_long(self, text: str, long: bool) -> None:
        assert _sheets._is_long(text) is long

    def test_cells_are_texts_as_in_a_csv_file(self) -> None:
        cells = [None, "", True, 3.0, 2.5, -0.0, float(2**53), datetime(2026, 1, 2, 3), "x"]
        assert [_sheets._text(cell) for cell in cells] == [
            *(None, None, "true", "3", "2.5", "0", "9007199254740992.0", "2026-01-02T03:00:00", "x")
        ]

    def test_a_name_twice_is_refused_and_none_is_a_number(self) -> None:
        assert _sheets._names(Path("x"), ["a", "", "b", ""]) == ["a", "column 2", "b", "column 4"]
        with pytest.raises(DataError, match="x: the header names column 'a' twice"):
            _sheets._names(Path("x"), ["b", "a", "a"])


class TestDoubts:
    """Rows and ids that are probably no labels."""

    @staticmethod
    def rows(*more: tuple[str, str, str], number: int = 30) -> Annotations:
        rows = [(f"i{k // 3}", f"w{k % 3}", "xy"[k % 2]) for k in range(number)] + [*more]
        return Annotations.from_frame(dict(zip(("item", "worker", "label"), zip(*rows, strict=True), strict=True)))

    @pytest.mark.parametrize(
        ("alone", "number", "told"),
        [(1, 30, True), (3, 30, True), (4, 60, False), (2, 18, True), (2, 17, False), (0, 30, False)],
    )
    def test_a_few_rows_unlike_all_others_are_told(self, alone: int, number: int, told: bool) -> None:
        every = self.rows(*((f"only {k}", f"nobody {k}", f"none {k}") for k in range(alone)), number=number)
        found = _doubts.about_doubtful_rows(every, "row {}".format)
        assert bool(found) is told
        if told:
            assert found[0].startswith(f"row {number} ('only 0', 'nobody 0', 'none 0') is read as a label, but may be")
            assert ("more like it" in found[0]) is (alone > 1)
        if alone == 1:
            assert _doubts.about_doubtful_rows(every, "row {}".format, skipped=number) == []

    def test_a_row_with_one_value_that_occurs_again_is_a_label(self) -> None:
        for row in (("i0", "new", "new"), ("new", "w0", "new"), ("new", "new", "x")):
            assert _doubts.about_doubtful_rows(self.rows(row), str) == []

    def test_ids_that_say_that_there_is_none_are_told(self) -> None:
        rows = ((" N/A ", "w0", "x"), ("Total", "None", "y"), ("Total", "w1", "y"))
        assert [one.split(":")[0] for one in _doubts.about_doubtful_ids(self.rows(*rows))] == [
            "' N/A ' counts as an instance, with 1 label",
            "'None' counts as an annotator, with 1 label",
            "'Total' counts as an instance, with 2 labels",
        ]
        assert _doubts.about_doubtful_ids(self.rows()) == []

    def test_computed_columns_and_rows_of_a_matrix_are_told(self) -> None:
        names = ["ann", "Majority_Vote ", "bob", "SUM"]
        assert [one.split("'")[1] for one in _doubts.about_consensus(names)] == ["Majority_Vote ", "SUM"]
        labels, items = [{"x"}, {"x", "y"}, {"y"}, {"12", "9"}], list("abct")
        assert _doubts.about_doubtful_items(labels, items)[0].startswith("record 4 ('t') is read as an instance")
        assert _doubts.about_doubtful_items([*labels[:3], {"x", "9"}], items) == []
        assert _doubts.about_doubtful_items([*labels[:3], set()], items) == []
        assert _doubts.about_doubtful_items(labels[1:], items[1:]) == []
