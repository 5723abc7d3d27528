"""Backbones turn instances into feature vectors. Any ``nn.Module`` that maps (B, ...) to (B, d) will do."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.constraints import check_value
from crowdwise.errors import ConfigError, DataError
from crowdwise.networks.layers import ByteDropout
from crowdwise.registry import Registry

Builder = Callable[..., nn.Module]
BACKBONES: Registry[Builder] = Registry("backbone")


class BatchNorm(nn.BatchNorm2d):
    """Batch norm, then a shortcut and ReLU where asked for: in one go on a GPU, one after the other elsewhere.

    It keeps no count of batches, which a fixed momentum does not need. A channel with a single value has no batch statistics
    and uses the running ones.
    """

    def __init__(self, channels: int, relu: bool = False) -> None:
        super().__init__(channels)
        self.relu = relu

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        alone = "normalise" not in vars(self)  # else statistics are taken over several processes
        fused = _fused() if x.is_cuda and alone else None
        if fused is not None and fused.can_fuse(x, shortcut):
            if self.training:
                return cast(Tensor, fused.train_norm(x, shortcut, self))
            if not torch.is_grad_enabled():
                return cast(Tensor, fused.predict_norm(x, shortcut, self))
        x = self.normalise(x)
        if shortcut is not None:
            x = x + shortcut
        return torch.relu(x) if self.relu else x

    def normalise(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training and x.numel() > x.shape[1],
            self.momentum or 0.1,
            self.eps,
        )


@functools.cache
def _fused() -> ModuleType | None:
    """The kernels, where Triton is installed and ``CROWDWISE_TRITON`` is not 0."""
    if os.environ.get("CROWDWISE_TRITON") == "0":
        return None
    try:
        return importlib.import_module("crowdwise.networks.fused_norm")
    except ImportError:
        return None


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (He et al., CVPR 2016)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            BatchNorm(channels, relu=True),
            nn.Identity(),  # keeps the names of the weights in models that were saved before
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            BatchNorm(channels, relu=True),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False), BatchNorm(channels))

    def forward(self, x: Tensor) -> Tensor:
        *first, last = self.body
        shortcut = self.shortcut(x)
        for layer in first:
            x = layer(x)
        result: Tensor = last(x, shortcut)
        return result


Stem = Literal["small", "large"]


def _resnet(shape: tuple[int, ...], blocks: tuple[int, ...], dropout: float, stem: Stem) -> nn.Module:
    """Residual network with 512 features.

    Its first convolution is 3x3, stride 1, padding 0, without max-pool, for small images; with ``stem="large"`` it is
    7x7, stride 2, padding 3, and a max-pool of stride 2 follows.
    """
    _require_image(shape, "resnet", smallest=4 if stem == "small" else 32)
    check_value("stem", stem, Stem)
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 64, 3, bias=False), BatchNorm(64, relu=True), nn.Identity()]
    if stem == "large":
        layers[0] = nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False)
        layers[2] = nn.MaxPool2d(3, stride=2, padding=1)
    channels_in = 64
    for stage, (channels, count) in enumerate(zip((64, 128, 256, 512), blocks, strict=True)):
        for block in range(count):
            layers.append(BasicBlock(channels_in, channels, stride=2 if stage > 0 and block == 0 else 1))
            channels_in = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(dropout)) if dropout else nn.Sequential(*layers)


@BACKBONES.register("resnet18")
def resnet18(shape: tuple[int, ...], *, dropout: float = 0.0, stem: Stem = "small") -> nn.Module:
    """ResNet-18 for small images, as the paper uses for 28x28 greyscale pictures; ``stem="large"`` for large ones."""
    return _resnet(shape, (2, 2, 2, 2), dropout, stem)


@BACKBONES.register("resnet34")
def resnet34(shape: tuple[int, ...], *, dropout: float = 0.0, stem: Stem = "small") -> nn.Module:
    """ResNet-34 for small images, as the paper uses for 32x32 colour pictures; ``stem="large"`` for large ones."""
    return _resnet(shape, (3, 4, 6, 3), dropout, stem)


class RowNorm(nn.BatchNorm1d):
    """Batch norm of rows (B, d); a single row has no batch statistics and uses the running ones."""

    def forward(self, input: Tensor) -> Tensor:
        if len(input) > 1 or not self.training:
            return super().forward(input)
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


@BACKBONES.register("mlp")
def mlp(shape: tuple[int, ...], *, hidden: int = 128, batch_norm: bool = False, dropout: float = 0.0) -> nn.Module:
    """One fully connected layer with ReLU, used by the paper for LabelMe and (with batch norm) Music."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(math.prod(shape), hidden)]
    if batch_norm:
        layers.append(RowNorm(hidden))
    layers.append(nn.ReLU())
    if dropout:
        layers.append(ByteDropout(dropout))
    return nn.Sequential(*layers)


@BACKBONES.register("cnn")
def cnn(shape: tuple[int, ...], *, channels: int = 16, hidden: int = 64, dropout: float = 0.0) -> nn.Module:
    """A small convolutional network that trains in seconds on a CPU."""
    _require_image(shape, "cnn", smallest=4)
    side = min(4, shape[1] // 2)
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * channels),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(side),
        nn.Flatten(),
        nn.Linear(2 * channels * side**2, hidden),
        nn.ReLU(),
    ]
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


def name_of(backbone: str, shape: tuple[int, ...]) -> str:
    """The name of a backbone; that behind ``"auto"`` for inputs of this shape."""
    return ("mlp" if len(shape) == 1 else "cnn") if backbone == "auto" else backbone


def takes_dropout(backbone: str, shape: tuple[int, ...]) -> bool:
    """Whether the named backbone has an option ``dropout``."""
    return "dropout" in inspect.signature(BACKBONES[name_of(backbone, shape)]).parameters


def build_backbone(
    backbone: str | nn.Module, shape: tuple[int, ...], options: Mapping[str, Any] | None = None
) -> tuple[nn.Module, int]:
    """The backbone and its feature width d for inputs of ``shape`` (without the batch axis).

    ``"auto"`` is ``mlp`` for feature vectors, ``cnn`` for images.

    >>> build_backbone("mlp", (30,), {"hidden": 8})[1]
    8
    """
    if isinstance(backbone, nn.Module):
        others = {name: value for name, value in (options or {}).items() if name != "dropout"}
        if others:
            raise ConfigError(f"backbone_options {others} go with a backbone's name, not with a module")
        module = nn.Sequential(backbone, nn.Dropout(options["dropout"])) if options else backbone
    else:
        name = name_of(backbone, shape)
        try:
            module = BACKBONES[name](shape, **dict(options or {}))
        except TypeError as error:
            raise ConfigError(f"backbone {name!r}: {error}") from error
    was_training = module.training
    with torch.no_grad():
        features = module.eval()(torch.zeros(2, *shape))
    module.train(was_training)
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(
            f"a backbone must map (2, {', '.join(map(str, shape))}) to (2, d), but this one returned {got}"
        )
    return module, features.shape[1]


def _require_image(shape: tuple[int, ...], name: str, smallest: int) -> None:
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise DataError(
            f"backbone {name!r} needs images (channels, height, width) of at least {smallest}x{smallest} pixels, "
            f"got instances of shape {shape}; use backbone='mlp' for feature vectors"
        )
