"""CIFAR-10, and CIFAR-10N: the same training images with crowd labels."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from crowdwise.data.types import Ints, Pixels
from crowdwise.datasets.base import DATASETS, Dataset, part_fields
from crowdwise.datasets.files import Files, Remote
from crowdwise.datasets.prepared import PREPARED_HINT, TRIPLES, annotations_from, read_npz, read_strips, triples_of
from crowdwise.errors import ConfigError, DatasetError
from crowdwise.storage.limits import Bounded

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# The binary version: the python version is pickled, and unpickling can run any code.
ARCHIVE = Remote("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530")
BATCHES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")
PREPARED = ("cifar10_train_a.npz", "cifar10_train_b.npz", "cifar10_test.npz")
ROW = 1 + 3 * 32 * 32  # a class, then the red, green and blue planes
MOST_ROWS = 10_000  # in one batch


@DATASETS.register("cifar10")
def cifar10(files: Files) -> Dataset:
    """CIFAR-10: 50,000 / 10,000 colour images, 32 x 32, 10 classes."""
    extracted = [f"cifar-10-batches-bin/{name}" for name in BATCHES]
    paths = files.find([ARCHIVE.name], extracted, PREPARED, remotes=[ARCHIVE])
    if len(paths) == len(PREPARED):
        train, test = read_strips("cifar10-train", *paths[:2]), read_strips("cifar10-test", paths[2])
    else:
        contents = _archive_contents(paths[0]) if len(paths) == 1 else [path.read_bytes() for path in paths]
        batches = [_parse(content, f"{name} of CIFAR-10") for content, name in zip(contents, BATCHES, strict=True)]
        X, y = zip(*batches[:5], strict=True)
        train, test = (np.concatenate(X), np.concatenate(y)), batches[5]
    return Dataset(
        name="cifar10",
        kind="image",
        class_names=CLASS_NAMES,
        **part_fields(train=train, test=test),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        citation="Krizhevsky: Learning multiple layers of features from tiny images. Technical report, 2009",
    )


def _archive_contents(path: Path) -> list[bytes]:
    """The bytes of the batches. Members are read in memory by exact name; nothing is extracted to disk."""
    wanted = {f"cifar-10-batches-bin/{name}" for name in BATCHES}
    found: dict[str, bytes] = {}
    try:
        with gzip.open(path) as packed, tarfile.open(fileobj=_bounded(packed, path), mode="r|") as archive:
            for member in archive:
                if member.name in wanted and member.isreg() and member.size <= MOST_ROWS * ROW:
                    file = archive.extractfile(member)
                    assert file is not None  # regular files have content
                    found[member.name] = file.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DatasetError(f"{path} is not a complete tar.gz archive: {error}") from error
    if missing := sorted(wanted - found.keys()):
        raise DatasetError(f"{path} lacks {', '.join(missing)} (as regular files of at most {MOST_ROWS:,} images)")
    return [found[f"cifar-10-batches-bin/{name}"] for name in BATCHES]


def _bounded(packed: gzip.GzipFile, path: Path) -> io.BufferedReader:
    """The unpacked archive, cut off well beyond the size of its batches."""
    return io.BufferedReader(Bounded(packed, path, 2 * len(BATCHES) * MOST_ROWS * ROW, DatasetError))


def _parse(content: bytes, name: str) -> tuple[Pixels, Ints]:
    if not content or len(content) % ROW:
        raise DatasetError(f"{name} has {len(content):,} bytes, not a multiple of {ROW:,}, the size of an image")
    rows = np.frombuffer(content, np.uint8).reshape(-1, ROW)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), rows[:, 0].astype(np.int64)


@DATASETS.register("cifar10n")
def cifar10n(files: Files, labels: str = "workers") -> Dataset:
    """CIFAR-10N: CIFAR-10 with three human labels for each training image.

    ``labels="workers"``: 150,000 labels by 747 worker ids, as published. Beware: the ids have no measurable relation to
    the labels, so the link from image to worker seems lost and nothing can be learnt about single annotators.
    ``"columns"``: the same labels as three annotators, one for each published column. ``"aggregate"`` and ``"worst"``:
    one annotator, with the published majority vote, or with a wrong label wherever one was given.
    """
    sets = {
        "columns": ("random_label1", "random_label2", "random_label3"),
        "aggregate": ("aggre_label",),
        "worst": ("worse_label",),
    }
    if labels != "workers" and labels not in sets:
        raise ConfigError(f"labels of cifar10n must be 'workers', {', '.join(map(repr, sets))}, not {labels!r}")
    (path,) = files.find(["cifar10n.npz"], hint=PREPARED_HINT)
    columns = sets.get(labels, ())
    data = read_npz(path, *TRIPLES, *columns)
    if columns:
        data |= triples_of(np.stack([data[column] for column in columns], axis=1))
    return replace(
        cifar10(replace(files, dataset="cifar10")),
        name="cifar10n",
        annotations=annotations_from(data),
        licence="CC BY-NC 4.0 (labels); none stated (images)",
        citation="Wei, Zhu, Cheng, Liu, Niu, Liu: Learning with noisy labels revisited, a study using real-world human "
        "annotations. ICLR 2022",
    )
