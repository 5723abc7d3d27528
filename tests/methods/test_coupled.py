"""Concord's loss in two forms: with its derivative written out, and by autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from crowdwise import Annotations
from crowdwise.engine.problem import Problem
from crowdwise.methods import concord
from crowdwise.methods.concord import CommonAndOwn, folds, volume_loss, wanted_shares
from crowdwise.methods.core.coupled import CoupledLoss, Evidence, volume_and_slope
from tolerances import SINGLE, TRAINED


def plain_loss(logits, matrices, given: Evidence):
    """The loss term by term, as the docstring of Concord has it."""
    log_t, squares = matrices.columns(given.annotator, given.label)
    present = given.amount
    votes = torch.zeros_like(given.log_prior).index_add(0, given.row, log_t.detach() * present[:, None])
    target = torch.softmax(given.log_prior + votes, 1)
    each = (target[given.row] * log_t).sum(1) - squares * given.pull / 2
    total = -(each * present).sum() / present.sum()
    log_f = F.log_softmax(logits, 2)  # (K, B, C)
    log_h = F.log_softmax(log_f + given.log_share, 2)
    for member, learns, log_h_member in zip(log_f, given.learns, log_h, strict=True):
        cross = (target * (-given.log_share).exp() * member).sum(1)
        total = total - given.per_instance * (cross * learns).sum()
        likelihood = torch.logsumexp(log_h_member[given.row] + log_t, 1)
        total = total - given.per_label * (likelihood * given.weight * learns[given.row]).sum()
    return total + given.volume * volume_loss(log_f.exp(), given.excess)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("n_annotators", [4, 50])
def test_loss_and_derivatives_equal_those_of_autograd(n_annotators, balanced):
    generator = torch.Generator().manual_seed(0)
    size, pairs, classes, networks = 9, 20, 3, 4
    trained_on = folds(size, networks, 1 / 4, seed=1)
    weight = torch.rand(pairs, generator=generator)
    weight[-2:] = 0
    given = Evidence(
        torch.randint(size, (pairs,), generator=generator),
        torch.randint(n_annotators, (pairs,), generator=generator),
        torch.randint(classes, (pairs,), generator=generator),
        weight,
        weight * 2,
        torch.rand(pairs, generator=generator),
        torch.randn(size, classes, generator=generator),
        torch.randn(classes, generator=generator) if balanced else torch.zeros(classes),
        trained_on,
        per_instance=0.3,
        per_label=0.2,
        volume=0.05,
        excess=torch.tensor([0.5, 0.25, -0.75]),
    )
    matrices = CommonAndOwn(n_annotators, classes)
    matrices.deviation.data = torch.randn(matrices.deviation.shape, generator=generator)
    logits = torch.randn(networks, size, classes, generator=generator, requires_grad=True)
    parameters = (logits, matrices.common, matrices.deviation)
    expected = plain_loss(logits, matrices, given)
    found = CoupledLoss.apply(*parameters, given)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    pairs_of_gradients = zip(
        torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True
    )
    for mine, theirs in pairs_of_gradients:
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=SINGLE)


@pytest.mark.parametrize("options", [{}, {"class_weight": "balanced"}, {"volume": 0.0, "coupled": 0.5, "decay": 2.0}])
def test_training_by_autograd_and_by_written_out_derivatives_is_the_same(options, monkeypatch):
    """Several networks on one process take the quick form; where others compute too, autograd does the work."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    X = (3 * np.eye(3)[y] + rng.normal(size=(60, 3))).astype(np.float32)
    i, j = np.nonzero(rng.random((60, 4)) < 0.7)
    labels = np.where(rng.random(len(i)) < 0.8, y[i], rng.integers(0, 3, len(i)))
    annotations = Annotations.from_triples(i, j, labels, n_instances=60, weight=rng.choice([0.5, 1.0, 2.0], len(i)))
    settings = {"networks": 3, "epochs": 6, "batch_size": 16, "dropout": 0.0, "verbose": 0, "device": "cpu"} | options
    models = []
    for processes in (1, 2):
        monkeypatch.setattr(concord, "world_size", lambda n=processes: n)
        models.append(concord.Concord(**settings).fit(X, annotations))
    quick, plain = ([record["loss"] for record in model.history_] for model in models)
    assert plain == pytest.approx(quick, rel=TRAINED)
    assert len(set(quick)) == 6
    for values in ("predict_proba", "transition"):
        one, other = (getattr(model, values)(X) for model in models)
        np.testing.assert_allclose(other, one, atol=10 * TRAINED)


@pytest.mark.parametrize("classes", [2, 5])
def test_matrices_start_right_nine_times_in_ten(classes):
    matrices = CommonAndOwn(3, classes)
    every = matrices.all()
    assert every.shape == (3, classes, classes)
    torch.testing.assert_close(every.diagonal(dim1=1, dim2=2), torch.full((3, classes), 0.9))
    torch.testing.assert_close(every.sum(2), torch.ones(3, classes))
    matrices.deviation.data[1] = torch.randn(classes, classes)
    log_t, squares = matrices.columns(torch.tensor([1, 0]), torch.tensor([0, 1]))
    torch.testing.assert_close(log_t[0], matrices.all()[1, :, 0].log())
    torch.testing.assert_close(squares, torch.stack([matrices.deviation[1].square().sum(), torch.tensor(0.0)]))


def test_a_volume_beyond_the_limit_has_no_slope():
    f, excess = torch.full((2, 5, 12), 1 / 12), torch.linspace(-1, 1, 12)
    value, slope = volume_and_slope(f, excess)
    assert value == volume_loss(f, excess) == 0
    assert not slope.any()


@pytest.mark.parametrize("wanted", [[0.25] * 4, [0.7, 0.1, 0.1, 0.1], [0.5, 0.3, 0.2, 0.0]])
def test_the_volume_of_certain_predictions_is_largest_at_the_shares_that_are_wanted(wanted):
    excess = 1 - 4 * torch.tensor(wanted)

    def at(counts):
        return volume_loss(torch.eye(4).repeat_interleave(torch.tensor(counts), 0)[None], excess).item()

    best = [round(100 * share) for share in wanted]
    for rich in range(4):
        for poor in range(4):
            other = [count + 5 * (c == poor) - 5 * (c == rich) for c, count in enumerate(best)]
            if rich != poor and min(other) > 0:
                assert at(best) < at(other) + 1e-6


def shares_wanted(counts, n_classes):
    """Of a crowd of three that always agrees on so many instances of each class."""
    label = np.repeat(np.repeat(np.arange(len(counts)), counts), 3)
    n = len(label) // 3
    crowd = Annotations.from_triples(np.arange(3 * n) // 3, np.arange(3 * n) % 3, label, n_classes=n_classes)
    problem = Problem.make(np.zeros((n, 2)), crowd, device=torch.device("cpu"), seed=0, validation_fraction=0.0)
    return wanted_shares(problem).tolist()


def test_the_volume_follows_shares_that_are_far_from_equal_alone():
    assert shares_wanted([55, 45], 2) == [0.5, 0.5]
    assert shares_wanted([30, 30, 30, 30, 20], 5) == pytest.approx([0.2] * 5)
    common, rare = shares_wanted([180, 20], 2)
    assert 1.5 < common / rare < 180 / 20


def test_a_class_that_nobody_says_has_hardly_a_part_in_the_volume():
    assert shares_wanted([50, 50], 3)[2] < 0.02
