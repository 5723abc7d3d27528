"""Work on stretches of instances, side by side in threads."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
_threads: ContextVar[int] = ContextVar("threads", default=1)


def spread(indptr: npt.NDArray[np.int64], run: Callable[[int, int, int], T], threads: int | None = None) -> list[T]:
    """``run(thread, start, stop)`` on stretches of instances with about as many annotations each, in order.

    This thread is number 0 and takes the first one. ``threads`` is by default what `threaded` says.
    """
    threads, n = _threads.get() if threads is None else threads, len(indptr) - 1
    if threads == 1:
        return [run(0, 0, n)]
    wanted = np.arange(1, threads) * int(indptr[-1]) // threads  # integers, or numpy would copy indptr to compare
    borders = [0, *np.searchsorted(indptr, wanted).tolist(), n]
    pool = _pool(threads - 1)
    others = [pool.submit(run, thread, borders[thread], borders[thread + 1]) for thread in range(1, threads)]
    return [run(0, 0, borders[1]), *(other.result() for other in others)]


@contextmanager
def threaded(threads: int) -> Iterator[None]:
    """Within the block, what takes no number of threads spreads over as many."""
    token = _threads.set(threads)
    try:
        yield
    finally:
        _threads.reset(token)


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work: to start some in every round of EM takes longer than a round on small crowds."""
    return ThreadPoolExecutor(threads, "crowdwise")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
