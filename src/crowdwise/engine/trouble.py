"""What stops a stage, in words: numbers that are not finite, and a device without memory."""

from __future__ import annotations

import math

import numpy as np
import torch

from crowdwise.engine.problem import Problem
from crowdwise.engine.stage import Stage
from crowdwise.engine.step import BadNumbersError
from crowdwise.engine.tensors import Units
from crowdwise.errors import NonFiniteError, TrainingError, shorten

_SHOWN = 8  # instances of a batch that are named


def bad_numbers(
    stage: Stage, epoch: int, loss: float, found: BadNumbersError | None, problem: Problem, dtype: torch.dtype
) -> TrainingError:
    """Why training stopped, where, with which instances, and what to do."""
    place, advice = f"stage {stage.name!r}, epoch {epoch + 1}", _remedy(stage, problem, dtype)
    if found is None:  # too large for a second look, or all went well the second time
        what = "weights" if math.isfinite(loss) else "the loss"
        return TrainingError(f"{place}: {what} became NaN or infinite: {advice}")
    ids = instance_ids(problem, stage.units, found.unit)
    limit = 20 if found.what == BadNumbersError.INPUTS else _SHOWN
    return TrainingError(
        f"{place}, batch {found.batch + 1}: {found.what} became NaN or infinite, with the instances "
        f"{shorten(ids, limit)}: {advice}"
    )


def bad_inputs(stage: Stage, epoch: int, error: NonFiniteError, problem: Problem) -> NonFiniteError:
    """The same error with stage, epoch and the ids of the instances; it has rows of X."""
    rows = torch.tensor(error.instances, device=problem.device)
    ids = _ids(problem, rows)
    return NonFiniteError(f"stage {stage.name!r}, epoch {epoch + 1}: {error.place}", ids)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether a device had too little memory; libraries say so in their own words, and ending a recording hides it."""
    if error is None:
        return False
    said = isinstance(error, RuntimeError) and (
        "CUDA error: out of memory" in str(error) or "ALLOC_FAILED" in str(error)
    )
    return isinstance(error, torch.OutOfMemoryError) or said or is_out_of_memory(error.__context__)


def out_of_memory(stage: Stage | None, error: RuntimeError) -> TrainingError:
    """What to lower; ``stage`` is the one at hand, or the last one."""
    where, size = ("", "") if stage is None else (f"stage {stage.name!r}: ", f" (now {stage.batch_size})")
    return TrainingError(
        f"{where}the device has too little memory: lower batch_size{size}, choose a smaller backbone, or let X be a map-style "
        f"data set, which stays on the host, and let nothing else use the device; torch says: {str(error).partition('. ')[0]}"
    )


def instance_ids(problem: Problem, units: Units, unit: torch.Tensor) -> list[object]:
    """Ids of the instances of some of a stage's units, each once."""
    return _ids(problem, units.rows[unit])


def _ids(problem: Problem, rows: torch.Tensor) -> list[object]:
    at = np.flatnonzero(np.isin(problem.train.instance.cpu().numpy(), rows.cpu().numpy()))
    ids: list[object] = problem.annotations.instances[at].tolist()
    return ids


def _remedy(stage: Stage, problem: Problem, dtype: torch.dtype) -> str:
    rates = ", ".join(sorted({f"{group.lr:g}" for group in stage.groups.values()}))
    advice = [f"lower lr (of this stage: {rates})"]
    if not problem.prepare.standardise:
        advice.append("scale the inputs (prepare='standardise')")
    if dtype != torch.float32:
        advice.append("use precision='fp32'")
    return " or ".join(advice)
