"""Cells of a benchmark as tasks of Ray, with CPUs and shares of GPUs.

All nodes share the folder of the benchmark. So a cell whose worker is lost goes on elsewhere, from its last epoch, and the
first stages that methods of a family have in common are trained once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crowdwise.bench.cells import Cell
from crowdwise.bench.pool import Pool, attempt, describe
from crowdwise.bench.records import fail, folder_of, read_record
from crowdwise.cluster.connection import Cluster, check_nodes, connect, remote
from crowdwise.errors import ConfigError
from crowdwise.storage.lock import lock_held_elsewhere

LOOK = 1.0  # seconds between looks at what runs


class RayPool(Pool):
    """Tasks of Ray, each a cell; the next of its family begins when it has ended."""

    def __init__(self, *arguments: Any, address: str, gpus: float | None) -> None:
        super().__init__(*arguments)
        self.address, self.gpus = address, gpus
        self.running: dict[Any, deque[Cell]] = {}

    def underway(self) -> Iterable[deque[Cell]]:
        return self.running.values()

    def run(self) -> None:
        import ray

        with connect(self.address, self.jobs) as found:
            check_nodes(self.out)
            threads, gpus = self.threads or 1, share_of_gpu(self.gpus, found)
            most = min(found.workers, found.cpus // threads, int(found.gpus / gpus) if gpus else found.workers)
            if most < 1:
                raise ConfigError(
                    f"a run takes {threads} CPUs and {gpus:g} GPUs, and the Ray cluster at {self.address} has "
                    f"{found.cpus} and {found.gpus}"
                )
            work = remote(_cell, num_cpus=threads, num_gpus=gpus)
            common = self.out.absolute(), threads, found.per_node
            try:
                while self.families or self.running:
                    while self.families and len(self.running) < most:
                        self._start(work, self.families.popleft(), common)
                    for ended in ray.wait(list(self.running), timeout=LOOK)[0]:
                        family = self.running.pop(ended)
                        self._end(family, self._record(ended, family[0]))
                        if family:
                            self._start(work, family, common)
                    for family in self.running.values():
                        self._begun(family[0], _stage(folder_of(self.out, family[0])))
            finally:
                for left in self.running:
                    ray.cancel(left, force=True)

    def _start(self, work: Any, family: deque[Cell], common: tuple[Any, ...]) -> None:
        folder_of(self.out, family[0]).mkdir(parents=True, exist_ok=True)  # for its record, and if only of a failure
        self.running[work.remote(family[0], *common)] = family
        self._begun(family[0], "starting")

    def _record(self, ended: Any, cell: Cell) -> dict[str, Any]:
        """What a task returned; where it was lost too often, that it failed."""
        import ray

        try:
            record: dict[str, Any] = ray.get(ended)
            return record
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[0]
            lost = f"its worker was lost, also when it was tried again ({type(error).__name__}: {reason})"
            return fail(cell, self.out, lost, str(error))


def share_of_gpu(asked: float | None, found: Cluster) -> float:
    """GPUs of a run: what was asked for, or a whole one where there are GPUs."""
    if asked is None:
        return 1.0 if found.gpus else 0.0
    if asked < 0 or (asked > 1 and asked != int(asked)):
        raise ConfigError(f"gpus_per_run must be between 0 and 1, or a whole number; got {asked:g}")
    return asked


def _cell(cell: Cell, out: Path, threads: int, sharing: int) -> dict[str, Any]:
    """Run a cell, or return the record that a task left which was lost afterwards."""
    import torch

    record = read_record(folder_of(out, cell))
    if record is not None and "error" not in record:
        return record
    torch.set_num_threads(threads)
    with lock_held_elsewhere(out):  # by the process that started the benchmark
        return attempt(cell, out, sharing, lambda stage: None)


def _stage(folder: Path) -> str:
    """The last epoch that a cell has noted in its run directory."""
    for log in folder.glob("run-*/metrics.jsonl"):
        try:
            return describe(json.loads(log.read_text(encoding="utf-8").splitlines()[-1]))
        except (OSError, IndexError, ValueError, KeyError):  # it is just being written
            continue
    return "starting"
