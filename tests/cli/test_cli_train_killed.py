"""`crowdwise train` may be killed at any moment, as often as one likes: resumed, it ends with the same model."""

from __future__ import annotations

import errno
import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crowdwise.engine import checkpoint
from crowdwise.storage.lock import locked
from killing import Attempt, Program, kill_again_and_again

SETTINGS = {
    "ce": {"epochs": 40, "lr": 0.03, "backbone_options": '{"hidden": 16, "dropout": 0.3}'},
    "taidtm": {
        "epochs": 15,
        "warmup_epochs": 10,
        "warmup_lr": 0.05,
        "transition_epochs": 5,
        "gcn_epochs": 5,
        "k": 2,
        "min_examples": 5,
        "backbone_options": '{"hidden": 16, "dropout": 0.3}',
    },
}
Files = dict[str, Path]


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with Program() as started:
        yield started


def attempt(program: Program, method: str, files: Files, run: Path) -> Attempt:
    """Start the run, or go on with it once it has begun."""
    if (run / "run.json").exists():
        return program.start("train", "--resume", run)
    settings = [part for name, value in SETTINGS[method].items() for part in ("--set", f"{name}={value}")]
    data = ("--inputs", files["X"], "--annotations", files["rows"])
    return program.start("train", "-m", method, *data, *settings, "-o", run)


def outcome(run: Path) -> tuple[bytes, list[dict[str, Any]], set[str]]:
    """What must not depend on interruptions: weights, history but for times, and which files there are."""
    history = json.loads((run / "model" / "model.json").read_text("utf-8"))["history"]
    for record in history:
        del record["seconds"]
    names = {str(path.relative_to(run)) for path in run.rglob("*")}
    return (run / "model" / "weights.safetensors").read_bytes(), history, names


def survives(program: Program, method: str, files: Files, folder: Path, kills: int) -> None:
    started = time.perf_counter()
    whole = attempt(program, method, files, folder / "whole")
    assert whole.wait(300) == 0, whole.said()
    within = time.perf_counter() - started
    rng = random.Random(f"{method} {kills}")

    def check(run: Path, last: Attempt) -> None:
        warned = [line for line in last.said().splitlines() if line.startswith("warning: ")]
        assert all("the classifier of stage" in line for line in warned), (
            last.said()
        )  # which learns nothing from chance
        assert outcome(run) == outcome(folder / "whole")

    kill_again_and_again(
        lambda run: attempt(program, method, files, run),
        lambda process, _: process.wait(rng.uniform(0, within)),
        check,
        folder,
        kills,
    )


def test_a_second_command_in_the_same_folder_is_refused(files: Files, cli: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    data = ("--inputs", files["X"], "--annotations", files["rows"])
    with locked(run), ThreadPoolExecutor(1) as pool:  # another thread is refused as another process is
        second = pool.submit(cli, "train", "-m", "ce", *data, "-o", run, code=1).result()
    assert second.output.splitlines()[-1].startswith(f"error: {run} is in use by process {os.getpid()} on ")
    assert not (run / "run.json").exists()


def test_a_full_disk_ends_with_a_line_that_says_how_to_go_on(
    files: Files, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "save_file", full)
    data = ("--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1)
    output = cli("train", "-m", "ce", *data, "-o", "run", code=1).output
    last = output.splitlines()[-1]
    assert last.startswith("error: run/checkpoint.safetensors cannot be written: No space left on device; ")
    assert last.endswith(
        "MB are free in run: make room there and try again; then go on with  crowdwise train --resume run"
    )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    cli("train", "--resume", "run")


@pytest.mark.slow
@pytest.mark.parametrize("method", list(SETTINGS))
def test_thirty_kills_change_nothing(method: str, program: Program, files: Files, tmp_path: Path) -> None:
    survives(program, method, files, tmp_path, 30)
