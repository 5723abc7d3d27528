"""`crowdwise aggregate --stream`, killed at random moments and started again, ends with the files of an undisturbed run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 125_000  # 4 blocks and 6 partitions within 16 MB
OUTPUTS = ("labels.parquet", "labels-annotators.parquet")


def table(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    instance, annotator = rng.integers(ROWS // 5, size=ROWS), rng.integers(200, size=ROWS)
    label = np.where(rng.random(ROWS) < 0.6, instance % 4, rng.integers(4, size=ROWS))
    columns = {"task": instance, "worker": [f"w{k}" for k in annotator], "label": label}
    pq.write_table(pa.table(columns), folder / "crowd.parquet", row_group_size=60_000)
    return folder / "crowd.parquet"


def start(path: Path, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", "from crowdwise.cli import main; main()", "aggregate", str(path), "--stream"]
    command += ["-o", str(folder / OUTPUTS[0]), "--method", "dawid-skene", "--memory", "16MB"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "error"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def state(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # renamed or removed since
                about = os.stat(os.path.join(place, name))
                found.append((name, about.st_size, about.st_mtime_ns))
    return sorted(found)


def killed_again_and_again(folder: Path, times: int) -> None:
    path, cut, rng = table(folder), folder / "cut", random.Random(times)
    finish(start(path, folder / "whole"))
    whole = contents(folder / "whole")
    assert set(whole) == set(OUTPUTS)
    kills = 0
    while kills < times:
        process = start(path, cut)
        for _ in range(rng.randint(1, 25)):  # changes of files, so that no stage is too fast to be met
            before = state(cut)
            while process.poll() is None and state(cut) == before:
                time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.02))
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            kills += 1
        else:  # it had ended before: begin with nothing again
            assert process.returncode == 0
            assert contents(cut) == whole
            shutil.rmtree(cut)
    finish(start(path, cut))
    assert contents(cut) == whole


def test_a_command_that_is_killed_at_random_moments_ends_with_the_same_files(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, 4)


@pytest.mark.slow
def test_thirty_kills_change_nothing(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, 30)
