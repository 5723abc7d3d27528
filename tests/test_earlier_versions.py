"""Models, runs and benchmarks that version 0.1 wrote still load, predict the same and go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crowdwise
from crowdwise.bench.experiments import load_experiment
from crowdwise.bench.records import read_record, read_records
from crowdwise.cli import app

OLD = Path(__file__).parent / "fixtures_0_1"


def copied(name: str, folder: Path) -> Path:
    """A run of version 0.1 in a folder of its own, told where its data are now."""
    run = folder / name
    shutil.copytree(OLD / name, run)
    invocation = json.loads((run / "invocation.json").read_text())
    for key in ("inputs", "annotations"):
        invocation[key] = str(OLD / invocation[key])
    (run / "invocation.json").write_text(json.dumps(invocation))
    return run


@pytest.mark.parametrize(("method", "path"), [("ce", "ce_model"), ("taidtm", "run_finished")])
def test_a_model_of_version_0_1_predicts_what_it_predicted_then(method: str, path: str) -> None:
    model = crowdwise.load(OLD / path, device="cpu")
    assert model.name == method
    found = model.predict_proba(np.load(OLD / "data" / "X.npy")[:10])
    np.testing.assert_allclose(found, np.loadtxt(OLD / f"{method}_probabilities.txt"), atol=1e-5)


def test_an_interrupted_run_of_version_0_1_goes_on_to_the_model_of_an_uninterrupted_one(tmp_path: Path) -> None:
    run = copied("run_unfinished", tmp_path)
    result = CliRunner().invoke(app, ["train", "--resume", str(run)])
    assert result.exit_code == 0, result.output
    model = crowdwise.load(run, device="cpu")
    model.arrays_.pop("label_weights")  # with which this version scales predictions: the networks are the same
    found = model.predict_proba(np.load(OLD / "data" / "X.npy")[:10])
    np.testing.assert_allclose(found, np.loadtxt(OLD / "taidtm_probabilities.txt"), atol=1e-4)
    first = (OLD / "run_unfinished" / "metrics.jsonl").read_text().splitlines()[:6]  # two finished stages
    assert (run / "metrics.jsonl").read_text().splitlines()[:6] == first, "these are not trained again"


def test_a_finished_run_of_version_0_1_is_summed_up(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "--resume", str(copied("run_finished", tmp_path))])
    assert result.exit_code == 0, result.output
    assert "global transition" in result.output


def test_a_benchmark_of_version_0_1_is_read_and_its_cells_are_still_the_same() -> None:
    records = read_records(OLD / "bench")
    assert [record["test_accuracy"] for record in records] == [13.778, 17.556]
    for cell, record in zip(load_experiment(OLD / "exp.toml").cells(), records, strict=True):
        assert cell.id == record["cell"]
        found = read_record(OLD / "bench" / "cells" / cell.id)
        assert found is not None
        assert found["test_accuracy"] == record["test_accuracy"]
