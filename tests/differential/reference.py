"""A second reader of files of labels: the rules of docs/formats.md and docs/messy-tables.md, slow and plain.

It shares no line with crowdwise, so that a fault of one is not a fault of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from differential.opening import Table, is_json, open_parts, open_records, open_table, suffix_of, text_rows
from differential.rules import Crowd, Read, Row, like_a_class, settle
from differential.tools import TOOLS
from differential.values import Refused, is_blank, number, shown, simple, written

INSTANCE = [
    "instance",
    "item",
    "task",
    "example",
    "sample",
    "question",
    "unit",
    "document",
    "doc",
    "ticket",
    "case",
    "hit",
]
ANNOTATOR = ["annotator", "worker", "rater", "performer", "user", "coder", "labeler", "labeller", "judge", "assessor"]
LABEL = ["label", "answer", "value", "response", "vote", "judgment", "judgement", "rating", "verdict"]
GOLD = ["gold", "golden", "goldlabel", "truelabel", "truth", "groundtruth"]
TEXT = ["text", "content", "sentence", "document", "question", "prompt", "title", "html", "body", "review"]
ROLES = {"instance": INSTANCE, "annotator": ANNOTATOR, "label": LABEL}


def read(files: Mapping[str, bytes], names: tuple[str, ...], kind: str, options: Mapping[str, Any]) -> Crowd:
    """The crowd in files; ``kind`` says of what format they are."""
    parts = [_read_one(name, files, kind, options) for name in names]
    if len(parts) > 1:
        known = {shown(row.instance) for row in parts[0].rows if not is_blank(row.label)}
        for part in parts[1:]:
            if not known & {shown(row.instance) for row in part.rows}:
                raise Refused("a file is about other instances")
    crowd = settle(parts, options)
    gold = options.get("gold")
    if gold in files:
        crowd.gold = _gold_of_file(gold, files[gold], crowd, options)
    return crowd


def _read_one(name: str, files: Mapping[str, bytes], kind: str, options: Mapping[str, Any]) -> Read:
    data = files[name]
    if kind == "matrix":
        return _matrix(text_rows(name, data, options), options)
    if kind in TOOLS:
        if suffix_of(name) == "zip":
            return TOOLS[kind](open_parts(data), options)
        if is_json(name):
            return TOOLS[kind](open_records(name, data), options)
        return TOOLS[kind](open_table(name, data, options), options)
    return _long(open_table(name, data, options), files, options)


def find(names: list[str], known: list[str]) -> str | None:
    """The column with the first of the usual names, without regard to case, punctuation and a final id."""
    for ending in ("", "id"):
        for usual in known:
            for name in names:
                found = simple(name)
                if found == usual or (ending and found.removesuffix(ending) == usual):
                    return name
    return None


def named(names: list[str], asked: str) -> str:
    """A column that the user names; case and blanks do not matter where only one fits."""
    if asked in names:
        return asked
    same = [name for name in names if " ".join(name.casefold().split()) == " ".join(asked.casefold().split())]
    if len(same) != 1:
        raise Refused(f"no column {asked!r}")
    return same[0]


def _long(table: Table, files: Mapping[str, bytes], options: Mapping[str, Any]) -> Read:
    """A row for each annotation."""
    names = table.names
    asked = {role: options.get(role) for role in ROLES}
    asked["label"] = asked["label"] or options.get("question")
    chosen = {role: named(names, name) for role, name in asked.items() if name is not None}
    for role, usual in ROLES.items():
        if role not in chosen:
            free = [name for name in names if name not in chosen.values()]
            column = find(free, usual)
            if column is None:
                raise Refused(f"no column for the {role}")
            chosen[role] = column
    if len(set(chosen.values())) < 3:
        raise Refused("one column has two roles")
    if not table.records:
        raise Refused("no rows")
    free = [name for name in names if name not in chosen.values()]
    gold = options.get("gold")
    asked_for_gold = gold is not None and gold not in files
    truth = named(names, gold) if asked_for_gold else find(free, GOLD)
    if gold in files:
        truth = None
    free = [name for name in free if name != truth]
    weight = options.get("weight")
    heavy = named(names, weight) if weight is not None else ("weight" if "weight" in free else None)
    free = [name for name in free if name != heavy]
    kind = find(free, ["kind", "annotatorkind", "annotatortype"])
    text = find([name for name in free if name != kind], TEXT)
    rows = []
    for record in table.records:
        if table.is_text and all(record[name] == name for name in chosen.values()):
            continue  # a copy of the header
        label = record[chosen["label"]]
        said = shown(record[kind]).strip().lower() if kind is not None and record[kind] is not None else ""
        rows.append(
            Row(
                record[chosen["instance"]],
                record[chosen["annotator"]],
                label,
                record[heavy] if heavy is not None else 1.0,
                said == "model",
                record[text] if text is not None else None,
                record[truth] if truth is not None else None,
            )
        )
    models = {shown(row.annotator) for row in rows if row.model}
    rows = [Row(**(vars(row) | {"model": shown(row.annotator) in models})) for row in rows]
    return Read(rows, table.is_text, gold_asked=asked_for_gold)


def _matrix(rows: list[list[Any]], options: Mapping[str, Any]) -> Read:
    """A row for each instance, a column for each annotator; the first column and row hold ids."""
    header, *body = rows
    body = [row for row in body if row != header]
    cells = [cell for row in body for cell in row[1:]]
    numbers = {found for cell in cells if (found := number(cell)) is not None}
    whole = all(number(cell) is not None for cell in cells if not is_blank(cell) and str(cell).lower() != "nan")
    full = not any(is_blank(cell) for cell in cells)
    read = Read([], is_text=True)
    spoken_of = [*(options.get("classes") or []), *(options.get("map") or {}), *(options.get("missing") or [])]
    told = any(number(name) == -1 for name in spoken_of)
    scale = whole and (numbers == {-1, 1} or any(found < -1 for found in numbers))
    if whole and numbers == {-1, 0, 1} and full:
        read.open = "-1 may be a class or a missing label"
    for row in body:
        if len(row) != len(header):
            raise Refused("rows of several lengths")
        for annotator, cell in zip(header[1:], row[1:], strict=True):
            if is_blank(cell) or (str(cell) in ("nan", "NaN") and whole):
                continue
            if number(cell) == -1 and not scale and not told:
                continue
            read.rows.append(Row(row[0], annotator, cell))
    return read


def _gold_of_file(name: str, data: bytes, crowd: Crowd, options: Mapping[str, Any]) -> dict[str, str]:
    """Gold from a table of its own: an instance and a label in each row."""
    table = open_table(name, data, {})
    instance = options.get("instance")
    own = instance if instance in table.names else find(table.names, [*INSTANCE, "id"])
    free = [one for one in table.names if one != own]
    truth = find(free, GOLD) or find(free, LABEL)
    if own is None or truth is None:
        raise Refused("no column of gold")
    seen = crowd.items
    chosen = dict(crowd.names)
    gold: dict[str, str] = {}
    for record in table.records:
        one, value = shown(record[own]), crowd.named(record[truth])
        if value is None:
            continue
        key = like_a_class(value, crowd.key, chosen)
        if key not in crowd.names and options.get("classes") is not None:
            raise Refused(f"gold {value!r} is not listed")
        crowd.names.setdefault(key, written(value))
        if one in seen and gold.setdefault(one, key) != key:
            raise Refused(f"gold of {one!r} contradicts itself")
    if not gold:
        raise Refused("no gold of the crowd's instances")
    return gold
