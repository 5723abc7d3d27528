"""Weights of annotations in training: a weight of two is the label twice, and soft labels train."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.annotations import Annotations
from crowdwise.engine.augment import Mixup
from crowdwise.engine.problem import Problem
from crowdwise.engine.step import batch_of
from crowdwise.engine.tensors import make_plan, shuffled_batches
from crowdwise.methods.core.steps import label_amounts
from crowdwise.registry import METHODS
from tolerances import SINGLE, TRAINED


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


BY_ANNOTATION = {"annot-mix", "bltm", "taidtm", "taidtm-ft"}
"""Methods that draw annotations, not instances: two rows are drawn more often than one."""


@pytest.mark.filterwarnings("ignore:.*is of little use", "ignore:.*no better than a guess")
@pytest.mark.parametrize("method", sorted(set(METHODS) - BY_ANNOTATION))
def test_two_rows_of_half_a_weight_are_one_label(method):
    X, _, labels = crowd()
    plain = Annotations.from_dense(labels)
    plain = plain.where(np.random.default_rng(2).random(len(plain)) < 0.7)
    rows = np.repeat(np.arange(len(plain)), 2)
    weight = np.tile([0.25, 0.75], len(plain))
    triples = plain.instance[rows], plain.annotator[rows], plain.label[rows]
    split = Annotations.from_triples(*triples, n_instances=80, n_classes=2, weight=weight)
    settings = {"steps": 4, "batch_size": 32, "random_state": 0, "device": "cpu", "verbose": 0, "dropout": 0.0}
    one, other = (METHODS[method](**settings).fit(X, each) for each in (plain, split))
    np.testing.assert_allclose(other.predict_proba(X), one.predict_proba(X), atol=10 * TRAINED)
    np.testing.assert_allclose(other.skill_, one.skill_, atol=10 * TRAINED)


@pytest.mark.parametrize("reduction", ["annotation", "instance"])
@pytest.mark.parametrize("options", [{"networks": 2}, {"networks": 2, "mixup": 0.5}, {"networks": 1}], ids=str)
@pytest.mark.parametrize("method", ["Concord", "MaxMIG"])
def test_soft_labels_teach_what_they_say(method, options, reduction):
    """Each annotator leans to a class, and gives the other a fifth: what is learnt is as good as from the labels alone."""
    X, y, labels = crowd()
    soft = Annotations.from_soft(0.6 * np.eye(2)[labels] + 0.2)
    settings = {"steps": 150, "random_state": 0, "device": "cpu", "verbose": 0, "reduction": reduction}
    model = getattr(crowdwise, method)(**settings, **options).fit(X, soft)
    plain = getattr(crowdwise, method)(**settings, **options).fit(X, Annotations.from_dense(labels))
    assert np.mean(model.predict(X) == y) > np.mean(plain.predict(X) == y) - 0.03
    diagonal = np.diagonal(model.transition(X[:1])[0], axis1=1, axis2=2)
    assert diagonal.min() > 0.55
    assert np.all(model.skill_ > 0.55)


def test_amounts_of_labels_whatever_instances_weigh():
    X, _, labels = crowd()
    plain = Annotations.from_dense(labels).where(np.arange(240) % 5 > 0)
    weight = np.random.default_rng(1).uniform(0.2, 1, len(plain)).astype(np.float32)
    soft = Annotations.from_triples(plain.instance, plain.annotator, plain.label, n_instances=80, weight=weight)
    for reduction in ("annotation", "instance"):
        options = {"device": torch.device("cpu"), "seed": 0, "reduction": reduction, "validation_fraction": 0.0}
        for given, labelled in ((np.ones(len(plain)), plain), (weight, soft)):
            units = Problem.make(X, labelled, **options).train
            batches = shuffled_batches(len(units), 7, torch.Generator().manual_seed(0), units.device)
            plan = make_plan(units, batches)
            batch = batch_of(units, plan, 1, X[:7])
            pair = plan.pair[plan.pair_borders[1] : plan.pair_borders[2]]
            amounts = label_amounts(units)
            np.testing.assert_allclose(amounts(batch), given[pair], rtol=SINGLE)
            twice = batch.repeated(2)
            np.testing.assert_allclose(amounts(twice), np.tile(given[pair], 2), rtol=SINGLE)
            mixed = Mixup(1.0, units.device)(replace(twice, x=torch.zeros(14, 4)))
            np.testing.assert_allclose(amounts(mixed), np.tile(given[pair], 4), rtol=1e-4)
            shares = mixed.instance_sum(torch.ones(len(mixed.row), 1), amounts(mixed))[:, 0].numpy()
            own = np.bincount(twice.row, np.tile(given[pair], 2), minlength=14)
            share = mixed.partner[1].numpy()
            np.testing.assert_allclose(shares, share * own + (1 - share) * np.roll(own, 1), rtol=1e-4)


def test_skill_is_by_weight():
    """An annotator who says ninety to ten what the classifier says is right as often as it is with the ninety."""
    X, y, _ = crowd()
    soft = Annotations.from_soft((0.8 * np.eye(2)[y] + 0.1)[:, None])
    model = crowdwise.CE(steps=200, random_state=0, device="cpu", verbose=0).fit(X, soft)
    f = model.predict_proba(X)
    assert model.skill_[0] == pytest.approx(np.mean(0.9 * f[range(80), y] + 0.1 * f[range(80), 1 - y]), abs=0.05)
    assert model.skill_[0] > 0.7
