"""The notebooks are the tutorials, and run from top to bottom with the results that the pages show."""

from __future__ import annotations

import doctest
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import load_script

ROOT = Path(__file__).parents[1]
pytest.importorskip("nbformat", reason="the extra dev is not installed")
notebooks = load_script("notebooks", ROOT / "docs")
each_tutorial = pytest.mark.parametrize("path", notebooks.SOURCES, ids=lambda path: path.stem)


@each_tutorial
def test_the_notebook_is_its_page(path: Path) -> None:
    assert path.with_suffix(".ipynb").read_text("utf-8") == notebooks.written(path), "run: make docs"


@each_tutorial
def test_the_notebook_has_all_of_the_code(path: Path) -> None:
    text = path.read_text("utf-8")
    found = [source for kind, source, _ in notebooks.parts(text) if kind != "markdown"]
    assert sum(source.count("\n") + 1 for source in found) == text.count("\n>>> ") + text.count("\n...") + sum(
        block.count("\n") + 1 for kind, block, _ in notebooks.parts(text) if kind == "sh"
    )
    assert ">>>" not in "\n".join(found)


def printed(cell: Any) -> str:
    """What a cell prints, and its value."""
    texts = [each.get("text", "") or each.get("data", {}).get("text/plain", "") + "\n" for each in cell.outputs]
    return "".join(text for text, each in zip(texts, cell.outputs, strict=True) if each.get("name") != "stderr")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@each_tutorial
def test_the_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="the extra dev is not installed")
    pytest.importorskip("ipykernel", reason="the extra dev is not installed")
    bin_folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    page = path.read_text("utf-8")
    book = notebooks.notebook(page)
    for cell in book.cells:  # IPython goes on after a command that fails
        if cell.source.startswith("!"):
            cell.source = "\n".join(f"{line}\nassert _exit_code == 0" for line in cell.source.splitlines())
    done = nbclient.NotebookClient(book, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check = doctest.OutputChecker().check_output
    for cell, (_, source, want) in zip(done.cells, notebooks.parts(page), strict=True):
        if want:
            flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            assert check(want, printed(cell), flags), f"{source}\n-> {printed(cell)}, not {want}"
