"""Large arrays of features are predicted in parts: the same numbers, one warning, and rows named as they are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import crowdwise
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
