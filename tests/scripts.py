"""Scripts of benchmarks/ and docs/ as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load_script(name: str, folder: Path = FOLDER) -> ModuleType:
    """``FOLDER/NAME.py``; a module that asks for it is skipped where the folder is left out."""
    if not folder.exists():
        pytest.skip(f"{folder.name}/ is not part of this copy of the sources", allow_module_level=True)
    spec = importlib.util.spec_from_file_location(f"{name}_script", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)  # a script imports those beside it
        spec.loader.exec_module(module)
    return module
