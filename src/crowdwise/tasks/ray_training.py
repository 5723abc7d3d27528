"""The same training by several processes of a cluster, through Ray Train.

Every worker runs the ordinary fit under torch.distributed; rank 0 writes the run directory, which all nodes share. When a
worker is lost, Ray Train starts all of them anew, and they go on from the run directory.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from crowdwise import cluster, errors
from crowdwise.cluster import Cluster
from crowdwise.engine.progress import Progress
from crowdwise.errors import ConfigError, CrowdwiseError, LostProcessError, TrainingError
from crowdwise.storage.documents import read_json, write_json
from crowdwise.storage.lock import lock_held_elsewhere
from crowdwise.tasks.runs import METRICS
from crowdwise.tasks.train import Plan

SCRATCH, ERROR = ".ray", "error.json"
LOOK = 0.5  # seconds between looks at how far it is


def fit_on(address: str, workers: int | None, plan: Plan, path: Path) -> None:
    """Train in a run directory on Ray, from where it stands."""
    scratch = path.absolute() / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        # the threads end after the connection, without which the trainer ends
        with ThreadPoolExecutor(1) as pool, cluster.connect(address, workers) as found:
            cluster.check_nodes(path)
            workers, device = place(plan, found, workers)
            trainer = _trainer(workers, device, plan, path.absolute(), scratch)
            training = pool.submit(trainer.fit)
            with Progress(int(plan.model().verbose), plan.method) as progress:
                records: list[dict[str, Any]] = []
                while wait([training], timeout=LOOK).not_done:
                    _show(path / METRICS, progress, records)
                _show(path / METRICS, progress, records)
            failure = training.exception()
        if (scratch / ERROR).exists():
            kind, message = read_json(scratch / ERROR)
            raise getattr(errors, kind)(message)
        if failure is not None:
            raise TrainingError(f"training on Ray failed: {str(failure).strip().splitlines()[-1]}") from failure
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def place(plan: Plan, found: Cluster, workers: int | None) -> tuple[int, str]:
    """How many workers, and whether on GPUs: a whole one for each, or none."""
    wanted = str(plan.parameters.get("device", "auto"))
    if wanted.startswith("cuda") and found.gpus < (workers or 1):
        raise ConfigError(
            f"device {wanted!r} was asked for, for {workers or 1} workers, but Ray at {found.address} has "
            f"{found.gpus} GPUs",
            parameter="device",
        )
    if wanted == "cpu" or found.gpus < (workers or 1):
        return found.workers, "cpu"
    return workers or found.gpus, "cuda"


def _trainer(workers: int, device: str, plan: Plan, path: Path, scratch: Path) -> Any:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    return TorchTrainer(
        _work,
        train_loop_config={"path": str(path), "plan": dataclasses.asdict(plan), "device": device},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=device == "cuda"),
        run_config=RunConfig(
            name="train", storage_path=str(scratch), failure_config=FailureConfig(max_failures=cluster.RETRIES)
        ),
    )


def _work(settings: dict[str, Any]) -> None:
    """One of the workers. An error of ours would come again: it is left in a file instead of starting anew."""
    path = Path(settings["path"])
    try:
        plan = Plan(**settings["plan"])
        with lock_held_elsewhere(path):  # by the process that waits for the trainer
            plan.fit(plan.load(path), path, device=settings["device"])
    except LostProcessError:
        raise  # Ray starts all workers again
    except CrowdwiseError as error:
        write_json(path / SCRATCH / ERROR, [type(error).__name__, str(error)])


def _show(log: Path, progress: Progress, shown: list[dict[str, Any]]) -> None:
    """Show the epochs that a run directory has, but for those ``shown``, to which they are added."""
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
        fresh = [json.loads(line) for line in lines[len(shown) :]]
    except (OSError, ValueError):  # not there, or just being written
        return
    for record in fresh:
        if not shown or record["index"] != shown[-1]["index"]:
            progress.stage(record["stage"], None)
        progress.epoch(record)
        shown.append(record)
