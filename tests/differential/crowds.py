"""Small crowds with everything that goes wrong in ids and labels, before they are written to a file."""

from __future__ import annotations

import datetime
import random
import unicodedata
from dataclasses import dataclass
from typing import Any

LABELS: dict[str, list[Any]] = {
    "words": ["cat", "dog", "fox"],
    "two words": ["very good", "not good"],
    "case": ["cat", "CAT", "Cat", "dog"],
    "blanks in labels": ["cat", "cat ", " cat", "dog"],
    "punctuation": ["real-estate", "real estate", "Real Estate.", "none"],
    "unicode": [unicodedata.normalize(form, "größe") for form in ("NFC", "NFD")] + ["klein"],
    "full width": ["cat", "\uff43\uff41\uff54", "dog"],
    "other scripts": ["да", "нет", "猫", "🙂"],
    "zero width": ["cat", "cat\u200b", "dog"],
    "whole numbers": [1, 2, 3],
    "zero and one": [0, 1],
    "minus one": [-1, 1],
    "three signs": [-1, 0, 1],
    "scale": [-2, -1, 0, 1, 2],
    "fractions": [0.5, 1.5, 2.25],
    "whole and fractions": [1, 2.0, 2.5],
    "long numbers": [2**53 + 1, 2**53 + 2, 2**53],
    "spelt numbers": ["1", "1.0", "2", "2.0"],
    "odd numbers": ["1", "01", "+1", "1e0", "2"],
    "zeros": ["0", "-0", "0.0", "1", "unsure"],
    "numbers and words": ["1", "1.0", "2", "unsure"],
    "decimal commas": ["0,5", "1,5", "1,0", "1"],
    "truth and numbers": ["TRUE", "1", "0", "FALSE"],
    "errors of sheets": ["#N/A", "#REF!", "cat"],
    "truth": [True, False],
    "spelt truth": ["true", "false", "True", "FALSE"],
    "yes and no": ["yes", "no"],
    "nothing as class": ["None", "joy", "anger"],
    "NA as class": ["NA", "US", "DE"],
    "nan as class": ["nan", "null", "some"],
    "missing codes": ["cat", "dog", "N/A", "-"],
    "dates": ["2026-01-02", "2026-01-03"],
    "separators": ["a,b", "a;b", "a|b"],
    "quotes": ['say "no"', "it's", '"'],
    "lines": ["one\ntwo", "one"],
    "formulas": ["=A1", "+b", "-c", "@d"],
    "tabs": ["a\tb", "a"],
    "one class": ["cat"],
    "long text": ["x" * 70, "x" * 71],
}
TYPED = {name for name, labels in LABELS.items() if not isinstance(labels[0], str)}


def _items(draw: random.Random, kind: str, n: int) -> list[Any]:
    start = draw.choice([0, 1, 100])
    if kind == "numbers":
        return [start + k for k in range(n)]
    if kind == "negative":
        return [k - 2 for k in range(n)]
    if kind == "padded":
        return [f"{k:03d}" for k in range(n)]
    if kind == "some padded":
        return [f"{k}" if k % 2 else f"0{k}" for k in range(n)]
    if kind == "floats":
        return [f"{k}.0" for k in range(n)]
    if kind == "float and whole":
        return ["1", "1.0", "2", "2.0", *(str(k) for k in range(3, n + 1))][:n]
    if kind == "long":
        return [1580661436132757505 + k for k in range(n)]
    if kind == "longer":
        return [str(10**20 + k) for k in range(n)]
    if kind == "words":
        return [f"item {k}" for k in range(n)]
    if kind == "addresses":
        return [f"http://x.org/?q={k}&r=a,b" for k in range(n)]
    if kind == "unicode":
        forms = ("NFC", "NFD")
        return [unicodedata.normalize(forms[k % 2], f"né {k // 2}") for k in range(n)]
    if kind == "case":
        return [("Doc", "doc")[k % 2] + str(k // 2) for k in range(n)]
    if kind == "dates":
        return [(datetime.date(2026, 1, 1) + datetime.timedelta(k)).isoformat() for k in range(n)]
    if kind == "quotes":
        return [f'the "{k}"' for k in range(n)]
    if kind == "exponents":
        return [f"{k}e5" for k in range(1, n + 1)]
    if kind == "truth":
        return ["true", "false", *(f"t{k}" for k in range(n))][:n]
    assert kind == "nothing"
    return ["None", "nan", "NA", *(f"x{k}" for k in range(n))][:n]


ITEMS = (
    *("numbers", "negative", "padded", "floats", "long", "longer", "words", "addresses", "unicode", "case", "dates"),
    *("quotes", "exponents", "truth", "nothing", "some padded", "float and whole"),
)
PEOPLE: dict[str, list[Any]] = {
    "names": ["ann", "bob", "cyd", "dan"],
    "numbers": [1, 2, 3, 4],
    "padded": ["01", "02", "1", "2"],
    "addresses": ["a@x.org", "b@x.org", "A@x.org"],
    "prefixes": ["news-a", "news-ab", "news-b"],
    "one prefix": ["set-a", "set-ab", "set-abc"],
    "unicode": ["zoë", unicodedata.normalize("NFD", "zoë"), "ben"],
    "blanks": ["ann", "ann ", "bob"],
    "commas": ["Doe, Jane", "Roe, Ann"],
    "nothing": ["None", "NA", "bob"],
    "long": [2**60 + 1, 2**60 + 2, 2**60 + 3],
    "codes": ["=a", "-b", "@c"],
}


@dataclass
class Made:
    """What is to be written: a record for each annotation."""

    rows: list[dict[str, Any]]
    labels: str
    items: str
    people: str
    classes: list[Any]
    traits: list[str]


def make(draw: random.Random) -> Made:
    """A crowd of 5 to 40 labels."""
    labels = draw.choice(list(LABELS))
    items = draw.choice(["numbers", "words", draw.choice(ITEMS)])
    people = draw.choice(["names", "names", draw.choice(list(PEOPLE))])
    classes = list(LABELS[labels])
    names = _items(draw, items, draw.randint(3, 9))
    who = list(PEOPLE[people])[: draw.randint(2, 4)]
    pairs = [(i, j) for i in names for j in who if draw.random() < 0.85]
    while len(pairs) < 5:
        pairs.append((draw.choice(names), draw.choice(who)))
    if draw.random() < 0.5:
        draw.shuffle(pairs)
    rows = [{"instance": i, "annotator": j, "label": draw.choice(classes)} for i, j in pairs[:40]]
    traits = []
    if draw.random() < 0.25:
        traits.append("repeats")
        again = [dict(row) for row in draw.sample(rows, min(3, len(rows)))]
        for row in again:
            row["label"] = draw.choice(classes)
        rows += again
    if draw.random() < 0.25:
        traits.append("no label")
        for row in draw.sample(rows[1:], min(2, len(rows) - 1)):
            row["label"] = draw.choice([None, None, "", "  "]) if isinstance(classes[0], str) else None
    return Made(rows, labels, items, people, classes, traits)
