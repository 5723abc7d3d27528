"""What a data set is, and how it is loaded by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from crowdwise.data.types import Array, Ints
from crowdwise.datasets.files import Files
from crowdwise.errors import ConfigError, DataError, DatasetError, suggest
from crowdwise.registry import Registry

if TYPE_CHECKING:
    from crowdwise.annotations import Annotations

Kind = Literal["image", "features", "text", "labels"]
Loader = Callable[..., "Dataset"]

DATASETS: Registry[Loader] = Registry("data set", "crowdwise.datasets")


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Instances, annotations and, **for evaluation only**, true classes.

    ``y_train``, ``y_valid`` and ``truth`` are for measuring results only; no method may see them. Parts that the data
    set does not have are None.
    """

    name: str
    kind: Kind
    class_names: tuple[str, ...]
    X_train: Any = None
    """Images uint8 (n, H, W) or (n, H, W, 3), features float32 (n, d), texts (n,), or an `ImageFolder`."""
    y_train: Ints | None = None
    X_valid: Any = None
    y_valid: Ints | None = None
    X_test: Any = None
    y_test: Ints | None = None
    annotations: Annotations | None = None
    """Labels that the annotators gave to the training instances: codes, as in ``y_train``; ``class_names`` has their names."""
    truth: Ints | None = None
    """True classes of a label-only set, -1 where unknown."""
    mean: tuple[float, ...] | None = None
    """Usual mean of each channel, for pixels scaled to [0, 1]; likewise ``std``."""
    std: tuple[float, ...] | None = None
    licence: str = "none stated"
    citation: str = ""

    def __post_init__(self) -> None:
        for part in ("train", "valid", "test"):
            X, y = getattr(self, f"X_{part}"), getattr(self, f"y_{part}")
            if X is not None and y is not None and len(X) != len(y):
                raise DataError(f"{self.name}: {part} has {len(X):,} instances but {len(y):,} true classes")
            self._check_classes(f"y_{part}", y, lowest=0)
        self._check_classes("truth", self.truth, lowest=-1)
        if self.annotations is not None:
            for what, values in (("X_train", self.X_train), ("y_train", self.y_train), ("truth", self.truth)):
                if values is not None and len(values) != self.annotations.n_instances:
                    raise DataError(
                        f"{self.name}: {what} has {len(values):,} entries, "
                        f"but the annotations cover {self.annotations.n_instances:,} instances"
                    )

    def _check_classes(self, what: str, y: Ints | None, lowest: int) -> None:
        if y is not None and len(y) and not (lowest <= y.min() and y.max() < self.n_classes):
            wrong = y[(y < lowest) | (y >= self.n_classes)][0]
            raise DataError(
                f"{self.name}: {what} has class {wrong}, but there are {self.n_classes} (0..{self.n_classes - 1})"
            )

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return len(self.class_names)

    @property
    def clean(self) -> Ints | None:
        """True classes of the annotated instances, for evaluation only: `truth` of a label-only set, else `y_train`."""
        return self.y_train if self.truth is None else self.truth

    def __repr__(self) -> str:
        lines = [f"Dataset {self.name!r}: {self.kind}, {self.n_classes} classes"]
        for part in ("train", "valid", "test"):
            X = getattr(self, f"X_{part}")
            if X is not None:
                dtype = "text" if self.kind == "text" else X.dtype
                lines.append(f"  {part:7} {' x '.join(f'{side:,}' for side in X.shape)} {dtype}")
        if self.annotations is not None:
            n, annotators, labels = self.annotations.n_instances, self.annotations.n_annotators, len(self.annotations)
            lines.append(f"  crowd   {labels:,} labels of {n:,} instances by {annotators:,} annotators")
        if self.truth is not None:
            lines.append(f"  truth   {np.count_nonzero(self.truth >= 0):,} of {len(self.truth):,} known")
        return "\n".join([*lines, f"  licence {self.licence}"])


def part_fields(**parts: tuple[Any, Array]) -> dict[str, Any]:
    """The fields of `Dataset` for parts (X, y).

    >>> part_fields(train=(["a"], np.array([1], np.uint8)))
    {'X_train': ['a'], 'y_train': array([1])}
    """
    X = {f"X_{part}": X for part, (X, _) in parts.items()}
    return X | {f"y_{part}": np.array(y, np.int64) for part, (_, y) in parts.items()}


def names() -> tuple[str, ...]:
    """All names that `load` accepts, sorted.

    >>> names()[:3]
    ('bluebird', 'cf-weather', 'cifar10')
    """
    return tuple(DATASETS)


def load(name: str, *, root: str | os.PathLike[str] | None = None, download: bool = False, **options: Any) -> Dataset:
    """Load a data set by name; ``options`` are those of its loader, see docs/datasets.md.

    Files are searched for in ``root``, in the folders of the environment variable ``CROWDWISE_DATA``, in the cache
    (``CROWDWISE_CACHE``, else ``~/.cache/crowdwise``), and where system packages put them. With ``download=True``,
    missing files with an official URL are downloaded into ``root``, else into the cache.

    >>> digits = load("digits")
    >>> digits.X_train.shape, digits.y_test.shape, digits.n_classes
    ((1347, 8, 8), (450,), 10)
    """
    loader = DATASETS[name]
    known = set(list(inspect.signature(loader).parameters)[1:])
    for option in options:
        if option not in known:
            raise ConfigError(f"data set {name!r} has no option {option!r}{suggest(option, known)}")
    try:
        return loader(Files(name, None if root is None else Path(root).expanduser(), download), **options)
    except (DatasetError, ConfigError):
        raise
    except (ValueError, TypeError, LookupError, OverflowError) as error:  # arrays of unexpected shapes and types
        raise DatasetError(f"the files of data set {name!r} are damaged: {error}") from error


def is_here(name: str, *, root: str | os.PathLike[str] | None = None, **options: Any) -> bool:
    """Whether the files that a data set begins with are on this machine; nothing is read.

    >>> is_here("digits")
    True
    """
    try:
        DATASETS[name](_Looking(name, None if root is None else Path(root).expanduser()), **options)
    except DatasetError:
        return False
    except _Found:
        pass
    return True


class _Found(Exception):
    """The files of a data set are there."""


class _Looking(Files):
    """Ends a loader as soon as its files are found."""

    def find(self, *alternatives: Any, **where: Any) -> tuple[Path, ...]:
        super().find(*alternatives, **where)
        raise _Found
