"""Modules keep their old names for a release."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path

import pytest

import crowdwise
from crowdwise._moved import MOVED
from crowdwise.bench.paper import theory

SOURCE = Path(crowdwise.__file__).parents[1]


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_name_imports_the_new_module_and_warns(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"^{old} is now {MOVED[old]}$") as caught:
        assert importlib.import_module(old) is importlib.import_module(MOVED[old])
    assert len(caught) == 1
    assert not SOURCE.joinpath(*old.split(".")).with_suffix(".py").exists()


def test_attributes_and_names_of_a_moved_module_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "crowdwise.theory", raising=False)
    monkeypatch.delattr(crowdwise, "theory", raising=False)
    with pytest.warns(DeprecationWarning, match=r"crowdwise\.theory is now crowdwise\.bench\.paper\.theory"):
        assert crowdwise.theory is theory


def test_a_warning_names_the_line_that_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "mine.py"
    script.write_text("import crowdwise.theory\nfrom crowdwise.methods.base import CrowdClassifier\n")
    for old in ("crowdwise.theory", "crowdwise.methods.base"):
        monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match="is now crowdwise") as caught:
        runpy.run_path(str(script))
    assert [(each.filename, each.lineno, str(each.message)) for each in caught] == [
        (str(script), 1, "crowdwise.theory is now crowdwise.bench.paper.theory"),
        (str(script), 2, "crowdwise.methods.base is now crowdwise.methods.core.base"),
    ]


def test_a_module_that_never_was_is_still_missing() -> None:
    assert importlib.util.find_spec("crowdwise.nonsense") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("crowdwise.methods.nonsense")
