"""From what a model said to a label: three rules for text, and log-probabilities as a soft label. Nothing is evaluated."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import fmean
from typing import Any, NamedTuple

from crowdwise.readers._node import Label

FIELDS = ("label", "answer", "category", "verdict", "winner", "rating", "score", "labels")
"""Fields of a JSON answer that may hold the label, in the order in which they are tried."""
LONGEST = 100_000  # characters of an answer that are looked at
SHORT = 60  # characters of an answer that may be a class by itself, where classes are not known
ENOUGH = 0.5  # probability that the classes must have among the first tokens for a soft label
NEGLIGIBLE = 0.01  # classes with less are left out of a soft label
_EDGES = " \t\r\n\"'`*_.,;:!?()[]{}<>"

UNKNOWN, SEVERAL, NONE, NO_FIELD = (
    "with an unknown class",
    "naming several classes",
    "naming no class",
    "with no label in the JSON object",
)


class Token(NamedTuple):
    """A token of an answer, its log-probability, and those of what might have stood in its place."""

    text: str
    logprob: float
    others: Sequence[tuple[str, float]] = ()


class Found(NamedTuple):
    """The label in an answer, or why there is none."""

    label: Label | None
    reason: str = ""
    start: int = 0
    """Where the label begins in the text."""


@dataclass(frozen=True)
class Classes:
    """The classes that an answer may name."""

    values: tuple[Label, ...]

    @cached_property
    def by_name(self) -> dict[str, Label]:
        return {name_of(value): value for value in self.values}

    @cached_property
    def by_folded(self) -> dict[str, Label]:
        """Without case, where that leaves names distinct."""
        folded = [name_of(value).casefold() for value in self.values]
        times = Counter(folded)
        return {name: value for name, value in zip(folded, self.values, strict=True) if times[name] == 1}

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Any class as a whole word, the longest first."""
        names = sorted({*self.by_name, *self.by_folded}, key=lambda name: (-len(name), name))
        words = "|".join(re.escape(name) for name in names if name)
        return re.compile(rf"(?<![\w.-])(?:{words})(?!\w|[.,]\d|-\w)" if words else r"(?!)", re.IGNORECASE)

    def exact(self, text: str) -> Label | None:
        """The class that a text is."""
        stripped = text.strip()
        for each in (stripped, stripped.strip(_EDGES)):
            found = self.by_name.get(each, self.by_folded.get(each.casefold()))
            if found is not None:
                return found
        return None


