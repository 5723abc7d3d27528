"""Checks of parameters that tasks share, made before anything is read or trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdwise.errors import ConfigError, DataError, UsageError, spelled, suggest
from crowdwise.registry import AGGREGATORS, METHODS

AUTO = "auto"
_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    tuple: ((list, tuple), "a list"),
}


def refuse_unknown(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Unknown keys are errors with a suggestion."""
    known = sorted(known)
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{suggest(key, known)}", parameter="settings")


def check_parameters(method: str, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that ``method`` does not have, and values of another type than the default's."""
    fields = {field.name: field for field in dataclasses.fields(METHODS[method])}
    refuse_unknown(f"method {method!r}", parameters, fields)
    for key, value in parameters.items():
        if type(fields[key].default) not in _KINDS:
            continue  # None, for instance: the method itself will say what it cannot use
        allowed, name = _KINDS[type(fields[key].default)]
        truth_value = isinstance(value, bool)  # which Python counts among the integers
        if truth_value != (allowed == (bool,)) or not isinstance(value, allowed):
            raise ConfigError(f"{key} of method {method!r} must be {name}, not {value!r}", parameter=key)


def check_aggregator(method: str) -> None:
    """Refuse what is neither an aggregator nor "auto"."""
    if method != AUTO and method not in AGGREGATORS:
        raise ConfigError(f"unknown method {method!r}{suggest(method, [AUTO, *AGGREGATORS])}", parameter="method")


def check_workers(ray: str | None, workers: int | None) -> None:
    """Workers are Ray's."""
    if workers is not None and ray is None:
        raise UsageError(f"{spelled('workers')} are those of Ray: say which with {spelled('ray')}", parameter="workers")


def check_outputs(outputs: Sequence[Path], inputs: Sequence[Path | None], *, tables: bool = True) -> None:
    """Refuse what cannot be written before anything is computed."""
    from crowdwise.readers import bare_suffix, format_of

    for out in outputs:
        if tables and bare_suffix(out) != "json":
            format_of(out)
        if out.is_dir():
            raise DataError(f"{out} is a folder; name a file", parameter="out")
        if any(path is not None and path.exists() and out.resolve() == path.resolve() for path in inputs):
            raise DataError(f"{out} would overwrite what is read; choose another name", parameter="out")
    if len({out.resolve() for out in outputs}) < len(outputs):
        raise DataError(f"{outputs[0]}: labels and annotators cannot go to one file", parameter="annotators_out")
