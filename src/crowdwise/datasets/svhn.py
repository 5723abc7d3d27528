"""SVHN, the cropped digits of Street View house numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdwise.data.types import Ints, Pixels
from crowdwise.datasets.base import DATASETS, Dataset, part_fields
from crowdwise.datasets.files import Files, Remote
from crowdwise.datasets.prepared import read_strips
from crowdwise.errors import DatasetError

SERVER = "http://ufldl.stanford.edu/housenumbers/"
OFFICIAL = (
    Remote(SERVER + "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    Remote(SERVER + "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
)
PREPARED = ("svhn_train.npz", "svhn_test.npz")


@DATASETS.register("svhn")
def svhn(files: Files) -> Dataset:
    """SVHN: 73,257 / 26,032 colour images of digits, 32 x 32, 10 classes."""
    train, test = files.find([remote.name for remote in OFFICIAL], PREPARED, remotes=OFFICIAL)
    if train.suffix == ".mat":
        parts = part_fields(train=_read_mat(train), test=_read_mat(test))
    else:
        parts = part_fields(train=read_strips("svhn-train", train), test=read_strips("svhn-test", test))
    return Dataset(
        name="svhn",
        kind="image",
        class_names=tuple("0123456789"),
        **parts,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        licence="non-commercial use only",
        citation="Netzer, Wang, Coates, Bissacco, Wu, Ng: Reading digits in natural images with unsupervised feature "
        "learning. NIPS workshop on deep learning and unsupervised feature learning, 2011",
    )


def _read_mat(path: Path) -> tuple[Pixels, Ints]:
    """Images (n, 32, 32, 3) and classes (n,) of an official file, which has X (32, 32, 3, n) and labels digit 0 as 10."""
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=("X", "y"))
        X, y = content["X"], content["y"]
    except Exception as error:  # scipy documents no exception for malformed files
        raise DatasetError(f"{path} is not a readable SVHN file: {error!r}") from error
    if X.ndim != 4 or X.shape[:3] != (32, 32, 3) or X.dtype != np.uint8 or y.size != X.shape[3]:
        raise DatasetError(
            f"{path} has X {X.shape} {X.dtype} and y {y.shape} instead of X (32, 32, 3, n) uint8 and y (n, 1)"
        )
    digit = y.ravel().astype(np.int64)
    if len(digit) and not (digit.min() >= 1 and digit.max() <= 10):
        raise DatasetError(f"{path} has labels {digit.min()}..{digit.max()} instead of 1..10")
    return np.ascontiguousarray(X.transpose(3, 0, 1, 2)), digit % 10
