"""Crowds to review."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from crowdwise.readers import Export, read
from report_crowds import crowd


def write_crowd(path: Path, **options: Any) -> Path:
    """A crowd with texts, as a table."""
    source = crowd(**options)
    assert source.texts is not None
    table = source.annotations.to_frame()
    texts = pa.array([source.texts[code] for code in source.annotations.instance])
    pa.csv.write_csv(table.append_column("text", texts), path)
    return path


def write_tasks(path: Path, data: list[dict[str, Any]], labels: list[list[str]]) -> Path:
    """Tasks of Label Studio: what is shown, and what annotators 1, 2, ... said."""
    control = {"from_name": "kind", "to_name": "item", "type": "choices"}
    tasks = [
        {
            "id": k + 1,
            "data": fields,
            "annotations": [
                {"completed_by": who, "result": [control | {"value": {"choices": [label]}}]}
                for who, label in enumerate(said, start=1)
            ],
        }
        for k, (fields, said) in enumerate(zip(data, labels, strict=True))
    ]
    path.write_text(json.dumps(tasks))
    return path


def tasks(path: Path, n: int = 12) -> Export:
    rng = np.random.default_rng(0)
    labels = [[("cat", "dog")[k % 2] if rng.random() < 0.7 else "owl" for _ in range(3)] for k in range(n)]
    return read(write_tasks(path, [{"text": f"number {k}"} for k in range(n)], labels))
