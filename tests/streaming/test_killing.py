"""`crowdwise aggregate --stream`, killed at random moments and started again, ends with the files of an undisturbed run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from killing import PREPARE, Attempt, Program, after_changes, kill_again_and_again

ROWS = 125_000  # 4 blocks and 6 partitions within 16 MB
OUTPUTS = ("labels.parquet", "labels-annotators.parquet")


def table(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    instance, annotator = rng.integers(ROWS // 5, size=ROWS), rng.integers(200, size=ROWS)
    label = np.where(rng.random(ROWS) < 0.6, instance % 4, rng.integers(4, size=ROWS))
    columns = {"task": instance, "worker": [f"w{k}" for k in annotator], "label": label}
    pq.write_table(pa.table(columns), folder / "crowd.parquet", row_group_size=60_000)
    return folder / "crowd.parquet"


def start(program: Program, path: Path, folder: Path) -> Attempt:
    folder.mkdir(exist_ok=True)
    options = ("--method", "dawid-skene", "--memory", "16MB")
    return program.start("aggregate", path, "--stream", "-o", folder / OUTPUTS[0], *options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def survives(program: Program, folder: Path, kills: int) -> None:
    path = table(folder)
    whole = start(program, path, folder / "whole")
    assert whole.wait(120) == 0, whole.said()
    expected = contents(folder / "whole")
    assert set(expected) == set(OUTPUTS)

    def check(cut: Path, last: Attempt) -> None:
        assert contents(cut) == expected, last.said()

    moment = after_changes(random.Random(kills), most=25, pause=0.02)
    kill_again_and_again(lambda cut: start(program, path, cut), moment, check, folder, kills)


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with Program(
        prepare=f"{PREPARE}\nimport crowdwise.tasks.aggregate", environment={"PYTHONWARNINGS": "error"}
    ) as started:
        yield started


@pytest.mark.slow
def test_thirty_kills_change_nothing(program: Program, tmp_path: Path) -> None:
    survives(program, tmp_path, 30)
