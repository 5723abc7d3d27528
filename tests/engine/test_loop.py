from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.callbacks import FromObserver
from crowdwise.engine import Engine, Group, Problem, Stage, stage_store, step
from crowdwise.engine.checkpoint import RunDirectory
from crowdwise.engine.stage_store import StageStore
from crowdwise.engine.tensors import StreamedInputs, make_plan, shuffled_batches
from crowdwise.errors import ConfigError, DataError, TrainingError
from crowdwise.registry import METHODS
from engine_helpers import INTERRUPTED_TAIDTM, QUICK, crowd, fit_and_interrupt, quick, replay_static_steps
from processes import by_one_and_by_two
from tolerances import SINGLE


def problem(n=40, **options):
    X, annotations, _ = crowd(n)
    return Problem.make(X, annotations, device=torch.device("cpu"), seed=0, **options)


def test_problem_has_no_place_for_true_labels():
    names = set(Problem.__dataclass_fields__)
    assert names.isdisjoint({"y", "truth", "clean", "true_labels", "gold"})


def test_plan_covers_every_annotation_once():
    units = problem().train
    batches = shuffled_batches(len(units), 16, torch.Generator().manual_seed(0), units.device)
    plan = make_plan(units, batches)
    assert sorted(plan.pair.tolist()) == list(range(len(units.label)))
    assert plan.pair_borders[-1] == len(units.label)
    for number in range(len(plan)):
        batch = step.batch_of(units, plan, number, units.inputs.take(units.instance[batches[number]]))
        assert batch.total == len(batch.label)
        assert batch.row.max() < len(batches[number])


def test_last_batch_of_one_joins_the_batch_before():
    sizes = [len(b) for b in shuffled_batches(33, 16, torch.Generator().manual_seed(0), torch.device("cpu"))]
    assert sizes == [16, 17]


