"""Callbacks are told of a fit, may stop it, and write to trackers."""

from __future__ import annotations

import sys

import pytest

import crowdwise
from crowdwise.callbacks import Callback, MLflow, TensorBoard
from crowdwise.errors import ConfigError
from engine_helpers import QUICK, TAIDTM_QUICK, crowd

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")


class Told(Callback):
    def __init__(self, stop_at: tuple[str, int] | None = None) -> None:
        self.said: list[object] = []
        self.stop_at = stop_at

    def begin(self, about):
        self.said.append((about["method"], about["instances"], about["annotators"], about["classes"]))

    def epoch(self, record, predict):
        self.said.append((record["stage"], record["epoch"], predict is not None))
        return (record["stage"], record["epoch"]) == self.stop_at

    def end(self, model):
        self.said.append(model)


def test_a_callback_is_told_of_the_beginning_every_epoch_and_the_end():
    X, annotations, _ = crowd(100)
    told = Told()
    model = crowdwise.CE(**QUICK).fit(X, annotations, callbacks=[told])
    assert told.said == [("ce", 100, 8, 3), *[("classifier", epoch, True) for epoch in range(3)], model]


@pytest.mark.parametrize("stage", ["warm-up", "correction"])
def test_a_callback_that_stops_leaves_a_fitted_model(stage, tmp_path):
    X, annotations, _ = crowd(200)
    model = crowdwise.TAIDTM(**TAIDTM_QUICK).fit(X, annotations, callbacks=[Told((stage, 1))], run_dir=tmp_path / "run")
    assert [record["epoch"] for record in model.history_ if record["stage"] == stage] == [0, 1]
    assert model.history_[-1]["stage"] == stage
    assert crowdwise.load(tmp_path / "run").predict(X).shape == (200,)


def test_an_object_with_one_of_the_methods_will_do_and_others_are_refused():
    class Epochs:
        def epoch(self, record, predict):
            record["note"] = 7

    X, annotations, _ = crowd(100)
    model = crowdwise.CE(**QUICK).fit(X, annotations, callbacks=[Epochs()])
    assert [record["note"] for record in model.history_] == [7, 7, 7]
    with pytest.raises(ConfigError, match="a callback must have a method begin, epoch or end"):
        crowdwise.CE(**QUICK).fit(X, annotations, callbacks=[print])


def test_an_observer_still_works():
    X, annotations, _ = crowd(100)
    seen = []
    with pytest.warns(DeprecationWarning, match="callbacks"):
        crowdwise.CE(**QUICK).fit(X, annotations, observer=lambda record, predict: seen.append(record["epoch"]))
    assert seen == [0, 1, 2]


def test_tensorboard_draws_the_curves(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    X, annotations, _ = crowd(100)
    model = crowdwise.CE(**QUICK).fit(X, annotations, callbacks=[TensorBoard(tmp_path)])
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in events.Scalars("classifier/loss")] == pytest.approx(
        [record["loss"] for record in model.history_]
    )


def test_mlflow_keeps_parameters_and_curves(tmp_path):
    import mlflow

    X, annotations, _ = crowd(100)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    model = crowdwise.CE(**QUICK).fit(X, annotations, callbacks=[MLflow("tried", tracking_uri=uri, run_name="first")])
    (run,) = mlflow.search_runs(experiment_names=["tried"], output_format="list")
    assert run.info.run_name == "first"
    assert run.data.params["method"] == "ce"
    assert run.data.params["epochs"] == "3"
    history = mlflow.MlflowClient(uri).get_metric_history(run.info.run_id, "classifier/loss")
    assert [point.value for point in history] == pytest.approx([record["loss"] for record in model.history_])


@pytest.mark.parametrize(("callback", "package"), [(TensorBoard, "torch.utils.tensorboard"), (MLflow, "mlflow")])
def test_a_missing_package_names_the_extra(callback, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails
    with pytest.raises(ConfigError, match=r"is not installed .*: pip install 'crowdwise\[track\]'"):
        callback(str(tmp_path))
