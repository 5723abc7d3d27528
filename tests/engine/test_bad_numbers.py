"""Numbers that are missing, infinite or go bad in training are an error that says where and with which instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.engine import Engine, Problem, loop, problem, stage_store
from crowdwise.engine.checkpoint import read_tensors
from crowdwise.engine.tensors import StreamedInputs
from crowdwise.errors import DataError, NonFiniteError, TrainingError
from crowdwise.methods.ce import CE
from engine_helpers import QUICK, crowd, quick

X, CROWD, _ = crowd()


def test_all_instances_with_bad_inputs_are_named_by_their_ids(tmp_path: Path) -> None:
    ids = [f"picture {row}" for row in range(len(X))]
    bad = X.astype(np.float64)
    bad[17, 2], bad[40, 0], bad[99, 5] = np.nan, -np.inf, 1e300  # the last one is beyond float32
    named = crowdwise.Annotations.from_triples(
        CROWD.instance, CROWD.annotator, CROWD.label, instances=ids, n_annotators=8, n_classes=3
    )
    np.save(tmp_path / "X.npy", bad)
    for data in (bad, np.load(tmp_path / "X.npy", mmap_mode="r"), torch.from_numpy(bad)):
        with pytest.raises(
            NonFiniteError, match=r"X\[17, 2\] is nan: 3 of the instances have missing or infinite"
        ) as error:
            CE(**QUICK).fit(data, named)
        assert error.value.instances == ["picture 17", "picture 40", "picture 99"]
        assert "'picture 17', 'picture 40', 'picture 99'" in str(error.value)


def test_text_among_numbers_is_named_by_its_column() -> None:
    mixed = X.astype(object)
    mixed[:, 3] = "red"
    for data in (mixed, mixed.tolist()):
        with pytest.raises(DataError, match=r"X must hold numbers, got dtype .*: column 3 holds 'red' in row 0"):
            CE(**QUICK).fit(data, CROWD)


def test_inputs_are_checked_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "_CHUNK", 13)
    bad = X.copy()
    bad[[0, 1, 100, 239], 3] = np.inf
    with pytest.raises(NonFiniteError) as error:
        problem.make_inputs(bad, torch.device("cpu"))
    assert error.value.instances == [0, 1, 100, 239]
    assert len(problem.make_inputs(X, torch.device("cpu"))) == len(X)
    assert len(problem.make_inputs(X[:0], torch.device("cpu"))) == 0


def test_bad_items_of_a_data_set_are_named_when_they_are_loaded() -> None:
    class Items:
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, at: int) -> np.ndarray:
            return X[at] if at != bad else np.full_like(X[at], np.nan)

    model = CE(**QUICK)
    labelled = np.flatnonzero(CROWD.labels_per_instance)
    sampled = problem.Problem.make(X, CROWD, device=torch.device("cpu"), seed=0).train.instance
    bad = int(sampled[5])
    assert bad in labelled
    with pytest.raises(NonFiniteError, match="X: 1 of the instances have missing"):
        model.fit(Items(), CROWD)
    with pytest.MonkeyPatch.context() as patch:  # an item that was good when the run began
        patch.setattr(problem.Prepare, "learn", lambda mode, raw: problem.Prepare("none", (6,)))
        take = StreamedInputs.take
        patch.setattr(StreamedInputs, "take", lambda self, index: take(self, index[:1]))
        with pytest.raises(NonFiniteError, match=rf"stage 'classifier', epoch 1: X: 1 of .* \({bad}\)"):
            CE(**QUICK).fit(Items(), CROWD)


class Poisoned(CE):
    """Cross-entropy that goes wrong in one epoch, for one instance."""

    how: str = "loss"

    def stages(self, engine: Any) -> Any:
        stages = super().stages(engine)
        stage = next(stages)
        usual, self.victim = stage.loss, int(stage.units.rows[7])

        def loss(batch: Any) -> torch.Tensor:
            value = usual(batch)
            hit = stage.units.rows[batch.unit] == self.victim
            zero = value * 0 * hit.sum()
            if self.now != 1:
                return value
            if self.how == "loss":
                return value + torch.where(hit.any(), torch.inf, 0.0)
            return value + torch.sqrt(zero + (~hit.any()))  # finite, but its derivative at 0 is not

        def before(epoch: int) -> None:
            self.now = epoch

        stage.loss, stage.before_epoch = loss, before
        result = yield stage
        try:
            stages.send(result)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize(
    ("how", "what"), [("loss", "the loss"), ("gradient", r"the gradient of classifier\.backbone\.\S+")]
)
def test_the_batch_in_which_numbers_go_bad_is_named_with_its_instances(how: str, what: str, tmp_path: Path) -> None:
    model = Poisoned(**QUICK, prepare="none", backbone_options={"hidden": 16, "dropout": 0.3})
    model.how = how
    with pytest.raises(
        TrainingError,
        match=rf"^stage 'classifier', epoch 2, batch \d: {what} became NaN or infinite, with the instances",
    ) as error:
        model.fit(X, CROWD, run_dir=tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crowdwise.engine.trouble._SHOWN", 1000)
        with pytest.raises(TrainingError) as error:
            model.fit(X, CROWD)
    listed = str(error.value).partition("with the instances ")[2].partition(":")[0]
    assert model.victim in [int(one) for one in listed.split(", ")]
    assert len(listed.split(", ")) == QUICK["batch_size"]
    assert "lower lr (of this stage: 0.01) or scale the inputs (prepare='standardise')" in str(error.value)


def test_inputs_that_scaling_made_infinite_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.abs(X)
    monkeypatch.setattr(problem.Prepare, "forward", lambda self, raw: torch.where(raw == data[7, 2], torch.inf, raw))
    with pytest.raises(TrainingError, match=r"prepared inputs became NaN or infinite, with the instances 7: lower"):
        CE(**QUICK, validation_fraction=0.0).fit(data, CROWD)


def test_weights_that_go_bad_in_the_last_batch_do_not_reach_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_store, "_SLOW_WRITE", 60)  # a checkpoint after every epoch
    model = Poisoned(epochs=3, batch_size=1000, verbose=0)
    model.how = "gradient"
    with pytest.raises(
        TrainingError, match=r"epoch 2, batch 1: the gradient of classifier\.\S+ became NaN or infinite"
    ):
        model.fit(X, CROWD, run_dir=tmp_path / "run")
    stored = read_tensors(tmp_path / "run" / "checkpoint.safetensors")
    assert len(stored.about["result"]["history"]) == 1
    assert all(bool(torch.isfinite(tensor).all()) for tensor in stored.tensors.values())


def test_networks_too_large_for_a_copy_are_told_stage_and_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_SNAPSHOT", 10)
    with pytest.raises(TrainingError, match=r"stage 'classifier', epoch 1: the loss became NaN or infinite: lower lr"):
        CE(**QUICK, lr=1e30).fit(X, CROWD)


def test_a_classifier_that_diverged_to_huge_but_finite_weights_is_refused() -> None:
    X, annotations, _ = crowd(60)
    model = crowdwise.CE(**QUICK, lr=0.1, validation_fraction=0.0).fit(X, annotations)
    with torch.no_grad():
        for parameter in model.classifier_.parameters():
            parameter.fill_(1e30)
    with pytest.raises(
        TrainingError, match=r"predictions for \d+ of 60 instances are NaN or infinite: training diverged"
    ):
        model.predict_proba(X)
    bltm = crowdwise.BLTM(**quick("bltm")).fit(X, annotations)
    with torch.no_grad():
        for parameter in bltm.transition_.parameters():
            parameter.fill_(1e30)
    with pytest.raises(TrainingError, match=r"matrices for \d+ of 60 instances are NaN or infinite"):
        bltm.transition(X)
    engine = Engine(Problem.make(X, annotations, device=torch.device("cpu"), seed=0, validation_fraction=0.5))
    with pytest.raises(TrainingError, match="held-out instances became NaN or infinite"):
        engine.agreement(model.classifier_, engine.problem.validation)
