"""The 8 x 8 digits of scikit-learn: a data set that is always available."""

from __future__ import annotations

import numpy as np

from crowdwise.datasets.base import DATASETS, Dataset, part_fields
from crowdwise.datasets.files import Files
from crowdwise.datasets.splits import stratified_split


@DATASETS.register("digits")
def digits(files: Files) -> Dataset:
    """Optical digits: 1,347 / 450 grey images, 8 x 8, 10 classes; a fixed split, stratified by class."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    X = np.rint(bunch.images * (255 / 16)).astype(np.uint8)  # grey levels come as 0..16
    y = bunch.target
    train, test = stratified_split(y, n_test=450)
    return Dataset(
        name="digits",
        kind="image",
        class_names=tuple("0123456789"),
        **part_fields(train=(X[train], y[train]), test=(X[test], y[test])),
        licence="CC BY 4.0",
        citation="Alpaydin, Kaynak: Optical recognition of handwritten digits. UCI Machine Learning Repository, 1998",
    )
