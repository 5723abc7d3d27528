"""The program as a process: streams that are closed or cannot encode a name, and the signal that ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = [sys.executable, "-c", "from crowdwise.cli import main; main()"]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and shells of POSIX")
NAMES = [("1", "Zoë", "größe"), ("1", "日本", "größe"), ("2", "Zoë", "klein"), ("2", "日本", "größe")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = ["item,worker,label", *(",".join(row) for row in NAMES)]
    (tmp_path / "u.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "u.csv"


def run(folder: Path, arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The program with arguments and redirections of a shell."""
    script = f'"$@" {arguments}'
    command = ["sh", "-c", script, "sh", *PROGRAM]
    options: Any = {"cwd": folder, "env": os.environ | environment, "capture_output": True, "timeout": 120}
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False, **options)


@pytest.mark.parametrize(("encoding", "name"), [("cp1252", "Zoë"), ("ascii", r"Zo\xeb"), ("utf-8", "Zoë")])
def test_names_that_a_stream_cannot_encode_are_escaped(file: Path, encoding: str, name: str) -> None:
    found = run(file.parent, "annotators u.csv", PYTHONIOENCODING=encoding)
    said = found.stdout.decode(encoding)
    assert (found.returncode, found.stderr) == (0, b"")
    assert name in said
    assert ("日本" if encoding == "utf-8" else r"\u65e5\u672c") in said


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_stop_it_and_get_into_no_file(file: Path, closed: str) -> None:
    assert run(file.parent, "aggregate u.csv -o open.csv").returncode == 0
    assert run(file.parent, f"aggregate u.csv -o closed.csv {closed}").returncode == 0
    for name in ("{}.csv", "{}-annotators.csv"):
        written = [(file.parent / name.format(state)).read_bytes() for state in ("open", "closed")]
        assert written[0] == written[1]


def test_a_closed_standard_input_is_named(file: Path) -> None:
    found = run(file.parent, "agreement - <&-")
    assert (found.returncode, found.stdout) == (1, b"")
    assert b"error: standard input is closed: pipe the annotations in" in found.stderr


def test_a_signal_that_ends_it_is_said_in_a_line(tmp_path: Path) -> None:
    streams: Any = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen([*PROGRAM, "agreement", "-"], env=environment, **streams)
    while not list(tmp_path.glob("crowdwise-*/stdin")):  # where it keeps what it waits for
        time.sleep(0.02)
        assert process.poll() is None
    process.terminate()
    assert process.communicate(timeout=60)[1] == b"terminated\n"
    assert process.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_workers_end_with_a_comparison_that_is_terminated(tmp_path: Path) -> None:
    """Else whoever waits for the end of its output waits for ever."""
    rows = [f"{k},{who},{'xy'[k % 2]},text {k} of {'xy'[k % 2]}" for k in range(60) for who in "abc"]
    (tmp_path / "s.csv").write_text("\n".join(["item,worker,label,text", *rows]))
    command = [*PROGRAM, "compare", "s.csv", "-o", "c"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path)
    while not (workers := children(process.pid, "LokyProcess")):
        time.sleep(0.05)
        assert process.poll() is None
    process.terminate()
    said = process.communicate(timeout=120)[0]  # until nobody has its output open
    assert process.returncode == 128 + signal.SIGTERM, said
    for worker in workers:
        for _ in range(600):
            if not running(worker):
                break
            time.sleep(0.05)
        assert not running(worker)


def running(process: int) -> bool:
    """Whether a process has not ended; one that nobody has asked for its exit status has."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def children(process: int, name: str) -> list[int]:
    """Processes that a process has started, and that are called so."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            command = Path(f"/proc/{child}/cmdline")
            if command.exists() and name in command.read_text():
                found.append(int(child))
    return found
