"""The items of a report, and what to label next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise import quality
from crowdwise.report.analysis import Analysis, Ints
from crowdwise.report.limits import ITEM_BYTES, MOST_ITEMS, PICTURE_BYTES, TEXT_LENGTH, fitting, number
from crowdwise.report.thumbnails import thumbnail

LIKELY = 3  # most likely classes of an item that are given


def items(analysis: Analysis, shown: Ints) -> dict[str, Any]:
    """The items whose consensus is most likely wrong, and ``people``: the names of all who labelled them.

    ``shown`` are the annotators with a row of their own; they come first among the people, in that order.
    """
    source, crowd = analysis.source, analysis.source.annotations
    doubt, labels = analysis.doubt, crowd.labels_per_instance
    order = np.lexsort((-labels, -np.round(doubt, 6)))
    order = order[(labels[order] > 0) | (len(crowd) == 0)]
    total, order = len(order), order[:MOST_ITEMS]
    rows = [_item(analysis, int(code), float(doubt[code])) for code in order.tolist()]
    kept = fitting([len(json.dumps(row, ensure_ascii=False).encode()) for row in rows], ITEM_BYTES)
    rows, order = rows[:kept], order[:kept]
    place: dict[int, int] = {code: at for at, code in enumerate(shown.tolist())}
    for row, code in zip(rows, order.tolist(), strict=True):
        own = crowd.by_instance[code]
        who, given = crowd.annotator[own].tolist(), crowd.label[own].tolist()
        row["labels"] = [part for a, y in zip(who, given, strict=True) for part in (place.setdefault(a, len(place)), y)]
    _add_pictures(rows, order, source.pictures, source.folder)
    return {
        "rows": rows,
        "total": total,
        "people": [str(name) for name in crowd.annotators[np.array(list(place), np.int64)]],
    }


def _item(analysis: Analysis, code: int, doubt: float) -> dict[str, Any]:
    """One item; ``labels`` is filled in later, and holds annotator and class in turn."""
    source, crowd = analysis.source, analysis.source.annotations
    belief = analysis.posterior[code]
    likely = np.argsort(-belief, kind="stable")[:LIKELY].tolist()
    own = crowd.by_instance[code]
    row: dict[str, Any] = {
        "id": str(crowd.instances[code]),
        "doubt": number(doubt),
        "likely": [[each, number(belief[each])] for each in likely if belief[each] >= 0.005 or each == likely[0]],
        "labels": [10_000] * (2 * len(own)),  # as long as it may become
    }
    if analysis.predicted is not None:
        best = int(analysis.predicted[code].argmax())
        row["predicted"] = [best, number(analysis.predicted[code, best])]
    if source.truth is not None and source.truth[code] >= 0:
        row["truth"] = int(source.truth[code])
    text = None if source.texts is None else source.texts[code]
    if text is not None:
        text = str(text)
        row["text"] = text if len(text) <= TEXT_LENGTH else text[: TEXT_LENGTH - 1] + "…"
    return row


def _add_pictures(rows: Sequence[dict[str, Any]], order: Ints, pictures: Sequence[Any] | None, folder: Any) -> None:
    """Thumbnails of as many items as fit into the page, the most doubtful first; an address becomes a text."""
    used = 0
    for row, code in zip(rows, order.tolist() if pictures is not None else [], strict=False):
        assert pictures is not None
        picture = pictures[code]
        if isinstance(picture, str):
            row.setdefault("address", picture[:TEXT_LENGTH])
        if picture is None or used > PICTURE_BYTES:
            continue
        found = thumbnail(picture, folder)
        if found is not None:
            used += len(found)
            row["picture"] = found


def next_labels(analysis: Analysis, budget: int) -> list[dict[str, Any]]:
    """`quality.next_labels` as rows; their order is that of the gain."""
    crowd = analysis.source.annotations
    if not len(crowd) or crowd.n_classes < 2:
        return []
    table = quality.next_labels(crowd, analysis.posterior, budget=budget, confusion=analysis.confusion)
    return [
        {
            "item": str(row["instance"]),
            "annotator": str(row["annotator"]),
            "gain": number(row["expected_gain"]),
            "better": number(row["expected_accuracy_gain"], 4),
            "label": str(row["consensus_label"]),
            "sure": number(row["consensus_quality_score"]),
        }
        for row in table.to_pylist()
    ]
