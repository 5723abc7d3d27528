"""What needs a CUDA device; left out of `make test`, run with `pytest -m gpu`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.callbacks import FromObserver
from crowdwise.engine import Engine
from crowdwise.engine.problem import make_inputs
from crowdwise.engine.step import CapturedSteps
from crowdwise.errors import CrowdwiseWarning, TrainingError
from engine_helpers import INTERRUPTED_TAIDTM, crowd
from processes import by_one_and_by_two

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
    pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning"),
]


def fit(monkeypatch, captured: bool, *, image: bool, **parameters):
    X, annotations, y = crowd(1000, image=image)
    original = Engine.__init__
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "__init__", lambda self, *a, **k: original(self, *a, **(k | {"captured": captured})))
        settings = {"recipe": "paper", "k": 2, "min_examples": 5, "verbose": 0, "device": "cuda"}  # nothing is drawn
        model = crowdwise.TAIDTM(**settings | parameters).fit(X, annotations)
    return model, X, y


def losses(model) -> list[float]:
    return [record["loss"] for record in model.history_]


@pytest.mark.parametrize("shape", [(5, 6, 7, 3), (5, 3, 6, 7), (5, 6, 7), (5, 4)])
def test_inputs_lie_on_the_gpu_as_on_the_host(shape):
    X = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    host, gpu = (make_inputs(X, torch.device(device)).data for device in ("cpu", "cuda"))
    assert gpu.is_cuda
    assert gpu.is_contiguous()
    assert torch.equal(gpu.cpu(), host)


@pytest.mark.parametrize("mapping", ["gcn", "gat", "deepwalk"])
def test_captured_steps_equal_eager_steps_in_every_stage(monkeypatch, mapping):
    # small products in full precision: nothing but the order of summation may differ
    schedule = {"epochs": 3, "warmup_epochs": 8, "lr": 0.05, "precision": "fp32", "mapping": mapping}
    eager, captured = (fit(monkeypatch, each, image=False, **schedule)[0] for each in (False, True))
    np.testing.assert_allclose(losses(captured), losses(eager), rtol=1e-2)


@pytest.mark.parametrize("transfer", ["graph", "individual"])
def test_captured_steps_equal_eager_steps_with_factored_heads(monkeypatch, transfer):
    schedule = {"epochs": 3, "warmup_epochs": 8, "lr": 0.05, "precision": "fp32", "transfer": transfer, "head_rank": 4}
    eager, captured = (fit(monkeypatch, each, image=False, **schedule)[0] for each in (False, True))
    np.testing.assert_allclose(losses(captured), losses(eager), rtol=1e-2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_captured_convolutions_start_like_eager_ones(monkeypatch, precision):
    # a learning rate of almost 0: with more, two eager runs drift apart as well, as convolutions are not deterministic
    still = dict.fromkeys(("lr", "warmup_lr", "transition_lr", "individual_lr", "gcn_lr"), 1e-6)
    schedule = {"backbone": "resnet18", "epochs": 1, "warmup_epochs": 1, "max_retries": 1, "precision": precision}
    eager, captured = (fit(monkeypatch, each, image=True, **schedule, **still)[0] for each in (False, True))
    np.testing.assert_allclose(losses(captured), losses(eager), rtol=0.02)


def test_a_model_from_the_gpu_predicts_on_the_cpu(monkeypatch, tmp_path):
    schedule = {"backbone": "resnet18", "epochs": 3, "warmup_epochs": 3, "precision": "fp32"}
    model, X, y = fit(monkeypatch, True, image=True, **schedule)
    assert model.score(X, y) > 0.8
    loaded = crowdwise.load(model.save(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=0.02)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_run_of_convolutions_can_be_interrupted(optimiser, tmp_path):
    X, annotations, y = crowd(1000, image=True)
    settings = {"recipe": "paper", "backbone": "resnet18", "epochs": 4, "lr": 1e-3, "optimiser": optimiser}
    settings |= {"verbose": 0, "device": "cuda"}

    def stop(record, _):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crowdwise.CE(**settings).fit(X, annotations, run_dir=tmp_path, callbacks=[FromObserver(stop)])
    model = crowdwise.CE(**settings).fit(X, annotations, resume=tmp_path)
    assert [record["epoch"] for record in model.history_] == [0, 1, 2, 3]
    assert model.score(X, y) > 0.8


def test_the_batch_in_which_a_recorded_step_goes_bad_is_named():
    X, annotations, _ = crowd(1000)
    with pytest.raises(TrainingError, match=r"stage 'classifier', epoch 1, batch \d: the loss became NaN or infinite"):
        crowdwise.CE(epochs=2, lr=1e30, verbose=0, device="cuda").fit(X, annotations)


def test_inputs_leave_a_gpu_without_memory_and_training_goes_on(monkeypatch):
    X, annotations, y = crowd(1000, image=True)
    record, attempts = CapturedSteps._capture, []

    def once(self):
        attempts.append(self.units.inputs.resident)
        if len(attempts) == 1:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")  # more than any device has
        record(self)

    monkeypatch.setattr(CapturedSteps, "_capture", once)
    with pytest.warns(CrowdwiseWarning, match="inputs are kept on the host"):
        model = crowdwise.CE(backbone="resnet18", epochs=6, lr=1e-3, verbose=0, device="cuda").fit(X, annotations)
    assert attempts[:2] == [True, False]
    assert model.score(X, y) > 0.8


def test_two_processes_share_a_gpu_and_equal_one(tmp_path):
    on_the_gpu = 'settings = {"device": "cuda", "precision": "fp32"} | TAIDTM_QUICK'
    program = INTERRUPTED_TAIDTM.replace("settings = TAIDTM_QUICK", on_the_gpu)
    one, two = by_one_and_by_two(tmp_path, program)
    np.testing.assert_allclose(one["losses"], two["losses"], rtol=1e-2)
