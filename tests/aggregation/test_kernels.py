"""The two versions of every kernel agree, in all sizes, and survive extremes."""

from __future__ import annotations

import importlib.util
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from crowds import compile_always, compile_never, drawn, em_by_hand, rows_of, simulated, urn
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_info, threadpool_limits

from crowdwise.aggregation import MMSR, DawidSkene
from crowdwise.aggregation.core import compiled, kernels, queries, tempering
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import MemoryCrowd, resolve_threads
from crowdwise.aggregation.core.threads import one_blas_thread
from crowdwise.annotations import Annotations
from crowdwise.errors import DataError
from fixtures import t2
from tolerances import DOUBLE

either = pytest.mark.parametrize("fast", [False, True])


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


# -- in loops, and in logarithms


@either
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("width", "threads"), [(1, 1), (3, 2)])
def test_a_step_of_em_by_hand(fast: bool, weighted: bool, width: int, threads: int) -> None:
    layout = drawn(3, weighted=weighted)
    rng = np.random.default_rng(width)
    gold = np.where(np.arange(26) % 5 == 0, rng.integers(0, 3, 26), -1).astype(np.int32)
    layout = layout._replace(compiled=fast, gold=gold, threads=threads)
    emission, prior = rng.random((7, 3, 3 * width)) + 0.01, rng.random(3 * width) + 0.01
    found, expected = kernels.em_step(layout, emission, prior), em_by_hand(layout, emission, prior)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=DOUBLE, atol=DOUBLE)
    before = rng.random((7, 3, 3 * width))
    onto = before.copy()
    kernels.em_step(layout, emission, prior, onto=onto)
    assert_allclose(onto, before + expected[1], rtol=DOUBLE)
    assert_allclose(kernels.confusion_counts(layout, expected[0]), expected[1], rtol=DOUBLE, atol=DOUBLE)
    onto = before.copy()
    kernels.confusion_counts(layout, expected[0], onto)
    assert_allclose(onto, before + expected[1], rtol=DOUBLE)


@either
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_log_likelihoods_survive_many_instances_of_any_size(fast: bool, scale: float) -> None:
    """The logarithm of a product is taken before it leaves the range of numbers, at either end."""
    crowd = Annotations.from_triples(np.arange(40), np.arange(40) % 4, np.arange(40) % 2, n_classes=2)
    layout = MemoryCrowd.of(crowd).layout._replace(compiled=fast)
    emission = scale * (np.random.default_rng(0).random((4, 2, 2)) + 0.1)
    expected = em_by_hand(layout, emission, np.array([0.3, 0.7]))
    found = kernels.em_step(layout, emission, np.array([0.3, 0.7]))
    assert found.log_likelihood == pytest.approx(expected[3], rel=DOUBLE)
    ratio = scale * np.array([[1.0, 2.0]] * 4)
    crowd = Annotations.from_triples(np.arange(2_500), np.arange(2_500) % 4, np.arange(2_500) % 2, n_classes=2)
    layout = MemoryCrowd.of(crowd).layout._replace(compiled=fast)
    value = 1_250 * (np.log(0.3 * ratio[0, 0] + 0.7) + np.log(0.3 + 0.7 * ratio[0, 1]))
    assert kernels.vote_step(layout, ratio, np.array([0.3, 0.7])).log_likelihood == pytest.approx(value, rel=DOUBLE)


@either
@pytest.mark.parametrize("known", [-1, 0, 1])
def test_a_class_that_underflows_on_the_way_may_still_win(fast: bool, known: int) -> None:
    """Sixteen labels against class 0, then more labels that speak for it even louder."""
    labels = np.repeat([0, 1, 2], [16, 16, 16])
    crowd = Annotations.from_triples(np.zeros(48, int), np.arange(48), labels, n_classes=3)
    layout = MemoryCrowd.of(crowd).layout._replace(compiled=fast, gold=np.array([known], np.int32))
    emission = np.full((48, 3, 3), 0.5)
    emission[:16, 0] = 1e-40, 1e-15, 1e-16  # over all sixteen: 1e-640, 1e-240, 1e-256
    emission[16:32, 1] = 1e-1, 1e-40, 1e-39
    prior = np.array([0.2, 0.3, 0.5])
    found, expected = kernels.em_step(layout, emission, prior), em_by_hand(layout, emission, prior)
    assert_allclose(found.posterior, expected[0], atol=DOUBLE)
    assert found.log_likelihood == pytest.approx(expected[3], rel=DOUBLE)


