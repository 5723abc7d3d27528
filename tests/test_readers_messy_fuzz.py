"""Damaged spreadsheets and text files in other encodings: they are read, or refused by name; nothing else happens."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.errors import ReadError
from crowdwise.readers import read
from sheet_samples import ods, packed, xlsx

FEW, MANY = 150, 10_000
ROWS = [
    ("item", "worker", "label", "note"),
    *((k // 3, f"w{k % 3}", ("cät", "dog")[k % 2], "x" * (k % 5)) for k in range(24)),
]
TEXT = "\n".join(",".join(map(str, row)) for row in ROWS) + "\n"
PIECES = [
    b",",
    b"\n",
    b'"',
    b"\0",
    b"\xff",
    b"\xe9",
    b"|",
    b"<",
    b"</c>",
    b"1048576",
    b"XFD1",
    b"99999999999",
    b"&#0;",
    b"\xff\xfe",
]


FILES: dict[str, tuple[Callable[[], bytes], dict[str, object]]] = {
    "a.xlsx": (lambda: xlsx({"A": ROWS, "B": ROWS[:2]}), {}),
    "a.ods": (lambda: ods({"A": ROWS}), {}),
    "utf16.csv": (lambda: TEXT.encode("utf-16"), {}),
    "latin.csv": (lambda: TEXT.encode("latin-1"), {}),
    "latin.jsonl": (lambda: '{"item": 1, "worker": "é", "label": "ü"}\n'.encode("latin-1") * 9, {}),
    "a.psv": (lambda: TEXT.replace(",", "|").encode(), {}),
    "a.csv.zst": (lambda: _zstd_file(TEXT.encode()), {}),
    "bare.csv": (lambda: TEXT.partition("\n")[2].encode(), {"columns": ["item", "worker", "label", "note"]}),
    "guess.csv": (lambda: ("a,b,c\n" + _crowd()).encode(), {"clean": True, "missing": "cat"}),
    "rules.csv": (lambda: TEXT.encode(), {"classes": ["CÄT", "dog"], "map": {"dog": "dog"}, "missing": "x"}),
}


def _zstd_file(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return sink.getvalue().to_pybytes()


def _crowd() -> str:
    rng = np.random.default_rng(0)
    rows = [
        (i, j, "cat" if (i % 2) ^ (rng.random() < 0.1) else "Dog") for i in range(40) for j in rng.permutation(6)[:3]
    ]
    return "\n".join(f"t{i},w{j},{y}" for i, j, y in rows) + "\n"


def edited(whole: bytes, rng: np.random.Generator) -> bytes:
    """One to three random edits."""
    for _ in range(rng.integers(1, 4)):
        at, width = int(rng.integers(len(whole) + 1)), int(rng.integers(1, 12))
        piece = PIECES[rng.integers(len(PIECES))]
        whole = [
            whole[:at],
            whole[:at] + piece + whole[at + width :],
            whole[:at] + piece + whole[at:],
            whole[:at] + rng.bytes(width) + whole[at + width :],
            whole[:at] + whole[at + width :],
            whole[:at] + whole[max(at - width, 0) : at] + whole[at:],
        ][rng.integers(6)]
    return whole


def damaged(whole: bytes, rng: np.random.Generator) -> bytes:
    """A damaged file; of a zip file, mostly only one of the files in it, so that its checksums hold."""
    if not whole.startswith(b"PK") or rng.random() < 0.2:
        return edited(whole, rng)
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    name = list(parts)[rng.integers(len(parts))]
    return packed(parts | {name: edited(parts[name], rng)})


def fuzz(folder: Path, name: str, times: int) -> None:
    make, options = FILES[name]
    path, whole, rng = folder / name, make(), np.random.default_rng(list(FILES).index(name))
    path.write_bytes(whole)
    assert len(read(path, **options).annotations)  # type: ignore[arg-type]
    refused = 0
    for _ in range(times):
        path.write_bytes(damaged(whole, rng))
        try:
            export = read(path, **options)  # type: ignore[arg-type]
        except ReadError as error:
            if not str(error).startswith(str(path)):
                raise
            refused += 1
            continue
        assert len(export.annotations)
        assert export.extra is None or export.extra.num_rows == len(export.annotations)
    assert refused
    assert [found.name for found in folder.iterdir()] == [name]  # nothing was unpacked beside it


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_read_or_refused_by_name(in_memory: Path, name: str) -> None:
    fuzz(in_memory, name, FEW)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FILES)
def test_ten_thousand_damaged_files_are_read_or_refused_by_name(in_memory: Path, name: str) -> None:
    fuzz(in_memory, name, MANY)
