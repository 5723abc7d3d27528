"""`crowdwise bench`: from an experiment, or from files of one's own, to a table and figures."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise.bench.experiments import load_experiment, names

pytestmark = pytest.mark.usefixtures("in_this_process")
Files = dict[str, Path]
OWN = """
description = "Cats and dogs"
seeds = 2
methods = ["ce", "dl-mv", "dl-ds"]

[[columns]]
label = "pets"
inputs = "X.npy"
annotations = "rows.csv"
parameters = { epochs = 20, batch_size = 16, lr = 0.05 }
"""
SHORT = ("--set", "backbone=mlp", "--set", "epochs=2", "--jobs", 1)


@pytest.fixture
def own(files: Files, tmp_path: Path) -> Path:
    """An experiment on the files of `files`: 80 instances, four annotators, no truth."""
    path = tmp_path / "pets.toml"
    path.write_text(OWN, encoding="utf-8")
    return path


def records(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "records.jsonl").read_text(encoding="utf-8").splitlines()]


def test_list_names_every_experiment(cli: Any) -> None:
    output = cli("bench", "list").output
    assert all(name in output for name in names())
    assert str(len(load_experiment("quick").cells())) in output


def test_methods_are_ranked_on_data_of_ones_own_without_truth(cli: Any, own: Path) -> None:
    output = cli("bench", "run", own, "--method", "ce", "--method", "dl-ds").output
    assert "pets: Cats and dogs; 4 runs in bench/pets" in output
    found = records("bench/pets")
    assert [(record["row"], record["seed"]) for record in found] == [("CE", 0), ("DL-DS", 0), ("CE", 1), ("DL-DS", 1)]
    for record in found:
        assert "test_accuracy" not in record
        assert record["heldout_votes"] == 32  # a tenth of 320
        assert record["heldout_log_likelihood"] > np.log(0.5)  # better than a coin
        assert 0.6 < record["heldout_agreement"] <= 1

    cli("bench", "run", own)  # the third method; the others have been run
    output = cli("bench", "table", own).output
    assert "pets: ranking" in output
    cli("bench", "table", own, "--format", "csv", "--to", "ranking.csv")
    table = list(csv.DictReader(Path("ranking.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["row"] for row in table} == {"CE", "DL-MV", "DL-DS"}
    assert {row["metric"] for row in table} >= {"heldout_log_likelihood", "heldout_agreement"}
    output = cli("bench", "table", own, "--metric", "heldout_agreement", "--format", "markdown").output
    assert "agreement with held-out labels" in output


def test_the_experiment_in_the_documentation_is_valid(files: Files, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    (tmp_path / "birds.toml").write_text(text.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    files["rows"].rename(tmp_path / "labels.csv")
    cells = load_experiment(tmp_path / "birds.toml").cells()
    assert len(cells) == 15
    assert {(cell.column, cell.heldout, cell.parameters["epochs"]) for cell in cells} == {("birds", 0.1, 20)}


def test_a_gold_column_is_judged_by_and_not_learned_from(cli: Any, own: Path, files: Files) -> None:
    lines = files["rows"].read_text().splitlines()
    truth = np.load(files["y"])
    gold = [lines[0] + ',"gold"', *(f'{line},"{truth[int(line.split(",")[0])]}"' for line in lines[1:])]
    files["rows"].write_text("\n".join(gold) + "\n")
    output = cli("bench", "run", own, "--seeds", 1, "--method", "ce", "-o", "judged").output
    assert "test accuracy, %" in output
    assert records("judged")[0]["test_accuracy"] > 90


def test_a_data_set_with_the_annotations_of_a_table(cli: Any, tmp_path: Path) -> None:
    cli("simulate", "digits", "-o", "crowd.csv", "--noise-rate", 0.2, "--annotators", 10)
    text = 'methods = ["ce"]\nseeds = 1\n[[columns]]\npreset = "digits"\nannotations = "crowd.csv"\n'
    (tmp_path / "table.toml").write_text(text, encoding="utf-8")
    cli("bench", "run", "table.toml", *SHORT)
    (record,) = records("bench/table")
    assert record["test_accuracy"] > 50
    assert "transition_error" not in record  # nothing is known of the table's crowd


def test_figures_of_what_varies(cli: Any) -> None:
    part = ("--seeds", 1, "--method", "ce", "--noise", 0.3, "--noise", 0.5)
    cli("bench", "run", "quick", *part, *SHORT)
    output = cli("bench", "figures", "quick", "--format", "svg").output
    assert output.split() == ["bench/quick/figures/accuracy-noise_rate.svg"]
    assert Path("bench/quick/figures/accuracy-noise_rate.svg").stat().st_size > 1000


def test_failures_are_listed_and_end_with_an_error(cli: Any, own: Path, files: Files) -> None:
    lines = files["rows"].read_text().splitlines()
    files["rows"].write_text("\n".join([*lines, '99,0,"cat"']) + "\n")
    result = cli("bench", "run", own, "--seeds", 1, "--method", "ce", code=1)
    assert "failed: pets, CE, seed 0: DataError: rows.csv: 1 of 81 instances are no rows of X.npy" in result.output
    assert "1 of 1 runs failed; run the same command to try them again" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "qick"), "unknown experiment 'qick'; did you mean 'quick'?"),
        (
            ("run", "quick", "--set", "epoch=2"),
            "parameters of the methods: unknown key 'epoch'; did you mean 'epochs'?",
        ),
        (("run", "quick", "--set", "epochs=many"), "method 'ce': epochs must be an integer of 0 or more, got 'many'"),
        (("run", "quick", "--noise", "0.9"), "experiment 'quick' has no noise rate 0.9; its noise rates: 0.3, 0.5"),
        (("run", "quick", "--method", "ce", "--method", "cee"), "unknown method 'cee'; did you mean 'ce'"),
        (("run", "quick", "--dataset", "digit"), "has no data set 'digit'; did you mean 'digits'"),
        (("run", "nowhere.toml"), "there is no experiment file nowhere.toml"),
        (("table", "quick"), "there are no records; `crowdwise bench run` writes them"),
        (("figures", "quick"), "there are no records"),
    ],
)
def test_mistakes_are_one_line(cli: Any, arguments: tuple[str, ...], message: str) -> None:
    result = cli("bench", *arguments, code=1)
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(
    start: Callable[..., subprocess.Popen[str]], cli: Any, own: Path, tmp_path: Path
) -> None:
    arguments = ("bench", "run", "pets.toml", "--method", "ce", "--set", "epochs=120", "-o", "cut", "--jobs", "1")
    process = start(*arguments)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "cut").glob("cells/*/run-*/checkpoint.safetensors")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    last = errors.strip().splitlines()[-1]
    assert last.startswith("interrupted: finished runs are kept; go on with  crowdwise bench run pets.toml --method ce")
    assert "Traceback" not in errors
    output = cli("bench", "run", "pets.toml", "--method", "ce", "--set", "epochs=120", "-o", "cut", "--jobs", 1).output
    assert "pets: ranking" in output


def test_options_of_a_cluster_need_one(cli: Any) -> None:
    needs = cli("bench", "run", "quick", "--workers", "2", code=2).output
    assert "--workers and --gpus-per-run are for Ray" in " ".join(needs.replace("│", " ").split())
    other = cli("bench", "run", "quick", "--ray", "local", "--jobs", "2", code=2).output
    assert "with --ray say --workers" in " ".join(other.replace("│", " ").split())
