"""What a report says first."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from crowdwise.annotations import Annotations
from crowdwise.report import render_page as page_html
from crowdwise.report.content import compared, comparison, gather
from crowdwise.report.source import Source
from report_crowds import crowd


def findings(source: Source, **options: float) -> dict[str, dict[str, str]]:
    """By the section of the evidence, or by the first word for annotators."""
    page = gather(source, budget=30, **options)  # type: ignore[arg-type]
    return {f"{each['section']} {each['figure']}": each for each in page.overview["headline"]}


def section(found: dict[str, dict[str, str]], start: str) -> dict[str, str]:
    return next(each for name, each in found.items() if name.startswith(start))


def test_accuracy_is_measured_where_truth_is_known_and_promised_with_a_wide_interval_elsewhere() -> None:
    source = crowd(200)
    measured = section(findings(source), "overview")
    assert measured["title"] == "of the labels are right"
    assert "Measured on 200 items with a true label" in measured["words"]
    blind = section(findings(dataclasses.replace(source, truth=None)), "overview")
    assert blind["title"] == "of the labels are expected to be right"
    assert "not checked against true labels" in blind["words"]
    few = np.full(200, -1, np.int32)
    few[:5] = source.truth[:5]  # type: ignore[index]
    assert (
        "of 5 items with a true label are right; 20 are needed"
        in section(findings(dataclasses.replace(source, truth=few)), "overview")["words"]
    )


def test_relabelling_the_most_doubtful_helps() -> None:
    source = crowd(200)
    for each in (source, dataclasses.replace(source, truth=None)):
        found = findings(each)
        now, then = (float(section(found, name)["figure"].rstrip("%")) for name in ("overview", "items"))
        assert now < then <= 100
        assert section(found, "items")["title"] == "if the 20 most doubtful items are relabelled"


def test_good_annotators_are_asked_more_and_guessers_no_longer() -> None:
    rng = np.random.default_rng(0)
    n, skill = 600, np.array([0.97, 0.82, 0.8, 0.8, 0.8, 0.8, 0.5])  # the last one guesses
    truth = rng.integers(2, size=n)
    votes = np.where(rng.random((n, 7)) < skill, truth[:, None], 1 - truth[:, None])
    names = ["ann", "bob", "cem", "dea", "eli", "fay", "guesser"]
    annotations = Annotations.from_triples(
        np.repeat(np.arange(n), 7), np.tile(np.arange(7), n), votes.ravel(), annotators=names, classes=["no", "yes"]
    )
    found = findings(Source("crowd", annotations))
    assert section(found, "annotators Ask more")["title"].startswith("“ann”")
    assert section(found, "annotators Stop asking")["title"] == "“guesser”"
    kinds = np.array(["model", *["person"] * 6])
    found = findings(Source("crowd", annotations, kinds=kinds))
    assert not any("“ann”" in each["title"] for name, each in found.items() if name.startswith("annotators"))


def test_the_two_classes_that_are_confused_are_named() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=400)
    label = np.repeat(truth, 5)
    confused = (label < 2) & (rng.random(len(label)) < 0.25)
    label = np.where(confused, 1 - label, label)
    annotations = Annotations.from_triples(
        np.repeat(np.arange(400), 5), np.tile(np.arange(5), 400), label, classes=["cat", "lynx", "dog", "owl"]
    )
    assert section(findings(Source("x", annotations)), "annotators Confused")["title"] == "“cat” and “lynx”"


def test_further_labels_have_a_price_where_it_is_given() -> None:
    assert "for" not in section(findings(crowd()), "next")["title"]
    assert section(findings(crowd(), cost=0.5), "next")["title"] == "right labels expected from 30 more, for 15.00"


def alone(n: int = 150, **options: Any) -> Source:
    """One annotator, with labels that nothing can be compared with."""
    rng = np.random.default_rng(0)
    annotations = Annotations.from_triples(
        np.arange(n), np.zeros(n, int), rng.integers(2, size=n), annotators=["ann"], classes=["ok", "fraud"]
    )
    return Source("payments", annotations, timestamps=np.arange(float(n)), **options)


def test_where_nothing_can_be_compared_nothing_is_made_up() -> None:
    page = gather(alone(), cost=0.5)
    unknown, twice = page.overview["headline"]
    assert unknown["figure"] == "Unknown"
    assert "All labels come from one annotator" in unknown["words"]
    assert twice["title"] == "100 items, drawn at random, for 50.00"
    assert page.overview["confidence"] == []
    assert page.annotators["rows"] == [{"name": "ann", "labels": 150, "seconds": 1.0}]
    assert page.annotators["comparable"] is False
    assert not page.map
    assert not page.next
    assert page.items["rows"][0]["id"] == "0"  # as in the file
    assert {row["doubt"] for row in page.items["rows"]} == {None}
    assert {row["likely"][0][1] for row in page.items["rows"]} == {None}
    assert "%" not in json.dumps(page.overview)
    told = page_html(page)
    assert "Skill cannot be estimated" in told
    assert 'id="chart-skills"' not in told


def test_several_annotators_who_share_no_item_are_not_compared_either() -> None:
    split = Annotations.from_triples(np.arange(60), np.arange(60) % 3, np.arange(60) % 2)
    assert gather(Source("split", split)).overview["headline"][0]["figure"] == "Unknown"
    once = Annotations.from_triples([*range(60), 0], [*(np.arange(60) % 3), 1], [*(np.arange(60) % 2), 0])
    first = gather(Source("once", once)).overview["headline"][0]
    assert first["words"].startswith("Too few items have labels from two annotators")
    items, twice = np.arange(60), np.arange(30)
    shared = Annotations.from_triples(
        [*items, *twice], [*(items % 3), *((twice + 1) % 3)], [*(items % 2), *(twice % 2)]
    )
    assert gather(Source("shared", shared)).overview["headline"][0]["figure"] != "Unknown"


def test_where_nothing_can_be_compared_truth_measures() -> None:
    source = alone()
    truth = np.full(150, -1, np.int32)
    truth[:5] = 0
    few = gather(dataclasses.replace(source, truth=truth)).overview["headline"][0]
    assert "of 5 items with a true label are right; 20 are needed to measure" in few["words"]
    label = source.annotations.label
    truth[:40] = np.where(np.arange(40) < 30, label[:40], 1 - label[:40])
    page = gather(dataclasses.replace(source, truth=truth))
    first = page.overview["headline"][0]
    assert (first["figure"], first["title"]) == ("75%", "of the labels are right")
    assert "Measured on 40 items" in first["words"]
    assert [each["section"] for each in page.overview["headline"]] == ["overview", "annotators"]
    assert page.overview["headline"][1]["figure"] == "Confused"
    row = page.annotators["rows"][0]
    assert (row["skill"], row["low"] < 0.75 < row["high"]) == (0.75, True)
    assert "matrix" not in row


@pytest.mark.parametrize("votes", [[["a", "a"], ["a", "a"]], [["a", None], [None, "b"]]])
def test_crowds_that_tell_nothing_have_a_page_all_the_same(votes: list[list[str | None]]) -> None:
    page = gather(Source("x", Annotations.from_dense(votes)))
    if votes[0][1] == "a":
        assert page.overview["headline"] == []
        assert page.overview["warnings"] == [
            "All labels are the same class, so there is nothing to compare. Check that no rows were lost in reading."
        ]


def test_methods_without_truth_are_compared_by_what_there_is() -> None:
    records = [
        {"column": "mine", "row": row, "heldout_log_likelihood": value, "heldout_agreement": 0.5}
        for row, value in (("ce", -0.7), ("ce", -0.9), ("concord", -0.4))
    ]
    rows = {row["row"]: row for row in comparison(records)}
    assert rows["ce"]["mean"] == -0.8
    assert rows["ce"]["metric"] == "log-likelihood of held-out labels"
    assert compared(records).startswith("From 3 runs. There is no truth to compare with")
    both = [*records, {"column": "digits", "row": "ce", "test_accuracy": 90.0, "heldout_log_likelihood": -0.1}]
    assert {row["metric"] for row in comparison(both)} == {"test accuracy, %", "log-likelihood of held-out labels"}
    assert compared([*both, {"column": "digits", "row": "x", "error": "no"}]) == "From 4 runs; 1 failed."
