"""Concord: what it says of annotators beside its labels and its classifier."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

import crowdwise
from crowdwise import Annotations, graph
from crowdwise.engine import Engine, Problem, Stage
from crowdwise.methods import concord
from engine_helpers import fit_and_interrupt

QUICK = {"steps": 200, "networks": 3, "backbone_options": {"hidden": 32}, "verbose": 0}


def two_groups(n: int = 400) -> tuple[np.ndarray, Annotations, np.ndarray, np.ndarray]:
    """Ten annotators: five who often take 0 for 1, and five who often take 1 for 2."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = np.eye(3)[y] * 3 + rng.normal(size=(n, 3))
    groups = np.arange(10) % 2
    matrices = np.array([[[0.4, 0.6, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 0.4, 0.6], [0, 0, 1]]])
    labels = np.array([[rng.choice(3, p=matrices[group, true]) for group in groups] for true in y])
    return X, Annotations.from_dense(labels), y, groups


def test_annotators_who_err_alike_are_neighbours_and_matrices_are_theirs() -> None:
    X, annotations, y, groups = two_groups()
    model = crowdwise.Concord(**QUICK, annotator_lr=0.05).fit(X, annotations)
    found = model.annotator_graph_
    assert graph.edge_precision(found.before, groups).overall > 0.9
    assert graph.adjusted_rand(graph.found_groups(found.after), groups) > 0.9
    assert found.positions.shape == (10, 2)
    T = model.transition(X[:1])[0]
    assert (T[groups == 0, 0, 1] > 0.4).all()
    assert (T[groups == 1, 0, 1] < 0.2).all()
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("annotators", [1, 2])
def test_few_annotators_have_a_graph_without_edges(annotators: int) -> None:
    X, _, y, _ = two_groups(60)
    model = crowdwise.Concord(**QUICK | {"steps": 20}).fit(X, np.stack([y] * annotators, axis=1))
    assert model.annotator_graph_.before.nnz == 0


def test_pictures_are_held_out_up_to_a_thousand() -> None:
    model = crowdwise.Concord()
    assert model.validation_share(np.zeros((500, 1, 8, 8))) == 0.1
    assert model.validation_share(np.zeros((50_000, 1, 2, 2))) == 0.02
    assert model.validation_share(np.zeros((50_000, 4))) == 0


@pytest.mark.parametrize(("n", "times"), [(60, 4), (400, 2)])
def test_instances_are_judged_every_sixteen_steps_or_once_an_epoch(n: int, times: int, monkeypatch) -> None:
    X, annotations, *_ = two_groups(n)  # in batches of 20: 20 epochs of 3 steps, 3 of 20
    judge, calls = concord.honest_log_f, []
    monkeypatch.setattr(concord, "honest_log_f", lambda *arguments: calls.append(1) or judge(*arguments))
    crowdwise.Concord(**QUICK | {"steps": 60, "batch_size": 20}).fit(X, annotations)
    assert len(calls) == times


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_run_that_ends_between_two_judgements_is_resumed_exactly(class_weight: str | None, tmp_path) -> None:
    X, annotations, *_ = two_groups(60)
    settings = QUICK | {"steps": 60, "batch_size": 20, "class_weight": class_weight}
    whole = crowdwise.Concord(**settings).fit(X, annotations)
    fit_and_interrupt(crowdwise.Concord(**settings), X, annotations, tmp_path / "run", 10)
    resumed = crowdwise.Concord(**settings).fit(X, annotations, resume=tmp_path / "run")
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def test_a_rare_class_is_neither_lost_nor_found_everywhere() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(1500) < 0.1).astype(int)
    X = rng.normal(size=(1500, 250)) + 0.5 * y[:, None] * (np.arange(250) < 20)
    votes = np.where(rng.random((500, 3)) < 0.9, y[:500, None], 1 - y[:500, None])
    plain, balanced = (
        crowdwise.Concord(**QUICK, class_weight=weight).fit(X[:500], votes).predict(X[500:])
        for weight in (None, "balanced")
    )
    assert 0.05 < plain.mean() < 0.25  # 0.35 where the volume makes all classes alike
    assert balanced.mean() > 1.2 * plain.mean()
    assert (plain == y[500:]).mean() > (balanced == y[500:]).mean() + 0.03


