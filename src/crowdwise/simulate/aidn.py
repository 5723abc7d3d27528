"""Annotator- and instance-dependent noise (AIDN): Algorithm 2 of Li, Xia, Deng, Ge, Liu, "Transferring Annotator- and
Instance-dependent Transition Matrix for Learning from Crowds", after the part-dependent noise of Xia et al. (2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, softmax

from crowdwise.constraints import NonNegativeFloat, PositiveFloat, PositiveInt, Probability, checked
from crowdwise.data.codes import row_blocks
from crowdwise.data.types import Floats, Ints, RandomState
from crowdwise.errors import ConfigError, DataError
from crowdwise.simulate.crowd import SimulatedCrowd, draw_labels, seeds, simulated, to_numpy, true_classes
from crowdwise.simulate.pairs import Scheme, draw_pairs

VALUES = 4_000_000  # features held as float64 at a time


@checked
def aidn(
    X: Any,
    y: Any,
    *,
    n_annotators: PositiveInt = 300,
    n_groups: PositiveInt = 3,
    labels_per_instance: float = 2.0,
    noise_rate: Probability = 0.4,
    max_noise_rate: Probability = 0.6,
    noise_std: NonNegativeFloat = 0.1,
    pixel_scale: PositiveFloat = 255,
    n_classes: int | None = None,
    random_state: RandomState = 0,
    pairs: Scheme = "binomial",
) -> SimulatedCrowd:
    """A crowd of groups; for every instance, the annotators of a group share one distribution of labels.

    For instance i and group g: q_i ~ N(ρ, σ²) truncated to [0, ρ_max], p = q_i softmax over the wrong classes of
    x_i W^g[y_i], and p[y_i] = 1 - q_i; the entries of W^g (C, S, C) are standard normal. Only drawn pairs are computed.

    Args:
        X: features, (n, ...), flattened to (n, S): uint8 pixels, or floats in [0, 1]; an array, a torch tensor, or
            images decoded on access (:class:`crowdwise.datasets.ImageFolder`).
        y: true class codes, (n,).
        n_annotators: R.
        n_groups: G; annotator j belongs to group floor(j G / R).
        labels_per_instance: r̄, as in :func:`crowdwise.simulate.draw_pairs`.
        noise_rate: ρ, the mean of q_i before truncation (after: 0.39449 for 0.4, 0.47124 for 0.5).
        max_noise_rate: ρ_max, the cap of q_i.
        noise_std: σ.
        pixel_scale: value of the brightest pixel. At 255, as in the released code, softmax is practically one-hot: a
            group always gives an instance the same wrong class. At 1, wrong labels are spread. Integers are pixels
            0..255 and are divided by 255 / ``pixel_scale``; floats are multiplied by ``pixel_scale``.
        n_classes: C; by default the largest class + 1.
        random_state: the drawn pairs depend on it and on n, R and r̄ only, not on groups or noise.
        pairs: how the annotators of an instance are drawn, as in :func:`crowdwise.simulate.draw_pairs`.

    >>> X, y = np.random.default_rng(0).integers(256, size=(500, 8, 8), dtype=np.uint8), np.arange(500) % 10
    >>> crowd = aidn(X, y, n_annotators=30, noise_rate=0.3)
    >>> crowd.annotations.n_annotators, crowd.groups[::10].tolist()
    (30, [0, 1, 2])
    >>> crowd.transition(X, instances=[0, 0], annotators=[4, 25]).shape
    (2, 10, 10)
    """
    truth, count = true_classes(y, n_classes)
    features = _as_features(X)
    if len(features) != len(truth):
        raise DataError(f"X has {len(features)} instances, y has {len(truth)}")
    if n_groups > n_annotators:
        raise ConfigError(f"n_groups must be at most the number of annotators, {n_annotators}, got {n_groups}")
    pair_seed, label_seed, *group_seeds = seeds(random_state, 2 + n_groups)
    drawn = instance, annotator = draw_pairs(
        len(truth),
        n_annotators,
        labels_per_instance=labels_per_instance,
        pairs=pairs,
        random_state=np.random.default_rng(pair_seed),
    )
    streams = [seed.spawn(1 + count) for seed in group_seeds]
    rates = [
        truncated_normal(noise_rate, noise_std, max_noise_rate, len(truth), np.random.default_rng(stream[0]))
        for stream in streams
    ]
    process = _Aidn(
        groups=np.arange(n_annotators) * n_groups // n_annotators,
        noise_rates=np.stack(rates, axis=1),
        weight_seeds=[stream[1:] for stream in streams],
        pixel_scale=pixel_scale,
    )
    rows = process.rows(features, truth, instance, process.groups[annotator])
    label = draw_labels(rows, np.random.default_rng(label_seed))
    return simulated(truth, process.groups, drawn, label, rows, process.transition, noise_rates=process.noise_rates)


def label_distribution(x: ArrayLike, weights: ArrayLike, y: int, q: ArrayLike) -> Floats:
    """Label distribution of instances of class y: 1 - q for y; q is split among the wrong classes by softmax(x W).

    Shapes: x (..., S), weights W (S, C) of class y, q (...) -> (..., C).

    >>> label_distribution([1, 2], [[0, 1, 0], [0, 0, 1]], y=0, q=0.4).round(6).tolist()
    [0.6, 0.107577, 0.292423]
    """
    logits = np.asarray(x, dtype=np.float64) @ np.asarray(weights, dtype=np.float64)
    rate = np.asarray(q, dtype=np.float64)
    logits[..., y] = -np.inf
    distribution: Floats = rate[..., None] * softmax(logits, axis=-1)
    distribution[..., y] = 1 - rate
    return distribution


def truncated_normal(mean: float, std: float, high: float, size: int, rng: np.random.Generator) -> Floats:
    """Noise rates: N(mean, std²) truncated to [0, high], by inversion; the mean itself if ``std`` is 0.

    >>> truncated_normal(0.5, 0.1, 0.6, 100_000, np.random.default_rng(0)).mean().round(2)
    np.float64(0.47)
    """
    if mean > high:
        raise ConfigError(f"noise_rate must be at most max_noise_rate={high:g}, got {mean:g}")
    if std == 0:
        return np.full(size, mean, dtype=np.float64)
    below, above = ndtr(-mean / std), ndtr((high - mean) / std)
    quantiles = rng.uniform(below, above, size)
    return np.clip(mean + std * ndtri(quantiles), 0.0, high)


@dataclass(frozen=True, eq=False)
class _Aidn:
    """The noise process. Weights are redrawn when needed: (C, S, C) for each group may not fit in memory."""

    groups: Ints  # (R,)
    noise_rates: Floats  # (n, G)
    weight_seeds: list[list[np.random.SeedSequence]]  # of group, class
    pixel_scale: float

    def rows(self, features: Any, y: Ints, instances: Ints, groups: Ints) -> Floats:
        """P(label | x_i, y_i, group) of each pair (instance, group), (pairs, C); equal pairs are computed once."""
        n_groups, n_classes = self.noise_rates.shape[1], len(self.weight_seeds[0])
        pairs, inverse = np.unique(instances * n_groups + groups, return_inverse=True)
        kind = y[pairs // n_groups] * n_groups + pairs % n_groups
        order = np.argsort(kind, kind="stable")
        distributions = np.empty((len(pairs), n_classes))
        for of_kind in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
            label, group = divmod(int(kind[of_kind[0]]), n_groups)
            weights = self._weights(features, group, label)
            for rows in row_blocks(len(of_kind), len(weights), VALUES):
                some = of_kind[rows]
                instance = pairs[some] // n_groups
                rates = self.noise_rates[instance, group]
                distributions[some] = label_distribution(self._flat(features, instance), weights, label, rates)
        return distributions[inverse]

    def transition(self, X: Any, instances: Ints, annotators: Ints) -> Floats:
        features = _as_features(X)
        if len(features) != len(self.noise_rates):
            raise DataError(f"X has {len(features)} instances, this crowd was made from {len(self.noise_rates)}")
        groups, n_classes = self.groups[annotators], len(self.weight_seeds[0])
        matrices = np.empty((len(instances), n_classes, n_classes))
        for group in np.unique(groups).tolist():
            of_group = np.flatnonzero(groups == group)
            for rows in row_blocks(len(of_group), _n_features(features), VALUES):
                some = of_group[rows]
                x = self._flat(features, instances[some])
                rates = self.noise_rates[instances[some], group]
                for label in range(n_classes):
                    weights = self._weights(features, group, label)
                    matrices[some, label] = label_distribution(x, weights, label, rates)
        return matrices

    def _weights(self, features: Any, group: int, label: int) -> Floats:
        rng = np.random.default_rng(self.weight_seeds[group][label])
        return rng.standard_normal((_n_features(features), len(self.weight_seeds[group])))

    def _flat(self, features: Any, instances: Ints) -> Floats:
        full = 255 if np.issubdtype(features.dtype, np.integer) else 1
        if isinstance(features, np.ndarray):
            chosen = features[instances]
        else:
            chosen = np.stack([features[instance][0] for instance in instances.tolist()])
        x: Floats = chosen.reshape(len(instances), -1).astype(np.float64)
        x *= self.pixel_scale / full
        return x


def _as_features(X: Any) -> Any:
    """An array, or images decoded on access, which have a shape and a dtype: ``images[i]`` is (pixels, i)."""
    return X if hasattr(X, "shape") and not hasattr(X, "__array__") else to_numpy(X)


def _n_features(features: Any) -> int:
    return math.prod(features.shape[1:])
