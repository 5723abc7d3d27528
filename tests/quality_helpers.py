"""Crowds whose truth is known, for tests of quality."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise import Annotations

Array = npt.NDArray[Any]

# Five instances, three annotators, two classes; the last instance is a tie.
SMALL = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, None]]


def simulated(
    n: int, skills: Array, classes: int, votes: int, seed: int, skew: float = 0.0
) -> tuple[Annotations, Array]:
    """A crowd whose annotator j is right with chance ``skills[j]``, and the true classes."""
    rng = np.random.default_rng(seed)
    size = len(skills)
    truth = np.where(rng.random(n) < skew, 0, rng.integers(0, classes, n))
    i = np.repeat(np.arange(n), votes)
    j = np.argsort(rng.random((n, size)), axis=1)[:, :votes].ravel()
    wrong = (truth[i] + rng.integers(1, classes, n * votes)) % classes
    y = np.where(rng.random(n * votes) < skills[j], truth[i], wrong)
    return Annotations.from_triples(i, j, y, n_instances=n, n_annotators=size, n_classes=classes), truth


def column(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    return values


def one_hot(truth: Array, classes: int) -> Array:
    return np.eye(classes)[truth]
