"""Aggregation on a cluster has the numbers of the same table in memory, whoever is lost on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from crowds import compile_always

import crowdwise
from cluster_helpers import SOURCES, once, two_workers
from crowdwise import cluster
from crowdwise.aggregation import Aggregator, DawidSkene
from crowdwise.cluster import RayPasses, connection
from crowdwise.cluster import passes as ray_passes
from crowdwise.errors import ConfigError
from crowdwise.streaming import aggregate, preparation
from crowdwise.streaming import crowd as crowds
from crowdwise.streaming.passes import Question
from extras import needs
from streaming_helpers import MODELS, compare, crowd, fresh, text, write

needs("ray", "needs Ray: pip install crowdwise[ray]")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def ray() -> Iterator[None]:
    with two_workers():
        yield


@pytest.fixture(autouse=True)
def some_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """About ten partitions, and a tree of two levels."""
    monkeypatch.setattr(preparation, "PARTITION", 12_000)
    monkeypatch.setattr(ray_passes, "FAN", 3)


# the cluster


def test_a_connection_that_is_there_is_used_and_left() -> None:
    from ray import is_initialized

    with cluster.connect("local") as found:
        assert (found.workers, found.cpus, found.nodes, found.per_node) == (2, 2, 1, 2)
    assert is_initialized()


def test_more_workers_than_the_cluster_has() -> None:
    asked = "3 workers were asked for, and the Ray cluster at 10.0.0.1:6379 has 2 CPUs; ask for no more than that"
    with pytest.raises(ConfigError, match=asked), cluster.connect("10.0.0.1:6379", 3):
        pytest.fail("it was joined")


def test_a_folder_that_all_nodes_see(tmp_path: Path) -> None:
    cluster.check_nodes(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda path: (False, crowdwise.__version__), "does not see {folder}: use a folder that all nodes share"),
        (lambda path: (True, "0.0.9"), "has crowdwise 0.0.9, this is {version}"),
        (lambda path: __import__("nonsense"), "cannot run crowdwise; is it installed there? "),
    ],
    ids=["not shared", "another version", "none"],
)
def test_a_node_that_is_of_no_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, message: str
) -> None:
    monkeypatch.setattr(connection, "_look", answer)
    with pytest.raises(ConfigError) as caught:
        cluster.check_nodes(tmp_path)
    assert message.format(folder=tmp_path, version=crowdwise.__version__) in str(caught.value)
    assert str(caught.value).startswith("node ")
    assert not list(tmp_path.iterdir())


# aggregation


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_numbers_are_those_in_memory(model: Aggregator, tmp_path: Path) -> None:
    compare(write(tmp_path / "crowd.parquet", crowd()), model, tmp_path, passes=RayPasses("local"))


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_numbers_are_those_in_memory_with_compiled_kernels(
    model: Aggregator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_always(monkeypatch)
    compare(write(tmp_path / "crowd.parquet", text(crowd(seed=1))), model, tmp_path, passes=RayPasses("local"))


def ended(path: Path, model: Aggregator, tmp_path: Path, workers: int | None = None, **options: Any) -> tuple[Any, ...]:
    """Everything that a run leaves."""
    out, profile = tmp_path / "labels.parquet", tmp_path / "annotators.parquet"
    options = {"passes": RayPasses("local", workers), **options}
    result = aggregate(path, fresh(model), out=out, annotators_out=profile, proba=True, **options)
    assert not out.with_name(".labels.parquet.work").exists()
    return pq.read_table(out), pq.read_table(profile), result.model.confusion_.tobytes(), result.figures


@pytest.mark.parametrize("model", [MODELS[4], MODELS[15]], ids=repr)
def test_the_number_of_workers_does_not_change_a_bit(model: Aggregator, tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    assert ended(path, model, tmp_path, workers=1) == ended(path, model, tmp_path, workers=2)


def slowed(monkeypatch: pytest.MonkeyPatch, notes: Path, seconds: float = 0.1) -> None:
    """Steps of EM take a while, and leave a note when they begin and when they are over."""

    class Slow(Question):
        def sums(self, part: Any, total: Any) -> Any:
            if self.query.__name__ != "em_step":
                return super().sums(part, total)

            def note(what: str) -> None:
                with notes.open("a") as file:
                    file.write(f"{os.getpid()} {what} {part.start}\n")

            note("begins")
            time.sleep(seconds)
            note("ends")
            return super().sums(part, total)

    Slow.__module__ = "__main__"  # which Ray sends along, as workers have no such class
    monkeypatch.setattr(crowds, "Question", Slow)


def busy(notes: Path, process: int) -> bool:
    """Whether a worker is in the middle of a step."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    own = [line.split()[1] for line in lines if line.startswith(f"{process} ")]
    return bool(own) and own[-1] == "begins"


