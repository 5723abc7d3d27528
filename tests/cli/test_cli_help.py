"""What is there before anything is trained: help, version, lists; quickly, and without heavy imports."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crowdwise
from crowdwise import presets
from crowdwise.registry import METHODS

VERBS = (
    "demo",
    "simulate",
    "compare",
    "train",
    "predict",
    "info",
    "presets",
    "methods",
    "aggregate",
    "agreement",
    "annotators",
    "bench",
    "convert",
    "report",
)


def test_help_names_every_verb(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("--help")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert all(verb in output for verb in VERBS)


def test_version(cli: Any) -> None:
    assert cli("--version").output.strip() == f"crowdwise {crowdwise.__version__}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(cli: Any, verb: str) -> None:
    assert "Usage" in cli(verb, "--help").output


def test_presets_and_methods_list_what_there_is(cli: Any) -> None:
    listed = cli("presets").output
    assert all(name in listed for name in presets.names())
    listed = cli("methods").output
    assert all(name in listed for name in METHODS)


def test_an_unknown_verb_or_option_is_a_usage_error(cli: Any) -> None:
    assert "'trian'" in cli("trian", code=2).stderr
    assert "'train'" in cli("trian", code=2).stderr
    assert "--method" in cli("train", "--methd", "ce", code=2).stderr


@pytest.mark.parametrize(
    "line", ["trian", "train --methd ce", "aggregate", "aggregate a.csv --seed x", "aggregate a.csv --workers 2"]
)
def test_wrong_usage_is_one_line_on_stderr(cli: Any, line: str) -> None:
    result = cli(*line.split(), code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def documented() -> list[list[str]]:
    """Every `crowdwise ...` line in the documentation of the command line, as words."""
    text = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    lines = [line.partition("#")[0] for line in text.splitlines() if line.startswith("crowdwise ")]
    return [shlex.split(line)[1:] for line in lines]


def test_the_documentation_names_verbs_and_options_that_exist(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert len(documented()) > 10
    shown: dict[tuple[str, ...], str] = {}
    for verb, *words in documented():
        verbs = () if verb == "--help" else (verb, words[0]) if verb == "bench" else (verb,)
        if verbs not in shown:
            shown[verbs] = cli(*verbs, "--help").output
        for option in (word for word in words if word.startswith("-")):
            assert option in shown[verbs], f"crowdwise {' '.join(verbs)} has no {option}"


def test_the_preset_in_the_documentation_is_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    assert presets.load_preset(tmp_path / "mine.toml").method_parameters("bltm") == {"epochs": 50, "lr": 0.005}
