"""The arithmetic of robust scaling in one loop, which numba compiles: torch takes ten passes."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

BEND, LIMIT = 3.0, 10.0  # where robust scaling begins to bend, and where it ends
LARGEST = math.exp(LIMIT - BEND)  # whose logarithm reaches the limit
_LONG = 1024  # values in a row from which on its end, which fills no vector, takes little of the time
_BEND, _LARGEST, _ONE, _TWO = np.float32(BEND), np.float32(LARGEST), np.float32(1), np.float32(2)
_LN_2, _ROOT_2 = np.float32(math.log(2)), np.float32(math.sqrt(2))
_THIRD, _FIFTH, _SEVENTH = np.float32(1 / 3), np.float32(1 / 5), np.float32(1 / 7)
_HALF = np.float32(0.5)


def long_rows(constants: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One constant for each column (d,), repeated for so many rows that together they are long."""
    return np.tile(constants, -(-_LONG // max(len(constants), 1)))


@functools.cache
def bending_kernel() -> Any:
    """``shift + last * bent((values - centre) * factor)`` into ``out``, for the values of rows one after the other.

    There is neither a branch nor a call in the loop, so that the processor takes many values at a time: the logarithm is that
    of a float's exponent, plus the first terms of ln(m / sqrt(2)) = 2 artanh((m - sqrt(2)) / (m + sqrt(2))) of its mantissa m.
    """
    from crowdwise.aggregation.core.machine_code import jit

    def bend(values, centre, factor, shift, last, out):  # type: ignore[no-untyped-def]
        for start in range(0, len(values), len(centre)):
            row, into = values[start : start + len(centre)], out[start : start + len(centre)]
            for j in range(len(row)):
                z = (row[j] - centre[j]) * factor[j]
                size = abs(z)
                beyond = np.float32(min(max(size - (_BEND - _ONE), _ONE), _LARGEST))
                bits = beyond.view(np.int32)
                mantissa = np.int32((bits & 0x7FFFFF) | 0x3F800000).view(np.float32)
                s = (mantissa - _ROOT_2) / (mantissa + _ROOT_2)
                w = s * s
                series = _TWO * s * (_ONE + w * (_THIRD + w * (_FIFTH + w * _SEVENTH)))
                bent = min(size, _BEND) + (np.float32((bits >> 23) - 127) + _HALF) * _LN_2 + series
                into[j] = shift[j] + last[j] * math.copysign(bent, z)

    return jit()(bend)
