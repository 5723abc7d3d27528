"""A benchmark can be interrupted at any time, by anything, and ends with the table of one that was not."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bench_helpers import InThisProcess
from crowdwise.bench import measure, rendering, runner, tables
from crowdwise.bench.cells import Cell
from crowdwise.bench.experiments import load_experiment
from crowdwise.bench.processes import Processes
from crowdwise.bench.records import RecordLog, read_record
from crowdwise.engine import stage_store
from crowdwise.errors import InUseError, ModelFileError
from killing import PREPARE, Attempt, Program, after_changes, kill_again_and_again

TINY = """
seeds = 1
methods = ["ce", "bltm", "taidtm"]

[[columns]]
label = "digits"
preset = "digits"
simulate = { n_annotators = 12, noise_rate = 0.1 }

[columns.parameters]
backbone = "mlp"
backbone_options = { hidden = 32 }
bottleneck = 8
gcn_hidden = 8
epochs = EPOCHS
warmup_epochs = 4
warmup_lr = 0.1
transition_epochs = 2
individual_epochs = 1
gcn_epochs = 2
"""
NOT_OF_THE_RESULT = ("seconds", "stage_seconds", "median_epoch_seconds", "peak_memory_mb", "sharing", "when")
Record = dict[str, Any]


def tiny(folder: Path, epochs: int = 3) -> Path:
    path = folder / "tiny.toml"
    path.write_text(TINY.replace("EPOCHS", str(epochs)), encoding="utf-8")
    return path


def cells(folder: Path, **options: Any) -> list[Cell]:
    return load_experiment(tiny(folder)).cells(**options)


def results(records: Sequence[Record]) -> list[Record]:
    """What must not differ between a run that was interrupted and one that was not."""
    return [{key: value for key, value in record.items() if key not in NOT_OF_THE_RESULT} for record in records]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """As in worker processes with ``threads=1``: sums come out the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a benchmark of three cells that ran to its end."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "Processes", InThisProcess)
        records = runner.run(cells(folder), folder / "out", jobs=2, threads=1)
    assert ["error" in record for record in records] == [False] * 3, records
    return folder


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_cells_in_processes_have_the_records_of_cells_in_this_one(jobs: int, finished: Path, tmp_path: Path) -> None:
    wanted = [cell for seed in range(jobs) for cell in cells(tmp_path, methods=["ce"], seeds=[seed])]
    records = runner.run(wanted, tmp_path / "out", jobs=jobs, threads=1)
    assert results(records[:1]) == results(runner.read_records(finished / "out")[:1])
    assert [record["sharing"] for record in records] == [jobs] * jobs


