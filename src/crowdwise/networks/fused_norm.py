"""Batch norm, a shortcut and ReLU in one go on NVIDIA GPUs, by Triton kernels.

In plain PyTorch a residual network spends about as long on these as on its convolutions: each reads and writes all activations.
Here the statistics read them once, and everything else reads and writes them once, forward and backward.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_CHANNELS = 64  # of a program: 128 bytes of bfloat16 side by side
_ROWS = 64
_WARPS = 8
_PROGRAMS = 264  # that take sums: two for each of 132 multiprocessors
_FEW = 16  # channels of a program that adds up sums


@triton.jit  # type: ignore[untyped-decorator]
def _moments(x, sums, rows, per_program, C, ROWS: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums and sums of squares of some rows of x (rows, C)."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    squares = tl.zeros((ROWS, CHANNELS), tl.float32)
    first = part * per_program
    last = tl.minimum(first + per_program, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        value = tl.load(x + row[:, None] * C + channel[None, :], mask=inside, other=0.0).to(tl.float32)
        total += value
        squares += value * value
    tl.store(sums + part * 2 * C + channel, tl.sum(total, 0))
    tl.store(sums + part * 2 * C + C + channel, tl.sum(squares, 0))


@triton.jit  # type: ignore[untyped-decorator]
def _statistics(  # type: ignore[no-untyped-def]
    sums, mean, scale, running_mean, running_var, rows, parts, C, momentum, eps,
    PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / standard deviation from the sums; running ones follow."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    part = tl.arange(0, PARTS)[:, None]
    at = sums + part * 2 * C + channel[None, :]
    average = tl.sum(tl.load(at, mask=part < parts, other=0.0), 0) / rows
    square = tl.sum(tl.load(at + C, mask=part < parts, other=0.0), 0) / rows
    variance = tl.maximum(square - average * average, 0.0)
    tl.store(mean + channel, average)
    tl.store(scale + channel, 1.0 / tl.sqrt(variance + eps))
    before = tl.load(running_mean + channel)
    tl.store(running_mean + channel, before + momentum * (average - before))
    before = tl.load(running_var + channel)
    tl.store(running_var + channel, before + momentum * (variance * (rows / (rows - 1.0)) - before))


@triton.jit  # type: ignore[untyped-decorator]
def _apply(  # type: ignore[no-untyped-def]
    x, residual, y, mean, scale, weight, bias, rows, C,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    factor = tl.load(scale + channel) * tl.load(weight + channel)
    offset = tl.load(bias + channel) - tl.load(mean + channel) * factor
    at = row[:, None] * C + channel[None, :]
    inside = (row < rows)[:, None]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * factor[None, :] + offset[None, :]
    if RESIDUAL:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _gradient_sums(  # type: ignore[no-untyped-def]
    dy, x, y, g, sums, mean, scale, weight, bias, rows, per_program, C,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sums of g and of g times the normalised x, where g is the gradient before ReLU: stored where a shortcut needs it."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    average, unit = tl.load(mean + channel), tl.load(scale + channel)
    factor, offset = tl.load(weight + channel), tl.load(bias + channel)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    products = tl.zeros((ROWS, CHANNELS), tl.float32)
    first = part * per_program
    last = tl.minimum(first + per_program, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        at = row[:, None] * C + channel[None, :]
        gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - average[None, :]) * unit[None, :]
        if RELU:
            if RESIDUAL:
                above = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
            else:
                above = normal * factor[None, :] + offset[None, :]
            gradient = tl.where(above > 0, gradient, 0.0)
        if RESIDUAL:
            tl.store(g + at, gradient.to(g.dtype.element_ty), mask=inside)
        total += gradient
        products += gradient * normal
    tl.store(sums + part * 2 * C + channel, tl.sum(total, 0))
    tl.store(sums + part * 2 * C + C + channel, tl.sum(products, 0))


@triton.jit  # type: ignore[untyped-decorator]
def _collect(sums, dbias, dweight, parts, C, PARTS: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up the sums of all programs."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    part = tl.arange(0, PARTS)[:, None]
    at = sums + part * 2 * C + channel[None, :]
    tl.store(dbias + channel, tl.sum(tl.load(at, mask=part < parts, other=0.0), 0))
    tl.store(dweight + channel, tl.sum(tl.load(at + C, mask=part < parts, other=0.0), 0))


@triton.jit  # type: ignore[untyped-decorator]
def _gradient(  # type: ignore[no-untyped-def]
    g, x, dx, mean, scale, weight, bias, dbias, dweight, rows, C,
    MASK: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    average, unit, factor = tl.load(mean + channel), tl.load(scale + channel), tl.load(weight + channel)
    at = row[:, None] * C + channel[None, :]
    inside = (row < rows)[:, None]
    gradient = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - average[None, :]) * unit[None, :]
    if MASK:
        gradient = tl.where(normal * factor[None, :] + tl.load(bias + channel)[None, :] > 0, gradient, 0.0)
    shift, turn = tl.load(dbias + channel) / rows, tl.load(dweight + channel) / rows
    value = (gradient - shift[None, :] - normal * turn[None, :]) * (factor * unit)[None, :]
    tl.store(dx + at, value.to(dx.dtype.element_ty), mask=inside)


class FusedNorm(torch.autograd.Function):
    """relu(batch_norm(x) + residual) of activations (N, C, H, W) in channels-last order."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        running: tuple[Tensor, Tensor],
        momentum: float,
        eps: float,
        relu: bool,
    ) -> Tensor:
        channels = x.shape[1]
        rows = x.numel() // channels
        y = torch.empty_like(x)
        mean, scale = torch.empty(2, channels, device=x.device).unbind()
        parts, per_program, sums = _split(x, rows, channels)
        blocks, few = channels // _CHANNELS, channels // _FEW
        tile = {"ROWS": _ROWS, "CHANNELS": _CHANNELS, "num_warps": _WARPS}
        _moments[parts, blocks](x, sums, rows, per_program, channels, **tile)
        all_parts = {"PARTS": triton.next_power_of_2(parts), "CHANNELS": _FEW, "num_warps": _WARPS}
        _statistics[(few,)](sums, mean, scale, *running, float(rows), parts, channels, momentum, eps, **all_parts)
        grid = triton.cdiv(rows, _ROWS), blocks
        _apply[grid](x, residual, y, mean, scale, weight, bias, rows, channels, residual is not None, relu, **tile)
        ctx.save_for_backward(x, y if residual is not None and relu else None, weight, bias, mean, scale)
        ctx.residual, ctx.relu = residual is not None, relu
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, y, weight, bias, mean, scale = ctx.saved_tensors
        dy = gradients[0].contiguous(memory_format=torch.channels_last)
        channels = x.shape[1]
        rows = x.numel() // channels
        parts, per_program, sums = _split(x, rows, channels)
        blocks, few = channels // _CHANNELS, channels // _FEW
        tile = {"ROWS": _ROWS, "CHANNELS": _CHANNELS, "num_warps": _WARPS}
        masked = ctx.residual and ctx.relu
        g = torch.empty_like(x) if masked else dy
        given = mean, scale, weight, bias
        _gradient_sums[parts, blocks](dy, x, y, g, sums, *given, rows, per_program, channels, masked, ctx.relu, **tile)
        dbias, dweight = torch.empty(2, channels, device=x.device).unbind()
        all_parts = {"PARTS": triton.next_power_of_2(parts), "CHANNELS": _FEW, "num_warps": _WARPS}
        _collect[(few,)](sums, dbias, dweight, parts, channels, **all_parts)
        dx = torch.empty_like(x)
        grid = triton.cdiv(rows, _ROWS), blocks
        _gradient[grid](g, x, dx, *given, dbias, dweight, rows, channels, ctx.relu and not masked, **tile)
        return dx, g if ctx.residual else None, dweight, dbias, None, None, None, None


