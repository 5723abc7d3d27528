"""The hot loops of truth inference, each in two versions that agree: numba for large crowds, scipy for small ones.

Everything works on annotations sorted by instance. An annotation is one integer, its *cell* ``annotator * C + label``:
the row of a table (R * C, K) that holds what this label of this annotator says about each of K states (the classes, or
classes times subtypes). An iteration of EM is one pass over the annotations: the posterior of an instance is the
product of its rows, rescaled before it can underflow, and is added to the same rows of the next counts while they are
still in the cache. Threads take stretches of instances and own their counts.

The compiled loops are in `compiled`; numba is imported for the first large crowd only.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from crowdwise.aggregation.core import compiled
from crowdwise.aggregation.core.compiled import jit as jit
from crowdwise.aggregation.core.placing import placing_kernel

Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[Any]  # uint32, or int64 where R * C does not fit

SMALL = 20_000  # annotations below which scipy is as fast
PATIENT = 300_000  # annotations from which on compiling pays within the first fit
TINY = 1e-300  # no probability is taken for less
_SPARSE = 4  # cells of a table for each annotation from which on the others are passed over
FLOOR = 1e-10  # probabilities are kept at or above this before a logarithm
APART = 16  # numbers between what two threads write all the time, or they would share cache lines


class Layout(NamedTuple):
    """Annotations as the kernels read them: sorted by instance."""

    cells: Cells  # (E,) annotator * C + label
    indptr: npt.NDArray[np.int64]  # (n + 1,) the annotations of instance i are cells[indptr[i]:indptr[i + 1]]
    gold: npt.NDArray[np.int32]  # (n,) known class or -1; empty when nothing is known
    shape: tuple[int, int]  # (R, C)
    threads: int = 1
    compiled: bool = False  # numba (True) or scipy
    weight: Floats | None = None  # (E,) how much of a label each is; None: one


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
    return compiled.cached_on_disk()


class _Patience:
    """Whether a crowd of medium size has been fitted in this process."""

    exhausted = False


_patience = _Patience()


def sort_by_instance(
    instance: npt.NDArray[np.int32],
    annotator: npt.NDArray[np.int32],
    label: npt.NDArray[np.int32],
    n: int,
    c: int,
    threads: int | None = None,
) -> tuple[Cells, npt.NDArray[np.int64]]:
    """Cells (E,) in the order of instances, and where each instance begins (n + 1,); ``threads`` of numba, or numpy's sort.

    The cells of an instance are in order too, so that results do not depend on the order of the annotations, to the last bit.
    """
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(instance, minlength=n), out=indptr[1:])
    wide = (int(annotator.max(initial=0)) + 1) * c > 2**32
    if threads is not None:
        result: Cells = np.empty(len(instance), np.int64 if wide else np.uint32)
        place, free = placing_kernel(), np.empty(n, np.int64)
        triples = instance, annotator, label
        compiled.spread(indptr, lambda _, *ends: place(*triples, c, indptr, *ends, free, result), threads)
        return result, indptr
    cells = annotator.astype(np.int64)
    cells *= c
    cells += label
    if wide:
        return cells[np.lexsort((cells, instance))], indptr
    packed = instance.astype(np.int64)  # numpy sorts integers much faster than it argsorts
    packed <<= 32
    packed |= cells
    packed.sort()
    packed &= 0xFFFFFFFF
    return packed.astype(np.uint32), indptr


def em_step(
    layout: Layout, emission: Floats, prior: Floats, out: Floats | None = None, onto: Floats | None = None
) -> Step:
    """E and M step of a model whose labels are independent given the state.

    ``emission`` (R, C, K) is P(label y of annotator j | state k), or anything proportional to it; ``prior``
    (K,) likewise. With K = C * M states, state ``k`` belongs to class ``k // M``, and instances with a gold
    label are confined to the states of that class. ``out`` (n, K) is overwritten with the posterior where given, and
    counts are added to those in ``onto`` (R, C, K).
    """
    k = len(prior)
    if not layout.compiled:
        cells, entries, used = incidence(layout), emission.reshape(-1, k), None
        if _SPARSE * len(layout.cells) < len(entries):  # with many classes, nearly all of the table is of no use
            used, place = np.unique(layout.cells, return_inverse=True)
            cells = sp.csr_array((cells.data, place, cells.indptr), shape=(cells.shape[0], len(used)))
            entries = entries[used]
        scores = cells @ np.log(np.maximum(entries, TINY)) + np.log(prior)

        def count(q: Floats) -> Floats:
            if used is None:
                return (cells.T @ q).reshape(emission.shape)
            counts = np.zeros(emission.shape)
            counts.reshape(-1, k)[used] = cells.T @ q
            return counts

        return _finish(layout, scores, count, out, onto)
    posterior = np.empty((len(layout.indptr) - 1, k)) if out is None else out
    table = np.ascontiguousarray(emission, np.float64).ravel()
    if layout.weight is not None:
        table, prior = np.log(np.maximum(table, TINY)), np.log(np.maximum(prior, TINY))
    counts, mass, log_likelihood = _threaded(_em_kernel(layout, k), layout, table, prior, posterior, True, onto)
    return Step(posterior, counts.reshape(emission.shape), mass, log_likelihood)


def vote_step(
    layout: Layout, ratio: Floats, prior: Floats, out: Floats | None = None, onto: Floats | None = None
) -> Step:
    """E and M step of a model in which a label speaks for its own class only.

    ``ratio`` (R, C) is P(label y of annotator j | class y) over its probability under any other class; ``counts`` of
    the result is (R, C): the sum of q_i(y) over the labels y of annotator j. The constant that ``ratio`` leaves out is
    left out of the log-likelihood too.
    """
    c = layout.shape[1]
    if not layout.compiled or layout.weight is not None:
        scores = votes(layout, np.log(ratio)) + np.log(prior)
        return _finish(layout, scores, lambda q: hits(layout, q), out, onto)
    posterior = np.empty((len(layout.indptr) - 1, c)) if out is None else out
    kernel = compiled.vote_kernel(c)
    counts, mass, log_likelihood = _threaded(kernel, layout, ratio.ravel(), prior, posterior, True, onto)
    return Step(posterior, counts.reshape(-1, c), mass, log_likelihood)


def confusion_counts(layout: Layout, posterior: Floats, onto: Floats | None = None) -> Floats:
    """Posterior (n, K) summed by annotator and label, and added to ``onto`` where given: (R, C, K)."""
    (r, c), k = layout.shape, posterior.shape[1]
    if not layout.compiled:
        return _added(onto, np.asarray(expected_counts(layout, posterior)).reshape(r, c, k))
    kernel, table = _em_kernel(layout, k), np.empty(r * c * k)
    counts, _, _ = _threaded(kernel, layout, table, np.empty(k), np.ascontiguousarray(posterior), False, onto)
    return counts.reshape(r, c, k)


def expected_counts(layout: Layout, posterior: Any, chosen: npt.NDArray[np.int64] | None = None) -> Any:
    """Posterior (n, K) summed by cell, for all or the chosen ones: (R * C, K), dense or sparse as the posterior is."""
    cells = incidence(layout).T
    return cells @ posterior if chosen is None else cells.tocsr()[chosen] @ posterior


def renumbered(layout: Layout, number: npt.NDArray[np.uint32], shape: tuple[int, int]) -> Layout:
    """The same annotations with ``number[cell]`` for cells, of which there are ``shape[0] * shape[1]``."""
    return layout._replace(cells=number[layout.cells], shape=shape)


def votes(layout: Layout, weight: Floats | None = None) -> Floats:
    """Votes (n, C), each counted with the weight (R, C) of its cell, or once."""
    n, c = len(layout.indptr) - 1, layout.shape[1]
    if layout.compiled and layout.weight is None:
        table, kernel = np.zeros((n, c)), compiled.votes_kernel()
        by_cell = np.empty(0) if weight is None else np.ascontiguousarray(weight, np.float64).ravel()
        rows = layout.cells, layout.indptr
        compiled.spread(layout.indptr, lambda _, *ends: kernel(*rows, *ends, by_cell, table), layout.threads)
        return table
    position = instances(layout)
    position *= c
    position += labels(layout)
    values = layout.weight if weight is None else weighed(layout, weight.ravel()[layout.cells])
    return np.bincount(position, values, minlength=n * c).astype(np.float64).reshape(n, c)


def hits(layout: Layout, posterior: Floats) -> Floats:
    """Posterior (n, C) of the labels given, summed by annotator and label: (R, C)."""
    r, c = layout.shape
    position = instances(layout)
    position *= c
    position += labels(layout)
    values = weighed(layout, posterior.ravel()[position])
    return np.bincount(layout.cells, values, minlength=r * c).astype(np.float64).reshape(r, c)


def label_counts(layout: Layout) -> npt.NDArray[Any]:
    """How often each annotator gave each label, (R, C): integers, or sums of weights."""
    r, c = layout.shape
    return np.bincount(layout.cells, layout.weight, minlength=r * c).reshape(r, c)


def weighed(layout: Layout, values: Floats) -> Floats:
    """Values of the annotations (E,), times their weights."""
    return values if layout.weight is None else values * layout.weight


def labels(layout: Layout) -> npt.NDArray[Any]:
    """Label of every cell, (E,)."""
    return np.asarray(layout.cells % layout.cells.dtype.type(layout.shape[1]))


def instances(layout: Layout) -> npt.NDArray[np.int64]:
    """Instance of every cell, (E,)."""
    return np.repeat(np.arange(len(layout.indptr) - 1), np.diff(layout.indptr))


def incidence(layout: Layout) -> sp.csr_array:
    """Which cells an instance has, as a sparse matrix (n, R * C), with weights; a repeated annotation counts twice."""
    shape = len(layout.indptr) - 1, layout.shape[0] * layout.shape[1]
    cells = layout.cells.astype(np.int64)
    return sp.csr_array(
        (np.ones(len(cells)) if layout.weight is None else layout.weight, cells, layout.indptr), shape=shape
    )


def trimmed_means(indptr: npt.NDArray[Any], values: Floats, centre: Floats, trim: int) -> Floats:
    """Mean of every row of ``values`` without its ``trim`` smallest below and largest above the row's centre.

    Rows are ``values[indptr[g]:indptr[g + 1]]``; where fewer lie below (above), all of those are left out, and a row of
    which nothing remains keeps its ``centre`` (M-MSR, Ma & Olshevsky 2020).
    """
    if use_numba(len(values)):
        return np.asarray(compiled.trimmed_kernel()(indptr, values, centre, trim))
    size = np.diff(indptr)
    row = np.repeat(np.arange(len(size)), size)
    order = np.lexsort((values, row))
    values, rank = values[order], np.arange(len(values)) - indptr[row]
    below = np.bincount(row, values < centre[row], len(size))
    above = np.bincount(row, values > centre[row], len(size))
    keep = (rank >= np.minimum(trim, below)[row]) & (rank < (size - np.minimum(trim, above))[row])
    number = np.bincount(row, keep, len(size))
    return np.divide(np.bincount(row, values * keep, len(size)), number, out=centre.copy(), where=number > 0)


def _finish(
    layout: Layout, scores: Floats, count: Callable[[Floats], Floats], out: Floats | None, onto: Floats | None
) -> Step:
    """Posterior, counts and likelihood from log posteriors (n, K) up to a constant."""
    if layout.gold.size:
        width = scores.shape[1] // layout.shape[1]
        foreign = np.arange(scores.shape[1]) // width != layout.gold[:, None]
        scores = np.where((layout.gold[:, None] >= 0) & foreign, -np.inf, scores)
    top = _by_row(np.maximum, scores)
    posterior = np.exp(scores - top[:, None], out=out)
    total = _by_row(np.add, posterior)
    posterior /= total[:, None]
    labelled, logs = np.diff(layout.indptr) > 0, np.log(total) + top
    if np.all(labelled):
        mass, log_likelihood = posterior.sum(axis=0), float(logs.sum())
    else:
        mass, log_likelihood = posterior[labelled].sum(axis=0), float(logs[labelled].sum())
    return Step(posterior, _added(onto, count(posterior)), mass, log_likelihood)


def _by_row(reduction: np.ufunc, table: Floats) -> Floats:
    """A table (n, K) reduced to (n,); numpy is slow along short rows, and fast column by column."""
    return np.asarray(
        functools.reduce(reduction, table.T) if 0 < table.shape[1] <= 32 else reduction.reduce(table, axis=1)
    )


def _em_kernel(layout: Layout, states: int) -> Any:
    if layout.weight is None:
        return compiled.em_kernel(states)
    return functools.partial(compiled.weighted_kernel(), layout.weight)


def _added(onto: Floats | None, counts: Floats) -> Floats:
    return counts if onto is None else np.add(onto, counts, out=onto)


def _threaded(
    kernel: Any,
    layout: Layout,
    table: Floats,
    prior: Floats,
    posterior: Floats,
    update: bool,
    onto: Floats | None,
) -> tuple[Floats, Floats, float]:
    """Run a pass on stretches of instances of about equal numbers of annotations, one a thread, and add up."""
    k = len(prior)
    width = k // layout.shape[1]  # states of one class
    masses = np.zeros((layout.threads, k + APART))

    def run(thread: int, start: int, stop: int) -> tuple[Floats, Floats, float]:
        counts = np.zeros(len(table)) if thread or onto is None else onto.reshape(-1)
        args = layout.cells, layout.indptr, start, stop, table, prior, layout.gold, width, update
        return counts, masses[thread, :k], kernel(*args, posterior, counts, masses[thread, :k])

    (counts, mass, log_likelihood), *others = compiled.spread(layout.indptr, run, layout.threads)
    for part in others:
        counts += part[0]
        mass += part[1]
        log_likelihood += part[2]
    return counts, mass, log_likelihood