def test_a_killed_worker_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, model, notes = write(tmp_path / "crowd.parquet", crowd()), DawidSkene(max_iter=2, tol=0), tmp_path / "notes"
    undisturbed = ended(path, model, tmp_path)
    slowed(monkeypatch, notes)
    with once(signal.SIGKILL, "_sums", partial(busy, notes)) as killed:
        disturbed = ended(path, model, tmp_path)
    assert killed
    begun = [line.split()[2] for line in notes.read_text().splitlines() if "begins" in line]
    assert len(begun) > 2 * len(set(begun))  # two rounds, and something that was begun again
    assert disturbed == undisturbed


def test_a_worker_that_hangs_is_overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, model, notes = write(tmp_path / "crowd.parquet", crowd()), DawidSkene(max_iter=1, tol=0), tmp_path / "notes"
    undisturbed = ended(path, model, tmp_path)
    slowed(monkeypatch, notes)
    monkeypatch.setattr(ray_passes, "PATIENCE", 0.5)
    with once(signal.SIGSTOP, "_sums", partial(busy, notes)) as stopped:
        disturbed = ended(path, model, tmp_path)
    assert stopped
    with suppress(ProcessLookupError):
        os.kill(stopped[0], signal.SIGCONT)
    assert disturbed == undisturbed


def test_a_run_that_stopped_goes_on_with_another_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model, work = write(tmp_path / "crowd.parquet", crowd()), DawidSkene(max_iter=6, tol=0), tmp_path / "work"
    undisturbed = ended(path, model, tmp_path)
    rounds: list[int] = []
    step = DawidSkene._round

    def counted(self: Any, *arguments: Any) -> Any:
        rounds.append(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(DawidSkene, "_round", counted)
    with pytest.raises(KeyboardInterrupt):
        ended(path, model, tmp_path, work=work, workers=1)
    assert ended(path, model, tmp_path, work=work, workers=2) == undisturbed
    assert len(rounds) == 3 + 4


def test_the_old_names_of_a_cluster_still_work(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    with pytest.warns(DeprecationWarning, match=r"use passes=crowdwise\.cluster\.RayPasses\(ray, workers\)"):
        aggregate(path, "wawa", out=tmp_path / "old.parquet", ray="local", workers=2)
    aggregate(path, "wawa", out=tmp_path / "new.parquet", passes=RayPasses("local", 2))
    assert (tmp_path / "old.parquet").read_bytes() == (tmp_path / "new.parquet").read_bytes()


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
def test_a_cluster_that_is_running_is_joined_by_its_address(tmp_path: Path) -> None:
    """Also the command line, and the Ray that it starts itself."""
    path = write(tmp_path / "crowd.parquet", crowd())
    scratch = tempfile.mkdtemp(prefix="ray-")  # short, as it holds sockets
    environment = os.environ | {"PYTHONPATH": SOURCES, "RAY_TMPDIR": scratch}
    program = [
        sys.executable,
        "-c",
        "from crowdwise.cli import main; main()",
        "aggregate",
        str(path),
        "-m",
        "dawid-skene",
    ]
    head = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block"]
    head += ["--num-cpus", "2", "--port", "26379", "--include-dashboard", "false", "--object-store-memory", "200000000"]
    with subprocess.Popen(head, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as cluster:
        try:
            time.sleep(15)
            for name, address in (("joined", "127.0.0.1:26379"), ("started", "local")):
                options = ["-o", str(tmp_path / f"{name}.parquet"), "--ray", address, "--workers", "2"]
                done = subprocess.run(
                    [*program, *options], env=environment, capture_output=True, text=True, timeout=120, check=False
                )
                assert done.returncode == 0, done.stderr
        finally:
            cluster.terminate()
            cluster.wait(60)
            shutil.rmtree(scratch)
    joined, started = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("joined", "started"))
    assert joined.equals(started)
    aggregate(path, "dawid-skene", out=tmp_path / "here.parquet")
    here = pq.read_table(tmp_path / "here.parquet")
    assert here["label"].equals(joined["label"])
    np.testing.assert_allclose(here["confidence"].to_numpy(), joined["confidence"].to_numpy(), atol=1e-8)
