"""A folder belongs to one process at a time, whatever becomes of that process."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from crowdwise.errors import InUseError, StorageError
from crowdwise.storage import lock
from crowdwise.storage.lock import lock_held_elsewhere, locked

HOLDER = """
import sys
from pathlib import Path
from crowdwise.storage import lock
if sys.argv[2] == "without":
    lock._flock = lambda file: None
    lock._SETTLE = 0.01
with lock.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["flock", "without"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the locks of the system, and on a file system that has none."""
    if request.param == "without":
        fcntl = pytest.importorskip("fcntl")

        def unsupported(*_: Any) -> None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

        monkeypatch.setattr(fcntl, "flock", unsupported)
        monkeypatch.setattr(lock, "_SETTLE", 0.01)
    return str(request.param)


def hold(folder: Path, system: str) -> subprocess.Popen[bytes]:
    """A process that holds the folder until its input ends."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), system],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def check_takes_over(folder: Path) -> None:
    """This process gets the folder, says so, and gives it back."""
    with locked(folder):
        assert json.loads((folder / ".lock").read_text())["process"] == os.getpid()
    assert (folder / ".lock").read_text() == ""


def test_a_second_process_is_told_folder_process_host_and_time(tmp_path: Path, system: str) -> None:
    folder = tmp_path / "run"
    first = hold(folder, system)
    expected = (
        rf"{folder} is in use by process {first.pid} on {re.escape(socket.gethostname())} since \d{{4}}-\d\d-\d\d "
    )
    with pytest.raises(InUseError, match=expected), locked(folder):
        pytest.fail("two at once")
    first.communicate()
    check_takes_over(folder)


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, system: str) -> None:
    first = hold(tmp_path, system)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert json.loads((tmp_path / ".lock").read_text())["process"] == first.pid
    check_takes_over(tmp_path)


def test_a_number_that_another_process_was_given_does_not_hold_the_folder(tmp_path: Path, system: str) -> None:
    holder = {"process": os.getppid(), "host": socket.gethostname(), "since": "", "started": "long ago"}
    (tmp_path / ".lock").write_text(json.dumps(holder))
    check_takes_over(tmp_path)


def test_a_process_of_another_host_is_believed_and_the_remedy_named(tmp_path: Path, system: str) -> None:
    holder = {"process": 7, "host": "elsewhere", "since": "2026-01-02 03:04:05 +0000", "started": "x"}
    (tmp_path / ".lock").write_text(json.dumps(holder))
    with pytest.raises(InUseError, match=r"process 7 on elsewhere since 2026-01-02 03:04:05 \+0000") as refused:
        locked(tmp_path).__enter__()
    assert f"if that process has ended, remove {tmp_path / '.lock'}" in str(refused.value)
    (tmp_path / ".lock").unlink()
    check_takes_over(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"process": "x"}', "\0" * 50, "[" * 3000])
def test_a_file_that_says_nothing_holds_nothing(tmp_path: Path, system: str, content: str) -> None:
    (tmp_path / ".lock").write_text(content)
    check_takes_over(tmp_path)


def test_who_holds_a_folder_may_lock_it_again_but_not_another_thread(tmp_path: Path, system: str) -> None:
    refused: list[str] = []

    def other() -> None:
        try:
            locked(tmp_path).__enter__()
        except InUseError as error:
            refused.append(str(error))

    with locked(tmp_path):
        with locked(tmp_path / ".." / tmp_path.name):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert refused
    assert f"process {os.getpid()} " in refused[0]


def test_of_many_processes_there_is_never_more_than_one_in_the_folder(tmp_path: Path) -> None:
    note = "with open(sys.argv[1] + '/notes', 'a') as notes: notes.write('{}\\n')\n    "
    script = HOLDER.replace(
        "sys.stdin.read()", f"{note.format('in')}import time; time.sleep(0.3)\n    {note.format('out')}"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), "flock"], env=environment, stderr=subprocess.DEVNULL
        )
        for _ in range(5)
    ]
    codes = [process.wait() for process in processes]
    assert codes.count(0) >= 1
    assert (tmp_path / "notes").read_text().split() == ["in", "out"] * codes.count(0)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(lock, "open", refuse, raising=False)
    with pytest.raises(
        StorageError, match=rf"{tmp_path}/\.lock cannot be written: Read-only file system; this user may"
    ):
        locked(tmp_path).__enter__()


def test_a_lock_covers_the_folders_inside_it(tmp_path: Path) -> None:
    with locked(tmp_path / "bench"), locked(tmp_path / "bench" / "cell"):
        assert not (tmp_path / "bench" / "cell" / ".lock").exists()


def test_who_works_for_the_holder_is_let_in(tmp_path: Path) -> None:
    def work(trusted: bool) -> bool:
        with lock_held_elsewhere(tmp_path) if trusted else nullcontext(), locked(tmp_path / "run"):
            return True

    with locked(tmp_path / "run"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(work, True).result()
        assert isinstance(pool.submit(work, False).exception(), InUseError)


def test_the_folder_of_a_lock_is_made_with_those_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "below"
    with locked(folder):
        assert (folder / lock.NAME).is_file()
    with locked(folder):  # which is there already
        pass
