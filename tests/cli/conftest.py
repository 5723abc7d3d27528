"""A small problem in files, and the command line in this process or in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from crowdwise.cli import app
from crowdwise.readers import write_table

Cli = Callable[..., Any]
PROGRAM = [sys.executable, "-c", "from crowdwise.cli import main; main()"]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command in an empty folder; the result has ``exit_code`` and ``output`` (stdout and stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROWDWISE_CACHE", str(tmp_path / "cache"))

    def run(*arguments: Any, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a command in a process of its own, which Ctrl-C reaches even where pytest itself ignores it."""

    def popen(*arguments: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return popen


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """80 instances of two classes, four annotators (the last one errs), as an array, a table, and with ids."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = (rng.normal(size=(80, 3)) + 3 * y[:, None]).astype(np.float32)
    ids = np.array([f"pic{row:03d}" for row in range(80)])[::-1]
    instance, annotator = (part.ravel() for part in np.meshgrid(np.arange(80), np.arange(4), indexing="ij"))
    wrong = (annotator == 3) & (rng.random(len(instance)) < 0.4)
    label = np.array(["cat", "dog"])[np.where(wrong, 1 - y[instance], y[instance])]
    paths = {
        name: tmp_path / f"{name}.{suffix}"
        for name, suffix in {
            "X": "npy",
            "table": "csv",
            "rows": "csv",
            "named": "csv",
            "ids": "txt",
            "y": "npy",
        }.items()
    }
    np.save(paths["X"], X)
    np.save(paths["y"], np.array(["cat", "dog"])[y])
    write_table(pa.table({"picture_id": ids, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}), paths["table"])
    write_table(pa.table({"instance": instance, "worker": annotator, "label": label}), paths["rows"])
    write_table(pa.table({"task": ids[instance], "worker": annotator, "label": label}), paths["named"])
    paths["ids"].write_text("\n".join(ids) + "\n", encoding="utf-8")
    return paths
