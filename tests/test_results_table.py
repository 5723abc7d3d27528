"""The documents' tables are those of the records, and say what the records do not show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import load_script

ROOT = Path(__file__).parents[1]
results_table = load_script("results_table")


def record(seed: int = 0, accuracy: float = 90.0, **parameters: Any) -> dict[str, Any]:
    return {
        "dataset": "fashion-mnist",
        "method": "taidtm",
        "seed": seed,
        "simulate": {"noise_rate": 0.5},
        "parameters": {"epochs": 60} | parameters,
        "test_accuracy": accuracy,
        "seconds": 100.0 + seed,
        "median_epoch_seconds": {"warm-up": 1.0, "correction": 2.0 + seed},
        "device": "cpu x2",
    }


def write(folder: Path, *records: dict[str, Any], name: str = "some.jsonl") -> Path:
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in records))
    return folder


def rows(folder: Path, table: str = "accuracy") -> list[str]:
    return [line for line in results_table.tables(folder)[table].splitlines() if line.startswith("| Fashion-MNIST")]


@pytest.mark.parametrize(
    ("name", "tables", "first"),
    [
        ("README.md", 1, "own_overview"),
        ("docs/results.md", 22, "overview"),
        ("docs/taidtm.md", 3, "heads"),
        ("docs/reliability.md", 1, "soak"),
        ("docs/text.md", 1, "texts"),
        ("docs/tables.md", 1, "tables"),
    ],
)
def test_documents_equal_what_the_script_prints(name: str, tables: int, first: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text.count("<!-- results: ") == text.count("<!-- end of results -->") == tables
    made = results_table.tables()
    assert results_table.filled(text, made) == text, "run: python benchmarks/results_table.py --write"
    assert made[first] in text


def test_without_records_every_cell_says_so(tmp_path: Path) -> None:
    table = results_table.tables(tmp_path / "nowhere")["accuracy"]
    assert (
        table.count("not run") == len(table.splitlines()) - 2 == len(results_table.ALWAYS) * len(results_table.SETTINGS)
    )


def test_pictures_with_plain_defaults_come_from_bench_too_and_a_seed_counts_as_it_was_run_last(tmp_path: Path) -> None:
    def own(seed: int, accuracy: float) -> dict[str, Any]:
        figures = {"labels_right": 97.0, "claimed": 96.0, "calibration_error": 0.01, "seconds": 50.0}
        return {
            "method": "concord",
            "seed": seed,
            "parameters": {"backbone": "resnet18"},
            "test_accuracy": accuracy,
        } | figures

    (tmp_path / "own_data").mkdir()
    older = [own(seed, 90.0 + seed) | {"data": "cifar10-40", "device": "cuda"} for seed in (0, 1)]
    write(tmp_path / "own_data", *older)
    of_bench = {
        "experiment": "recommended",
        "row": "Concord",
        "dataset": "cifar10",
        "data": {"name": "cifar10"},
        "all_parameters": {"recipe": "auto"},
    }
    write(tmp_path, own(1, 94.5) | of_bench | {"simulate": {"noise_rate": 0.4}})
    table = results_table.tables(tmp_path)["own_pictures"].splitlines()
    assert table[2:] == [
        "| CIFAR-10, AIDN-40 % | Concord | resnet18 | 90.00, 94.50 | 97.0, 97.0 | 96.0, 96.0 | 0.010, 0.010 | 50, 50 |"
    ]


def test_one_seed_and_short_training_are_marked(tmp_path: Path) -> None:
    write(tmp_path, record(accuracy=91.234, epochs=20, lr=0.05))
    assert (
        "| Fashion-MNIST, AIDN-50 % | TAIDTM | 91.23 |  | 89.62 ± 0.94 | **1 seed**; **20 epochs instead of 60**; "
        "lr 0.05 instead of 0.01 |" in rows(tmp_path)
    )


def test_a_last_stage_that_was_run_again_is_told(tmp_path: Path) -> None:
    twice = record(1, 80.0, lr=0.05) | {"stage_seconds": {"correction": 1.0, "correction, slower": 1.0}}
    write(tmp_path, record(0, 90.0, lr=0.05), twice)
    (row,) = [row for row in rows(tmp_path) if "AIDN-50 % | TAIDTM |" in row]
    assert "lr 0.05 instead of 0.01; again at lr 0.01, seed 1 |" in row


def test_schedules_are_not_averaged_with_each_other(tmp_path: Path) -> None:
    write(tmp_path, record(0, 80.0), record(1, 90.0, epochs=20), record(2, 92.0, epochs=20))
    found = [row.split(" | ")[2] for row in rows(tmp_path) if "AIDN-50 % | TAIDTM |" in row]
    assert found == ["80.00", "90.00, 92.00"]


def test_three_seeds_have_mean_and_standard_deviation(tmp_path: Path) -> None:
    write(tmp_path, record(0, 88.0), record(1, 90.0), record(2, 92.0))
    assert "| Fashion-MNIST, AIDN-50 % | TAIDTM | 90.00 ± 2.00 |  | 89.62 ± 0.94 | 3 seeds |" in rows(tmp_path)


def test_times_show_their_range(tmp_path: Path) -> None:
    write(tmp_path, record(0), record(1))
    assert rows(tmp_path, "speed") == [
        "| Fashion-MNIST, AIDN-50 % | TAIDTM | CPU | 60 | 1.00 | 2.00 to 3.00 | 100.0 to 101.0 |  |"
    ]


def bench(row: str, seed: int = 0, **fields: Any) -> dict[str, Any]:
    """A record as `crowdwise bench run` writes it."""
    place = {"experiment": "table1", "column": "F-MNIST|AIDN-50%", "row": row, "cell": f"{row}-{seed}", "sharing": 1}
    return record(seed) | place | fields


def test_records_of_bench_run_are_called_by_their_rows(tmp_path: Path) -> None:
    write(tmp_path, bench("TAIDTM"), bench("Max-MIG", method="max-mig"), bench("TAIDTM w/ GAT", seed=1))
    found = [row.split(" | ")[1] for row in rows(tmp_path) if "not run" not in row]
    assert found == ["Max-MIG", "TAIDTM", "TAIDTM w/ GAT"]  # the paper's order, then others


def test_accuracy_at_the_best_agreement_stands_beside_that_of_the_last_epoch(tmp_path: Path) -> None:
    write(tmp_path, bench("GCE", method="gce", test_accuracy=70.0, test_accuracy_at_best_agreement=89.5))
    assert "| Fashion-MNIST, AIDN-50 % | GCE | 70.00 | 89.50 | 74.70 ± 2.47 | **1 seed** |" in rows(tmp_path)


def test_runs_that_shared_a_device_have_no_speed(tmp_path: Path) -> None:
    write(tmp_path, bench("CE", method="ce", sharing=4), bench("GCE", method="gce"))
    assert [row.split(" | ")[1] for row in rows(tmp_path, "speed")] == ["GCE"]
    assert any("| CE | 90.00 |" in row for row in rows(tmp_path))


def test_failed_runs_count_nowhere(tmp_path: Path) -> None:
    failed = {key: value for key, value in bench("CE", method="ce", error="killed").items() if key != "test_accuracy"}
    write(tmp_path, failed)
    assert all("not run" in row for row in rows(tmp_path))


def test_the_overview_has_a_row_for_each_method_and_stars_what_is_no_reproduction(tmp_path: Path) -> None:
    write(tmp_path, bench("GCE", method="gce"), *(bench("TAIDTM", seed) for seed in range(3)))
    overview = results_table.tables(tmp_path)["overview"].splitlines()
    cells = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1] for line in overview[2:]}
    assert list(cells) == ["CE", "GCE", "BLTM", "TAIDTM-FT", "TAIDTM"]
    assert cells["GCE"] == r"90.00\* (74.70 ± 2.47)"
    assert cells["TAIDTM"] == "90.00 ± 0.00 (89.62 ± 0.94)"
    assert cells["CE"] == "not run (68.12 ± 1.36)"


def test_figures_that_the_paper_printed_twice_are_marked() -> None:
    assert results_table.figure("LabelMe", "TAIDTM-FT") == "85.36 ± 0.78 †"
    assert results_table.figure("LabelMe", "GeoCrowdNet") == "no figure"


def test_the_forms_of_heads_stand_side_by_side(tmp_path: Path) -> None:
    case = {"benchmark": "annotators", "annotators": 3000, "features": 16, "backbone": "mlp", "device": "cpu x2"}
    measured = {"ms_per_step": 5.94, "memory_gb": 0.1, "ratio": 1.0}
    write(
        tmp_path, case | measured | {"heads": "factored"}, case | {"heads": "full", "left_out": "full heads do not fit"}
    )
    made = results_table.tables(tmp_path)
    assert "| cpu x2 | 16 | 3,000 | does not fit | 5.9 ms, 0.10 GB |  |" in made["heads"]
    assert "3,000" not in made["annotators"]  # which is of another network


def test_trials_stay_out_of_the_accuracy_table(tmp_path: Path) -> None:
    write(tmp_path, record(accuracy=12.34), name="some_trials.jsonl")
    made = results_table.tables(tmp_path)
    assert "12.34" not in made["accuracy"]
    assert "12.34" in made["trials"]


def test_truth_inference_stands_beside_crowd_kit(tmp_path: Path) -> None:
    one = {"benchmark": "aggregation accuracy", "set": "birds", "method": "kos", "accuracy": [80.0, 81.0]}
    errors = {"calibration_error": 0.1, "calibration_error_calibrated": 0.05}
    crowds = {
        "benchmark": "aggregation accuracy",
        "set": "simulated: even",
        "accuracy": [80.0, 90.0],
        "gain": [0.0, 0.0],
    }
    kit = {"method": "dawid-skene", "gain": [1.0, -1.0], "crowd_kit": [79.0, 90.0]}
    write(tmp_path, one | errors | {"crowd_kit": [70.0]}, crowds | {"method": "majority-vote"}, crowds | kit)
    made = results_table.tables(tmp_path)
    assert "| kos | 80.50 (70.00) | 80.50 | 10.0 / 5.0 |" in made["inference"]
    assert "| even | 85.00 | 0.00 (-1.0) | -0.50 (-1.0) |" in made["simulated_crowds"]


def test_a_seed_that_was_recorded_twice_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, record(3), record(3))
    with pytest.raises(SystemExit, match="seed 3 is recorded twice"):
        results_table.tables(tmp_path)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text('{"dataset": ')
    with pytest.raises(SystemExit, match=r"some\.jsonl, line 1 is not JSON"):
        results_table.tables(tmp_path)


def test_unknown_tables_are_named() -> None:
    with pytest.raises(SystemExit, match="unknown table 'nonsense'"):
        results_table.filled("<!-- results: nonsense -->\n<!-- end of results -->", {"accuracy": ""})
