"""Devices, precision, and random numbers that leave the global state alone."""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from crowdwise.errors import ConfigError

S = TypeVar("S", bound=Tensor)
_GENERATORS = threading.RLock()  # who draws from torch's default generators
_SIDE_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


def resolve_device(device: str | torch.device) -> torch.device:
    """``"auto"`` is the first GPU where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {device!r}; use 'auto', 'cpu' or 'cuda'") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {str(device)!r} was asked for, but this machine has no usable CUDA device")
    return resolved


def resolve_precision(precision: str, device: torch.device) -> torch.dtype:
    """The type in which convolutions run: bfloat16 on GPUs that have it, else float32."""
    if precision not in ("auto", "bf16", "fp32"):
        raise ConfigError(f"unknown precision {precision!r}; use 'auto', 'bf16' or 'fp32'")
    half = precision == "bf16" or (
        precision == "auto" and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    )
    return torch.bfloat16 if half else torch.float32


def has_quick_bfloat16(device: torch.device) -> bool:
    """Whether this is a CPU with instructions for products in bfloat16; without them they take longer than in float32."""
    known: Callable[[], bool] = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return device.type == "cpu" and known()


def derive_seed(seed: int, *keys: int | str) -> int:
    """An independent seed for each (stage, epoch, ...), so that nothing depends on what was drawn before.

    >>> derive_seed(0, "warm-up", 1) == derive_seed(0, "warm-up", 1) != derive_seed(0, "warm-up", 2)
    True
    """
    words = [zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)[0]) >> 1


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """torch's default generators seeded inside, restored outside.

    They belong to the whole process: other threads wait, so that fits in threads draw what they draw one after the other.
    """
    if device.type == "cuda":
        with _GENERATORS, torch.random.fork_rng(devices=[device]):
            torch.manual_seed(seed)
            yield
        return
    with _GENERATORS:  # torch.manual_seed would note the stack for every kind of device, a millisecond each time
        before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.default_generator.set_state(before)


def side_by_side(first: Callable[[], S], second: Callable[[], S]) -> tuple[S, S]:
    """Evaluate two independent networks, on two streams while a CUDA graph is captured, so that small kernels overlap."""
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return first(), second()
    main = torch.cuda.current_stream()
    side = _SIDE_STREAMS.setdefault(main.device, torch.cuda.Stream(main.device))
    side.wait_stream(main)
    with torch.cuda.stream(side):
        result = second()
    other = first()
    main.wait_stream(side)
    result.record_stream(main)
    return other, result
