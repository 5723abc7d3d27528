"""What the measures return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from crowdwise.data.factorise import Vocabulary
from crowdwise.data.types import Array, Floats, Ints

if TYPE_CHECKING:
    from crowdwise.agreement._scales import Scale


@dataclass(frozen=True)
class Agreement:
    """One measure of agreement, with its bootstrap interval.

    >>> print(Agreement("Fleiss' kappa", 0.43, (0.35, 0.5), 30))
    Fleiss' kappa: 0.430 [0.350, 0.500], 30 instances
    """

    measure: str
    value: float
    """NaN if undefined: no instance has two labels, or only one class was ever chosen."""
    interval: tuple[float, float]
    """Bootstrap interval over resampled instances; NaN without a bootstrap."""
    n: int
    """Instances with two or more labels: the basis of the measure."""
    confidence: float = 0.95
    """Share of the samples whose interval holds the agreement of the population."""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        low, high = self.interval
        interval = "" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]"
        return f"{self.measure}: {self.value:.3f}{interval}, {self.n:,} instance{'s' * (self.n != 1)}"


@dataclass(frozen=True, eq=False)
class PairwiseAgreement:
    """Agreement of every two annotators with a common instance; pair k is (``first[k]``, ``second[k]``)."""

    measure: str
    first: Ints
    """Code of the first annotator, (K,), smaller than that of the ``second``."""
    second: Ints
    value: Floats
    """Agreement of the two, (K,); NaN if undefined (both only ever chose the same class)."""
    n_common: Ints
    """Instances both labelled, (K,); repeated labels count again."""
    low: Floats
    """Ends of the bootstrap interval, (K,); NaN without a bootstrap."""
    high: Floats
    confidence: float
    """Confidence of the interval."""
    annotators: Vocabulary
    labels: Ints
    """Labels given by each annotator, (R,)."""

    def matrix(self) -> Floats:
        """Values as a symmetric matrix (R, R): NaN without a common instance, 1 on the diagonal (NaN without labels)."""
        return self._dense(self.value, np.where(self.labels > 0, 1.0, np.nan), np.nan)

    def common(self) -> Ints:
        """Numbers of common instances as a symmetric matrix (R, R); the diagonal counts the labels given."""
        return self._dense(self.n_common, self.labels, 0)

    def to_table(self) -> pa.Table:
        """One row per pair: first, second, value, low, high, n_common; annotators by id."""
        columns = {"value": self.value, "low": self.low, "high": self.high, "n_common": self.n_common}
        ids = {"first": self.annotators.take(self.first), "second": self.annotators.take(self.second)}
        return pa.table({**ids, **columns})

    def _dense(self, values: Array, diagonal: Array, default: float) -> Array:
        size = len(self.labels)
        dense = np.full((size, size), default, values.dtype)
        dense[self.first, self.second] = dense[self.second, self.first] = values
        np.fill_diagonal(dense, diagonal)
        return dense


@dataclass(frozen=True)
class Report:
    """All measures of one crowd; print it, or call ``to_table``."""

    crowd: str
    """The size of the crowd, in words."""
    n: int
    """Instances with two or more labels."""
    rows: tuple[Agreement, ...]
    scale: Scale | None = None
    """The order of the classes, if they are ordered."""

    def __getitem__(self, measure: str) -> Agreement:
        return next(row for row in self.rows if row.measure == measure)

    def to_table(self) -> pa.Table:
        """One row per measure: measure, value, low, high, n."""
        return pa.Table.from_pylist(
            [
                {
                    "measure": row.measure,
                    "value": row.value,
                    "low": row.interval[0],
                    "high": row.interval[1],
                    "n": row.n,
                }
                for row in self.rows
            ]
        )

    def __str__(self) -> str:
        width = max(len(row.measure) for row in self.rows)
        confidence = f"{self.rows[0].confidence:.0%} interval"
        lines = [self.crowd, f"{self.n:,} with two or more labels", f"{'':<{width}}   value   {confidence}"]
        for row in self.rows:
            low, high = (_shown(end) for end in row.interval)
            lines.append(f"{row.measure:<{width}}  {_shown(row.value)}  {low} {high}")
        return "\n".join(line.rstrip() for line in lines)


def _shown(number: float) -> str:
    return f"{'-':>6}" if np.isnan(number) else f"{number:6.3f}"