def _split(x: Tensor, rows: int, channels: int) -> tuple[int, int, Tensor]:
    """How many programs share the rows of a block of channels, rows of each, and room for their sums (parts, 2, C)."""
    parts = max(min(_PROGRAMS * _CHANNELS // channels, triton.cdiv(rows, _ROWS)), 1)
    per_program = triton.cdiv(triton.cdiv(rows, parts), _ROWS) * _ROWS
    parts = triton.cdiv(rows, per_program)
    return parts, per_program, torch.empty(parts, 2, channels, device=x.device)


def train_norm(x: Tensor, residual: Tensor | None, norm: Any) -> Tensor:
    """relu(batch_norm(x) + residual) with the batch's statistics, which running ones follow; it can be differentiated."""
    running = norm.running_mean, norm.running_var
    result: Tensor = FusedNorm.apply(  # type: ignore[no-untyped-call]
        x, residual, norm.weight, norm.bias, running, norm.momentum or 0.1, norm.eps, norm.relu
    )
    return result


def predict_norm(x: Tensor, residual: Tensor | None, norm: Any) -> Tensor:
    """relu(batch_norm(x) + residual) with running statistics, where no gradient is wanted."""
    channels = x.shape[1]
    rows = x.numel() // channels
    y = torch.empty_like(x)
    scale = torch.rsqrt(norm.running_var + norm.eps)
    _apply[triton.cdiv(rows, _ROWS), channels // _CHANNELS](
        x, residual, y, norm.running_mean, scale, norm.weight, norm.bias, rows, channels, residual is not None, norm.relu,
        ROWS=_ROWS, CHANNELS=_CHANNELS, num_warps=_WARPS,
    )  # fmt: skip
    return y


def can_fuse(x: Tensor, residual: Tensor | None) -> bool:
    """Whether the kernels take these activations."""
    return (
        x.shape[1] % _CHANNELS == 0
        and x.shape[1] < x.numel() < 2**31  # positions are 32-bit integers
        and x.is_contiguous(memory_format=torch.channels_last)
        and (residual is None or (residual.dtype == x.dtype and residual.stride() == x.stride()))
    )
