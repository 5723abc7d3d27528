"""Every method learns with its defaults, however the features are scaled: digits as vectors, 60 annotators, 5 labels each."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from crowdwise import datasets, simulate
from crowdwise.registry import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
QUICK = {"steps": 300, "lr": 3e-3, "batch_size": 128, "backbone_options": {"hidden": 64}, "verbose": 0}
rng = np.random.default_rng(0)
N, D = 1347 + 450, 64
HEAVY, CONSTANT = rng.standard_cauchy((N, 1)) * 1e3, np.full((N, 1), 7.0)
SCALES, OFFSETS = 10.0 ** rng.integers(-4, 5, size=D), rng.integers(-1000, 1000, size=D)
SCALINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as it is": lambda X: X,
    "times 1e4": lambda X: X * 1e4,
    "times 1e-4": lambda X: X * 1e-4,
    "plus 1e3": lambda X: X + 1e3,
    "a heavy tail": lambda X: np.hstack([X, HEAVY]),
    "a constant": lambda X: np.hstack([X, CONSTANT]),
    "all of it": lambda X: np.hstack([SCALES * (X + OFFSETS), HEAVY, CONSTANT]),
}


@functools.cache
def accuracy(method: str, scaling: str, quick: bool = True) -> float:
    data = datasets.load("digits")
    crowd = simulate.aidn(
        data.X_train, data.y_train, n_annotators=60, n_groups=3, labels_per_instance=5.0, noise_rate=0.4, random_state=0
    )
    X = np.concatenate([data.X_train, data.X_test]).reshape(N, D).astype(np.float64)
    X_train, X_test = np.split(SCALINGS[scaling](X), [1347])
    model = METHODS[method](**(QUICK if quick else {"verbose": 0})).fit(X_train, crowd.annotations)
    return 100 * model.score(X_test, data.y_test)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_from_features_of_any_scale(method):
    plain = accuracy(method, "as it is")
    assert plain > 80
    assert abs(accuracy(method, "all of it") - plain) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_by_default_from_features_of_any_scale(method, scaling):
    plain, scaled = (accuracy(method, each, quick=False) for each in ("as it is", scaling))
    assert scaled > 80
    assert abs(scaled - plain) <= 3
