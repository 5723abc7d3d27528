"""`crowdwise info`: what a path holds, what a name stands for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise
from crowdwise.readers import read_table
from crowdwise.registry import METHODS
from crowdwise.tasks.info import explained

Files = dict[str, Path]


def test_a_finished_run(cli: Any, files: Files) -> None:
    cli("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 2, "-o", "run")
    output = cli("info", "run").output
    for part in ("method      ce", "finished", "80 instances, 4 annotators, 2 classes", "epochs = 2", "classifier"):
        assert part in output
    assert "crowdwise predict run" in output
    assert "momentum" not in output  # a default


def test_a_run_that_was_cut_off(cli: Any, files: Files) -> None:
    cli("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 2, "-o", "run")
    Path("run/model/model.json").unlink()
    with open("run/metrics.jsonl", "a") as file:
        file.write('{"stage": "cla')  # the machine stopped while this was written
    output = cli("info", "run").output
    assert "not finished" in output
    assert "go on with  crowdwise train --resume run" in output
    about = json.loads(Path("run/run.json").read_text())
    Path("run/run.json").write_text("{}")
    assert "run.json is damaged" in cli("info", "run", code=1).output
    Path("run/run.json").unlink()
    invocation = {"version": 1, "crowdwise": "0.1.0", "method": "ce", "parameters": {}, **about["source"]}
    Path("run/invocation.json").write_text(json.dumps(invocation))
    assert "not started" in cli("info", "run").output  # by an earlier version, which wrote this first


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")  # of a training that is much too short
def test_a_run_that_python_started(cli: Any, files: Files, tmp_path: Path) -> None:
    crowd = read_table(files["rows"]).annotations
    crowdwise.CE(epochs=1, verbose=0).fit(np.load(files["X"]), crowd, run_dir=tmp_path / "mine")
    (tmp_path / "mine" / "model" / "model.json").unlink()
    assert "fit(X, annotations, resume='mine')" in cli("info", "mine").output


def test_a_model_and_a_model_that_was_changed(cli: Any, files: Files) -> None:
    cli("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1, "-o", "run")
    output = cli("info", "run/model").output
    assert "classes     2: cat, dog" in output
    assert "checksums match" in output
    about = json.loads(Path("run/model/model.json").read_text())
    Path("run/model/model.json").write_text(json.dumps(about | {"method": "bltm"}))
    assert "was changed after it was written" in cli("info", "run/model", code=1).output


def test_an_annotation_table(cli: Any, files: Files) -> None:
    output = cli("info", files["named"]).output
    assert "instance = 'task', annotator = 'worker', label = 'label'" in output
    assert "80, 4 labels each" in output
    assert "4, 80 labels each" in output
    assert "2: cat, dog" in output


def test_a_table_without_annotations(cli: Any, files: Files) -> None:
    output = cli("info", files["table"]).output
    assert "picture_id, a, b, c" in output
    assert "not a table of annotations" in output


def test_array_files(cli: Any, files: Files) -> None:
    assert "80 x 3 float32" in cli("info", files["X"]).output
    np.savez("two.npz", a=np.zeros((2, 8, 8), np.uint8), b=np.array(3))
    output = cli("info", "two.npz").output
    assert "a  2 x 8 x 8 uint8" in output
    assert "b  one value int64" in output


def test_names_of_presets_data_sets_and_methods(cli: Any) -> None:
    output = cli("info", "digits").output
    assert "preset digits" in output
    assert "Dataset 'digits': image, 10 classes" in output
    assert "min_examples" in cli("info", "taidtm").output
    Path("mine.toml").write_text('description = "Mine"\n[methods.ce]\nlr = 0.1\n')
    assert "lr = 0.1" in cli("info", "mine.toml").output


@pytest.mark.parametrize("method", METHODS)
def test_every_parameter_of_a_method_is_explained(method: str) -> None:
    names = {field.name for field in dataclasses.fields(METHODS[method])}
    found = explained(METHODS[method])
    assert names <= set(found)
    assert all(len(found[name]) > 4 for name in names)


def test_every_name_is_described(cli: Any) -> None:
    names = json.loads(cli("info", "--json").stdout)
    assert "committee" in names["aggregator"]
    for family, known in names.items():
        if family not in {"data set", "format"}:  # files that may not be here; no parameters
            for name in known:
                assert name in cli("info", name).output


def test_explanations_are_those_of_the_nearest_class(cli: Any) -> None:
    assert "Width of the layer before the transition head" in " ".join(cli("info", "bltm").output.split())
    assert "Width of the layer before the transition head" not in " ".join(cli("info", "ce").output.split())


def test_a_data_set_that_is_not_here_is_an_error_unless_there_is_a_preset(cli: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("CROWDWISE_DATA", raising=False)
    assert "not on this machine" in cli("info", "rte", code=1).output
    output = cli("info", "labelme").output
    assert "preset labelme" in output
    assert "not on this machine" in output


def test_nothing_of_that_name(cli: Any, tmp_path: Path) -> None:
    assert "did you mean 'digits'?" in cli("info", "digit", code=1).output
    assert "no file or directory zzz" in cli("info", "zzz", code=1).output
    assert "neither a run directory" in cli("info", tmp_path, code=1).output


def test_encoders_are_listed_and_described(cli: Any) -> None:
    assert "tfidf" in cli("info").output
    output = cli("info", "tfidf").output
    assert "min_texts" in output
    assert "arrays_" not in output
    assert "did you mean 'tfidf'?" in cli("info", "tfdf", code=1).output
