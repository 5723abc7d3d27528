"""How far results may differ that are computed in another order.

Sums depend on the order of their terms. That order depends on the processor (how wide its vectors
are), on the number of threads, on the sizes of blocks and batches, and on whether layers are
stacked. A rounding is wrong by at most half a unit in the last place of the number that is
rounded: 6e-8 of it with float32, 1.1e-16 with float64. So a bound is relative to the largest term
of a sum, not to its result, which may be close to 0.

Where the same code runs twice on one machine, results are equal bit by bit: no bound is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

SINGLE = 1e-5
"""float32, numbers of size 1: room for 170 roundings in the same direction.

The networks of these tests add up some ten to a hundred terms in a few layers."""

TRAINED = 1e-3
"""float32 after training: each step starts from the roundings of the step before, and grows them."""

DOUBLE = 1e-9
"""float64, numbers of size 1: room for ten million roundings in the same direction."""


def assert_likeliest(codes: ArrayLike, posterior: NDArray[np.floating], within: float = SINGLE) -> None:
    """The class of every row is its likeliest; of classes that are within a bound, any will do."""
    chosen = np.take_along_axis(posterior, np.asarray(codes)[:, None], axis=1)[:, 0]
    np.testing.assert_array_less(posterior.max(axis=1) - within, chosen)
