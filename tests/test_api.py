"""What is public: every name in an ``__all__``, with its signature, as recorded in ``tests/api.txt``.

``CROWDWISE_RECORD=1 pytest tests/test_api.py`` records anew. A changed line is a change that users can notice: it needs a
line in CHANGELOG.md.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import crowdwise

RECORD = Path(__file__).parent / "api.txt"


def public_modules() -> Iterator[ModuleType]:
    """Packages, and modules at the top, with an ``__all__`` and a name without a leading underscore in any part."""
    for found in pkgutil.walk_packages(crowdwise.__path__, "crowdwise."):
        name = found.name
        if any(part.startswith("_") for part in name.split(".")) or name.startswith("crowdwise.cli"):
            continue
        if not found.ispkg and name.count(".") > 1:
            continue
        module = importlib.import_module(name)
        if "__all__" in vars(module):
            yield module


def described(value: Any) -> str:
    """Parameters and defaults of a function or class; of other values the name of their type."""
    if not inspect.isclass(value) and not inspect.isroutine(value):
        return f": {type(value).__name__}"
    try:
        signature = inspect.signature(value)
    except ValueError:  # of classes written in C
        return "(...)"
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r"<(function|class) '?([\w.<>]+)'?( at 0x[0-9a-f]+)?>", r"\2", text)


def lines() -> list[str]:
    found = []
    for module in (crowdwise, *public_modules()):
        for name in sorted(module.__all__):
            found.append(f"{module.__name__}.{name}{described(getattr(module, name))}")
    return sorted(found)


def test_public_names_and_signatures_are_those_recorded() -> None:
    current = lines()
    if os.environ.get("CROWDWISE_RECORD"):
        RECORD.write_text("\n".join(current) + "\n", encoding="utf-8")
    recorded = RECORD.read_text(encoding="utf-8").splitlines()
    gone = sorted(set(recorded) - set(current))
    new = sorted(set(current) - set(recorded))
    assert (gone, new) == ([], []), "record tests/api.txt anew, and say in CHANGELOG.md what changed"


@pytest.mark.parametrize("module", list(public_modules()), ids=lambda module: module.__name__)
def test_every_public_name_is_there_once(module: ModuleType) -> None:
    names = list(module.__all__)
    assert len(set(names)) == len(names)
    assert all(hasattr(module, name) for name in names)
