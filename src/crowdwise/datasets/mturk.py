"""Data sets annotated on Amazon Mechanical Turk: LabelMe, music genres, sentence polarity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.types import Array
from crowdwise.datasets.base import DATASETS, Dataset, part_fields
from crowdwise.datasets.files import Files
from crowdwise.datasets.prepared import PREPARED_HINT, TRIPLES, annotations_from, read_npz, triples_of
from crowdwise.errors import ConfigError, DatasetError
from crowdwise.storage.arrays import read_npy

LABELME_CLASSES = (
    *("highway", "insidecity", "tallbuilding", "street"),
    *("forest", "coast", "mountain", "opencountry"),
)
PARTS = ("train", "valid", "test")


@DATASETS.register("labelme")
def labelme(files: Files, features: str = "pooled") -> Dataset:
    """LabelMe-MTurk: 1,000 / 500 / 1,188 scene images as VGG-16 features, 8 classes; 2,547 labels by 59 annotators.

    ``features="pooled"``: 512 averages (``labelme_mturk.npz``). ``"maps"``: the authors' 4 x 4 x 512 maps, flattened
    to 8,192, from their folder of npy files; its 10,000 training rows are ten variants of each of the 1,000 images,
    with the labels repeated.
    """
    if features not in ("pooled", "maps"):
        raise ConfigError(f"features of labelme must be 'pooled' or 'maps', not {features!r}")
    arrays = _labelme_pooled(files) if features == "pooled" else _labelme_maps(files)
    return Dataset(
        name="labelme",
        kind="features",
        class_names=LABELME_CLASSES,
        licence="GPL-3 (the repository that distributes it)",
        citation="Rodrigues, Lourenço, Ribeiro, Pereira: Learning supervised topic models for classification and "
        "regression from crowds. TPAMI 39(12), 2017",
        **arrays,
    )


def _labelme_pooled(files: Files) -> dict[str, Any]:
    (path,) = files.find(["labelme_mturk.npz"], hint=PREPARED_HINT)
    data = read_npz(path, *TRIPLES, *(f"{array}_{part}" for array in "Xy" for part in PARTS))
    return _parts(data, PARTS) | {"annotations": annotations_from(data)}


def _labelme_maps(files: Files) -> dict[str, Any]:
    names = [f"{stem}.npy" for part in PARTS for stem in (f"data_{part}_vgg16", f"labels_{part}")]
    *paths, answers = files.find(
        [*names, "answers.npy"],
        folders=("LabelMe/prepared", "LabelMe"),
        generic=True,
        hint="the files are in LabelMe/prepared of the authors' deep_LabelMe archive, http://fprodrigues.com",
    )
    arrays = [_read_npy(path) for path in paths]
    data: dict[str, Array] = {}
    for part, maps, labels in zip(PARTS, arrays[::2], arrays[1::2], strict=True):
        data[f"X_{part}"], data[f"y_{part}"] = maps.reshape(len(maps), -1), labels
    return _parts(data, PARTS) | {"annotations": annotations_from(_answers(answers))}


def _read_npy(path: Path) -> Array:
    array = read_npy(path, DatasetError, mapped=True)
    if array.ndim == 0:
        raise DatasetError(f"{path} has a single number instead of an array with rows")
    return array


def _answers(path: Path) -> dict[str, Array]:
    """The authors' table of answers (instances, annotators), -1 for none, as triples."""
    table = _read_npy(path)
    if table.ndim != 2:
        raise DatasetError(f"{path} has shape {table.shape} instead of (instances, annotators)")
    return triples_of(table) | {"n_classes": np.asarray(len(LABELME_CLASSES))}


@DATASETS.register("music")
def music(files: Files) -> Dataset:
    """Music genres: 700 / 300 songs as 124 features, 10 classes; 2,945 labels by 44 annotators."""
    (path,) = files.find(["music_mturk.npz"], hint=PREPARED_HINT)
    data = read_npz(path, *TRIPLES, "X_train", "y_train", "X_test", "y_test", "class_names")
    class_names = tuple(map(str, data["class_names"]))
    return Dataset(
        name="music",
        kind="features",
        class_names=class_names,
        annotations=annotations_from(data),
        citation="Rodrigues, Pereira, Ribeiro: Learning from multiple annotators, distinguishing good from random "
        "labelers. Pattern Recognition Letters 34(12), 2013",
        **_parts(data, ("train", "test")),
    )


@DATASETS.register("sentiment")
def sentiment(files: Files) -> Dataset:
    """Sentence polarity: 4,999 / 3,999 sentences (text) of film reviews, 2 classes; 27,746 labels by 203 annotators."""
    (path,) = files.find(["sentiment_mturk.npz"], hint=PREPARED_HINT)
    data = read_npz(path, *TRIPLES, "text_train", "text_test", "y_test")
    class_names = ("negative", "positive")
    return Dataset(
        name="sentiment",
        kind="text",
        class_names=class_names,
        **part_fields(train=(data["text_train"], data["clean"]), test=(data["text_test"], data["y_test"])),
        annotations=annotations_from(data),
        licence="GPL-3 (the repository that distributes it)",
        citation="Rodrigues, Pereira, Ribeiro: Learning from multiple annotators, distinguishing good from random "
        "labelers. Pattern Recognition Letters 34(12), 2013; sentences: Pang, Lee, ACL 2005",
    )


def _parts(data: dict[str, Array], parts: Sequence[str]) -> dict[str, Any]:
    """The fields of `Dataset` for parts of features, as float32."""
    return part_fields(**{part: (np.array(data[f"X_{part}"], np.float32), data[f"y_{part}"]) for part in parts})
