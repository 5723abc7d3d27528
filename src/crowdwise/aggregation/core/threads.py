"""Work on stretches of instances, side by side in threads."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

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


class _OneBlasThread:
    """BLAS on one thread, for as long as anybody is in the block.

    After each product of long vectors the other threads of OpenBLAS wait for the next one at full speed, some 100 ms. Where
    processors are few, they take turns with the threads of `spread`, which then gain nothing.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._limit is not None:
                self._limit.restore_original_limits()


one_blas_thread = _OneBlasThread()


@functools.cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController  # takes 20 ms, with what it imports

    return ThreadpoolController()


def _forget() -> None:
    """In a child process, which has none of its parent's threads."""
    _pool.cache_clear()
    one_blas_thread.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
