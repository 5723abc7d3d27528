"""Items to look at, from what Python has: texts, pictures, paths."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.annotations import Annotations
from crowdwise.errors import DataError
from crowdwise.readers import Export, is_picture
from crowdwise.readers.table import describe


def export_of(annotations: Any, X: Any) -> tuple[Export, Sequence[Any] | None]:
    """Annotations with the texts of ``X``, and its pictures."""
    export = annotations if isinstance(annotations, Export) else _bare(Annotations.coerce(annotations))
    n = export.annotations.n_instances
    if X is None:
        return export, None
    if len(X) != n:
        raise DataError(f"X has {len(X):,} items, but the annotations cover {n:,} instances", parameter="X")
    shape = getattr(X, "shape", (n,))
    if len(shape) >= 3:
        return export, X
    first = X[0] if isinstance(X, list | tuple | np.ndarray) and n else None
    if len(shape) == 1 and not isinstance(first, np.ndarray):
        values = [None if value is None else str(value) for value in (X.tolist() if hasattr(X, "tolist") else X)]
        if all(value is not None and is_picture(value) for value in values):
            return export, values
        return dataclasses.replace(export, texts=pa.array(values, pa.large_string())), None
    if isinstance(first, np.ndarray) and first.ndim >= 2:
        return export, X
    return export, None


def _bare(crowd: Annotations) -> Export:
    return Export(
        annotations=crowd,
        columns={},
        gold=None,
        n_rows=len(crowd),
        message=describe(crowd, len(crowd), {}, None),
        kinds=np.full(crowd.n_annotators, "person", "<U6"),
    )
