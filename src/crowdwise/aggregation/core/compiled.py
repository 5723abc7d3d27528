"""Loops over annotations that numba compiles, each for the numbers of states that it is asked for.

numba is imported on first use only; `machine_code` keeps what it compiles. What the loops compute, and what else can compute
it, says `kernels`; a loop runs from instance ``start`` up to ``stop``, and `spread` gives each thread a stretch of them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from crowdwise.aggregation.core import machine_code
from crowdwise.aggregation.core.machine_code import jit as jit
from crowdwise.aggregation.core.threads import spread as spread
from crowdwise.aggregation.core.threads import threaded as threaded

_SPECIALISED = 8  # up to this many states the loops over states are unrolled by the compiler


def cached_on_disk() -> bool:
    """Whether an earlier process has compiled the loop of EM."""
    return machine_code.kept("_em_loop.<locals>.em", __file__)


def em_kernel(states: int) -> Any:
    """The pass of `kernels.em_step`."""
    return _em_loop(states if states <= _SPECIALISED else 0)


def vote_kernel(classes: int) -> Any:
    """The pass of `kernels.vote_step`."""
    return _vote_loop(classes if classes <= _SPECIALISED else 0)


def _largest(values):  # type: ignore[no-untyped-def]
    """The largest of some numbers; numba takes long to compile numpy's own."""
    found = values[0]
    for value in values[1:]:
        found = max(found, value)
    return found


@functools.cache
def _em_loop(states: int) -> Any:
    """EM for a number of states that is built into the code where it is not 0.

    With ``update`` false the posterior is taken as it is, and only counted.
    """

    largest = jit()(_largest)

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
                    scale = largest(p)
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

    largest = jit()(_largest)

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
                top = largest(p)
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

    largest = jit()(_largest)

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
                    top = largest(p)
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
                scale = largest(p) if known < 0 else p[known]
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
def votes_kernel() -> Any:
    """`kernels.votes`, added to ``table`` (n, C); ``weight`` (R * C,) is empty where every label is one vote."""

    def votes(cells, indptr, start, stop, weight, table):  # type: ignore[no-untyped-def]
        c = table.shape[1]
        for i in range(start, stop):
            for e in range(indptr[i], indptr[i + 1]):
                table[i, cells[e] % c] += weight[cells[e]] if weight.size else 1.0

    return jit()(votes)


def _first_two(posterior, i, tolerance):  # type: ignore[no-untyped-def]
    """The largest and the second largest value of row i, and where the largest is; equals are within the tolerance."""
    top, second = posterior[i, 0], 0.0
    for k in range(1, posterior.shape[1]):
        value = posterior[i, k]
        if value > top:
            top, second = value, top
        elif value > second:
            second = value
    most = 0
    while posterior[i, most] < top - tolerance:
        most += 1
    return top, second, most


@functools.cache
def evidence_kernel() -> Any:
    """The sums of `tempering.vote_evidence`; ``weight`` (R,) is empty where every label is one vote."""
    first_two = jit()(_first_two)

    def sums(cells, indptr, start, stop, posterior, weight, gold, tolerance, smallest):  # type: ignore[no-untyped-def]
        c = posterior.shape[1]
        votes = np.zeros(c)
        along = squared = 0.0
        for i in range(start, stop):
            if (gold.size and gold[i] >= 0) or indptr[i] == indptr[i + 1]:
                continue
            top, second, most = first_two(posterior, i, tolerance)
            for e in range(indptr[i], indptr[i + 1]):
                j = cells[e] // c
                votes[cells[e] - j * c] += weight[j] if weight.size else 1.0
            other = 0.0
            for k in range(c):
                if k != most and votes[k] > other:
                    other = votes[k]
            lead = votes[most] - other
            for k in range(c):
                votes[k] = 0.0
            along += lead * np.log(max(top, smallest) / max(second, smallest))
            squared += lead * lead
        return along, squared

    kernel = jit()(sums)

    def added(cells: Any, indptr: Any, *rest: Any) -> tuple[float, float]:
        parts = spread(indptr, lambda _, start, stop: kernel(cells, indptr, start, stop, *rest))
        return sum(part[0] for part in parts), sum(part[1] for part in parts)

    return added


@functools.cache
def tempering_kernel() -> Any:
    """The rows of `tempering.tempered`, into ``result``; gold rows are left to the caller."""
    first_two = jit()(_first_two)

    def rows(  # type: ignore[no-untyped-def]
        cells, indptr, start, stop, posterior, weight, vote, table, wrong, low, step, tolerance, smallest, tiny, result
    ):
        c, last = posterior.shape[1], table.size - 1.0
        for i in range(start, stop):
            number = float(indptr[i + 1] - indptr[i])
            if weight.size:
                number = 0.0
                for e in range(indptr[i], indptr[i + 1]):
                    number += weight[cells[e] // c]
            if indptr[i] == indptr[i + 1]:
                for k in range(c):
                    result[i, k] = posterior[i, k]
                continue
            top, second, most = first_two(posterior, i, tolerance)
            lead = np.log(max(top, smallest) / max(second, smallest)) / vote
            size = max(number, lead)
            odds = 0.0
            for sign in (1.0, -1.0):
                place = min((np.log(0.5 * (size + sign * lead) + wrong) - low) / step, last)
                k = min(int(max(place, 0.0)), table.size - 2)
                odds += sign * (table[k] + (place - k) * (table[k + 1] - table[k]))
            against = np.exp(-odds)
            against = max(against, second / max(top, smallest))
            against += max(1.0 - top - second, 0.0) / max(top, smallest)
            others = 0.0
            for k in range(c):
                if k != most:
                    others += posterior[i, k]
            best = 1.0 / (1.0 + against)
            for k in range(c):
                share = posterior[i, k] / others if others >= tiny else 1.0 / (c - 1)
                result[i, k] = best if k == most else (1.0 - best) * share

    kernel = jit()(rows)

    def filled(cells: Any, indptr: Any, *rest: Any) -> None:
        spread(indptr, lambda _, start, stop: kernel(cells, indptr, start, stop, *rest))

    return filled
