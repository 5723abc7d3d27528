"""What a report is made from: labels, and whatever else is known of the instances, the labels and the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise._factorise import is_text
from crowdwise._frames import find_column
from crowdwise.aggregation.gold import gold_codes
from crowdwise.annotations import Annotations
from crowdwise.errors import DataError
from crowdwise.readers._files import load_columns

if TYPE_CHECKING:
    from crowdwise.datasets import Dataset
    from crowdwise.material import Material
    from crowdwise.methods.base import CrowdClassifier
    from crowdwise.readers import TableRead

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

# columns of a table of labels that tell more, by their usual names
EXTRAS = {
    "timestamps": ("timestamp", "time", "createdat", "created", "submittime", "submitted", "date", "updatedat"),
    "durations": ("duration", "seconds", "leadtime", "worktimeinseconds", "elapsed", "timespent"),
    "texts": ("text", "sentence", "content", "document", "body"),
    "pictures": ("image", "picture", "photo", "img", "imageurl", "imagepath", "file", "filename"),
}


@dataclass(frozen=True, eq=False)
class Source:
    """Everything that a report may show; what is None is left out of it."""

    title: str
    annotations: Annotations
    message: str = ""
    """What was read, in a line."""
    truth: npt.NDArray[np.int32] | None = None
    """True class of every instance, (n,), -1 where unknown; judges only, and is given to no method."""
    timestamps: Floats | None = None
    """When each annotation was made, (E,), in seconds; NaN where unknown. Likewise ``durations``."""
    durations: Floats | None = None
    texts: Sequence[Any] | None = None
    """Text of every instance, (n,)."""
    pictures: Sequence[Any] | None = None
    """Picture of every instance, (n,): an array (h, w) or (h, w, 3), a path below ``folder``, an address, or None."""
    folder: Path | None = None
    posterior: Floats | None = None
    """Posterior (n, C) where it is known already."""
    method: str | None = None
    """What ``posterior`` comes from."""
    X: Any = None
    model: CrowdClassifier | None = None
    """A classifier that was trained on the annotations of ``X``."""
    profiles: pa.Table | None = None
    """Table of annotators that was made earlier, where their labels are not at hand."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further lines of the overview."""


def from_table(path: Path, read: TableRead) -> Source:
    """A table of labels; times, texts and pictures are found in it by the usual names of such columns."""
    annotations = read.annotations
    truth = None if not read.gold else gold_codes(annotations, read.gold)
    extras = _extras(path, read)
    return Source(path.name, annotations, read.message, truth, folder=path.parent, **extras)


def from_dataset(data: Dataset) -> Source:
    """A public data set with a crowd of its own."""
    if data.annotations is None:
        raise DataError(f"data set {data.name!r} has no annotations to report on")
    truth = None if data.clean is None else data.clean.astype(np.int32)
    message = f"data set {data.name}"
    return Source(data.name, data.annotations, message, truth, **_seen(data.X_train, data.kind == "text"))


def from_material(material: Material, model: CrowdClassifier | None, title: str) -> Source:
    """What a training run was given, and the classifier that came out of it."""
    annotations, truth = material.annotations, None
    if material.crowd is not None:
        truth = material.crowd.y.astype(np.int32)
    elif material.gold is not None:
        truth = np.full(annotations.n_instances, -1, np.int32)
        truth[material.gold[0]] = annotations.class_codes(material.gold[1])
    return Source(
        title, annotations, material.message, truth, X=material.X, model=model, **_seen(material.X, text=False)
    )


def _seen(X: Any, text: bool) -> dict[str, Any]:
    """Instances that people can look at."""
    if text:
        return {"texts": X}
    shape = getattr(X, "shape", None)
    pictures = X is not None and (shape is None or len(shape) >= 3)  # a data set of pictures has no shape
    return {"pictures": X} if pictures else {}


def _extras(path: Path, read: TableRead) -> dict[str, Any]:
    """Times of the annotations, (E,), and texts and pictures of the instances, (n,)."""
    taken: dict[str, str] = {}

    def choose(names: Sequence[str]) -> Sequence[str]:
        free = [name for name in names if name not in read.columns.values()]
        for role, aliases in EXTRAS.items():
            found = find_column(aliases, free)
            if found is not None:
                taken[role] = found
                free.remove(found)
        return list(taken.values())

    columns = load_columns(path, choose)
    if len(read.annotations) != read.n_rows or any(len(column) != read.n_rows for column in columns.values()):
        return {}  # rows that were dropped cannot be told apart
    found: dict[str, Any] = {}
    for role, name in taken.items():
        if role in ("timestamps", "durations"):
            seconds = _seconds(columns[name], clock=role == "timestamps")
            if seconds is not None:
                found[role] = seconds
        else:
            found[role] = _by_instance(read.annotations, columns[name])
    return found


def _seconds(column: Any, *, clock: bool) -> Floats | None:
    """Numbers, or points in time, as seconds; None for a column that holds neither."""
    values = pa.chunked_array([pa.array(column)]) if isinstance(column, list) else column
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.timestamp("us")).cast(pa.int64())
        return _numbers(values) / 1e6
    if not is_text(values.type):
        return _numbers(values) if pa.types.is_floating(values.type) or pa.types.is_integer(values.type) else None
    try:
        return _numbers(values.cast(pa.float64()))
    except pa.ArrowInvalid:
        if not clock:
            return None
    try:
        zoned = pc.replace_substring_regex(values, r"(Z|[+-]\d\d:?\d\d| UTC)$", "")  # one zone is as good as another
        return _numbers(zoned.cast(pa.timestamp("us")).cast(pa.int64())) / 1e6
    except pa.ArrowInvalid:
        return None


def _numbers(values: Any) -> Floats:
    return np.asarray(values.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(), np.float64)


def _by_instance(annotations: Annotations, column: Any) -> list[Any]:
    """The first value of each instance's rows."""
    values = column if isinstance(column, list) else column.to_pylist()
    first: list[Any] = [None] * annotations.n_instances
    for row, instance in zip(range(len(values)), annotations.instance.tolist(), strict=True):
        if first[instance] is None:
            first[instance] = values[row]
    return first
