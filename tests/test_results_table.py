"""The documents' tables are those of the records, and say what the records do not show."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
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
        ("docs/results.md", 33, "never_run"),
        ("docs/taidtm.md", 2, "heads"),
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


PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_the_commits_on_the_page_are_those_of_the_records() -> None:
    if not results_table.paper_tables.has_history(ROOT):
        pytest.skip("the history of the repository is not here")
    assert "<!-- measured at -->" in PAGE
    assert results_table.with_commits(PAGE) == PAGE, "run: python benchmarks/results_table.py --write"


def test_code_that_changed_since_a_commit_is_noticed(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    changed = results_table.paper_tables.has_changed
    module = tmp_path / "src" / "crowdwise" / "engine" / "loop.py"
    module.parent.mkdir(parents=True)
    module.write_text("a = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "src" / "crowdwise" / "cli.py").write_text("b = 1\n")
    git("add", ".")
    git("commit", "-qm", "two")
    assert not changed(tmp_path, commit[:7])  # no run depends on the command line
    module.write_text("a = 2\n")
    assert changed(tmp_path, commit[:7])
    assert changed(tmp_path, "")


def rows_of(name: str) -> list[list[str]]:
    """The cells of a table on the page, without its head."""
    text = PAGE.partition(f"<!-- results: {name} -->")[2].partition("<!-- end of results -->")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()[2:]]


def value_of(text: str) -> float:
    """The mean of a cell: before its spread, or of the values it lists."""
    return statistics.fmean(float(part) for part in text.partition(" ±")[0].split(", "))


def on_page() -> dict[tuple[str, str], float]:
    """Mean accuracy by data and method: the first of each, which is that of the longest training and most seeds."""
    found: dict[tuple[str, str], float] = {}
    for data, method, ours, *_ in rows_of("accuracy"):
        if ours != "not run":
            found.setdefault((data, method), value_of(ours))
    return found


def test_who_is_ahead_of_taidtm_is_what_the_table_of_accuracies_says() -> None:
    accuracy, told = on_page(), {row[0]: row[3] for row in rows_of("leaders")}
    assert len(told) > 5
    for data, text in told.items():
        own = accuracy[data, "TAIDTM"]
        ahead = {name for (place, name), value in accuracy.items() if place == data and value > own + 0.005}
        named = {part.rpartition(" ")[0] for part in text.split(", ")} if text != "none" else set()
        assert named == ahead, data


def test_figures_that_differ_from_the_papers_are_all_listed_and_no_others() -> None:
    told = {(row[0], row[1]) for row in rows_of("far_off")}
    far = set()
    for data, method, ours, _, printed, runs in rows_of("accuracy"):
        if ours == "not run" or printed == "no figure" or "epochs instead" in runs:
            continue
        theirs, spread = (float(part) for part in printed.removesuffix(" †").split(" ± "))
        if (data, method) in on_page() and abs(value_of(ours) - theirs) > 2 * max(spread, 0.5) + 0.006:
            far.add((data, method))
    assert {place for place in far if place not in told} <= {("Fashion-MNIST, AIDN-50 %", "DL-DS"), HARD}
    assert told <= far | told


HARD = ("Fashion-MNIST, AIDN-50 %", "DL-IBCC")  # whose older runs, on hard labels, stand in the table too

SENTENCES = [
    (r"CE \((\d+\.\d) and (\d+\.\d)\) lies around", [("SVHN, AIDN-50 %", "CE", 2)]),
    (r"TAIDTM is (\d\.\d) points below the paper's figure", [("CIFAR-10N", "TAIDTM", -1)]),
    (r"BLTM (\d\.\d) below, TAIDTM-FT as printed", [("CIFAR-10N", "BLTM", -1)]),
    (r"CE is (\d\.\d) above the paper's", [("CIFAR-10N", "CE", 1)]),
]


@pytest.mark.parametrize(("pattern", "places"), SENTENCES, ids=[str(sentence[1][0][:2]) for sentence in SENTENCES])
def test_a_sentence_on_results_says_what_its_table_says(pattern: str, places: list[tuple[str, str, int]]) -> None:
    found = re.search(pattern, PAGE)
    assert found is not None, f"the sentence is gone: {pattern}"
    ((data, method, sign),) = places
    ours, printed = next((row[2], row[4]) for row in rows_of("accuracy") if row[:2] == [data, method])
    if sign == 2:  # the values themselves
        assert sorted(found.groups()) == sorted(f"{float(part):.1f}" for part in ours.split(", "))
    else:
        difference = value_of(ours) - float(printed.partition(" ±")[0])
        assert f"{sign * difference:.1f}" == found[1]


def test_sentences_made_from_records_follow_them() -> None:
    tables = results_table.paper_tables
    runs = [{"edge_precision_before": a, "edge_precision_after": b} for a, b in [(0.9, 0.95), (0.9, 0.8), (1.0, 1.0)]]
    text = tables.purifying([*runs, {"edge_precision_before": 0.5}])
    assert "In 3 runs" in text
    assert "in 1, lowered it in 1, and left it in 1; the largest loss is from 0.9000 to 0.8000" in text
    found = {(1, False): {"test_accuracy": 80.5}, (1, True): {"test_accuracy": 72.25}}
    assert "80.50 and 72.25 are 8.2 points apart" in tables.same_algorithm(found)
    assert "no record" in tables.same_algorithm({})


def test_the_lead_over_other_similarities_is_told_by_a_paired_test() -> None:
    def runs(row: str, *values: float) -> list[dict[str, Any]]:
        place = {"experiment": "table6", "column": "Music", "row": row, "parameters": {}}
        return [{**place, "seed": seed, "test_accuracy": value} for seed, value in enumerate(values)]

    jaccard = "TAIDTM w/ Jaccard label vectors (Kairam & Heer 2016)"
    cbcc = "TAIDTM w/ CBCC communities (Venanzi et al. 2014)"
    records = [*runs("TAIDTM", 70, 71, 72, 73), *runs(jaccard, 67, 68, 69.1, 70), *runs(cbcc, 71, 70, 73, 72)]
    told = results_table.paper_tables.lead_seen(records)
    assert "tells 1 of 2 differences from chance: Jaccard label vectors on Music (+2.98" in told
    assert "Its largest lead here is 2.98 points (Jaccard label vectors on Music)" in told


def test_the_papers_lead_over_other_similarities_is_larger_than_any_on_the_page() -> None:
    assert "the paper's lead of TAIDTM over other similarities is not seen at its size" in PAGE
    similarities = [row for row in rows_of("variants") if row[0] == "Table 6" and row[5]]
    assert len(similarities) == 6
    theirs = min(lead for _, lead in results_table.paper_tables.printed_leads())
    assert max(float(row[5]) for row in similarities) < theirs


def shown(table: str, data: str, method: str, column: int, number: int = 0) -> float:
    """A mean in the table of the page on results: the ``number``-th row of data and method."""
    found = [row[column] for row in rows_of(table) if row[:2] == [data, method]]
    return value_of(found[number])


ELSEWHERE = [
    (
        "docs/methods.md",
        r"reached (\d+\.\d) % instead of (\d+\.\d) %",
        [("accuracy", "Fashion-MNIST, AIDN-50 %", "DL-DS", 2, number) for number in (0, 1)],
    ),
    (
        "docs/methods.md",
        r"CE has (\d+\.\d) % with the paper's recipe and (\d+\.\d) % with that for pictures",
        [("accuracy", "CIFAR-10, AIDN-40 %", "CE", 2), ("own_pictures", "CIFAR-10, AIDN-40 %", "CE", 3)],
    ),
    (
        "README.md",
        r"Concord reaches (\d+\.\d) % and puts (\d+\.\d) % of the labels right",
        [("own_pictures", "CIFAR-10, AIDN-50 %", "Concord", column) for column in (3, 4)],
    ),
]


@pytest.mark.parametrize(("page", "pattern", "places"), ELSEWHERE)
def test_figures_in_sentences_of_other_pages_are_in_the_tables(page: str, pattern: str, places: list[Any]) -> None:
    found = re.search(pattern, (ROOT / page).read_text(encoding="utf-8"))
    assert found is not None, f"the sentence is gone from {page}: {pattern}"
    assert list(found.groups()) == [f"{shown(*place):.1f}" for place in places]


def test_what_is_said_to_help_and_to_harm_does_on_the_page() -> None:
    worth = {row[0]: float(row[1]) for row in rows_of("changes")}
    assert "On digits the start is what helps, and the rate alone harms" in PAGE
    for method in ("BLTM", "TAIDTM"):
        start = next(points for what, points in worth.items() if what.startswith(f"{method}: the sharpened start"))
        rate = next(points for what, points in worth.items() if what.startswith(f"{method}: rate 0.05"))
        assert start > 0 > rate
    assert worth["CrowdLayer: Adam in place of SGD"] > 5
