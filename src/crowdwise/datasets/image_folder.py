"""Images in one folder per class, decoded on access; and ImageNet-100, a hundred classes of ImageNet in such folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.types import Ints, Pixels
from crowdwise.datasets.base import DATASETS, Dataset, part_fields
from crowdwise.datasets.files import Files
from crowdwise.errors import ConfigError, DatasetError, suggest

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP")  # decoders in use: others run programs, or are hardly ever tested


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Images of ``<folder>/<class>/*`` in sorted order, decoded and resized on access.

    ``images[i]`` is ``(pixels, i)``, pixels uint8 (size, size, 3), scaled to fill the square and cropped to its centre.
    It does not need torch, and works as the data set of a torch DataLoader, also with worker processes.
    """

    folder: Path
    size: int = 224
    classes: tuple[str, ...] | None = None
    """Folders to use, in the order of their class codes; by default all, sorted."""
    class_names: tuple[str, ...] = field(init=False, repr=False)
    files: tuple[str, ...] = field(init=False, repr=False)
    """Paths (n) within ``folder``."""
    y: Ints = field(init=False, repr=False)
    """Class codes (n,)."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size must be at least 1 pixel, not {self.size}")
        try:
            present = sorted(entry.name for entry in os.scandir(self.folder) if entry.is_dir())
        except OSError as error:
            raise DatasetError(f"the folder {self.folder} cannot be read: {error.strerror}") from error
        classes = tuple(present) if self.classes is None else tuple(self.classes)
        if not classes:
            raise DatasetError(f"{self.folder} has no class folders")
        listed = [_images_in(self.folder, name, present) for name in classes]
        object.__setattr__(self, "class_names", classes)
        object.__setattr__(self, "files", tuple(chain.from_iterable(listed)))
        object.__setattr__(self, "y", np.repeat(np.arange(len(classes)), [len(files) for files in listed]))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, size, size, 3), as of an array."""
        return (len(self), self.size, self.size, 3)

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """Of the pixels."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Pixels, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"image {index} is out of range: there are {len(self):,}")
        index = int(index) % len(self)
        return _decode(self.folder / self.files[index], self.size), index


def _images_in(folder: Path, name: str, present: Sequence[str]) -> list[str]:
    """Sorted paths, within ``folder``, of the images of one class."""
    if name not in present:
        raise DatasetError(f"{folder} has no folder for class {name!r}{suggest(name, present)}")
    files = [entry.name for entry in os.scandir(folder / name) if entry.name.lower().endswith(SUFFIXES)]
    if not files:
        raise DatasetError(f"{folder / name} has no images ({', '.join(SUFFIXES)})")
    return [f"{name}/{file}" for file in sorted(files)]


def _decode(path: Path, size: int) -> Pixels:
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=FORMATS) as image:
            image.draft("RGB", (size, size))  # JPEG files decode faster at a reduced scale
            pixels: Any = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{path} cannot be decoded as an image: {error}") from error
    return np.array(pixels)


@DATASETS.register("imagenet100")
def imagenet100(files: Files, size: int = 224, classes: Sequence[str] | None = None) -> Dataset:
    """Folders ``train/<class>/*.JPEG`` and ``val/<class>/*.JPEG``; ``val`` is the test part.

    ``size``: side of the squares that images are resized to on access. ``classes``: the folders to use, by default all;
    the whole of ImageNet with a list of 100 classes will do.
    """
    train, val = files.find(
        ["train", "val"],
        generic=True,
        hint="ImageNet is available from https://image-net.org after registration; the usual 100 classes are those of "
        "Tian et al. (2020)",
    )
    X_train = ImageFolder(train, size, None if classes is None else tuple(classes))
    X_test = ImageFolder(val, size, X_train.class_names)
    return Dataset(
        name="imagenet100",
        kind="image",
        class_names=X_train.class_names,
        **part_fields(train=(X_train, X_train.y), test=(X_test, X_test.y)),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        licence="non-commercial research and education (ImageNet terms of access)",
        citation="Deng, Dong, Socher, Li, Li, Fei-Fei: ImageNet, a large-scale hierarchical image database. CVPR 2009; "
        "subset: Tian, Krishnan, Isola: Contrastive multiview coding. ECCV 2020",
    )
