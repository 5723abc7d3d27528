"""Reports of what `crowdwise compare` found."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from crowdwise.comparison import Comparison, Entry
from crowdwise.comparison.judge import Expectation
from crowdwise.errors import ModelFileError
from crowdwise.report import render_page
from crowdwise.tasks.observer import SILENT
from crowdwise.tasks.report import write_report
from crowdwise.tasks.report_source import Request, find


def found(**changes: Any) -> Comparison:
    entries = (
        Entry("concord", "Concord", 0.861, 0.012, 0.0, 0.0, False, 5, 3.2, ("did not settle",)),
        Entry("ce", "CE <b>", 0.5, 0.02, 0.361, 0.02, True, 2, math.nan),
    )
    kept = Comparison(
        entries,
        {"taidtm": "too few instances"},
        "concord",
        "Recommended: Concord, which has the highest score.",
        Expectation(0.9, 0.95, 0.88),
        "model = crowdwise.Concord().fit(X, annotations)",
        False,
        400,
        ("400 of 900 instances were drawn.",),
    )
    return dataclasses.replace(kept, **changes)


def saved(folder: Path, result: Comparison | None) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / "comparison.json").write_text("{}")
    if result is not None:
        result.save(folder)
    return find(Request(str(folder)), SILENT)


def test_a_comparison_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    for result in (found(), found(expected=Expectation(math.nan, math.nan, math.nan))):
        result.save(tmp_path)
        assert str(Comparison.load(tmp_path)) == str(result)


@pytest.mark.parametrize("damage", [{"entries": 3}, {"expected": None}, {"entries": [{}]}, {"failed": []}])
def test_a_damaged_result_is_named(tmp_path: Path, damage: dict[str, Any]) -> None:
    found().save(tmp_path)
    path = tmp_path / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(ModelFileError, match=r"result\.json is damaged"):
        Comparison.load(tmp_path)


def test_the_folder_of_a_comparison_is_a_report(tmp_path: Path) -> None:
    page = saved(tmp_path / "mine", found())
    assert page.ranking["columns"][1] == "Agreement with held-out labels, %"
    assert page.ranking["rows"][0][:2] == ["Concord", "86.1 ± 1.2"]
    html = render_page(page)
    for words in (
        "Recommended: Concord, which has the highest score.",
        "The classifier should be right on about 90% of new instances.",
        "it is not the share of right predictions",
        "no better than chance",
        "taidtm: failed: too few instances",
        "CE &lt;b&gt;",
    ):
        assert words in html
    assert "est accuracy" not in html.split("<script", 1)[0]


def test_accuracy_is_called_so_only_where_truth_was_the_judge(tmp_path: Path) -> None:
    page = saved(tmp_path / "mine", found(gold=True))
    assert page.ranking["columns"][1] == "Accuracy on items of known truth, %"
    assert page.ranking["warning"] == ""


def test_an_unfinished_comparison_says_how_to_finish_it(tmp_path: Path) -> None:
    page = saved(tmp_path / "mine", None)
    assert "has no result yet, only 0 fits. Repeat the command" in page.note
    assert "has no result yet" in render_page(page)


def test_a_benchmark_without_any_result_is_no_blank_page(tmp_path: Path) -> None:
    record = {"column": "mine", "row": "ce", "error": "out of memory"}
    (tmp_path / "records.jsonl").write_text(json.dumps(record) + "\n")
    written = write_report(Request(str(tmp_path)), tmp_path / "page.html")
    html = written.out.read_text("utf-8")
    assert "No run of this benchmark has a result to compare: From 0 runs; 1 failed. The first: out of memory" in html
