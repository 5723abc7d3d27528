"""Files are there whole or not at all, and say why where they are not."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crowdwise.errors import DatasetError, StorageError
from crowdwise.storage import files
from crowdwise.storage.files import replacing, storing, tidy


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise InterruptedError(errno.EINTR, "stopped")

    with pytest.raises(StorageError), replacing(path) as temporary:
        half(temporary)
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_what_is_replaced_can_be_kept(tmp_path: Path) -> None:
    for text in ("first", "second", "third"):
        with replacing(tmp_path / "a.txt", keep=tmp_path / "before.txt") as temporary:
            temporary.write_text(text)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a.txt": "third", "before.txt": "second"}


def test_a_file_reaches_the_disk_before_its_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace"):
        usual = getattr(os, name)

        def noted(*arguments: Any, name: str = name, usual: Any = usual) -> Any:
            calls.append(name)
            return usual(*arguments)

        monkeypatch.setattr(files.os, name, noted)
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("x")
    assert calls == ["fsync", "replace", "fsync"]  # the file, its name, the folder


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, r"No space left on device; [\d,]+ MB are free in .*: make room there"),
        (errno.EROFS, "Read-only file system; this user may not write in the folder"),
        (errno.EACCES, "Permission denied; this user may not write in the folder"),
        (errno.EIO, "Input/output error; check the folder"),
    ],
    ids=errno.errorcode.get,
)
def test_errors_name_file_folder_and_remedy(tmp_path: Path, number: int, remedy: str) -> None:
    with (
        pytest.raises(StorageError, match=rf"{tmp_path}/a\.txt cannot be written: {remedy}"),
        storing(tmp_path / "a.txt"),
    ):
        raise OSError(number, os.strerror(number))


def test_errors_that_have_a_name_keep_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"^mine$"), storing(tmp_path / "a.txt"):
        raise DatasetError("mine")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_device_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No space left on device"), storing(Path("/dev/full")):
        Path("/dev/full").write_text("x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    refused = pytest.raises(StorageError, match=f"this user may not write in the folder {tmp_path}")
    with refused, replacing(tmp_path / "a") as temporary:
        temporary.write_text("x")


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".model.77.tmp").mkdir()
    (tmp_path / ".model.77.tmp" / "weights").write_text("")
    for name in (".a.json.1.tmp", ".b.png.1.partial", ".tmpAbCd12", "a.json", ".lock"):
        (tmp_path / name).write_text("")
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a.json"]


def test_tensors_that_do_not_fit_on_the_disk_leave_the_last_file(tmp_path: Path) -> None:
    """A real limit of the system, in a process of its own: files may not grow beyond 4 kB."""
    script = f"""
import resource, torch
from pathlib import Path
from crowdwise.engine.checkpoint import write_tensors
path = Path({str(tmp_path / "x.safetensors")!r})
write_tensors(path, {{"a": torch.ones(5)}}, {{}})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, {resource.RLIM_INFINITY}))
write_tensors(path, {{"a": torch.ones(5000)}}, {{}})
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert "StorageError" in done.stderr
    assert "x.safetensors cannot be written: File too large; " in done.stderr
    assert f"MB are free in {tmp_path}: make room there" in done.stderr
    from crowdwise.engine.checkpoint import read_tensors

    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]
    assert len(read_tensors(tmp_path / "x.safetensors").tensors["a"]) == 5


def test_what_killed_processes_left_of_a_file_goes_with_the_next_one(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine, theirs, other = (
        tmp_path / f".tmp-{process}-0123abcd-{name}"
        for process, name in ((os.getpid(), "a.csv"), (ended.pid, "a.csv"), (ended.pid, "b.csv"))
    )
    for path in (mine, theirs, other):
        path.write_text("begun")
    with files.replacing_all([tmp_path / "a.csv"]) as staged:
        staged[tmp_path / "a.csv"].write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine.name, other.name, "a.csv"])
