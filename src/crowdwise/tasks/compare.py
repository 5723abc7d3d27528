"""Find out which method suits some data, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise import comparison
from crowdwise.comparison import Comparison
from crowdwise.data.gold import read_gold
from crowdwise.data.training import TrainingData
from crowdwise.registry import METHODS
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_workers
from crowdwise.tasks.train import Plan

Progress = Callable[[str, int, int], None]
"""Called after every fit with the method, the number of fits so far, and the number expected."""


@dataclass(frozen=True)
class Compared:
    """The comparison, and the command that trains what it recommends; None where no command does."""

    comparison: Comparison
    command: str | None


def compare(
    plan: Plan,
    *,
    methods: Sequence[str] | None = None,
    gold: str | Path | None = None,
    folds: int = 5,
    seconds: float | None = 150.0,
    jobs: int | None = None,
    folder: str | Path | None = None,
    ray: str | None = None,
    workers: int | None = None,
    observer: Observer = SILENT,
    progress: Progress | None = None,
) -> Compared:
    """Compare methods on the data of a plan (see `crowdwise.tasks.train.plan`, whose method does not matter here).

    ``gold`` is a table of true classes of some instances; without it, a gold column of the annotations is used where there is
    one. The other arguments are those of `crowdwise.compare`; ``ray`` runs the fits on Ray.
    """
    check_workers(ray, workers)
    data = plan.load()
    observer.note(data.message)
    crowd, known = _gold(data, gold, plan, observer)

    def told(fit: Any, done: int, expected: int) -> None:
        if progress is not None:
            progress(fit.method, done, expected)

    with _cluster(ray, workers) as processes:
        found = comparison.compare(
            data.X,
            crowd,
            methods=methods,
            gold=known,
            folds=folds,
            seed=plan.seed,
            seconds=seconds,
            jobs=processes or jobs,
            folder=folder,
            device=plan.parameters.get("device", "auto"),
            observer=told,
        )
    return Compared(found, train_command(plan, found.recommended))


def train_command(plan: Plan, method: str) -> str | None:
    """The command that trains ``method`` on the data of a plan."""
    if method not in METHODS:
        return None
    words = ["crowdwise", "train", "--method", method]
    options = {"data": plan.data.get("name"), "inputs": plan.inputs, "annotations": plan.annotations, "ids": plan.ids}
    options |= {name: value for name, value in plan.reading.items() if not isinstance(value, bool)}
    for name, value in options.items():
        words += [f"--{name}", _relative(str(value))] if value is not None else []
    return shlex.join(words + ([] if plan.reading.get("models", True) else ["--no-models"]))


def _gold(
    data: TrainingData, path: str | Path | None, plan: Plan, observer: Observer
) -> tuple[Any, dict[Any, Any] | None]:
    """The crowd, and the true classes of some instances by their ids."""
    if path is not None:
        found = read_gold(Path(path), data.annotations, plan.reading.get("instance"), plan.reading.get("label"))
        observer.note(found.message)
        return found.annotations, found.gold
    if data.gold is None:
        return data.annotations, None
    rows, classes = data.gold
    return data.annotations, dict(zip(data.annotations.instances[rows].tolist(), classes.tolist(), strict=True))


@contextmanager
def _cluster(ray: str | None, workers: int | None) -> Iterator[int | None]:
    """Fits go to Ray, where that was asked for, to so many workers."""
    if ray is None:
        yield None
        return
    from joblib import parallel_config

    from crowdwise.cluster.connection import connect, joblib_backend

    with connect(ray, workers) as found, parallel_config(joblib_backend()):
        yield found.workers


def _relative(path: str) -> str:
    """A path below the current folder as one would type it."""
    here = f"{Path.cwd()}/"
    return path.removeprefix(here)
