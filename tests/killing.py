"""Programs that are killed at random moments and started again, fast: one process imports everything, and is forked.

with Program() as program:
    kill_again_and_again(
        lambda folder: program.start("train", ..., "-o", folder),
        after_changes(random.Random(0), most=8, pause=0.1),
        lambda folder, last: ...,  # compare with what an undisturbed run has left
        tmp_path,
        kills=30,
    )
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

COMMAND_LINE = "from crowdwise.cli import main; main()"
PREPARE = """
import matplotlib.pyplot, rich.console, rich.table, torch._dynamo  # what is otherwise imported on first use
import crowdwise.tasks.train
from crowdwise.cli import app
from typer.testing import CliRunner
CliRunner().invoke(app, ["methods"])
"""
_SERVER = """
import json, os, sys, traceback

exec(sys.argv[1], {})
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(order["folder"])
            output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            sys.argv = ["crowdwise", *order["arguments"]]
            exec(order["code"], {"__name__": "__main__"})
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Attempt:
    """A process of a `Program`."""

    def __init__(self, process: int, answers: Callable[[float | None], str | None], output: Path) -> None:
        self.process, self.output = process, output
        self._answers = answers
        self.code: int | None = None
        """Exit code, or minus the signal; None while it runs."""

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end, for so long at most; the exit code, or None if it goes on."""
        if self.code is None and (answer := self._answers(seconds)) is not None:
            self.code = int(answer)
        return self.code

    def kill(self) -> None:
        """SIGKILL, to this process alone; waits for its end."""
        if self.wait(0) is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.process, signal.SIGKILL)
            self.wait(60)

    def said(self) -> str:
        """What it wrote to stdout and stderr."""
        return self.output.read_text(encoding="utf-8", errors="replace")


class Program:
    """Python ``code`` (by default the command line) in processes forked from one that has run ``prepare``: its imports.

    One attempt at a time. Each is a process of its own from its first line on: own arguments, folder and files.
    """

    def __init__(
        self, code: str = COMMAND_LINE, prepare: str = PREPARE, environment: Mapping[str, str] | None = None
    ) -> None:
        self.code = code
        settings = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, prepare],
            env=os.environ | settings | dict(environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.pending = b""
        self.scratch = tempfile.TemporaryDirectory()
        assert self._answer(120) == "ready", "the imports failed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(60)
        self.scratch.cleanup()

    def start(self, *arguments: Any, cwd: Path | None = None) -> Attempt:
        """Begin an attempt."""
        assert self.server.stdin is not None
        output = Path(self.scratch.name) / f"{time.monotonic_ns()}.txt"
        order = {"code": self.code, "arguments": [str(one) for one in arguments], "output": str(output)}
        self.server.stdin.write(json.dumps(order | {"folder": str(cwd or Path.cwd())}).encode() + b"\n")
        process = self._answer(60)
        assert process is not None
        return Attempt(int(process), self._answer, output)

    def _answer(self, seconds: float | None) -> str | None:
        """The server's next line; None if there is none for so long."""
        assert self.server.stdout is not None
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self.pending:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self.server.stdout], [], [], left)[0]:
                return None
            read = os.read(self.server.stdout.fileno(), 4096)
            if not read:
                raise RuntimeError(f"the server ended with {self.server.wait()}")
            self.pending += read
        line, _, self.pending = self.pending.partition(b"\n")
        return line.decode()


Moment = Callable[[Attempt, Path], object]
"""Waits until an attempt is to be killed, which works in this folder."""


def kill_again_and_again(
    attempt: Callable[[Path], Attempt],
    moment: Moment,
    check: Callable[[Path, Attempt], None],
    folder: Path,
    kills: int,
) -> None:
    """Kill a program so many times, and start it again in the same place until it ends by itself.

    When it does, ``check`` looks at what it has left, and the next attempt begins in a new place. An attempt that fails by
    itself is an error.
    """
    killed = number = 0
    while True:
        place = folder / f"cut{number}"
        process = attempt(place)
        if killed < kills:
            moment(process, place)
            process.kill()
        elif process.wait(600) is None:
            process.kill()
            raise AssertionError(f"it does not end: {process.said()}")
        if process.code == -signal.SIGKILL:
            killed += 1
            continue
        assert process.code == 0, process.said()
        check(place, process)
        if killed == kills:
            return
        number += 1


def after_changes(rng: random.Random, *, most: int, pause: float, within: str = "") -> Moment:
    """After up to so many changes of files in this part of the folder, so that no stage is too fast to be met; and a while."""

    def moment(process: Attempt, place: Path) -> None:
        for _ in range(rng.randint(0, most)):
            before, deadline = _files(place / within), time.monotonic() + 120
            while process.wait(0.002) is None and _files(place / within) == before:
                assert time.monotonic() < deadline, f"nothing was written for two minutes: {process.said()}"
        process.wait(rng.uniform(0, pause))

    return moment


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """What can be seen of a folder's files."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with suppress(FileNotFoundError):  # renamed or removed since
                about = os.stat(path)
                found.append((path, about.st_size, about.st_mtime_ns))
    return sorted(found)
