"""Large arrays of features are predicted in parts: the same numbers, one warning, and rows named as they are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.engine.prepare import Prepare
from crowdwise.errors import CrowdwiseWarning, NonFiniteError
from crowdwise.methods.core import prediction
from engine_helpers import crowd


@pytest.fixture(scope="module")
def fitted() -> tuple[crowdwise.CrowdClassifier, np.ndarray]:
    X, annotations, _ = crowd(300)
    return crowdwise.CE(epochs=3, verbose=0).fit(X, annotations), X


def test_parts_give_what_the_whole_gives(fitted, monkeypatch):
    model, X = fitted
    whole = model.predict_proba(X)
    monkeypatch.setattr(prediction, "_AT_ONCE", 70)
    monkeypatch.setattr(prediction, "_CHECKED", 50)
    np.testing.assert_allclose(model.predict_proba(X), whole, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(X.astype(np.float64)), model.classes_[whole.argmax(1)])


def test_a_missing_value_is_named_by_its_own_row(fitted, monkeypatch):
    model, X = fitted
    monkeypatch.setattr(prediction, "_AT_ONCE", 70)
    monkeypatch.setattr(prediction, "_CHECKED", 50)
    X = X.copy()
    X[[198, 281], 3] = np.nan
    with pytest.raises(NonFiniteError, match=r"X\[198, 3\] is nan: 2 of the instances") as caught:
        model.predict(X)
    assert caught.value.instances == [198, 281]


def test_inputs_unlike_the_training_data_are_told_of_once(fitted, monkeypatch):
    model, X = fitted
    monkeypatch.setattr(prediction, "_AT_ONCE", 70)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CrowdwiseWarning)
        model.predict(1000 * X + 5000)
    assert len([each for each in caught if "unlike the training data" in str(each.message)]) == 1


@pytest.mark.parametrize("networks", [1, 3])
def test_labels_are_the_most_probable_classes(networks):
    X, annotations, _ = crowd(300)
    model = crowdwise.CE(epochs=3, networks=networks, verbose=0).fit(X, annotations)
    probabilities = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict(X), model.classes_[probabilities.argmax(1)])
    np.testing.assert_allclose(model.predict_proba(X[100:107]), probabilities[100:107], atol=1e-6)


@pytest.mark.parametrize("mode", ["robust", "standardise", "log1p", "none"])
def test_many_batches_are_scaled_like_one(mode):
    raw = torch.from_numpy(np.random.default_rng(0).lognormal(0, 3, (500, 6)).astype(np.float32))
    raw[:, 2] = 7  # never changes
    scaling = Prepare.learn(mode, raw[:100])
    torch.testing.assert_close(scaling.for_many()(raw), scaling(raw), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scaling.for_many()(raw.double()[::2]), scaling(raw[::2]), rtol=1e-6, atol=1e-6)
