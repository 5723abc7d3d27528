"""Damaged tables of every format: they are read, or refused with an error that names the file; nothing else happens.

Damage is drawn from fixed seeds: bytes changed, cut out and put in, files cut short, columns of unexpected types.
"""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.annotations import Annotations
from crowdwise.errors import AnnotationError, CrowdwiseError
from crowdwise.readers import read_table, write_table

SUFFIXES = ["csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz", "jsonl.gz", "csv.zst"]
PIECES = [
    b",",
    b"\t",
    b"\n",
    b"\r",
    b'"',
    b"\x00",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b"null",
    b"1e999",
    b"9" * 30,
    b"\xef\xbb\xbf",
]


def crowd_table(rows: int = 30) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "task": [f"t{k // 3}" for k in numbers],
            "worker": [k % 3 for k in numbers],
            "label": [("yes", "no", "é")[k % 3] for k in numbers],
            "gold": ["yes" if k % 2 else None for k in numbers],
        }
    )


def damaged(whole: bytes, rng: np.random.Generator) -> bytes:
    """One to three random edits."""
    for _ in range(rng.integers(1, 4)):
        at, width = int(rng.integers(len(whole) + 1)), int(rng.integers(1, 9))
        piece = PIECES[rng.integers(len(PIECES))]
        noise = rng.bytes(width)
        whole = [
            whole[:at],
            whole[:at] + piece + whole[at:],
            whole[:at] + noise + whole[at + width :],
            whole[:at] + whole[at + width :],
            whole[:at] + whole[max(at - width, 0) : at] + whole[at:],
        ][rng.integers(5)]
    return whole


def read_or_refused(path: Path) -> bool:
    """Whether the file was read; any error but a clear one fails the test."""
    try:
        annotations = read_table(path).annotations
    except CrowdwiseError as error:
        if path.name not in str(error):
            raise
        return False
    assert annotations.label.max() < annotations.n_classes
    assert len(annotations.to_frame().to_pylist()) == len(annotations)
    return True


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_files_are_read_or_refused_by_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"crowd.{suffix}"
    write_table(crowd_table(), path)
    whole, rng = path.read_bytes(), np.random.default_rng(SUFFIXES.index(suffix))
    outcomes = []
    for _ in range(150):
        path.write_bytes(damaged(whole, rng))
        outcomes.append(read_or_refused(path))
    assert False in outcomes


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_that_end_anywhere_are_read_or_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"crowd.{suffix}"
    write_table(crowd_table(6), path)
    whole = path.read_bytes()
    text = suffix in ("csv", "tsv", "jsonl")  # may end between two records
    for length in range(0, len(whole), 1 if len(whole) < 400 else 11):
        path.write_bytes(whole[:length])
        assert not read_or_refused(path) or text, length


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_other_encodings_are_read(tmp_path: Path, suffix: str, encoding: str) -> None:
    path = tmp_path / f"crowd.{suffix}"
    write_table(crowd_table(), path)
    expected = read_table(path).annotations
    path.write_bytes(path.read_text(encoding="utf-8").encode(encoding))
    assert read_table(path).annotations == expected


COLUMNS: dict[str, list[Any]] = {
    "floats": [0.5, 1.5],
    "not a number": [float("nan"), 1.0],
    "booleans": [True, False],
    "nulls": [None, None],
    "lists": [[1], [2]],
    "records": [{"a": 1}, {"a": 2}],
    "days": [datetime.date(2026, 1, 2), datetime.date(2026, 1, 3)],
    "times": [datetime.datetime(2026, 1, 2, 10), datetime.datetime(2026, 1, 3)],
    "durations": [datetime.timedelta(1), datetime.timedelta(2)],
    "decimals": [decimal.Decimal("1.5"), decimal.Decimal("2")],
    "bytes": [b"\xff\x00", b"a"],
    "largest": [2**63 - 1, -(2**63)],
    "unsigned": pa.array([2**64 - 1, 0], pa.uint64()),
    "categories": pa.array(["a", "b"]).dictionary_encode(),
    "large text": pa.array(["x" * 100_000, "y"], pa.large_string()),
    "text views": pa.array(["a", "b"], pa.string_view()),
    "empty text": ["", ""],
}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("role", ["task", "worker", "label"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_any_type_are_taken_or_refused(tmp_path: Path, suffix: str, role: str, kind: str) -> None:
    table = pa.table({"task": ["a", "b"], "worker": ["u", "v"], "label": ["x", "y"]} | {role: COLUMNS[kind]})
    path = tmp_path / f"crowd.{suffix}"
    try:
        write_table(table, path)
    except CrowdwiseError:
        pytest.skip(f"{suffix} cannot hold {kind}")
    if read_or_refused(path):
        blank = kind == "not a number" and role == "label"  # a label that is missing is left out
        assert len(read_table(path).annotations) == 2 - blank


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
def test_huge_ids_stay_what_they_are(tmp_path: Path, suffix: str) -> None:
    tasks = ["9" * 40, "x" * 100_000, "\U0001f600" * 100]
    path = tmp_path / f"crowd.{suffix}"
    write_table(pa.table({"task": tasks, "worker": [2**62] * 3, "label": ["a", "b", "a"]}), path)
    crowd = read_table(path).annotations
    assert crowd.instances.tolist() == tasks
    assert crowd.annotators.tolist() == [2**62]
    assert crowd == Annotations.coerce((tasks, [2**62] * 3, ["a", "b", "a"]))


@pytest.mark.parametrize("number", ["9" * 40, "-" + "9" * 40, str(2**64)])
def test_integers_beyond_64_bits_are_text_in_csv_and_refused_in_jsonl(tmp_path: Path, number: str) -> None:
    (tmp_path / "a.csv").write_text(f"task,worker,label\n{number},1,x\n2,1,y\n")
    assert read_table(tmp_path / "a.csv").annotations.instances.tolist() == [number, "2"]
    records = (f'{{"task": {task}, "worker": 1, "label": "x"}}\n' for task in (number, 2))
    (tmp_path / "a.jsonl").write_text("".join(records))
    with pytest.raises(
        AnnotationError, match="column 'task': cannot be read as ids"
    ):  # as floats they would be rounded
        read_table(tmp_path / "a.jsonl")
