"""Small pictures of instances, embedded in a page as data."""

from __future__ import annotations

import base64
import io
import re
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

SIDE = 96  # pixels
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")  # other decoders of pillow can run programs
LOSSLESS = 32 * 32  # pixels up to which a grey picture is kept exactly


def thumbnail(picture: Any, folder: Path | None = None) -> str | None:
    """A picture of at most `SIDE` pixels as a ``data:`` URL; None for anything else.

    Paths must lead to files below ``folder``; nothing is downloaded.

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
                path = picture_file(folder, picture)
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


def picture_file(folder: Path | None, name: str) -> Path | None:
    """The file of a picture below ``folder``; None if there is none, or if the path leads out of the folder.

    Label Studio's addresses are understood: ``/data/local-files/?d=PATH``, and ``/data/upload/PROJECT/FILE``, of which the
    folder may hold any end, with or without the prefix of eight digits that Label Studio gives to uploads.
    """
    if folder is None or "://" in name or "\0" in name:
        return None
    root = folder.resolve()
    for candidate in (name, *_label_studio(name)):
        path = (root / candidate).resolve()
        if path.is_relative_to(root) and path.is_file():
            return path
    return None


def _label_studio(name: str) -> list[str]:
    """Where the files of Label Studio's addresses may be.

    >>> _label_studio("/data/upload/7/0a1b2c3d-cat.png")
    ['upload/7/0a1b2c3d-cat.png', '7/0a1b2c3d-cat.png', '0a1b2c3d-cat.png', 'cat.png']
    >>> _label_studio("/data/local-files/?d=pets%2Fcat.png")
    ['pets/cat.png']
    """
    address = urlsplit(name)
    if address.path.rstrip("/") == "/data/local-files":
        return [path.lstrip("/") for path in parse_qs(address.query).get("d", [])]
    parts = unquote(address.path).strip("/").split("/")
    if parts[:2] != ["data", "upload"] or len(parts) < 3:
        return []
    ends = ["/".join(parts[start:]) for start in range(1, len(parts))]
    return list(dict.fromkeys([*ends, re.sub(r"^[0-9a-f]{8}-", "", parts[-1])]))


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
