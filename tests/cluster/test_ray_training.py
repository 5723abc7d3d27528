"""Training by the workers of a cluster ends like that of one process, whoever is lost on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise
from cluster_helpers import SOURCES, once, two_workers
from crowdwise.cluster import Cluster
from crowdwise.errors import ConfigError, TrainingError
from crowdwise.tasks.ray_training import place
from crowdwise.tasks.train import Plan, Run, plan
from extras import needs

needs("ray", "needs Ray: pip install crowdwise[ray]")
SETTINGS = {
    "simulate.n_annotators": 12,
    "simulate.noise_rate": 0.1,
    "backbone": "mlp",
    "backbone_options": {"hidden": 32},
    "bottleneck": 8,
    "gcn_hidden": 8,
    "epochs": 3,
    "warmup_epochs": 4,
    "warmup_lr": 0.1,
    "transition_epochs": 2,
    "individual_epochs": 1,
    "gcn_epochs": 2,
}


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    with two_workers():
        yield


def on_ray(test: Any) -> Any:
    return pytest.mark.slow(pytest.mark.usefixtures("ray")(test))


def planned(**changes: Any) -> Plan:
    return plan(method="taidtm", preset="digits", settings={**SETTINGS, **changes})


def history(path: Path) -> list[dict[str, Any]]:
    lines = (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def probabilities(path: Path) -> Any:
    model = crowdwise.load(path)
    return model.predict_proba(crowdwise.datasets.load("digits").X_test)


@on_ray
def test_two_workers_equal_one_process_at_the_same_global_batch(tmp_path: Path) -> None:
    """Every stage of TAIDTM."""
    Run(tmp_path / "one", planned()).start()
    Run(tmp_path / "two", planned()).start(ray="local", workers=2)
    one, two = history(tmp_path / "one"), history(tmp_path / "two")
    assert [(r["stage"], r["epoch"]) for r in one] == [(r["stage"], r["epoch"]) for r in two]
    np.testing.assert_allclose([r["loss"] for r in one], [r["loss"] for r in two], atol=1e-5)
    np.testing.assert_allclose(probabilities(tmp_path / "one"), probabilities(tmp_path / "two"), atol=1e-3)
    names = [{str(file.relative_to(tmp_path / run)) for file in (tmp_path / run).rglob("*")} for run in ("one", "two")]
    assert names[0] == names[1]


@pytest.fixture(scope="module")
def undisturbed(ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    Run(path, planned(epochs=30)).start(ray="local", workers=2)
    return path


@on_ray
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_a_killed_worker_changes_nothing(tmp_path: Path, undisturbed: Path, which: int) -> None:
    log = tmp_path / "run" / "metrics.jsonl"

    def underway(process: int) -> bool:
        return log.exists() and len(log.read_text().splitlines()) > 12

    with once(signal.SIGKILL, "RayTrainWorker", underway, which) as killed:
        Run(tmp_path / "run", planned(epochs=30)).start(ray="local", workers=2)
    assert killed
    assert history(tmp_path / "run") == history(undisturbed)
    np.testing.assert_array_equal(probabilities(tmp_path / "run"), probabilities(undisturbed))


@on_ray
def test_an_error_of_training_is_that_of_one_process(tmp_path: Path) -> None:
    hopeless = plan(method="ce", preset="digits", settings={"lr": 1e30, "epochs": 3})
    with pytest.raises(TrainingError, match=r"stage 'classifier', epoch 1, batch .*the loss became NaN"):
        Run(tmp_path / "run", hopeless).start(ray="local", workers=2)
    with pytest.raises(TrainingError, match=r"stage 'classifier', epoch 1, batch .*the loss became NaN"):
        Run.open(tmp_path / "run").resume(ray="local", workers=2)
    assert not (tmp_path / "run" / ".ray").exists()


@on_ray
def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    """The command line, with a Ray of its own."""
    program = [
        sys.executable,
        "-c",
        "from crowdwise.cli import main; main()",
        "train",
        "--ray",
        "local",
        "--workers",
        "2",
    ]
    options = ["--method", "ce", "--preset", "digits", "--epochs", "5000", "--out", str(tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": SOURCES}
    log = tmp_path / "run" / "metrics.jsonl"
    with subprocess.Popen(
        [*program, *options],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while process.poll() is None and not (log.exists() and log.read_text()):
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert f"interrupted: go on with  crowdwise train --resume {tmp_path / 'run'}" in errors
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("device", "gpus", "workers", "expected"),
    [
        ("auto", 0, 2, (2, "cpu")),
        ("auto", 4, 2, (2, "cuda")),
        ("auto", 4, None, (4, "cuda")),
        ("auto", 1, 2, (2, "cpu")),
        ("cpu", 4, None, (8, "cpu")),
        ("cuda", 4, 4, (4, "cuda")),
    ],
)
def test_workers_have_a_gpu_each_or_none(device: str, gpus: int, workers: int | None, expected: Any) -> None:
    found = Cluster("auto", workers or 8, 8, gpus, 1)
    assert place(Plan("ce", {"device": device}), found, workers) == expected


def test_gpus_that_are_not_there() -> None:
    message = "device 'cuda' was asked for, for 2 workers, but Ray at auto has 1 GPUs"
    with pytest.raises(ConfigError, match=message):
        place(Plan("ce", {"device": "cuda"}), Cluster("auto", 2, 8, 1, 1), 2)
