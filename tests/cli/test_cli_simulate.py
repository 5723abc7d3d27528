"""`crowdwise simulate`: annotation tables whose truth is known."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise import datasets, simulate
from crowdwise.readers import load_columns, read, read_table


def test_the_table_is_the_crowd_of_the_library(cli: Any) -> None:
    output = cli(
        *("simulate", "digits", "-o", "crowd.csv", "--annotators", 20, "--groups", 4, "--labels-per-instance", 2),
        *("--noise-rate", 0.3, "--seed", 7),
    ).output
    digits = datasets.load("digits")
    crowd = simulate.aidn(
        *(digits.X_train, digits.y_train),
        n_annotators=20,
        n_groups=4,
        labels_per_instance=2,
        noise_rate=0.3,
        random_state=7,
    )
    found = read_table("crowd.csv").annotations
    assert found.instances[found.instance].tolist() == crowd.annotations.instance.tolist()
    assert found.annotators[found.annotator].tolist() == crowd.annotations.annotator.tolist()
    assert found.classes[found.label].tolist() == crowd.annotations.label.tolist()
    assert f"{len(found):,} labels of 1,347 instances by 20 annotators" in output


def test_the_truth_holds_classes_and_groups(cli: Any) -> None:
    cli("simulate", "digits", "--process", "hammer-spammer", "--annotators", 10, "--truth", "truth.csv")
    columns = {
        name: np.array(column.to_pylist())
        for name, column in load_columns(Path("truth.csv"), lambda names: names).items()
    }
    classes = columns["truth"][columns["kind"] == "instance"]
    groups = columns["truth"][columns["kind"] == "annotator"]
    assert classes.astype(int).tolist() == datasets.load("digits").y_train.tolist()
    assert groups.tolist() == ["0"] * 7 + ["1"] * 3


@pytest.mark.parametrize("process", ["aidn", "hammer-spammer", "one-coin", "adversarial", "correlated"])
def test_every_process_can_be_had(cli: Any, process: str) -> None:
    cli("simulate", "digits", "-o", "crowd.parquet", "--process", process, "--annotators", 9)
    assert read_table("crowd.parquet").annotations.n_annotators == 9


def test_settings_of_a_process(cli: Any) -> None:
    common = ("simulate", "digits", "--process", "hammer-spammer", "--noise-rate", 0)
    assert " 0.0 % of them wrong" in cli(*common, "--set", "spammer_share=0").output
    assert (
        "unknown key 'spamer_share'; did you mean 'spammer_share'?"
        in cli(*common, "--set", "spamer_share=0", code=1).output
    )
    assert "--groups goes with --process aidn only" in cli(*common, "--groups", 2, code=1).output
    cli("simulate", "digits", "--process", "spam", code=2)
    cli("simulate", "digits", "--noise-rate", 2, code=2)


def test_what_cannot_be_simulated(cli: Any) -> None:
    assert "unknown data set 'digit'; did you mean 'digits'?" in cli("simulate", "digit", code=1).output
    assert "unknown format" in cli("simulate", "digits", "-o", "crowd.xyz", code=1).output
    assert (
        "labels_per_instance must be at most the number of annotators, 2, got 3"
        in cli("simulate", "digits", "--annotators", 2, "--labels-per-instance", 3, code=1).output
    )


def test_the_truth_of_a_simulation_is_gold(cli: Any) -> None:
    """Items and annotators have the same numbers there; only items have a true class."""
    cli("simulate", "digits", "-o", "crowd.csv", "--annotators", 9, "--truth", "truth.csv")
    found = read("crowd.csv", gold="truth.csv")
    truth = {
        row["id"]: row["truth"]
        for row in csv.DictReader(Path("truth.csv").read_text().splitlines())
        if row["kind"] == "instance"
    }
    assert {str(item): str(label) for item, label in found.gold.items()} == truth
