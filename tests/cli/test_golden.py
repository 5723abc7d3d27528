"""What the command line prints: the help of every verb, and one small run of each, as they were recorded.

``CROWDWISE_RECORD=1 pytest tests/cli/test_golden.py`` records anew; the difference belongs in the commit that makes it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from bench_helpers import InThisProcess
from crowdwise.bench import runner
from crowdwise.cli import app

GOLDEN = Path(__file__).parent / "golden"
TRAIN = "train -m ce --inputs X.npy --annotations rows.csv --epochs 2"
RUNS = {
    "aggregate": "aggregate crowd.csv -o labels.csv --proba",
    "aggregate-method": "aggregate crowd.csv -o ds.csv --method dawid-skene --annotators-out who.csv --no-models",
    "aggregate-gold": "aggregate crowd.csv -o labels.json --gold gold.csv --method majority-vote",
    "aggregate-stream": "aggregate crowd.parquet -o streamed.parquet --stream --memory 1GB --method one-coin",
    "aggregate-column": "aggregate odd.csv -o odd-labels.csv",
    "aggregate-together": "aggregate crowd.csv -o a.csv --gold gold.csv --gold-column gold",
    "aggregate-workers": "aggregate crowd.csv -o a.csv --workers 2",
    "aggregate-several": "aggregate several.json -o several.csv --question q",
    "agreement": "agreement crowd.csv --bootstrap 50 --confidence 0.9",
    "agreement-level": "agreement crowd.csv --level nominal --level interval",
    "annotators": "annotators crowd.csv --method dawid-skene",
    "annotators-written": "annotators crowd.csv -o who.csv --seed 3",
    "aggregate-together-models": "aggregate people.csv gpt.jsonl claude.jsonl -o both.csv",
    "judges": "judges people.csv gpt.jsonl claude.jsonl --gold known.csv --people-are expert -o judges.csv",
    "judges-named": "judges people.csv --model w3",
    "judges-nobody": "judges crowd.csv",
    "judges-few": "judges crowd.csv --model w0",
    "estimate": "estimate people.csv gpt.jsonl --gold known.csv --of gpt-4o",
    "estimate-accuracy": "estimate people.csv gpt.jsonl --gold known.csv --what accuracy --of gpt-4o -o estimate.csv",
    "estimate-nothing": "estimate people.csv",
    "route": "route people.csv gpt.jsonl -o ask.csv --sample 80 --error 0.2",
    "route-answers": "route people.csv gpt.jsonl -o routed.csv --sample 80 --error 0.2 --answers answers.csv",
    "convert": "convert crowd.csv crowd.parquet",
    "convert-json": "convert crowd.csv crowd.json --gold-column truth --duplicates first",
    "convert-column": "convert odd.csv odd.parquet --format table",
    "report": "report crowd.csv -o page.html --method majority-vote",
    "report-result": "report labels.csv -o result.html",
    "report-nothing": "report nothing",
    "simulate": "simulate digits -o crowds/digits.csv --annotators 10 --truth truth.csv --seed 1",
    "simulate-process": "simulate digits -o one.csv --process one-coin --annotators 5 --groups 2",
    "simulate-setting": "simulate digits -o one.csv --process hammer-spammer --set spammer_shar=0.5",
    "train": f"{TRAIN} -o run",
    "train-again": f"{TRAIN} -o run",
    "train-resume": "train --resume run",
    "train-dataset": "train --data digits --preset digits -m ce --epochs 1 -o trained --set simulate.n_annotators=6",
    "train-crowdless": "train --data digits -m ce -o nothing",
    "train-data": "train -m ce",
    "train-ids": "train -m ce --inputs X.npy --annotations named.csv",
    "train-ids-file": "train -m ce --inputs X.npy --annotations named.csv --ids nothing",
    "train-inputs": "train -m ce --inputs X.npy",
    "train-resume-more": "train --resume run -m ce",
    "train-reading": "train -m ce --data digits --format dense",
    "train-set": "train -m ce --data digits --set lr",
    "predict": "predict run X.npy -o predictions.csv --proba",
    "report-run": "report run -o run.html",
    "info-run": "info run",
    "info-model": "info run/model",
    "info-table": "info crowd.csv",
    "info-other": "info gold.csv",
    "info-array": "info X.npy",
    "info-preset": "info digits",
    "info-method": "info ce",
    "info-nothing": "info taidmt",
    "presets": "presets",
    "methods": "methods",
    "bench-list": "bench list",
    "bench-run": "bench run bench.toml --jobs 1 --out bench/tiny",
    "bench-table": "bench table bench.toml --out bench/tiny --format csv",
    "bench-markdown": "bench table bench.toml --out bench/tiny --metric validation_agreement --format markdown",
    "bench-figures": "bench figures bench.toml --out bench/tiny",
    "bench-missing": "bench missing --experiment table8",
    "bench-missing-what": "bench missing --experiment tabel8",
    "bench-fill-nothing": "bench fill --minutes 0",
    "bench-workers": "bench run bench.toml --workers 2",
}
SETUP = {"aggregate-stream": "convert crowd.csv crowd.parquet"}  # made before, so that the order here is the reader's
BENCH = """
description = "A classifier on files"
seeds = 1
methods = ["ce"]
heldout = 0.2

