"""Tables as people have them: any headers or none, any spelling of labels, any encoding, spreadsheets, other columns."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.errors import ConfigError, DataError, ReadError
from crowdwise.readers import Export, read, write, write_table
from growth import assert_about_linear
from sheet_samples import ods, packed, xlsx, xlsx_parts

HEADER = "item,worker,label"


def crowd(
    seed: int = 0, n: int = 60, annotators: int = 8, classes: int = 3, each: int = 4
) -> list[tuple[int, int, int]]:
    """Rows (instance, annotator, label) in random order."""
    rng = np.random.default_rng(seed)
    truth, skill = rng.integers(classes, size=n), rng.uniform(0.6, 1, annotators)
    rows = [
        (i, int(j), int(truth[i] if rng.random() < skill[j] else rng.integers(classes)))
        for i in range(n)
        for j in rng.permutation(annotators)[:each]
    ]
    return [rows[k] for k in rng.permutation(len(rows))]


def named(rows: list[tuple[int, int, int]]) -> list[list[str]]:
    return [[f"http://x/{i}.jpg", f"person {j}", ("cat", "dog", "eel", "fox")[y]] for i, j, y in rows]


def put(path: Path, header: str, rows: Any, separator: str = ",", encoding: str = "utf-8") -> Path:
    lines = [*([header] if header else []), *(separator.join(map(str, row)) for row in rows)]
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return path


def columns_or_refusal(path: Path) -> Any:
    """The columns that are found, or why none are."""
    try:
        return read(path).columns
    except ReadError as error:
        return str(error)


class TestColumns:
    def test_unknown_headers_are_guessed_and_told(self, tmp_path: Path) -> None:
        export = read(put(tmp_path / "a.csv", "URL,Wer,Urteil", named(crowd())))
        assert export.columns == {"instance": "URL", "annotator": "Wer", "label": "Urteil"}
        assert "guessed by content: 60 values in 'URL', 8 values in 'Wer', 3 values in 'Urteil'" in export.message
        assert "to correct it: instance=COLUMN, annotator=COLUMN, label=COLUMN" in export.message
        assert export.annotations.classes.tolist() == ["cat", "dog", "eel"]

    @pytest.mark.parametrize("seed", range(40))
    def test_a_guess_is_right_or_not_made(self, tmp_path: Path, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n, each = (int(rng.choice(sizes)) for sizes in ([5, 20, 200], [2, 3, 5]))
        rows = np.array(crowd(seed, n, int(rng.choice([5, 20, 60])), int(rng.choice([2, 4])), each))
        columns = {"A": rows[:, 0], "B": rows[:, 1], "C": rows[:, 2]}
        more = {
            "category": rows[:, 0] * 7 % 4,
            "age": 20 + rows[:, 1] * 13 % 50,
            "sure": rng.integers(1, 6, len(rows)),
            "seconds": rng.integers(1, 60, len(rows)),
            "number": np.arange(len(rows)),
        }
        columns |= {name: more[name] for name in more if rng.random() < 0.5}
        order = rng.permutation(list(columns)).tolist()
        path = put(tmp_path / "a.csv", ",".join(order), zip(*(columns[name] for name in order), strict=True))
        found = columns_or_refusal(path)
        if isinstance(found, str):
            assert "name it with instance=COLUMN" in found
            assert n < 200 or each < 5
        else:
            assert {role: found[role] for role in ("instance", "annotator", "label")} == {
                "instance": "A",
                "annotator": "B",
                "label": "C",
            }

    def test_what_is_unclear_is_refused_by_name(self, tmp_path: Path) -> None:
        rows = [[*row, row[2]] for row in named(crowd())]
        rows = [[*row[:3], {"cat": "no", "dog": "yes", "eel": "yes"}[row[3]]] for row in rows]
        with pytest.raises(ReadError, match=r"could be the label|name it with"):
            read(put(tmp_path / "a.csv", "URL,Wer,Urteil,Tier", [[*row[:2], "x", row[3]] for row in rows][:15]))

    def test_known_names_stand_and_the_rest_is_guessed(self, tmp_path: Path) -> None:
        export = read(put(tmp_path / "a.csv", "task,who,label", named(crowd())))
        assert export.columns["annotator"] == "who"
        assert "to correct it: annotator=COLUMN" in export.message

    def test_a_long_table_is_no_matrix(self, tmp_path: Path) -> None:
        rows = sorted(crowd())
        for header in ("a,b,c", "id,b,c"):
            assert read(put(tmp_path / "a.csv", header, rows)).annotations.n_classes == 3, header
        refusal = columns_or_refusal(put(tmp_path / "a.csv", "", rows))
        assert re.search("has no header|have no header", str(refusal))
        assert "columns=item,annotator,label" in refusal

    def test_a_matrix_is_told_by_its_shape(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        cells = rng.integers(3, size=(40, 5))
        assert read(put(tmp_path / "a.csv", "ann,bob,cem,dan,eve", cells)).format == "dense"
        export = read(put(tmp_path / "b.csv", "photo,ann,bob", [[f"p{k}", *row[:2]] for k, row in enumerate(cells)]))
        assert (export.format, export.annotations.n_annotators) == ("dense", 2)
        assert export.annotations.instances[0] == "p0"

    def test_columns_of_a_file_without_header_are_named(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", "", named(crowd()))
        with pytest.raises(
            ReadError, match=r"seems to have no header.*name the columns with columns=item,annotator,label"
        ):
            read(path)
        export = read(path, columns=["item", "annotator", "label"])
        assert len(export.annotations) == 240
        with pytest.raises(ReadError, match="3 columns, but columns= names 2: item, label"):
            read(path, columns=["item", "label"])
        headed = put(tmp_path / "b.csv", HEADER, named(crowd()))
        assert len(read(headed, columns=["thing", "annotator", "label"], instance="thing").annotations) == 240

    def test_a_record_of_another_width_is_counted_without_header(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", "", [["a", "u", "x"], ["b", "u"]])
        with pytest.raises(ReadError, match="record 2: 2 fields, but expected 3"):
            read(path, columns=["item", "annotator", "label"])

    def test_a_very_wide_table_is_answered_in_a_few_words(self, tmp_path: Path) -> None:
        def refuse(columns: int) -> None:
            header = ",".join(f"c{k}" for k in range(columns))
            path = put(tmp_path / "a.csv", header, np.arange(12 * columns).reshape(12, -1))
            message = rf"no column for the instance.* and {columns - 40:,} more"
            with pytest.raises(ReadError, match=message) as caught:
                read(path)
            assert len(str(caught.value)) < 1000

        assert_about_linear(refuse, 5_000, 50_000)


class TestLabels:
    MESSY = ("cat", "CAT", "cat ", "dog", "N/A", "")

    def messy(self, tmp_path: Path) -> Path:
        rows = [(k // 3, f"w{k % 3}", self.MESSY[k % 6]) for k in range(60)]
        return put(tmp_path / "a.csv", HEADER, rows)

    def test_similar_ones_are_reported_and_blank_ones_counted(self, tmp_path: Path) -> None:
        export = read(self.messy(tmp_path))
        assert export.annotations.classes.tolist() == ["CAT", "N/A", "cat", "dog"]
        assert "blanks at the ends of 10 labels are left out" in export.message
        assert "left out: 10 without a label" in export.message
        assert "'CAT' and 'cat' look like one class (clean= merges them)" in export.message
        assert "'N/A' counts as a class, with 10 labels (missing=N/A leaves it out)" in export.message

    def test_clean_merges_them(self, tmp_path: Path) -> None:
        export = read(self.messy(tmp_path), clean=True, missing=["n/a"])
        assert export.annotations.classes.tolist() == ["cat", "dog"]
        assert "'CAT' and 'cat' are read as 'cat'" in export.message
        assert "left out: 20 without a label" in export.message

    def test_listed_classes_are_the_classes(self, tmp_path: Path) -> None:
        path = self.messy(tmp_path)
        with pytest.raises(ReadError, match=r"label 'N/A' \(10 times\) is none of the classes 'dog', 'cat', 'eel'"):
            read(path, classes=["dog", "cat", "eel"])
        export = read(path, classes=["dog", "cat", "eel"], missing="N/A")
        assert export.annotations.classes.tolist() == ["dog", "cat", "eel"]
        numbers = put(tmp_path / "b.csv", HEADER, [(k // 2, f"w{k % 2}", k % 3) for k in range(12)])
        assert read(numbers, classes=["0", "1", "2", "3"]).annotations.classes.tolist() == [0, 1, 2, 3]
        with pytest.raises(ConfigError, match="classes=: names must differ"):
            read(path, classes=["cat", "Cat"])

    def test_labels_get_new_names(self, tmp_path: Path) -> None:
        export = read(self.messy(tmp_path), map={"CAT": "cat", "cat": "Katze", "eel": "Aal"}, missing=("N/A",))
        assert export.annotations.classes.tolist() == ["Katze", "cat", "dog"]
        assert "no label is 'eel'" in export.message

    def test_numbers_are_not_merged_by_their_digits(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", HEADER, [(k // 2, f"w{k % 2}", ("-1", "1", "+", "-")[k % 4]) for k in range(12)])
        assert read(path, clean=True).annotations.classes.tolist() == ["+", "-", "-1", "1"]

    def test_unicode_forms_are_one(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", HEADER, [(1, "a", "caf\u00e9"), (1, "b", "cafe\u0301"), (2, "a", "x")])
        assert "look like one class" in read(path).message
        assert read(path, clean=True).annotations.n_classes == 2

    @pytest.mark.parametrize("gold", ["Cat", "cat ", "CAT"])
    def test_gold_shares_the_vocabulary(self, tmp_path: Path, gold: str) -> None:
        path = put(tmp_path / "a.csv", HEADER, [(k // 3, f"w{k % 3}", ("cat", "dog")[k % 2]) for k in range(12)])
        table = put(tmp_path / "gold.csv", "item,gold", [(0, gold), (1, "dog")])
        export = read(path, gold=str(table))
        assert export.gold == {0: "cat", 1: "dog"}
        assert export.annotations.n_classes == 2
        told = "blanks at the ends of 1 label are" if gold == "cat " else f"gold {gold!r} is read as 'cat'"
        assert told in export.message
        same = put(
            tmp_path / "b.csv", f"{HEADER},gold", [(0, "a", "cat", gold), (0, "b", "dog", gold), (1, "a", "cat", "")]
        )
        assert read(same).gold == read(same, gold="gold").gold == {0: "cat"}

    def test_gold_follows_the_same_rules(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", HEADER, [(0, "a", "Katze"), (0, "b", "cat"), (1, "a", "dog")])
        table = put(tmp_path / "gold.csv", "item,gold", [(0, "Katze"), (1, "?")])
        assert read(path, gold=str(table), map={"Katze": "cat"}, missing="?").gold == {0: "cat"}
        with pytest.raises(ReadError, match=r"label '\?' .* is none of the classes"):
            read(path, gold=str(table), classes=["cat", "dog"], map={"Katze": "cat"})

    def test_a_column_that_merely_looks_like_gold_is_no_error(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", f"{HEADER},truth", [(0, "a", "Cat", "who knows"), (0, "b", "cat", "nobody")])
        export = read(path, classes=["cat", "dog"])
        assert export.gold is None
        assert "not taken for gold" in export.message
        with pytest.raises(ReadError, match=r"label 'who knows' .* is none of the classes"):
            read(path, classes=["cat", "dog"], gold="truth")

    def test_ids_that_look_alike_are_reported_only(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", HEADER, [("t1", "Ann", "x"), ("t1", "ann ", "y"), ("T1", "bob", "x")])
        export = read(path)
        assert "annotators 'Ann' and 'ann ' may be the same one" in export.message
        assert "instances 't1' and 'T1' may be the same one" in export.message
        assert export.annotations.n_annotators == 3

    def test_other_formats_follow_the_rules_as_well(self, tmp_path: Path) -> None:
        cells = [["", "ann", "bob"], ["p0", "Yes", "no"], ["p1", "yes", "n/a"], ["p2", "no", "no"]]
        put(tmp_path / "a.csv", "", cells)
        export = read(tmp_path / "a.csv", "dense", clean=True, missing="N/A")
        assert export.annotations.classes.tolist() == ["no", "yes"]
        assert "left out: 1 without a label" in export.message


class TestFiles:
    ROWS = (
        ("item", "worker", "label", "note"),
        (1, "ann", "größer", None),
        (1, "bob", "kleiner", "hm"),
        (2, "ann", "größer", None),
    )

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig"])
    def test_encodings_are_recognised_and_told(self, tmp_path: Path, encoding: str) -> None:
        path = put(tmp_path / "a.csv", HEADER, [(1, "ann", "größer"), (1, "bob", "kleiner")], encoding=encoding)
        export = read(path)
        assert export.annotations.classes.tolist() == ["größer", "kleiner"]
        assert ("decoded from" in export.message) == (encoding != "utf-8-sig")
        assert read(path, encoding=encoding).annotations == export.annotations

    def test_another_alphabet(self, tmp_path: Path) -> None:
        words = ["кошка", "собака", "лошадь", "не знаю, что это такое"]
        path = put(tmp_path / "a.csv", HEADER, [(k, "аня", f'"{words[k % 4]}"') for k in range(40)], encoding="cp1251")
        assert set(read(path).annotations.classes) == set(words)

    def test_an_encoding_can_be_named_and_must_exist(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", HEADER, [(1, "ann", "größer")], encoding="cp850")
        assert read(path, encoding="cp850").annotations.classes.tolist() == ["größer"]
        for name in ("utf-9", "rot13", "hex"):
            with pytest.raises(ConfigError, match=f"unknown encoding='{name}'"):
                read(path, encoding=name)

    @pytest.mark.parametrize("separator", ["|", ";", "\t", ":", "~"])
    def test_separators(self, tmp_path: Path, separator: str) -> None:
        path = put(tmp_path / "a.txt", HEADER.replace(",", separator), [(1, "ann", "x, y"), (2, "bob", "z")], separator)
        export = read(path, separator=None if separator in "|;\t" else separator)
        assert export.annotations.classes.tolist() == ["x, y", "z"]
        assert read(path, separator="tab" if separator == "\t" else separator).annotations == export.annotations

    def test_what_a_kind_of_file_does_not_have_cannot_be_said(self, tmp_path: Path) -> None:
        write_table(pa.table({"item": [1], "worker": [1], "label": ["x"]}), tmp_path / "a.parquet")
        for given in ({"separator": "|"}, {"sheet": "x"}, {"columns": ["a", "b", "c"]}, {"encoding": "utf-8"}):
            with pytest.raises(ReadError, match=f"{next(iter(given))}= is for .*, but this is parquet"):
                read(tmp_path / "a.parquet", **given)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", [xlsx, ods])
    def test_spreadsheets(self, tmp_path: Path, kind: Any) -> None:
        path = tmp_path / f"a.{kind.__name__}"
        path.write_bytes(kind({"Labels": self.ROWS, "Other": [("a", "b"), (1, 2)], "Empty": []}))
        export = read(path)
        assert export.annotations.instances.tolist() == [1, 2]
        assert export.annotations.classes.tolist() == ["größer", "kleiner"]
        assert "sheet 'Labels' (not 'Other': sheet=NAME)" in export.message
        assert export.extra is not None
        assert export.extra.to_pydict() == {"note": [None, "hm", None]}
        with pytest.raises(ReadError, match="there is no sheet 'Lables'; did you mean 'Labels'"):
            read(path, sheet="Lables")
        with pytest.raises(ReadError, match="no column for the instance"):
            read(path, sheet="Other")

    def test_a_sheet_that_would_swell_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.ods").write_bytes(ods({"A": self.ROWS[:3]}, columns=16_384, rows=1_048_576))
        with pytest.raises(ReadError, match=r"a sheet spans [0-9,]+ cells"):
            read(tmp_path / "a.ods")
        parts = xlsx_parts({"A": self.ROWS})
        sheet = "xl/worksheets/sheet1.xml"
        far = parts[sheet].replace(
            "</sheetData>", "<row r=\"1048576\"><c r='XFD1048576'><v>1</v></c></row></sheetData>"
        )
        (tmp_path / "a.xlsx").write_bytes(packed(parts | {sheet: far}))
        with pytest.raises(ReadError, match="a sheet spans 17,179,869,184 cells"):
            read(tmp_path / "a.xlsx")
        monkeypatch.setenv("CROWDWISE_UNPACK_LIMIT", "1MB")
        shared = parts["xl/sharedStrings.xml"].replace("item", "item" * 40_000)
        again = "".join(f'<row r="{k}"><c r="A{k}" t="s"><v>0</v></c></row>' for k in range(9, 30))
        swollen = {"xl/sharedStrings.xml": shared, sheet: parts[sheet].replace("</sheetData>", f"{again}</sheetData>")}
        (tmp_path / "a.xlsx").write_bytes(packed(parts | swollen))
        with pytest.raises(ReadError, match="unpacks to more than 1,000,000 bytes"):
            read(tmp_path / "a.xlsx")

    @pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.zst", "jsonl", "parquet", "arrow", "xlsx", "ods"])
    def test_standard_input(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
        path = tmp_path / f"a.{suffix}"
        if suffix in ("xlsx", "ods"):
            path.write_bytes({"xlsx": xlsx, "ods": ods}[suffix]({"A": self.ROWS}))
        else:
            write_table(
                pa.table({name: [str(row[k]) for row in self.ROWS[1:]] for k, name in enumerate(self.ROWS[0])}), path
            )
        expected = read(path)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        export = read("-")
        assert export.annotations == expected.annotations
        assert export.message.startswith("standard input: table")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        with pytest.raises(ReadError, match="standard input: the file is empty"):
            read("-")

    def test_a_missing_library_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.xlsx").write_bytes(xlsx({"A": self.ROWS}))
        put(tmp_path / "a.csv", HEADER, [(1, "ann", "größer")], encoding="latin-1")
        monkeypatch.setitem(sys.modules, "python_calamine", None)
        monkeypatch.setitem(sys.modules, "charset_normalizer", None)
        for name in ("a.xlsx", "a.csv"):
            with pytest.raises(ReadError, match=r"pip install .crowdwise\[tables\]"):
                read(tmp_path / name)


class TestOtherColumns:
    def table(self, tmp_path: Path) -> Export:
        path = tmp_path / "a.csv"
        rows = [(1, "ann", "x", 'first, "well"', 30), (1, "bob", "", "blank", 41), (2, "ann", "y", "", 30)]
        lines = [f'{i},{j},{y},"{c.replace(chr(34), chr(34) * 2)}",{a}' for i, j, y, c, a in rows]
        path.write_text("\n".join([f"{HEADER},comment,age", *lines]) + "\n")
        return read(path)

    @pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow", "csv.zst"])
    def test_travel_through_files(self, tmp_path: Path, suffix: str) -> None:
        export = self.table(tmp_path)
        assert export.extra is not None
        assert export.extra.to_pydict() == {"comment": ['first, "well"', None], "age": ["30", "30"]}
        write(export, tmp_path / f"b.{suffix}")
        again = read(tmp_path / f"b.{suffix}")
        assert again.extra is not None
        assert again.extra.to_pydict() == export.extra.to_pydict()

    def test_stay_with_the_rows_that_are_kept(self, tmp_path: Path) -> None:
        path = put(
            tmp_path / "a.csv",
            f"{HEADER},n",
            [(1, "ann", "x", 0), (1, "ann", "y", 1), (1, "bob", "", 2), (2, "bob", "y", 3)],
        )
        for policy, kept in (("first", ["0", "3"]), ("last", ["1", "3"])):
            export = read(path, duplicates=policy)  # type: ignore[arg-type]
            assert export.extra is not None
            assert export.extra["n"].to_pylist() == kept

    def test_of_exports_and_names_that_are_taken(self, tmp_path: Path) -> None:
        text = "HITId,WorkerId,Answer.mood,Answer.comment,Input.text,Reward\nh,w,good,fine,hello,0.05\n"
        (tmp_path / "batch.csv").write_text(text)
        export = read(tmp_path / "batch.csv", question="mood")
        write(export, tmp_path / "b.csv")
        assert (tmp_path / "b.csv").read_text().splitlines() == [
            '"instance","annotator","label","text","Answer.comment","Reward"',
            '"h","w","good","hello","fine","0.05"',
        ]
        path = put(tmp_path / "a.csv", "item,worker,label,instance_name,annotator2", [(1, "a", "x", "one", "z")])
        write(read(path, label="label", instance="item"), tmp_path / "c.csv")
        assert (tmp_path / "c.csv").read_text().splitlines()[
            0
        ] == '"instance","annotator","label","instance_name","annotator2"'

    def test_go_to_label_studio(self, tmp_path: Path) -> None:
        write(self.table(tmp_path), tmp_path / "b.json")
        assert '"comment": "first, \\"well\\""' in (tmp_path / "b.json").read_text()
        assert len(read(tmp_path / "b.json").annotations) == 2


def test_a_file_of_gold_that_is_not_there(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", HEADER, [(1, "ann", "x")])
    with pytest.raises(DataError, match=r"nothing\.csv: no such file"):
        read(path, gold=str(tmp_path / "nothing.csv"))


def test_a_report_shows_other_columns(tmp_path: Path) -> None:
    from crowdwise.report.content import gather
    from crowdwise.report.source import from_export

    rows = [
        (k // 3, f"w{k % 3}", ("x", "y")[k % 2], f"well {k}" if k < 2 else "", "red" if k // 3 else "blue")
        for k in range(9)
    ]
    path = put(tmp_path / "a.csv", f"{HEADER},comment,<b>", rows)
    items = gather(from_export(path, read(path)), method="majority-vote").items
    more = {item["id"]: item["more"] for item in items["rows"]}
    people = items["people"]
    assert [[name, value, who if who < 0 else people[who]] for name, value, who in more["0"]] == [
        ["comment", "well 0", "w0"],
        ["comment", "well 1", "w1"],
        ["<b>", "blue", -1],
    ]
    assert more["1"] == [["<b>", "red", -1]]


def test_what_is_left_out_takes_all_that_is_known_of_it_along(tmp_path: Path) -> None:
    path = tmp_path / "argilla.json"
    said = [{"id": k, "q.responses": ["a"], "q.responses.users": ["ann"]} for k in (1, 2)]
    path.write_text(json.dumps([record | {"q.suggestion": label, "q.suggestion.score": score}
                                for record, label, score in zip(said, ("-", "a"), (0.9, 0.8), strict=True)]))  # fmt: skip
    export = read(path, missing=["-"])
    assert export.confidences is not None
    assert export.confidences.shape == (3,)
    assert export.confidences[-1] == 0.8


def test_repeats_share_one_label_in_a_table_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "crowd.csv"
    path.write_text("item,worker,label,comment\n1,a,x,c1\n1,a,y,c2\n1,a,y,c3\n1,b,x,c4\n")
    export = read(path, duplicates="share")
    assert export.annotations.weight is not None
    assert export.annotations.weight.tolist() == pytest.approx([1 / 3, 2 / 3, 1])
    assert export.extra is not None
    assert export.extra["comment"].to_pylist() == ["c1", "c2", "c4"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("columns", [None, ["item", "worker", "label", "a\nb"]])
def test_the_name_of_a_column_may_have_a_line_break(tmp_path: Path, newline: str, columns: list[str] | None) -> None:
    path = tmp_path / "crowd.csv"
    path.write_bytes(newline.join(['item,worker,label,"a\nb"', "1,ann,x,p", "1,bob,y,q", ""]).encode())
    export = read(path, columns=columns)
    assert export.annotations.to_frame().to_pylist() == [
        {"instance": 1, "annotator": "ann", "label": "x"},
        {"instance": 1, "annotator": "bob", "label": "y"},
    ]
    assert export.extra is not None
    assert export.extra["a\nb"].to_pylist() == ["p", "q"]


@pytest.mark.parametrize(("labels", "gold"), [([1, 2, 2], [1.0, None, 2.0]), ([1.0, 2.0, None], [1, 1, 2])])
def test_gold_and_labels_are_compared_by_value_where_one_has_become_floats(
    tmp_path: Path, labels: list[Any], gold: list[Any]
) -> None:
    path = tmp_path / "crowd.parquet"
    columns = {"item": [0, 1, 2], "worker": ["a", "b", "a"], "label": labels, "gold": gold}
    write_table(pa.table(columns), path)
    found = read(path).gold
    assert found is not None
    kept = [(one, truth) for one, (label, truth) in enumerate(zip(labels, gold, strict=True)) if label and truth]
    assert {one: float(truth) for one, truth in found.items()} == dict(kept)
