"""What becomes of rows: labels renamed, merged or left out, weights, repeats, gold, votes. Slow and plain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from differential.values import Refused, alike, by_value, is_blank, number, shown, tidy, written

Keyed = Callable[[Any], str]


@dataclass(frozen=True)
class Row:
    """An annotation as it stands in a file."""

    instance: Any
    annotator: Any
    label: Any
    weight: Any = 1.0
    """As it is written: only that of a row with a label has to be a number."""
    model: bool = False
    text: Any = None
    gold: Any = None


@dataclass
class Read:
    """What a file holds, before anything is done about labels and repeats."""

    rows: list[Row]
    is_text: bool = False
    """Whether labels are texts that may stand for numbers."""
    gold: dict[str, Any] = field(default_factory=dict)
    """Instance -> its true class, where the format has a place of its own for it."""
    gold_asked: bool = False
    texts: dict[str, Any] = field(default_factory=dict)
    open: str = ""
    """Why the rules leave open whether this is an error; empty where they do not."""


@dataclass
class Crowd:
    """Who gave which label to what, how much of it, and what is known of instances."""

    rows: list[tuple[str, str, str, float]]
    names: dict[str, set[str]]
    """Key of a class -> the names that it may have."""
    gold: dict[str, str]
    texts: dict[str, str | None]
    models: set[str]
    open: str = ""
    gold_open: bool = False
    """Whether each file by itself decides what is gold, which the message says."""
    items: set[str] = field(default_factory=set)
    """Every item with a label that counts."""
    key: Keyed = by_value
    """Key of a label, once it has its new name."""
    named: Callable[[Any], Any] = str
    """A label under its new name; None where there is none."""

    def triples(self) -> Counter[tuple[str, str, str, float]]:
        """The multiset of annotations; weights as a float of 32 bits keeps them."""
        return Counter((i, j, y, round(w, 4)) for i, j, y, w in self.rows)

    def votes(self) -> dict[str, dict[str, float]]:
        """Instance -> class -> sum of weights."""
        found: dict[str, dict[str, float]] = {}
        for instance, _, label, weight in self.rows:
            votes = found.setdefault(instance, {})
            votes[label] = votes.get(label, 0.0) + weight
        return found


def settle(parts: Sequence[Read], options: Mapping[str, Any]) -> Crowd:
    """The crowd of one file, or of several about the same instances."""
    rows = [row for part in parts for row in part.rows]
    missing = _missing(options)
    renamed = _renamed(options)

    def named(label: Any) -> Any:
        """The label under its new name, without blanks at its ends; None where there is none."""
        if isinstance(label, str):
            label = label.strip()
        if is_blank(label) or _same(label, missing) is not None:
            return None
        if shown(label).strip().casefold() in {text.strip().casefold() for text in missing}:
            return None
        old = _same(label, renamed)
        return label if old is None else renamed[old]

    rows = [replace(row, label=named(row.label)) for row in rows]
    rows = [row for row in rows if row.label is not None]
    rows = [replace(row, weight=weight_of(row.weight)) for row in rows]
    truth_values = all(shown(row.label).lower() in ("true", "false") for row in rows)
    if truth_values and any(isinstance(row.label, bool) for row in rows):  # "True" in one file is true in another
        rows = [replace(row, label=shown(row.label).lower() == "true") for row in rows]
    every = [row.label for row in rows]
    if not options.get("models", True):
        rows = [row for row in rows if not row.model]
    rows = [row for row in rows if row.weight > 0]
    there = {shown(row.instance) for row in rows}
    if not rows:
        raise Refused("no annotations")
    for row in rows:
        if _absent(row.instance) or _absent(row.annotator):
            raise Refused("a label without an instance or an annotator")
    labels = [row.label for row in rows]
    names, key = _classes(labels, options, all(part.is_text for part in parts))
    for label in every if options.get("clean") and options.get("classes") is None else ():
        if key(label) in names:  # labels that are left out may be spelled more often
            names[key(label)] |= {tidy(name) for name in written(label)}
    triples = [(shown(row.instance), shown(row.annotator), key(row.label), row.weight) for row in rows]
    chosen = _names(every, key) if options.get("classes") is None else names
    gold = _gold(parts, there, named, key, names, chosen)
    shares = options.get("duplicates") or "keep"
    triples = _without_repeats(triples, shares, {shown(row.annotator) for row in rows if row.model})
    texts: dict[str, str | None] = {}
    for part in parts:
        for row in part.rows:
            if row.text is not None and named(row.label) is not None and shown(row.instance) in there:
                texts.setdefault(shown(row.instance), shown(row.text))
        texts = {one: text for one, text in part.texts.items() if one in there} | texts
    return Crowd(
        triples,
        names,
        {one: truth for one, truth in gold.items() if one in there},
        texts,
        {shown(row.annotator) for row in rows if row.model},
        next((part.open for part in parts if part.open), ""),
        len(parts) > 1 and not any(part.gold_asked for part in parts),
        there,
        key,
        named,
    )


def weight_of(value: Any) -> float:
    """How much of a label a row is."""
    found = number(value)
    if found is None and isinstance(value, str):
        found = number(value.replace(",", ".", 1))
    if found is None or found < 0:
        raise Refused(f"weight {value!r}")
    return float(found)


def _absent(value: Any) -> bool:
    """Whether an id is missing: blanks are an id."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _missing(options: Mapping[str, Any]) -> dict[str, None]:
    given = options.get("missing") or []
    return dict.fromkeys([given] if isinstance(given, str) else given)