class TestFinishedCells:
    def test_every_cell_has_one_record_in_the_order_of_the_cells(self, finished: Path) -> None:
        records = runner.read_records(finished / "out")
        assert [record["row"] for record in records] == ["CE", "BLTM", "TAIDTM"]
        for record, cell in zip(records, cells(finished), strict=True):
            assert record["cell"] == cell.id
            assert record.items() >= json.loads(json.dumps(cell.as_json())).items()
            assert 30 < record["test_accuracy"] <= 100
            assert [point[0] for point in record["curve"]] == [0, 1, 2]

    def test_a_record_says_how_many_labels_are_right_and_how_many_are_claimed_to_be(self, finished: Path) -> None:
        for record in runner.read_records(finished / "out"):
            assert 30 < record["labels_right"] <= 100
            assert 10 <= record["claimed"] <= 100
            assert abs(record["labels_right"] - record["claimed"]) / 100 <= record["calibration_error"] + 1e-3
            assert 10 <= record["majority_vote_right"] <= 100

    def test_nothing_but_records_and_maps_is_left(self, finished: Path) -> None:
        names = {f"cells/{cell.id}/record.json" for cell in cells(finished)}
        names |= {f"cells/{cells(finished)[2].id}/map.npz", "records.jsonl", ".lock"}
        assert files(finished / "out") == names
        assert not (finished / "out" / "shared").exists()

    def test_the_warm_up_is_trained_once_for_methods_that_have_it_in_common(self, finished: Path) -> None:
        _, bltm, taidtm = runner.read_records(finished / "out")
        for stage in ("warm-up", "global transition"):
            assert bltm["stage_seconds"][stage] == taidtm["stage_seconds"][stage]
        assert taidtm["seconds"] >= sum(taidtm["stage_seconds"].values())  # but counts for both

    def test_they_are_never_run_again(self, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Processes, "_hire", lambda *_: pytest.fail("a process was started"))
        told: list[tuple[int, int]] = []
        before = (finished / "out" / "records.jsonl").read_bytes()
        records = runner.run(
            cells(finished), finished / "out", watch=lambda status, _: told.append((status.finished, status.total))
        )
        assert told == [(3, 3)]
        assert len(records) == 3
        assert (finished / "out" / "records.jsonl").read_bytes() == before

    def test_a_cell_at_two_places_runs_once_and_is_recorded_at_both(self, finished: Path, tmp_path: Path) -> None:
        text = TINY.replace('methods = ["ce", "bltm", "taidtm"]', "").replace("EPOCHS", "3")
        text = f'[rows."first"]\nmethod = "ce"\n[rows."again"]\nmethod = "ce"\n{text.partition("seeds = 1")[2]}'
        (tmp_path / "twice.toml").write_text(text, encoding="utf-8")
        twice = load_experiment(tmp_path / "twice.toml").cells(seeds=[0])
        records = runner.run(twice, finished / "out")  # where ce has been run already
        assert [record["row"] for record in records] == ["first", "again"]
        assert records[0]["test_accuracy"] == records[1]["test_accuracy"]
        runner.run(cells(finished), finished / "out")
        assert len(runner.read_records(finished / "out")) == 3

    def test_a_part_of_an_experiment_leaves_the_records_of_the_rest_alone(self, finished: Path) -> None:
        runner.run(cells(finished, methods=["bltm"]), finished / "out")
        assert sorted(record["row"] for record in runner.read_records(finished / "out")) == ["BLTM", "CE", "TAIDTM"]

    def test_records_of_changed_settings_take_the_place_of_earlier_ones(self, finished: Path) -> None:
        log = RecordLog(cells(finished, methods=["ce"], parameters={"epochs": 4}), finished / "out")
        assert sorted(record["row"] for record in log.others) == ["BLTM", "TAIDTM"]
        runner.run(cells(finished), finished / "out")
        assert len(runner.read_records(finished / "out")) == 3


class TestFailures:
    @pytest.mark.usefixtures("in_this_process")
    def test_a_failing_cell_stops_no_other_and_is_tried_again(self, tmp_path: Path) -> None:
        wanted = cells(tmp_path, methods=["ce", "taidtm"])
        broken = cells(tmp_path, methods=["ce"], seeds=[1], parameters={"backbone": "nonsense"})
        records = runner.run([*broken, *wanted], tmp_path / "out", jobs=1, threads=1)
        assert records[0]["error"].startswith("ConfigError: unknown backbone 'nonsense'")
        assert "Traceback" in records[0]["traceback"]
        assert all(record["test_accuracy"] > 30 for record in records[1:])
        assert runner.read_records(tmp_path / "out") == records
        tried: list[str] = []
        again = runner.run(
            [*broken, *wanted],
            tmp_path / "out",
            jobs=1,
            watch=lambda _, record: tried.append(record["row"]) if record else None,
        )
        assert tried == ["CE"]
        assert [record.get("error") for record in again] == [record.get("error") for record in records]

    @pytest.mark.slow
    def test_a_killed_worker_is_replaced_and_its_cell_has_failed(self, tmp_path: Path) -> None:
        wanted = cells(tmp_path, methods=["bltm", "taidtm"])  # one family, in one process
        killed: list[int] = []

        def kill(status: runner.Status, _: Record | None) -> None:
            if not killed and any("epoch 2" in stage for stage in status.running.values()):
                (child,) = multiprocessing.active_children()
                killed.append(child.pid or 0)
                os.kill(child.pid or 0, signal.SIGKILL)

        records = runner.run(wanted, tmp_path / "out", jobs=1, threads=1, watch=kill)
        assert killed
        assert records[0]["error"] == "its process died with signal SIGKILL (out of memory?)"
        assert "error" not in records[1]
        again = runner.run(wanted, tmp_path / "out", jobs=1, threads=1)  # goes on with epoch 2
        assert all("error" not in record for record in again)
        assert not (tmp_path / "out" / "cells" / wanted[0].id / "failed.json").exists()
        assert runner.read_records(tmp_path / "out") == again

    def test_a_cell_whose_record_was_written_before_its_process_died_has_not_failed(self, tmp_path: Path) -> None:
        (cell,) = cells(tmp_path, methods=["ce"])
        folder = tmp_path / "out" / "cells" / cell.id

        def kill(status: runner.Status, _: Record | None) -> None:
            if status.running:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "record.json").write_text(json.dumps(cell.as_json() | {"cell": cell.id}))
                os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)

        (record,) = runner.run([cell], tmp_path / "out", jobs=1, threads=1, watch=kill)
        assert "error" not in record


