"""A stage against a plain second implementation: batches, rates, steps, and what the history says of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise import Annotations
from crowdwise.callbacks import Callbacks
from crowdwise.engine import Batch, Engine, Group, Problem, Stage, StageResult
from crowdwise.engine.checkpoint import RunDirectory, SharedStages, explicit_parameters
from crowdwise.engine.device import derive_seed
from crowdwise.engine.guard import another_try, lost_classes, lost_early, vote_shares
from crowdwise.engine.loop import _finished
from crowdwise.engine.recipe import FEATURES, PAPER, PICTURES, cosine_schedule, step_schedule
from crowdwise.engine.tensors import shuffled_batches
from crowdwise.errors import ConfigError
from engine_helpers import crowd
from tolerances import SINGLE


def problem(n: int = 50, **options: Any) -> Problem:
    X, annotations, _ = crowd(n)
    settings = {"device": torch.device("cpu"), "seed": 3, "validation_fraction": 0.2} | options
    return Problem.make(X, annotations, **settings)


def linear() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(6, 3)


def stage(made: Problem, classifier: nn.Module, **options: Any) -> Stage:
    def loss(batch: Batch) -> Tensor:
        return batch.mean(F.cross_entropy(classifier(batch.x)[batch.row], batch.label, reduction="none"))

    settings = {"epochs": 3, "batch_size": 16, "score": classifier} | options
    return Stage("plain", made.train, loss, {"classifier": Group(classifier, lr=0.1, weight_decay=0.01)}, **settings)


def run(made: Problem, *stages: Stage, **options: Any) -> tuple[Engine, list[StageResult]]:
    def method() -> Any:
        results = []
        for each in stages:
            results.append((yield each))
        return results

    engine = Engine(made, **options)
    return engine, engine.run(method())


@pytest.mark.parametrize("batch_size", [16, 39])  # 40 instances: the last batch of one joins the one before it
def test_a_stage_is_gradient_descent_batch_by_batch(batch_size: int) -> None:
    """Momentum, weight decay, a rate that goes on from step to step, and the mean of the batches' losses."""
    made, classifier = problem(), linear()
    started: list[int] = []

    def schedule(epoch: float) -> float:
        return 1.0 / (1.0 + epoch)

    settings = {"schedule": schedule, "before_epoch": started.append, "batch_size": batch_size, "momentum": 0.7}
    engine, (result,) = run(made, stage(made, classifier, **settings))

    weight, bias = (each.detach().clone().requires_grad_() for each in linear().parameters())
    moving = [torch.zeros_like(weight), torch.zeros_like(bias)]
    units, x = made.train, made.prepare(made.train.inputs.take(made.train.instance))
    held_out = made.prepare(made.validation.inputs.take(made.validation.instance))
    for epoch in range(3):
        generator = torch.Generator().manual_seed(derive_seed(3, 0, epoch, "order"))
        batches = shuffled_batches(len(units), batch_size, generator, torch.device("cpu"))
        losses = []
        for number, batch in enumerate(batches):
            terms = []
            for unit in batch.tolist():
                for pair in range(int(units.indptr[unit]), int(units.indptr[unit + 1])):
                    terms.append(-F.log_softmax(weight @ x[unit] + bias, 0)[units.label[pair]])
            loss = torch.stack(terms).mean()
            losses.append(loss.item())
            rate = 0.1 / (1.0 + epoch + (number + 0.5) / len(batches))
            gradients = torch.autograd.grad(loss, [weight, bias])
            with torch.no_grad():
                for value, gradient, momentum in zip((weight, bias), gradients, moving, strict=True):
                    momentum.mul_(0.7).add_(gradient + 0.01 * value)
                    value -= rate * momentum
        record = result.history[epoch]
        assert record["loss"] == pytest.approx(float(np.mean(losses)), rel=1e-4)
        predicted = (held_out @ weight.T + bias).argmax(1)
        shares = vote_shares(made.validation, 3)
        assert record["agreement"] == pytest.approx(float(shares[range(len(predicted)), predicted].mean()))
        assert (record["stage"], record["index"], record["epoch"]) == ("plain", 0, epoch)
        assert record["seconds"] >= 0
    assert started == [0, 1, 2]
    torch.testing.assert_close(classifier.weight, weight, rtol=1e-3, atol=SINGLE)
    assert engine.history == result.history
    assert result.agreement == result.history[-1]["agreement"]
    agreements = [record["agreement"] for record in result.history]
    assert result.best_epoch == agreements.index(max(agreements))


