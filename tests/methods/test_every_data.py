"""Every method learns with its defaults, however the features are scaled: digits as vectors, 60 annotators, 5 labels each."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from crowdwise import Annotations, datasets, simulate
from crowdwise.registry import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
QUICK = {
    "steps": 90,
    "lr": 2e-2,
    "batch_size": 128,
    "backbone_options": {"hidden": 64},
    "warmup_epochs": 10,
    "transition_epochs": 8,
    "gcn_epochs": 5,
    "verbose": 0,
}
KINDS = ("ce", "forward", "dl-ds", "crowd-layer", "max-mig", "mbem", "taidtm", "concord")  # one of each
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
def problem(quick: bool) -> tuple[np.ndarray, np.ndarray, Annotations]:
    """Images as vectors, their digits, and a crowd's labels of the first 1,347, or of 900 with less noise."""
    data = datasets.load("digits")
    pixels = np.concatenate([data.X_train, data.X_test]).reshape(N, D)
    y = np.concatenate([data.y_train, data.y_test])
    n, annotators, noise = (900, 20, 0.3) if quick else (1347, 60, 0.4)
    crowd = simulate.aidn(
        pixels[:n],
        y[:n],
        n_annotators=annotators,
        n_groups=3,
        labels_per_instance=5.0,
        noise_rate=noise,
        random_state=0,
    )
    return pixels.astype(np.float64), y, crowd.annotations


@functools.cache
def accuracy(method: str, scaling: str, quick: bool = True) -> float:
    X, y, annotations = problem(quick)
    n, X = annotations.n_instances, SCALINGS[scaling](X)
    settings = {key: value for key, value in QUICK.items() if key in METHODS[method].__dataclass_fields__}
    model = METHODS[method](**(settings if quick else {"verbose": 0})).fit(X[:n], annotations)
    return 100 * model.score(X[n:], y[n:])


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[pytest.mark.slow] * (name not in KINDS)) for name in METHODS]
)
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
