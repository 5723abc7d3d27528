"""Weights of annotations in training: a weight of two is the label twice, and soft labels train."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.annotations import Annotations
from crowdwise.engine.problem import Problem
from tolerances import SINGLE


def crowd(seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 80)
    X = (rng.normal(size=(80, 4)) + 2 * y[:, None]).astype(np.float32)
    labels = np.where(rng.random((80, 3)) < 0.85, y[:, None], 1 - y[:, None])
    return X, y, labels


@pytest.mark.parametrize("reduction", ["annotation", "instance"])
def test_weights_reach_the_losses(reduction):
    X, _, labels = crowd()
    plain = Annotations.from_dense(labels)
    weight = np.random.default_rng(1).uniform(0.2, 1, len(plain)).astype(np.float32)
    soft = Annotations.from_triples(plain.instance, plain.annotator, plain.label, weight=weight)
    options = {"device": torch.device("cpu"), "seed": 0, "reduction": reduction, "validation_fraction": 0.0}
    one, two = (Problem.make(X, a, **options).train for a in (plain, soft))
    if reduction == "annotation":
        np.testing.assert_array_equal(two.weight.numpy(), weight)  # rows are in order already
        assert (one.weight == 1).all()
    else:
        np.testing.assert_allclose(two.weight.reshape(80, 3).sum(1).numpy(), 1, rtol=SINGLE)
    assert one.given is None
    assert two.subset(torch.tensor([3])).given is not None


def test_weights_of_one_train_the_same_model():
    X, _, labels = crowd()
    plain = Annotations.from_dense(labels)
    ones = Annotations.from_triples(plain.instance, plain.annotator, plain.label, weight=np.ones(len(plain)))
    fitted = [crowdwise.CE(epochs=2, random_state=0, device="cpu").fit(X, a).predict_proba(X) for a in (plain, ones)]
    np.testing.assert_array_equal(*fitted)


@pytest.mark.parametrize("method", ["CE", "CrowdLayer", "AggNet", "Concord"])
def test_soft_labels_train(method):
    X, y, labels = crowd()
    soft = Annotations.from_soft(0.8 * np.eye(2)[labels] + 0.1)
    model = getattr(crowdwise, method)(epochs=3, random_state=0, device="cpu").fit(X, soft)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.mean(model.predict(X) == y) > 0.7
