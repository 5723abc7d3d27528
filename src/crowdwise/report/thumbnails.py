"""Small pictures of instances, embedded in a page as data."""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.located import find_picture
from crowdwise.encoders.rows import FORMATS

SIDE = 96  # pixels
LOSSLESS = 32 * 32  # pixels up to which a grey picture is kept exactly


def thumbnail(picture: Any, folder: Path | None = None) -> str | None:
    """A picture of at most `SIDE` pixels as a ``data:`` URL; None for anything else.

    Paths must lead to files below ``folder``, also as Label Studio writes them; nothing is downloaded.

    >>> thumbnail(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    found = encoded(picture, folder, SIDE)
    return None if found is None else f"data:image/{found[1]};base64,{base64.b64encode(found[0]).decode()}"


def encoded(picture: Any, folder: Path | None, side: int, quality: int = 70) -> tuple[bytes, str] | None:
    """A picture of at most ``side`` pixels, drawn anew, and its type (png or jpeg); None for anything else."""
    from PIL import Image

    if isinstance(picture, tuple):  # a data set of pictures gives (pixels, number)
        picture = picture[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # about pictures that unpack to more than memory holds
            if isinstance(picture, str):
                path = None if folder is None else find_picture(picture, folder)
                if path is None:
                    return None
                image: Any = Image.open(path, formats=FORMATS)
            else:
                image = Image.fromarray(_pixels(np.asarray(picture)))
            image = image.convert("L" if image.mode in ("1", "L", "I", "F") else "RGB")
            image.thumbnail((side, side))
            exact = image.mode == "L" and image.width * image.height <= LOSSLESS
            file = io.BytesIO()
            image.save(file, "PNG" if exact else "JPEG", optimize=True, **({} if exact else {"quality": quality}))
    except (OSError, ValueError, TypeError, Warning, Image.DecompressionBombError):
        return None
    return file.getvalue(), "png" if exact else "jpeg"


def _pixels(array: Any) -> Any:
    """uint8 (h, w) or (h, w, 3), from channels first or last and any scale."""
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3):
        raise ValueError(f"{array.shape} is no picture")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    low, high = float(array.min()), float(array.max())
    return np.rint((array - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
