"""The hot loops of truth inference, each in two versions that agree: numba for large crowds, scipy for small ones.

Everything works on annotations sorted by instance. An annotation is one integer, its *cell* ``annotator * C + label``:
the row of a table (R * C, K) that holds what this label of this annotator says about each of K states (the classes, or
classes times subtypes). An iteration of EM is one pass over the annotations: the posterior of an instance is the
product of its rows, rescaled before it can underflow, and is added to the same rows of the next counts while they are
still in the cache. Threads take stretches of instances and own their counts.

numba is imported on the first large crowd only; its machine code is cached on disk.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[Any]  # uint32, or int64 where R * C does not fit

SMALL = 20_000  # annotations below which scipy is as fast
PATIENT = 300_000  # annotations from which on compiling pays within the first fit
TINY = 1e-300  # no probability is taken for less
FLOOR = 1e-10  # probabilities are kept at or above this before a logarithm
_SPECIALISED = 8  # up to this many states the loops over states are unrolled by the compiler


class Layout(NamedTuple):
    """Annotations as the kernels read them: sorted by instance."""

    cells: Cells  # (E,) annotator * C + label
    indptr: npt.NDArray[np.int64]  # (n + 1,) the annotations of instance i are cells[indptr[i]:indptr[i + 1]]
    gold: npt.NDArray[np.int32]  # (n,) known class or -1; empty when nothing is known
    shape: tuple[int, int]  # (R, C)
    threads: int = 1
    compiled: bool = False  # numba (True) or scipy


class Step(NamedTuple):
    """What one pass over the annotations yields."""

    posterior: Floats  # (n, K), rows sum to 1
    counts: Floats  # (R, C, K) sum of the posteriors of the instances that got label y from annotator j; votes: (R, C)
    mass: Floats  # (K,) sum of the posteriors of labelled instances
    log_likelihood: float  # sum over labelled instances of log sum_k prior[k] * prod emission[.., k]


def use_numba(n_annotations: int) -> bool:
    """Whether a crowd is large enough for compiled loops, and numba is there.

    Compiling takes longer than the first fit of a crowd of medium size with scipy. So that one does not wait for it,
    unless the machine code is on disk already; the second one does.
    """
    if n_annotations < SMALL or importlib.util.find_spec("numba") is None:
        return False
    if n_annotations >= PATIENT or _patience.exhausted:
        return True
    _patience.exhausted = True
    return _cached_on_disk()


class _Patience:
    """Whether a crowd of medium size has been fitted in this process."""

    exhausted = False


_patience = _Patience()


def _cached_on_disk() -> bool:
    where = Path(_em_kernel(0).stats.cache_path)
    return any(where.glob("kernels._em_kernel*.nbi"))


def sort_by_instance(
    instance: npt.NDArray[np.int32], annotator: npt.NDArray[np.int32], label: npt.NDArray[np.int32], n: int, c: int
) -> tuple[Cells, npt.NDArray[np.int64]]:
    """Cells (E,) in the order of instances, and where each instance begins (n + 1,).

    Instance and cell are packed into one integer, because numpy sorts integers much faster than it argsorts; it also
    makes results independent of the order of the annotations, to the last bit.
    """
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(instance, minlength=n), out=indptr[1:])
    cells = annotator.astype(np.int64)
    cells *= c
    cells += label
    if int(cells.max(initial=0)) >= 2**32:
        return cells[np.lexsort((cells, instance))], indptr
    packed = instance.astype(np.int64)
    packed <<= 32
    packed |= cells
    packed.sort()
    packed &= 0xFFFFFFFF
    return packed.astype(np.uint32), indptr


def em_step(layout: Layout, emission: Floats, prior: Floats, out: Floats | None = None) -> Step:
    """E and M step of a model whose labels are independent given the state.

    ``emission`` (R, C, K) is P(label y of annotator j | state k), or anything proportional to it; ``prior``
    (K,) likewise. With K = C * M states, state ``k`` belongs to class ``k // M``, and instances with a gold
    label are confined to the states of that class. ``out`` (n, K) is overwritten with the posterior where given.
    """
    k = len(prior)
    if not layout.compiled:
        cells = incidence(layout)
        scores = cells @ np.log(np.maximum(emission, TINY).reshape(-1, k)) + np.log(prior)
        return _finish(layout, scores, lambda q: (cells.T @ q).reshape(emission.shape), out)
    posterior = np.empty((len(layout.indptr) - 1, k)) if out is None else out
    table = np.ascontiguousarray(emission, np.float64).ravel()
    counts, mass, log_likelihood = _threaded(_em(k), layout, table, prior, posterior, True)
    return Step(posterior, counts.reshape(emission.shape), mass, log_likelihood)


def vote_step(layout: Layout, ratio: Floats, prior: Floats, out: Floats | None = None) -> Step:
    """E and M step of a model in which a label speaks for its own class only.

    ``ratio`` (R, C) is P(label y of annotator j | class y) over its probability under any other class; ``counts`` of
    the result is (R, C): the sum of q_i(y) over the labels y of annotator j. The constant that ``ratio`` leaves out is
    left out of the log-likelihood too.
    """
    c = layout.shape[1]
    if not layout.compiled:
        scores = votes(layout, np.log(ratio)) + np.log(prior)
        return _finish(layout, scores, lambda q: hits(layout, q), out)
    posterior = np.empty((len(layout.indptr) - 1, c)) if out is None else out
    counts, mass, log_likelihood = _threaded(_vote(c), layout, ratio.ravel(), prior, posterior, True)
    return Step(posterior, counts.reshape(-1, c), mass, log_likelihood)


def confusion_counts(layout: Layout, posterior: Floats) -> Floats:
    """Posterior (n, K) summed by annotator and label: (R, C, K)."""
    (r, c), k = layout.shape, posterior.shape[1]
    if not layout.compiled:
        return np.asarray(incidence(layout).T @ posterior).reshape(r, c, k)
    table = np.empty(r * c * k)
    counts, _, _ = _threaded(_em(k), layout, table, np.empty(k), np.ascontiguousarray(posterior), False)
    return counts.reshape(r, c, k)


def votes(layout: Layout, weight: Floats | None = None) -> Floats:
    """Votes (n, C), each counted with the weight (R, C) of its cell, or once."""
    n, c = len(layout.indptr) - 1, layout.shape[1]
    position = instances(layout)
    position *= c
    position += labels(layout)
    values = None if weight is None else weight.ravel()[layout.cells]
    return np.bincount(position, values, minlength=n * c).astype(np.float64).reshape(n, c)


def hits(layout: Layout, posterior: Floats) -> Floats:
    """Posterior (n, C) of the labels given, summed by annotator and label: (R, C)."""
    r, c = layout.shape
    position = instances(layout)
    position *= c
    position += labels(layout)
    return np.bincount(layout.cells, posterior.ravel()[position], minlength=r * c).astype(np.float64).reshape(r, c)


def label_counts(layout: Layout) -> npt.NDArray[np.int64]:
    """How often each annotator gave each label, (R, C)."""
    r, c = layout.shape
    return np.bincount(layout.cells, minlength=r * c).reshape(r, c)


def labels(layout: Layout) -> npt.NDArray[Any]:
    """Label of every cell, (E,)."""
    return np.asarray(layout.cells % layout.cells.dtype.type(layout.shape[1]))


def instances(layout: Layout) -> npt.NDArray[np.int64]:
    """Instance of every cell, (E,)."""
    return np.repeat(np.arange(len(layout.indptr) - 1), np.diff(layout.indptr))


def incidence(layout: Layout) -> sp.csr_array:
    """Which cells an instance has, as a sparse matrix (n, R * C); a repeated annotation counts twice."""
    shape = len(layout.indptr) - 1, layout.shape[0] * layout.shape[1]
    cells = layout.cells.astype(np.int64)
    return sp.csr_array((np.ones(len(cells)), cells, layout.indptr), shape=shape)


def trimmed_means(indptr: npt.NDArray[Any], values: Floats, centre: Floats, trim: int) -> Floats:
    """Mean of every row of ``values`` without its ``trim`` smallest below and largest above the row's centre.

    Rows are ``values[indptr[g]:indptr[g + 1]]``; where fewer lie below (above), all of those are left out, and a row of
    which nothing remains keeps its ``centre`` (M-MSR, Ma & Olshevsky 2020).
    """
    if use_numba(len(values)):
        return np.asarray(_trimmed_kernel()(indptr, values, centre, trim))
    size = np.diff(indptr)
    row = np.repeat(np.arange(len(size)), size)
    order = np.lexsort((values, row))
    values, rank = values[order], np.arange(len(values)) - indptr[row]
    below = np.bincount(row, values < centre[row], len(size))
    above = np.bincount(row, values > centre[row], len(size))
    keep = (rank >= np.minimum(trim, below)[row]) & (rank < (size - np.minimum(trim, above))[row])
    number = np.bincount(row, keep, len(size))
    return np.divide(np.bincount(row, values * keep, len(size)), number, out=centre.copy(), where=number > 0)


def _finish(layout: Layout, scores: Floats, count: Callable[[Floats], Floats], out: Floats | None) -> Step:
    """Posterior, counts and likelihood from log posteriors (n, K) up to a constant."""
    if layout.gold.size:
        width = scores.shape[1] // layout.shape[1]
        foreign = np.arange(scores.shape[1]) // width != layout.gold[:, None]
        scores = np.where((layout.gold[:, None] >= 0) & foreign, -np.inf, scores)
    top = scores.max(axis=1, keepdims=True, initial=-np.inf)
    posterior = np.exp(scores - top, out=out)
    total = posterior.sum(axis=1, keepdims=True)
    posterior /= total
    labelled = np.diff(layout.indptr) > 0
    log_likelihood = float((np.log(total[:, 0]) + top[:, 0])[labelled].sum())
    return Step(posterior, count(posterior), posterior[labelled].sum(axis=0), log_likelihood)


def _threaded(
    kernel: Any, layout: Layout, table: Floats, prior: Floats, posterior: Floats, update: bool
) -> tuple[Floats, Floats, float]:
    """Run a pass on stretches of instances of about equal numbers of annotations, one a thread, and add up."""
    n, k = len(layout.indptr) - 1, len(prior)
    width = k // layout.shape[1]  # states of one class

    def run(start: int, stop: int) -> tuple[Floats, Floats, float]:
        counts, mass = np.zeros(len(table)), np.zeros(k)
        args = layout.cells, layout.indptr, start, stop, table, prior, layout.gold, width, update
        return counts, mass, kernel(*args, posterior, counts, mass)

    if layout.threads == 1:
        return run(0, n)
    wanted = np.linspace(0, len(layout.cells), layout.threads + 1)[1:-1]
    borders = [0, *np.searchsorted(layout.indptr, wanted).tolist(), n]
    with ThreadPoolExecutor(layout.threads) as pool:
        parts = list(pool.map(run, borders[:-1], borders[1:]))
    for counts, mass, _ in parts[1:]:
        parts[0][0][:] += counts
        parts[0][1][:] += mass
    return parts[0][0], parts[0][1], sum(part[2] for part in parts)


@functools.cache
def jit() -> Any:
    """numba's decorator with the options of all kernels: cached on disk, free of the interpreter lock."""
    import numba

    return numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")


