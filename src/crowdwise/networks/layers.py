"""Layers that stand for several layers of the same kind."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_NARROW = 16  # columns below which products on the CPU take several times as long as their transposes
_WIDE = 200  # inputs from which products in bfloat16 are worth the conversion
_MANY = 256  # rows from which on oneDNN is worth its start


class StackedLinear(nn.Module):
    """K linear layers: (K, B, in) -> (K, B, out)."""

    in_half = False
    """In training, multiply instances that all networks share in bfloat16."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.in_features, self.out_features = layers[0].in_features, layers[0].out_features
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))  # (K, in, out)
        self.bias = nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in layers]))  # (K, 1, out)

    def forward(self, x: Tensor) -> Tensor:
        products: Tensor
        if self.in_half and self.in_features >= _WIDE and x.stride(0) == 0 and torch.is_grad_enabled():
            products = HalfProducts.apply(x[0], self.weight, self.bias)  # type: ignore[no-untyped-call]
        elif self.out_features < _NARROW and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
            products = NarrowProducts.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        else:
            products = torch.baddbmm(self.bias, x, self.weight)
        return products

    def one(self, number: int, x: Tensor) -> Tensor:
        """Layer ``number`` alone: (1, B, in) -> (1, B, out)."""
        return torch.addmm(self.bias[number], x[0], self.weight[number])[None]


class NarrowProducts(torch.autograd.Function):
    """x weight + bias, for a weight with few columns: (K, B, in), (K, in, out), (K, 1, out) -> (K, B, out)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias.mT, weight.mT, x.mT).mT.contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        by_x = torch.bmm(gradient, weight.mT) if ctx.needs_input_grad[0] else None
        return by_x, torch.bmm(gradient.mT, x).mT.contiguous(), gradient.sum(1, keepdim=True)


class HalfProducts(torch.autograd.Function):
    """x weight + bias in bfloat16, for inputs that need no gradient: (B, in), (K, in, out), (K, 1, out) -> (K, B, out)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        half = x.bfloat16()
        ctx.save_for_backward(half)
        return torch.bmm(half.expand(len(weight), *half.shape), weight.bfloat16()) + bias

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        columns = ctx.saved_tensors[0].T.contiguous()
        by_weight = torch.bmm(columns.expand(len(gradient), *columns.shape), gradient.bfloat16()).float()
        return None, by_weight, gradient.sum(1, keepdim=True)


class ByteDropout(nn.Dropout):
    """Dropout that draws eight elements' fates from one random number on the CPU, where drawing is what takes time.

    The share that is dropped is rounded to a multiple of 1/256, unless that is 0 or 1.
    """

    def forward(self, input: Tensor) -> Tensor:
        dropped = round(256 * self.p)
        if not self.training or not 0 < dropped < 256 or input.device.type != "cpu":
            return super().forward(input)
        draws = torch.empty(-(-input.numel() // 8), dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)
        kept = torch.empty(input.shape)  # numbers, as products with truth values are slow
        torch.ge(draws[: input.numel()].view(input.shape), dropped, out=kept)
        return input * kept.mul_(256 / (256 - dropped))


def product(x: Tensor, weight: Tensor, bias: Tensor, relu: bool = False, out: Tensor | None = None) -> Tensor:
    """x weight' + bias, and ReLU where asked for, without a derivative: (..., in), (out, in), (out,) -> (..., out).

    Many rows are multiplied by oneDNN where the CPU has AVX-512: MKL, which torch takes for single precision, needs twice the
    time on AMD's. For few rows, oneDNN takes longer to begin than the product does, which may then lie in ``out``.
    """
    rows: Tensor
    if x.ndim == 2 and len(x) >= _MANY and x.dtype == weight.dtype == torch.float32 and _wide_vectors():
        rows = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
        return rows
    rows = F.linear(x, weight, bias) if out is None else torch.addmm(bias, x, weight.T, out=out)
    return rows.relu_() if relu else rows


@functools.cache
def _wide_vectors() -> bool:
    """Whether the CPU has AVX-512, and this torch a product of oneDNN: it is not among what torch promises to keep."""
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    one = torch.ones(1, 1)
    with contextlib.suppress(AttributeError, RuntimeError, TypeError):
        return bool(torch.ops.mkldnn._linear_pointwise(one, one, one[0], "relu", [], "") == 2)
    return False


def in_turn(backbone: nn.Module) -> Callable[[Tensor], Tensor]:
    """A backbone in evaluation, without what does nothing then; ReLU after a linear layer is part of it on the CPU."""
    if type(backbone) is not nn.Sequential:
        return backbone
    passive = (nn.Dropout, ByteDropout, nn.Identity)
    working = [layer for layer in backbone if type(layer) not in passive]
    layers: list[Callable[[Tensor], Tensor]] = []
    for layer, following in zip(working, [*working[1:], None], strict=True):
        if type(layer) is nn.Linear and layer.bias is not None:
            weight, bias, relu = layer.weight.detach(), layer.bias.detach(), type(following) is nn.ReLU
            layers.append(functools.partial(product, weight=weight, bias=bias, relu=relu))
        elif not (type(layer) is nn.ReLU and layers and isinstance(layers[-1], functools.partial)):
            layers.append(layer)

    def features(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x

    return features
