"""The workflows of a service: what they run exists here, and what they use cannot change."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=".github/ is not part of this copy of the sources")


def steps() -> Iterator[dict[str, Any]]:
    for path in FOLDER.glob("*.yml"):
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            yield from job["steps"]


def test_actions_are_named_by_commit_and_keep_no_credentials() -> None:
    used = [step for step in steps() if "uses" in step]
    assert len(used) > 5
    for step in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        if step["uses"].startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    for path in FOLDER.glob("*.yml"):
        lines = [line for line in path.read_text("utf-8").splitlines() if "uses:" in line]
        assert all(re.search(r" # v\d+\.\d+\.\d+$", line) for line in lines), path.name  # which version that commit is


def test_steps_run_targets_that_exist() -> None:
    called = {name for step in steps() for name in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))}
    assert {"test", "test-elsewhere", "test-slow", "docs", "dist"} <= called <= TARGETS
    own = set(re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE))
    assert {"test", "test-elsewhere"} <= own <= TARGETS


def test_every_version_of_python_that_is_named_is_tested() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(about["classifiers"]))
    matrix = yaml.safe_load((FOLDER / "tests.yml").read_text("utf-8"))["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert about["requires-python"] == f">={named[0]}"
