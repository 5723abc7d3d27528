"""`crowdwise report`: from whatever there is to one page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import pytest

import crowdwise
from crowdwise.registry import METHODS
from export_samples import TEXTS, sample
from extras import needs

needs("altair")
needs("vl_convert")


def page_data(path: Path) -> dict[str, Any]:
    html = path.read_text("utf-8")
    found = re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_a_table_of_labels(cli: Any, files: dict[str, Path], tmp_path: Path) -> None:
    result = cli("report", files["named"], "-o", "page.html", "--budget", 5)
    assert "page.html: 1." in result.output
    data = page_data(tmp_path / "page.html")
    assert data["classes"] == ["cat", "dog"]
    assert [row["name"] for row in data["annotators"]["rows"]] == ["0", "1", "2", "3"]
    assert min(data["annotators"]["rows"], key=lambda row: row["skill"])["name"] == "3"
    assert len(data["next"]) == 0  # everybody has labelled everything
    assert data["training"] == data["comparison"] == []


def test_columns_and_method_can_be_named(cli: Any, files: dict[str, Path], tmp_path: Path) -> None:
    options = ("--instance", "task", "--annotator", "worker", "--label", "label", "--method", "dawid-skene")
    cli("report", files["named"], *options)
    assert page_data(tmp_path / "report.html")["overview"]["method"]["name"] == "dawid-skene"


def test_a_result_of_aggregate_with_and_without_the_labels(cli: Any, files: dict[str, Path], tmp_path: Path) -> None:
    cli("aggregate", files["named"], "-o", "labels.csv")
    cli("report", "labels.csv", "-o", "alone.html")
    alone = page_data(tmp_path / "alone.html")
    assert len(alone["items"]["rows"]) == 80
    assert {row["name"] for row in alone["annotators"]["rows"]} == {"0", "1", "2", "3"}
    assert "pass --annotations FILE to see" in alone["overview"]["warnings"][0]
    cli("report", "labels.csv", "--annotations", files["named"], "-o", "both.html")
    both = page_data(tmp_path / "both.html")
    assert both["overview"]["method"]["name"] == "the labels of labels.csv"
    assert len(both["annotators"]["rows"][0]["matrix"]) == 4
    top = {row["id"]: row["likely"][0][0] for row in both["items"]["rows"]}
    assert top == {row["id"]: row["likely"][0][0] for row in alone["items"]["rows"]}


def test_probabilities_of_a_result_are_used(cli: Any, files: dict[str, Path], tmp_path: Path) -> None:
    cli("aggregate", files["named"], "-o", "labels.parquet", "--proba")
    cli("report", "labels.parquet", "--annotations", files["named"])
    rows = page_data(tmp_path / "report.html")["items"]["rows"]
    assert all(abs(sum(share for _, share in row["likely"]) - 1) < 0.02 for row in rows)


def test_a_run_directory(cli: Any, files: dict[str, Path], tmp_path: Path) -> None:
    train = ("train", "--method", "ce", "--inputs", files["X"], "--annotations", files["rows"])
    cli(*train, "--epochs", 3, "--set", "recipe=paper", "-o", "run")
    cli("report", "run")
    data = page_data(tmp_path / "report.html")
    assert [row["epoch"] for row in data["training"]] == [1, 2, 3]
    assert data["state"] == "finished run"
    assert data["items"]["rows"][0]["predicted"][0] in (0, 1)
    (tmp_path / "run" / "model" / "model.json").unlink()
    cli("report", "run", "-o", "going.html")
    going = page_data(tmp_path / "going.html")
    assert going["state"] == "run in progress, 3 epochs so far"
    assert "predicted" not in going["items"]["rows"][0]


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")  # of a training that is much too short
@pytest.mark.parametrize("method", ["taidtm", "crowd-layer"])
def test_a_run_from_python(cli: Any, files: dict[str, Path], tmp_path: Path, method: str) -> None:
    """Its folder has no labels: the model tells what it can, and the page says how to see the rest."""
    read = crowdwise.read(files["rows"]).annotations
    short = (
        {"warmup_epochs": 8, "transition_epochs": 1, "gcn_epochs": 1, "min_examples": 2} if method == "taidtm" else {}
    )
    METHODS[method](epochs=1, verbose=0, **short).fit(np.load(files["X"]), read, run_dir=tmp_path / "run")
    cli("report", "run", "-o", "alone.html")
    alone = page_data(tmp_path / "alone.html")
    assert "Pass --annotations FILE and --inputs FILE" in alone["note"]
    assert [row["name"] for row in alone["annotators"]["rows"]] == ["0", "1", "2", "3"]
    assert all(0 <= row["skill"] <= 1 and row["similar"] for row in alone["annotators"]["rows"])
    assert ("matrix" in alone["annotators"]["rows"][0]) == (method == "crowd-layer")  # the same for all instances
    assert alone["map"]["heads"] == (method == "taidtm")
    assert alone["training"]
    cli("report", "run", "--annotations", files["rows"], "--inputs", files["X"], "-o", "all.html")
    full = page_data(tmp_path / "all.html")
    assert full["note"] == ""
    assert full["overview"]["method"]["name"] == method
    assert len(full["items"]["rows"][0]["predicted"]) == 2
    assert len(full["annotators"]["rows"][0]["matrix"]) == 4
    assert ("moments" in full["annotators"]["rows"][0]) == (method == "taidtm")
    other = files["rows"].read_text().replace("cat", "owl")
    (tmp_path / "other.csv").write_text(other)
    output = cli("report", "run", "--annotations", "other.csv", "--inputs", files["X"], code=1).output
    assert "the run knows no class 'owl'" in output


def test_a_benchmark_folder(cli: Any, files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    records = [{"column": "digits", "row": row, "test_accuracy": value} for row, value in (("CE", 80), ("TAIDTM", 90))]
    (tmp_path / "bench" / "records.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    cli("report", "bench", "-o", "bench.html")
    assert {row["row"]: row["mean"] for row in page_data(tmp_path / "bench.html")["comparison"]} == {
        "CE": 80,
        "TAIDTM": 90,
    }
    cli("report", files["named"], "--bench", "bench", "-o", "with.html")
    data = page_data(tmp_path / "with.html")
    assert data["comparison"]
    assert data["annotators"]


def test_failed_runs_of_a_benchmark_are_counted(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    records = [
        {"column": "digits", "row": "CE", "test_accuracy": 80.0},
        {"column": "digits", "row": "CE", "error": "no"},
    ]
    (tmp_path / "bench" / "records.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    cli("report", "bench")
    assert page_data(tmp_path / "report.html")["compared"] == "From 1 run; 1 failed."


def test_from_an_export_of_label_studio_to_a_page_in_one_command(cli: Any, tmp_path: Path) -> None:
    sample(tmp_path, "tasks.json")
    output = cli("report", "tasks.json").output
    assert "label-studio, as its tasks have 'annotations' (--format NAME reads it otherwise)" in output
    assert f"Open it in a browser: file://{tmp_path}/report.html" in output
    assert "crowdwise aggregate tasks.json -o consensus.csv" in output
    data = page_data(tmp_path / "report.html")
    assert {row["name"]: row.get("kind") for row in data["annotators"]["rows"]}["bert"] == "model"
    assert all(row["annotator"] != "bert" for row in data["next"])  # nobody asks a model again
    assert {row["text"] for row in data["items"]["rows"]} == set(TEXTS.values())
    assert "'bert'" not in cli("report", "tasks.json", "--no-models", "-o", "b.html").output
    assert "crowdwise aggregate tasks.json --no-models -o" in cli("report", "tasks.json", "--no-models").output


@pytest.mark.parametrize("file", ["people.zip", "consensus.zip"])
def test_an_unpacked_export_is_a_folder_of_labels(cli: Any, tmp_path: Path, file: str) -> None:
    with zipfile.ZipFile(sample(tmp_path, file)) as content:
        content.extractall(tmp_path / "export")
    cli("report", "export")
    assert {row["name"] for row in page_data(tmp_path / "report.html")["annotators"]["rows"]} == {"ann", "bob", "cyd"}


def test_a_file_name_is_text(cli: Any, files: dict[str, Path], tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>.csv"
    (tmp_path / name).write_bytes(files["named"].read_bytes())
    cli("report", name)
    html = (tmp_path / "report.html").read_text("utf-8")
    assert "<img src=x" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;.csv" in html


def test_a_page_about_labels_needs_no_torch(files: dict[str, Path], tmp_path: Path) -> None:
    code = (
        "import sys; from crowdwise.tasks.report import Request, write_report; "
        "from pathlib import Path; write_report(Request(sys.argv[1]), Path(sys.argv[2])); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(files["named"]), str(tmp_path / "r.html")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"


def test_mistakes_are_one_line(cli: Any, files: dict[str, Path], tmp_path: Path) -> None:
    assert "there is no file or directory nowhere.csv" in cli("report", "nowhere.csv", code=1).output
    assert "unknown method 'dawid'" in cli("report", files["named"], "--method", "dawid", code=1).output
    assert "would overwrite what is read" in cli("report", files["named"], "-o", files["named"], code=1).output
    (tmp_path / "empty").mkdir()
    assert "neither a run directory" in cli("report", "empty", code=1).output
    assert not (tmp_path / "report.html").exists()


def test_serving_until_interrupted(
    start: Callable[..., Popen[str]], files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    process = start("report", files["named"], "--serve", "--port", 0)
    assert process.stdout is not None
    try:
        address = next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert b"report-data" in answer.read()
        process.send_signal(2)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.communicate()


def test_every_table_of_labels_that_a_command_writes_can_be_reported(
    cli: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    labels = files["named"].read_text().splitlines()
    answers = {line.split(",")[0]: line.split(",")[2] for line in labels[1:] if line.split(",")[1] == "0"}
    (tmp_path / "answers.csv").write_text("item,label\n" + "".join(f"{i},{y}\n" for i, y in answers.items()))
    data = ("--inputs", files["X"], "--annotations", files["rows"])
    cli("train", "--method", "ce", *data, "--epochs", 1, "--set", "recipe=paper", "-o", "run")
    cli("predict", "run", files["X"], "--annotations", files["rows"], "-o", "predicted.csv")
    cli("route", files["named"], "-o", "routed.parquet", "--answers", "answers.csv", "-m", "majority-vote")
    for table in ("run/labels.csv", "predicted.csv", "routed.parquet"):
        cli("report", table, "-o", "page.html")
        rows = page_data(tmp_path / "page.html")["items"]["rows"]
        assert len(rows) == 80
        written = crowdwise.readers.load_columns(tmp_path / table, list)
        said = dict(zip(map(str, written["instance"].to_pylist()), written["label"].to_pylist(), strict=True))
        names = page_data(tmp_path / "page.html")["classes"]
        assert {row["id"]: names[row["likely"][0][0]] for row in rows} == said


def test_labels_without_a_confidence_make_no_report(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("item,worker,label\n1,a,x\n1,b,y\n2,a,y\n2,b,x\n3,a,x\n3,b,x\n")
    cli("aggregate", "few.csv", "-o", "labels.csv")
    output = cli("report", "labels.csv", code=1).output
    assert "labels.csv, record 1: the label has no confidence" in output


UNUSED = {
    "named.csv": ("--annotations",),
    "labels.csv": ("--inputs", "--root", "--method", "--sheet", "--map", "--clean", "--gold"),
    "run": ("--annotations", "--inputs", "--root", "--sheet", "--map", "--clean", "--gold"),
    "bench": ("--annotations", "--inputs", "--root", "--method", "--sheet", "--map", "--clean", "--gold"),
    "comparison": ("--annotations", "--inputs", "--root", "--method", "--sheet", "--map", "--clean", "--gold"),
    "digits": ("--annotations", "--inputs", "--root", "--sheet", "--map", "--clean", "--gold"),
}


def test_an_option_that_means_nothing_for_an_input_is_refused_by_name(
    cli: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    cli("aggregate", files["named"], "-o", "labels.csv", "-m", "majority-vote")
    train = ("train", "--method", "ce", "--inputs", files["X"], "--annotations", files["rows"])
    cli(*train, "--epochs", 1, "--set", "recipe=paper", "-o", "run")
    for folder, file in (("bench", "records.jsonl"), ("comparison", "comparison.json")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("{}\n")
    values = {"--method": "dawid-skene", "--map": "cat=dog", "--clean": None, "--sheet": "x", "--gold": "label"}
    for what, options in UNUSED.items():
        for option in options:
            value = values.get(option, tmp_path)
            output = cli("report", what, option, *([] if value is None else [value]), code=2).output
            assert f"{option} is not used: {what} is" in " ".join(output.replace("│", " ").split())
