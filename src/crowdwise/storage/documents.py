"""JSON and TOML documents: read within limits, checked against a dataclass that declares them, and written whole.

Anybody may have written a document: whatever is wrong with one is an error that names file, key, bound and value.
"""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from crowdwise.constraints import check_value, refuse_unknown, shown
from crowdwise.errors import ConfigError, CrowdwiseError, ModelFileError, suggest
from crowdwise.storage.files import replacing
from crowdwise.storage.limits import SMALL

T = TypeVar("T")
Error = type[CrowdwiseError]


def json_value(data: bytes | str) -> Any:
    """The value of a JSON text; whatever is wrong with it is a ValueError.

    >>> json_value("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def toml_table(data: bytes | str) -> dict[str, Any]:
    """The content of a TOML text; whatever is wrong with it is a ValueError."""
    try:
        return tomllib.loads(data if isinstance(data, str) else data.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, error: Error = ModelFileError) -> Any:
    """The value of a JSON file."""
    try:
        return json_value(_content(path, error))
    except ValueError as reason:
        if isinstance(reason, CrowdwiseError):
            raise
        raise error(f"{path} is damaged: {reason}") from reason


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False, default=str) + "\n", encoding="utf-8")


def read_json_lines(path: Path, error: Error = ModelFileError) -> Iterator[tuple[str, Any]]:
    """The values of a file of JSON lines, each with its place."""
    for number, line in enumerate(_content(path, error).splitlines(), start=1):
        place = f"{path}, line {number}"
        try:
            yield place, json_value(line)
        except ValueError as reason:
            raise error(f"{place} is not JSON: {reason}") from reason


def write_json_lines(path: Path, records: Iterable[Any]) -> None:
    """Write a file of JSON lines, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def toml_names(*folders: Traversable) -> list[str]:
    """Names of the TOML documents in some folders."""
    return sorted(_toml_files(folders))


def named_toml(what: str, name: str | Path, *folders: Traversable) -> tuple[str, dict[str, Any]]:
    """A TOML document by its name in one of ``folders``, or from a file of the user's: its name and its content."""
    path, files = Path(name), _toml_files(folders)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"there is no {what} file {path}")
        label, text = path.stem, _content(path, ConfigError)
    elif str(name) in files:
        label, text = str(name), files[str(name)].read_bytes()
    else:
        raise ConfigError(f"unknown {what} {str(name)!r}{suggest(str(name), sorted(files))}")
    try:
        return label, toml_table(text)
    except ValueError as error:
        raise ConfigError(f"{what} {name}: {error}") from error


def _toml_files(folders: Iterable[Traversable]) -> dict[str, Traversable]:
    files = (file for folder in folders for file in folder.iterdir())
    return {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}


def read_as(schema: type[T], content: object, where: str, error: Error = ConfigError, **given: Any) -> T:
    """A dataclass from the content of a document, whose keys are its fields, but for those ``given`` otherwise.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Settings:
    ...     seeds: int = 3
    >>> read_as(Settings, {"seed": 3}, "mine.toml")
    Traceback (most recent call last):
    ...
    crowdwise.errors.ConfigError: mine.toml: unknown key 'seed'; did you mean 'seeds'?
    """
    if not isinstance(content, Mapping):
        raise error(f"{where} must be a table, got {shown(content)}")
    known = {field.name: field for field in fields(schema) if field.name not in given}  # type: ignore[arg-type]
    kinds = get_type_hints(schema, include_extras=True)
    present = [name for name in known if name in content]  # in this order, so that a version comes first
    values = {name: _value(kinds[name], content[name], f"{where}: {name}", error) for name in present}
    refuse_unknown(where, content, known, error)
    for name, field in known.items():
        if name not in content and field.default is MISSING and field.default_factory is MISSING:
            raise error(f"{where}: {name} is missing")
    return schema(**values, **given)


def _value(kind: Any, value: Any, where: str, error: Error) -> Any:
    origin, inner = get_origin(kind), (get_args(kind) or (None,))[-1]
    if is_dataclass(kind):
        return read_as(kind, value, where, error)  # type: ignore[arg-type]
    if is_dataclass(inner) and origin in (list, Sequence) and isinstance(value, list):
        return [_value(inner, one, f"{where} {number}", error) for number, one in enumerate(value, start=1)]
    check_value(where, value, kind, error)
    return value


def _content(path: Path, error: Error) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise error(f"{path} is not a regular file")  # a device may have no end
        if path.stat().st_size > SMALL:
            raise error(f"{path} has {path.stat().st_size:,} bytes; a document may have {SMALL:,} at most")
        return path.read_bytes()
    except FileNotFoundError:
        raise error(f"{path} does not exist") from None
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror}") from reason
