"""Every published figure is one number, wherever it is shown: terminal, JSON, the report and the demo."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from crowdwise.readers import read
from crowdwise.report.content import gather
from crowdwise.report.source import from_export

Rows = list[tuple[Any, ...]]


def crowd(
    n: int, people: int, each: int, skill: list[float], *, gold: int = 0, prior: tuple[float, ...] = (0.5, 0.3, 0.2)
) -> Rows:
    """Labels of classes of unequal size, with ties; ``gold`` items have a true label."""
    rng = np.random.default_rng(n + people + each)
    names = np.array(["cat", "dog", "eel", "fox"])[: len(prior)]
    truth = rng.choice(len(prior), n, p=prior)
    rows: Rows = []
    for item in range(n):
        for who in rng.choice(people, each, replace=False):
            right = rng.random() < skill[who]
            label = truth[item] if right else (truth[item] + rng.integers(1, len(prior))) % len(prior)
            rows.append((f"i{item}", f"w{who}", names[label], names[truth[item]] if item < gold else ""))
    return rows


CROWDS = {
    "good": crowd(120, 8, 4, [0.9, 0.85, 0.8, 0.8, 0.75, 0.7, 0.5, 0.34]),
    "checked": crowd(120, 8, 4, [0.9, 0.85, 0.8, 0.8, 0.75, 0.7, 0.5, 0.34], gold=40),
    "checked a little": crowd(120, 6, 2, [0.9, 0.85, 0.8, 0.8, 0.75, 0.7], gold=7),
    "two people": crowd(90, 2, 2, [0.9, 0.7], gold=30),
    "noise": crowd(200, 6, 6, [0.25] * 6, prior=(0.25, 0.25, 0.25, 0.25)),
    "noise with gold": crowd(200, 6, 6, [0.25] * 6, gold=60, prior=(0.25, 0.25, 0.25, 0.25)),
    "one label each": crowd(80, 5, 1, [0.8] * 5),
    "one person": crowd(40, 1, 1, [0.8], gold=25),
    "one class": [(f"i{item}", f"w{who}", "cat", "") for item in range(30) for who in range(3)],
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Rows], Path]:
    def make(rows: Rows) -> Path:
        lines = ["item,annotator,label,gold", *(",".join(row) for row in rows)]
        path = tmp_path / "crowd.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return make


def content(path: Path) -> Any:
    return gather(from_export(path, read(path)), budget=20)


@pytest.mark.parametrize("name", CROWDS)
def test_aggregate_json_and_report_show_the_same_figures(cli: Any, write: Any, name: str) -> None:
    path = write(CROWDS[name])
    printed = cli("aggregate", path, "-o", "labels.csv").output
    found = json.loads(cli("aggregate", path, "-o", "labels.csv", "--json").stdout)
    page = content(path)
    worth, shown = found["worth"], page.worth

    assert worth["evidence"]["kind"] == shown.evidence.kind
    assert worth["why"] == shown.why
    assert shown.why in printed
    for share in ("right", "estimated", "measured", "majority"):
        theirs, ours = worth[share], getattr(shown, share)
        assert (theirs is None) == (ours is None), share
        if ours is not None:
            assert [theirs[end] for end in ("share", "low", "high")] == pytest.approx([ours.share, ours.low, ours.high])
            assert theirs["items"] == ours.items
    if shown.right is not None:
        right, low, high = (f"{value:.1%}" for value in (shown.right.share, shown.right.low, shown.right.high))
        assert f"{right} of the labels, between {low} and {high}" in printed
        assert str(shown.yardstick) in printed
        assert worth["yardstick"]["share"] == pytest.approx(shown.yardstick.share)
        assert page.overview["headline"][0]["figure"].startswith(f"{shown.right.share:.0%}")
    else:
        assert "right        unknown. " in printed
        assert not re.search(r"[0-9]% of the labels", printed)

    ties, differing = worth["votes"]["tied"], worth["votes"]["differing"]
    assert (found["figures"]["ties"], found["figures"]["changed"]) == (ties, differing)
    assert (page.overview["method"]["tied"], page.overview["method"]["differs"]) == (ties, differing)
    assert re.search(rf"changed +{differing:,} of ", printed)
    assert re.search(rf"ties +{ties:,} of ", printed)
    for row in page.overview["accuracy"]:
        ours = shown.majority if row["name"] == "majority-vote" else shown.measured
        assert row["share"] == pytest.approx(ours.share)


@pytest.mark.parametrize("name", CROWDS)
def test_annotators_have_the_same_skill_everywhere(cli: Any, write: Any, name: str) -> None:
    path = write(CROWDS[name])
    cli("aggregate", path, "-o", "labels.parquet")
    beside = {row["annotator"]: row for row in pq.read_table("labels-annotators.parquet").to_pylist()}
    found = json.loads(cli("annotators", path, "--json").stdout)
    by_verb = {row["annotator"]: row for row in found["table"]}
    verdicts = {person["name"]: person["verdict"] for person in found["people"]}
    page = content(path)
    assert page.annotators["comparable"] == found["evidence"]["enough"]
    for row in page.annotators["rows"]:
        skills = [table[row["name"]]["annotator_quality"] for table in (beside, by_verb)]
        assert skills[0] == pytest.approx(skills[1])
        if found["evidence"]["enough"]:
            assert row["skill"] == pytest.approx(skills[0], abs=0.0005)
        else:
            assert skills[0] is None
        assert row.get("verdict") == verdicts.get(row["name"])


@pytest.mark.parametrize("name", ["good", "noise", "one class"])
def test_a_streamed_table_has_the_figures_of_one_in_memory(cli: Any, write: Any, name: str) -> None:
    cli("convert", write(CROWDS[name]), "crowd.parquet")
    found = [
        json.loads(cli("aggregate", "crowd.parquet", "-o", "o.csv", "-m", "dawid-skene", *words, "--json").stdout)
        for words in (["--no-stream"], ["--stream"])
    ]
    memory, disk = (each["worth"] for each in found)
    assert disk["evidence"]["kind"] == memory["evidence"]["kind"]
    assert disk["votes"] == memory["votes"]
    assert (disk["right"] is None) == (memory["right"] is None) == (name != "good")
    if memory["right"] is not None:
        for end in ("share", "low", "high"):
            assert disk["right"][end] == pytest.approx(memory["right"][end], abs=1e-6)


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")  # after a few epochs
def test_the_demo_and_its_report_count_right_votes_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ties are shared in both: counted as half right, or as votes of a share, they differed by ten points."""
    from crowdwise.report import content as pages
    from crowdwise.tasks import demo

    kept: list[Any] = []
    real = pages.gather

    def gathering(*arguments: Any, **options: Any) -> Any:
        kept.append(real(*arguments, **options))
        return kept[-1]

    monkeypatch.setattr(pages, "gather", gathering)
    found = demo.demonstrate(tmp_path, quick=True)
    rows = {row["name"]: row["share"] for row in kept[0].overview["accuracy"]}
    assert rows["majority-vote"] == pytest.approx(found.votes_right)
    assert rows["taidtm"] == pytest.approx(found.methods["taidtm"]["labels_right"])
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["votes_right"] == found.votes_right


