"""What needs a CUDA device; left out of `make test`, run with `pytest -m gpu`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.engine import Engine
from engine_helpers import crowd

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
    pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning"),
]


def fit(monkeypatch, captured: bool, precision: str, mapping: str = "gcn"):
    X, annotations, y = crowd(1000, image=True)
    original = Engine.__init__
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "__init__", lambda self, *a, **k: original(self, *a, **(k | {"captured": captured})))
        model = crowdwise.TAIDTM(
            backbone="resnet18",
            epochs=3,
            warmup_epochs=3,
            k=2,
            min_examples=5,
            precision=precision,
            mapping=mapping,
            verbose=0,
            device="cuda",
        ).fit(X, annotations)
    return model, X, y


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_captured_steps_equal_eager_steps(monkeypatch, precision):
    eager, X, y = fit(monkeypatch, captured=False, precision=precision)
    captured, _, _ = fit(monkeypatch, captured=True, precision=precision)
    losses = [[record["loss"] for record in model.history_] for model in (eager, captured)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.05)
    assert captured.score(X, y) > 0.8


@pytest.mark.parametrize("mapping", ["gat", "deepwalk"])
def test_every_mapping_can_be_captured(monkeypatch, mapping):
    eager, X, y = fit(monkeypatch, captured=False, precision="fp32", mapping=mapping)
    captured, _, _ = fit(monkeypatch, captured=True, precision="fp32", mapping=mapping)
    losses = [[record["loss"] for record in model.history_] for model in (eager, captured)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.05)
    assert captured.score(X, y) > 0.8


def test_a_model_from_the_gpu_predicts_on_the_cpu(monkeypatch, tmp_path):
    model, X, _ = fit(monkeypatch, captured=True, precision="fp32")
    loaded = crowdwise.load(model.save(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=0.02)