[[columns]]
label = "pets"
parameters = { epochs = 1 }
inputs = "X.npy"
annotations = "rows.csv"
"""


def write_files(folder: Path) -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["cat", "dog", "eel"], 30)
    said = [
        (f"t{i}", f"w{j}", truth[i] if rng.random() < (0.9 if j < 4 else 0.3) else rng.choice(["cat", "dog", "eel"]))
        for i in range(30)
        for j in rng.permutation(6)[:4]
    ]
    lines = [f"{i},{j},{y},{truth[int(i[1:])]}" for i, j, y in said]
    (folder / "crowd.csv").write_text("\n".join(["task,worker,label,truth", *lines]) + "\n")
    (folder / "odd.csv").write_text("\n".join(["task,who,label,truth", *lines]) + "\n")
    write_models(folder, rng)
    gold = [f"t{i},{truth[i]}" for i in range(8)]
    (folder / "gold.csv").write_text("\n".join(["task,gold", *gold]) + "\n")
    (folder / "several.json").write_text(
        '[{"id": 1, "data": {"text": "a"}, "annotations": [{"completed_by": 1, "result": [{"from_name": "q", '
        '"to_name": "text", "type": "choices", "value": {"choices": ["x", "y"]}}]}]}]'
    )
    y = np.arange(20) % 2
    np.save(folder / "X.npy", (rng.normal(size=(20, 3)) + 3 * y[:, None]).astype(np.float32))
    rows = [f"{i},{j},{'cat' if y[i] else 'dog'}" for i in range(20) for j in range(3)]
    (folder / "rows.csv").write_text("\n".join(["instance,annotator,label", *rows]) + "\n")
    (folder / "named.csv").write_text("\n".join(["instance,annotator,label", *(f"pic{row}" for row in rows)]) + "\n")
    (folder / "bench.toml").write_text(BENCH)


def write_models(folder: Path, rng: np.random.Generator) -> None:
    """60 instances that four people and two models labelled; the models answer in words."""
    truth = np.random.default_rng(1).choice(["cat", "dog"], 60)

    def said(right: float) -> list[str]:
        return [y if rng.random() < right else {"cat": "dog", "dog": "cat"}[y] for y in truth.tolist()]

    rows = [f"q{i},w{j},{y}" for j in range(4) for i, y in enumerate(said(0.85))]
    (folder / "people.csv").write_text("\n".join(["task,worker,label", *rows]) + "\n")
    for name, model, right in (("gpt", "gpt-4o", 0.9), ("claude", "claude-3", 0.6)):
        lines = [
            {"custom_id": f"q{i}", "response": {"status_code": 200, "body": {"model": model, "choices": [
                {"message": {"content": f"It is a {y}." if i % 7 else "I cannot tell"}, "finish_reason": "stop"}]}}}
            for i, y in enumerate(said(right))
        ]  # fmt: skip
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    gold = [f"q{i},{y}" for i, y in enumerate(truth.tolist())]
    (folder / "known.csv").write_text("\n".join(["task,gold", *gold[:40]]) + "\n")
    (folder / "answers.csv").write_text("\n".join(["task,gold", *gold]) + "\n")


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return f"{result.output}[exit {result.exit_code}]\n"


def normalised(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "FOLDER").replace(folder.as_uri(), "FOLDER")
    text = re.sub(r"\d+\.\d+( s\b| MB\b)", r"N\1", text)
    if "epochs" in text or "heldout" in text or "[1/1]" in text:  # what was trained differs from machine to machine
        text = re.sub(r"(?<![\w.])[+-]?\d+\.\d+(e[+-]?\d+)?(?! ?%? ?of(?! the labels))", "N", text)
        text = re.sub(r" {2,}", "  ", text)
        text = re.sub(r"-{5,}|[\u2500-\u257f]{5,}", "-----", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def helps() -> dict[str, tuple[str, ...]]:
    top: Any = get_command(app)
    verbs = {name: (name,) for name in top.commands} | {
        f"bench-{name}": ("bench", name) for name in top.commands["bench"].commands
    }
    return {"help": ()} | {f"help-{name}": words for name, words in verbs.items()}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of every command of `RUNS`, one after the other in one folder."""
    folder = tmp_path_factory.mktemp("golden")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "100")
        patch.setenv("CROWDWISE_CACHE", str(folder / "cache"))
        patch.setattr(runner, "Processes", InThisProcess)
        write_files(folder)
        for name, line in RUNS.items():
            if name in SETUP:
                shown(*SETUP[name].split())
            found[name] = f"$ crowdwise {line}\n" + normalised(shown(*line.split()), folder)
    return found


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("CROWDWISE_RECORD"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", helps())
def test_help_is_as_recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    compare(name, normalised(shown(*helps()[name], "--help"), Path("/nowhere")))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_prints_what_was_recorded(name: str, outputs: dict[str, str]) -> None:
    compare(name, outputs[name])
