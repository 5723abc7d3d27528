"""What is missing of the paper's tables: found in records of any age, and never in those of other settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crowdwise.bench import coverage, paper
from crowdwise.bench.cells import Cell
from crowdwise.bench.experiments import load_experiment
from crowdwise.errors import ConfigError
from crowdwise.tasks import bench as tasks

Record = dict[str, Any]


def record_of(cell: Cell, /, **changed: Any) -> Record:
    parameters = {**cell.parameters, **changed.pop("parameters", {})}
    return {**cell.as_json(), "cell": cell.id, "dataset": cell.dataset, "parameters": parameters, **changed}


def cells_of(experiment: str, column: str, row: str, seeds: int = 3) -> list[Cell]:
    found = load_experiment(experiment).cells(seeds=range(seeds))
    return [cell for cell in found if (cell.column, cell.row) == (column, row)]


def entry(records: list[Record], experiment: str, column: str, row: str) -> coverage.TableEntry:
    found = coverage.entries(records, [experiment])
    (only,) = (each for each in found if (each.column, each.row) == (column, row))
    return only


def test_without_records_every_printed_figure_is_missing() -> None:
    found = coverage.entries([], coverage.TABLES)
    for number in paper.TITLES:
        printed = {
            (column, row)
            for column, rows in paper.printed(number).items()
            if not paper.is_average(column)
            for row in rows
        }
        ours = [each for each in found if each.experiment == f"table{number}"]
        assert {(each.column, each.row) for each in ours} == printed
        assert {each.lack for each in ours} == {"no record"}
    assert sum(each.experiment in coverage.TABLES[:3] for each in found) == 414


@pytest.mark.parametrize(
    ("experiment", "column", "row", "seeds"),
    [
        ("table1", "F-MNIST|AIDN-50%", "CE", 3),
        ("table3", "LabelMe", "CE", 50),
        ("table6", "Music", "TAIDTM", 50),
        ("table7", "CIFAR10|AIDN-40%|k=10", "TAIDTM w/ Graph Purifying", 1),
    ],
)
def test_an_entry_needs_as_many_seeds_as_the_paper_took(experiment: str, column: str, row: str, seeds: int) -> None:
    assert len(entry([], experiment, column, row).cells) == seeds


def test_the_lack_of_an_entry_follows_its_records() -> None:
    place = ("table1", "F-MNIST|AIDN-50%", "CE")
    cells = cells_of(*place)
    short = [record_of(cell, cell="other", parameters={"epochs": 20}) for cell in cells]
    full = [record_of(cell) for cell in cells]
    assert entry([], *place).lack == "no record"
    assert entry(short, *place).lack == "fewer epochs"
    assert entry([*short, full[1]], *place).lack == "too few seeds"
    assert [cell.seed for cell in entry([*short, full[1]], *place).missing] == [0, 2]
    assert entry(full, *place).lack == "complete"
    assert entry([{**each, "error": "it broke"} for each in full], *place).lack == "no record"


@pytest.mark.parametrize(
    "other",
    [
        {"data": {"name": "k-mnist"}},
        {"simulate": {"noise_rate": 0.1}},
        {"simulate": {"n_annotators": 300, "n_groups": 30, "labels_per_instance": 2.0, "noise_rate": 0.5}},
        {"parameters": {"lr": 0.05}, "all_parameters": {"lr": 0.05}},
        {"method": "gce"},
    ],
)
def test_a_record_of_other_settings_does_not_count(other: dict[str, Any]) -> None:
    place = ("table1", "F-MNIST|AIDN-50%", "CE")
    cells = [Cell(**{**cell.as_json(), "parameters": {**cell.parameters, "lr": 0.01}}) for cell in cells_of(*place)]
    assert all(coverage.is_run_of(cell, record_of(cell, cell="older")) for cell in cells)
    assert not any(coverage.is_run_of(cell, record_of(cell, cell="older", **other)) for cell in cells)


def test_an_older_record_counts_without_the_settings_that_it_does_not_name() -> None:
    (cell,) = cells_of("table1", "F-MNIST|AIDN-50%", "CE", seeds=1)
    older = {
        "dataset": "fashion-mnist",
        "method": "ce",
        "seed": 0,
        "simulate": {"noise_rate": 0.5},
        "parameters": {"backbone": "resnet18", "epochs": 60},
    }
    assert coverage.is_run_of(cell, older)
    assert not coverage.is_run_of(cell, {**older, "seed": 1})


def test_a_run_counts_at_every_table_that_it_stands_in() -> None:
    cells = cells_of("table3", "LabelMe", "TAIDTM", seeds=50)
    records = [record_of(cell) for cell in cells]
    for experiment in ("table3", "table4", "table6"):
        assert entry(records, experiment, "LabelMe", "TAIDTM").lack == "complete"


def test_runs_are_filled_in_order_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "absent", lambda entry: entry.column == "CIFAR10-N")
    records = [record_of(cells_of("table3", "LabelMe", "CE", seeds=1)[0])]
    found = coverage.entries(records, ["table3", "table4"])
    cells = coverage.to_fill(found, gpu=False)
    assert len({cell.id for cell in cells}) == len(cells)
    assert {cell.column for cell in cells} == {"LabelMe", "Music"}
    rows = [(cell.column, cell.row) for cell in cells]
    first_ce = rows.index(("LabelMe", "CE"))
    others = [place for place in rows if place != ("LabelMe", "CE")]
    assert first_ce == len(others)  # what has a record comes after all that has none
    assert [cell.seed for cell in cells[:first_ce]] == sorted(cell.seed for cell in cells[:first_ce])


def test_cells_of_residual_networks_are_left_to_a_gpu() -> None:
    found = coverage.entries([], ["table1"])
    assert not coverage.to_fill(found, gpu=False)


def test_data_that_are_not_here_are_in_a_list_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDWISE_DATA", str(tmp_path))
    monkeypatch.setenv("CROWDWISE_CACHE", str(tmp_path))
    entries = coverage.entries([], ["table8", "small-groups"])
    summary = tasks.summary_of(entries)
    lacks = {(row["experiment"], row["column"].split("|")[0]): row["lack"] for row in summary.rows}
    assert lacks[("table8", "ImageNet100")] == "no data"
    assert lacks[("small-groups", "digits")] == "no record"
    heading = next(at for at, line in enumerate(summary.lines) if line.startswith("The data are not on this machine"))
    assert any("ImageNet100|AIDN-40%" in line for line in summary.lines[heading:])
    assert not any("ImageNet100|AIDN-40%" in line for line in summary.lines[:heading])


def test_a_folder_of_records_is_read_but_for_trials(tmp_path: Path) -> None:
    (cell,) = cells_of("table3", "Music", "CE", seeds=1)
    for name in ("runs.jsonl", "some_trials.jsonl", "other.jsonl"):
        line = {"benchmark": "startup"} if name == "other.jsonl" else record_of(cell, name=name)
        (tmp_path / name).write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert [record["name"] for record in tasks.any_records(tmp_path)] == ["runs.jsonl"]
    with pytest.raises(ConfigError, match="there are no records"):
        tasks.any_records(tmp_path / "nowhere")


def test_an_unknown_experiment_is_named_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'table3'"):
        tasks.missing(out=tmp_path, experiments=["tabel3"])