class TestOneAtATime:
    def test_a_second_benchmark_in_a_folder_is_refused_with_the_number_of_the_first(self, tmp_path: Path) -> None:
        wanted = cells(tmp_path)
        script = "import sys; from pathlib import Path; from crowdwise.storage.lock import locked\n"
        script += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "out")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == b"held\n"
            with pytest.raises(InUseError, match=f"out is in use by process {first.pid} on "):
                runner.run(wanted, tmp_path / "out")


@pytest.mark.filterwarnings("ignore:.*using what was written before:crowdwise.errors.CrowdwiseWarning")
class TestDamage:
    """Files that were cut off, as by a full disk or a power cut: what can be saved is, the rest runs again."""

    class PowerCut(Exception):
        pass

    @pytest.fixture(scope="class")
    @classmethod
    def stopped(cls, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The folder of a cell that stopped in its last stage."""
        cell = cells(finished)[1]
        cls.interrupt(cell, folder := tmp_path_factory.mktemp("stopped") / cell.id)
        return folder

    @classmethod
    def interrupt(cls, cell: Cell, folder: Path) -> None:
        """Stop after the second epoch of the last stage."""

        def cut(record: Record) -> None:
            if (record["stage"], record["epoch"]) == ("correction", 1):
                raise cls.PowerCut

        folder.mkdir(parents=True)
        with pytest.raises(cls.PowerCut):
            measure.run_cell(cell, folder, folder / "shared", watch=cut)

    def finish(self, cell: Cell, folder: Path) -> tuple[list[Record], Record]:
        """Go on; the epochs that were trained, and the record."""
        trained: list[Record] = []
        record = measure.run_cell(cell, folder, folder / "shared", watch=trained.append)
        assert files(folder) <= {"record.json", "map.npz", *(f for f in files(folder) if f.startswith("shared/"))}
        return trained, record

    @pytest.fixture
    def bltm(self, finished: Path) -> tuple[Cell, Record]:
        return cells(finished)[1], runner.read_records(finished / "out")[1]

    def test_without_damage_the_run_goes_on_where_it_was(
        self, bltm: tuple[Cell, Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cell, whole = bltm
        monkeypatch.setattr(stage_store, "_SLOW_WRITE", 60)  # a checkpoint after every epoch, however slow the disk is
        self.interrupt(cell, tmp_path / cell.id)
        trained, record = self.finish(cell, tmp_path / cell.id)
        assert [(one["stage"], one["epoch"]) for one in trained] == [("correction", 1), ("correction", 2)]
        assert results([record]) == results([whole])
        assert record["seconds"] > sum(epoch["seconds"] for epoch in trained)  # the epochs before the cut count

    @pytest.mark.parametrize(
        "damage",
        [
            lambda run: (run / "run.json").write_text((run / "run.json").read_text()[:50]),
            lambda run: (run / "run.json").unlink(),
            lambda run: (run / "run.json").write_text(""),
            lambda run: (run / "checkpoint.safetensors").write_bytes(
                (run / "checkpoint.safetensors").read_bytes()[:99]
            ),
            lambda run: (run / "checkpoint.safetensors").write_bytes(b""),
            lambda run: (run / "stages" / "00.safetensors").write_bytes(b"\0" * 20),
            lambda run: (run / ".checkpoint.safetensors.99.tmp").write_bytes(b"half"),
            lambda run: run.rename(run.with_name("run-of-other-code")),
        ],
        ids=[
            "run cut",
            "no run",
            "run empty",
            "checkpoint cut",
            "checkpoint empty",
            "stage",
            "temporary",
            "other code",
        ],
    )
    def test_a_damaged_run_directory_changes_nothing(
        self, bltm: tuple[Cell, Record], stopped: Path, tmp_path: Path, damage: Any
    ) -> None:
        cell, whole = bltm
        damage(measure.run_folder(shutil.copytree(stopped, tmp_path / cell.id)))
        _, record = self.finish(cell, tmp_path / cell.id)
        assert results([record]) == results([whole])

    def test_damaged_shared_stages_are_trained_again(
        self, bltm: tuple[Cell, Record], stopped: Path, tmp_path: Path
    ) -> None:
        cell, whole = bltm
        folder = shutil.copytree(stopped, tmp_path / cell.id)
        measure.discard_runs(folder)
        shared = sorted((folder / "shared").iterdir())
        assert len(shared) == 2
        for path in shared:
            path.write_bytes(path.read_bytes()[:-7])
        trained, record = self.finish(cell, folder)
        assert trained[0]["stage"] == "warm-up"
        assert results([record]) == results([whole])

    @pytest.mark.parametrize("content", ["", '{"cell": ', "[]", '{"cell": "another"}'])
    def test_a_record_that_cannot_be_read_is_none(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "record.json").write_text(content)
        assert read_record(tmp_path) is None

    def test_leftovers_are_removed_and_a_damaged_file_of_records_is_written_anew(self, finished: Path) -> None:
        out = finished / "out"
        whole = files(out)
        (out / ".records.jsonl.1.tmp").write_text("{")
        run = out / "cells" / cells(finished)[0].id / "run-0" / ".model.1.tmp"
        run.mkdir(parents=True)
        (run / "weights").write_text("")
        (out / "records.jsonl").write_text('{"cell": ')
        with pytest.raises(ModelFileError, match=r"records\.jsonl, line 1 is not JSON"):
            runner.read_records(out)
        runner.run(cells(finished), out)
        assert files(out) == whole
        assert len(runner.read_records(out)) == 3


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with Program(prepare=f"{PREPARE}\nimport crowdwise.bench.measure, crowdwise.tasks.bench, rich.live") as started:
        yield started


def survives(program: Program, folder: Path, kills: int) -> None:
    """A benchmark that is killed, with its workers left to themselves, at random moments; then let through."""
    path = tiny(folder, epochs=5)  # few, so that kills also meet its end

    def attempt(out: Path) -> Attempt:
        return program.start("bench", "run", path, "--jobs", 2, "-o", out)

    whole = attempt(folder / "whole")
    assert whole.wait(600) == 0, whole.said()
    expected = outcome(folder / "whole")
    assert len(expected[0]) == 3

    def check(out: Path, last: Attempt) -> None:
        assert outcome(out) == expected, last.said()

    moment = after_changes(random.Random(kills), most=40, pause=0.1, within="cells")
    kill_again_and_again(attempt, moment, check, folder, kills)


def outcome(out: Path) -> tuple[list[Record], str, dict[str, bytes], set[str]]:
    """Records, in their order, the table, the maps, and which files there are."""
    records = runner.read_records(out)
    maps = {str(path.relative_to(out)): path.read_bytes() for path in out.glob("cells/*/map.npz")}
    return results(records), rendering.to_markdown(tables.summarise(records)), maps, files(out)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thirty_kills_change_nothing(program: Program, tmp_path: Path) -> None:
    survives(program, tmp_path, 30)
