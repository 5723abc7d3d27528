"""Names for the arrays that everything is made of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Pixels: TypeAlias = NDArray[np.uint8]
RandomState: TypeAlias = int | np.random.Generator | None
