"""Text files as programs write them: quotes that enclose fields or are text, apostrophes before formulas, Excel's first line."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.errors import DataError, ReadError
from crowdwise.readers import read, write, write_table
from crowdwise.readers._quotes import quotes
from crowdwise.storage.text import inert, inert_table, restored, restored_names


def put(path: Path, *lines: str) -> Path:
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return path


def texts(path: Path, **options: Any) -> list[Any]:
    export = read(path, **options)
    assert export.texts is not None
    return export.texts.to_pylist()


class TestQuotes:
    """Tables by tools that quote nothing, and by tools that quote as csv files do."""

    BEGUN = ("1\ta\tx\tfine", '2\ta\ty\t"wow', "3\tb\tx\tgood", "4\ta\tx\tgood", "5\tb\tx\t{}", "6\ta\tx\tgood")

    @pytest.mark.parametrize("suffix", [".tsv", ".csv"])
    @pytest.mark.parametrize("end", ['"hm', 'hm"', 'h"m', '"hm"', '"'])
    def test_that_are_not_balanced_swallow_no_row_without_a_word(self, tmp_path: Path, suffix: str, end: str) -> None:
        rows = [row.format(end) for row in self.BEGUN]
        lines = ["item\tworker\tlabel\ttext", *rows]
        mark = "\t" if suffix == ".tsv" else ","
        path = put(tmp_path / f"a{suffix}", *(line.replace("\t", mark) for line in lines))
        if suffix == ".tsv":
            assert texts(path) == ["fine", '"wow', "good", "good", end, "good"]
            assert "quotes are part of the text, as they are not balanced (line 3" in read(path).message
            return
        try:
            message = read(path).message
        except ReadError as error:
            message = str(error)
        assert "quote" in message
        assert "balanced" in message

    @pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
    @pytest.mark.parametrize("seed", range(5))
    def test_that_are_balanced_are_read_as_they_were_written(self, tmp_path: Path, mark: str, seed: int) -> None:
        """Any text but one that holds what looks like a record, by Python's own writer, with all or the needed quotes."""
        rng = np.random.default_rng(seed)
        pieces = ["wow", '"', " ", "\n", mark, "'", "é", '""', "\r\n", "x,y"]
        words = ["w" + "".join(rng.choice(pieces, rng.integers(1, 8))) for _ in range(40)]
        words = [word if all(part.count(mark) < 3 for part in word.split("\n")) else "w" for word in words]
        rows = [[k, "ann", ("p", "q")[k % 2], word] for k, word in enumerate(words)]
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC):
            text = io.StringIO()
            csv.writer(text, delimiter=mark, quoting=quoting).writerows([["item", "worker", "label", "text"], *rows])
            path = tmp_path / "a.csv"
            path.write_bytes(text.getvalue().encode())
            if all(part.count(mark) < 3 for word in words for part in word.split("\n")):
                assert texts(path, separator=mark) == words
            assert quotes(path).enclose

    def test_in_the_midst_of_fields_are_text(self, tmp_path: Path) -> None:
        path = put(
            tmp_path / "a.csv", "item,worker,label,text", '1,a,x,5" pipe', '2,a,y,6" and 7" pipes', '3,a,y,"5"" pipe"'
        )
        assert texts(path) == ['5" pipe', '6" and 7" pipes', '5" pipe']
        assert "quotes" not in read(path).message

    def test_after_a_blank_enclose_as_well(self, tmp_path: Path) -> None:
        path = put(
            tmp_path / "a.csv", 'item, "worker", "label", "text"', '1, "a", "x", "he said ""no"""', '2, "b", "y", ""'
        )
        export = read(path)
        assert export.annotations.classes.tolist() == ["x", "y"]
        assert export.annotations.annotators.tolist() == ["a", "b"]
        assert texts(path) == ['he said "no"', ""]

    def test_a_text_over_several_lines_that_look_like_records_is_told(self, tmp_path: Path) -> None:
        lines = ("item,worker,label,text", '1,a,x,"one', "2,b,y,two", "3,c,x,three", 'end"', '4,a,y,"four"')
        path = put(tmp_path / "a.csv", *lines)
        assert len(read(path).annotations) == 2
        assert (
            "line 2: a quoted field goes over lines that look like records; are its quotes balanced?"
            in read(path).message
        )

    def test_are_looked_at_over_blocks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wherever a file is cut into blocks, the same is found."""
        balanced = "item\tworker\tlabel\ttext\n" + "".join(f'{k}\ta\tx\t"a\n""{k}"""\n' for k in range(9))
        broken = "item\tworker\tlabel\ttext\n" + "".join(f'{k}\ta\tx\t"wow\n' for k in range(8))
        for size in (1, 2, 3, 7, 50, 1000):
            monkeypatch.setattr("crowdwise.readers._quotes.BLOCK", size)
            (tmp_path / "a.tsv").write_text(balanced)
            (tmp_path / "b.tsv").write_text(broken)
            assert quotes(tmp_path / "a.tsv").enclose, size
            assert not quotes(tmp_path / "b.tsv").enclose, size

    def test_a_file_that_ends_within_quotes_is_refused(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.tsv", '"item"\t"worker"\t"label"', '"1"\t"a"\t"x"', '"2"\t"a"\t"y')
        with pytest.raises(ReadError, match="line 3: a quoted field is never closed; the file may be truncated"):
            read(path)


class TestApostrophes:
    """Those that crowdwise puts before formulas are taken off again, others are not."""

    @pytest.mark.parametrize("text", ["'-1", "'=a", "'+2.5", "''=a", "'no", "=a", "-1", "- no", "@x", "'", "+"])
    def test_any_text_survives_a_file(self, tmp_path: Path, text: str) -> None:
        table = pa.table({"item": [text, "other"], "worker": ["a", "b"], "label": ["x", text], text: ["1", "2"]})
        for suffix in ("csv", "tsv"):
            write_table(table, tmp_path / f"a.{suffix}")
            export = read(tmp_path / f"a.{suffix}", label="label", instance="item", annotator="worker")
            assert sorted(map(str, export.annotations.instances.tolist())) == sorted([text, "other"])
            assert export.extra is not None
            assert export.extra.column_names == [text]

    def test_ids_of_another_program_stay_apart(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", "item,worker,label", "'-1,a,x", "-1,a,y", "'=a,a,x", "=a,a,y")
        assert read(path).annotations.instances.tolist() == ["'-1", "-1", "'=a", "=a"]

    def test_names_of_columns_are_no_formulas(self, tmp_path: Path) -> None:
        name = "=cmd|'/c calc'!A1"
        path = put(tmp_path / "a.csv", f"item,worker,label,{name}", "1,a,x,u", "2,a,y,v")
        write(read(path), tmp_path / "b.csv")
        header = (tmp_path / "b.csv").read_text().splitlines()[0]
        assert header == f'"instance","annotator","label","\'{name}"'
        again = read(tmp_path / "b.csv")
        assert again.extra is not None
        assert again.extra.column_names == [name]

    def test_by_columns(self) -> None:
        for given in (["'=a", "b"], ["'-1", "'=a"], ["=a", "'=a"], ["''=a", None], ["'- x"]):
            written = inert_table(pa.table({"t": pa.array(given, pa.string())}))["t"]
            assert restored(written).to_pylist() == given
            known = [text for text in given if text is not None]
            assert restored_names([inert(text) for text in known]) == known


class TestFirstLines:
    @pytest.mark.parametrize("format", ["auto", "dense", "table"])
    def test_a_separator_that_does_not_occur_is_refused(self, tmp_path: Path, format: str) -> None:
        path = put(tmp_path / "a.csv", "item,worker,label", "1,a,x", "2,b,y")
        with pytest.raises(
            ReadError, match="separator=';' occurs in none of the first lines, such as 'item,worker,label'"
        ):
            read(path, format, separator=";")

    @pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;\r"])
    def test_excel_tells_the_separator(self, tmp_path: Path, line: str) -> None:
        path = put(tmp_path / "a.csv", line, "item;worker;label", "1;a;x, y", "2;b;z")
        assert read(path).annotations.classes.tolist() == ["x, y", "z"]
        matrix = put(tmp_path / "b.csv", line, "item;ann;bob;cem", *(f"i{k};x;{'xy'[k % 2]};x" for k in range(6)))
        assert read(matrix).annotations.shape == (6, 3)
        bare = put(tmp_path / "c.csv", line, "1;a;x", "2;b;y")
        assert len(read(bare, columns=["item", "worker", "label"]).annotations) == 2

    def test_records_are_counted_after_the_header(self, tmp_path: Path) -> None:
        for lines, options in (
            (("item;worker;label", "1;a;x", "2;b"), {}),
            (("sep=;", "item;worker;label", "1;a;x", "2;b"), {}),
            (("1;a;x", "2;b"), {"columns": ["item", "worker", "label"]}),
            (("Item;Worker;Label", "1;a;x", "2;b"), {"columns": ["item", "worker", "label"]}),
        ):
            with pytest.raises(DataError, match=r"record 2: 2 fields, but .* 3"):
                read(put(tmp_path / "a.csv", *lines), **options)  # type: ignore[arg-type]

    def test_a_header_is_known_by_two_usual_names_or_by_those_given(self, tmp_path: Path) -> None:
        rows = ("1,a,x", "2,b,y")
        for header, names, kept in (
            ("item,who,label", ["p", "q", "r"], 2),
            ("p,q,r", ["p", "q", "r"], 2),
            ("item,who,what", ["p", "q", "r"], 3),
        ):
            path = put(tmp_path / "a.csv", header, *rows)
            found = read(path, columns=names, instance="p", annotator="q", label="r").annotations
            assert len(found) == kept, header
