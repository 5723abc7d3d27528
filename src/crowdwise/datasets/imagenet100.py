"""ImageNet-100: a hundred classes of ImageNet, as folders of images."""

from __future__ import annotations

from collections.abc import Sequence

from crowdwise.datasets.base import DATASETS, Dataset, part_fields
from crowdwise.datasets.files import Files
from crowdwise.datasets.image_folder import ImageFolder


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