@pytest.mark.parametrize("quick", [True, False])
def test_wide_products_are_halved_on_processors_that_are_quick_at_it_unless_told_otherwise(monkeypatch, quick):
    monkeypatch.setattr("crowdwise.methods.core.base.has_quick_bfloat16", lambda device: quick)
    X = np.random.default_rng(0).normal(size=(60, 200))
    annotations = np.stack([X[:, 0] > 0, X[:, 0] > 0.1, X[:, 1] > 0], axis=1).astype(int)
    auto, full = (
        crowdwise.Concord(steps=20, precision=precision, device="cpu").fit(X, annotations).predict_proba(X)
        for precision in ("auto", "fp32")
    )
    np.testing.assert_allclose(auto, full, atol=0.02)
    assert np.array_equal(auto, full) != quick


def stage_of(model: concord.Concord, n: int = 60) -> tuple[Engine, Stage]:
    X, annotations, *_ = two_groups(n)
    problem = Problem.make(
        X.astype(np.float32), annotations, device=torch.device("cpu"), seed=0, validation_fraction=0.0
    )
    engine = Engine(problem)
    return engine, next(model.stages(engine))


@pytest.mark.parametrize(("start", "epochs"), [(0.5, [10, 15]), (0.0, [1, 6, 11, 16]), (0.34, [7, 12, 17]), (1.0, [])])
def test_networks_have_a_say_after_the_first_epochs(start: float, epochs: list[int]) -> None:
    """Twenty epochs of three steps: they are asked every five, from the share of the epochs on that is given."""
    _, stage = stage_of(crowdwise.Concord(networks=3, epochs=20, batch_size=20, start=start, verbose=0))
    prior = stage.groups["annotators"].module.log_prior
    asked = []
    for epoch in range(20):
        prior.zero_()
        stage.before_epoch(epoch)
        asked += [epoch] if prior.any() else []
    assert asked == epochs


def test_a_second_try_starts_without_what_the_first_one_said() -> None:
    _, stage = stage_of(crowdwise.Concord(networks=3, epochs=5, batch_size=20, class_weight="balanced", verbose=0))
    module = stage.groups["annotators"].module
    stage.before_epoch(1)
    assert module.log_prior.any()
    assert module.log_share.any()
    stage.before_epoch(0)
    assert not module.log_prior.any()
    assert not module.log_share.any()


def test_what_networks_left_out_says_is_their_mean() -> None:
    """By the quick way of the CPU, and by the one of all networks."""
    engine, stage = stage_of(crowdwise.Concord(networks=3, epochs=5, verbose=0))
    classifier, units = stage.score, engine.problem.train
    trained_on = concord.folds(len(units), 3, 2 / 3, seed=1)
    f = torch.softmax(engine.evaluate(classifier, units, classifier.member_logits), 2)  # (N, K, C)
    expected = torch.stack([f[i, trained_on[:, i] == 0].mean(0) for i in range(len(units))]).log()
    torch.testing.assert_close(concord.honest_log_f(engine, classifier, units, trained_on), expected)
    members = concord.honest_members(engine, classifier, units, trained_on)
    torch.testing.assert_close(members.exp().mean(1).log(), expected)
    some = trained_on.clone()
    some[:, 3] = 1.0  # which nobody left out: all are asked
    expected[3] = f[3].mean(0).log()
    torch.testing.assert_close(concord.honest_log_f(engine, classifier, units, some), expected)
    assert concord.honest_members(engine, classifier, units, torch.ones(3, len(units))) is None


def test_an_unfitted_model_has_no_skill_and_no_matrices() -> None:
    model = crowdwise.Concord()
    for ask in (
        lambda: model.skill_,
        lambda: model.posterior_,
        lambda: model.predict([[0.0]]),
        lambda: model.transition([[0.0]]),
    ):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ask()
