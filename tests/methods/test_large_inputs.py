"""Large arrays of features are predicted in parts: the same numbers, one warning, and rows named as they are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.engine import prepare
from crowdwise.engine.prepare import Prepare
from crowdwise.errors import CrowdwiseWarning, NonFiniteError
from crowdwise.methods.core import prediction
from engine_helpers import crowd
from tolerances import SINGLE, assert_likeliest


@pytest.fixture(scope="module")
def fitted() -> tuple[crowdwise.CrowdClassifier, np.ndarray]:
    X, annotations, _ = crowd(300)
    return crowdwise.CE(epochs=3, verbose=0).fit(X, annotations), X


def test_parts_give_what_the_whole_gives(fitted, monkeypatch):
    model, X = fitted
    whole = model.predict_proba(X)
    monkeypatch.setattr(prediction, "_AT_ONCE", 70)
    monkeypatch.setattr(prediction, "_CHECKED", 50)
    np.testing.assert_allclose(model.predict_proba(X), whole, atol=SINGLE)
    assert_likeliest(model.predict(X.astype(np.float64)), whole)


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
    assert_likeliest(model.predict(X), probabilities)
    np.testing.assert_allclose(model.predict_proba(X[100:107]), probabilities[100:107], atol=SINGLE)


@pytest.mark.parametrize("mode", ["robust", "standardise", "log1p", "none"])
def test_many_batches_are_scaled_like_one(mode):
    raw = torch.from_numpy(np.random.default_rng(0).lognormal(0, 3, (500, 6)).astype(np.float32))
    raw[:, 2] = 7  # never changes
    scaling = Prepare.learn(mode, raw[:100])
    torch.testing.assert_close(scaling.for_many()(raw), scaling(raw), rtol=SINGLE, atol=SINGLE)
    torch.testing.assert_close(scaling.for_many()(raw.double()[::2]), scaling(raw[::2]), rtol=SINGLE, atol=SINGLE)


@pytest.mark.parametrize("columns", [1, 6, 124, 1500])
def test_compiled_scaling_equals_that_of_torch(columns, monkeypatch):
    pytest.importorskip("numba")
    rng = np.random.default_rng(columns)
    raw = torch.from_numpy((rng.standard_cauchy((300, columns)) * 50 + 7).astype(np.float32))
    raw[:, columns // 2] = 7  # never changes
    scaling = Prepare.learn("robust", raw[:100])
    raw[1:7, 0] = torch.tensor([1e6, -1e6, 1e30, -1e30, 0, -0.0])
    raw[8, -1] = torch.nan  # which sums keep, so that it is found
    byte = raw.clamp(0, 255).nan_to_num().to(torch.uint8)
    inputs = [raw, raw[::2], raw[:1], raw[:0], raw.double(), byte]
    expected = [scaling.for_many()(each) for each in inputs]
    monkeypatch.setattr(prepare, "_COMPILED", -1)
    for each, values in zip(inputs, expected, strict=True):
        before = each.clone()
        torch.testing.assert_close(scaling.for_many()(each), values, rtol=SINGLE, atol=SINGLE, equal_nan=True)
        torch.testing.assert_close(each, before, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(expected[0], scaling(raw), rtol=SINGLE, atol=SINGLE, equal_nan=True)


def test_only_a_process_that_scales_much_imports_numba(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(prepare, "_COMPILED", 100)
    work = prepare._Work()
    assert [work.enough(values) for values in (60, 40, 1, 5)] == [False, False, True, True]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not work.enough(1000)
