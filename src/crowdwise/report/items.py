"""The items of a report, and what to label next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise import quality
from crowdwise.data.types import Ints
from crowdwise.readers import MODEL
from crowdwise.report import limits
from crowdwise.report.analysis import Analysis
from crowdwise.report.limits import TEXT_LENGTH, number, size
from crowdwise.report.neighbours import add_neighbours
from crowdwise.report.thumbnails import thumbnail

LIKELY = 3  # classes to give for an item


def items(analysis: Analysis, shown: Ints, budget: int) -> dict[str, Any]:
    """The items whose consensus is most likely wrong, with their labels, as many as fit into ``budget`` bytes.

    ``people`` are the names of all who labelled them; the annotators of the table, ``shown``, come first.
    """
    source, crowd = analysis.source, analysis.source.annotations
    doubt, labels = analysis.doubt, crowd.labels_per_instance
    order = np.lexsort((-labels, -np.round(doubt, 6))) if analysis.comparable else np.arange(len(doubt))
    order = order[(labels[order] > 0) | (len(crowd) == 0)]
    total, order = len(order), order[: limits.MOST_ITEMS]
    place: dict[int, int] = {code: at for at, code in enumerate(shown.tolist())}
    rows: list[dict[str, Any]] = []
    people = [str(name) for name in crowd.annotators[shown]]
    left = budget - size(people)
    for code in order.tolist():
        own = crowd.by_instance[code]
        strangers = [who for who in dict.fromkeys(crowd.annotator[own].tolist()) if who not in place]
        place |= {who: len(place) + at for at, who in enumerate(strangers)}
        row = _item(
            analysis, code, float(doubt[code]), limits.LONG_TEXT if len(rows) < limits.LONG_TEXTS else TEXT_LENGTH
        )
        pairs = zip(crowd.annotator[own].tolist(), crowd.label[own].tolist(), strict=True)
        row["labels"] = [part for who, label in pairs for part in (place[who], label)]
        if source.extra is not None:
            row["more"] = _more(source.extra, own, [place[who] for who in crowd.annotator[own].tolist()])
        names = [str(crowd.annotators[who]) for who in strangers]
        left -= size(row) + size(names) + 1
        if left < 0:
            break
        rows.append(row)
        people += names
    add_neighbours(rows, order, analysis)
    left -= sum(size(row["near"]) + 8 for row in rows if "near" in row)
    _add_pictures(rows, order, source.pictures, source.folder, min(left, limits.PICTURE_BYTES))
    return {"rows": rows, "total": total, "people": people, "ranked": analysis.comparable}


def _item(analysis: Analysis, code: int, doubt: float, most: int) -> dict[str, Any]:
    """One item, without its labels, and with so many characters of its text."""
    source, crowd = analysis.source, analysis.source.annotations
    belief = analysis.posterior[code]
    likely = np.argsort(-belief, kind="stable")[:LIKELY].tolist()
    row: dict[str, Any] = {
        "id": str(crowd.instances[code]),
        "doubt": number(doubt),
        "likely": [[each, number(belief[each])] for each in likely if belief[each] >= 0.005 or each == likely[0]],
    }
    if not analysis.comparable:
        row |= {"doubt": None, "likely": [[likely[0], None]]}
    if analysis.predicted is not None:
        best = int(analysis.predicted[code].argmax())
        row["predicted"] = [best, number(analysis.predicted[code, best])]
    if source.truth is not None and source.truth[code] >= 0:
        row["truth"] = int(source.truth[code])
    picture = None if source.pictures is None else source.pictures[code]
    if isinstance(picture, str):
        row["address"] = picture[:TEXT_LENGTH]
    text = None if source.texts is None else source.texts[code]
    if text is not None:
        text = str(text)
        row["text"] = text if len(text) <= most else text[: most - 1] + "…"
    return row


def _more(extra: pa.Table, own: Ints, people: list[int]) -> list[list[Any]]:
    """What other columns say of an item: column, value, and the person whose row it is; -1 where all rows say the same."""
    found: list[list[Any]] = []
    for name, column in zip(extra.column_names, extra.columns, strict=True):
        said = [(value.as_py(), who) for value, who in zip((column[row] for row in own.tolist()), people, strict=True)]
        said = [(str(value)[:TEXT_LENGTH], who) for value, who in said if value is not None and value != ""]
        if said and len({value for value, _ in said}) == 1:
            said = [(said[0][0], -1 if len(people) > 1 else said[0][1])]
        found += [[name[:TEXT_LENGTH], value, who] for value, who in said]
    return found[: limits.MOST_DETAILS]


def _add_pictures(
    rows: Sequence[dict[str, Any]], order: Ints, pictures: Sequence[Any] | None, folder: Any, left: int
) -> None:
    """Thumbnails of the most doubtful items, within the bytes that are left."""
    if pictures is None:
        return
    for row, code in zip(rows, order.tolist(), strict=False):
        found = thumbnail(pictures[code], folder) if pictures[code] is not None and left > 0 else None
        if found is not None:
            left -= len(found) + 13
            if left > 0:
                row["picture"] = found


def next_labels(analysis: Analysis, budget: int) -> list[dict[str, Any]]:
    """`quality.next_labels` as rows, largest gain first."""
    crowd = analysis.source.annotations
    if not len(crowd) or crowd.n_classes < 2:
        return []
    kinds = analysis.source.kinds
    people = None if kinds is None or (kinds == MODEL).all() else kinds != MODEL  # asking a model again adds nothing
    table = quality.next_labels(
        crowd, analysis.posterior, budget=budget, confusion=analysis.confusion, annotators=people
    )
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
