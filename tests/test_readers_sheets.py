"""Spreadsheets: long ids digit by digit, and the file that a path is now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from crowdwise.errors import ReadError
from crowdwise.readers import read
from sheet_samples import Rows, ods, packed, xlsx, xlsx_parts

IDS = (1580661436132757505, 1580661436132757506, 123456789012345678, 123456789012345680, 12)


def labels(second: str = "y") -> Rows:
    return [("item", "worker", "label"), *((one, who, y) for one in IDS for who, y in (("a", "x"), ("b", second)))]


class TestLongNumbers:
    @pytest.mark.parametrize("kind", [xlsx, ods])
    def test_are_read_digit_by_digit(self, tmp_path: Path, kind: Any) -> None:
        path = tmp_path / f"a.{kind.__name__}"
        path.write_bytes(kind({"Empty": [], "Labels": labels()}))
        crowd = read(path).annotations
        assert crowd.instances.tolist() == list(IDS)
        assert crowd.votes().tolist() == [[1, 1]] * len(IDS)

    def test_as_pandas_writes_them(self, tmp_path: Path) -> None:
        pytest.importorskip("openpyxl")
        frame = pd.DataFrame(labels()[1:], columns=["item", "worker", "label"])
        with pd.ExcelWriter(tmp_path / "a.xlsx") as book:
            pd.DataFrame({"note": ["none"]}).to_excel(book, sheet_name="About", index=False)
            frame.to_excel(book, sheet_name="Labels", index=False, startrow=3, startcol=2)
        crowd = read(tmp_path / "a.xlsx", sheet="Labels").annotations
        assert crowd.to_frame()["instance"].to_pylist() == frame["item"].tolist()

    def test_far_from_the_first_cell_and_without_places(self, tmp_path: Path) -> None:
        """Rows and columns that are empty, and cells whose place is told by their order alone."""
        parts = xlsx_parts({"A": [(), (), (None, *labels()[0]), *((None, *row) for row in labels()[1:])]})
        path = tmp_path / "a.xlsx"
        path.write_bytes(packed(parts))
        assert read(path).annotations.instances.tolist() == list(IDS)
        sheet = "xl/worksheets/sheet1.xml"
        plain = xlsx_parts({"A": labels()})
        for k in range(1, 2 * len(IDS) + 2):
            for letter in "ABC":
                plain[sheet] = plain[sheet].replace(f' r="{letter}{k}"', "")
            plain[sheet] = plain[sheet].replace(f'<row r="{k}">', "<row>")
        path.write_bytes(packed(plain))
        assert read(path).annotations.instances.tolist() == list(IDS)

    def test_in_repeated_rows_and_cells_of_ods(self, tmp_path: Path) -> None:
        path = tmp_path / "a.ods"
        rows = [("item", "worker", "label", "copy"), (IDS[0], "a", "x", 1), (IDS[1], "b", "y", IDS[2])]
        path.write_bytes(ods({"A": rows}, columns=3, rows=2))
        with pytest.raises(ReadError, match=r"the header names column|no column"):
            read(path, label="nothing")
        assert read(path, columns=["item", "worker", "label", "p", "q", "r"]).annotations.instances.tolist() == list(
            IDS[:2]
        )

    @pytest.mark.parametrize("number", ["1.58066143613276E+18", "1.58066143613276e+18"])
    def test_that_were_rounded_before_are_refused_by_name(self, tmp_path: Path, number: str) -> None:
        parts = xlsx_parts({"A": labels()})
        sheet = "xl/worksheets/sheet1.xml"
        parts[sheet] = parts[sheet].replace(f"<v>{IDS[1]}</v>", f"<v>{number}</v>")
        path = tmp_path / "a.xlsx"
        path.write_bytes(packed(parts))
        with pytest.raises(ReadError, match=r"a\.xlsx: column 'item', record 3: '1\.58.* is an id that .* rounded"):
            read(path)
        (tmp_path / "a.csv").write_text(f"item,worker,label\n{number},a,x\n{number},b,y\n")
        with pytest.raises(ReadError, match="format the column as text"):
            read(tmp_path / "a.csv")
        (tmp_path / "b.csv").write_text(f"item,worker,label,price\n1,a,x,{number}\n1,b,y,{number}\n")
        assert len(read(tmp_path / "b.csv").annotations) == 2


class TestWhichFile:
    """A path names another file after the folder changed, or the file was replaced."""

    @staticmethod
    def same_times(*paths: Path) -> None:
        for path in paths:
            os.utime(path, (1e9, 1e9))

    @pytest.mark.parametrize("suffix", ["xlsx", "csv"])
    def test_in_another_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
        words = {"one": "größe", "two": "gr\u0151\u0151e"}  # of the same length in both encodings
        for folder, word in words.items():
            (tmp_path / folder).mkdir()
            path = tmp_path / folder / f"x.{suffix}"
            if suffix == "xlsx":
                path.write_bytes(xlsx({"A": labels("p" if folder == "one" else "q")}))
            else:
                encoding = "latin-1" if folder == "one" else "iso8859-2"
                path.write_bytes(f"item,worker,label\n1,a,{word}\n".encode(encoding))
        self.same_times(*tmp_path.glob(f"*/x.{suffix}"))
        assert len({path.stat().st_size for path in tmp_path.glob("*/x.*")}) == 1
        found = []
        for folder in words:
            monkeypatch.chdir(tmp_path / folder)
            encoding = None if suffix == "xlsx" else "latin-1" if folder == "one" else "iso8859-2"
            found.append(read(f"x.{suffix}", encoding=encoding).annotations.classes.tolist())
        assert found == ([["p", "x"], ["q", "x"]] if suffix == "xlsx" else [[word] for word in words.values()])

    @pytest.mark.parametrize("replaced", [True, False])
    def test_after_a_change_that_keeps_size_and_time(self, tmp_path: Path, replaced: bool) -> None:
        path = tmp_path / "x.xlsx"
        for second in ("p", "q", "r"):
            content = xlsx({"A": labels(second)})
            if replaced:
                (tmp_path / "new").write_bytes(content)
                (tmp_path / "new").replace(path)
            else:
                path.write_bytes(content)
            self.same_times(path)
            assert read(path).annotations.classes.tolist() == sorted([second, "x"])

    def test_of_a_text_whose_encoding_changed(self, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        for encoding in ("utf-8", "utf-16-le", "utf-8"):
            path.write_bytes("item,worker,label\n1,a,x\n2,a,y".ljust(60).encode(encoding).ljust(120))
            self.same_times(path)
            assert read(path).annotations.n_annotators == 1
