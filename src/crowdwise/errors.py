"""Named exceptions. A message says what is wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class CrowdwiseError(Exception):
    """Base class of every error that crowdwise raises on purpose.

    ``parameter`` names the parameter that is wrong, or that would put it right, where there is one.
    """

    def __init__(self, *arguments: Any, parameter: str | None = None) -> None:
        super().__init__(*arguments)
        self.parameter = parameter


class AnnotationError(CrowdwiseError, ValueError):
    """Invalid annotations: names column, row and value."""


class ConfigError(CrowdwiseError, ValueError):
    """A parameter, preset or command-line option that is unknown or out of range."""


class UsageError(ConfigError):
    """Parameters that do not go together, or one that is missing."""


class DataError(CrowdwiseError, ValueError):
    """Inputs (arrays, files, data sets) that cannot be used as they are."""


class NonFiniteError(DataError):
    """Inputs with values that are missing (NaN) or infinite; ``instances`` are the ids, or rows, of all of them."""

    def __init__(self, place: str, instances: Sequence[Any]) -> None:
        super().__init__(
            f"{place}: {len(instances):,} of the instances have missing or infinite values ({shorten(instances)}); "
            "replace these values, or leave the instances out"
        )
        self.place, self.instances = place, list(instances)


class ReadError(AnnotationError, DataError):
    """A file of annotations that cannot be read: names file, line or record, and field."""


class DatasetError(CrowdwiseError, OSError):
    """A public data set that is missing, truncated or corrupted."""


class ModelFileError(CrowdwiseError, ValueError):
    """A saved model or run directory that is damaged, tampered with or from an unknown version."""


class StorageError(CrowdwiseError, OSError):
    """A file that cannot be written: names file and folder. What was written before is still there."""


class InUseError(CrowdwiseError, RuntimeError):
    """A folder that another process is using: names folder, process, host and time."""


class TrainingError(CrowdwiseError, RuntimeError):
    """Training that cannot continue (no distilled examples, non-finite loss, ...)."""


class LostProcessError(TrainingError):
    """Another process of a training that several share has ended, or does not answer any more."""


class CrowdwiseWarning(UserWarning):
    """Something was repaired or degraded, and the result should be read with that in mind."""


def suggest(name: object, known: Iterable[str]) -> str:
    """A hint for a misspelt name: ``; did you mean 'x'?``, else the list of what is known.

    >>> suggest("taidmt", ["ce", "taidtm"])
    "; did you mean 'taidtm'?"
    >>> suggest("zzz", ["b", "a"])
    "; known: 'a', 'b'"
    """
    known = known if isinstance(known, tuple) else sorted(known)  # the values of a Literal have an order of their own
    close = difflib.get_close_matches(str(name), [each for each in known if isinstance(each, str)], n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return "; known: " + ", ".join(map(repr, known)) if known else ""


Spelling = Callable[[str, str], str]
_spelling: ContextVar[Spelling] = ContextVar("spelling", default="{}={}".format)


def spelled(parameter: str, value: str = "") -> str:
    """A parameter in a message, as whoever called writes it: ``ids=FILE`` in Python, ``--ids FILE`` on the command line.

    >>> spelled("ids", "FILE"), spelled("ids")
    ('ids=FILE', 'ids=')
    """
    return _spelling.get()(parameter, value)


@contextmanager
def spelling(function: Spelling) -> Iterator[None]:
    """Let ``function`` (of name and value) spell the parameters in messages: what a front end does."""
    token = _spelling.set(function)
    try:
        yield
    finally:
        _spelling.reset(token)


@contextmanager
def renaming(**names: str) -> Iterator[None]:
    """Inside, parameters of a function that is called go by the caller's own names for them: ``gold="gold_column"``."""
    outer = _spelling.get()
    with spelling(lambda name, value: outer(names.get(name, name), value)):
        yield


def shorten(values: Sequence[Any], limit: int = 20) -> str:
    """The first of some values, and how many more there are.

    >>> shorten(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(repr, values[:limit]))
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit:,} more"
