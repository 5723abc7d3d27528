"""A streamed run that was stopped goes on with what it had, and with nothing that is damaged or of another run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from crowdwise.aggregation import Aggregator, DawidSkene, IterativeAggregator, OneCoinDawidSkene, Wawa
from crowdwise.errors import ConfigError, CrowdwiseWarning, InUseError, ModelFileError, StorageError
from crowdwise.readers import read_table
from crowdwise.storage.lock import locked
from crowdwise.streaming import aggregate, preparation
from crowdwise.streaming.crowd import StreamedCrowd
from crowdwise.streaming.passes import Progress, Threads
from crowdwise.streaming.store import Store
from streaming_helpers import FIRST, crowd, fresh, text, write

pytestmark = pytest.mark.usefixtures("small_pieces")


_KILLED = """
import os, sys
import crowdwise.streaming as streaming
from crowdwise.aggregation.core import kernels
from crowdwise.streaming import checkpoint, preparation, output
preparation.PARTITION, preparation.BATCH, preparation.BLOCK = 6_000, 90, 400
calls = 0
def dying(function, last):
    def counted(*arguments, **options):
        global calls
        calls += 1
        if calls == last:
            os._exit(9)
        return function(*arguments, **options)
    return counted
{patch}
streaming.aggregate(sys.argv[1], {method}, out=sys.argv[2], work=sys.argv[3])
"""


def killed(path: Path, out: Path, work: Path, patch: str, method: str = "'dawid-skene'") -> None:
    code = _KILLED.format(patch=textwrap.dedent(patch), method=method)
    done = subprocess.run([sys.executable, "-c", code, str(path), str(out), str(work)], timeout=120, check=False)
    assert done.returncode == 9
    assert not out.exists()


class Cut(BaseException):
    """A process that ends in the middle."""


CUTS: dict[str, tuple[Any, str, int]] = {  # what is called for the last time, and how many times it is
    "reading": (preparation._Encoding, "_check_ids", 12),
    "vocabularies": (preparation._Encoding, "_write_table", 1),
    "sorting": (preparation, "_sort", 5),
    "tidying": (preparation.shutil, "rmtree", 1),
}


def cut(path: Path, work: Path, where: str) -> None:
    """Begin to prepare a table, with one thread, and stop somewhere."""
    owner, name, last = CUTS[where]
    function, calls = getattr(owner, name), []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) >= last:  # nothing happens afterwards, in any thread
            raise Cut
        return function(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        with pytest.raises(Cut):
            aggregate(path, "wawa", out=path.with_name("labels.parquet"), work=work, threads=1)
    assert not path.with_name("labels.parquet").exists()


@pytest.mark.parametrize("make", [crowd, lambda: text(crowd())], ids=["numbers", "texts"])
@pytest.mark.parametrize(
    ("where", "rows", "sorted_parts"),
    [
        ("reading", 1100, [17]),
        ("vocabularies", 0, [17]),
        ("sorting", 0, [17 - 4]),
        ("tidying", 0, [0]),
    ],
)
def test_a_preparation_that_was_cut_off_goes_on_with_what_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, where: str, rows: int, sorted_parts: Any
) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", make()), tmp_path / "labels.parquet", tmp_path / "work"
    cut(path, work, where)
    read, done = [], []
    codes, sort = preparation._Encoding._codes, preparation._sort

    def encode(self: Any, role: str, column: Any) -> Any:
        if role == "label":
            read.append(len(column.data))
        return codes(self, role, column)

    monkeypatch.setattr(preparation._Encoding, "_codes", encode)
    monkeypatch.setattr(preparation, "_sort", lambda *all: done.append(1) or sort(*all))
    result = aggregate(path, "dawid-skene", out=out, work=work)
    expected = DawidSkene().fit(read_table(path).annotations)
    np.testing.assert_allclose(result.model.confusion_, expected.confusion_, atol=1e-8)
    assert pq.read_table(out)["label"].to_pylist() == expected.labels_.tolist()
    assert sum(read) == rows
    assert len(done) in sorted_parts
    (table,) = work.glob("table-*")
    assert {entry.name for entry in work.iterdir() if not entry.name.startswith("state-")} == {
        table.name,
        ".lock",
        "crowdwise-work.json",
    }
    assert {entry.name for entry in table.iterdir()} == {"table.arrow", "parts"}


def test_what_was_prepared_of_another_table_is_not_used(tmp_path: Path) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "labels.parquet", tmp_path / "work"
    cut(path, work, "sorting")
    write(path, crowd(seed=1))
    aggregate(path, "wawa", out=out, work=work)
    assert pq.read_table(out)["label"].to_pylist() == Wawa().fit(read_table(path).annotations).labels_.tolist()


@pytest.mark.parametrize(
    ("where", "file"),
    [
        ("reading", "blocks/000000.arrow"),
        ("sorting", "blocks/000002.arrow"),
        ("sorting", "parts/000000.arrow"),
        ("sorting", "table.arrow"),
    ],
)
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_what_was_prepared_and_is_damaged_is_prepared_again(tmp_path: Path, where: str, file: str, damage: str) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "labels.parquet", tmp_path / "work"
    cut(path, work, where)
    (table,) = work.glob("table-*")
    found = table / file
    content = found.read_bytes()
    if damage == "gone":
        found.unlink()
    else:
        found.write_bytes(content[:-9] if damage == "cut" else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    if damage == "gone" and (where, file) != ("sorting", "blocks/000002.arrow"):  # as if it had not been written yet
        aggregate(path, "wawa", out=out, work=work)
    else:
        with pytest.warns(CrowdwiseWarning, match="is damaged.*the table is prepared again"):
            aggregate(path, "wawa", out=out, work=work)
    assert pq.read_table(out)["label"].to_pylist() == Wawa().fit(read_table(path).annotations).labels_.tolist()


@pytest.mark.parametrize(
    "model",
    [model for model in FIRST if isinstance(model.values[0], IterativeAggregator)],
    ids=repr,
)
def test_a_run_that_stopped_between_rounds_goes_on_and_ends_alike(
    model: Aggregator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    rounds: list[int] = []
    step = type(model)._round

    def counted(self: Any, *arguments: Any) -> Any:
        rounds.append(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(type(model), "_round", counted)
    with pytest.raises(KeyboardInterrupt):
        aggregate(path, fresh(model), out=tmp_path / "labels.parquet", work=work, threads=2)
    monkeypatch.setattr(type(model), "_start", lambda *arguments: pytest.fail("it started from the beginning"))
    resumed = aggregate(path, fresh(model), out=tmp_path / "labels.parquet", work=work, threads=2)
    monkeypatch.undo()
    monkeypatch.setattr(preparation, "PARTITION", 6_000)
    whole = aggregate(path, fresh(model), out=tmp_path / "whole.parquet", threads=2)
    assert resumed.model.n_iter_ == whole.model.n_iter_  # type: ignore[attr-defined]
    np.testing.assert_array_equal(resumed.model.objective_, whole.model.objective_)  # type: ignore[attr-defined]
    assert pq.read_table(tmp_path / "labels.parquet").equals(pq.read_table(tmp_path / "whole.parquet"))


@pytest.mark.parametrize(
    "patch",
    ["os.replace = dying(os.replace, 6)", "checkpoint.replacing = dying(checkpoint.replacing, 4)"],
    ids=["while it prepares", "between rounds"],
)
def test_a_process_that_was_killed_goes_on(tmp_path: Path, patch: str) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "labels.parquet", tmp_path / "work"
    method = "streaming._model(__import__('crowdwise.aggregation').aggregation.DawidSkene(max_iter=9, tol=0), 0)[0]"
    killed(path, out, work, patch, method)
    result = aggregate(path, DawidSkene(max_iter=9, tol=0), out=out, work=work)
    expected = DawidSkene(max_iter=9, tol=0).fit(read_table(path).annotations)
    np.testing.assert_allclose(result.model.objective_, expected.objective_, rtol=1e-10)  # type: ignore[attr-defined]


def test_a_prepared_table_serves_other_methods_until_the_input_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    made: list[int] = []
    run = preparation._Encoding.run
    monkeypatch.setattr(preparation._Encoding, "run", lambda self: made.append(1) or run(self))
    for method in ("wawa", "one-coin", "one-coin"):
        aggregate(path, method, out=tmp_path / "labels.parquet", work=work)
    assert len(made) == 1
    aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work, label="worker", annotator="label")
    assert len(made) == 2
    write(path, crowd(seed=3))
    aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work)
    assert len(made) == 3
    part = next(work.glob("table-*/parts/*"))
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.warns(CrowdwiseWarning, match=f"{part.name} is damaged.*the table is prepared again"):
        aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work)
    assert len(made) == 4
    assert (
        pq.read_table(tmp_path / "labels.parquet")["label"].to_pylist()
        == Wawa().fit(read_table(path).annotations).labels_.tolist()
    )


def test_a_damaged_state_is_named_and_the_one_before_it_used(tmp_path: Path) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    aggregate(path, "one-coin", out=tmp_path / "labels.parquet", work=work)
    before = (tmp_path / "labels.parquet").read_bytes()
    (state,) = work.glob("state-*.npz")
    state.write_bytes(state.read_bytes()[:-200])
    with pytest.warns(
        CrowdwiseWarning, match=r"state-.*npz is not a readable npz file.*going on from the round before"
    ):
        aggregate(path, "one-coin", out=tmp_path / "labels.parquet", work=work)
    assert (tmp_path / "labels.parquet").read_bytes() == before
    for file in work.glob("state-*"):
        file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ModelFileError, match=r"state-.*npz is not a readable npz file: .* remove it"):
        aggregate(path, "one-coin", out=tmp_path / "labels.parquet", work=work)


def test_a_state_of_another_method_is_not_taken(tmp_path: Path) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    aggregate(path, OneCoinDawidSkene(max_iter=1), out=tmp_path / "labels.parquet", work=work)
    (one,) = work.glob("state-*.npz")
    content = one.read_bytes()
    one.unlink()
    aggregate(path, OneCoinDawidSkene(max_iter=2, tol=0), out=tmp_path / "labels.parquet", work=work)
    for other in work.glob("state-*"):
        other.write_bytes(content)
    with pytest.raises(ModelFileError, match="it belongs to another table or method"):
        aggregate(path, OneCoinDawidSkene(max_iter=2, tol=0), out=tmp_path / "labels.parquet", work=work)


def test_a_working_folder_serves_one_run_at_a_time(tmp_path: Path) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    with locked(work), ThreadPoolExecutor(1) as pool:  # another thread is refused as another process is
        error = pool.submit(aggregate, path, "dawid-skene", out=tmp_path / "out.parquet", work=work).exception()
    assert isinstance(error, InUseError)
    assert f"{work} is in use by process {os.getpid()} on" in str(error)


def test_a_full_disk_is_named_and_the_next_run_prepares_the_table_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "write_arrays", full)
        with pytest.raises(
            StorageError, match=rf"{work}/table-\w+ cannot be written: No space left.* MB are free in {work}"
        ):
            aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work)
    result = aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work)
    assert result.n_instances == read_table(path).annotations.n_instances


def test_a_method_that_wants_everything_at_once_is_stopped(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    store = preparation.prepare(path, tmp_path / "work", {}, 10**9, 1, Progress())
    assert isinstance(store, Store)
    with pytest.raises(ConfigError, match="a crowd on disk does not allow"):
        StreamedCrowd(store, Threads(1), 10**9, Progress()).layout
