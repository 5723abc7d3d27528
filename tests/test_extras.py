"""Every extra: what it is for says in one line how to get it where it is missing, and it can be installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from crowdwise.errors import CrowdwiseError

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "docs"}


def command(line: str) -> Callable[[], str]:
    """What a command prints as its error."""

    def run() -> str:
        from crowdwise.cli import app

        result = CliRunner().invoke(app, line.split(), catch_exceptions=False)
        assert result.exit_code == 1, result.output
        return result.stderr

    return run


def fresh(module: str, line: str) -> Callable[[], str]:
    """What a command prints in a process of its own, for modules that are imported once and kept."""
    program = f"import sys; sys.modules[{module!r}] = None; from crowdwise.cli import main; main()"

    def run() -> str:
        variables = os.environ | {"CROWDWISE_CACHE": "cache"}
        arguments = [sys.executable, "-c", program, *line.split()]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, env=variables, check=False)
        assert done.returncode == 1, done.stdout
        return done.stderr.splitlines()[-1]

    return run


def called(function: Callable[[], object]) -> Callable[[], str]:
    """What a call raises."""

    def run() -> str:
        with pytest.raises(CrowdwiseError) as raised:
            function()
        return str(raised.value)

    return run


def tensorboard() -> object:
    from crowdwise.callbacks import TensorBoard

    return TensorBoard("curves")


def mlflow() -> object:
    from crowdwise.callbacks import MLflow

    return MLflow()


TRAIN = "train labels.csv --text text -o run --encoder"
USES = [
    ("report", "altair", fresh("altair", "report labels.csv")),
    ("report", "vl_convert", fresh("vl_convert", "report labels.csv")),
    ("review", "starlette", fresh("starlette", "review labels.csv")),
    ("review", "uvicorn", command("review labels.csv")),
    ("ray", "ray", command("aggregate labels.parquet -o out.parquet --method dawid-skene --ray local")),
    ("tables", "python_calamine", command("aggregate labels.xlsx -o out.csv")),
    ("tables", "charset_normalizer", command("aggregate latin.csv -o out.csv")),
    ("transformers", "transformers", command(f"{TRAIN} transformers:here")),
    ("transformers", "sentence_transformers", command(f"{TRAIN} sentence-transformers:here")),
    ("onnx", "onnxruntime", command(f"{TRAIN} onnx:here.onnx")),
    ("track", "torch.utils.tensorboard", called(tensorboard)),
    ("track", "mlflow", called(mlflow)),
]


def test_every_extra_is_tried() -> None:
    assert {extra for extra, _, _ in USES} == set(EXTRAS) - FOR_DEVELOPERS


@pytest.mark.parametrize(("extra", "module", "use"), USES, ids=[f"{extra}-{module}" for extra, module, _ in USES])
def test_a_missing_extra_is_one_line_that_says_how_to_get_it(
    extra: str, module: str, use: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = [(item, who, "good" if item % 2 else "bad") for item in range(20) for who in ("ann", "bob", "cem")]
    lines = [f"i{item},{'warm' if item % 2 else 'cold'} {rng.integers(99)},{who},{label}" for item, who, label in rows]
    texts = dict(line.split(",")[:2] for line in lines)
    lines = [",".join([part[0], texts[part[0]], *part[2:]]) for part in (line.split(",") for line in lines)]
    text = "\n".join(["item,text,annotator,label", *lines])
    (tmp_path / "labels.csv").write_text(text, "utf-8")
    (tmp_path / "latin.csv").write_bytes(text.replace("good", "gut für").encode("latin-1"))
    (tmp_path / "labels.xlsx").write_bytes(b"PK")
    (tmp_path / "here").mkdir()
    names = ("item", "annotator", "label")
    pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), tmp_path / "labels.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    message = use().strip()
    assert f"pip install 'crowdwise[{extra}]'" in message
    assert len(message.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_extra_can_be_installed(extra: str, tmp_path: Path) -> None:
    """pip resolves it with the pinned versions, and installs nothing; skipped where no package index can be reached."""
    pip = [sys.executable, "-m", "pip"]
    probe = [*pip, "download", "--quiet", "--no-deps", "--dest", str(tmp_path), "narwhals"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")
    options = ["--quiet", "--dry-run", "--ignore-installed", "--constraint", str(ROOT / "constraints.txt")]
    done = subprocess.run([*pip, "install", *options, f"{ROOT}[{extra}]"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
