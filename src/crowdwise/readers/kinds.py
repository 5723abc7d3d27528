"""Which annotators are models: as a table of kinds says, or a column, or their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.frames import ALIASES, find_column, listing
from crowdwise.data.model_names import model_names
from crowdwise.errors import DataError, ReadError, spelled
from crowdwise.readers._export import KIND_COLUMNS, MODEL, PERSON
from crowdwise.readers._files import load_columns
from crowdwise.readers._source import values_of

Kinds = Mapping[str, str]
"""Annotator, as text -> "person" or "model"."""


def kinds_of_file(given: str | PathLike[str] | Kinds | None) -> Kinds | None:
    """The kinds in a table of its own, whose columns are annotator and kind; a mapping is taken as it is."""
    if given is None or isinstance(given, Mapping):
        return given if given is None else {str(one): _kind(kind, "kinds") for one, kind in given.items()}
    path = Path(given)
    columns: list[str] = []

    def choose(names: Sequence[str]) -> Sequence[str]:
        kind = find_column(KIND_COLUMNS, names)
        others = [name for name in names if name != kind]
        who = find_column((*ALIASES["annotator"], "id", "name", "model"), others)
        if who is None and len(others) == 1:
            who = others[0]
        if kind is None or who is None:
            role = "kind (person or model)" if kind is None else "annotator"
            raise DataError(f"{path}: no column for the {role}; columns: {listing(names)}", parameter="kinds")
        columns.extend((who, kind))
        return columns

    loaded = load_columns(path, choose)
    who, kinds = (values_of(loaded[name]) for name in columns)
    found = {}
    for number, (one, kind) in enumerate(zip(who, kinds, strict=True), 1):
        if one is not None:
            found[str(one)] = _kind(kind, f"{path}: record {number}")
    if not found:
        raise DataError(f"{path}: the table names no annotator", parameter="kinds")
    return found


def _kind(value: Any, where: str) -> str:
    """A kind as it is written here."""
    text = str(value).strip().lower()
    if text not in (PERSON, MODEL):
        raise DataError(f"{where}: the kind of an annotator is person or model, got {value!r}", parameter="kinds")
    return text


def named_models(annotators: Iterable[Any], kinds: Kinds | None) -> tuple[set[int], str]:
    """Places of the annotators that are models, and a remark; by ``kinds`` if there are such, else by their names."""
    names = list(annotators)
    if kinds is not None:
        return {place for place, name in enumerate(names) if kinds.get(str(name)) == MODEL}, ""
    found = set(np.flatnonzero(model_names(names)).tolist())
    if not found:
        return found, ""
    some = ", ".join(str(names[place]) for place in sorted(found)[:3])
    more = ", ..." if len(found) > 3 else ""
    number = f"{len(found)} annotator is a model" if len(found) == 1 else f"{len(found)} annotators are models"
    return found, f"; {number}, by name: {some}{more} ({spelled('kinds', 'FILE')} says otherwise)"


def check_kinds(kinds: Kinds | None, annotators: Iterable[Any]) -> None:
    """Refuse kinds that are about other annotators."""
    if kinds is None:
        return
    known = [str(each) for each in annotators]
    if not set(known) & set(kinds):
        raise ReadError(
            f"{spelled('kinds')} names none of the annotators, which are such as {known[0]!r}: it names such as "
            f"{next(iter(kinds))!r}",
            parameter="kinds",
        )
