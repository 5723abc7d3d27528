"""The two versions of every kernel agree, in all sizes, and survive extremes."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from crowds import compile_always, compile_never, simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from crowdwise.aggregation import MMSR, DawidSkene
from crowdwise.aggregation.core import compiled, kernels
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import MemoryCrowd, resolve_threads
from crowdwise.aggregation.core.threads import one_blas_thread
from crowdwise.annotations import Annotations
from crowdwise.errors import DataError
from fixtures import t2
from tolerances import DOUBLE


def both(crowd: Annotations, gold: np.ndarray | None = None, threads: int = 1) -> tuple[MemoryCrowd, MemoryCrowd]:
    """The crowd for scipy, and for compiled loops."""
    slow = MemoryCrowd.of(crowd, gold)
    return slow, MemoryCrowd(slow.layout._replace(compiled=True, threads=threads))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), c=st.integers(2, 12), width=st.integers(1, 3), threads=st.integers(1, 3))
def test_compiled_and_scipy_steps_agree(seed: int, c: int, width: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    triples = rng.integers(0, [30, 6, c], (120, 3)).T
    crowd = Annotations.from_triples(*triples, n_instances=33, n_annotators=7, n_classes=c)
    gold = np.where(rng.random(33) < 0.2, rng.integers(0, c, 33), -1).astype(np.int32)
    slow, fast = both(crowd, gold, threads)
    emission, prior = rng.random((7, c, c * width)) + 1e-9, rng.random(c * width) + 1e-3
    for one, other in (
        (slow.em_step(emission, prior), fast.em_step(emission, prior)),
        (slow.vote_step(emission[:, :, 0] * 9, prior[:c]), fast.vote_step(emission[:, :, 0] * 9, prior[:c])),
    ):
        np.testing.assert_allclose(one.posterior, other.posterior, atol=DOUBLE)
        np.testing.assert_allclose(one.counts, other.counts, atol=1e-9)
        np.testing.assert_allclose(one.mass, other.mass, atol=1e-9)
        assert one.log_likelihood == pytest.approx(other.log_likelihood)
    posterior = rng.dirichlet(np.ones(c), 33)
    np.testing.assert_allclose(slow.counts(posterior), fast.counts(posterior), atol=DOUBLE)


def test_hundreds_of_labels_on_one_instance_do_not_underflow() -> None:
    crowd = Annotations.from_triples([0] * 600, range(600), [0] * 299 + [1] * 301, n_classes=2)
    slow, fast = both(crowd)
    tiny = np.full((600, 2, 2), 1e-10)
    tiny[:, 0, 0] = tiny[:, 1, 1] = 1 - 1e-10
    prior = np.full(2, 0.5)
    for crowd_of in (slow, fast):
        step = crowd_of.em_step(tiny, prior)
        np.testing.assert_allclose(step.posterior, [[0, 1]], atol=1e-15)
        assert step.log_likelihood == pytest.approx(299 * np.log(1e-10) + np.log(0.5), rel=1e-9)
    extreme = np.full((600, 2, 2), 1e-300)
    extreme[:, 0, 0] = extreme[:, 1, 1] = 1e-290
    np.testing.assert_allclose(fast.em_step(extreme, prior).posterior, [[0, 1]], atol=1e-15)
    for ratio in (1e10, 1e-10):
        votes = [crowd_of.vote_step(np.full((600, 2), ratio), prior).posterior[0] for crowd_of in (slow, fast)]
        np.testing.assert_allclose(*votes, atol=DOUBLE)


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_sorting_is_by_instance_and_counts_repeats(threads: int | None) -> None:
    triples = (np.array(column, np.int32) for column in ([2, 0, 2, 0], [1, 0, 0, 0], [1, 0, 1, 0]))
    cells, indptr = kernels.sort_by_instance(*triples, 4, 2, threads)
    assert indptr.tolist() == [0, 2, 2, 4, 4]
    assert cells.tolist() == [0, 0, 1, 3]


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("instances", [1, 40, 400])  # the labels of one instance: all, a dozen, one or two
def test_threads_sort_as_numpy_does(threads: int, instances: int) -> None:
    rng = np.random.default_rng(0)
    triples = [rng.integers(0, most, 500).astype(np.int32) for most in (instances, 9, 3)]
    expected, found = (kernels.sort_by_instance(*triples, instances + 5, 3, number) for number in (None, threads))
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    assert found[0].dtype == expected[0].dtype == np.uint32


@pytest.mark.parametrize("threads", [None, 1])
def test_more_cells_than_32_bits_hold(threads: int | None) -> None:
    instance, annotator, label = (np.array(x, np.int32) for x in ([1, 0], [2**30, 0], [7, 3]))
    cells, _ = kernels.sort_by_instance(instance, annotator, label, 2, 8, threads)
    assert cells.tolist() == [3, 2**33 + 7]


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize(("method", "threads"), [(DawidSkene, 1), (MMSR, 2)])
def test_blas_leaves_the_processors_to_fits_that_decompose_no_matrix(
    method: type[Aggregator], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[int]] = []
    infer = method._infer

    def watched(self: Any, *arguments: Any) -> Any:
        seen.append(blas_threads())
        return infer(self, *arguments)

    monkeypatch.setattr(method, "_infer", watched)
    with threadpool_limits(2, user_api="blas"):
        method().fit(t2())
        assert seen == [{threads}]
        assert blas_threads() == {2}


def test_blas_has_its_threads_again_when_the_last_of_several_fits_ends() -> None:
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(one_blas_thread.__enter__).result()
            assert blas_threads() == {1}
        assert blas_threads() == {1}
        one_blas_thread.__exit__()
        assert blas_threads() == {2}


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_always(monkeypatch)
    crowd, _ = simulated(500, 20, 3, 4, seed=1)
    one, three = (DawidSkene(n_jobs=jobs, max_iter=20, tol=0).fit(crowd) for jobs in (1, 3))
    np.testing.assert_allclose(one.posterior_, three.posterior_, atol=DOUBLE)
    assert resolve_threads(None) == 1
    assert resolve_threads(-1) >= 1
    assert resolve_threads(-10_000) == 1


def test_without_numba_scipy_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_always(monkeypatch)
    crowd, _ = simulated(50, 5, 3, 4, seed=2)
    fast = DawidSkene().fit(crowd)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    slow = DawidSkene().fit(crowd)
    assert fast._crowd.layout.compiled
    assert not slow._crowd.layout.compiled
    np.testing.assert_allclose(fast.posterior_, slow.posterior_, atol=DOUBLE)


def test_only_the_second_medium_crowd_waits_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SMALL", 10)
    monkeypatch.setattr(kernels, "PATIENT", 1_000)
    monkeypatch.setattr(kernels._patience, "exhausted", False)
    monkeypatch.setattr(compiled, "cached_on_disk", lambda: False)
    assert [kernels.use_numba(size) for size in (5, 2_000, 100, 100, 5)] == [False, True, False, True, False]
    monkeypatch.setattr(kernels._patience, "exhausted", False)
    monkeypatch.setattr(compiled, "cached_on_disk", lambda: True)
    assert kernels.use_numba(100)


def test_confusion_matrices_that_cannot_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_never(monkeypatch)
    crowd = Annotations.from_triples([0], [0], [0], n_annotators=10**6, n_classes=10**4)
    with pytest.raises(DataError, match=r"confusion matrices of 1000000 annotators, 10000 labels by 10000 states"):
        MemoryCrowd.of(crowd).check_table(10**4)


def test_votes_and_hits_on_t2() -> None:
    crowd = MemoryCrowd.of(t2())
    np.testing.assert_allclose(crowd.votes()[2], [1, 0, 2, 0])
    np.testing.assert_allclose(crowd.votes(np.array([1.0, 2, 3, 4, 5]))[2], [3, 0, 3, 0])
    np.testing.assert_allclose(crowd.hits(crowd.majority()).sum(axis=1), [11 / 3, 19 / 6, 17 / 6, 1, 0])
    np.testing.assert_allclose(crowd.agreements(np.array([0, 1, 2, 0, 1, 3])), [4, 4, 2, 1, 0])
