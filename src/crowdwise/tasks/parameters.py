"""Checks of parameters that tasks share, made before anything is read or trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdwise import constraints
from crowdwise.errors import ConfigError, DataError, UsageError, spelled, suggest
from crowdwise.registry import AGGREGATORS, METHODS

AUTO = "auto"


def refuse_unknown(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Unknown settings are errors with a suggestion."""
    constraints.refuse_unknown(where, given, sorted(known), parameter="settings")


def check_parameters(method: str, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that ``method`` does not have, and values that are not of their types."""
    refuse_unknown(f"method {method!r}", parameters, constraints.parameters_of(METHODS[method]))
    constraints.check_settings(f"method {method!r}", parameters, METHODS[method])


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
    from crowdwise.readers import WRITTEN, bare_suffix, format_of

    for out in outputs:
        if tables and bare_suffix(out) != "json":
            format_of(out, WRITTEN)
        if out.is_dir():
            raise DataError(f"{out} is a folder; name a file", parameter="out")
        if any(path is not None and path.exists() and out.resolve() == path.resolve() for path in inputs):
            raise DataError(f"{out} would overwrite what is read; choose another name", parameter="out")
    if len({out.resolve() for out in outputs}) < len(outputs):
        raise DataError(f"{outputs[0]}: labels and annotators cannot go to one file", parameter="annotators_out")
