"""README.md, CONTRIBUTING.md and docs/ hold true: their examples run, their links and commands exist."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crowdwise.registry import METHODS
from scripts import load_script

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
generated = load_script("generated", DOCS)
ELSEWHERE = {
    DOCS / "simulate.md",
    *(DOCS / "tutorials").glob("*.md"),
    *(DOCS / "migration").glob("*.md"),
}  # run by other tests


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def examples(path: Path) -> list[str]:
    return [block for block in python_blocks(path) if block.startswith(">>> ")]


LONG = {"taidtm.md"}  # trains three times
WITH_EXAMPLES = [path for path in DOCUMENTS if examples(path) and path not in ELSEWHERE]
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def anchors(path: Path) -> set[str]:
    """Headings as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_documents_are_there() -> None:
    names = {path.name for path in DOCUMENTS}
    assert names >= {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "index.md", "taidtm.md", "engine.md", "results.md"}
    assert {path.name for path in WITH_EXAMPLES} >= {"README.md", "annotations.md", "engine.md", "taidtm.md"}


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.name in LONG), id=path.name) for path in WITH_EXAMPLES],
)
def test_the_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(examples(path))
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, path.name, str(path), 0)
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(test)
    assert result.attempted > 3
    assert result.failed == 0


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8"))
    for link in links:
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{path.name}: {link}"


@each_document
def test_commands_exist(path: Path) -> None:
    from crowdwise.cli import VERBS

    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"^crowdwise ([a-z]\w*)", shell, re.MULTILINE)) <= set(VERBS)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make ([\w-]+)", shell, re.MULTILINE)) <= targets
    for script in re.findall(r"^python (\S+\.py)", shell, re.MULTILINE):
        assert (ROOT / script).exists()


@pytest.fixture(scope="module")
def parts() -> dict[str, str]:
    return {
        "methods": generated.methods(),
        "packages": generated.packages(),
        "taidtm_defaults": generated.taidtm_defaults(),
    }


@pytest.mark.parametrize("path", generated.DOCUMENTS, ids=lambda path: path.name)
def test_generated_parts_are_current(path: Path, parts: dict[str, str]) -> None:
    text = path.read_text("utf-8")
    assert text.count("<!-- generated: ") == text.count("<!-- end of generated -->") == 1
    assert generated.filled(text, parts) == text, "run: make docs"


def test_the_catalogue_lists_every_method(parts: dict[str, str]) -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", parts["methods"], re.MULTILINE)
    assert sorted(listed) == list(METHODS)


def test_the_index_lists_every_page() -> None:
    rows = re.findall(r"^\| \[.*$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE)
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", "\n".join(rows)))
    assert linked == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"index.md"}


def test_the_diagram_shows_the_imports_and_nothing_else() -> None:
    """Every import follows the arrows, and every arrow is an import."""
    text = (DOCS / "architecture.md").read_text("utf-8")
    nodes = {node: names.split(", ") for node, names in re.findall(r"^  (\w+)\[([\w, ]+)\]$", text, re.MULTILINE)}
    drawn: dict[str, set[str]] = {name: set(names) for names in nodes.values() for name in names}
    for node, targets in re.findall(r"^  (\w+) --> ([\w& ]+)$", text, re.MULTILINE):
        for name in nodes[node]:
            drawn[name] |= {other for target in targets.split(" & ") for other in nodes[target]}
    real = {name: found - generated.EVERYWHERE for name, found in generated.imports().items()}
    assert set(drawn) == set(real) - generated.EVERYWHERE
    for name in drawn:
        assert generated.reachable(drawn, name) - {name} == generated.reachable(real, name) - {name}


def test_packages_that_import_each_other_stand_together() -> None:
    graph = generated.components({"top": {"a"}, "a": {"b", "base"}, "b": {"a"}, "base": set()})
    assert generated.layered(graph) == [("top",), ("a", "b"), ("base",)]
    assert generated.reduced(graph, ("top",)) == [("a", "b")]
    assert generated.reduced(graph, ("a", "b")) == [("base",)]


_NEW_METHOD = """
import doctest, runpy, sys
from pathlib import Path
from typer.testing import CliRunner
from crowdwise.bench.experiments import load_experiment
from crowdwise.bench.measure import run_cell
from crowdwise.cli import app
from crowdwise.methods import label_smoothing

assert doctest.testmod(label_smoothing) == (0, 4)
for arguments in sys.argv[2:]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    print(result.output)
print(runpy.run_path(sys.argv[1])["methods"]())
(cell,) = load_experiment("mine.toml").cells()
print(cell.row, "in bench:", run_cell(cell, Path("cell"), Path("shared"))["test_accuracy"])
"""
_EXPERIMENT = """
seeds = 1
methods = ["label-smoothing"]
[[columns]]
preset = "digits"
parameters = { epochs = 1 }
"""


def test_a_new_method_is_one_file(tmp_path: Path) -> None:
    """The file that CONTRIBUTING.md shows, put among the methods, is known to all commands, to bench and to the catalogue."""
    (source,) = (block for block in python_blocks(ROOT / "CONTRIBUTING.md") if "@METHODS.register" in block)
    shutil.copytree(ROOT / "src" / "crowdwise", tmp_path / "src" / "crowdwise")
    (tmp_path / "src" / "crowdwise" / "methods" / "label_smoothing.py").write_text(source, encoding="utf-8")
    (tmp_path / "cell").mkdir()
    (tmp_path / "mine.toml").write_text(_EXPERIMENT, encoding="utf-8")
    train = "train --method label-smoothing --preset digits --epochs 2 --set smoothing=0.2 --out run"
    commands = ["methods", "info label-smoothing", train]
    done = subprocess.run(
        [sys.executable, "-c", _NEW_METHOD, str(ROOT / "docs" / "generated.py"), *commands],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = "A network trained by cross-entropy with smoothed labels on all annotations"
    assert re.search(f"label-smoothing +{summary[:40]}", done.stdout)
    assert re.search(r"smoothing +0\.1", done.stdout)
    assert f"| `label-smoothing` | {summary} |" in done.stdout
    assert "Label smoothing in bench: " in done.stdout
    about = json.loads((tmp_path / "run" / "model" / "model.json").read_text("utf-8"))
    assert (about["method"], about["parameters"]["smoothing"]) == ("label-smoothing", 0.2)
