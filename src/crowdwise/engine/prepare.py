"""From raw inputs to what a network sees: scaling that is learned on the training inputs and travels with the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crowdwise.errors import ConfigError, DataError

MODES = ("auto", "none", "standardise", "log1p")
_SAMPLE = 10_000  # instances from which image statistics are taken


class Prepare(nn.Module):
    """Scale raw inputs (B, ...) to float32.

    ``auto``: images are standardised by channel, feature vectors are left as they are; ``standardise``: mean 0 and
    standard deviation 1 (by channel, or by feature); ``log1p``: ln(1 + x), for counts and other non-negative features.
    8-bit images are divided by 255 first.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mode: str, shape: tuple[int, ...], *, scale: float = 1.0) -> None:
        super().__init__()
        if mode not in MODES:
            raise ConfigError(f"unknown prepare={mode!r}; use one of {', '.join(map(repr, MODES))}")
        self.mode, self.shape, self.scale = mode, shape, scale
        image = len(shape) == 3
        self.standardise = mode == "standardise" or (mode == "auto" and image)
        statistics_shape = (shape[0], 1, 1) if image else shape
        self.register_buffer("mean", torch.zeros(statistics_shape))
        self.register_buffer("std", torch.ones(statistics_shape))

    @classmethod
    def learn(cls, mode: str, raw: Tensor) -> Prepare:
        """Learn means and standard deviations from raw training inputs (n, ...)."""
        scale = 1 / 255 if raw.dtype == torch.uint8 and raw.ndim == 4 else 1.0
        prepare = cls(mode, tuple(raw.shape[1:]), scale=scale).to(raw.device)
        if len(raw):
            sample = raw[:: max(1, len(raw) // _SAMPLE)].float() * scale if raw.ndim == 4 else raw.float()
            if mode == "log1p" and bool((raw < 0).any()):
                at = tuple(torch.nonzero(raw < 0)[0].tolist())
                raise DataError(f"prepare='log1p' needs values of at least 0, but X{list(at)} is {raw[at].item():g}")
            if prepare.standardise:
                axes = (0, 2, 3) if raw.ndim == 4 else (0,)
                std, mean = torch.std_mean(sample.double(), axes, correction=0, keepdim=True)
                prepare.mean.copy_(mean[0])
                prepare.std.copy_(torch.where(std[0] > 1e-8, std[0], 1.0))
        return prepare

    def forward(self, raw: Tensor) -> Tensor:
        x = raw.float() * self.scale
        if self.mode == "log1p":
            return torch.log1p(x)
        if self.standardise:
            x = (x - self.mean) / self.std
        return x
