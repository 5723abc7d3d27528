"""`judges` gives no verdict that the labels cannot show; `route` asks nobody for what the file has as gold."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise import judges

Write = Callable[[Iterable[tuple[Any, ...]]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes rows of item, worker, label (and gold)."""

    def written(rows: Iterable[tuple[Any, ...]]) -> Path:
        rows = list(rows)
        path = tmp_path / "labels.csv"
        header = ["item", "worker", "label", "gold"][: len(rows[0])]
        path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
        return path

    return written


def verdict(cli: Any, path: Path) -> dict[str, Any]:
    model = json.loads(cli("judges", path, "--model", "gpt", "--json").stdout)["models"][0]
    return dict(model)


def test_a_model_cannot_replace_people_who_always_tie(cli: Any, write: Write) -> None:
    people = [(i, f"p{k}", "xy"[k % 2]) for i in range(60) for k in range(4)]
    path = write(people + [(i, "gpt", "xy"[i % 2]) for i in range(60)])
    output = cli("judges", path, "--model", "gpt").output
    assert "may replace a person" not in output
    assert "may label in place" not in output
    assert "people agree no more than by chance" in output
    assert verdict(cli, path)["passed"] is None


def test_a_single_class_shows_nothing(cli: Any, write: Write) -> None:
    path = write((i, who, "x") for i in range(60) for who in ("p0", "p1", "p2", "gpt"))
    output = cli("judges", path, "--model", "gpt").output
    assert "may replace a person" not in output
    assert "people gave a single class, 'x'" in output
    assert verdict(cli, path)["passed"] is None


def test_a_class_that_the_model_never_finds_is_named(cli: Any, write: Write) -> None:
    rare = [(i, f"p{k}", "y" if i % 25 == 0 else "x") for i in range(200) for k in range(4)]
    path = write(rare + [(i, "gpt", "x") for i in range(200)])
    output = cli("judges", path, "--model", "gpt").output
    assert "gpt finds hardly any of 'y' (0 of 8 found)" in output
    assert verdict(cli, path)["missed"] == [{"name": "y", "found": 0, "total": 8}]
    better = write(rare + [(i, "gpt", "y" if i % 50 == 0 else "x") for i in range(200)])
    assert verdict(cli, better)["missed"] == []


def test_gold_decides_which_classes_are_missed() -> None:
    """People find a class y that is none: by their consensus the model misses it, by gold it does not."""
    truth = np.repeat(["x", "y", "z"], [80, 4, 36])
    said = np.where(truth == "y", "x", truth)
    crowd = np.stack([truth, truth, truth, said], axis=1).tolist()
    found = judges.summary(crowd, models=[3]).models[0]
    assert [(each.name, each.found) for each in found.missed] == [("y", 0)]
    assert found.verdict == "may replace a person, but misses a class"
    wrong = {i: ("x" if label == "y" else label) for i, label in enumerate(truth)}
    assert judges.summary(crowd, wrong, models=[3]).models[0].missed == ()


def gold_crowd(gold: Callable[[int], bool]) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(1)
    rows = []
    for i in range(60):
        true = "ab"[i % 2]
        for k in range(3):
            label = true if rng.random() < 0.9 else "ab"[(i + 1) % 2]
            rows.append((f"i{i}", f"w{k}", label, true if gold(i) else ""))
    return rows


def test_nobody_is_asked_for_what_the_file_has_as_gold(cli: Any, write: Write, tmp_path: Path) -> None:
    options = ("--error", 0.3, "--sample", 40)
    output = cli("route", write(gold_crowd(lambda i: True)), "-o", "all.csv", *options).output
    assert "for people to label" not in output
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    assert len(rows) == 60
    assert {row["goes_to"] for row in rows} == {"answered"}
    assert all(row["label"] == "ab"[int(row["instance"][1:]) % 2] for row in rows)


def test_gold_of_some_spares_them(cli: Any, write: Write, tmp_path: Path) -> None:
    path, options = write(gold_crowd(lambda i: i % 3 == 0)), ("--error", 0.3, "--sample", 40)
    asked_of_all = cli("route", write(gold_crowd(lambda i: False)), "-o", "plain.csv", *options)
    everything = {row["instance"] for row in csv.DictReader((tmp_path / "plain.csv").open())}
    assert f"{len(everything)} instances drawn" in asked_of_all.output
    path = write(gold_crowd(lambda i: i % 3 == 0))
    output = cli("route", path, "-o", "ask.csv", *options).output
    asked = {row["instance"] for row in csv.DictReader((tmp_path / "ask.csv").open())}
    assert asked == {name for name in everything if int(name[1:]) % 3}
    assert f"gold has the classes of {len(everything - asked)} of the {len(everything)} instances" in output
    answers = [f"{name},{'ab'[int(name[1:]) % 2]}" for name in sorted(asked)]
    (tmp_path / "answers.csv").write_text("\n".join(["item,label", *answers]) + "\n")
    cli("route", path, "-o", "done.csv", "--answers", "answers.csv", *options)
    done = {row["instance"]: row["goes_to"] for row in csv.DictReader((tmp_path / "done.csv").open())}
    known = everything | {f"i{i}" for i in range(0, 60, 3)}
    assert {name for name, goes in done.items() if goes == "answered"} == known
    missing = cli(
        "route", write(gold_crowd(lambda i: False)), "-o", "d.csv", "--answers", "answers.csv", *options, code=1
    )
    assert f"{len(everything - asked)} of the {len(everything)} instances to ask for have no answer" in missing.output


def test_one_instance_is_no_instances(cli: Any, write: Write) -> None:
    path = write([("a", "w0", "x"), ("a", "w1", "x"), ("a", "w2", "x")])
    assert "1 instance drawn" in cli("route", path, "-o", "ask.csv").output


def test_noise_gives_models_no_share_and_routes_no_confidence(cli: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows = ["item,worker,label,kind"]
    for item in range(120):
        labels = rng.choice(list("abcd"), 6)
        rows += [f"{item},w{who},{label},{'model' if who < 2 else 'human'}" for who, label in enumerate(labels)]
    (tmp_path / "noise.csv").write_text("\n".join(rows))
    found = json.loads(cli("judges", tmp_path / "noise.csv", "--json").stdout)
    assert [model["people"] for model in found["models"]] == [None, None]
    assert found["dependence"] is None
    output = cli("route", tmp_path / "noise.csv", "-o", tmp_path / "ask.csv", "--sample", 30).output
    assert "Agreement is within chance" in output
    with (tmp_path / "ask.csv").open() as lines:
        asked = list(csv.DictReader(lines))
    assert 0 < len(asked) <= 30  # drawn with replacement
    assert {row["confidence"] for row in asked} == {""}