def test_stages_go_on_with_the_results_of_those_before() -> None:
    made, classifier = problem(), linear()
    heard: list[StageResult] = []

    def method() -> Any:
        for epochs in (1, 2):
            heard.append((yield stage(made, classifier, epochs=epochs)))
        return "fitted"

    engine = Engine(made)
    assert engine.run(method()) == "fitted"
    assert [result.epochs for result in heard] == [1, 2]
    assert [(record["index"], record["epoch"]) for record in engine.history] == [(0, 0), (1, 0), (1, 1)]
    assert engine.warnings == []
    engine, results = run(made, stage(made, linear(), epochs=0))
    assert (results[0].history, results[0].best_epoch, results[0].agreement) == ([], -1, None)


@pytest.mark.parametrize("image", [False, True])
def test_small_products_take_one_thread(image: bool) -> None:
    X, annotations, _ = crowd(30, image=image)
    made = Problem.make(X, annotations, device=torch.device("cpu"), seed=0, validation_fraction=0.0)
    classifier, seen = nn.Sequential(nn.Flatten(), nn.Linear(X[0].size, 3)), []

    def loss(batch: Batch) -> Tensor:
        seen.append(torch.get_num_threads())
        return batch.mean(F.cross_entropy(classifier(batch.x)[batch.row], batch.label, reduction="none"))

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        run(made, Stage("plain", made.train, loss, {"classifier": Group(classifier)}, epochs=1))
        assert set(seen) == {3 if image else 1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_callback_ends_this_stage_and_passes_over_those_that_follow() -> None:
    made, classifier = problem(), linear()
    seen: list[Any] = []

    class Stops:
        def epoch(self, record: dict[str, Any], predict: Callable[..., Any]) -> bool:
            seen.append(predict(np.zeros((2, 6), np.float32)))
            return bool(record["epoch"] == 1)

    stages = stage(made, classifier), stage(made, classifier)
    engine, results = run(made, *stages, callbacks=Callbacks([Stops()]))
    assert engine.stopped
    assert [len(result.history) for result in results] == [2, 0]
    assert seen[0].shape == (2, 3)
    assert seen[-1].sum(axis=1) == pytest.approx([1, 1])


@pytest.mark.parametrize("keep", ["last", "best"])
def test_the_best_epoch_is_the_first_with_the_highest_agreement(keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, classifier = problem(), linear()
    agreements = iter([0.3, 0.7, 0.7, 0.5])
    weights: list[Tensor] = []

    def agreement(self: Engine, module: nn.Module, units: Any) -> float:
        weights.append(classifier.weight.detach().clone())
        return next(agreements)

    monkeypatch.setattr(Engine, "agreement", agreement)
    _, (result,) = run(made, stage(made, classifier, keep=keep, epochs=4))
    assert result.best_epoch == 1
    assert result.agreement == (0.7 if keep == "best" else 0.5)
    torch.testing.assert_close(classifier.weight.detach(), weights[1 if keep == "best" else 3], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("best", "patience", "agreement", "expected"),
    [(0, 2, 0.5, True), (1, 2, 0.5, False), (0, 3, 0.5, False), (0, 0, 0.5, False), (0, 2, None, False)],
)
def test_patience_counts_epochs_since_the_best(
    best: int, patience: int, agreement: float | None, expected: bool
) -> None:
    made = problem(20)
    result = StageResult("plain", 10, best, agreement, [{}, {}, {}])
    assert _finished(stage(made, linear(), epochs=10, patience=patience), result) is expected
    assert _finished(stage(made, linear(), epochs=3, patience=patience), result)


def test_classes_are_lost_beyond_chance_alone() -> None:
    made = problem(100)
    engine, n = Engine(made), len(made.validation)
    chance = (0.8 * 0.2 / n) ** 0.5
    assert lost_classes(engine, 0.8, 0.8 - 3.01 * chance)
    assert lost_classes(engine, 0.8, 0.8 - 2.99 * chance) is None
    assert lost_classes(engine, None, 0.1) is None
    assert lost_classes(engine, 0.9, None) is None
    low, high = 0.8 - 4 * chance, 0.8

    def early(*agreements: float, **options: Any) -> bool:
        history = [{"agreement": each} for each in agreements]
        result = StageResult("plain", 12, 0, 0.8, history)
        return lost_early(engine, stage(made, linear(), epochs=12, **options), result, 0.8)

    assert early(high, high, low, low)
    assert not early(high, low, high, low)
    assert not early(low, low, low)
    assert not early(low, low, low, low, low)
    assert not early(low, low, low, low, keep="best")


def test_a_second_try_is_by_adam_or_slower() -> None:
    made = problem(20)
    first = stage(made, linear(), optimiser="sgd")
    again, how = another_try(first, lost=False)
    assert (again.name, again.optimiser, again.groups["classifier"].lr) == ("plain, by Adam", "adam", 1e-3)
    assert how == "with Adam in place of sgd, at lr=0.001"
    again, how = another_try(first, lost=True)
    assert (again.name, again.optimiser, again.groups["classifier"].lr) == ("plain, slower", "sgd", 0.1 / 5)
    assert how == "with a fifth of lr=0.1"
    assert again.groups["classifier"].weight_decay == 0.01
    again, _ = another_try(stage(made, linear(), optimiser="adam"), lost=False)
    assert (again.name, again.optimiser) == ("plain, slower", "adam")


def test_of_two_tries_the_better_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage begins at .8, ends at .2, and is run again from the same start, which ends at .3 or at .1."""
    for second in (0.3, 0.1):
        made, classifier = problem(60), linear()
        start = classifier.weight.detach().clone()
        agreements = iter([0.8, 0.2, second])
        weights: list[Tensor] = []

        def agreement(self: Engine, module: nn.Module, units: Any, each: Any = agreements) -> float:
            weights.append(classifier.weight.detach().clone())  # noqa: B023
            return next(each)

        monkeypatch.setattr(Engine, "agreement", agreement)
        with pytest.warns(UserWarning, match=r"agreement with held-out annotations fell from 0.800 to 0.200"):
            engine, _ = run(made, stage(made, classifier, epochs=1, keeps_classes=True))
        torch.testing.assert_close(weights[0], start, rtol=0, atol=0)
        kept = weights[2] if second > 0.2 else weights[1]
        torch.testing.assert_close(classifier.weight.detach(), kept, rtol=0, atol=0)
        assert (weights[2] - start).norm() < (weights[1] - start).norm()
        assert engine.index == 2


# recipes


def test_values_that_follow_from_others() -> None:
    assert FEATURES.with_values({"steps": 30}).epochs == 1
    assert FEATURES.with_values({"epochs": 4}).steps == 0
    both = FEATURES.with_values({"epochs": 4, "steps": 30})
    assert (both.epochs, both.steps) == (4, 30)
    assert FEATURES.with_values({"milestones": (2,)}).schedule == "steps"
    assert FEATURES.with_values({"milestones": (2,), "schedule": "constant"}).schedule == "constant"
    same = FEATURES.with_values({"optimiser": "adamw"})
    assert (same.lr, same.early_lr) == (FEATURES.lr, FEATURES.early_lr)
    other = FEATURES.with_values({"optimiser": "sgd"})
    assert (other.lr, other.early_lr) == (0.01, 0.01)
    mine = FEATURES.with_values({"optimiser": "sgd", "lr": 0.3})
    assert (mine.lr, mine.early_lr) == (0.3, 0.01)
    assert PICTURES.with_values({"momentum": 0.5}).grow == 4
    assert PICTURES.with_values({"lr": 0.5}).grow == 1


def test_epochs_and_batches_for_so_many_instances() -> None:
    assert FEATURES.for_instances(641).epochs == math.ceil(1500 / 11)
    assert FEATURES.for_instances(3).epochs == 1500
    assert FEATURES.for_instances(64 * 1000).epochs == 10
    for n, factor in ((16_383, 1), (16_384, 2), (32_767, 2), (32_768, 4), (10**6, 4)):
        found = PICTURES.for_instances(n)
        assert found.batch_size == 128 * factor
        assert found.lr == pytest.approx(0.05 * factor)
        assert found.early_lr == pytest.approx(0.01 * factor)
        assert found.ema == pytest.approx(0.999**factor)
        assert (found.grow, found.epochs) == (1, max(30, math.ceil(1500 / math.ceil(n / (128 * factor)))))
    assert PAPER.enough_epochs(None, usual=5, steps=200, examples=1280) == 20
    assert PAPER.enough_epochs(None, usual=5, steps=200, examples=10) == 200
    assert PAPER.enough_epochs(0, usual=5, steps=200, examples=10) == 0


def test_rates_by_epochs() -> None:
    drops = PAPER.with_values({"milestones": (0.5, 7), "epochs": 9, "gamma": 0.2})
    assert drops.drops() == [4, 7]
    assert [drops.rates()(epoch) for epoch in (3.9, 4, 7)] == pytest.approx([1, 0.2, 0.04])
    assert PAPER.with_values({"schedule": "constant", "epochs": 9}).rates()(8) == 1
    assert PAPER.with_values({"schedule": lambda epoch: epoch + 3}).rates()(2) == 5
    share, epochs = FEATURES.with_values({"epochs": 40}).rates(), PICTURES.rates()
    assert [share(1.0), share(2.0), share(21.0), share(40.0)] == pytest.approx([0.5, 1, 0.5, 0])
    assert [epochs(1.0), epochs(2.0), epochs(16.0), epochs(30.0)] == pytest.approx([0.5, 1, 0.5, 0])
    assert cosine_schedule(2, 2)(2.0) == pytest.approx(1)
    assert cosine_schedule(4, 1)(9.0) == pytest.approx(0)
    assert step_schedule((1,), 0.5)(0.99) == 1


# runs and shared stages


def test_shared_stages_are_named_by_all_that_went_before(tmp_path: Any) -> None:
    def files(origin: Any, *stages: Any) -> list[Any]:
        shared = SharedStages(tmp_path, origin)
        return [shared.file(name, index, decides) for index, (name, decides) in enumerate(stages)]

    first = files({"seed": 0}, ("warm-up", {"lr": 1}), ("global", {"epochs": 2}))
    assert files({"seed": 0}, ("warm-up", {"lr": 1}), ("global", {"epochs": 2})) == first
    assert len({path.name for path in first}) == 2
    assert all(path.parent == tmp_path and path.suffix == ".safetensors" for path in first)
    longer = files({"seed": 0}, ("warm-up", {"lr": 1}), ("global", {"epochs": 3}))
    assert longer[0] == first[0]
    assert longer[1] != first[1]
    for other in (
        files({"seed": 1}, ("warm-up", {"lr": 1}), ("global", {"epochs": 2})),
        files({"seed": 0}, ("warm-up", {"lr": 2}), ("global", {"epochs": 2})),
        files({"seed": 0}, ("other", {"lr": 1}), ("global", {"epochs": 2})),
    ):
        assert not set(other) & set(first)
    assert files({}, ("warm-up", {"lr": 1}), ("own", None), ("global", {"epochs": 2}))[1:] == [None, None]


def test_a_run_says_what_differs(tmp_path: Any) -> None:
    run_ = RunDirectory(tmp_path / "run", source={"file": "x.csv"})
    run_.start({"method": "ce", "parameters": {"recipe": "paper", "lr": 0.1}, "data": {"n": 5, "content": "abc"}})
    described = {
        "method": "ce",
        "parameters": {"recipe": "paper", "lr": 0.1, "new": 1},
        "data": {"n": 5, "content": "abc"},
    }
    run_.resume(described, {"new": 1})
    with pytest.raises(ConfigError, match="another parameters: new=2 there, 1 now"):
        run_.resume(described, {"new": 2})
    with pytest.raises(ConfigError, match=r"another data: content='abc' there, 'abd' now"):
        run_.resume(described | {"data": {"n": 5, "content": "abd"}}, {"new": 1})
    with pytest.raises(ConfigError, match="another method: 'ce' there, 'bltm' now"):
        run_.resume(described | {"method": "bltm", "parameters": {}}, {"new": 1})
    old = RunDirectory(tmp_path / "old")
    old.start({"method": "ce", "parameters": {"recipe": "paper", "lr": 0.1}, "data": {"n": 5}})
    old.resume(described, {"new": 1})  # an earlier version noted less
    with pytest.raises(ConfigError, match="another data: n=5 there, 6 now"):
        old.resume(described | {"data": {"n": 6, "content": "abc"}}, {"new": 1})


def test_parameters_of_the_first_version_are_written_out() -> None:
    assert explicit_parameters({"lr": 1}, (4,)) == {"lr": 1, "prepare": "none", "recipe": "paper"}
    assert explicit_parameters({"prepare": "log1p"}, (1, 4, 4)) == {"prepare": "log1p", "recipe": "paper"}
    assert explicit_parameters({"recipe": "features", "prepare": "auto"}, (4,)) == {
        "recipe": "features",
        "prepare": "auto",
    }


def test_weights_of_labels_count_in_agreement() -> None:
    annotations = Annotations.from_triples([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 1], weight=[3.0, 1.0, 0.5, 0.5])
    options = {"device": torch.device("cpu"), "seed": 0, "validation_fraction": 0.0}
    made = Problem.make(np.eye(2, dtype=np.float32), annotations, **options)
    assert vote_shares(made.train, 2).tolist() == [[0.75, 0.25], [0.0, 1.0]]
    always = linear()
    always = nn.Linear(2, 2)
    nn.init.zeros_(always.weight)
    always.bias.data = torch.tensor([1.0, 0.0])
    assert Engine(made).agreement(always, made.train) == pytest.approx((0.75 + 0) / 2)
