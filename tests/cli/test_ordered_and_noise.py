"""`agreement` and `annotators` of ordered classes, and of labels that agree no more than by chance."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GRADES = ["none", "mild", "moderate", "severe"]


def written(path: Path, labels: Any, gold: Any = None) -> Path:
    """A long table of labels (n, R)."""
    rows = ["item,worker,label" + (",gold" if gold is not None else "")]
    for item, line in enumerate(labels):
        true = f",{gold[item]}" if gold is not None else ""
        rows += [f"i{item},w{who},{label}{true}" for who, label in enumerate(line)]
    path.write_text("\n".join(rows))
    return path


@pytest.fixture
def graded(tmp_path: Path) -> Path:
    """Three people who err to neighbouring grades; w2 is too high."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, (80, 1))
    errors = np.rint(rng.normal([0.0, 0.0, 1.0], 0.5, (80, 3))).astype(int)
    return written(tmp_path / "graded.csv", np.array(GRADES)[np.clip(truth + errors, 0, 3)])


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    return written(tmp_path / "noise.csv", rng.choice(["a", "b", "c", "d"], (300, 5)), rng.choice(list("abcd"), 300))


def test_grades_are_measured_as_ordered(cli: Any, graded: Path) -> None:
    output = cli("agreement", graded, "--bootstrap", 0).output
    assert "none < mild < moderate < severe" in output
    assert "alpha (ordinal)" in output
    assert "kappa (quadratic)" in output
    plain = cli("agreement", graded, "--bootstrap", 0, "--ordered", "no").output
    assert "ordered classes" not in plain
    assert "ordinal" not in plain


def test_an_order_can_be_declared(cli: Any, graded: Path) -> None:
    found = json.loads(cli("agreement", graded, "--ordered", ",".join(GRADES[::-1]), "--bootstrap", 0, "--json").stdout)
    assert found["report"]["scale"]["source"] == "declared"
    assert found["chance"]["p_value"] < 0.001
    assert (
        "--ordered: class 'mild' is not in the order"
        in cli("agreement", graded, "--ordered", "none,severe", code=1).output
    )


def test_annotators_of_grades_have_a_distance(cli: Any, graded: Path, tmp_path: Path) -> None:
    output = cli("annotators", graded, "--method", "majority-vote", "-o", tmp_path / "who.csv").output
    assert "off by" in output
    rows = {row["annotator"]: row for row in csv.DictReader((tmp_path / "who.csv").open())}
    assert float(rows["w2"]["mean_error"]) > float(rows["w0"]["mean_error"]) + 0.5
    assert float(rows["w2"]["mean_absolute_error"]) > float(rows["w0"]["mean_absolute_error"])
    assert "off by" not in cli("annotators", graded, "--ordered", "no").output


def test_noise_gets_no_grades(cli: Any, noise: Path, tmp_path: Path) -> None:
    assert "agreement is within chance" in cli("agreement", noise, "--bootstrap", 0).output
    output = cli("annotators", noise, "-o", tmp_path / "who.csv").output
    assert "Skill is unknown. Agreement is within chance" in output
    assert "stop asking" not in output
    for row in csv.DictReader((tmp_path / "who.csv").open()):
        assert row["annotator_quality"] == row["spammer_score"] == row["worst_class"] == row["bias"] == ""
        assert (float(row["annotator_quality_low"]), float(row["annotator_quality_high"])) == (0, 1)
        assert row["num_examples_labeled"] == "300"


def test_gold_grades_also_where_people_do_not_agree(cli: Any, noise: Path, tmp_path: Path) -> None:
    cli("annotators", noise, "--gold-column", "gold", "-o", tmp_path / "who.csv")
    for row in csv.DictReader((tmp_path / "who.csv").open()):
        assert 0 < float(row["annotator_quality"]) < 0.5
        assert 0.15 < float(row["gold_accuracy"]) < 0.35


def test_agreement_beyond_chance_gets_no_remark(cli: Any, graded: Path) -> None:
    assert "within chance" not in cli("agreement", graded, "--bootstrap", 0).output
    assert "whom to stop asking" in cli("annotators", graded).output


def test_training_on_noise_claims_nothing(cli: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    words = np.array(["red", "blue", "sun", "moon", "tree", "sea"])
    rows = ["item,worker,label,text"]
    for item in range(80):
        text = " ".join(rng.choice(words, 4))
        rows += [f"i{item},w{who},{label},{text}" for who, label in enumerate(rng.choice(list("abcd"), 5))]
    (tmp_path / "noise.csv").write_text("\n".join(rows))
    run = tmp_path / "run"
    output = cli("train", tmp_path / "noise.csv", "--text", "text", "--epochs", 10, "-o", run).output
    assert "unknown. Agreement is within chance" in output
    assert "confidence" not in output
    found = json.loads((run / "results.json").read_text())
    assert found["worth"]["right"] is found["worth"]["estimated"] is None
    assert {row["confidence"] for row in csv.DictReader((run / "labels.csv").open())} == {""}
    assert not {row["doubt"] for row in csv.DictReader((run / "labels.csv").open())} & {"low confidence"}


def test_train_says_what_the_classifier_adds(cli: Any, graded: Path, tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(80, 2))
    table = ["item,a,b", *(f"i{item},{a:.3f},{b:.3f}" for item, (a, b) in enumerate(features))]
    (tmp_path / "inputs.csv").write_text("\n".join(table))
    run = tmp_path / "run"
    cli("train", "--inputs", tmp_path / "inputs.csv", "--annotations", graded, "-o", run)
    found = json.loads((run / "results.json").read_text())
    assert "adds nothing" in found["classifier"] or "tells nothing" in found["classifier"]
    alone = json.loads(cli("aggregate", graded, "-o", tmp_path / "labels.csv", "--json").stdout)
    labels = {row["instance"]: row["label"] for row in csv.DictReader((tmp_path / "labels.csv").open())}
    trained = {row["instance"]: row["label"] for row in csv.DictReader((run / "labels.csv").open())}
    if "annotators alone" in found["classifier"].partition("(")[0]:
        assert trained == labels
        assert found["worth"]["right"]["share"] == pytest.approx(alone["worth"]["right"]["share"], abs=1e-5)
    page = json.loads(cli("report", run, "-o", tmp_path / "page.html", "--json").stdout)
    assert page["worth"]["right"]["share"] == pytest.approx(found["worth"]["right"]["share"], abs=1e-5)
