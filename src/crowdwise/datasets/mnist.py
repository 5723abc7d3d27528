"""Fashion-MNIST and Kuzushiji-MNIST, from their official idx files (gzipped or not)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.types import Array
from crowdwise.datasets.base import DATASETS, Dataset, part_fields
from crowdwise.datasets.files import Files, Remote
from crowdwise.datasets.idx import read_idx
from crowdwise.datasets.prepared import read_npz
from crowdwise.datasets.splits import stratified_split
from crowdwise.errors import ConfigError, DatasetError

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
PLAIN_FILES = tuple(name.removesuffix(".gz") for name in FILES)


def _remotes(server: str, *md5: str) -> tuple[Remote, ...]:
    return tuple(Remote(server + name, digest) for name, digest in zip(FILES, md5, strict=True))


FASHION_MNIST = _remotes(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
K_MNIST = _remotes(
    "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
    "bdb82020997e1d708af4cf47b453dcf7",
    "e144d726b3acfaa3e44228e80efcd344",
    "5c965bf0a639b31b8f53240b1b52f4d7",
    "7320c461ea6c1c855c0b718fb2a4b134",
)


def _read(files: Files, **where: Any) -> dict[str, Any]:
    """X and y of both parts. The file names do not say which data set they belong to, hence ``generic``."""
    paths = files.find(FILES, PLAIN_FILES, generic=True, **where)
    images = [_checked(path, read_idx(path, n_dims=3)) for path in paths[::2]]
    labels = [read_idx(path, n_dims=1) for path in paths[1::2]]
    return part_fields(train=(images[0], labels[0]), test=(images[1], labels[1]))


@DATASETS.register("fashion-mnist")
def fashion_mnist(files: Files, n_train: int | None = None) -> Dataset:
    """Fashion-MNIST: 60,000 / 10,000 grey images of clothes, 28 x 28, 10 classes.

    ``n_train`` takes so many of the training images, the same share of each class, and all test images: a smaller
    data set, named ``fashion-mnist-6000`` for instance.
    """
    parts = _read(
        files,
        remotes=FASHION_MNIST,
        folders=("FashionMNIST/raw",),
        system="/usr/share/datasets/fashion-mnist",
        hint="on Debian and Ubuntu: apt-get install dataset-fashion-mnist",
    )
    if n_train is not None:
        parts |= _fewer(parts["X_train"], parts["y_train"], n_train)
    return Dataset(
        name="fashion-mnist" if n_train is None else f"fashion-mnist-{n_train}",
        kind="image",
        class_names=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        mean=(0.2860,),
        std=(0.3530,),
        licence="MIT",
        citation="Xiao, Rasul, Vollgraf: Fashion-MNIST, a novel image dataset for benchmarking machine learning "
        "algorithms. arXiv:1708.07747, 2017",
        **parts,
    )


def _fewer(X: Array, y: Array, n: int) -> dict[str, Any]:
    """``n`` of the training images, stratified by class."""
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n < len(y):
        raise ConfigError(f"n_train of fashion-mnist must be a whole number from 1 to {len(y) - 1:,}, got {n!r}")
    _, chosen = stratified_split(y, n_test=n)
    return part_fields(train=(X[chosen], y[chosen]))


@DATASETS.register("k-mnist")
def k_mnist(files: Files, part: str = "all") -> Dataset:
    """Kuzushiji-MNIST: 60,000 / 10,000 grey images of cursive Japanese characters, 28 x 28, 10 classes.

    ``part="test10k"`` splits the 10,000 test images into 8,000 / 2,000, stratified by class, if nothing else is available
    (``kmnist_test10k.npz``: X, y). That is a different, smaller data set, named ``k-mnist-test10k``.
    """
    if part not in ("all", "test10k"):
        raise ConfigError(f"part of k-mnist must be 'all' or 'test10k', not {part!r}")
    hint = "with the test images alone (kmnist_test10k.npz): load('k-mnist', part='test10k')" if part == "all" else ""
    return Dataset(
        name="k-mnist" if part == "all" else "k-mnist-test10k",
        kind="image",
        class_names=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        mean=(0.1904,),
        std=(0.3475,),
        licence="CC BY-SA 4.0",
        citation="Clanuwat, Bober-Irizar, Kitamoto, Lamb, Yamamoto, Ha: Deep learning for classical Japanese "
        "literature. arXiv:1812.01718, 2018",
        **(_read(files, remotes=K_MNIST, folders=("KMNIST/raw",), hint=hint) if part == "all" else _test10k(files)),
    )


def _test10k(files: Files) -> dict[str, Any]:
    (path,) = files.find(["kmnist_test10k.npz"])
    data = read_npz(path, "X", "y")
    X, y = _checked(path, data["X"]), data["y"].astype(np.int64)
    train, test = stratified_split(y, n_test=len(y) // 5)
    return part_fields(train=(X[train], y[train]), test=(X[test], y[test]))


def _checked(path: Path, X: Array) -> Array:
    if X.shape[1:] != (28, 28) or X.dtype != np.uint8:
        raise DatasetError(f"{path} has {X.shape} {X.dtype} instead of grey images (n, 28, 28) uint8")
    return X
