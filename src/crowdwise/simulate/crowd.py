"""A simulated crowd: its annotations, and the truth about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from crowdwise.annotations import Annotations
from crowdwise.data.types import Array, Floats, Ints, RandomState
from crowdwise.errors import ConfigError, DataError

Process: TypeAlias = Callable[[Any, Ints, Ints], Floats]
"""A noise process: the true T of (instance, annotator) pairs, from X, instances and annotators."""


@dataclass(frozen=True, eq=False)
class SimulatedCrowd:
    """Annotations with known truth, for tests and experiments; methods may only see ``annotations``."""

    annotations: Annotations
    y: Ints
    """True class of each instance, (n,)."""
    groups: Ints
    """Group of each annotator, (R,); members of a group err alike."""
    rows: Floats = field(repr=False)
    """P(label | instance, true class, annotator) of each annotation, (E, C)."""
    process: Process = field(repr=False)
    noise_rates: Floats | None = field(default=None, repr=False)
    """AIDN: probability of a wrong label for each instance and group, (n, G)."""
    matrices: Floats | None = field(default=None, repr=False)
    """Class-conditional crowds: T of each annotator, (R, C, C)."""

    def transition(self, X: Any, instances: ArrayLike, annotators: ArrayLike) -> Floats:
        """True T of each pair (instances[e], annotators[e]), (pairs, C, C).

        ``X`` holds the features of all n instances that the crowd was made from; class-conditional crowds ignore it.
        """
        n, size = self.annotations.n_instances, self.annotations.n_annotators
        rows, columns = _codes(instances, "instance", n), _codes(annotators, "annotator", size)
        if rows.shape != columns.shape:
            raise DataError(f"{len(rows)} instances and {len(columns)} annotators do not make pairs")
        return self.process(X, rows, columns)


def simulated(
    truth: Ints,
    groups: Ints,
    pairs: tuple[Ints, Ints],
    label: Ints,
    rows: Floats,
    process: Process,
    **known: Floats,
) -> SimulatedCrowd:
    """The crowd whose ``pairs`` (instance, annotator) got ``label``, each drawn from ``rows`` (E, C)."""
    annotations = Annotations.from_triples(
        *pairs, label, n_instances=len(truth), n_annotators=len(groups), n_classes=rows.shape[1]
    )
    return SimulatedCrowd(annotations, truth, groups, rows, process, **known)


def true_classes(y: Any, n_classes: int | None) -> tuple[Ints, int]:
    """Checked class codes (n,) and C; by default the largest code + 1."""
    raw = to_numpy(y)
    if raw.ndim != 1 or not raw.size:
        raise DataError(f"y must be a vector of at least one class code, not of shape {raw.shape}")
    if not np.issubdtype(raw.dtype, np.integer):
        raise DataError(f"y must hold integer class codes 0..C-1, not {raw.dtype}")
    codes = raw.astype(np.int64)
    count = int(codes.max()) + 1 if n_classes is None else n_classes
    if count < 2:
        raise ConfigError(f"a crowd needs at least 2 classes, not {count}; pass n_classes")
    return _codes(codes, "class", count), count


def draw_labels(rows: Floats, rng: np.random.Generator) -> Ints:
    """One label from each distribution, (E, C) -> (E,)."""
    cumulative = np.cumsum(rows, axis=1)
    threshold = rng.random((len(rows), 1)) * cumulative[:, -1:]  # the sum may be 1 up to rounding only
    labels: Ints = (cumulative <= threshold).sum(axis=1)
    return labels


def seeds(random_state: RandomState, count: int) -> list[np.random.SeedSequence]:
    """Independent streams; the first ones do not depend on ``count``."""
    root: Any = np.random.default_rng(random_state).bit_generator
    children: list[np.random.SeedSequence] = root.seed_seq.spawn(count)
    return children


def to_numpy(values: Any) -> Array:
    """Arrays, lists, and torch tensors on any device."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _codes(values: ArrayLike, kind: str, size: int) -> Ints:
    codes = np.atleast_1d(np.asarray(values, dtype=np.int64))
    wrong = np.flatnonzero((codes < 0) | (codes >= size))
    if wrong.size:
        plural = "classes" if kind == "class" else kind + "s"
        raise DataError(f"{kind} {codes[wrong[0]]} is out of range: this crowd has {size} {plural} (0..{size - 1})")
    return codes
