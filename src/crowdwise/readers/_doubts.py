"""What is probably no label: copies of the header, totals, comments, and ids that stand for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.data.factorise import Column, Vocabulary, is_text
from crowdwise.data.label_rules import LIKELY_MISSING

FEW = 3  # rows that are unlike all others, at most: many are no exception
OTHERS = 10  # rows that there are at least for each of these
TOTALS = {
    *("total", "totals", "grand total", "sum", "mean", "average", "avg", "median", "count"),
    *("summe", "gesamt", "gesamtergebnis", "mittelwert", "durchschnitt", "anzahl", "somme", "moyenne"),
    *("media", "promedio", "totale", "suma"),
}
"""What spreadsheets call a row of totals."""
CONSENSUS = {
    *("majority", "majority vote", "consensus", "final", "final label", "gold", "truth", "mode"),
    *("agreed", "adjudicated", "ground truth", "true label"),
}
"""Columns of a matrix that are computed or decided, and no annotator."""


def without_header_copies(
    read: dict[str, Column], columns: Mapping[str, str], roles: Sequence[str]
) -> tuple[dict[str, Column], int]:
    """Columns in which rows that repeat the header have no label, and the number of these.

    Files that were put one below the other have their headers among the rows.
    """
    copies: Any = None
    for role in roles:
        same = pc.fill_null(pc.equal(read[role].data, columns[role]), False)
        copies = same if copies is None else pc.and_(copies, same)
    n_copies = int(pc.sum(copies).as_py() or 0)
    if not n_copies:
        return read, 0
    changed = dict(read)
    for role in ("label", "gold"):
        if role in read:
            data = read[role].data
            nothing = pa.scalar(None, data.type)
            changed[role] = replace(read[role], data=pc.if_else(copies, nothing, data))
    return changed, n_copies


def about_header_copies(number: int) -> str:
    """The remark on rows that repeat the header."""
    copies = "copy" if number == 1 else "copies"
    return f"left out: {number:,} {copies} of the header among the rows"


def about_doubtful_rows(every: Annotations, where: Callable[[int], str], skipped: int | None = None) -> list[str]:
    """A remark on a few rows whose instance, annotator and label occur nowhere else, as those of a total or a comment.

    The row ``skipped`` has a remark of its own.
    """
    alone = np.ones(len(every), bool)
    for codes in (every.instance, every.annotator, every.label):
        alone &= np.bincount(codes)[codes] == 1
    rows = np.flatnonzero(alone)
    rows = rows[rows != skipped]
    if not 0 < len(rows) <= FEW or len(every) < OTHERS * len(rows):
        return []
    first = int(rows[0])
    ids = (
        every.instance_vocabulary.arrow[int(every.instance[first])],
        every.annotator_vocabulary.arrow[int(every.annotator[first])],
        every.class_vocabulary.arrow[int(every.label[first])],
    )
    shown = ", ".join(repr(one.as_py()) for one in ids)
    more = f", and {len(rows) - 1} more like it" if len(rows) > 1 else ""
    return [
        f"{where(first)} ({shown}) is read as a label, but may be a total, a comment or a second header: "
        f"none of its values occurs again{more}"
    ]


def about_doubtful_ids(every: Annotations) -> list[str]:
    """Remarks on instances and annotators whose ids say that there is none, or that the row is a total."""
    remarks = []
    roles = (
        ("instance", every.instance_vocabulary, every.instance),
        ("annotator", every.annotator_vocabulary, every.annotator),
    )
    for role, vocabulary, codes in roles:
        for code, name in _suspects(vocabulary, LIKELY_MISSING):
            times = count(int(np.sum(codes == code)), "labels")
            remarks.append(f"{name!r} counts as an {role}, with {times}: is it a missing id?")
    for code, name in _suspects(every.instance_vocabulary, TOTALS):
        times = count(int(np.sum(every.instance == code)), "labels")
        remarks.append(f"{name!r} counts as an instance, with {times}: is it a row of totals?")
    return remarks


def _suspects(vocabulary: Vocabulary, words: set[str]) -> list[tuple[int, str]]:
    """Code and id of a few ids that are one of these words."""
    ids = vocabulary.ids
    if ids is None or not is_text(ids.type):
        return []
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(ids.cast(pa.large_string())))
    found = np.flatnonzero(pc.is_in(texts, pa.array(sorted(words), pa.large_string())).to_numpy(False))
    return [(int(code), ids[int(code)].as_py()) for code in found[:FEW]]


def about_consensus(annotators: Sequence[Any]) -> list[str]:
    """A remark on columns of a matrix that are probably computed from the others."""
    found = [name for name in annotators if str(name).strip().casefold().replace("_", " ") in CONSENSUS | TOTALS]
    return [f"column {name!r} counts as an annotator: leave it out if it is computed from others" for name in found]


def about_doubtful_items(labels: Sequence[set[Any]], names: Sequence[Any]) -> list[str]:
    """A remark on the last rows of a matrix if no other row has any of their labels, as in a row of totals.

    ``labels`` are those of each row, ``names`` its instance.
    """
    if len(labels) <= FEW or not labels[-1]:
        return []
    others = set().union(*labels[:-1])
    if others & labels[-1]:
        return []
    return [
        f"record {len(labels)} ({names[-1]!r}) is read as an instance, but may be a row of totals: "
        "no other has one of its labels"
    ]