def _renamed(options: Mapping[str, Any]) -> dict[str, str]:
    return {str(old).strip(): str(new).strip() for old, new in (options.get("map") or {}).items()}


def _same(label: Any, known: Mapping[str, Any]) -> str | None:
    """Which of these texts a label is: its own spelling, else a whole number of its value."""
    for spelling in (shown(label).strip(), by_value(label)):
        for other in known:
            if spelling == other.strip():
                return other
    return next((other for other in known if by_value(other) == by_value(label)), None)


def _classes(labels: list[Any], options: Mapping[str, Any], is_text: bool) -> tuple[dict[str, set[str]], Keyed]:
    """Key of class -> names that it may have, and the key of a label."""
    listed = options.get("classes")
    if listed is not None:
        names = {alike(name): {each.strip() for each in written(name)} for name in listed}
        if len(names) < len(listed):
            raise Refused("classes are listed that are alike")
        for label in labels:
            if alike(label) not in names:
                raise Refused(f"label {label!r} is not listed")
        return names, alike
    if not options.get("clean"):
        return _names(labels, by_value), by_value
    spellings: dict[str, set[str]] = {}
    for label in labels:
        spellings.setdefault(alike(label), set()).update(tidy(name) for name in written(label))
    return spellings, alike


def _names(labels: list[Any], key: Keyed) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for label in labels:
        names.setdefault(key(label), set()).update(written(label))
    return names


def _gold(
    parts: Sequence[Read],
    labelled: set[str],
    named: Callable[[Any], Any],
    key: Keyed,
    names: dict[str, set[str]],
    chosen: Mapping[str, set[str]],
) -> dict[str, str]:
    """Instance -> key of its true class; a column that only looks like gold is taken if it fits."""
    found: dict[str, str] = {}
    dropped: set[str] = set()
    for part in parts:
        own = [(shown(row.instance), row.gold) for row in part.rows if named(row.label) is not None]
        own = [(one, named(value)) for one, value in [*own, *part.gold.items()]]
        own = [(one, value) for one, value in own if value is not None]
        truths: dict[str, str] = {}
        for one, value in own:
            truth = like_a_class(value, key, chosen)
            if truth not in chosen and not part.gold_asked and not part.gold:
                truths = {}
                break
            names.setdefault(truth, set()).update(tidy(name) for name in written(value))
            names[truth] |= written(value)
            if truths.setdefault(one, truth) != truth:
                dropped.add(one)
        if dropped and not part.gold and not part.gold_asked:
            truths, dropped = {}, set()  # it is no gold at all
        for one, truth in truths.items():
            if found.setdefault(one, truth) != truth:
                dropped.add(one)
    if dropped and any(part.gold_asked for part in parts):
        raise Refused("gold contradicts itself")
    return {one: truth for one, truth in found.items() if one not in dropped and one in labelled}


def like_a_class(value: Any, key: Keyed, chosen: Mapping[str, set[str]]) -> str:
    """The class that gold stands for: one that nobody chose, but is spelled almost like one class, is that class."""
    if key(value) in chosen:
        return key(value)
    same = [known for known, names in chosen.items() if alike(value) in map(alike, names)]
    return same[0] if len(same) == 1 else key(value)


def _without_repeats(
    triples: list[tuple[str, str, str, float]], policy: str, models: set[str]
) -> list[tuple[str, str, str, float]]:
    """What a policy for repeated labels of an instance by an annotator leaves."""
    groups: dict[tuple[str, str], list[tuple[str, str, str, float]]] = {}
    for triple in triples:
        groups.setdefault(triple[:2], []).append(triple)
    kept: list[tuple[str, str, str, float]] = []
    for group in groups.values():
        if policy == "keep" or not is_repeat(group):
            kept += group
        elif policy == "error":
            raise Refused(f"{group[0][1]} labels {group[0][0]} again")
        elif policy in ("first", "last"):
            kept.append(group[0] if policy == "first" else group[-1])
        else:
            total = math.fsum(weight for *_, weight in group)
            shares: dict[str, float] = {}
            for *_, label, weight in group:
                shares[label] = shares.get(label, 0.0) + weight / total
            kept += [(*group[0][:2], label, share) for label, share in shares.items()]
    return kept


def is_repeat(group: list[tuple[str, str, str, float]]) -> bool:
    """Whether a pair was labelled again; different labels that weigh one in all are one soft label."""
    if len(group) == 1:
        return False
    labels = [label for *_, label, _ in group]
    return len(set(labels)) < len(labels) or math.fsum(weight for *_, weight in group) > 1 + 1e-4
