"""Batches that are never the same twice: augmentation of pictures and mixup, on the device, recordable in a CUDA graph."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from crowdwise.engine.recipe import Augment
from crowdwise.engine.stage import Batch
from crowdwise.errors import ConfigError

_QUANTILES = 1024


def find_augment(augment: str | Augment, shape: tuple[int, ...]) -> Augment | None:
    """The function on batches (B, ...) of prepared inputs behind a name; None: inputs stay as they are.

    ``"auto"`` is ``"crop-flip"`` for colour pictures, ``"crop"`` for grey ones (letters and digits must not be mirrored).
    """
    if callable(augment):
        return augment
    if augment == "auto":
        augment = "none" if len(shape) != 3 else "crop-flip" if shape[0] == 3 else "crop"
    if augment == "none":
        return None
    if len(shape) != 3:
        raise ConfigError(
            f"augment={augment!r} is for pictures (channels, height, width), not instances of shape {shape}"
        )
    if augment == "crop":
        return crop
    return crop_flip if augment == "crop-flip" else strong


def mirrors(augment: str | Augment, shape: tuple[int, ...]) -> bool:
    """Whether augmentation mirrors pictures of this shape.

    >>> mirrors("auto", (3, 32, 32)), mirrors("auto", (1, 28, 28))
    (True, False)
    """
    chosen = find_augment(augment, shape)
    return chosen is crop_flip or (chosen is strong and shape[0] == 3)


def crop(x: Tensor, *, flip: bool = False) -> Tensor:
    """Each picture moved by up to an eighth of its size, with its edges continued by reflection."""
    n, _, height, width = x.shape
    margin = max(min(height, width) // 8, 1)
    padded = F.pad(x, (margin,) * 4, mode="reflect")
    rows = torch.arange(height, device=x.device) + _integers(n, 2 * margin + 1, x.device)[:, None]
    columns = torch.arange(width, device=x.device).expand(n, -1)
    if flip:
        mirrored = torch.rand(n, 1, device=x.device) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    columns = columns + _integers(n, 2 * margin + 1, x.device)[:, None]
    instance = torch.arange(n, device=x.device)[:, None, None]
    # indices on either side of a slice: (n, height, width, channels), whatever the memory format
    return padded[instance, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def crop_flip(x: Tensor) -> Tensor:
    """`crop`, and half of the pictures mirrored."""
    return crop(x, flip=True)


def strong(x: Tensor) -> Tensor:
    """`crop_flip` (without mirroring grey pictures), turned and scaled a little, contrast changed, and a square blanked."""
    n, channels, height, width = x.shape
    x = crop(x, flip=channels == 3)
    angle = (torch.rand(n, device=x.device) - 0.5) * (math.pi / 6)
    scale = 1 + 0.3 * (torch.rand(n, device=x.device) - 0.5)
    cosine, sine, zero = scale * angle.cos(), scale * angle.sin(), torch.zeros_like(angle)
    turn = torch.stack([cosine, -sine, zero, sine, cosine, zero], 1).view(n, 2, 3).to(x.dtype)
    x = F.grid_sample(x, F.affine_grid(turn, list(x.shape), align_corners=False), "bilinear", "reflection", False)
    contrast = 1 + 0.6 * (torch.rand(n, 1, 1, 1, device=x.device) - 0.5)
    brightness = 0.6 * (torch.rand(n, 1, 1, 1, device=x.device) - 0.5)
    x = x * contrast + brightness
    side = max(min(height, width) // 4, 1)
    top, left = _integers(n, height - side + 1, x.device), _integers(n, width - side + 1, x.device)
    inside_rows = _inside(top, side, height)[:, None, :, None]
    return x.masked_fill(inside_rows & _inside(left, side, width)[:, None, None, :], 0.0)


def _integers(n: int, below: int, device: torch.device) -> Tensor:
    return (torch.rand(n, device=device) * below).long().clamp_max(below - 1)


def _inside(start: Tensor, length: int, size: int) -> Tensor:
    at = torch.arange(size, device=start.device)
    return (at >= start[:, None]) & (at < start[:, None] + length)


class Mixup:
    """Mixes every instance with the one before it in its (random) batch, annotations and targets alike.

    H. Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018. The share of the instance itself is drawn from
    Beta(alpha, alpha), the larger half. A mixed instance has the annotations of both, weighted by their shares.
    """

    def __init__(self, alpha: float, device: torch.device) -> None:
        from scipy.stats import beta

        middle = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        share = beta(alpha, alpha).ppf(middle)
        self.shares = torch.from_numpy(np.maximum(share, 1 - share).astype(np.float32)).to(device)

    def __call__(self, batch: Batch) -> Batch:
        n = len(batch.unit)
        share = self.shares[_integers(n, _QUANTILES, batch.unit.device)]  # (B,)
        after = (batch.row + 1) % n  # the instance into which an annotation's instance is mixed
        shares = torch.cat([share[batch.row], 1 - share[after]])
        weights = share.view(-1, *[1] * (batch.x.ndim - 1)).to(batch.x.dtype)
        return Batch(
            torch.lerp(batch.x.roll(1, 0), batch.x, weights),
            batch.unit,
            batch.target,
            torch.cat([batch.row, after]),
            batch.annotator.repeat(2),
            batch.label.repeat(2),
            batch.weight.repeat(2) * shares,
            batch.total,
            batch.size,
            batch.networks,
            (batch.unit.roll(1), share),
            shares,
        )