def name_of(value: Any) -> str:
    """A class as text: 4.0 is 4, and true is true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def find_label(text: str, classes: Classes, question: str | None) -> Found:
    """The class that an answer names.

    First a JSON object in the text, then the whole text, then the only class in the last line or in all of it.

    >>> known = Classes(("positive", "negative"))
    >>> [find_label(text, known, None).label for text in ('{"label": "Positive"}', "Negative.", "I think:\\nit is positive")]
    ['positive', 'negative', 'positive']
    >>> find_label("positive or negative", known, None).reason
    'naming several classes'
    """
    text = text[:LONGEST]
    document = find_object(text)
    if document is not None:
        return _in_object(*document, classes, question, text)
    label = classes.exact(text)
    return _in_words(text, classes) if label is None else Found(label, start=_begin(text))


def guess_label(text: str, question: str | None) -> Found:
    """The label of an answer whose classes are not known: a field of a JSON object, or a short answer as it is."""
    text = text[:LONGEST]
    document = find_object(text)
    if document is not None:
        content, start = document
        for field in dict.fromkeys((question, *FIELDS)):
            value = _plain(content.get(field)) if field is not None else None
            if value is not None:
                return Found(value, start=_value_start(text, start, str(field)))
        return Found(None, NO_FIELD)
    line = text.strip().strip(_EDGES)
    if not line or "\n" in line or len(line) > SHORT:
        return Found(None, NONE)
    return Found(line, start=_begin(text))


def _begin(text: str) -> int:
    """Where an answer begins, behind blanks and quotes."""
    return len(text) - len(text.lstrip(_EDGES))


def find_object(text: str) -> tuple[dict[str, Any], int] | None:
    """The first JSON object in a text that is not empty, and where it begins."""
    decoder, at = json.JSONDecoder(), text.find("{")
    for _ in range(20):
        if at < 0:
            return None
        try:
            value, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and value:
            return value, at
        at = text.find("{", at + 1)
    return None


def _in_object(content: dict[str, Any], start: int, classes: Classes, question: str | None, text: str) -> Found:
    fitting = [field for field, value in content.items() if isinstance(value, str) and classes.exact(value) is not None]
    likely = (question, *(fitting if len(fitting) == 1 else ()), *FIELDS)
    named = next((field for field in likely if field in content), None)
    if named is None:
        return Found(None, SEVERAL if fitting else NO_FIELD)
    return _checked(content[named], classes, _value_start(text, start, named))


def _checked(value: Any, classes: Classes, start: int) -> Found:
    if isinstance(value, list) and len(value) > 1:
        return Found(None, SEVERAL)
    plain = _plain(value)
    label = None if plain is None else classes.exact(name_of(plain))
    return Found(None, UNKNOWN) if label is None else Found(label, start=start)


def _plain(value: Any) -> Label | None:
    """A value that may be a label; of a list with one element, that."""
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return value.strip() or None if isinstance(value, str) else None


def _value_start(text: str, start: int, field: str) -> int:
    """Where the value of a field begins."""
    key = re.search(re.escape(json.dumps(field, ensure_ascii=False)) + r"\s*:\s*[\"\[ ]*", text[start:])
    return start if key is None else start + key.end()


def _in_words(text: str, classes: Classes) -> Found:
    body = text.rstrip()
    last = body.rfind("\n") + 1
    for begin in dict.fromkeys((last, 0)):
        found: dict[Label, int] = {}
        for match in classes.pattern.finditer(body, begin):
            label = classes.exact(match.group())
            if label is not None:
                found.setdefault(label, match.start())
        if len(found) == 1:
            ((label, start),) = found.items()
            return Found(label, start=start)
        if found:
            return Found(None, SEVERAL)
    return Found(None, NONE)


def soft_label(
    found: Found, tokens: Sequence[Token], classes: Classes
) -> tuple[dict[Label, float] | None, float | None]:
    """Probabilities of classes where the answer begins, and of the label itself; None where tokens do not tell.

    A token that begins one class only counts for that class; one that begins several, only on the path that the model
    took, where the next token decides.

    >>> known = Classes(("positive", "negative", "neutral"))
    >>> tokens = [Token("ne", -0.22, [("ne", -0.22), ("positive", -1.61)]), Token("g", -0.11, [("g", -0.11), ("ut", -2.3)])]
    >>> shares, sure = soft_label(Found("negative"), tokens, known)
    >>> {name: round(share, 2) for name, share in shares.items()}, round(sure, 2)
    ({'positive': 0.2, 'negative': 0.72, 'neutral': 0.08}, 0.72)
    """
    at = _token_at(tokens, found.start)
    if at is None or found.label is None:
        return None, None
    names = {name_of(value).casefold(): value for value in classes.values}
    shares = _shares(tokens[at:], names) if len(names) == len(classes.values) else {}
    covered = sum(shares.values())
    if covered < ENOUGH:
        return None, _geometric(tokens, at, found)
    shares = {name: share / covered for name, share in shares.items() if share / covered >= NEGLIGIBLE}
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}, shares.get(found.label, 0.0) / total


def _shares(tokens: Sequence[Token], names: dict[str, Label]) -> dict[Label, float]:
    shares = dict.fromkeys(names.values(), 0.0)
    path, mass = "", 1.0
    for token in tokens:
        options = {token.text: token.logprob} | dict(token.others)
        deeper = None
        ended = names.get(path)  # a class that other classes begin with, such as 1 and 10
        for text, logprob in options.items():
            probability = mass * math.exp(min(logprob, 0.0))
            read = _joined(path, text)
            begun = [name for name in names if name.startswith(read)] if read else []
            if ended is not None and (not begun or read == path):
                shares[ended] += probability
            elif len(begun) == 1:
                shares[names[begun[0]]] += probability
            elif begun and text == token.text:
                deeper = read, probability
            elif not read and text == token.text and not path:
                deeper = "", mass  # a quote or blank before the answer
        if deeper is None:
            return shares
        path, mass = deeper
    if path in names:  # the answer ended there
        shares[names[path]] += mass
    return shares


def _joined(path: str, token: str) -> str:
    """What has been read of an answer with one more token, folded; blanks and quotes at its edges do not count."""
    text = token.casefold()
    return path + text.rstrip(_EDGES) if path else text.strip(_EDGES)


def _token_at(tokens: Sequence[Token], start: int) -> int | None:
    """The token in which the character at ``start`` is."""
    ends = accumulate(len(token.text) for token in tokens)
    return next((number for number, end in enumerate(ends) if end > start), None)


def _geometric(tokens: Sequence[Token], at: int, found: Found) -> float:
    """Geometric mean of the probabilities of the label's tokens."""
    ends = accumulate(len(token.text) for token in tokens[at:])
    last = next((k for k, end in enumerate(ends) if end >= len(name_of(found.label))), len(tokens))
    return math.exp(fmean(min(token.logprob, 0.0) for token in tokens[at:][: last + 1]))