@either
@pytest.mark.parametrize("weighted", [False, True])
def test_votes_hits_and_counts_of_labels_by_hand(fast: bool, weighted: bool) -> None:
    layout = drawn(5, weighted=weighted)._replace(compiled=fast, threads=1)
    rng = np.random.default_rng(0)
    weight, posterior = rng.random((7, 3)), rng.dirichlet(np.ones(3), 26)
    votes, heavy, hits, given = np.zeros((26, 3)), np.zeros((26, 3)), np.zeros((7, 3)), np.zeros((7, 3))
    for i, row in enumerate(rows_of(layout)):
        for j, y, w in row:
            votes[i, y] += w
            heavy[i, y] += w * weight[j, y]
            hits[j, y] += w * posterior[i, y]
            given[j, y] += w
    assert_allclose(kernels.votes(layout), votes)
    assert_allclose(kernels.votes(layout, weight), heavy)
    assert_allclose(kernels.hits(layout, posterior), hits)
    assert_allclose(kernels.label_counts(layout), given)
    assert_allclose(tempering.label_numbers(layout), votes.sum(axis=1))
    best = rng.integers(0, 3, 26)
    agreed = [
        sum(w for i, row in enumerate(rows_of(layout)) for k, y, w in row if k == j and y == best[i]) for j in range(7)
    ]
    assert_allclose(queries.agreements(layout, best), agreed)
    chosen = rng.random(26) < 0.5
    within = [
        sum(w for i, row in enumerate(rows_of(layout)) for k, _, w in row if k == j and chosen[i]) for j in range(7)
    ]
    assert_allclose(queries.labels_within(layout, chosen), within)
    assert_allclose(queries.mass(layout, posterior), posterior[votes.sum(axis=1) > 0].sum(axis=0))


@either
def test_trimmed_means_by_hand(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "use_numba", lambda _: fast)
    rng = np.random.default_rng(1)
    size = rng.integers(0, 12, 40)
    borders = np.append(0, np.cumsum(size))
    values, centre = rng.integers(0, 6, borders[-1]).astype(float), rng.integers(0, 6, 40) + rng.choice([0.0, 0.5], 40)
    for trim in (0, 1, 3):
        expected = []
        for g in range(40):
            row = sorted(values[borders[g] : borders[g + 1]].tolist())
            low = min(trim, sum(value < centre[g] for value in row))
            high = min(trim, sum(value > centre[g] for value in row))
            kept = row[low : len(row) - high]
            expected.append(sum(kept) / len(kept) if kept else centre[g])
        assert_allclose(kernels.trimmed_means(borders, values, centre, trim), expected)


@either
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_tempering_by_its_formula(fast: bool, weighted: bool, shared: bool) -> None:
    layout = drawn(7, weighted=weighted)._replace(compiled=fast)
    rng = np.random.default_rng(2)
    posterior = rng.dirichlet(np.full(3, 0.5), 26)
    posterior[:2] = [0.5, 0.5, 0.0], [0.0, 1.0, 0.0]  # nothing is left for the others
    share = rng.random(7) + 0.1 if shared else None
    vote, rho = 1.1, 0.3
    found = tempering.tempered(layout, posterior, vote, rho, share)
    for i, row in enumerate(rows_of(layout)):
        if not row:
            assert_allclose(found[i], posterior[i])
            continue
        number = sum(w * (1.0 if share is None else share[j]) for j, _, w in row)
        order = np.sort(posterior[i])[::-1]
        top, second = max(order[0], 1e-13), max(order[1], 1e-13)
        lead = np.log(top / second) / vote
        size = max(number, lead)
        against = np.exp(urn((size - lead) / 2, vote, rho) - urn((size + lead) / 2, vote, rho))
        against = max(against, order[1] / top) + max(1 - order[0] - order[1], 0) / top
        most = int(posterior[i].argmax())
        right = 1 / (1 + against)
        others = np.delete(posterior[i], most)
        others = np.full(2, 0.5) if others.sum() == 0 else others / others.sum()
        assert found[i, most] == pytest.approx(right, rel=1e-5)
        assert_allclose(np.delete(found[i], most), (1 - right) * others, rtol=1e-5, atol=1e-12)
    halfway = tempering.halfway(layout, posterior, vote, rho, share)
    assert_allclose(halfway, (posterior + found) / 2)


@either
@pytest.mark.parametrize("weighted", [False, True])
def test_evidence_of_votes_by_brute_force(fast: bool, weighted: bool) -> None:
    layout = drawn(8, weighted=weighted)
    gold = np.where(np.arange(26) % 4 == 1, 2, -1).astype(np.int32)
    layout = layout._replace(compiled=fast, gold=gold)
    rng = np.random.default_rng(3)
    posterior, share = rng.dirichlet(np.full(3, 0.4), 26), rng.random(7)
    posterior[2] = 0.4, 0.4, 0.2
    for weight, every in itertools.product((None, share), (1, 3)):
        along = squared = 0.0
        for i, row in enumerate(rows_of(layout)):
            if gold[i] >= 0 or not row or i % every:
                continue
            votes = np.zeros(3)
            for j, y, w in row:
                votes[y] += w * (1.0 if weight is None else weight[j])
            order, most = np.sort(posterior[i]), int(posterior[i].argmax())
            lead = votes[most] - np.delete(votes, most).max()
            along += lead * np.log(max(order[-1], 1e-13) / max(order[-2], 1e-13))
            squared += lead**2
        assert_allclose(tempering.vote_evidence(layout, posterior, weight, every), (along, squared))
    assert tempering.vote_evidence(layout._replace(shape=(21, 1)), np.ones((26, 1))) == (0.0, 0.0)


# -- extremes


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
    assert [kernels.use_numba(size) for size in (9, 1_000, 10, 999, 9)] == [False, True, False, True, False]
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
