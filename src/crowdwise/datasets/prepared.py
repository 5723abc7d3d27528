"""Prepared npz files: annotations as triples, and images as WebP strips; docs/datasets.md describes the layout."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crowdwise.data.types import Array, Ints, Pixels
from crowdwise.datasets.files import cache_folder, write_atomically
from crowdwise.errors import CrowdwiseWarning, DatasetError
from crowdwise.progress import progress_bar
from crowdwise.storage import arrays

if TYPE_CHECKING:
    from crowdwise.annotations import Annotations

PREPARED_HINT = "this data set needs a prepared file; docs/datasets.md describes its layout and the source of the data"
MOST = {"n_instances": 2**31 - 1, "n_annotators": 2**31 - 1, "n_classes": 2**20}
TRIPLES = ("instance", "annotator", "label", "n_instances", "n_annotators", "n_classes", "clean")


def read_npz(path: Path, *keys: str) -> dict[str, Array]:
    """The named arrays of an npz file, never unpickled; a broken file is a DatasetError."""
    return arrays.read_npz(path, keys, DatasetError)


def annotations_from(data: dict[str, Array]) -> Annotations:
    """The annotations of a prepared file that holds `TRIPLES`; their classes are codes, as the true classes are."""
    from crowdwise.annotations import Annotations

    return Annotations.from_triples(
        data["instance"],
        data["annotator"],
        data["label"],
        n_instances=count_of(data, "n_instances"),
        n_annotators=count_of(data, "n_annotators"),
        n_classes=count_of(data, "n_classes"),
    )


def triples_of(table: Array) -> dict[str, Array]:
    """A table of labels (instances, annotators), -1 for none, as triples."""
    instance, annotator = np.nonzero(table >= 0)
    sizes = {"n_instances": np.asarray(table.shape[0]), "n_annotators": np.asarray(table.shape[1])}
    return sizes | {"instance": instance, "annotator": annotator, "label": table[instance, annotator].astype(np.int64)}


def count_of(data: dict[str, Array], name: str) -> int:
    """A number of instances, annotators or classes: one integer within reason."""
    array = data[name]
    if array.size != 1 or array.dtype.kind not in "iu" or not 0 <= int(array.item()) <= MOST[name]:
        raise DatasetError(f"{name} is {str(array)[:60]} instead of a number from 0 to {MOST[name]:,}")
    return int(array.item())


def read_strips(name: str, *paths: Path) -> tuple[Pixels, Ints]:
    """Images (n, 32, 32, 3) and classes (n,) of prepared image files, concatenated.

    Decoding takes seconds, so the array is cached as ``<cache>/decoded/<name>-<checksum of the strips>.npy``. A cached
    file that cannot be read, or has the wrong shape or type, is replaced.
    """
    y = np.concatenate([read_npz(path, "y")["y"] for path in paths]).astype(np.int64)
    shape = (len(y), 32, 32, 3)
    cached = cache_folder() / "decoded" / f"{name}-{'-'.join(_checksum(path) for path in paths)}.npy"
    X = _load_cached(cached, shape)
    if X is None:
        X = _decode(name, paths, shape)
        try:
            write_atomically(cached, lambda file: np.save(file, X, allow_pickle=False))
        except OSError as error:
            warnings.warn(
                f"{name} has to be decoded each time: {cached} cannot be written ({error}); set CROWDWISE_CACHE "
                "to a writable folder",
                CrowdwiseWarning,
                stacklevel=2,
            )
    return X, y


def _checksum(path: Path) -> str:
    """The CRC-32 of the strips from the zip directory, without reading them."""
    with zipfile.ZipFile(path) as archive:
        if "webp.npy" not in archive.namelist():
            raise DatasetError(f"{path} lacks the array webp: it is not a prepared image file")
        return f"{archive.getinfo('webp.npy').CRC:08x}"


def _load_cached(path: Path, shape: tuple[int, ...]) -> Pixels | None:
    try:
        X = arrays.read_npy(path, DatasetError)
    except DatasetError:
        return None
    return X if X.shape == shape and X.dtype == np.uint8 else None


def _decode(name: str, paths: Sequence[Path], shape: tuple[int, ...]) -> Pixels:
    from PIL import Image

    X = np.empty(shape, np.uint8)
    filled = 0
    with progress_bar(f"decoding {name}", shape[0]) as advance:
        for path in paths:
            data = read_npz(path, "webp", "offsets")
            webp, offsets = data["webp"], data["offsets"]
            if webp.ndim != 1 or webp.dtype != np.uint8 or offsets.ndim != 1 or offsets.dtype.kind not in "iu":
                raise DatasetError(f"{path}: webp must be a vector of bytes, and offsets one of integers")
            for k, (begin, end) in enumerate(pairwise(offsets)):
                try:
                    with Image.open(BytesIO(webp[begin:end].tobytes()), formats=["WEBP"]) as image:
                        pixels = np.asarray(image.convert("RGB"))  # 32 wide, the images below each other
                    if pixels.shape[1] != 32:
                        raise ValueError(f"it is {pixels.shape[1]} pixels wide instead of 32")
                    strip = pixels.reshape(-1, 32, 32, 3)
                    X[filled : filled + len(strip)] = strip
                except (OSError, ValueError, Image.DecompressionBombError) as error:
                    raise DatasetError(f"strip {k} of {path} cannot be decoded: {error}") from error
                filled += len(strip)
                advance(len(strip))
    if filled != shape[0]:
        raise DatasetError(f"{', '.join(map(str, paths))}: {filled:,} images but {shape[0]:,} classes")
    return X