def _em(states: int) -> Any:
    return _em_kernel(states if states <= _SPECIALISED else 0)


def _vote(classes: int) -> Any:
    return _vote_kernel(classes if classes <= _SPECIALISED else 0)


@functools.cache
def _em_kernel(states: int) -> Any:
    """The pass of `em_step`, for a number of states that is built into the code where it is not 0.

    With ``update`` false the posterior is taken as it is, and only counted.
    """

    def em(cells, indptr, start, stop, emission, prior, gold, width, update, posterior, counts, mass):  # type: ignore[no-untyped-def]
        k_all = states if states else len(prior)
        p = np.empty(k_all)
        log_likelihood, likelihood = 0.0, 1.0  # logarithms are slow: one for many instances
        for i in range(start, stop):
            first, last = indptr[i], indptr[i + 1]
            if not update:
                for k in range(k_all):
                    p[k] = posterior[i, k]
            else:
                known = gold[i] if gold.size else -1
                for k in range(k_all):
                    p[k] = prior[k]
                if known >= 0:
                    for k in range(k_all):
                        if k // width != known:
                            p[k] = 0.0
                scale, lost, begin = 0.0, False, first
                while True:
                    end = min(begin + 8, last)
                    for e in range(begin, end):
                        row = np.int64(cells[e]) * k_all
                        for k in range(k_all):
                            p[k] *= emission[row + k]
                    total = 0.0
                    for k in range(k_all):
                        total += p[k]
                    if end == last:
                        break
                    begin = end
                    if total < 1e-100:
                        for k in range(k_all):  # what has underflown by now may still win
                            lost |= p[k] < 1e-250 and (known < 0 or k // width == known)
                        if lost:
                            break
                        scale += np.log(total)
                        for k in range(k_all):
                            p[k] /= total
                if lost or total < 1e-200:  # rare and slow: once more, in logarithms
                    for k in range(k_all):
                        p[k] = np.log(prior[k]) if known < 0 or k // width == known else -1e300
                    for e in range(first, last):
                        row = np.int64(cells[e]) * k_all
                        for k in range(k_all):
                            p[k] += np.log(max(emission[row + k], 1e-300))
                    scale = p.max()
                    total = 0.0
                    for k in range(k_all):
                        p[k] = np.exp(p[k] - scale)
                        total += p[k]
                inverse = 1.0 / total
                for k in range(k_all):
                    p[k] *= inverse
                    posterior[i, k] = p[k]
                if first < last:
                    log_likelihood += scale
                    likelihood *= total
                    if likelihood < 1e-100 or likelihood > 1e100:
                        log_likelihood += np.log(likelihood)
                        likelihood = 1.0
            if first < last:
                for k in range(k_all):
                    mass[k] += p[k]
            for e in range(first, last):
                row = np.int64(cells[e]) * k_all
                for k in range(k_all):
                    counts[row + k] += p[k]
        return log_likelihood + np.log(likelihood)

    return jit()(em)


@functools.cache
def _vote_kernel(classes: int) -> Any:
    """The pass of `vote_step`, for a number of classes that is built into the code where it is not 0."""

    def vote(cells, indptr, start, stop, ratio, prior, gold, width, update, posterior, hits, mass):  # type: ignore[no-untyped-def]
        k_all = classes if classes else len(prior)
        p = np.empty(k_all)
        log_likelihood, likelihood = 0.0, 1.0
        for i in range(start, stop):
            first, last = indptr[i], indptr[i + 1]
            known = gold[i] if gold.size else -1
            scale, lost = 0.0, False
            for k in range(k_all):
                p[k] = prior[k]
            for e in range(first, last):
                label = cells[e] % k_all
                p[label] *= ratio[cells[e]]
                if p[label] > 1e100 or p[label] < 1e-100:
                    top = p.max()
                    scale += np.log(top)
                    for k in range(k_all):
                        p[k] /= top
                        lost |= p[k] < 1e-250
                    if lost:
                        break
            if lost:  # too far apart for products: once more, in logarithms
                for k in range(k_all):
                    p[k] = np.log(prior[k])
                for e in range(first, last):
                    p[cells[e] % k_all] += np.log(ratio[cells[e]])
                scale = p.max() if known < 0 else p[known]
                for k in range(k_all):
                    p[k] = np.exp(p[k] - scale) if known < 0 or k == known else 0.0
            if known >= 0:
                for k in range(k_all):
                    if k != known:
                        p[k] = 0.0
            total = 0.0
            for k in range(k_all):
                total += p[k]
            inverse = 1.0 / total
            for k in range(k_all):
                p[k] *= inverse
                posterior[i, k] = p[k]
            if first < last:
                log_likelihood += scale
                likelihood *= total
                if likelihood < 1e-100 or likelihood > 1e100:
                    log_likelihood += np.log(likelihood)
                    likelihood = 1.0
                for k in range(k_all):
                    mass[k] += p[k]
            for e in range(first, last):
                hits[cells[e]] += p[cells[e] % k_all]
        return log_likelihood + np.log(likelihood)

    return jit()(vote)


@functools.cache
def _trimmed_kernel() -> Any:
    """`trimmed_means`, by selection instead of sorting."""

    def trimmed(indptr, values, centre, trim):  # type: ignore[no-untyped-def]
        means = centre.copy()
        for g in range(len(centre)):
            row = values[indptr[g] : indptr[g + 1]]
            low, high = 0, 0
            for value in row:
                low += value < centre[g]
                high += value > centre[g]
            low, high = min(low, trim), min(high, trim)
            if low + high >= len(row):
                continue
            total = row.sum()
            if low:
                total -= np.partition(row, low - 1)[:low].sum()
            if high:
                total -= np.partition(row, len(row) - high)[len(row) - high :].sum()
            means[g] = total / (len(row) - low - high)
        return means

    return jit()(trimmed)
