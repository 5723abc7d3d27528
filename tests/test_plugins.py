"""Plugins: modules of the user's that register methods are found by name, by file, and in worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from crowdwise import plugins
from crowdwise.errors import ConfigError, CrowdwiseWarning

METHOD = """
from dataclasses import dataclass
from typing import ClassVar

from crowdwise.methods.ce import CE
from crowdwise.registry import METHODS


@METHODS.register("my-ce")
@dataclass(kw_only=True, eq=False, repr=False)
class MyCE(CE):
    name: ClassVar[str] = "my-ce"
    title: ClassVar[str] = "My CE"
"""
EXPERIMENT = """
seeds = 1
methods = ["ce"]
[[columns]]
preset = "digits"
parameters = { epochs = 1 }
simulate = { noise_rate = 0.3 }
"""


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(plugins, "_imported", set())
    monkeypatch.setattr(sys, "path", [*sys.path])


def crowdwise(*words: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    code = "from crowdwise.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_command_line_and_its_worker_processes_know_a_method_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "my_methods.py").write_text(METHOD)
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    assert "my-ce" in crowdwise("--plugin", "my_methods.py", "methods", folder=tmp_path).stdout
    words = ("bench", "run", "mine.toml", "--method", "my-ce", "--method", "ce")
    done = crowdwise("--plugin", "my_methods.py", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "My CE" in done.stdout
    without = crowdwise(*words, folder=tmp_path)
    assert without.returncode == 1
    assert "unknown method 'my-ce'" in without.stderr


@pytest.mark.parametrize("plugin", ["shelf.tools", "tools_of_mine.py"])
def test_a_module_or_file_is_imported_once(plugin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / (plugin if plugin.endswith(".py") else "shelf/tools.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text("import pathlib\nfile = pathlib.Path(__file__).with_name('log')\nfile.open('a').write('x')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    plugins.use([plugin])
    plugins.use([plugin])
    plugins.load()
    assert path.with_name("log").read_text() == "x"
    named = os.environ[plugins.VARIABLE]
    assert named == (str(path) if plugin.endswith(".py") else plugin)


@pytest.mark.parametrize(
    ("plugin", "content", "message"),
    [
        ("nowhere.py", None, "plugin .*nowhere.py: no such file"),
        ("no_such_module", None, "plugin no_such_module cannot be imported: ModuleNotFoundError"),
        ("broken_plugin.py", "1 / 0", "broken_plugin.py cannot be imported: ZeroDivisionError"),
        ("numpy.py", "", "a module called 'numpy' exists already; rename the file"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_named(
    plugin: str, content: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(plugin).write_text(content)
    for _ in range(2):  # it is not taken for imported afterwards
        with pytest.raises(ConfigError, match=message):
            plugins.use([plugin])


def test_an_installed_package_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    points = metadata.EntryPoints(
        [
            metadata.EntryPoint("bad", "no_such_module_at_all", plugins.GROUP),
            metadata.EntryPoint("good", "crowdwise.methods.ce", plugins.GROUP),
        ]
    )
    monkeypatch.setattr(metadata, "entry_points", lambda group: points.select(group=group))
    with pytest.warns(CrowdwiseWarning, match="plugin 'bad' was not loaded: ModuleNotFoundError"):
        plugins.load()
    plugins.load()
    assert {"no_such_module_at_all", "crowdwise.methods.ce"} <= plugins._imported
