"""Pictures from files, within limits: turned upright as their camera says, resized by one rule."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.types import Pixels
from crowdwise.encoders.rows import FORMATS
from crowdwise.errors import DataError

MOST_PIXELS = 80_000_000  # of a picture that is decoded
MOST_BYTES = 1 << 28  # of its file
GREY = ("1", "L", "LA", "I", "I;16", "F")


def decode(
    picture: Any, *, size: tuple[int, int] | None = None, grey: bool | None = None, most: int | None = None
) -> Pixels:
    """Pixels uint8 (h, w) or (h, w, 3) of a file or a PIL image.

    ``size`` (height, width): scaled until the picture fills it, and cropped to the centre. ``most``: shrunk until no side is
    longer. Transparent parts become white. ``grey``: as one channel or three; None: as the picture is.
    """
    from PIL import Image, ImageOps

    with _explained(picture):
        image: Any = _open(picture) if isinstance(picture, str | Path) else picture
        if image.width * image.height > MOST_PIXELS:
            raise DataError(
                f"{picture}: {image.width:,} x {image.height:,} pixels; at most {MOST_PIXELS:,} are decoded"
            )
        if size is not None:
            image.draft("RGB", (2 * size[1], 2 * size[0]))  # JPEG files decode faster at a reduced scale
        image = ImageOps.exif_transpose(image)
        as_grey = image.mode in GREY if grey is None else grey
        image = _flat(image).convert("L" if as_grey else "RGB")
        if size is not None and (image.height, image.width) != size:
            image = ImageOps.fit(image, (size[1], size[0]), Image.Resampling.BILINEAR)
        if most is not None:
            image.thumbnail((most, most))
        return np.array(image)


def look(picture: Any) -> tuple[int, int, bool]:
    """Height and width of a picture, as it is turned upright, and whether it is grey; its pixels are not decoded."""
    with _explained(picture):
        image: Any = _open(picture) if isinstance(picture, str | Path) else picture
        turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        height, width = (image.width, image.height) if turned else (image.height, image.width)
        return height, width, image.mode in GREY


def _open(path: str | Path) -> Any:
    from PIL import Image

    if Path(path).stat().st_size > MOST_BYTES:
        raise DataError(f"{path}: the file has more than {MOST_BYTES:,} bytes")
    return Image.open(path, formats=FORMATS)


def _flat(image: Any) -> Any:
    """Without transparency, and with 16-bit grey values brought to 8 bits."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, np.float64)
        scale = 255 / 65535 if image.mode.startswith("I") and values.max(initial=0) > 255 else 1.0
        return Image.fromarray(np.clip(values * scale, 0, 255).astype(np.uint8))
    if image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        below = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(below, image).convert("RGB")
    return image


@contextmanager
def _explained(picture: Any) -> Iterator[None]:
    """Errors of the decoder become one that names the file."""
    from PIL import Image

    damage = (OSError, ValueError, SyntaxError, EOFError, TypeError, KeyError, OverflowError, MemoryError, struct.error)
    try:
        yield
    except (*damage, Image.DecompressionBombError) as error:
        if isinstance(error, DataError):
            raise
        name = str(picture) if isinstance(picture, str | Path) else "a picture"
        raise DataError(f"{name} cannot be decoded as a picture: {error}") from error
