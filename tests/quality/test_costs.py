"""What to label next for money."""

from __future__ import annotations

import numpy as np
import pytest

from crowdwise import Annotations, quality
from crowdwise.aggregation import DawidSkene
from crowdwise.errors import ConfigError


def crowd():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 80)
    labels = np.where(rng.random((80, 4)) < [0.9, 0.8, 0.8, 0.75], truth[:, None], 1 - truth[:, None])
    labels[rng.random((80, 4)) < 0.5] = -1
    return Annotations.from_dense(labels, missing=[-1])


def test_the_budget_is_money():
    a = crowd()
    table = quality.next_labels(
        a, DawidSkene().fit(a), budget=10, costs={0: 2.0, 1: 1.0, 2: 1.0, 3: 0.5}, per_annotator=50
    )
    assert sum(table["cost"].to_pylist()) <= 10
    assert sum(table["cost"].to_pylist()) > 8
    rate = np.array(table["expected_gain"]) / np.array(table["cost"])
    assert (np.diff(rate) <= 1e-12).all()


def test_equal_prices_change_nothing():
    a, model = crowd(), DawidSkene().fit(crowd())
    plain = quality.next_labels(a, model, budget=8)
    priced = quality.next_labels(a, model, budget=16, costs=dict.fromkeys(range(4), 2))
    assert priced.drop_columns(["cost"]).equals(plain)


def test_kinds_have_prices_and_models_count_less():
    a, model = crowd(), DawidSkene().fit(crowd())
    kinds = ["person", "person", "model", "model"]
    cheap = quality.next_labels(a, model, budget=2, costs={"person": 1.0, "model": 0.01}, kinds=kinds, per_annotator=50)
    assert set(cheap["annotator"].to_pylist()[:5]) <= {2, 3}
    worthless = quality.next_labels(
        a, model, budget=2, costs={"person": 1.0, "model": 0.01}, kinds=kinds, votes={2: 0.0, 3: 0.0}, per_annotator=50
    )
    assert worthless["annotator"].to_pylist()[:1] != [2]
    assert set(worthless["annotator"].to_pylist()[:1]) <= {0, 1}


def test_prices_must_be_known():
    with pytest.raises(ConfigError, match="annotator 3 needs a price above 0, got None"):
        quality.next_labels(crowd(), budget=5, costs={0: 1, 1: 1, 2: 1})
    with pytest.raises(ConfigError, match=r"budget must be an integer of 0 or more, got 2\.5"):
        quality.next_labels(crowd(), budget=2.5)
