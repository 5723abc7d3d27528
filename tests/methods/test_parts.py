"""What methods share, against loops: steps of EM, losses of labels, skills, batches of annotators, settings, graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import crowdwise
from crowdwise import Annotations, graph
from crowdwise.engine import Engine, Problem
from crowdwise.engine.step import batch_of
from crowdwise.engine.tensors import Units, make_plan
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.methods.core import heads, joint, steps
from crowdwise.methods.core.annotator_graph import graph_arrays, graph_of, graph_of_matrices
from crowdwise.methods.core.skill import annotator_skill
from crowdwise.methods.taidtm import confusion_matrices
from crowdwise.networks import Classifier, ConstantTransition
from tolerances import SINGLE


def problem(weighted: bool = False, **options: Any) -> Problem:
    """Uneven labels of five annotators, of whom the last is silent, and some of some weight."""
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((25, 4)) < np.array([0.9, 0.6, 0.4, 0.2]))
    i, j = np.append(i, np.arange(25)), np.append(j, np.zeros(25, int))  # somebody says some things twice
    weight = rng.choice([0.5, 1.0, 2.0], len(i)).astype(np.float32) if weighted else None
    crowd = Annotations.from_triples(
        i, j, rng.integers(0, 3, len(i)), n_instances=25, n_annotators=5, n_classes=3, weight=weight
    )
    X = rng.normal(size=(25, 4)).astype(np.float32)
    return Problem.make(X, crowd, device=torch.device("cpu"), seed=0, validation_fraction=0.0, **options)


def labels_of(units: Units) -> list[tuple[int, int, int, float]]:
    """Unit, annotator, label and how much of a label it is."""
    given = torch.ones(len(units.label)) if units.given is None else units.given
    unit = np.repeat(np.arange(len(units)), np.diff(units.indptr.numpy()))
    return list(zip(unit.tolist(), units.annotator.tolist(), units.label.tolist(), given.tolist(), strict=True))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["annotation", "instance"])
def test_steps_of_em_in_loops(weighted: bool, reduction: str) -> None:
    units = problem(weighted, reduction=reduction).train
    rng = np.random.default_rng(1)
    posterior = torch.from_numpy(rng.dirichlet(np.ones(3), len(units))).float()
    votes, counts = np.zeros((len(units), 3)), np.zeros((5, 3, 3))
    for i, j, y, w in labels_of(units):
        votes[i, y] += w
        counts[j, :, y] += w * posterior[i].numpy()
    assert_allclose(steps.soft_votes(units, 3), votes / votes.sum(axis=1, keepdims=True), rtol=1e-5)
    for smoothing in (0.0, 0.3):
        table = counts + smoothing
        total = table.sum(axis=2, keepdims=True)
        expected = np.divide(table, total, out=np.full_like(table, 1 / 3), where=total > 0)
        assert_allclose(steps.annotator_matrices(units, posterior, 5, smoothing), expected, rtol=1e-4)
    matrices = torch.from_numpy(rng.dirichlet(np.ones(3), (5, 3))).float()
    prior = torch.log_softmax(torch.randn(len(units), 3), 1)
    for log_prior in (prior, prior[0]):
        scores = log_prior.expand(len(units), 3).double().numpy().copy()
        for i, j, y, w in labels_of(units):
            scores[i] += w * np.log(matrices[j, :, y].numpy())
        found = steps.class_posterior(units, log_prior, matrices)
        assert_allclose(found, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_rows_without_anything_are_uniform() -> None:
    values = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    assert steps.normalised(values).tolist() == [[0.5, 0.5], [0.25, 0.75]]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["none", "one", "each"])
def test_skills_in_loops(weighted: bool, kind: str) -> None:
    made = problem(weighted)
    engine, classifier = Engine(made), Classifier("mlp", (4,), 3).eval()
    rng = np.random.default_rng(2)
    matrices = rng.dirichlet(np.ones(3), (1 if kind == "one" else 5, 3))
    transition = None if kind == "none" else ConstantTransition(torch.from_numpy(matrices))
    f = torch.softmax(engine.evaluate(classifier, made.train).double(), 1).numpy()
    right, total = np.zeros(5), np.zeros(5)
    for i, j, y, w in labels_of(made.train):
        each = f[i, y]
        if transition is not None:
            T = matrices[0 if kind == "one" else j]
            each = f[i, y] * T[y, y] / (f[i] @ T[:, y])
        right[j] += w * each
        total[j] += w
    found = annotator_skill(engine, classifier, transition)
    assert_allclose(found[:4], right[:4] / total[:4], rtol=1e-5)
    assert np.isnan(found[4])


def test_losses_of_labels_in_loops() -> None:
    made = problem()
    engine, units = Engine(made), made.train
    plan = make_plan(units, [torch.arange(10)])
    batch = batch_of(units, plan, 0, torch.zeros(10, 4))
    logits, values = torch.randn(10, 3), torch.randn(5, 3, 3)
    found = joint.label_losses(logits, torch.log_softmax(values, 2), batch)
    f, T = torch.softmax(logits, 1), torch.softmax(values, 2)
    for k in range(len(found)):
        row, j, y = batch.row[k], batch.annotator[k], batch.label[k]
        assert found[k].item() == pytest.approx(-np.log((f[row] @ T[j, :, y]).item()), abs=1e-5)
    assert joint.present(engine).tolist() == [1, 1, 1, 1, 0]
    assert_array_equal(joint.identities(engine, 2.5), np.broadcast_to(2.5 * np.eye(3), (5, 3, 3)))
    votes = steps.annotator_matrices(units, steps.soft_votes(units, 3), 5)
    assert_allclose(joint.log_vote_confusion(engine, 0.01), np.log(votes.numpy() + 0.01), rtol=1e-5)


def test_confusion_with_distilled_classes_has_a_label_more_in_each_entry() -> None:
    made = problem()
    distilled = made.train.subset(torch.arange(20), torch.arange(20) % 3)
    counts = np.ones((5, 3, 3))
    for i, j, y, _ in labels_of(distilled):
        counts[j, i % 3, y] += 1
    assert_allclose(confusion_matrices(distilled, made), counts / counts.sum(axis=2, keepdims=True), rtol=1e-6)


# annotators, all at once


@pytest.mark.parametrize("limit", [4, 9, 1_000])
def test_batches_hold_the_next_examples_of_every_annotator(limit: int) -> None:
    rng = np.random.default_rng(3)
    annotator = torch.from_numpy(rng.choice(6, 60, p=[0.4, 0.3, 0.1, 0.1, 0.1, 0.0]))
    batches = heads.annotator_batches(annotator, 5, torch.Generator().manual_seed(1), limit)
    assert sorted(torch.cat(batches).tolist()) == list(range(60))
    sizes = np.bincount(annotator, minlength=6)
    rounds: dict[int, list[int]] = {j: [] for j in range(6)}
    for batch in batches:
        for j, number in enumerate(np.bincount(annotator[batch], minlength=6)):
            rounds[j] += [int(number)] if number else []
    for j in range(6):  # in fives, and never cut
        whole = [5] * (sizes[j] // 5) + ([int(sizes[j] % 5)] if sizes[j] % 5 else [])
        assert rounds[j] == whole
    if limit == 1_000:
        assert len(batches) == -(-sizes.max() // 5)
    assert all(len(np.unique(annotator[batch])) == 1 or len(batch) <= limit + 4 for batch in batches)
    other = heads.annotator_batches(annotator, 5, torch.Generator().manual_seed(2), limit)
    assert any(one.tolist() != two.tolist() for one, two in zip(batches, other, strict=True))


def test_whole_annotators_come_by_number() -> None:
    parts = heads.whole_annotators(torch.tensor([3, 0, 3, 1, 0]))
    assert [part.tolist() for part in parts] == [[1, 4], [3], [0, 2]]


def test_every_annotator_has_a_mean_of_its_own() -> None:
    losses = torch.tensor([1.0, 3.0, 10.0], requires_grad=True)
    mean = heads.annotator_mean(losses, torch.ones(3), torch.tensor([2, 2, 0]), 4)
    assert mean.item() == pytest.approx((2 + 10) / 2)  # what is shown
    mean.backward()
    assert losses.grad.tolist() == [0.5, 0.5, 1.0]  # what each follows
    losses.grad = None
    mean = heads.annotator_mean(losses, torch.tensor([0.6, 0.2, 0.1]), torch.tensor([2, 2, 0]), 4)
    assert mean.item() == pytest.approx((1.5 + 10) / 2)
    mean.backward()
    assert losses.grad.tolist() == pytest.approx([0.75, 0.25, 1.0])


def test_examples_are_single_annotations_of_the_chosen() -> None:
    units = problem().train
    chosen = torch.tensor([False, True, False, True, True])
    examples = heads.examples_of(units, chosen)
    expected = [(i, j, y) for i, j, y, _ in labels_of(units) if j in (1, 3)]
    at = units.instance[torch.tensor([i for i, _, _ in expected])]
    assert examples.annotator.tolist() == [j for _, j, _ in expected]
    assert examples.label.tolist() == [y for _, _, y in expected]
    assert examples.instance.tolist() == at.tolist()
    assert np.diff(examples.indptr).tolist() == [1] * len(expected)


def test_the_rank_of_heads_follows_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    size = heads.full_bytes(10, 4, 3)
    assert size == 4 * 10 * 5 * 9
    assert heads.choose_rank(7, 10, 4, 3, cpu) == 7
    monkeypatch.setattr(heads, "FULL_LIMIT", size)
    assert heads.choose_rank("auto", 10, 4, 3, cpu) is None
    monkeypatch.setattr(heads, "FULL_LIMIT", size - 1)
    with pytest.warns(CrowdwiseWarning, match="heads are factored, of rank 16"):
        assert heads.choose_rank("auto", 10, 4, 3, cpu) == 16
    monkeypatch.setattr(heads, "device_memory", lambda device: 8 * size)
    assert heads.choose_rank(None, 10, 4, 3, cpu) is None
    monkeypatch.setattr(heads, "device_memory", lambda device: 8 * size - 1)
    with pytest.raises(ConfigError, match="full heads do not fit"):
        heads.choose_rank(None, 10, 4, 3, cpu)


# graphs


def test_a_graph_comes_back_from_its_arrays() -> None:
    rng = np.random.default_rng(0)
    matrices = rng.dirichlet(np.ones(3), (12, 3))
    made = graph_of_matrices(matrices, 4)
    logs = np.log(matrices.reshape(12, 9))
    before = graph.knn_from_heads(logs, 4, similarity="delta-cosine", global_head=logs.mean(axis=0))
    assert_array_equal(made.before.toarray(), before.toarray())
    assert_allclose(made.after.toarray(), graph.purify(before, k=4).toarray())
    assert_allclose(made.positions, graph.pca(logs - logs.mean(axis=0)))
    again = graph_of(graph_arrays(made))
    assert_array_equal(again.before.toarray(), made.before.toarray())
    assert_array_equal(again.after.toarray(), made.after.toarray())
    assert (again.unrelated, again.arbitrary) == (made.unrelated, made.arbitrary)
    assert_array_equal(again.positions, made.positions)
    certain = graph_of_matrices(np.stack([np.eye(3)] * 3), 5)
    assert np.isfinite(certain.positions).all()
    assert certain.before.sum() == 6
    few = graph_of_matrices(matrices[:2], 4)
    assert few.before.nnz == 0
    assert_array_equal(few.after.toarray(), np.eye(2))


# settings


def test_the_caller_has_the_last_word_on_settings() -> None:
    def recipe(model: Any, shape: tuple[int, ...] = (4,), n: int = 640) -> Any:
        return model.training(SimpleNamespace(shape=shape, train=range(n)))

    ce = recipe(crowdwise.CE())
    assert (ce.lr, ce.batch_size, ce.epochs) == (1e-3, 64, 150)
    assert recipe(crowdwise.CE(lr=0.5)).lr == 0.5
    assert recipe(crowdwise.CE(recipe="paper")).epochs == 60
    concord = recipe(crowdwise.Concord())
    assert (concord.lr, concord.batch_size, concord.ema) == (6e-3, 256, 0.96)
    assert recipe(crowdwise.Concord(lr=0.1, ema=0.0)).ema == 0.0
    assert recipe(crowdwise.Concord(recipe="paper")).lr == 0.01
    assert recipe(crowdwise.Concord(), (1, 8, 8)).mixup == 1.0
    assert recipe(crowdwise.MaxMIG(recipe="paper")).optimiser == "adam"
    assert recipe(crowdwise.MaxMIG()).optimiser == "adamw"
    assert crowdwise.Concord().n_networks((4,)) == 6
    assert crowdwise.Concord().n_networks((1, 8, 8)) == 1
    assert crowdwise.Concord(networks=2).n_networks((1, 8, 8)) == 2


def test_stages_are_trained_by_the_recipe() -> None:
    X = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    crowd = Annotations.from_dense(np.random.default_rng(1).integers(0, 2, (30, 2)))
    made = Problem.make(X, crowd, device=torch.device("cpu"), seed=0, validation_fraction=0.2)
    engine = Engine(made)
    settings = {"patience": 4, "mixup": 0.3, "momentum": 0.7, "ema": 0.9, "augment": "crop", "weight_decay": 0.02}
    model = crowdwise.BLTM(**settings, keep="best", steps=50)
    classifier = model.new_classifier(engine, "classifier")

    def loss(batch: Any) -> Any:
        return batch.x.sum()

    recipe = model.training(made)
    warm = model.warm_up_stage(engine, classifier, loss, None, None, name="early", shared={"a": 1})
    assert (warm.name, warm.loss, warm.score, warm.keep, warm.shared) == ("early", loss, classifier, "best", {"a": 1})
    assert (warm.batch_size, warm.optimiser, warm.momentum) == (recipe.batch_size, "sgd", 0.7)
    assert (warm.augment, warm.ema, warm.mixup, warm.patience, warm.guard) == ("crop", 0.9, 0.0, 0, "off")
    assert warm.epochs == max(5, recipe.early_steps)
    assert (warm.groups["classifier"].lr, warm.groups["classifier"].weight_decay) == (recipe.early_lr, 0.0)
    own = model.warm_up_stage(engine, classifier, loss, 3, 0.5)
    assert (own.epochs, own.groups["classifier"].lr, own.name, own.shared) == (3, 0.5, "warm-up", None)

    said: list[int] = []
    last = model.classifier_stage(engine, classifier, loss, before_epoch=said.append)
    last.before_epoch(7)
    assert said == [7]
    assert (last.name, last.score, last.keep) == ("classifier", classifier, "best")
    assert (last.epochs, last.batch_size, last.momentum) == (recipe.epochs, recipe.batch_size, 0.7)
    assert (last.augment, last.ema, last.mixup, last.patience) == ("crop", 0.9, 0.3, 4)
    assert (last.groups["classifier"].lr, last.groups["classifier"].weight_decay) == (recipe.lr, 0.02)
    assert last.schedule(recipe.epochs) == pytest.approx(0.0, abs=1e-9)
    assert last.guard == "retry"
    paper = crowdwise.CE(recipe="paper")
    assert paper.classifier_stage(engine, classifier, loss).guard == "warn"


def test_dropout_is_that_of_the_options_the_parameter_or_the_recipe() -> None:
    assert crowdwise.CE().network_options((4,)) == {"dropout": 0.5}
    assert crowdwise.CE(dropout=0.2).network_options((4,)) == {"dropout": 0.2}
    assert crowdwise.CE(dropout=0.0).network_options((4,)) == {}
    assert crowdwise.CE(backbone_options={"dropout": 0.1, "hidden": 7}).network_options((4,)) == {
        "dropout": 0.1,
        "hidden": 7,
    }
    assert crowdwise.CE().network_options((1, 8, 8)) == {}
    own = torch.nn.Linear(4, 3)
    assert crowdwise.CE(backbone=own).network_options((4,)) == {}
    assert crowdwise.CE(backbone=own, dropout=0.3).network_options((4,)) == {"dropout": 0.3}


def test_neighbours_and_examples_of_taidtm() -> None:
    model = crowdwise.TAIDTM()
    assert [model.neighbours(r) for r in (1, 11, 12, 300, 1_000)] == [1, 1, 2, 50, 50]
    assert [model.neighbours(r, features=True) for r in (59, 120, 10_000)] == [1, 2, 50]
    assert crowdwise.TAIDTM(k=7).neighbours(1_000) == 7
    assert model.least_examples(torch.tensor([0, 10, 20])) == 7.5
    assert model.least_examples(torch.tensor([0, 2, 2])) == 3.0
    assert model.least_examples(torch.tensor([100, 200])) == 30.0
    assert model.least_examples(torch.tensor([0, 0])) == 30.0
    assert crowdwise.TAIDTM(min_examples=0).least_examples(torch.tensor([9])) == 0


def test_parameters_as_json() -> None:
    def schedule(epoch: float) -> float:
        return 1.0

    model = crowdwise.CE(
        backbone=torch.nn.Linear(4, 3), schedule=schedule, milestones=(0.5, 0.7), random_state=np.random.default_rng(0)
    )
    found = model._json_parameters()
    assert found["backbone"] == "module:Linear"
    assert found["schedule"].startswith("function:")
    assert found["schedule"].endswith("schedule")
    assert found["milestones"] == [0.5, 0.7]
    assert found["random_state"] is None
    assert not {"device", "verbose"} & set(found)
    assert crowdwise.CE(random_state=3)._json_parameters()["random_state"] == 3
    assert crowdwise.CE(random_state=np.int64(3))._seed() == 3


def test_large_arrays_are_predicted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdwise.methods.core import prediction

    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    model = crowdwise.Concord(steps=20, networks=2, verbose=0).fit(X, (X[:, :2] > 0).astype(int))
    whole, classes = model.predict_proba(X), model.predict(X)
    monkeypatch.setattr(prediction, "_AT_ONCE", 4 * 7)
    monkeypatch.setattr(prediction, "_CHECKED", 3)
    assert_allclose(model.predict_proba(X), whole, atol=SINGLE)
    assert_array_equal(model.predict(X), classes)
    assert_array_equal(model.predict(X), model.classes_[whole.argmax(axis=1)])
    assert model.predict_proba(X[:0]).shape == (0, 2)
    broken = X.copy()
    broken[44, 1] = np.nan
    with pytest.raises(crowdwise.errors.DataError, match="44"):
        model.predict(broken)


def test_matrices_are_in_the_order_that_annotators_are_asked_for() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    table = {"item": np.repeat(np.arange(40), 3), "worker": ["x", "y", "z"] * 40, "label": rng.integers(0, 2, 120)}
    model = crowdwise.CrowdLayer(steps=20, verbose=0).fit(X, table)
    every = model.transition(X[:2])
    assert every.shape == (2, 3, 2, 2)
    assert_allclose(model.transition(X[:2], ["z", "x"]), every[:, [2, 0]])
    assert_allclose(every.sum(axis=3), 1, atol=SINGLE)
    with pytest.raises(crowdwise.errors.DataError, match="unknown annotator 'w'"):
        model.transition(X, ["x", "w"])
    y = model.predict(X)
    weight = np.where(np.arange(40) < 10, 3.0, 1.0)
    truth = np.where(np.arange(40) < 10, y, 1 - y)
    assert model.score(X, truth, sample_weight=weight) == pytest.approx(0.5)


def test_predictions_that_are_no_numbers_are_refused_with_advice() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    model = crowdwise.CrowdLayer(steps=5, verbose=0).fit(X, (X[:, :2] > 0).astype(int))
    last = model.history_[-1]["loss"]
    with torch.no_grad():
        model.classifier_.linear.bias[0] = torch.nan
    for ask in (model.predict, model.predict_proba):
        with pytest.raises(crowdwise.errors.TrainingError, match=f"predictions for 30 of 30 instances .*{last:.3g}"):
            ask(X)


def test_a_model_shows_what_it_learnt_of_annotators() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    model = crowdwise.CE(steps=100, lr=0.01, verbose=0)
    assert "instances" not in model._repr_html_()
    table = {
        "item": np.repeat(np.arange(30), 2),
        "worker": ["<b>", "y"] * 30,
        "label": np.repeat(X[:, 0] > 0, 2).astype(int),
    }
    shown = model.fit(X, table)._repr_html_()
    assert "2 classes, 30 instances." in shown
    assert "&lt;b&gt;" in shown
    assert "<b>&" not in shown
    assert model._repr_mimebundle_()["text/html"] == shown
