"""Gold labels from a table of their own, in the vocabulary of the crowd."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.annotations import Annotations
from crowdwise.data.factorise import (
    Column,
    Vocabulary,
    decoded,
    encode_classes,
    factorise,
    id_texts,
    is_plain,
    is_text,
)
from crowdwise.data.frames import ALIASES, find_column, known_column, listing
from crowdwise.data.label_rules import NO_RULES, LabelRules, resolved
from crowdwise.errors import DataError, spelled
from crowdwise.readers._export import Export, ReadOptions
from crowdwise.readers._files import load_columns
from crowdwise.readers.table import GOLD, naming, record_name, truths_of, whole_numbers

KIND = "kind"  # of what a row of `crowdwise simulate --truth` is about
IN_GOLD_TABLES = (*GOLD, "expert", "expertlabel", "reference", "referencelabel", "correct", "correctlabel", "target")


@dataclass(frozen=True)
class GoldRead:
    """What `read_gold` found."""

    annotations: Annotations
    """The crowd; with further classes where gold names some that nobody chose."""
    gold: dict[Any, Any]
    """Instance -> true class, in the user's ids."""
    message: str
    """One line that says what was taken for what."""


def _simulated(names: Sequence[str]) -> bool:
    """Whether this is what `crowdwise simulate --truth` writes: true classes of instances and groups of annotators."""
    return list(names) == [KIND, "id", "truth"]


def with_gold(export: Export, path: Path, options: ReadOptions, column: str | None = None) -> Export:
    """What was read, with gold from a table of its own instead of that in the file."""
    instance, label = (getattr(options, role) or export.columns.get(role) for role in ("instance", "label"))
    found = read_gold(path, export.annotations, instance, label, options.rules, column)
    return replace(export, annotations=found.annotations, gold=found.gold, message=f"{export.message}\n{found.message}")


def read_gold(
    path: Path,
    crowd: Annotations,
    instance: str | None = None,
    label: str | None = None,
    rules: LabelRules = NO_RULES,
    column: str | None = None,
) -> GoldRead:
    """Read a table of true classes, one row per instance; ``instance`` and ``label`` name the crowd's own columns.

    ``column`` names that of true classes; without, it is found by its usual names.

    Gold labels are read by the same ``rules`` as the crowd's; one that is spelled almost like a class is that class.

    Instances that the crowd does not have and rows without a label are left out. Ids are compared in the crowd's type:
    in a csv file that holds gold for 12 only, 12 is the text "12" where the crowd also has an instance 007.
    """
    columns: dict[str, str] = {}

    def choose(names: Sequence[str]) -> Sequence[str]:
        own = instance if instance in names else find_column((*ALIASES["instance"], "id"), names)
        free = [name for name in names if name != own]
        if column is not None:
            truth = known_column(column, "gold label", free)
        else:
            truth = find_column(IN_GOLD_TABLES, free) or (
                label if label in free else find_column(ALIASES["label"], free)
            )
        if own is None and truth is not None and len(names) == 2:
            own = next(name for name in names if name != truth)
        if own is None or truth is None:
            role = "instance" if own is None else "gold label"
            raise DataError(
                f"{path}: no column for the {role}; columns: {listing(names)}; name it with "
                f"{spelled('gold_column' if truth is None else 'instance', 'COLUMN')}",
                parameter="gold",
            )
        columns.update(instance=own, gold=truth)
        return [*columns.values(), *([KIND] if _simulated(names) else [])]

    with naming(path):
        loaded = load_columns(path, choose)
        ids, truths = (Column.of(loaded[name], f"column {name!r}", record_name) for name in columns.values())
        valid = truths.data.is_valid().to_numpy()
        if KIND in loaded:
            valid = valid & np.array([str(kind) == "instance" for kind in loaded[KIND].to_pylist()], bool)
        given = np.flatnonzero(valid)
        ids, truths = _like(ids.take(given), crowd.instance_vocabulary), truths.take(given)
        truths, remarks = _in_classes(_like(truths, crowd.class_vocabulary, whole=True), crowd, rules)
        named = np.flatnonzero(truths.data.is_valid().to_numpy())
        ids, truths = ids.take(named), truths.take(named)
        found, seen = factorise(ids)
        if not seen.size:
            raise DataError(f"{path}: the table has no gold labels")
        crowd = _with_classes(crowd, truths)
        codes = _positions(seen, crowd)[found]
        mine = np.flatnonzero(codes >= 0)
        gold = truths_of(crowd, codes[mine], crowd.class_vocabulary.lookup(truths)[mine], ids.take(mine))
    if not gold:
        raise DataError(
            f"{path}: none of its {seen.size:,} instances (such as {seen.arrow[0].as_py()!r}) is in the crowd, whose "
            f"instances are such as {crowd.instance_vocabulary.arrow[0].as_py()!r}"
        )
    others = f"; {seen.size - len(gold):,} more not in the crowd" if seen.size > len(gold) else ""
    taken = ", ".join(f"{role} = {name!r}" for role, name in columns.items())
    message = f"{path.name}: gold for {len(gold):,} of {crowd.n_instances:,} instances; {taken}{others}"
    message += "".join(f"; {remark}" for remark in remarks)
    return GoldRead(crowd, gold, message)


