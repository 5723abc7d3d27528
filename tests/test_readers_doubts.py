"""Rows, ids and cells of real files that are no labels: left out, refused, or named in the message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from crowdwise.errors import ReadError
from crowdwise.readers import read
from extras import needs
from sheet_samples import packed, xlsx_parts

PEOPLE = ("ann", "bob", "cem")


def said(n_items: int = 6) -> list[tuple[int, str, str]]:
    """Three people's labels of some items, one of whom often differs."""
    return [
        (item, who, "cat" if (item % 2 == 0) != (who == "cem" and item % 3 == 0) else "dog")
        for item in range(1, n_items + 1)
        for who in PEOPLE
    ]


def put(folder: Path, text: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def long_table(*more: str, header: str = "item,worker,label", separator: str = ",") -> str:
    lines = [header, *(f"{item},{who},{label}" for item, who, label in said()), *more]
    return "".join(line.replace(",", separator) + "\n" for line in lines)


class TestRows:
    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    def test_copies_of_the_header_are_left_out(self, tmp_path: Path, separator: str) -> None:
        text = long_table("item,worker,label", "7,ann,cat", "item,worker,label", separator=separator)
        export = read(put(tmp_path, text))
        assert export.annotations.instances.tolist() == [*range(1, 8)]  # numbers, as without the copies
        assert export.annotations.classes.tolist() == ["cat", "dog"]
        assert len(export.annotations) == len(said()) + 1
        assert "left out: 2 copies of the header among the rows" in export.message

    def test_copies_of_the_header_leave_no_gold_and_no_blank(self, tmp_path: Path) -> None:
        lines = [f"{item},{who},{label},{'cat' if item % 2 else 'dog'}" for item, who, label in said()]
        header = "item,worker,label,truth"
        export = read(put(tmp_path, "\n".join([header, *lines, header, "7,ann,,"])), gold="truth")
        assert export.gold == {item: "cat" if item % 2 else "dog" for item in range(1, 7)}
        assert export.annotations.classes.tolist() == ["cat", "dog"]
        assert "left out: 1 copy of the header among the rows; left out: 1 without a label" in export.message

    def test_a_header_among_the_rows_of_a_matrix_is_left_out(self, tmp_path: Path) -> None:
        rows = [f"i{k},{k % 3},{k // 2 % 3},{k % 3}" for k in range(12)]
        text = "\n".join(["item,ann,bob,cem", *rows[:6], "item,ann,bob,cem", *rows[6:]])
        export = read(put(tmp_path, text), format="dense")
        assert export.annotations.classes.tolist() == [0, 1, 2]
        assert len(export.annotations) == 36
        assert "1 copy of the header" in export.message

    @pytest.mark.parametrize(
        ("row", "place"),
        [("Total,3,15", "last"), ("# batch 2,as exported,x", "first"), ("ID,string,category", "first")],
    )
    def test_a_row_unlike_all_others_is_named(self, tmp_path: Path, row: str, place: str) -> None:
        lines = long_table().splitlines()
        lines.insert(1 if place == "first" else len(lines), row)
        export = read(put(tmp_path, "\n".join(lines)))
        shown = ", ".join(repr(cell) for cell in row.split(","))
        number = 1 if place == "first" else len(lines) - 1
        assert f"record {number} ({shown}) is read as a label, but may be a total" in export.message

    def test_rows_that_are_like_others_are_not_named(self, tmp_path: Path) -> None:
        """An item that one person labelled, and a class that is rare, are usual."""
        export = read(put(tmp_path, long_table("7,ann,fox", "8,dan,cat", "1,eve,cow")))
        assert "read as a label" not in export.message

    @pytest.mark.parametrize("what", ["Total", "Summe", "mean"])
    def test_totals_of_a_matrix_are_named(self, tmp_path: Path, what: str) -> None:
        rows = [f"i{k},{k % 2},{k // 2 % 2},{k % 2}" for k in range(12)]
        export = read(put(tmp_path, "\n".join(["item,ann,bob,cem", *rows, f"{what},6,5,6"])))
        assert f"record 13 ({what!r}) is read as an instance, but may be a row of totals" in export.message
        assert f"{what!r} counts as an instance, with 3 labels" in export.message

    def test_columns_that_are_computed_are_named(self, tmp_path: Path) -> None:
        rows = [f"i{k},{k % 3},{k // 2 % 3},{k % 3},{k % 3}" for k in range(12)]
        export = read(put(tmp_path, "\n".join(["item,ann,bob,cem,Majority_vote", *rows])))
        assert "column 'Majority_vote' counts as an annotator" in export.message

    @pytest.mark.parametrize("first", ["2026/01/0{} 10:00:00 AM GMT+1", "0{}.01.2026 09:15", "p{}@x.org"])
    def test_answers_to_a_form_are_not_taken_for_items_by_rows(self, tmp_path: Path, first: str) -> None:
        """Google Forms writes a row for each person and a column for each question."""
        lines = [f"{first.format(k)},{'Good' if k % 2 else 'Bad'},{'Good' if k % 3 else 'Bad'},Good" for k in range(9)]
        path = put(tmp_path, "\n".join(["Timestamp,Item 1,Item 2,Item 3", *lines]))
        with pytest.raises(ReadError, match="each row seems to be a person and each column an item"):
            read(path)
        assert read(path, format="dense").annotations.n_instances == 9


class TestIds:
    @pytest.mark.parametrize("name", ["nan", "NA", "#N/A", "None", "null"])
    @pytest.mark.parametrize("role", ["instance", "annotator"])
    def test_an_id_that_may_stand_for_none_is_named(self, tmp_path: Path, name: str, role: str) -> None:
        text = long_table()
        text = text.replace("3,", f"{name},") if role == "instance" else text.replace(",bob", f",{name}")
        labels = 3 if role == "instance" else 6
        message = read(put(tmp_path, text)).message
        assert f"{name!r} counts as an {role}, with {labels} labels: is it a missing id?" in message

    def test_usual_ids_are_not_named(self, tmp_path: Path) -> None:
        assert "missing id" not in read(put(tmp_path, long_table("nana,naomi,cat", "nothing,nannie,cat"))).message

    def test_ids_with_leading_zeros_stay_apart(self, tmp_path: Path) -> None:
        lines = [f"{item:03d},{who},{label}" for item, who, label in said()]
        export = read(put(tmp_path, "\n".join(["item,worker,label", *lines, "1,ann,cat"])))
        assert export.annotations.instances.tolist() == ["001", "002", "003", "004", "005", "006", "1"]


class TestLabels:
    @pytest.mark.parametrize("error", ["#REF!", "#DIV/0!", "#VALUE!", "#N/A", "#NV"])
    def test_errors_of_spreadsheets_are_named(self, tmp_path: Path, error: str) -> None:
        message = read(put(tmp_path, long_table(f"7,ann,{error}"))).message
        assert f"{error!r} counts as a class, with 1 label" in message

    @pytest.mark.parametrize(
        ("labels", "pairs"),
        [
            (("TRUE", "1", "0", "FALSE"), ["'TRUE' and '1'", "'FALSE' and '0'"]),
            (("Yes", "Y", "No", "No"), ["'Yes' and 'Y'"]),
            (("yes", "true", "no", "0"), ["'true' and 'yes'", "'0' and 'no'"]),
        ],
    )
    def test_two_ways_to_say_yes_are_named(self, tmp_path: Path, labels: tuple[str, ...], pairs: list[str]) -> None:
        lines = [f"{item},{who},{labels[k % 4]}" for k, (item, who, _) in enumerate(said())]
        message = read(put(tmp_path, "\n".join(["item,worker,label", *lines]))).message
        assert [pair for pair in pairs if f"{pair} may be one class" in message] == pairs

    @pytest.mark.parametrize("labels", [("0", "1"), ("yes", "no"), ("0", "1", "2"), ("yes", "no", "unsure", "1")])
    def test_other_labels_are_no_two_ways_to_say_yes(self, tmp_path: Path, labels: tuple[str, ...]) -> None:
        lines = [f"{item},{who},{labels[k % len(labels)]}" for k, (item, who, _) in enumerate(said())]
        assert "may be one class" not in read(put(tmp_path, "\n".join(["item,worker,label", *lines]))).message

    def test_a_control_character_hides_no_class(self, tmp_path: Path) -> None:
        path = put(tmp_path, long_table("7,ann,ca\x00t", "7,bob,\x08cat"))
        assert "look like one class" in read(path).message
        assert read(path, clean=True).annotations.classes.tolist() == ["cat", "dog"]

    def test_decimal_commas_are_numbers_for_clean(self, tmp_path: Path) -> None:
        lines = [f"{item};{who};{('0,5', '1', '1,0')[k % 3]}" for k, (item, who, _) in enumerate(said())]
        path = put(tmp_path, "\n".join(["item;worker;label", *lines]))
        assert "'1' and '1,0' look like one class" in read(path).message
        assert read(path, clean=True).annotations.n_classes == 2

    def test_a_comma_of_thousands_is_no_decimal_comma(self, tmp_path: Path) -> None:
        lines = [f"{item};{who};{('1,000', '1', '2')[k % 3]}" for k, (item, who, _) in enumerate(said())]
        path = put(tmp_path, "\n".join(["item;worker;label", *lines]))
        assert read(path, clean=True).annotations.n_classes == 3

    def test_a_second_column_of_pandas_is_named(self, tmp_path: Path) -> None:
        lines = [f"{item},{who},{label},dog" for item, who, label in said()]
        export = read(put(tmp_path, "\n".join(["item,worker,label,label.1", *lines])))
        assert export.annotations.classes.tolist() == ["cat", "dog"]
        assert "column 'label.1' may be a second column 'label', and is not the label" in export.message


class TestWeights:
    def message(self, folder: Path, *weights: str) -> str:
        lines = [f"{i};{who};{y};{weights[k % len(weights)]}" for k, (i, who, y) in enumerate(said())]
        return read(put(folder, "\n".join(["item;worker;label;weight", *lines]))).message

    def test_what_may_be_thousands_is_named(self, tmp_path: Path) -> None:
        assert "weight 1.000 is read as 1, but may be 1000" in self.message(tmp_path, "500", "1.000")

    @pytest.mark.parametrize("weights", [("1.000", "0.500"), ("1.5", "2"), ("1.125", "1.25"), ("1", "2")])
    def test_usual_decimals_are_not_named(self, tmp_path: Path, weights: tuple[str, ...]) -> None:
        assert "but may be" not in self.message(tmp_path, *weights)

    def test_percentages_are_not_used_and_named(self, tmp_path: Path) -> None:
        assert "weight not used: column 'weight', record 1: weight '50%'" in self.message(tmp_path, "50%", "100%")


class TestSpreadsheets:
    """Sheets that nobody sees, and cells that span rows."""

    def book(self, folder: Path, sheets: Mapping[str, Any], *, hidden: str = "", merged: str = "") -> Path:
        needs("python_calamine")
        parts = xlsx_parts(sheets)
        if hidden:
            parts["xl/workbook.xml"] = parts["xl/workbook.xml"].replace(
                f'<sheet name="{hidden}"', f'<sheet state="hidden" name="{hidden}"'
            )
        cells = "".join(f'<mergeCell ref="{place}"/>' for place in merged.split())
        sheet = parts["xl/worksheets/sheet1.xml"]
        parts["xl/worksheets/sheet1.xml"] = sheet.replace(
            "</sheetData>", f"</sheetData><mergeCells>{cells}</mergeCells>" if merged else "</sheetData>"
        )
        path = folder / "a.xlsx"
        path.write_bytes(packed(parts))
        return path

    def test_a_hidden_sheet_comes_last(self, tmp_path: Path) -> None:
        header = ["item", "worker", "label"]
        sheets = {"Old": [header, [1, "ann", "old"]], "Now": [header, [1, "ann", "new"]]}
        path = self.book(tmp_path, sheets, hidden="Old")
        export = read(path)
        assert export.annotations.classes.tolist() == ["new"]
        assert "sheet 'Now' (not 'Old'" in export.message
        assert read(path, sheet="Old").annotations.classes.tolist() == ["old"]

    def test_the_only_sheet_is_read_though_it_is_hidden(self, tmp_path: Path) -> None:
        path = self.book(tmp_path, {"Old": [["item", "worker", "label"], [1, "ann", "old"]]}, hidden="Old")
        assert read(path).annotations.classes.tolist() == ["old"]

    def test_a_cell_that_spans_rows_counts_in_each(self, tmp_path: Path) -> None:
        rows = [["item", "worker", "label"], [1, "ann", "x"], [None, "bob", None], [2, "ann", "y"], [None, "bob", "x"]]
        path = self.book(tmp_path, {"S": rows}, merged="A2:A3 A4:A5 C2:C3")
        export = read(path)
        found = [tuple(row.values()) for row in export.annotations.to_frame().to_pylist()]
        assert found == [(1, "ann", "x"), (1, "bob", "x"), (2, "ann", "y"), (2, "bob", "x")]
        assert "merged cells count in each of their rows" in export.message

    def test_titles_that_span_columns_change_nothing(self, tmp_path: Path) -> None:
        rows = [["item", "worker", "label", "note"], [1, "ann", "x", "fine"], [1, "bob", "y", None]]
        export = read(self.book(tmp_path, {"S": rows}, merged="D2:F2"))
        assert export.extra is not None
        assert export.extra["note"].to_pylist() == ["fine", None]

    def test_an_empty_cell_is_not_filled_without_merging(self, tmp_path: Path) -> None:
        rows = [["item", "worker", "label"], [1, "ann", "x"], [None, "bob", "y"]]
        with pytest.raises(ReadError, match="record 2: the value is missing"):
            read(self.book(tmp_path, {"S": rows}))

    def test_merged_cells_that_overlap_are_refused(self, tmp_path: Path) -> None:
        rows = [["item", "worker", "label"], *([k, "ann", "x"] for k in range(20))]
        with pytest.raises(ReadError, match="merged cells overlap"):
            read(self.book(tmp_path, {"S": rows}, merged=" ".join(["A2:A21"] * 9)))
