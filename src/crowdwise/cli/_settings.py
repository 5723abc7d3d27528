"""Settings from the command line: ``key=value`` with TOML or JSON values, checked before anything is trained."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crowdwise.errors import ConfigError, suggest
from crowdwise.registry import METHODS

_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    tuple: ((list, tuple), "a list"),
}


def parse(items: Sequence[str]) -> dict[str, Any]:
    """``["k=5", "backbone=cnn"]`` -> values by key.

    >>> parse(["k=5", "backbone=cnn", "backbone_options={hidden = 8}", "class_prior=null"])
    {'k': 5, 'backbone': 'cnn', 'backbone_options': {'hidden': 8}, 'class_prior': None}
    """
    settings: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not key.strip() or not equals:
            raise ConfigError(f"--set takes key=value, got {item!r}")
        settings[key.strip()] = literal(key.strip(), text.strip())
    return settings


def literal(key: str, text: str) -> Any:
    """A value written as in TOML or JSON; a single word needs no quotes."""
    try:
        content = tomllib.loads(f"value = {text}")
        if len(content) == 1:
            return content["value"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    if re.fullmatch(r"[\w.:/~+-]+", text):
        return text
    raise ConfigError(f"--set {key}={text}: the value is neither TOML nor JSON; put text in quotes: {key}='\"...\"'")


def refuse_unknown(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Unknown keys are errors with a suggestion."""
    known = sorted(known)
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{suggest(key, known)}")


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
            raise ConfigError(f"{key} of method {method!r} must be {name}, not {value!r}")
