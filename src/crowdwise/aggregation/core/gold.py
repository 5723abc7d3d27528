"""Known labels of some instances, however a user holds them, as class codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.annotations import Annotations
from crowdwise.data import frames
from crowdwise.data.factorise import Column, plain
from crowdwise.errors import DataError

_TRUTH = ("gold", "truth", "truelabel", "groundtruth", *frames.ALIASES["label"])


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
    ids, labels = _columns(gold)
    values, known = _known(labels, annotations)
    codes = np.full(annotations.n_instances, -1, np.int32)
    if ids is None:
        if len(values) != annotations.n_instances:
            raise DataError(
                f"gold has {len(values)} labels, but this crowd has {annotations.n_instances} instances; "
                "pass a mapping from instance to label to name only some"
            )
        where = np.arange(len(values))
    else:
        where = _positions(ids, annotations)
        if len(where) and not np.any(where >= 0):
            raise DataError(
                f"none of the {len(where)} gold instances (such as {ids.data[0].as_py()!r}) is in this crowd, "
                f"whose instances are such as {annotations.instances[:1].tolist()}"
            )
        known &= where >= 0
    codes[where[known]] = annotations.class_codes(values.filter(pa.array(known)))
    return codes


def _columns(gold: Any) -> tuple[Column | None, Column]:
    """Ids (None: all instances in order) and labels."""
    if isinstance(gold, Mapping):
        return Column.of(list(gold), "gold instances"), Column.of(list(gold.values()), "gold labels")
    if hasattr(gold, "index") and hasattr(gold, "to_dict") and not hasattr(gold, "columns"):  # a pandas series
        return Column.of(gold.index.to_numpy(), "gold instances"), Column.of(gold.to_numpy(), "gold labels")
    if frames.is_frame(gold):
        columns = frames.frame_columns(gold)
        names = [frames.find_column(aliases, columns) for aliases in (frames.ALIASES["instance"], _TRUTH)]
        if None in names:
            raise DataError(f"gold needs an instance and a label column; columns: {frames.listing(columns)}")
        ids, labels = frames.take_columns(gold, names)
        return ids, labels
    return None, Column.of(gold, "gold labels")


def _known(labels: Column, annotations: Annotations) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Labels of one plain type, and which of them are not missing."""
    data = labels.data
    if pa.types.is_dictionary(data.type):
        data = data.cast(data.type.value_type)
    values = plain(data.combine_chunks())
    classes = annotations.class_vocabulary.arrow
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
        if pa.types.is_integer(classes.type) and pc.all(pc.equal(values, pc.floor(values))).as_py() is not False:
            values = values.cast(pa.int64())  # integers that NaN has turned into floats
    known = values.is_valid().to_numpy(zero_copy_only=False).copy()
    markers = [marker for marker in frames.MISSING if marker not in annotations.classes.tolist()]
    for marker in markers:
        if pa.types.is_null(values.type) or pa.scalar(marker).type != _scalar_type(values.type):
            continue
        known &= ~pc.fill_null(pc.equal(values, pa.scalar(marker, values.type)), False).to_numpy(zero_copy_only=False)
    return values, known


def _scalar_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if kind == pa.large_string() else kind


def _positions(ids: Column, annotations: Annotations) -> npt.NDArray[np.int64]:
    """Code of every instance id, -1 where this crowd does not have it."""
    theirs, ours = plain(ids.data.combine_chunks()), annotations.instance_vocabulary.arrow
    if theirs.type != ours.type:
        return np.full(len(theirs), -1)
    found = pc.fill_null(pc.index_in(theirs, value_set=ours), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
