"""The tutorials run as they stand: Python as doctests, commands in this process, one after the other in an empty folder.

So do the pages for those who come from another library; its half of a page only where it is installed.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

DOCS = Path(__file__).parents[1] / "docs"
SLOW = {"text.md", "pictures.md", "cluster.md"}  # they train networks, or start Ray
PEERS = {"crowd-kit": "crowdkit", "cleanlab": "cleanlab", "peerannot": "peerannot"}
PAGES = sorted(set((DOCS / "tutorials").glob("*.md")) - {DOCS / "tutorials" / "index.md"})


def blocks(path: Path) -> list[tuple[str, str]]:
    """Language and text of every block that is run."""
    found = re.findall(
        r"^(<!-- not run: .*? -->\n)?```(python|sh)\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return [(language, text) for left_out, language, text in found if not left_out]


def run_examples(text: str, name: str, names: dict[str, Any]) -> None:
    name = f"{name}, block {len(names)}"  # doctest looks sources up by name
    test = doctest.DocTestParser().get_doctest(text, names, name, name, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    result = runner.run(test, clear_globs=False)
    names |= test.globs
    assert result.attempted
    assert result.failed == 0


def run_command(line: str) -> None:
    from crowdwise.cli import app

    program, *arguments = shlex.split(line, comments=True)
    assert program == "crowdwise", line
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, f"{line}\n{result.output}"


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.slow] * (path.name in SLOW), id=path.stem) for path in PAGES]
)
def test_the_tutorial_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, text in blocks(path):
        if language == "python":
            run_examples(text, path.name, names)
        else:
            for line in text.splitlines():
                run_command(line)


def test_there_is_a_tutorial_for_every_road() -> None:
    assert {path.stem for path in PAGES} >= {
        "labels-only",
        "text",
        "pictures",
        "models-beside-people",
        "new-method",
        "cluster",
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PEERS)
def test_the_migration_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    imported = re.compile(rf"^>>> (from|import) {PEERS[name]}\b", re.MULTILINE)
    texts = [text for language, text in blocks(DOCS / "migration" / f"{name}.md") if language == "python"]
    theirs = [text for text in texts if imported.search(text)]
    assert theirs
    for text in texts:
        if text not in theirs or importlib.util.find_spec(PEERS[name]):
            run_examples(text, name, names)
