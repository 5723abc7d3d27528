"""How work grows with the size of the input: what a busy or slow machine leaves as it is."""

from __future__ import annotations

import time
from collections.abc import Callable


def assert_about_linear(work: Callable[[int], object], small: int, large: int) -> None:
    """Ten times the input is far from a hundred times the work.

    Time of this process is compared with time of this process: others do not count, nor does the
    speed of the processor. The bound lies half-way, in orders of magnitude, to a square; and a
    little beyond, as larger inputs leave caches.
    """

    def seconds(size: int) -> float:
        begun = time.process_time()
        work(size)
        return time.process_time() - begun

    work(small)  # imports and caches
    least = min(seconds(small) for _ in range(3))
    assert seconds(large) / least < (large / small) ** 1.6
