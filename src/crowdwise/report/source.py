"""The sources of a report: labels, and what else is known about the instances, the labels and the training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.agreement import Ordered
from crowdwise.annotations import Annotations
from crowdwise.data.types import Floats
from crowdwise.errors import DataError
from crowdwise.readers import MODEL

if TYPE_CHECKING:
    from crowdwise.data.training import TrainingData
    from crowdwise.datasets import Dataset
    from crowdwise.methods.core.base import CrowdClassifier
    from crowdwise.readers import Export


@dataclass(frozen=True, eq=False)
class Source:
    """Everything that a report may show; what is None is left out."""

    title: str
    annotations: Annotations
    message: str = ""
    """What was read, in one line."""
    truth: npt.NDArray[np.int32] | None = None
    """True class of every instance, (n,), -1 if unknown; for evaluation only, never given to a method."""
    timestamps: Floats | None = None
    """When each annotation was made, (E,), in seconds; NaN if unknown. Likewise ``durations``."""
    durations: Floats | None = None
    kinds: npt.NDArray[np.str_] | None = None
    """Whether each annotator is a "person" or a "model", (R,)."""
    texts: Sequence[Any] | None = None
    """Text of every instance, (n,)."""
    pictures: Sequence[Any] | None = None
    """Picture of every instance, (n,): an array (h, w) or (h, w, 3), a path below ``folder``, an address, or None."""
    folder: Path | None = None
    extra: pa.Table | None = None
    """Other columns of the file (comments, costs, ...), a row for every annotation, (E,)."""
    posterior: Floats | None = None
    """Posterior (n, C), if it is already known."""
    method: str | None = None
    """The method that ``posterior`` comes from."""
    X: Any = None
    model: CrowdClassifier | None = None
    """A classifier trained on the annotations of ``X``."""
    profiles: pa.Table | None = None
    """An earlier table of annotators, if their labels are missing."""
    ordered: Ordered = "auto"
    """Whether the classes are ordered, and how: see `crowdwise.agreement.scale_of`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further lines of the overview."""

    @property
    def gold(self) -> dict[Any, Any] | None:
        """True classes by instance, in the user's ids; None where none is known."""
        known = np.flatnonzero(self.truth >= 0) if self.truth is not None else np.empty(0, np.int64)
        if self.truth is None or not len(known):
            return None
        crowd = self.annotations
        ids, classes = crowd.instance_vocabulary.take(known), crowd.class_vocabulary.take(self.truth[known])
        return dict(zip(ids.to_pylist(), classes.to_pylist(), strict=True))

    @property
    def models(self) -> list[Any]:
        """Ids of the annotators that are models."""
        if self.kinds is None:
            return []
        return list(np.asarray(self.annotations.annotators)[self.kinds == MODEL].tolist())


def from_export(path: Path, read: Export, root: Path | None = None) -> Source:
    """A file of labels, with its times, texts, pictures and other columns; pictures lie below ``root`` or beside the file."""
    truth = None if not read.gold else gold_codes(read.annotations, read.gold)
    return Source(
        path.name,
        read.annotations,
        read.message,
        truth,
        timestamps=None if read.timestamps is None else _seconds(read.timestamps),
        durations=read.durations,
        kinds=read.kinds,
        texts=None if read.texts is None else read.texts.to_pylist(),
        pictures=None if read.pictures is None else read.pictures.to_pylist(),
        folder=path.parent if root is None else root,
        extra=read.extra,
    )


def from_dataset(data: Dataset) -> Source:
    """A public data set with its own crowd."""
    if data.annotations is None:
        raise DataError(f"data set {data.name!r} has no annotations to report on")
    truth = None if data.clean is None else data.clean.astype(np.int32)
    message = f"data set {data.name}"
    return Source(data.name, data.annotations, message, truth, **_seen(data.X_train, data.kind == "text"))


def from_training(data: TrainingData, model: CrowdClassifier | None, title: str, *, same: bool = True) -> Source:
    """The data of a training run, and the trained classifier; ``same``: in the rows that it was trained on."""
    annotations, truth = data.annotations, None
    if data.crowd is not None:
        truth = data.crowd.y.astype(np.int32)
    elif data.gold is not None:
        truth = np.full(annotations.n_instances, -1, np.int32)
        truth[data.gold[0]] = annotations.class_codes(data.gold[1])
    known = same and model is not None and hasattr(model, "posterior_")
    return Source(
        title,
        annotations,
        data.message,
        truth,
        posterior=model.posterior_ if known and model is not None else None,
        X=data.X,
        model=model,
        **_seen(data.X, text=False),
    )


def with_instances(source: Source, X: Any) -> Source:
    """The same with its instances, which are shown where they can be and nothing else is."""
    seen = _seen(X, text=False) if source.texts is None and source.pictures is None else {}
    return dataclasses.replace(source, X=X, **seen)


def _seen(X: Any, text: bool) -> dict[str, Any]:
    """Instances that people can look at."""
    if text or (isinstance(X, np.ndarray) and X.ndim == 1):
        return {"texts": X}
    shape = getattr(X, "shape", None)
    pictures = X is not None and not isinstance(X, dict) and (shape is None or len(shape) >= 3)  # a folder has no shape
    return {"pictures": X} if pictures else {}


def _seconds(times: npt.NDArray[np.datetime64]) -> Floats:
    """Points in time as seconds, NaN where unknown."""
    seconds = times.astype("datetime64[us]").astype(np.int64) / 1e6
    return np.where(np.isnat(times), np.nan, seconds)
