"""Quality: whether confidence is honest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdwise import quality
from quality_helpers import column


def test_calibration_by_hand() -> None:
    result = quality.calibration([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.45, 0.55]], [0, 1, 1, -1], n_bins=2)
    assert (result.n, result.accuracy) == (3, pytest.approx(2 / 3))
    assert result.confidence == pytest.approx(2.3 / 3)
    assert result.ece == result.mce == pytest.approx(0.1)
    assert result.bins.to_pylist() == [
        {"low": 0.5, "high": 1.0, "count": 3, "confidence": pytest.approx(2.3 / 3), "accuracy": pytest.approx(2 / 3)}
    ]
    assert "expected calibration error 0.100" in str(result)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_calibration_tells_honest_from_boastful(strategy: Any) -> None:
    rng = np.random.default_rng(0)
    posterior = rng.dirichlet(np.ones(4), 20_000)
    truth = (rng.random((20_000, 1)) > posterior.cumsum(axis=1)).sum(axis=1)
    boastful = posterior**3 / (posterior**3).sum(axis=1, keepdims=True)
    assert quality.calibration(posterior, truth, strategy=strategy).ece < 0.015
    assert quality.calibration(boastful, truth, strategy=strategy).ece > 0.1


def test_bins_count_every_known_instance_once() -> None:
    posterior = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.7, 0.3]])
    for strategy in ("uniform", "quantile"):
        for bins in (1, 2, 10):
            result = quality.calibration(posterior, [0, 0, 0, 0], n_bins=bins, strategy=strategy)  # type: ignore[arg-type]
            assert sum(column(result.bins, "count")) == 4


def test_calibration_without_known_truth_is_undefined() -> None:
    for posterior, truth in (([[0.5, 0.5]], [-1]), (np.empty((0, 3)), np.empty(0, int))):
        result = quality.calibration(posterior, truth)
        assert math.isnan(result.ece)
        assert (result.n, result.bins.num_rows) == (0, 0)