def test_soft_agreement_counts_the_share_of_votes():
    """Two votes for class 1, one for class 0, prediction 1: contribution 2/3."""
    annotations = crowdwise.Annotations.from_triples([0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [1, 1, 0, 0, 0], n_classes=2)
    made = Problem.make(
        np.zeros((2, 3), np.float32), annotations, device=torch.device("cpu"), seed=0, validation_fraction=0
    )
    always_one = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(always_one.weight)
    with torch.no_grad():
        always_one.bias.copy_(torch.tensor([0.0, 1.0]))
    assert Engine(made).agreement(always_one, made.train) == pytest.approx((2 / 3 + 0) / 2)


def test_reduction_by_instance_weighs_instances_alike():
    units = problem(reduction="instance").train
    counts = units.indptr.diff()
    sums = torch.zeros(len(units)).index_add_(
        0, torch.repeat_interleave(torch.arange(len(units)), counts), units.weight
    )
    torch.testing.assert_close(sums, torch.ones(len(units)))


def test_streamed_inputs_train_like_resident_ones():
    X, annotations, _ = crowd(image=True)

    class Pictures:
        def __len__(self):
            return len(X)

        def __getitem__(self, index):
            return X[index], "something else"

    resident, streamed = (crowdwise.CE(**QUICK, prepare="none").fit(data, annotations) for data in (X, Pictures()))
    np.testing.assert_allclose(resident.predict_proba(X), streamed.predict_proba(X), atol=SINGLE)


def test_streaming_loads_in_order_and_ahead():
    data = np.arange(20, dtype=np.float32).reshape(10, 2)
    streamed = StreamedInputs(data, torch.device("cpu"), workers=3, ahead=2)
    batches = [torch.tensor([3, 1]), torch.tensor([0]), torch.tensor([9, 8, 7])]
    loaded = list(streamed.stream(batches))
    for batch, raw in zip(batches, loaded, strict=True):
        np.testing.assert_array_equal(raw.numpy(), data[batch.numpy()])


@pytest.mark.parametrize(
    ("method", "variant"),
    [("ce", {}), ("taidtm", {}), ("taidtm", {"mapping": "gat"}), ("taidtm", {"mapping": "deepwalk"})],
    ids=str,
)
def test_padded_static_steps_equal_eager_steps(method, variant, monkeypatch):
    X, annotations, _ = crowd()
    parameters = quick(method) | {"batch_size": 50} | variant
    eager = METHODS[method](**parameters).fit(X, annotations)
    replay_static_steps(monkeypatch)
    static = METHODS[method](**parameters).fit(X, annotations)
    np.testing.assert_allclose(static.predict_proba(X), eager.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("moments", ["half-way", pytest.param("begun and almost done", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", list(METHODS))
def test_resumed_run_equals_uninterrupted_run(method, moments, tmp_path):
    X, annotations, _ = crowd()
    make = lambda: METHODS[method](**quick(method), backbone_options={"hidden": 16, "dropout": 0.3})  # noqa: E731
    whole = make().fit(X, annotations)
    epochs = len(whole.history_)
    for stop_after in {epochs // 2} if moments == "half-way" else {1, epochs - 1}:
        run = tmp_path / str(stop_after)
        fit_and_interrupt(make(), X, annotations, run, stop_after)
        resumed = make().fit(X, annotations, resume=run)
        np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
        losses = [[record["loss"] for record in model.history_] for model in (whole, resumed)]
        assert losses[0] == losses[1]
        logged = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert logged == losses[0]


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("keep", ["last", "best"])
def test_the_epoch_that_is_kept_is_the_one_asked_for(method, keep):
    X, annotations, _ = crowd()
    X += 2 * np.random.default_rng(1).normal(size=X.shape)  # learned slowly, so that no two epochs predict alike
    seen = {}

    def observe(record, predict):
        if predict is not None:
            seen.setdefault(record["stage"], []).append((record["agreement"], predict(X)))

    model = METHODS[method](**quick(method) | {"keep": keep, "epochs": 6, "lr": 0.01}).fit(
        X, annotations, callbacks=[FromObserver(observe)]
    )
    agreements, predictions = zip(*seen[model.history_[-1]["stage"]], strict=True)
    kept = int(np.argmax(agreements)) if keep == "best" else len(predictions) - 1
    found = np.exp(model._log_p(X))  # before it is as sure as it should be
    distance = [np.abs(found - each).max() for each in predictions]
    assert distance.pop(kept) < SINGLE  # batches are of another size
    assert min(distance) > 100 * SINGLE


def test_the_best_epoch_survives_an_interruption(tmp_path):
    X, annotations, _ = crowd()
    make = lambda: crowdwise.CE(**QUICK | {"epochs": 8, "lr": 0.3, "keep": "best"})  # noqa: E731
    whole = make().fit(X, annotations)
    for stop_after in (1, 4, 7):
        fit_and_interrupt(make(), X, annotations, tmp_path / str(stop_after), stop_after)
        resumed = make().fit(X, annotations, resume=tmp_path / str(stop_after))
        np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def test_the_best_epoch_needs_held_out_instances():
    X, annotations, _ = crowd()
    with pytest.raises(ConfigError, match=r"needs held-out instances .* validation_fraction=0 of \d+ labelled"):
        crowdwise.CE(**QUICK | {"keep": "best", "validation_fraction": 0.0}).fit(X, annotations)
    with pytest.raises(ConfigError, match="unknown keep 'first'; known: 'last', 'best'"):
        crowdwise.CE(**QUICK | {"keep": "first"}).fit(X, annotations)


def test_a_run_directory_is_not_overwritten(tmp_path):
    X, annotations, _ = crowd()
    crowdwise.CE(**QUICK).fit(X, annotations, run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match="already holds a run"):
        crowdwise.CE(**QUICK).fit(X, annotations, run_dir=tmp_path / "run")


def test_a_run_is_only_resumed_with_the_same_parameters_and_data(tmp_path):
    X, annotations, _ = crowd()
    crowdwise.CE(**QUICK).fit(X, annotations, run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"lr=None there, 0\.5 now"):
        crowdwise.CE(**QUICK, lr=0.5).fit(X, annotations, resume=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"another data: .*inputs="):
        crowdwise.CE(**QUICK).fit(X + 1, annotations, resume=tmp_path / "run")


def test_nothing_is_left_half_written(tmp_path):
    X, annotations, _ = crowd()
    crowdwise.CE(**QUICK).fit(X, annotations, run_dir=tmp_path / "run")
    assert not [path for path in (tmp_path / "run").rglob("*") if ".tmp" in path.name]


def test_global_random_state_is_left_alone():
    X, annotations, _ = crowd()
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    expected = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    crowdwise.CE(**QUICK, backbone_options={"dropout": 0.5}).fit(X, annotations)
    assert (torch.rand(1), np.random.rand()) == expected  # noqa: NPY002


def test_tiny_numbers_are_dropped_in_stages_and_nowhere_else():
    """LAPACK fails without them: the annotator map of a crowd with many equal heads did."""
    tiny, seen = np.array([2.5e-308]), []

    def loss(batch):
        seen.append(tiny[0] / 4)
        return classifier(batch.x).sum()

    made = problem()
    classifier = torch.nn.Linear(made.shape[0], 2)

    def stages():
        seen.append(tiny[0] / 4)
        yield Stage("one", made.train, loss, {"classifier": Group(classifier)}, 1)
        seen.append(tiny[0] / 4)

    Engine(made).run(stages())
    before, *during, after = seen
    assert before == after > 0
    assert set(during) == {0.0}


def test_a_loss_that_is_not_finite_stops_training_with_advice():
    X, annotations, _ = crowd()
    with pytest.raises(TrainingError, match=r"stage 'classifier', epoch 1, batch 2: the loss became NaN .* lower lr"):
        crowdwise.CE(**QUICK, lr=1e30).fit(X, annotations)


def test_missing_values_in_inputs_are_named():
    X, annotations, _ = crowd()
    X[17, 2] = np.nan
    with pytest.raises(DataError, match=r"X\[17, 2\] is nan"):
        crowdwise.CE(**QUICK).fit(X, annotations)


def test_sizes_must_match():
    X, annotations, _ = crowd()
    with pytest.raises(DataError, match="X has 100 instances, the annotations cover 240"):
        crowdwise.CE(**QUICK).fit(X[:100], annotations)


@pytest.mark.slow
def test_two_processes_equal_one_at_the_same_global_batch(tmp_path):
    """Every stage of TAIDTM, with batch norm, interrupted and resumed, under torchrun with gloo."""
    one, two = by_one_and_by_two(tmp_path, INTERRUPTED_TAIDTM)
    np.testing.assert_allclose(one["losses"], two["losses"], atol=1e-5)
    np.testing.assert_allclose(one["proba"], two["proba"], atol=1e-3)


def test_checkpoints_that_take_long_are_written_less_often(monkeypatch, tmp_path):
    """Twenty times as long goes by between two of them: four epochs by this clock."""
    X, annotations, _ = crowd()
    now, written = [0.0], []
    write, save = RunDirectory.write_checkpoint, StageStore.save

    def slow(self, *content):
        written.append(now[0])
        now[0] += 1
        return write(self, *content)

    def after_an_epoch(self, *content):
        now[0] += 5
        return save(self, *content)

    monkeypatch.setattr(stage_store, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(RunDirectory, "write_checkpoint", slow)
    monkeypatch.setattr(StageStore, "save", after_an_epoch)
    model = crowdwise.CE(epochs=12, verbose=0).fit(X, annotations, run_dir=tmp_path)
    assert written == [5, 26, 47]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == len(model.history_) == 12
