"""Filling a benchmark may be stopped at any time, by anything, and shared by processes: each run is done once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crowdwise.bench import filling, runner
from crowdwise.bench.cells import Cell
from crowdwise.bench.filling import Packing, claimed, fill
from crowdwise.bench.records import folder_of, read_record, shared_of
from crowdwise.errors import InUseError

LONG = 600.0
PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from test_filling import tiny_cells
from crowdwise.bench.filling import fill
done = fill(tiny_cells(), Path(sys.argv[1]), float(sys.argv[2]), jobs=1, threads=1)
print(*(record["cell"] for record in done.records))
"""


def tiny_cells(methods: tuple[str, ...] = ("ce", "dl-mv"), seeds: int = 3, epochs: int = 2) -> list[Cell]:
    common = {"backbone": "mlp", "backbone_options": {"hidden": 16}, "epochs": epochs}
    early = {"warmup_epochs": 2, "warmup_lr": 0.1, "transition_epochs": 1}
    return [
        Cell(
            "tiny",
            "digits",
            method,
            method,
            seed,
            data={"name": "digits"},
            simulate={"n_annotators": 12, "noise_rate": 0.1},
            parameters=common | (early if method in ("bltm", "taidtm") else {}),
        )
        for seed in range(seeds)
        for method in methods
    ]


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    program = PROGRAM.format(path=[str(Path(__file__).parent), str(Path(__file__).parents[1])])
    command = [sys.executable, "-c", program, str(folder), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def accuracies(folder: Path) -> dict[str, float]:
    return {record["cell"]: record["test_accuracy"] for record in runner.read_records(folder)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that was filled in one go."""
    folder = tmp_path_factory.mktemp("filled")
    done = fill(tiny_cells(), folder, LONG, jobs=1, threads=1)
    assert (len(done.records), done.left) == (6, 0)
    return folder


def test_every_cell_gets_a_record_and_none_is_run_again(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert accuracies(filled).keys() == {cell.id for cell in tiny_cells()}
    monkeypatch.setattr(filling._Filling, "_hire", lambda *_: pytest.fail("a process was started"))
    assert fill(tiny_cells(), filled, LONG).records == []


def test_two_processes_share_a_folder_and_do_each_run_once(filled: Path, tmp_path: Path) -> None:
    both = [start(tmp_path, LONG), start(tmp_path, LONG)]
    done = [process.communicate(timeout=300)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(done[0] + done[1]) == sorted(cell.id for cell in tiny_cells())
    assert accuracies(tmp_path) == accuracies(filled)


def test_after_a_kill_the_rest_is_done_and_nothing_twice(filled: Path, tmp_path: Path) -> None:
    process = start(tmp_path, LONG)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("cells/*/record.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*/record.json")}
    assert before
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # its worker ends with it
        done = fill(tiny_cells(), tmp_path, LONG, jobs=1, threads=1)
        if not done.left:
            break
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert accuracies(tmp_path) == accuracies(filled)


def test_the_time_ends_it_and_a_later_call_goes_on(tmp_path: Path) -> None:
    cells = tiny_cells(("ce",), seeds=1, epochs=100_000)
    began = time.monotonic()
    done = fill(cells, tmp_path, 8.0, jobs=1, threads=1)
    assert time.monotonic() - began < 60
    assert (done.records, done.left) == ([], 1)
    assert read_record(folder_of(tmp_path, cells[0])) is None


def test_a_failed_run_is_reported_and_tried_again_by_the_next_call(tmp_path: Path) -> None:
    (good,) = tiny_cells(("ce",), seeds=1)
    bad = Cell(**{**good.as_json(), "seed": 1, "parameters": {**good.parameters, "prepare": "no such way"}})
    for _ in range(2):
        done = fill([bad], tmp_path, LONG, jobs=1, threads=1)
        assert ["no such way" in record["error"] for record in done.records] == [True]
        assert done.left == 1


def test_runs_that_share_stages_are_claimed_together(tmp_path: Path) -> None:
    bltm, taidtm = tiny_cells(("bltm", "taidtm"), seeds=1)
    (ce,) = tiny_cells(("ce",), seeds=1)
    with claimed(bltm, tmp_path):
        assert list(filling._free([ce], tmp_path, 0.0)) == [ce]
        process = subprocess.run([sys.executable, "-c", CLAIM.format(path=_paths()), tmp_path], capture_output=True)
        assert process.stdout.decode().split() == ["bltm", "taken", "taidtm", "taken", "ce", "free"]
    with claimed(taidtm, tmp_path):
        pass


CLAIM = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from test_filling import tiny_cells
from crowdwise.bench.filling import claimed
from crowdwise.errors import InUseError
for cell in tiny_cells(("bltm", "taidtm", "ce"), seeds=1):
    try:
        with claimed(cell, Path(sys.argv[1])):
            print(cell.method, "free")
    except InUseError:
        print(cell.method, "taken")
"""


def _paths() -> list[str]:
    return [str(Path(__file__).parent), str(Path(__file__).parents[1])]


def test_shared_stages_are_forgotten_when_their_runs_are_done(tmp_path: Path) -> None:
    cells = tiny_cells(("bltm",), seeds=1)
    assert not fill(cells, tmp_path, LONG, jobs=1, threads=1).left
    kept = shared_of(tmp_path, cells[0])
    assert [path for path in kept.iterdir() if path.name != ".lock"]
    fill(cells, tmp_path, LONG)
    assert not [path for path in kept.iterdir() if path.name != ".lock"]


def test_a_folder_in_use_by_bench_run_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> Any:
        raise InUseError(f"{folder} is in use")

    monkeypatch.setattr(filling, "locked", refuse)
    with pytest.raises(InUseError, match="in use"):
        filling.write_records(tiny_cells(seeds=1), tmp_path, patience=0.3)


@pytest.mark.parametrize(
    ("speeds", "most", "jobs"),
    [
        ([1.0, 1.9, 3.5, 4.9, 9.9], 8, 8),  # twice as many nearly twice as fast
        ([1.0, 1.0, 9.9], 8, 1),  # two take turns
        ([1.0, 1.7, 1.8, 9.9], 8, 2),
        ([1.0, 1.9, 9.9], 2, 2),
    ],
)
def test_more_runs_at_once_only_while_they_pay(speeds: list[float], most: int, jobs: int) -> None:
    packing = Packing(most)
    for speed in speeds:
        packing.measured(speed)
    assert packing.jobs == jobs
