"""How far the labels of an instance depend on each other, as the crowd itself shows it.

Where labels are independent given the class, as models assume, two labels of an instance agree as often as the matrices of
their annotators say. With r_j = onehot(label of j) - T_j[c] and d_j² = 1 - |T_j[c]|²,

    excess = Σ_i Σ_c q_i(c) Σ_(j≠k) r_j · r_k  /  Σ_i Σ_c q_i(c) Σ_(j≠k) d_j d_k

is 0 on average for independent labels, and grows where some instances are hard or mislead many. Part of what depends is
not seen, because the votes that are wrong together pass for right: crowds with known truth say by how much,

    correlation = excess / (excess + HALF).

Three labels an instance can always be explained by independent annotators, so the excess counts by the pairs beyond them and is
drawn to what is TYPICAL of real crowds, or to what the patterns of two or three labels show instead (`patterns`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from crowdwise.aggregation.core import kernels, queries
from crowdwise.aggregation.core.kernels import Floats, Layout
from crowdwise.aggregation.core.patterns import Shown

HALF = 0.134  # excess at which the correlation is one half; these three are learnt in benchmarks/confidence.py
TYPICAL = 0.07
PAIRS = 1_000.0  # pairs that what is typical weighs
LEAST = 0.002  # excess that is believed at least
STRENGTH = 4.0  # labels by which each row is drawn to the crowd's mean matrix
LABELS = 30_000  # enough to learn from; of more, every second, third, ... instance is looked at
ENTRIES = 4_000_000  # numbers in a table at most


def crowd_matrix(counts: Floats) -> Floats:
    """The crowd's mean matrix (C, C) from all counts (R, C, C), both [.., label, class]; ten labels speak for evenness.

    >>> crowd_matrix(np.array([[[30.0, 5.0], [10.0, 35.0]]])).round(3)
    array([[0.762, 0.138],
           [0.238, 0.862]])
    """
    pooled, c = counts.sum(axis=0), counts.shape[1]
    accuracy = float(np.trace(pooled) / pooled.sum())
    even = np.full((c, c), (1.0 - accuracy) / (c - 1))
    np.fill_diagonal(even, accuracy)
    pooled += 10.0 * even
    return np.asarray(pooled / pooled.sum(axis=0))


def stride(n_annotations: int, n_instances: int, n_classes: int) -> int:
    """Every how many instances are looked at."""
    return int(np.ceil(max(n_annotations / LABELS, n_instances * n_classes**2 / ENTRIES, 1.0)))


def excess_agreement(
    layout: Layout, posterior: Floats, counts: Floats, weight: Floats | None, every: int
) -> tuple[float, float, float]:
    """Numerator and denominator of the excess, and pairs beyond three labels an instance: sums over instances.

    ``counts`` (R, C, C) [annotator, label, class] are those of the posterior (n, C); ``weight`` (R,): how many votes a
    label of each annotator is. All labels of an annotator for an instance, such as soft ones, are one voice.
    """
    rows = np.arange(0, len(posterior), every)
    part, q, c = queries.of_instances(layout, rows), posterior[rows], layout.shape[1]
    who, cell = np.unique(part.cells // c, return_inverse=True)
    table = counts[who] + STRENGTH * crowd_matrix(counts)
    table /= table.sum(axis=1, keepdims=True)  # (K, C, C) of the annotators that are there
    w = np.ones(len(part.cells)) if weight is None else weight[who][cell]
    w, instance, shape = kernels.weighed(part, w), kernels.instances(part), (len(rows), len(who))
    voice, same = _totals(instance * len(who) + cell, w), _totals(instance * layout.shape[0] * c + part.cells, w)
    there, twice = (sp.csr_array((value, cell, part.indptr), shape=shape) for value in (w, w * voice))
    mine = sp.csr_array((w * voice, cell * c + kernels.labels(part), part.indptr), shape=(shape[0], shape[1] * c))
    votes = kernels.votes(part, None if weight is None else np.repeat(weight, c))

    together = votes[:, :, None] - (there @ table.reshape(len(who), -1)).reshape(-1, c, c)  # (n, label, class)
    square = (table**2).sum(axis=1)  # (K, C)
    alone = np.bincount(instance, w * same, len(rows))[:, None] + twice @ square - 2.0 * (mine @ table.reshape(-1, c))
    spread = np.sqrt(np.maximum(1.0 - square, 0.0))
    number = np.diff(part.indptr) if part.weight is None else np.bincount(instance, part.weight, len(rows))
    return (
        float(np.vdot(q, (together**2).sum(axis=1) - alone)),
        float(np.vdot(q, (there @ spread) ** 2 - twice @ spread**2)),
        float((np.maximum(number - 2, 0) * np.maximum(number - 3, 0)).sum() / 2),
    )


def _totals(key: npt.NDArray[np.int64], values: Floats) -> Floats:
    """For each of some values, the sum of those with the same key, which lie beside each other."""
    place = np.append(0, np.cumsum(np.diff(key) != 0)) if len(key) else key
    return np.asarray(np.bincount(place, values)[place], dtype=np.float64)


def typical() -> float:
    """The correlation in real crowds."""
    return TYPICAL / (TYPICAL + HALF)


def correlation(agreed: float, possible: float, pairs: float, patterns: Shown | None = None) -> float:
    """The correlation of the labels of an instance from the three sums of `excess_agreement`, and from patterns of votes.

    >>> round(correlation(0.0, 0.0, 0.0), 2), round(correlation(40.0, 1_000.0, 50_000.0), 2)
    (0.34, 0.23)
    """
    rho = typical() if patterns is None else patterns.correlation(typical())
    usual = HALF * rho / (1.0 - rho)
    seen = agreed / possible * pairs if possible > 0 else 0.0
    excess = max((seen + usual * PAIRS) / ((pairs if possible > 0 else 0.0) + PAIRS), LEAST)
    return excess / (excess + HALF)
