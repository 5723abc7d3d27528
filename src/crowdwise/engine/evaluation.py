"""Networks in evaluation mode over many instances, and inputs that are ready for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from crowdwise.engine.problem import Problem
from crowdwise.engine.tensors import Inputs, ResidentInputs

_EVALUATION_BATCHES = (4096, 256, 16)  # sizes, from the usual one to that for a device with little memory
_CACHED, _CACHED_ROWS = 1 << 18, 2048  # values, and feature vectors, at a time on the CPU, which stay in its caches
_LEAST_ROWS = 256  # of feature vectors at a time
_SCALED = 1 << 30  # bytes of features up to which a scaled copy is kept


def scaled_inputs(problem: Problem) -> Inputs | None:
    """Feature vectors scaled once for all epochs, on the CPU, where scaling a batch takes as long as learning from it."""
    inputs = problem.train.inputs
    if not isinstance(inputs, ResidentInputs) or not inputs.resident or 4 * inputs.data.numel() > _SCALED:
        return None
    if problem.device.type != "cpu" or len(problem.shape) != 1:
        return None
    return ResidentInputs(problem.prepare(inputs.data))


def evaluate(
    module: nn.Module,
    inputs: Inputs,
    instance: Tensor,
    prepare: Callable[[Tensor], Tensor],
    *,
    dtype: torch.dtype = torch.float32,
    function: Callable[[Tensor], Tensor] | None = None,
    everything: bool = False,
) -> Tensor:
    """``function`` (by default the module itself) in evaluation mode over the given instances: (len(instance), ...).

    Batches are smaller where the device has too little memory for the usual ones. ``everything``: ``instance`` is all of the
    inputs, in order.
    """
    was_training = module.training
    module.eval()
    function = function or module
    resident = isinstance(inputs, ResidentInputs) and inputs.resident
    cached = _EVALUATION_BATCHES[0]
    if instance.device.type == "cpu" and resident and (none := inputs.take(instance[:0])).ndim == 2:
        cached = min(max(_CACHED // max(none.shape[1], 1), _LEAST_ROWS), _CACHED_ROWS)
    for batch_size in _EVALUATION_BATCHES:
        batch_size = min(batch_size, cached)
        try:
            with torch.no_grad(), torch.autocast(instance.device.type, dtype=dtype, enabled=dtype != torch.float32):
                if everything and isinstance(inputs, ResidentInputs) and resident:
                    rows = inputs.data.split(batch_size)  # views, not copies
                else:
                    rows = inputs.stream(list(instance.split(batch_size)))
                parts = [function(channels_last(prepare(raw))) for raw in rows]
            break
        except torch.OutOfMemoryError:
            if batch_size == _EVALUATION_BATCHES[-1]:
                raise
    module.train(was_training)
    return torch.cat(parts) if parts else torch.zeros(0, device=instance.device)


@contextlib.contextmanager
def no_denormals() -> Iterator[None]:
    """Reconstructions of low rank leave tiny numbers that slow CPUs down. For stages alone: LAPACK needs denormals."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 and x.is_cuda else x
