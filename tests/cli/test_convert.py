"""`crowdwise convert`, and the other verbs on exports of annotation tools."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from crowdwise.readers import load_columns, read
from export_samples import SAID, SAMPLES, label_studio, ls_result, sample


def fails(cli: Any, *arguments: Any) -> str:
    """The one line that a command fails with."""
    (line,) = cli(*arguments, code=1).stderr.strip().splitlines()
    assert line.startswith("error: ")
    return str(line)


@pytest.mark.parametrize("file", SAMPLES)
def test_every_format_becomes_a_table(cli: Any, tmp_path: Path, file: str) -> None:
    output = cli("convert", sample(tmp_path, file), "out/crowd.csv").output
    assert f"{file}: {SAMPLES[file][0]}, as " in output
    assert "--format NAME reads it otherwise" in output
    assert "out/crowd.csv: written as table" in output
    assert len(read("out/crowd.csv").annotations) == len(read(tmp_path / file).annotations)


def test_convert_writes_label_studio_and_crowd_kit(cli: Any, tmp_path: Path) -> None:
    path = sample(tmp_path, "pool.tsv")
    cli("convert", path, "tasks.json")
    assert len(json.loads(Path("tasks.json").read_text())) == 3
    cli("convert", path, "frame.csv", "--to", "crowd-kit", "--format", "toloka")
    assert list(load_columns(Path("frame.csv"), lambda names: names))[:4] == ["task", "worker", "label", "true_label"]


@pytest.mark.parametrize("file", ["tasks.json", "pool.tsv", "batch.csv", "choice.jsonl", "people.zip", "matrix.npy"])
def test_exports_can_be_aggregated_and_judged(cli: Any, tmp_path: Path, file: str) -> None:
    path = sample(tmp_path, file)
    cli("aggregate", path, "-o", "labels.csv", "--method", "majority-vote", "--no-models")
    labels = load_columns(Path("labels.csv"), lambda names: names)["label"].to_pylist()
    assert labels == (["1", "0", "1"] if file == "matrix.npy" else ["pos", "neg", "pos"])
    assert "Fleiss" in cli("agreement", path, "--bootstrap", 0, "--format", SAMPLES[file][0]).output
    shown = cli("annotators", path, "--method", "wawa").output
    assert "Skill is unknown" in shown  # seven labels of three items show no skill
    names = [str(name) for name in read(path).annotations.annotators.tolist()]
    assert all(re.search(rf"^ +{name} +\d", shown, re.MULTILINE) for name in names)


def test_consensus_goes_back_to_label_studio_and_is_not_read_as_a_vote(cli: Any, tmp_path: Path) -> None:
    path = sample(tmp_path, "tasks.json")
    cli("aggregate", path, "-o", "predictions.json", "--method", "majority-vote", "--no-models")
    tasks = json.loads(Path("predictions.json").read_text())
    assert [task["predictions"][0]["model_version"] for task in tasks] == ["crowdwise-majority-vote"] * 3
    assert tasks[0]["predictions"][0]["score"] == 1
    assert Path("predictions-annotators.csv").exists()
    merged = json.loads(label_studio())
    for before, after in zip(merged, tasks, strict=True):
        before["predictions"] = after["predictions"]
    Path("merged.json").write_text(json.dumps(merged))
    assert len(read("merged.json").annotations) == len(SAID)


def test_consensus_as_a_frame_of_crowd_kit(cli: Any, tmp_path: Path) -> None:
    cli("aggregate", sample(tmp_path, "frame.csv"), "-o", "labels.parquet", "--to", "crowd-kit", "--method", "wawa")
    assert list(load_columns(Path("labels.parquet"), lambda names: names))[:3] == ["task", "agg_label", "confidence"]


def test_exports_cannot_be_streamed(cli: Any, tmp_path: Path) -> None:
    path = sample(tmp_path, "tasks.json")
    cli("aggregate", path, "-o", "labels.csv", "--stream", "--question", "sent", code=2)


def test_questions_and_choices_are_options(cli: Any, tmp_path: Path) -> None:
    result = [ls_result("pos"), ls_result("yes", "spam"), ls_result("no", "spam")]
    task = {"id": 1, "data": {}, "annotations": [{"completed_by": 1, "result": result}]}
    (tmp_path / "a.json").write_text(json.dumps([task]))
    assert "choose one with --question NAME" in fails(cli, "convert", "a.json", "b.csv")
    message = fails(cli, "convert", "a.json", "b.csv", "--question", "spam")
    assert "take the first with --several first" in message
    cli("convert", "a.json", "b.csv", "--question", "spam", "--several", "first")
    assert read("b.csv").annotations.classes.tolist() == ["yes"]


def test_nothing_is_written_where_something_is_wrong(cli: Any, tmp_path: Path) -> None:
    path = sample(tmp_path, "tasks.json")
    before = sorted(tmp_path.iterdir())
    assert "unknown format 'toloca'; did you mean 'toloka'" in fails(
        cli, "convert", path, "b.csv", "--format", "toloca"
    )
    assert "b.xlsx: unknown format" in fails(cli, "convert", path, "b.xlsx")
    assert "would overwrite what is read" in fails(cli, "convert", path, path)
    assert "unknown several 'all'" in fails(cli, "convert", path, "b.csv", "--several", "all")
    assert "--label names a column" in fails(cli, "convert", path, "b.csv", "--format", "label-studio", "--label", "x")
    (tmp_path / "cut.json").write_bytes(path.read_bytes()[:200])
    assert "cut.json: line 1, character 185" in fails(cli, "aggregate", "cut.json", "-o", "b.csv")
    (tmp_path / "cut.json").unlink()
    assert sorted(tmp_path.iterdir()) == before


def test_info_says_what_an_export_is(cli: Any, tmp_path: Path) -> None:
    output = cli("info", sample(tmp_path, "tasks.json")).output
    assert "label-studio" in output
    assert "sent" in output
    (tmp_path / "cut.json").write_text('[{"id": 1')
    assert "cut.json: line 1, character 10" in fails(cli, "info", "cut.json")
