"""Known labels of some instances, however a user holds them, as class codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import _frames
from crowdwise._factorise import is_missing
from crowdwise.annotations import Annotations
from crowdwise.errors import DataError


def gold_codes(annotations: Annotations, gold: Any) -> npt.NDArray[np.int32] | None:
    """Codes (n,) of the known classes, -1 where nothing is known; None without gold labels.

    ``gold`` is a mapping from instance to label (instances that this crowd does not have are left out), a pandas series
    indexed by instance, a table with instance and label columns, or an array (n,) of labels in which None, NaN, "" and
    -1 are missing.

    >>> a = Annotations.from_triples([0, 1, 2], [0, 0, 0], [0, 1, 1], instances=["x", "y", "z"], classes=["no", "yes"])
    >>> gold_codes(a, {"y": "no"}), gold_codes(a, ["yes", None, "no"])
    (array([-1,  0, -1], dtype=int32), array([ 1, -1,  0], dtype=int32))
    """
    if gold is None:
        return None
    ids, labels = _pairs(gold)
    codes = np.full(annotations.n_instances, -1, np.int32)
    known = [row for row, label in enumerate(labels) if not _unknown(label, annotations)]
    if ids is None:
        if len(labels) != annotations.n_instances:
            raise DataError(
                f"gold has {len(labels)} labels, but this crowd has {annotations.n_instances} instances; "
                "pass a mapping from instance to label to name only some"
            )
        where = np.array(known, np.int64)
    else:
        position = dict(zip(annotations.instances.tolist(), range(annotations.n_instances), strict=True))
        known = [row for row in known if ids[row] in position]
        if not known and len(labels):
            raise DataError(
                f"none of the {len(labels)} gold instances (such as {ids[0]!r}) is in this crowd, "
                f"whose instances are such as {annotations.instances[:1].tolist()}"
            )
        where = np.array([position[ids[row]] for row in known], np.int64)
    if known:
        codes[where] = annotations.class_codes([labels[row] for row in known])
    return codes


def _pairs(gold: Any) -> tuple[list[Any] | None, list[Any]]:
    """Ids (None: all instances in order) and labels."""
    if isinstance(gold, Mapping):
        return list(gold), [_plain(label) for label in gold.values()]
    if hasattr(gold, "index") and hasattr(gold, "to_dict") and not hasattr(gold, "columns"):  # a pandas series
        return [_plain(i) for i in gold.index], [_plain(label) for label in gold]
    if _frames.is_frame(gold):
        columns = _frames.frame_columns(gold)
        names = [_frames.find_column(aliases, columns) for aliases in (_frames.ALIASES["instance"], _TRUTH)]
        if None in names:
            raise DataError(f"gold needs an instance and a label column; columns: {_frames.listing(columns)}")
        ids, labels = (column.data.to_pylist() for column in _frames.take_columns(gold, names))
        return ids, labels
    return None, [_plain(label) for label in gold]


_TRUTH = ("gold", "truth", "truelabel", "groundtruth", *_frames.ALIASES["label"])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _unknown(label: Any, annotations: Annotations) -> bool:
    if is_missing(label):
        return True
    return label in _frames.MISSING and label not in annotations.classes.tolist()
