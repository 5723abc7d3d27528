"""From raw inputs to what a network sees: scaling that is learnt on the training inputs and travels with the model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.engine.bending import BEND, LARGEST, LIMIT, bending_kernel, long_rows
from crowdwise.errors import ConfigError, DataError

CHOICES = ("auto", "robust", "standardise", "log1p", "none")
_SAMPLE = 10_000  # instances from which statistics are taken
_COMPILED = 1 << 28  # values scaled in a process before it imports numba, which takes 0.3 s and saves 0.7 ns a value
_FAR, _STILL = 8.0, 0.01  # from where on other inputs are called unlike
_LEAST = 0.5  # least standard deviation by which bent columns are divided: rare values must not become huge


class _Work:
    """How many values this process has scaled."""

    values = 0

    def enough(self, more: int) -> bool:
        """Whether they are so many, with these, that a compiled loop is worth importing numba."""
        self.values += more
        return self.values > _COMPILED and importlib.util.find_spec("numba") is not None


_work = _Work()


class Prepare(nn.Module):
    """Scale raw inputs (B, ...) to float32.

    ``robust``: each feature minus its median, divided by its interquartile range (by its standard deviation where most values
    are equal), with values beyond 3 bent to a logarithm and cut at 10, then to about mean 0 and standard deviation 1; features
    that never change become 0. ``standardise``: mean 0 and standard deviation 1 (by channel, or by feature); ``log1p``:
    ln(1 + x), for counts and other non-negative features. 8-bit images are divided by 255 first. Models of earlier versions
    have ``auto``: images standardised, features left as they are; `learn` makes it ``robust`` for features.
    """

    mean: Tensor
    std: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, mode: str, shape: tuple[int, ...], *, scale: float = 1.0) -> None:
        super().__init__()
        if mode not in CHOICES:
            raise ConfigError(f"unknown prepare={mode!r}; use one of {', '.join(map(repr, CHOICES))}")
        image = len(shape) == 3
        if mode == "robust" and image:
            raise ConfigError("prepare='robust' is for feature vectors; images are standardised")
        self.mode, self.shape, self.scale = mode, shape, scale
        self.standardise = mode in ("standardise", "robust") or (mode == "auto" and image)
        statistics_shape = (shape[0], 1, 1) if image else shape
        names = ("mean", "std", "centre", "spread") if mode == "robust" else ("mean", "std")
        for name in names:
            start = torch.ones if name in ("std", "spread") else torch.zeros
            self.register_buffer(name, start(statistics_shape))

    @classmethod
    def learn(cls, mode: str, raw: Tensor) -> Prepare:
        """Learn the scaling from raw training inputs (n, ...). ``"paper"``: as ``auto`` once was, with features as they are."""
        if mode == "paper":
            mode = "standardise" if raw.ndim == 4 else "none"
        if mode == "auto":
            mode = "standardise" if raw.ndim == 4 else "robust"
        scale = 1 / 255 if raw.dtype == torch.uint8 and raw.ndim == 4 else 1.0
        prepare = cls(mode, tuple(raw.shape[1:]), scale=scale).to(raw.device)
        if not len(raw):
            return prepare
        if mode == "log1p" and bool((raw < 0).any()):
            at = tuple(torch.nonzero(raw < 0)[0].tolist())
            raise DataError(f"prepare='log1p' needs values of at least 0, but X{list(at)} is {raw[at].item():g}")
        if prepare.standardise:
            sampled = raw.ndim == 4 or mode == "robust"
            sample = (raw[:: max(1, len(raw) // _SAMPLE)] if sampled else raw).float() * scale
            if mode == "robust":
                prepare._learn_columns(sample.double().cpu().numpy())
                sample = prepare._bend(sample)
            axes = (0, 2, 3) if raw.ndim == 4 else (0,)
            std, mean = torch.std_mean(sample.double(), axes, correction=0, keepdim=True)
            prepare.mean.copy_(mean[0])
            if mode == "robust":
                prepare.std.copy_(std[0].clamp_min(_LEAST))
            else:
                prepare.std.copy_(torch.where(std[0] > 1e-8, std[0], 1.0))
        return prepare

    def _learn_columns(self, values: np.ndarray) -> None:
        """Median and spread of each column of ``values`` (n, d); an infinite spread where nothing changes."""
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
        spread, std = (high - low) / 1.349, values.std(axis=0)
        spread = np.where(spread > 1e-3 * std, spread, std)
        largest = np.abs(values).max(axis=0)
        spread = np.where(np.ptp(values, axis=0) > 1e-6 * largest, spread, np.inf)  # else rounding is all there is
        self.centre.copy_(torch.from_numpy(median))
        self.spread.copy_(torch.from_numpy(spread))

    def _bend(self, x: Tensor) -> Tensor:
        z = (x - self.centre).mul_(1 / self.spread)
        beyond = z.abs().sub_(BEND - 1).clamp_min_(1).log_()  # ln(1 + what exceeds 3)
        sign = z.sign()
        return z.clamp_(-BEND, BEND).addcmul_(sign, beyond).clamp_(-LIMIT, LIMIT)

    def for_many(self) -> Callable[[Tensor], Tensor]:
        """The same function of many batches on the CPU, with the scaling as it is now.

        Robust scaling takes long in torch: constants are computed once, numpy's logarithm is the faster one, and a process that
        has scaled much goes over to a compiled loop, four times as fast.
        """
        if self.mode != "robust" or self.scale != 1:
            return self
        constants = self.centre, 1 / self.spread, -self.mean / self.std, 1 / self.std
        centre, factor, shift, last = constants
        rows = [long_rows(each.numpy()) for each in constants]

        def compiled(raw: Tensor) -> Tensor:
            out = torch.empty(raw.shape)
            bending_kernel()(raw.contiguous().view(-1).numpy(), *rows, out.view(-1).numpy())
            return out

        def scaled(raw: Tensor) -> Tensor:
            raw = raw.float()
            if _work.enough(raw.numel()):
                return compiled(raw)
            z = (raw - centre).mul_(factor)
            beyond = z.abs().sub_(BEND - 1).clamp_(1, LARGEST)
            np.log(beyond.numpy(), out=beyond.numpy())
            sign = z.sign()
            return torch.addcmul(shift, z.clamp_(-BEND, BEND).addcmul_(sign, beyond), last)

        return scaled

    def departure(self, raw: Tensor) -> str:
        """How raw inputs (n, ...) differ grossly from those that the scaling was learnt on; empty where they do not.

        For scalings that know the training data: half of the values are far from any of these, or hardly differ.
        """
        if not self.standardise:
            return ""
        x = raw.float() * self.scale
        z = (x - self.centre) / self.spread if self.mode == "robust" else (x - self.mean) / self.std
        z = z[:, torch.isfinite(self.spread)] if self.mode == "robust" else z.transpose(0, 1).flatten(1).T
        if not z.numel():
            return ""
        span = f"X has values from {float(raw.min()):.4g} to {float(raw.max()):.4g}"
        if float(z.abs().median()) > _FAR:
            return (
                f"half of its values are more than {_FAR:g} standard deviations from the training data's centre; {span}"
            )
        if len(raw) >= 10 and float(z.std(0).median()) < _STILL:
            return f"it varies less than {_STILL:.0%} as much as the training data; {span}"
        return ""

    def forward(self, raw: Tensor) -> Tensor:
        x = raw.float() if self.scale == 1 else raw.float() * self.scale
        if self.mode == "log1p":
            return torch.log1p(x)
        if self.mode == "robust":
            return torch.addcmul(-self.mean / self.std, self._bend(x), 1 / self.std)
        return (x - self.mean).div_(self.std) if self.standardise else x
