"""Feature preparation, by name for presets. Statistics come from the training part alone.

Every function takes the training features (n, d) and any further parts, and returns all of them as float32; None stays
None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from crowdwise.data.types import Array
from crowdwise.errors import ConfigError, DataError, suggest

Part = Array | None


def standardise(X_train: Array, *others: Part) -> tuple[Any, ...]:
    """Subtract each feature's training mean and divide by its training standard deviation, unless that is 0.

    >>> X_train, X_test = standardise(np.array([[0.0, 5.0], [2.0, 5.0]]), np.array([[3.0, 6.0]]))
    >>> X_train.tolist(), X_test.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[2.0, 1.0]])
    """
    X = np.asarray(X_train, dtype=np.float64)
    mean, std = X.mean(axis=0), X.std(axis=0)
    # A spread below the resolution of float32 is rounding error; dividing by it would turn noise into data.
    std[std <= 1e-7 * np.abs(X).max(axis=0)] = 1.0
    return tuple(None if part is None else ((part - mean) / std).astype(np.float32) for part in (X, *others))


def log1p(X_train: Array, *others: Part) -> tuple[Any, ...]:
    """ln(1 + x), for non-negative features with a long tail.

    >>> log1p(np.array([[0.0, np.e - 1]]), None)
    (array([[0., 1.]], dtype=float32), None)
    """
    for part in (X_train, *others):
        if part is not None and part.size and part.min() < 0:
            raise DataError(f"log1p needs features of at least 0, but one is {part.min():.6g}")
    return tuple(None if part is None else np.log1p(part).astype(np.float32) for part in (X_train, *others))


_PREPARATIONS: dict[str, Callable[..., tuple[Any, ...]]] = {"standardise": standardise, "log1p": log1p}


def prepare(name: str | None, X_train: Array, *others: Part) -> tuple[Any, ...]:
    """Apply the preparation ``name`` (``"standardise"`` or ``"log1p"``); None changes nothing.

    >>> X_train, X_valid = prepare("standardise", np.array([[0.0], [2.0]]), None)
    >>> X_train.tolist(), X_valid
    ([[-1.0], [1.0]], None)
    """
    if name is None:
        return (X_train, *others)
    if name not in _PREPARATIONS:
        raise ConfigError(f"unknown preparation {name!r}{suggest(name, _PREPARATIONS)}")
    return _PREPARATIONS[name](X_train, *others)
