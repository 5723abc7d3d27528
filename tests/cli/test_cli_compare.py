"""`crowdwise compare`: from files to a recommendation and the next command; `train` without a method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.readers import write_table
from crowdwise.tasks.compare import training_of
from crowdwise.tasks.train import plan

Files = dict[str, Path]
PLAIN = ("-m", "logistic-majority-vote", "-m", "logistic-dawid-skene", "--jobs", 1, "--folds", 2)


def test_a_ranking_a_reason_and_what_to_do_next(cli: Any, files: Files) -> None:
    output = cli("compare", files["rows"], "--inputs", files["X"], *PLAIN).output
    assert "Logistic regression on majority votes" in output
    assert "Recommended: Logistic regression on" in output
    assert "held-out annotations" in output
    assert "LogisticRegression()" in output


def test_ids_gold_and_json(cli: Any, files: Files) -> None:
    ids = files["ids"].read_text().split()
    write_table(pa.table({"task": ids[:60], "truth": np.load(files["y"])[:60]}), Path("gold.csv"))
    common = ("compare", files["named"], "--inputs", files["X"], "--ids", files["ids"], *PLAIN)
    found = json.loads(cli(*common, "--gold", "gold.csv", "--json").stdout)
    assert found["gold"]
    assert found["n_judged"] == 60
    assert found["entries"][0]["score"] > 0.9


def test_a_comparison_goes_on_in_its_folder(cli: Any, files: Files) -> None:
    common = ("compare", files["rows"], "--inputs", files["X"], *PLAIN, "-o", "fits")
    first = cli(*common).output
    assert len(list(Path("fits").glob("*fold*.json"))) == 4
    assert cli(*common).output == first


def test_mistakes_are_named(cli: Any, files: Files) -> None:
    assert "unknown method 'cee'" in cli("compare", files["rows"], "--inputs", files["X"], "-m", "cee", code=1).output
    assert "--inputs" in cli("compare", files["rows"], code=1).output
    assert "--ray" in cli("compare", files["rows"], "--inputs", files["X"], "--workers", 2, code=2).output


def test_the_next_command_reads_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    planned = plan("concord", inputs="X.npy", annotations="my labels.csv", reading={"label": "choice", "models": False})
    expected = {"annotations": "my labels.csv", "method": "max-mig", "inputs": "X.npy"}
    assert training_of(planned, "max-mig") == expected
    assert training_of(planned, "logistic-majority-vote") == {}


@pytest.mark.usefixtures("few_steps")
def test_texts_are_compared_and_the_next_command_names_their_column(cli: Any) -> None:
    words = np.random.default_rng(0).choice(["good", "fine", "nice", "bad", "poor", "dull"], size=(60, 6))
    texts = [" ".join(row) for row in words]
    label = ["up" if sum(word in ("good", "fine", "nice") for word in row) > 3 else "down" for row in words]
    table = {"item": [k for k in range(60) for _ in "ab"], "worker": ["a", "b"] * 60}
    table |= {"label": [label[k] for k in table["item"]], "review": [texts[k] for k in table["item"]]}
    write_table(pa.table(table | {"item": [f"r{k}" for k in table["item"]]}), Path("reviews.csv"))
    common = ("compare", "reviews.csv", "--text", "review", "--label", "label", "--jobs", 1, "--folds", 2)
    output = cli(*common, "-m", "logistic-majority-vote", "-m", "ce").output
    assert "crowdwise train reviews.csv --method ce --text review" in output or "LogisticRegression()" in output


def test_train_without_a_method_trains_concord(cli: Any, files: Files) -> None:
    output = cli("train", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1, "-o", "run").output
    assert "concord in run" in output
