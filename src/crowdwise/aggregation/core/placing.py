"""Annotations put in the order of instances by counting, in a loop that numba compiles."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from crowdwise.aggregation.core.machine_code import jit


@functools.cache
def placing_kernel() -> Any:
    """`kernels.sort_by_instance`, into ``cells``; ``free`` (n,) is working memory."""

    def place(instance, annotator, label, c, indptr, start, stop, free, cells):  # type: ignore[no-untyped-def]
        for i in range(start, stop):
            free[i] = indptr[i]
        for e in range(instance.size):
            i = instance[e]
            if start <= i < stop:
                cells[free[i]] = np.int64(annotator[e]) * c + label[e]
                free[i] += 1
        for i in range(start, stop):  # Shell's sort: by insertion where labels are few
            first, last = indptr[i], indptr[i + 1]
            gap = 1
            while 3 * gap < last - first:
                gap = 3 * gap + 1
            while gap:
                for e in range(first + gap, last):
                    cell, at = cells[e], e
                    while at >= first + gap and cells[at - gap] > cell:
                        cells[at] = cells[at - gap]
                        at -= gap
                    cells[at] = cell
                gap //= 3

    return jit()(place)
