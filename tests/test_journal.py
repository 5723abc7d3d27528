"""A journal keeps what it has said it keeps."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from crowdwise.errors import DataError, StorageError
from crowdwise.storage.journal import LONGEST, Journal


def records(path: Path) -> list[dict[str, object]]:
    with Journal(path) as journal:
        return [record for _, record in journal.records()]


def test_records_come_back_in_order_whatever_they_hold(tmp_path):
    path = tmp_path / "journal.jsonl"
    written = [{"n": 1}, {"text": "two\nlines \u2028 \U0001f600 \x00"}, {"nested": [1.5, None, {"a": "ü"}]}]
    for record in written:
        with Journal(path) as journal:
            journal.append(record)
    assert records(path) == written


@pytest.mark.parametrize("torn", [b'{"n": 2', b"{", b'{"n": 2}', b"\x00" * 30])
def test_a_torn_last_line_is_cut_off(tmp_path, torn):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 1})
    with open(path, "ab") as file:
        file.write(torn)
    with Journal(path) as journal:
        journal.append({"n": 3})
    assert records(path) == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b"\n", b"[" * 50_000 + b"\n"])
def test_a_damaged_line_elsewhere_is_named(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"n": 1}\n' + line + b'{"n": 3}\n')
    with pytest.raises(DataError, match="line 2 is damaged"):
        records(path)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_has_lost_its_name_takes_no_records(tmp_path, replaced):
    path, aside = tmp_path / "journal.jsonl", tmp_path / "aside.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 1})
        path.rename(aside)
        if replaced:
            path.write_bytes(b"")
        for number in (2, 3):
            with pytest.raises(StorageError, match="replaced by another file" if replaced else "was removed"):
                journal.append({"n": number})
        assert records(aside) == [{"n": 1}]  # what was refused is nowhere
        aside.replace(path)
        journal.append({"n": 4})
    assert records(path) == [{"n": 1}, {"n": 4}]


def test_what_could_not_be_written_leaves_no_trace(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.append({"n": 1})
        whole = os.write

        def half(file: int, data: bytes) -> int:
            if len(data) < 5:
                raise OSError(errno.ENOSPC, "No space left on device")
            return whole(file, data[: len(data) // 2])

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(StorageError, match=r"journal.jsonl cannot be written.*make room"):
            journal.append({"n": 2})
        monkeypatch.undo()
        journal.append({"n": 3})
    assert records(path) == [{"n": 1}, {"n": 3}]


def test_it_refuses_links_and_endless_lines_and_what_is_closed(tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("mine")
    (tmp_path / "journal.jsonl").symlink_to(other)
    with pytest.raises(StorageError):
        Journal(tmp_path / "journal.jsonl")
    assert other.read_text() == "mine"
    big = tmp_path / "big"
    big.write_bytes(b"x" * (LONGEST + 10))
    with pytest.raises(DataError, match="no journal"):
        Journal(big)
    journal = Journal(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match="are the most"):
        journal.append({"text": "x" * LONGEST})
    journal.close()
    with pytest.raises(StorageError, match="closed"):
        journal.append({"n": 1})
