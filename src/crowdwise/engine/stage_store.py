"""Results of finished stages and checkpoints of the current one: written during a run, and read when it is resumed."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crowdwise.engine import distributed
from crowdwise.engine.checkpoint import (
    RunDirectory,
    SharedStages,
    Stored,
    prefixed,
    read_tensors,
    stage_of,
    write_tensors,
)
from crowdwise.engine.optimisers import optimiser_tensors
from crowdwise.engine.stage import Stage, StageResult
from crowdwise.errors import CrowdwiseWarning, ModelFileError
from crowdwise.storage.files import rename, storing

_SLOW_WRITE = 0.02  # seconds from which a checkpoint is not written after every epoch


class StageStore:
    """Results of stages and checkpoints of the current one, in a run directory, in a shared folder, in both or nowhere.

    The first process writes, and decides for all what is read. Every file records the checksum of the previous stage's
    weights, and is only used with those weights.
    """

    def __init__(self, run: RunDirectory | None, shared: SharedStages | None, device: torch.device) -> None:
        self.run, self.shared, self.device = run, shared, device
        self.index, self.results = -1, list[Path]()
        self.after = ""  # checksum of the weights of the stage before
        self.repairing = (
            False  # whether there are checkpoints of a later stage, which are worth more than those of this one
        )
        self.diverged = False  # whether some stage is trained again upon other weights, and so are all after it
        self._written, self._writing = -math.inf, 0.0  # when the last checkpoint was written, and how long it took

    def open(self, index: int, stage: Stage) -> None:
        """Turn to the next stage."""
        own = self.run.stage_file(index) if self.run is not None else None
        shared = self.shared.file(stage.name, index, stage.shared) if self.shared is not None else None
        self.index, self.results = index, [path for path in (own, shared) if path is not None]
        files = self.run.checkpoint_files if self.run is not None else ()
        self.repairing = any((stage_of(path) or 0) > index for path in files)

    def result(self, stage: Stage) -> Stored | None:
        """The weights and the result of the stage, if it was finished before."""
        found = self._first_good(stage, self.results, "stage")
        if found is not None:
            self.after = found.digest
        return found

    def checkpoint(self, stage: Stage) -> Stored | None:
        """The last good checkpoint of the stage."""
        return self._first_good(stage, self.run.checkpoint_files, "checkpoint") if self.run is not None else None

    def save(
        self,
        result: StageResult,
        modules: Mapping[str, nn.Module],
        optimisers: list[torch.optim.Optimizer],
        best: Mapping[str, Mapping[str, Tensor]],
    ) -> None:
        """Write a checkpoint."""
        if self.run is None or distributed.rank() != 0:
            return
        started = time.perf_counter()
        if self._writing > _SLOW_WRITE and started - self._written < 20 * self._writing:
            return  # large networks with short epochs: at most a twentieth of the time goes into checkpoints
        if self.repairing and not self.diverged:
            return
        tensors = prefixed("optimiser", optimiser_tensors(optimisers))
        for name, module in modules.items():
            tensors |= prefixed(f"module.{name}", module.state_dict())
            tensors |= prefixed(f"best.{name}", best.get(name, {}))
        self.run.write_checkpoint(tensors, self._about("checkpoint", result))
        self._written = time.perf_counter()
        self._writing = self._written - started

    def finish(self, stage: Stage, result: StageResult) -> None:
        """Write the weights and the result of the stage."""
        if not self.results or distributed.rank() != 0:
            return
        tensors: dict[str, Tensor] = {}
        for name, group in stage.groups.items():
            tensors |= prefixed(name, group.module.state_dict())
        about = self._about("stage", result)
        for path in self.results:
            self.after = write_tensors(path, tensors, about)

    def _about(self, kind: str, result: StageResult) -> dict[str, Any]:
        return {"kind": kind, "index": self.index, "after": self.after, "result": vars(result)}

    def _first_good(self, stage: Stage, paths: tuple[Path, ...] | list[Path], kind: str) -> Stored | None:
        found, number = None, -1
        if distributed.rank() == 0:
            for at, path in enumerate(paths):
                found = self._good(path, kind)
                if found is not None:
                    number = at
                    break
        number = distributed.as_first(number, self.device)
        if number < 0:
            return None
        found = found or read_tensors(paths[number])
        name = found.about["result"]["name"]
        if name != stage.name:
            raise ModelFileError(f"{paths[number]} is of stage {name!r}, this fit has {stage.name!r}: start a new run")
        return found

    def _good(self, path: Path, kind: str) -> Stored | None:
        """The content of a file of the current stage, if it is undamaged and was built on the current weights."""
        if not path.exists() or stage_of(path) not in (self.index, None):
            return None
        try:
            stored = read_tensors(path)
            if stored.about.get("kind") != kind:
                raise ModelFileError(f"{path} is a {stored.about.get('kind')} of a run, not a {kind}")
        except ModelFileError as error:
            _warn(f"{error}; using what was written before it")
            if self.run is not None and path in self.run.checkpoint_files:
                with storing(path):  # else it would take the place of the good one before it
                    rename(path, self.run.damaged_file)
            return None
        if stored.about.get("after") != self.after:
            self.diverged = True
            _warn(f"{path} was trained on other weights of the previous stage: this stage is trained again")
            return None
        return stored


def _warn(message: str) -> None:
    warnings.warn(message, CrowdwiseWarning, stacklevel=2)
