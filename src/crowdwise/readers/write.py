"""Annotations and consensus labels -> files: long tables, crowd-kit frames, Label Studio tasks."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.data.repeats import heaviest
from crowdwise.data.types import Floats, Ints
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError, suggest
from crowdwise.readers._collector import extra_columns
from crowdwise.readers._export import MODEL, Export
from crowdwise.readers._text import bare_suffix
from crowdwise.readers.label_studio import ANSWERS, OWN, WEIGHT
from crowdwise.readers.table import replacing, write_table

SLACK = 1e-4  # by which the weights of a soft label, which are rounded, may be more than 1
AUTO, TABLE, CROWD_KIT, LABEL_STUDIO = "auto", "table", "crowd-kit", "label-studio"
WRITTEN = (TABLE, CROWD_KIT, LABEL_STUDIO)
"""Formats that can be written."""


def write(
    export: Export,
    path: str | os.PathLike[str],
    to: str = AUTO,
    *,
    labels: pa.Table | None = None,
    model: str = OWN,
) -> None:
    """Write annotations, with all details, so that `read` gets everything back.

    ``to`` is "table" (by suffix: csv, tsv, jsonl, parquet, arrow), "crowd-kit" (the same, with its column names) or
    "label-studio" (json); "auto" means "label-studio" for .json, else "table". The file appears whole or not at all.
    Consensus ``labels``, as in `write_labels`, become predictions of ``model`` beside the annotations of Label Studio;
    the other formats have no place for them.
    """
    path = Path(path)
    kind = output_format(path, to)
    if kind == LABEL_STUDIO:
        _write_tasks(export, path, labels, model, given=True)
    else:
        write_table(_annotation_table(export, kind), path)


def write_labels(
    labels: pa.Table,
    path: str | os.PathLike[str],
    to: str = AUTO,
    *,
    export: Export | None = None,
    model: str = OWN,
) -> None:
    """Write consensus labels: a table with the columns instance, label and confidence.

    "table" writes it as it is, in the format of the suffix; "crowd-kit", with the columns task, agg_label and
    confidence; "label-studio", as predictions of ``model`` for the tasks of ``export``.
    """
    path = Path(path)
    kind = output_format(path, to)
    if kind == LABEL_STUDIO:
        if export is None:
            raise ConfigError("to='label-studio' needs export=..., which has the tasks")
        _write_tasks(export, path, labels, model, given=False)
        return
    if kind == CROWD_KIT:
        names = {"instance": "task", "label": "agg_label"}
        labels = labels.rename_columns([names.get(name, name) for name in labels.column_names])
    write_table(labels, path)


def output_format(path: Path, to: str) -> str:
    """The format to write ("auto": by suffix); one that does not go with the suffix is refused."""
    if to not in (AUTO, *WRITTEN):
        raise ConfigError(f"unknown output format {to!r}{suggest(to, [AUTO, *WRITTEN])}")
    document = bare_suffix(path) == "json"
    if to == LABEL_STUDIO and not document:
        raise DataError(f"{path}: label-studio is written as .json")
    if to in (TABLE, CROWD_KIT) and document:
        raise DataError(f"{path}: {to} cannot be written as .json; .jsonl can")
    return to if to != AUTO else LABEL_STUDIO if document else TABLE


def _annotation_table(export: Export, kind: str) -> pa.Table:
    crowd = export.annotations
    names = (
        ("task", "worker", "label", "true_label") if kind == CROWD_KIT else ("instance", "annotator", "label", "gold")
    )
    columns: dict[str, Any] = dict(zip(names[:3], crowd.to_frame().columns[:3], strict=True))
    if export.gold is not None:
        ids = crowd.instance_vocabulary.arrow.to_pylist()
        truth = pa.array([export.gold.get(name) for name in ids], crowd.class_vocabulary.arrow.type)
        columns[names[3]] = truth.take(pa.array(crowd.instance))
    if export.timestamps is not None:
        columns["timestamp"] = pa.array(
            [None if np.isnat(time) else f"{time}Z" for time in export.timestamps], pa.string()
        )
    if export.durations is not None:
        columns["duration"] = pa.array(export.durations, from_pandas=True)
    if crowd.weight is not None:
        columns["weight"] = pa.array(crowd.weight.astype(np.float64).round(7))
    if export.confidences is not None:
        columns["confidence"] = pa.array(export.confidences, from_pandas=True)
    if (export.kinds == MODEL).any():
        columns["kind"] = pa.array(export.kinds[crowd.annotator].tolist())
    for name, values in (("text", export.texts), ("picture", export.pictures)):
        if values is not None:
            columns[name] = values.take(pa.array(crowd.instance))
    for name, column in (*_fields(export).items(), *_columns(export.extra).items()):
        columns[_free(name, columns)] = column
    return pa.table(columns)


def _columns(table: pa.Table | None) -> dict[str, Any]:
    return {} if table is None else dict(zip(table.column_names, table.columns, strict=True))


def _fields(export: Export) -> dict[str, Any]:
    """The fields of instances, but text and picture, for every annotation."""
    columns = _columns(extra_columns(export.items or (), None))
    known = [values.to_pylist() for values in (export.texts, export.pictures) if values is not None]
    rows = pa.array(export.annotations.instance)
    return {name: column.take(rows) for name, column in columns.items() if column.to_pylist() not in known}


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """A name for a column; where another has it, with a number."""
    names = chain([name], (f"{name} {number}" for number in range(2, len(taken) + 3)))
    return next(each for each in names if each not in taken)


def _write_tasks(export: Export, path: Path, labels: pa.Table | None, model: str, *, given: bool) -> None:
    """A Label Studio task for every instance, with the annotations that were ``given``, and consensus labels."""
    if given:
        _warn_of_soft_labels(export.annotations)
    rows = {} if labels is None else {row["instance"]: row for row in labels.to_pylist()}
    model = model if model.startswith(OWN) else f"{OWN}-{model}"  # by which readers know it is no annotator
    tasks = []
    for code, one in enumerate(export.annotations.instance_vocabulary.arrow.to_pylist()):
        task = {"id": one, "data": _data(export, code)} | (_given(export, code, one) if given else {"predictions": []})
        task["predictions"] += _consensus(rows.get(one), export, model)
        tasks.append(task)
    _write_json(tasks, path)


def _data(export: Export, code: int) -> Mapping[str, Any]:
    if export.items is not None and export.items[code]:
        return export.items[code]
    contents = {"text": export.texts, "image": export.pictures}
    return {
        name: values[code].as_py() for name, values in contents.items() if values is not None and values[code].is_valid
    }


def _given(export: Export, code: int, instance: Any) -> dict[str, Any]:
    """The annotations of an instance; labels by models are predictions, gold is an annotation marked as such."""
    crowd, people, models = export.annotations, [], []
    rows = crowd.by_instance[code]
    rows, weight = _as_votes(crowd, rows)
    for row, share in zip(rows.tolist(), weight.tolist(), strict=True):
        who = crowd.annotator_vocabulary.take(crowd.annotator[[row]])[0].as_py()
        label = crowd.class_vocabulary.take(crowd.label[[row]])[0].as_py()
        answer: dict[str, Any] = {"result": [_result(export, label)]}
        if export.extra is not None:
            answer["result"][0]["meta"] = {name: column[row].as_py() for name, column in _columns(export.extra).items()}
        if share != 1:
            answer["result"][0].setdefault("meta", {})[WEIGHT] = round(share, 7)
        if export.timestamps is not None and not np.isnat(export.timestamps[row]):
            answer["created_at"] = f"{export.timestamps[row]}Z"
        if export.kinds[crowd.annotator[row]] == MODEL:
            score = _score(export, row)
            models.append(answer | {"model_version": who} | ({} if score is None else {"score": score}))
            continue
        if export.durations is not None and not np.isnan(export.durations[row]):
            answer["lead_time"] = float(export.durations[row])
        people.append(answer | {"completed_by": who if isinstance(who, int) else {"email": str(who)}})
    if export.gold is not None and instance in export.gold:
        people.append({"result": [_result(export, export.gold[instance])], "ground_truth": True})
    return {"annotations": people, "predictions": models}


def _as_votes(crowd: Annotations, rows: Ints) -> tuple[Ints, Floats]:
    """Of some annotations those that the tool can hold, and their weights: of a soft label, the class that weighs most."""
    if crowd.weight is None:
        return rows, np.ones(len(rows))
    weight = crowd.weight[rows].astype(np.float64)
    _, pair, times = np.unique(crowd.annotator[rows], return_inverse=True, return_counts=True)
    soft = (times > 1) & (np.bincount(pair, weight) <= 1 + SLACK)
    weight[soft[pair]] = 1.0
    kept = ~soft[pair]
    kept[heaviest(pair, crowd.weight[rows])] = True
    return rows[kept], weight[kept]


def _warn_of_soft_labels(crowd: Annotations) -> None:
    """Say that classes of soft labels other than the heaviest are not written."""
    if crowd.weight is None:
        return
    rows = [_as_votes(crowd, crowd.by_instance[code])[0] for code in range(crowd.n_instances)]
    lost = len(crowd) - sum(map(len, rows))
    if lost:
        warnings.warn(
            "Label Studio holds one class per annotation: of each soft label only the class that weighs most is written, and "
            f"{count(lost, 'rows')} are left out",
            CrowdwiseWarning,
            stacklevel=4,
        )


def _score(export: Export, row: int) -> float | None:
    """How sure a model was."""
    if export.confidences is not None and not np.isnan(export.confidences[row]):
        return float(export.confidences[row])
    weight = export.annotations.weight
    return None if weight is None else round(float(weight[row]), 6)


def _consensus(row: Mapping[str, Any] | None, export: Export, model: str) -> list[dict[str, Any]]:
    if row is None:
        return []
    return [{"model_version": model, "score": row["confidence"], "result": [_result(export, row["label"])]}]


def _result(export: Export, label: Any) -> dict[str, Any]:
    """An answer, wired as in the export; if that is from another tool, to the text or else the picture."""
    name = export.question or "label"
    shown = "image" if export.texts is None and export.pictures is not None else "text"
    wiring = export.control or {"from_name": name, "to_name": shown, "type": "choices"}
    field = ANSWERS[wiring["type"]]
    value = [label if isinstance(label, str) else str(label)] if field == "choices" else label
    return {**wiring, "value": {field: value}}


def _write_json(content: Any, path: Path) -> None:
    try:
        text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False, default=str)
        data = text.encode()
    except ValueError as error:  # NaN, or half of a surrogate pair
        raise DataError(f"{path}: cannot be written as JSON: {error}") from error
    with replacing(path) as file:
        file.write(data)
