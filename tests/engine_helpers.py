"""Small crowds for tests of the engine and of methods."""

from __future__ import annotations

import numpy as np
import pytest

from crowdwise import Annotations
from crowdwise.callbacks import FromObserver


def crowd(
    n: int = 240, n_annotators: int = 8, n_classes: int = 3, seed: int = 0, image: bool = False, rate: float = 0.4
):
    """Separable instances, annotators who err with probability 0.2, and the truth: (X, annotations, y)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    centres = rng.normal(scale=3, size=(n_classes, 6 if not image else 64))
    X = (centres[y] + rng.normal(size=(n, centres.shape[1]))).astype(np.float32)
    if image:
        X = np.clip(128 + 12 * X, 0, 255).astype(np.uint8).reshape(n, 8, 8)
    given = rng.random((n, n_annotators)) < rate
    given[np.arange(n), rng.integers(n_annotators, size=n)] = True
    instance, annotator = np.nonzero(given)
    wrong = rng.random(len(instance)) < 0.2
    label = np.where(wrong, rng.integers(n_classes, size=len(instance)), y[instance])
    annotations = Annotations.from_triples(
        instance, annotator, label, n_instances=n, n_annotators=n_annotators, n_classes=n_classes
    )
    return X, annotations, y


QUICK = {"recipe": "paper", "epochs": 3, "verbose": 0, "batch_size": 64}
TAIDTM_QUICK = QUICK | {
    "warmup_epochs": 8,
    "transition_epochs": 5,
    "gcn_epochs": 5,
    "k": 2,
    "min_examples": 5,
    "lr": 0.05,
    "warmup_lr": 0.05,
    "classifier_start": "sharpened",
}


def quick(method: str) -> dict[str, object]:
    """Parameters with which a method trains in a moment."""
    from crowdwise.registry import METHODS

    known = METHODS[method].__dataclass_fields__
    found = {key: value for key, value in TAIDTM_QUICK.items() if key in known}
    if method in ("forward", "reweight"):  # whose starts are others
        found.pop("classifier_start")
    return found


INTERRUPTED_TAIDTM = """
from engine_helpers import crowd, FromObserver, Interrupted, TAIDTM_QUICK
import crowdwise
def stop(record, predict):
    if (record["stage"], record["epoch"]) == ("correction", 1):
        raise Interrupted
X, annotations, _ = crowd(n=200, image=True)
settings = TAIDTM_QUICK | {"backbone": "cnn", "backbone_options": {"channels": 4, "hidden": 16}}
try:
    crowdwise.TAIDTM(**settings).fit(X, annotations, run_dir=folder, callbacks=[FromObserver(stop)])
except Interrupted:
    model = crowdwise.TAIDTM(**settings).fit(X, annotations, resume=folder)
results = {"proba": model.predict_proba(X), "losses": [record["loss"] for record in model.history_]}
"""
"""A program for ``by_one_and_by_two``."""


class Interrupted(Exception):
    """Stands in for Ctrl-C or a crash."""


def fit_and_interrupt(model, X, annotations, run_dir, stop_after: int) -> None:
    """Fit in a run directory, and stop after so many epochs."""
    seen = []

    def observer(record, predict):
        seen.append(record)
        if len(seen) == stop_after:
            raise Interrupted

    with pytest.raises(Interrupted):
        model.fit(X, annotations, run_dir=run_dir, callbacks=[FromObserver(observer)])


class FakeGraph:
    """Stands in for a CUDA graph on machines without one: replays the step on its static, padded tensors."""


def replay_static_steps(monkeypatch) -> None:
    """From now on, train as with CUDA graphs: on static tensors, padded to a fixed width."""
    from crowdwise.engine import Engine, step

    def capture(self):
        self.graph.replay = lambda: self.step(self._batch())

    original = Engine.__init__
    monkeypatch.setattr(step.torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(step.CapturedSteps, "_capture", capture)
    monkeypatch.setattr(Engine, "__init__", lambda self, *a, **k: original(self, *a, **(k | {"captured": True})))
