"""The commands of README.md and of the start page run, on small files of the kinds that they name."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
SERVES = {"review"}  # goes on until Ctrl-C
QUICK = {"train": ["--set", "steps=30"], "compare": ["-m", "logistic-majority-vote", "-m", "ce", "--folds", "2"]}


def commands(name: str) -> list[str]:
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", (ROOT / name).read_text("utf-8"), re.MULTILINE | re.DOTALL))
    return re.findall(r"^crowdwise .*", shell, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every file that the pages name."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.choice(["bad", "good"], 60)
    other = {"bad": "good", "good": "bad"}
    words = {"good": ["lovely", "warm", "clever"], "bad": ["dull", "cold", "silly"]}
    texts = [" ".join(rng.choice(words[true], 3)) + f" {number}" for number, true in enumerate(truth)]

    def said(right: float) -> list[str]:
        return [true if rng.random() < right else other[true] for true in truth]

    people = {who: said(right) for who, right in {"ann": 0.95, "bob": 0.9, "cem": 0.85, "dee": 0.8}.items()}
    rows = [[f"r{k}", texts[k], who, given[k]] for k in range(60) for who, given in people.items()]
    for name in ("labels.csv", "reviews.csv"):
        write(tmp_path / name, [["id", "review", "annotator", "label"], *rows])
    for name in ("new.csv", "new_reviews.csv"):
        write(tmp_path / name, [["id", "review"], *([f"n{k}", texts[k]] for k in range(5))])
    write(tmp_path / "people.csv", [["id", "annotator", "label"], *([row[0], *row[2:]] for row in rows)])
    write(tmp_path / "gold.csv", [["id", "label"], *([f"r{k}", truth[k]] for k in range(0, 60, 2))])
    for model in ("gpt", "claude"):
        given = said(0.9)
        answers = [{"custom_id": f"r{k}", "response": {"body": answer(model, given[k])}} for k in range(60)]
        (tmp_path / f"{model}.jsonl").write_text("\n".join(map(json.dumps, answers)), "utf-8")
    (tmp_path / "pictures").mkdir()
    tasks = []
    for k in range(20):
        light = 220 if truth[k] == "good" else 20
        Image.new("RGB", (8, 8), (light, light, int(rng.integers(255)))).save(tmp_path / "pictures" / f"{k}.png")
        labels = [{"completed_by": who, "result": [choice(given[k])]} for who, given in enumerate(people.values())]
        tasks.append({"id": k, "data": {"image": f"/data/upload/1/0a1b2c3d-{k}.png"}, "annotations": labels})
    (tmp_path / "export.json").write_text(json.dumps(tasks), "utf-8")
    return tmp_path


def write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def answer(model: str, label: str) -> dict[str, object]:
    return {"model": model, "choices": [{"message": {"content": label}, "finish_reason": "stop"}]}


def choice(label: str) -> dict[str, object]:
    return {"from_name": "what", "to_name": "image", "type": "choices", "value": {"choices": [label]}}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
@pytest.mark.usefixtures("in_this_process")
def test_the_commands_run(name: str, folder: Path) -> None:
    from crowdwise.cli import app

    lines = commands(name)
    assert len(lines) > 2
    started: set[str] = set()
    for line in lines:
        _, verb, *arguments = shlex.split(line, comments=True)
        if verb in SERVES:
            continue
        arguments = [
            argument if argument != "run" or verb != "train" else f"run{len(started)}" for argument in arguments
        ]
        arguments = [argument if argument != "run" or verb == "train" else "run0" for argument in arguments]
        if verb == "train":
            started.add(line)
        result = CliRunner().invoke(app, [verb, *arguments, *QUICK.get(verb, [])], catch_exceptions=False)
        assert result.exit_code == 0, f"{line}\n{result.output}"
        for out in re.findall(r"(?<=-o )\S+\.\w+", line):
            assert (folder / out).stat().st_size > 0
