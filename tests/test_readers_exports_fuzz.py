"""Damaged exports of every tool: they are read, or refused with a `ReadError` that names the file; nothing else happens."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from crowdwise.errors import ReadError
from crowdwise.readers import READERS, read
from export_samples import SAMPLES, sample, zipped

ORDINARY, MANY = 100, 10_000
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
    b"]",
    b":",
    b"null",
    b"true",
    b"NaN",
    b"1e999",
    b"9" * 30,
    b"\\ud800",
    b"\xef\xbb\xbf",
    b"[" * 3000,
    b"-1",
    b'"":',
]


def damaged(whole: bytes, rng: np.random.Generator) -> bytes:
    """A damaged file; of a zip file, often only one of the files in it, so that its checksums hold."""
    if not whole.startswith(b"PK") or rng.random() < 0.3:
        return edited(whole, rng)
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    name = list(parts)[rng.integers(len(parts))]
    return zipped(parts | {name: edited(parts[name], rng)})


def edited(whole: bytes, rng: np.random.Generator) -> bytes:
    """One to three random edits: pieces put in, bytes changed or cut out, parts moved, words swapped, the end cut off."""
    for _ in range(rng.integers(1, 4)):
        at, width = int(rng.integers(len(whole) + 1)), int(rng.integers(1, 12))
        other = int(rng.integers(len(whole) + 1))
        piece = PIECES[rng.integers(len(PIECES))]
        whole = [
            whole[:at] if rng.random() < 0.3 else whole[:at] + piece + whole[at + width :],
            whole[:at] + piece + whole[at:],
            whole[:at] + rng.bytes(width) + whole[at + width :],
            whole[:at] + whole[at + width :],
            whole[:at] + whole[other : other + width] + whole[at:],
            _other_value(whole, rng),
        ][rng.integers(6)]
    return whole


def _other_value(whole: bytes, rng: np.random.Generator) -> bytes:
    """One value of a JSON text put in the place of another: types and levels get mixed up."""
    starts = [match.end() for match in re.finditer(b": ", whole[:-1])]
    if len(starts) < 2:
        return whole
    one, two = (starts[k] for k in rng.integers(len(starts), size=2))
    end, until = (k + len(re.match(rb"[^,}\]]*", whole[k:]).group()) for k in (one, two))  # type: ignore[union-attr]
    return whole[:one] + whole[two:until] + whole[end:]


def read_or_refused(path: Path, name: str) -> bool:
    """Whether the file was read; any error but a clear one fails the test."""
    try:
        export = read(path, name)
    except ReadError as error:
        if not str(error).startswith(str(path)):
            raise
        return False
    crowd = export.annotations
    assert len(crowd)
    assert len(export.kinds) == crowd.n_annotators
    assert export.timestamps is None or len(export.timestamps) == len(crowd)
    assert export.durations is None or len(export.durations) == len(crowd)
    assert export.texts is None or len(export.texts) == crowd.n_instances
    assert export.pictures is None or len(export.pictures) == crowd.n_instances
    return True


def fuzz(folder: Path, file: str, times: int) -> None:
    path = sample(folder, file)
    whole, rng = path.read_bytes(), np.random.default_rng(list(SAMPLES).index(file))
    outcomes = []
    for number in range(times):
        path.write_bytes(damaged(whole, rng))
        outcomes.append(read_or_refused(path, "auto" if number % 2 else SAMPLES[file][0]))
    assert False in outcomes
    assert [found.name for found in folder.iterdir()] == [file]  # nothing was unpacked beside it


@pytest.mark.parametrize("file", SAMPLES)
def test_damaged_exports_are_read_or_refused_by_name(in_memory: Path, file: str) -> None:
    fuzz(in_memory, file, ORDINARY)


def test_parquet_metadata_that_contradict_themselves_do_not_end_the_process(in_memory: Path) -> None:
    path = sample(in_memory, "records.parquet")
    whole, reader = path.read_bytes(), SAMPLES["records.parquet"][0]
    outcomes = []
    for match in re.finditer(b"\x02", whole):  # among them, whether a column may be missing
        path.write_bytes(whole[: match.start()] + b"d" + whole[match.end() :])
        outcomes.append(read_or_refused(path, reader))
    assert False in outcomes
    path.write_bytes(whole)
    assert read_or_refused(path, reader)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", SAMPLES)
def test_ten_thousand_damaged_exports_are_read_or_refused_by_name(in_memory: Path, file: str) -> None:
    fuzz(in_memory, file, MANY)


@pytest.mark.parametrize("file", SAMPLES)
@pytest.mark.parametrize("name", READERS)
def test_files_of_another_format_are_read_or_refused(tmp_path: Path, file: str, name: str) -> None:
    own = SAMPLES[file][0]
    if name == own:
        assert read_or_refused(sample(tmp_path, file), name)
    elif read_or_refused(sample(tmp_path, file), name):  # any table may be taken for another
        assert name in ("table", "crowd-kit", "dense")


@pytest.mark.parametrize("file", SAMPLES)
def test_files_that_end_anywhere_are_read_or_refused(tmp_path: Path, file: str) -> None:
    path = sample(tmp_path, file)
    whole = path.read_bytes()
    read_through = [length for length in range(0, len(whole), 1 + len(whole) // 60) if _cut(path, whole, length)]
    rows = file.endswith((".csv", ".tsv", ".jsonl"))  # may end between two records
    assert not read_through or rows


def _cut(path: Path, whole: bytes, length: int) -> bool:
    path.write_bytes(whole[:length])
    return read_or_refused(path, "auto")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-32"])
@pytest.mark.parametrize("file", ["tasks.json", "rows.csv", "pool.tsv", "batch.csv", "choice.jsonl", "long.csv"])
def test_other_encodings_are_read(tmp_path: Path, file: str, encoding: str) -> None:
    path = sample(tmp_path, file)
    expected = read(path).annotations
    path.write_bytes(path.read_text(encoding="utf-8").encode(encoding))
    assert read(path).annotations == expected