def _in_classes(truths: Column, crowd: Annotations, rules: LabelRules) -> tuple[Column, list[str]]:
    """Gold labels in the vocabulary of the crowd, whose labels have their new names already."""
    classes = crowd.class_vocabulary.arrow
    if classes.type != truths.data.type and not is_text(truths.data.type):
        return truths, []
    own = LabelRules(False, rules.classes, rules.missing)
    _, renamed, blanks = resolved(replace(own, map=rules.map, classes=None), _none_of(truths), truths)
    known = Column(pa.chunked_array([classes]), truths.name)
    _, found, remarks = resolved(own, known, renamed, checked=True)
    if found is None:
        return truths, []
    remarks = [one for one in remarks if rules.classes is None and one.startswith(("gold ", "nobody "))]
    return found, [*(one for one in blanks if one.startswith("blanks ")), *remarks]


def _none_of(column: Column) -> Column:
    """An empty column of the same type."""
    return replace(column, data=column.data.slice(0, 0))


def _like(column: Column, known: Vocabulary, *, whole: bool = False) -> Column:
    """Values in the type of the crowd's where they are the same otherwise; ``whole`` also takes the text 1.0 for 1."""
    kind, data = known.arrow.type, decoded(column.data)
    if pa.types.is_boolean(data.type) and is_text(kind):
        return replace(column, data=data.cast(kind))
    if pa.types.is_floating(data.type) and not pa.types.is_floating(kind) and is_plain(kind):
        with suppress(pa.ArrowInvalid):  # a number with decimals: the lookup says what is wrong
            data = pc.if_else(pc.is_nan(data), pa.scalar(None, data.type), data).cast(pa.int64())
    if is_text(data.type) and pa.types.is_integer(kind):
        with suppress(pa.ArrowInvalid):  # ids of another kind: nothing matches, or the lookup says what is wrong
            numbers = (whole_numbers(data) if whole else data).cast(kind)
            if whole or numbers.cast(data.type).equals(data):  # 007 is not 7
                return replace(column, data=numbers)
    if pa.types.is_integer(data.type) and is_text(kind):
        return replace(column, data=data.cast(kind))
    return replace(column, data=data)


def _positions(seen: Vocabulary, crowd: Annotations) -> Any:
    """Codes of instances by the crowd's vocabulary, -1 for those it does not have; as text where types differ."""
    mine, theirs = crowd.instance_vocabulary.arrow, seen.arrow
    if mine.type != theirs.type:
        mine, theirs = id_texts(mine), id_texts(theirs)
    return pc.fill_null(pc.index_in(theirs, value_set=mine), -1).to_numpy()


def _with_classes(crowd: Annotations, truths: Column) -> Annotations:
    """The crowd, with the classes of ``truths`` that nobody chose among its own."""
    mine = crowd.class_vocabulary.arrow
    _, named = encode_classes(truths, None)
    if named.arrow.type != mine.type or not named.arrow.filter(pc.invert(pc.is_in(named.arrow, value_set=mine))):
        return crowd
    _, union = encode_classes(Column(pa.chunked_array([mine, named.arrow]), truths.name), None)
    return crowd.recoded(classes=(pc.index_in(mine, value_set=union.arrow).to_numpy(), union))
