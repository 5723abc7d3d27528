"""Data-parallel training under torch.distributed, with the result of one process at the same global batch.

Every process knows the whole plan of an epoch and takes its share of each batch; losses are divided by the counts of the
global batch, so that summing gradients over processes gives the gradient of the global batch exactly.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from crowdwise.errors import ConfigError, LostProcessError, spelled

PATIENCE = 600.0  # seconds without an answer after which another process is given up
ENVIRONMENT = "CROWDWISE_PEER_TIMEOUT"  # other seconds, where one process prepares its data for much longer than others


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def leads() -> bool:
    """Whether this process is the first of its run, also before it has joined the others."""
    if dist.is_available() and dist.is_initialized():
        return rank() == 0
    return int(os.environ.get("WORLD_SIZE", "1")) == 1 or int(os.environ.get("RANK", "0")) == 0


def as_first(value: int, device: torch.device) -> int:
    """What the first process says."""
    if world_size() == 1:
        return value
    said = torch.tensor(value, device=device)
    with _others():
        dist.broadcast(said, 0)
        return int(said)


def join(device: torch.device) -> torch.device:
    """Join the process group that ``torchrun`` describes in the environment, if any; the device of this process."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if dist.is_available() and not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        own_gpus = device.type == "cuda" and torch.cuda.device_count() >= local
        backend = "nccl" if own_gpus else "gloo"  # NCCL refuses two processes on one GPU
        with _others():
            dist.init_process_group(backend, timeout=timedelta(seconds=patience()))
    if device.type == "cuda" and device.index is None and world_size() > 1:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    return device


def patience() -> float:
    """Seconds after which a process that does not answer is given up."""
    given = os.environ.get(ENVIRONMENT)
    try:
        seconds = PATIENCE if given is None else float(given)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 1e8:
        raise ConfigError(f"{ENVIRONMENT} must be a number of seconds, 1 or more, got {given!r}")
    return seconds


@contextmanager
def _others() -> Iterator[None]:
    """Errors of torch while processes talk to each other, as one that says what has happened, and how to go on."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise LostProcessError(
            f"process {os.environ.get('RANK', '0')} of {os.environ.get('WORLD_SIZE', '1')}: another process of this training "
            f"has ended, or has not answered for {patience():g} seconds ({ENVIRONMENT}): see that all machines run and "
            f"reach each other, and start all processes again; a run directory continues from its last epoch "
            f"({spelled('resume', 'RUN_DIR')}); torch says: {said[0]}"
        ) from error


def _add_up(value: Tensor) -> None:
    """Sum a tensor over processes, in place."""
    with _others():
        dist.all_reduce(value)


class _SumOverRanks(torch.autograd.Function):
    """Sum over processes. Losses of processes are summed too, so the gradient counts once for each process."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        _add_up(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        _add_up(total)
        return total


def sum_over_ranks(value: Tensor) -> Tensor:
    """The sum over processes, differentiable; the value itself with one process."""
    if world_size() == 1:
        return value
    total: Tensor = _SumOverRanks.apply(value)  # type: ignore[no-untyped-call]
    return total


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add up gradients over processes in place, in one message."""
    if world_size() == 1:
        return
    parameters = list(parameters)
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    _add_up(flat)
    offset = 0
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad.copy_(flat[offset : offset + parameter.numel()].view_as(parameter))
        offset += parameter.numel()


def global_batch_norm(module: nn.Module) -> None:
    """Let the batch norms of ``module`` take their statistics over all processes (torch's own version is GPU-only)."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            setattr(layer, _norm_of(layer), _global_norm.__get__(layer))


def _norm_of(layer: nn.Module) -> str:
    """The method that normalises: ours do more in ``forward``."""
    return "normalise" if hasattr(layer, "normalise") else "forward"


def _global_norm(self: nn.modules.batchnorm._BatchNorm, x: Tensor) -> Tensor:
    if not self.training or world_size() == 1:
        result: Tensor = getattr(type(self), _norm_of(self))(self, x)
        return result
    axes = [0, *range(2, x.ndim)]
    shape = [1, -1, *[1] * (x.ndim - 2)]
    count = sum_over_ranks(torch.tensor(float(x.numel() // x.shape[1]), device=x.device))
    wide = x.float()
    mean = sum_over_ranks(wide.sum(axes)) / count
    centred = wide - mean.view(shape)
    variance = sum_over_ranks(centred.square().sum(axes)) / count
    with torch.no_grad():
        momentum = self.momentum if self.momentum is not None else 0.1
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1).clamp_min(1), momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
    result = centred * (variance + self.eps).rsqrt().view(shape)
    if self.affine:
        result = result * self.weight.view(shape) + self.bias.view(shape)
    return result.to(x.dtype)
