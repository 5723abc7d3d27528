"""`crowdwise demo`, in a hurry: what it prints and leaves behind, not how well it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import crowdwise
from crowdwise import datasets


def test_the_demo_compares_four_methods_and_draws_pictures(cli: Any) -> None:
    output = cli("demo", "--quick", "--seed", 1, "--out", "show").output
    assert "1,347 digits, 60 simulated annotators in 3 groups" in output
    for part in ("CE", "majority vote", "TAIDTM", "Concord", "labels right", "Adjusted Rand index", "Purifying joins"):
        assert part in output
    for name in ("accuracy.png", "annotator-graph.png", "transition-matrices.png"):
        assert Path("show", name).read_bytes().startswith(b"\x89PNG")
        assert str(Path("show", name)) in output
    results = json.loads(Path("show/results.json").read_text())
    assert list(results["methods"]) == ["ce", "deep-aggregate", "taidtm", "concord"]
    assert results["methods"]["ce"]["test_accuracy"] > 0.5
    for row in results["methods"].values():
        assert 0 < row["labels_right"] <= 1
        assert 0.1 < row["confidence"] <= 1
    assert 0.4 < results["votes_right"] < 0.7
    digits = datasets.load("digits")
    model = crowdwise.load("show/model")
    assert model.score(digits.X_test, model.classes_[digits.y_test]) == results["methods"]["taidtm"]["test_accuracy"]