def test_grades_are_a_scale_in_report_and_aggregate(cli: Any, write: Any) -> None:
    rng = np.random.default_rng(3)
    grades = np.array(["none", "mild", "moderate", "severe"])
    truth = rng.integers(0, 4, 100)
    said = np.clip(truth[:, None] + np.rint(rng.normal(0, 0.8, (100, 4))).astype(int), 0, 3)
    path = write([(f"i{item}", f"w{who}", grades[said[item, who]], "") for item in range(100) for who in range(4)])
    order = "none < mild < moderate < severe"
    printed = cli("aggregate", path, "-o", "labels.csv").output
    found = json.loads(cli("aggregate", path, "-o", "labels.csv", "--json").stdout)
    assert order in printed
    assert f"Krippendorff's alpha {found['ordinal_alpha']:.3f} as a scale" in printed
    assert found["ordinal_alpha"] > found["figures"]["alpha"] + 0.2
    page = json.loads(cli("report", path, "-o", "page.html", "--json").stdout)
    assert page["worth"]["near"] == pytest.approx(found["worth"]["near"])
    assert any(order in warning for warning in page["warnings"])
    plain = json.loads(cli("report", path, "-o", "page.html", "--ordered", "no", "--json").stdout)
    assert plain["worth"]["near"] is None


def test_gold_that_a_method_was_told_is_no_estimate(cli: Any, write: Any) -> None:
    """With gold for every item, a method is certain of all; what agreement says is another number."""
    path = write(crowd(90, 6, 3, [0.9, 0.8, 0.7, 0.7, 0.6, 0.5], gold=90))
    worth = json.loads(cli("aggregate", path, "--gold-column", "gold", "-o", "labels.csv", "--json").stdout)["worth"]
    assert worth["right"] == worth["measured"]
    assert 0.6 < worth["estimated"]["share"] < 0.99
