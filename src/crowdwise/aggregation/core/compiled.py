"""Loops over annotations that numba compiles, each for the numbers of states that it is asked for.

numba is imported here on first use only; the machine code is cached on disk. What the loops compute, and what else can
compute it, says `kernels`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

_SPECIALISED = 8  # up to this many states the loops over states are unrolled by the compiler


def cached_on_disk() -> bool:
    """Whether an earlier process has compiled the loop of EM."""
    return any(Path(_em_loop(0).stats.cache_path).glob("compiled._em_loop*.nbi"))


def em_kernel(states: int) -> Any:
    """The pass of `kernels.em_step`."""
    return _em_loop(states if states <= _SPECIALISED else 0)


def vote_kernel(classes: int) -> Any:
    """The pass of `kernels.vote_step`."""
    return _vote_loop(classes if classes <= _SPECIALISED else 0)


@functools.cache
def jit() -> Any:
    """numba's decorator with the options of all kernels: cached on disk, free of the interpreter lock."""
    import numba

    return numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")


@functools.cache
def _em_loop(states: int) -> Any:
    """EM for a number of states that is built into the code where it is not 0.

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
def weighted_kernel() -> Any:
    """The pass of `kernels.em_step` with weights (E,) of annotations; ``emission`` and ``prior`` are logarithms."""

    def em(weight, cells, indptr, start, stop, emission, prior, gold, width, update, posterior, counts, mass):  # type: ignore[no-untyped-def]
        k_all = len(prior)
        p = np.empty(k_all)
        log_likelihood = 0.0
        for i in range(start, stop):
            first, last = indptr[i], indptr[i + 1]
            if not update:
                for k in range(k_all):
                    p[k] = posterior[i, k]
            else:
                known = gold[i] if gold.size else -1
                for k in range(k_all):
                    p[k] = prior[k] if known < 0 or k // width == known else -1e300
                for e in range(first, last):
                    row = np.int64(cells[e]) * k_all
                    for k in range(k_all):
                        p[k] += weight[e] * emission[row + k]
                top = p.max()
                total = 0.0
                for k in range(k_all):
                    p[k] = np.exp(p[k] - top)
                    total += p[k]
                for k in range(k_all):
                    p[k] /= total
                    posterior[i, k] = p[k]
                if first < last:
                    log_likelihood += top + np.log(total)
            if first < last:
                for k in range(k_all):
                    mass[k] += p[k]
            for e in range(first, last):
                row = np.int64(cells[e]) * k_all
                for k in range(k_all):
                    counts[row + k] += weight[e] * p[k]
        return log_likelihood

    return jit()(em)


@functools.cache
def _vote_loop(classes: int) -> Any:
    """EM on votes for a number of classes that is built into the code where it is not 0."""

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
def trimmed_kernel() -> Any:
    """`kernels.trimmed_means`, by selection (Hoare's quickselect) instead of sorting."""

    def trimmed(indptr, values, centre, trim):  # type: ignore[no-untyped-def]
        means = centre.copy()
        for g in range(len(centre)):
            row = values[indptr[g] : indptr[g + 1]].copy()
            below, above = 0, 0
            for value in row:
                below += value < centre[g]
                above += value > centre[g]
            low, high = min(below, trim), min(above, trim)
            if low + high >= len(row):
                continue
            total = row.sum()
            for side in range(2):  # the smallest, then the largest: the smallest of what is negated
                wanted = low if side == 0 else high
                if side == 1:
                    for k in range(len(row)):
                        row[k] = -row[k]
                left, right = 0, len(row) - 1
                while wanted and left < right:
                    pivot = row[(left + right) // 2]
                    i, j = left, right
                    while i <= j:
                        while row[i] < pivot:
                            i += 1
                        while row[j] > pivot:
                            j -= 1
                        if i <= j:
                            row[i], row[j] = row[j], row[i]
                            i += 1
                            j -= 1
                    if wanted - 1 <= j:
                        right = j
                    elif wanted - 1 >= i:
                        left = i
                    else:
                        break
                for k in range(wanted):
                    total -= row[k] if side == 0 else -row[k]
            means[g] = total / (len(row) - low - high)
        return means

    return jit()(trimmed)


@functools.cache
def evidence_kernel() -> Any:
    """The sums of `tempering.vote_evidence`; ``weight`` (R,) is empty where every label is one vote."""

    def sums(cells, indptr, posterior, weight, gold, tolerance, smallest):  # type: ignore[no-untyped-def]
        n, c = posterior.shape
        votes = np.zeros(c)
        along = squared = 0.0
        for i in range(n):
            if (gold.size and gold[i] >= 0) or indptr[i] == indptr[i + 1]:
                continue
            top, second = posterior[i, 0], 0.0
            for k in range(1, c):
                value = posterior[i, k]
                if value > top:
                    top, second = value, top
                elif value > second:
                    second = value
            most = 0
            while posterior[i, most] < top - tolerance:
                most += 1
            for e in range(indptr[i], indptr[i + 1]):
                j = cells[e] // c
                votes[cells[e] - j * c] += weight[j] if weight.size else 1.0
            other = 0.0
            for k in range(c):
                if k != most and votes[k] > other:
                    other = votes[k]
            lead = votes[most] - other
            votes[:] = 0.0
            along += lead * np.log(max(top, smallest) / max(second, smallest))
            squared += lead * lead
        return along, squared

    return jit()(sums)


@functools.cache
def tempering_kernel() -> Any:
    """The rows of `tempering.tempered`, into ``result``; gold rows are left to the caller."""

    def rows(cells, indptr, posterior, weight, vote, slope, tolerance, smallest, result):  # type: ignore[no-untyped-def]
        n, c = posterior.shape
        for i in range(n):
            number = float(indptr[i + 1] - indptr[i])
            if weight.size:
                number = 0.0
                for e in range(indptr[i], indptr[i + 1]):
                    number += weight[cells[e] // c]
            if indptr[i] == indptr[i + 1]:
                for k in range(c):
                    result[i, k] = posterior[i, k]
                continue
            top, second = posterior[i, 0], 0.0
            for k in range(1, c):
                value = posterior[i, k]
                if value > top:
                    top, second = value, top
                elif value > second:
                    second = value
            most = 0
            while posterior[i, most] < top - tolerance:
                most += 1
            lead = np.log(max(top, smallest) / max(second, smallest)) / vote
            size = max(number, lead)
            against = ((size - lead + 2.0) / (size + lead + 2.0)) ** slope
            against = max(against, second / max(top, smallest))
            against += max(1.0 - top - second, 0.0) / max(top, smallest)
            others = 0.0
            for k in range(c):
                if k != most:
                    others += posterior[i, k]
            right = 1.0 / (1.0 + against)
            for k in range(c):
                share = posterior[i, k] / others if others > 0.0 else 1.0 / (c - 1)
                result[i, k] = right if k == most else (1.0 - right) * share

    return jit()(rows)
