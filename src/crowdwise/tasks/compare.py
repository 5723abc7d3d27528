"""Find out which method suits some data, and what to type next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise import comparison
from crowdwise.comparison import Comparison
from crowdwise.registry import METHODS
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_workers
from crowdwise.tasks.train import Plan

Progress = Callable[[str, int, int], None]
"""Called after every fit with the method, the number of fits so far, and the number expected."""


@dataclass(frozen=True)
class Compared:
    """The comparison, and the arguments of `tasks.train.plan` for what it recommends; none where that is no method."""

    comparison: Comparison
    training: dict[str, str]


def compare(
    plan: Plan,
    *,
    methods: Sequence[str] | None = None,
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

    Gold labels judge where the annotations come with some. The other arguments are those of `crowdwise.compare`; ``ray`` runs
    the fits on Ray.
    """
    check_workers(ray, workers)
    data = plan.load()
    observer.note(data.message)
    known = None
    if data.gold is not None:
        rows, classes = data.gold
        known = dict(zip(data.annotations.instances[rows].tolist(), classes.tolist(), strict=True))

    def told(fit: Any, done: int, expected: int) -> None:
        if progress is not None:
            progress(fit.method, done, expected)

    with _cluster(ray, workers) as processes:
        found = comparison.compare(
            data.X,
            data.annotations,
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
    return Compared(found, training_of(plan, found.recommended))


def training_of(plan: Plan, method: str) -> dict[str, str]:
    """Arguments of `tasks.train.plan` that train ``method`` on the data of a plan, but for how its annotations are read."""
    if method not in METHODS:
        return {}
    found = {"annotations": plan.annotations, "method": method, "data": plan.data.get("name"), "inputs": plan.inputs}
    found |= {"ids": plan.ids, "text": plan.text, "image": plan.image, "root": plan.root}
    here = f"{Path.cwd()}/"  # a path below the current folder is given as one would type it
    return {name: str(value).removeprefix(here) for name, value in found.items() if value is not None}


@contextmanager
def _cluster(ray: str | None, workers: int | None) -> Iterator[int | None]:
    """Fits go to Ray, where that was asked for, to so many workers."""
    if ray is None:
        yield None
        return
    from crowdwise.cluster.connection import connect, parallel_on_ray

    with connect(ray, workers) as found, parallel_on_ray():
        yield found.workers
