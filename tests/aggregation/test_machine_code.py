"""Machine code is kept for other processes, and nothing goes wrong where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from crowdwise import Annotations
from crowdwise.aggregation import DawidSkene
from crowdwise.aggregation.core import compiled, kernels, machine_code
from killing import Program
from tolerances import DOUBLE

pytest.importorskip("numba")
Run = Callable[..., list[str]]
KERNEL = """
import sys
from crowdwise.aggregation.core import machine_code
from crowdwise.aggregation.core.machine_code import jit

def made(offset):
    def shifted(x):
        return x + offset
    return jit()(shifted)

for text in sys.argv[1:]:
    kernel = made(int(text))
    print(kernel(1), sum(kernel.stats.cache_hits.values()))
"""


FORKED = """
import os, runpy, sys
os.environ["CROWDWISE_CACHE"] = sys.argv[1]
del sys.argv[:2]
runpy.run_path(sys.argv[0])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    return path


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    prepare = (
        "import os; os.environ.pop('NUMBA_CACHE_DIR', None); import crowdwise.aggregation.core.machine_code, numba"
    )
    with Program(FORKED, prepare) as started:
        yield started


@pytest.fixture
def run(program: Program, script: Path) -> Run:
    """What the script prints in a process that has compiled nothing."""

    def lines(*offsets: int, cache: Path) -> list[str]:
        attempt = program.start(cache, script, *offsets)
        assert attempt.wait(120) == 0, attempt.said()
        return attempt.said().splitlines()

    return lines


def start(script: Path, *offsets: int, cache: Path) -> subprocess.Popen[str]:
    variables = {**os.environ, "CROWDWISE_CACHE": str(cache)}
    variables.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, str(script), *map(str, offsets)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)


def test_a_second_process_compiles_nothing_until_the_source_changes(run: Run, script: Path, tmp_path: Path) -> None:
    assert run(5, cache=tmp_path / "cache") == ["6 0"]
    os.utime(script, (0, 0))  # installing again changes times, not contents
    assert run(5, 7, cache=tmp_path / "cache") == ["6 1", "8 0"]
    script.write_text(KERNEL.replace("x + offset", "x - offset"))
    assert run(5, cache=tmp_path / "cache") == ["-4 0"]


def test_processes_that_compile_at_once_do_not_mix_up_their_code(run: Run, script: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    racing = [start(script, offset, cache=cache) for offset in (1, 2)]
    assert [process.communicate(timeout=240)[0].split()[0] for process in racing] == ["2", "3"]
    assert run(1, 2, cache=cache) == ["2 1", "3 1"]


def test_broken_files_and_folders_that_cannot_be_made_cost_time_only(run: Run, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run(5, cache=cache)
    for path in (cache / "kernels").glob("*.nbc"):
        path.write_bytes(b"\x80\x04half")
    assert run(5, cache=cache) == ["6 0"]
    (tmp_path / "file").write_text("not a folder")
    assert run(5, cache=tmp_path / "file" / "below") == ["6 0"]


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("CROWDWISE_CACHE", str(tmp_path))
    assert machine_code.folder() == tmp_path / "kernels"
    assert not compiled.cached_on_disk()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert machine_code.folder() == tmp_path / "numba" / "kernels"


def crowd(size: int = 40_000, classes: int = 3) -> Annotations:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, classes, size // 4)
    instance = rng.integers(0, size // 4, size)
    label = np.where(rng.random(size) < 0.7, truth[instance], rng.integers(0, classes, size))
    sizes = {"n_instances": size // 4, "n_classes": classes}
    return Annotations.from_triples(instance, rng.integers(0, 50, size), label, **sizes)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "use_numba", lambda number: True)


@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_change_rounding_only_and_always_in_the_same_way(threads: int) -> None:
    alone = DawidSkene(max_iter=10, tol=0.0).fit(crowd())
    shared = DawidSkene(max_iter=10, tol=0.0, n_jobs=threads).fit(crowd())
    again = DawidSkene(max_iter=10, tol=0.0, n_jobs=threads).fit(crowd())
    for name in ("posterior_", "raw_posterior_", "confusion_", "objective_"):
        np.testing.assert_allclose(getattr(shared, name), getattr(alone, name), rtol=DOUBLE, atol=DOUBLE)
        assert np.array_equal(getattr(shared, name), getattr(again, name))


@pytest.mark.usefixtures("compiling")
def test_more_threads_than_instances() -> None:
    few = Annotations.from_triples([0, 0, 0, 2], [0, 1, 2, 1], [1, 1, 0, 0], n_instances=4)
    wanted, found = (DawidSkene(n_jobs=threads).fit(few).posterior_ for threads in (1, 8))
    np.testing.assert_allclose(found, wanted, rtol=DOUBLE)


@pytest.mark.usefixtures("compiling")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    code = """
import os, sys
import numpy as np
from crowdwise.aggregation.core import compiled
indptr = np.arange(0, 101, 2)
work = lambda: compiled.spread(indptr, lambda _, start, stop: stop - start, 2)
assert sum(work()) == 50
child = os.fork()
if not child:
    os._exit(0 if sum(work()) == 50 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.usefixtures("compiling")
def test_compiled_votes_equal_counted_ones() -> None:
    annotations = crowd()
    layout = kernels.Layout(
        *_sorted(annotations), np.empty(0, np.int32), (annotations.n_annotators, annotations.n_classes), 2, True
    )
    plain = layout._replace(compiled=False, threads=1)
    weight = np.random.default_rng(0).random((annotations.n_annotators, annotations.n_classes))
    assert np.array_equal(kernels.votes(layout), kernels.votes(plain))
    weighted = kernels.votes(plain, weight)
    np.testing.assert_allclose(kernels.votes(layout, weight), weighted, atol=DOUBLE)


def _sorted(a: Annotations) -> tuple[np.ndarray, np.ndarray]:
    return kernels.sort_by_instance(a.instance, a.annotator, a.label, a.n_instances, a.n_classes)
