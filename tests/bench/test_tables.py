"""Tables say what the records say: means, who is best, what is missing, what failed, and what the paper prints."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from crowdwise.bench import paper
from crowdwise.bench.comparison import paired
from crowdwise.bench.rendering import plain, show, to_csv, to_latex, to_markdown, to_text, write
from crowdwise.bench.results import TableCell
from crowdwise.bench.selection import METRICS, select
from crowdwise.bench.tables import rank, summarise
from crowdwise.data.shares import holm
from crowdwise.errors import ConfigError, DataError

Run = dict[str, Any]


def run(row: str = "CE", seed: int = 0, accuracy: float | None = 90.0, **fields: Any) -> Run:
    return {
        "experiment": "mine",
        "column": "birds",
        "row": row,
        "seed": seed,
        "test_accuracy": accuracy,
        "parameters": {"epochs": 60, "lr": 0.01},
    } | fields


def runs(row: str, *accuracies: float, **fields: Any) -> list[Run]:
    return [run(row, seed, accuracy, **fields) for seed, accuracy in enumerate(accuracies)]


class TestSelection:
    def test_a_repeated_run_counts_once_with_its_last_success(self) -> None:
        repeated = [
            run(accuracy=80.0, cell="a"),
            run(accuracy=81.0, cell="a"),
            run(accuracy=None, cell="a", error="killed"),
        ]
        found = select(repeated)
        assert found.finished["birds", "CE"][0]["test_accuracy"] == 81.0
        assert not found.failed

    def test_the_same_seed_with_other_settings_is_refused(self) -> None:
        with pytest.raises(DataError, match="birds, CE: seed 0 was run with different settings"):
            select([run(cell="a"), run(cell="b")])
        with pytest.raises(DataError, match="different settings"):
            select([run(), run(parameters={"epochs": 20})])

    def test_one_experiment_at_a_time(self) -> None:
        both = [run(), run(experiment="other", accuracy=10.0)]
        with pytest.raises(DataError, match=r"several experiments \(mine, other\)"):
            summarise(both)
        assert summarise(both, experiment="other").cells["birds", "CE"].mean == 10.0
        with pytest.raises(DataError, match="no records of experiment 'third'"):
            summarise(both, experiment="third")
        with pytest.raises(DataError, match="there are no records"):
            summarise([])

    @pytest.mark.parametrize("name", ["experiment", "column", "row", "seed"])
    def test_other_records_are_refused(self, name: str) -> None:
        record = run()
        del record[name]
        with pytest.raises(DataError, match=f"record 2 has no {name}"):
            summarise([run("TAIDTM"), record])

    def test_unknown_metrics_are_named(self) -> None:
        with pytest.raises(ConfigError, match="did you mean 'test_accuracy'"):
            summarise([run()], "test_acuracy")


class TestStatistics:
    def test_paired_t_test_agrees_with_scipy(self) -> None:
        from scipy.stats import ttest_rel

        ours, theirs = [90.1, 91.4, 89.9, 92.0], [89.0, 91.5, 88.2, 90.7]
        result = paired(dict(enumerate(ours)), dict(enumerate(theirs)))
        assert result is not None
        assert result.p == pytest.approx(ttest_rel(ours, theirs).pvalue)
        assert result.difference == pytest.approx(sum(ours) / 4 - sum(theirs) / 4)

    def test_only_common_seeds_count(self) -> None:
        ours = {0: 1.0, 1: 2.0, 2: 4.0, 9: 100.0}
        assert paired(ours, {0: 0.0, 1: 2.0, 2: 3.0, 8: -100.0}) == paired(ours, {0: 0.0, 1: 2.0, 2: 3.0})
        assert paired(ours, {0: 0.0, 1: 2.0, 8: 3.0}) is None

    def test_differences_without_spread(self) -> None:
        same = {0: 90.0, 1: 91.0, 2: 92.5}
        assert paired(same, same) == (0.0, 1.0)
        result = paired(same, {seed: value - 0.1 for seed, value in same.items()})
        assert result is not None
        assert result.p == 0.0

    def test_holm_keeps_the_order_of_p_values_and_caps_them(self) -> None:
        assert holm(np.array([0.01, 0.04, 0.9])).tolist() == pytest.approx([0.03, 0.08, 0.9])
        assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]
        assert holm(np.array([])).tolist() == []


class TestSummary:
    def test_mean_and_standard_deviation_over_seeds(self) -> None:
        cell = summarise(runs("CE", 80.0, 82.0, 87.0)).cells["birds", "CE"]
        assert cell.mean == pytest.approx(83.0)
        assert cell.sd == pytest.approx(math.sqrt(13.0))
        assert summarise([run()]).cells["birds", "CE"].sd is None

    def test_best_and_what_cannot_be_told_from_it(self) -> None:
        table = summarise(
            runs("best", 90.0, 92.0, 91.0, 93.0) + runs("alike", 90.5, 91.0, 91.2, 92.0) + runs("far", 70, 73, 71, 72)
        )
        marks = {row: table.cells["birds", row].mark for row in table.rows}
        assert marks == {"best": "best", "alike": "like best", "far": ""}
        far = table.cells["birds", "far"]
        assert far.p is not None
        assert far.p_holm == pytest.approx(2 * far.p)

    def test_smaller_errors_are_better(self) -> None:
        records = [run("good", s, transition_error=0.05 + s / 1000) for s in range(3)]
        records += [run("bad", s, transition_error=0.2 + s / 900) for s in range(3)]
        table = summarise(records, "transition_error")
        assert [table.cells["birds", row].mark for row in ("good", "bad")] == ["best", ""]
        assert "Smaller is better" in to_text(table)

    def test_too_few_seeds_mark_nothing_and_say_so(self) -> None:
        table = summarise(runs("a", 90.0, 91.0) + runs("b", 80.0, 81.0, 82.0))
        assert {cell.mark for cell in table.cells.values()} == {""}
        assert any("Too few seeds to tell the best apart" in note and "birds" in note for note in table.notes)
        table = summarise(runs("a", 80.0, 81.0) + runs("b", 90.0, 91.0, 92.0))
        assert [table.cells["birds", row].mark for row in "ab"] == ["", "best"]
        assert any("not compared: a (birds)" in note for note in table.notes)

    def test_a_row_alone_is_not_called_best(self) -> None:
        table = summarise(runs("a", 90.0, 91.0, 92.0))
        assert table.cells["birds", "a"].mark == ""
        assert table.notes == ()

    def test_a_row_ahead_on_common_seeds_is_not_called_worse(self) -> None:
        lucky = [run("best", seed, value) for seed, value in enumerate((80.0, 81.0, 82.0, 99.0, 99.0, 99.0))]
        table = summarise(lucky + runs("other", 82.0, 83.01, 84.0))
        assert table.cells["birds", "best"].mark == "best"
        assert table.cells["birds", "other"].mark == "like best"

    def test_averages_over_columns(self) -> None:
        records = runs("a", 80.0, 82.0, column="birds|10%") + runs("a", 60.0, 61.0, 62.0, column="birds|20%")
        records += runs("b", 50.0, 50.0, column="birds|10%")
        table = summarise(records)
        assert [column.name for column in table.columns] == ["birds|10%", "birds|20%", "birds|Avg"]
        assert [column.label for column in table.columns] == ["10%", "20%", "Avg"]
        average = table.cells["birds|Avg", "a"]
        assert average.mean == pytest.approx(71.0)
        assert average.sd is None
        assert average.values == pytest.approx({0: 70.0, 1: 71.5})
        assert table.cells["birds|Avg", "b"] == TableCell(status="not run")

    def test_a_column_of_ones_own_may_be_called_avg(self) -> None:
        table = summarise([run(column="Avg"), run(column="birds")])
        assert [(column.name, column.average) for column in table.columns] == [("Avg", False), ("birds", False)]

    def test_missing_and_failed_runs_are_listed(self) -> None:
        records = runs("a", 80.0, 81.0, 82.0) + runs("b", 70.0) + [run("c", 1, None, error="CUDA out\nof memory")]
        table = summarise(records)
        assert table.not_run == ("birds: b (seeds 1-2), c (seeds 0, 2)",)
        assert table.failed == ("birds, c, seed 1: CUDA out\nof memory",)
        assert table.cells["birds", "c"].status == "failed"
        assert "Failed: birds, c, seed 1: CUDA out of memory" in to_text(table)

    def test_planned_runs_without_a_record_are_listed(self) -> None:
        plan = [(column, row, seed) for column in ("birds", "cats") for row in ("a", "b") for seed in (0, 1)]
        table = summarise(runs("a", 80.0), planned=plan)
        assert table.not_run == ("birds: a (seed 1), b", "cats: everything")

    def test_values_that_are_no_numbers_are_not_measured(self) -> None:
        table = summarise([run("a"), run("b", accuracy=float("nan")), run("c", accuracy=None)])
        assert table.rows == ("a",)
        assert table.notes == ("Not measured: b, c.",)

    def test_data_without_truth_are_sent_to_the_ranking(self) -> None:
        with pytest.raises(DataError, match=r"has test_accuracy; .* rank\(records\)"):
            summarise([run(accuracy=None, heldout_log_likelihood=-0.5)])
        with pytest.raises(DataError, match="they have seconds"):
            summarise([run(accuracy=None, seconds=5.0)])

    def test_experiments_of_failures_only_can_be_shown(self) -> None:
        table = summarise([run(accuracy=None, error="no GPU")])
        assert table.cells["birds", "CE"].status == "failed"
        assert "no GPU" in to_markdown(table)


def table3(row: str, column: str, *accuracies: float, **fields: Any) -> list[Run]:
    dataset = column.lower().replace("-", "")
    real = {"epochs": 50, "milestones": [], "weight_decay": 0.0}
    printed = {"recipe": "paper", "lr": 0.01} | (real if column != "CIFAR10-N" else {"epochs": 60})
    method = {"CE": "ce", "BLTM": "bltm", "TAIDTM": "taidtm", "Max-MIG": "max-mig"}.get(row, "mine")
    of = {"experiment": "table3", "column": column, "dataset": dataset, "method": method}
    return runs(row, *accuracies, **of, parameters=printed | fields)


MAX_MIG = ("adam 0.0001 instead of sgd 0.01", "batches of 64 instead of 128", "a constant rate")


class TestBesideThePaper:
    def test_printed_figure_and_difference(self) -> None:
        cell = summarise(table3("TAIDTM", "LabelMe", 86.0, 86.2, 86.4)).cells["LabelMe", "TAIDTM"]
        assert cell.printed == (86.68, 0.49)
        assert cell.difference == pytest.approx(-0.48)
        assert cell.near is True
        far = summarise(table3("TAIDTM", "LabelMe", 80.0)).cells["LabelMe", "TAIDTM"]
        assert far.near is False

    def test_other_metrics_have_no_printed_figures(self) -> None:
        records = [record | {"seconds": 3.0} for record in table3("TAIDTM", "LabelMe", 86.0)]
        assert summarise(records, "seconds").cells["LabelMe", "TAIDTM"].printed is None

    def test_conditions_that_differ_are_footnotes(self) -> None:
        records = table3("CE", "LabelMe", *[80.0] * 50) + table3("BLTM", "LabelMe", 85.0, 86.0, epochs=20, lr=0.05)
        table = summarise(records)
        assert table.cells["LabelMe", "CE"].departures == ()
        assert table.cells["LabelMe", "BLTM"].departures == (
            "20 epochs instead of 50",
            "lr 0.05 instead of 0.01",
            "2 seeds instead of 50",
        )
        text = to_text(table)
        assert "[a] 20 epochs instead of 50" in text
        assert "(n = 2)" in text

    @pytest.mark.parametrize(
        ("column", "row", "settings", "departures"),
        [
            ("CIFAR10-N", "CE", {}, ()),
            ("CIFAR10-N", "CE", {"weight_decay": 5e-4}, ("weight decay 0.0005 instead of 0.0001",)),
            ("CIFAR10-N", "CE", {"milestones": []}, ("a constant rate",)),
            ("CIFAR10-N", "CE", {"milestones": [30]}, ("drops after 30 epochs",)),
            ("CIFAR10-N", "CE", {"schedule": "cosine", "ema": 0.99}, ("schedule cosine", "averaged weights")),
            ("CIFAR10-N", "CE", {"augment": "crop", "mixup": 0.4}, ("augmentation", "mixup")),
            ("CIFAR10-N", "CE", {"networks": 5}, ("5 networks",)),
            ("CIFAR10-N", "Max-MIG", {"lr": 1e-4, "epochs": 60}, MAX_MIG),
            ("Music", "CE", {"backbone": "mlp", "backbone_options": {"dropout": 0.5}}, ("dropout 0.5",)),
            ("Music", "CE", {"optimiser": "adam", "lr": 1e-3}, ("adam 0.001 instead of sgd 0.01",)),
            ("Music", "TAIDTM", {"classifier_start": "warm-up"}, ("start warm-up",)),
            ("Music", "TAIDTM", {"classifier_start": "random"}, ()),
        ],
    )
    def test_footnotes_follow_from_the_whole_recipe(
        self, column: str, row: str, settings: dict[str, Any], departures: tuple[str, ...]
    ) -> None:
        enough = 50 if column == "Music" else 3
        (cell,) = (
            cell
            for place, cell in summarise(table3(row, column, *[80.0] * enough, **settings)).cells.items()
            if place == (column, row)
        )
        assert cell.departures == departures

    def test_conditions_that_differ_everywhere_are_said_once(self) -> None:
        table = summarise(table3("CE", "Music", 60.0) + table3("BLTM", "Music", 61.0))
        assert "Everywhere: 1 seed instead of 50." in table.notes
        assert all(cell.departures == () for cell in table.cells.values())

    def test_known_errors_of_the_paper_stand_at_their_figures(self) -> None:
        records = [r for column in ("LabelMe", "Music", "CIFAR10-N") for r in table3("BLTM", column, 80.0)]
        table = summarise(records)
        average = table.cells["Avg", "BLTM"]
        assert average.mean == pytest.approx(80.0)
        assert average.printed == (77.03, None)
        assert average.near is None
        assert "the mean of the three printed columns is 78.39, not 77.03" in to_markdown(table)

    def test_an_average_of_some_columns_has_no_printed_figure(self) -> None:
        table = summarise(table3("CE", "LabelMe", 80.0) + table3("CE", "Music", 60.0))
        average = table.cells["Avg", "CE"]
        assert average.mean == pytest.approx(70.0)
        assert average.printed is None
        assert average.departures == ("average of 2 of the paper's 3 columns",)

    def test_rows_and_columns_stand_in_the_papers_order(self) -> None:
        table = summarise(table3("mine", "Music", 60.0) + table3("TAIDTM", "Music", 69.0) + table3("CE", "LabelMe", 80))
        assert table.rows == ("CE", "TAIDTM", "mine")
        assert [column.name for column in table.columns] == ["LabelMe", "Music", "Avg"]
        assert "CIFAR10-N: everything" in table.not_run
        assert any(line.startswith("LabelMe: ") and "GCE" in line for line in table.not_run)

    def test_costs_say_where_they_were_measured(self) -> None:
        records = [r | {"seconds": 3.0, "device": "H200", "sharing": 2} for r in table3("CE", "Music", 60.0)]
        cell = summarise(records, "seconds").cells["Music", "CE"]
        assert cell.departures == ("on H200, sharing: 2", "1 seed instead of 50")
        own = summarise([record | {"experiment": "mine"} for record in records], "seconds")
        assert own.cells["Music", "CE"].departures == ("on H200, sharing: 2",)

    def test_every_table_can_be_made_and_written(self, tmp_path: Path) -> None:
        for number in paper.TITLES:
            records = [
                run(row, seed, figure[0] + seed / 10, experiment=f"table{number}", column=column)
                for column, rows in paper.printed(number).items()
                if not paper.is_average(column)
                for row, figure in rows.items()
                for seed in range(3)
            ]
            table = summarise(records)
            assert not table.not_run
            assert {column.name for column in table.columns} == set(paper.printed(number))
            for kind in ("md", "tex", "csv", "txt"):
                assert write(table, tmp_path / f"{number}.{kind}").stat().st_size > 200


class TestRanking:
    def records(self) -> list[Run]:
        quality = {"CE": (-0.9, 0.6), "TAIDTM": (-0.5, 0.8), "tied": (-0.7, 0.6)}
        return [
            run(row, seed, None, heldout_log_likelihood=likelihood - seed / 100, heldout_agreement=agreement)
            for row, (likelihood, agreement) in quality.items()
            for seed in range(3)
        ]

    def test_methods_are_ranked_by_held_out_labels(self) -> None:
        table = rank(self.records())
        assert table.rows == ("TAIDTM", "tied", "CE")
        assert [column.metric.name for column in table.columns] == ["heldout_log_likelihood", "heldout_agreement"]
        first, second = (column.name for column in table.columns)
        assert [table.cells[first, row].rank for row in table.rows] == [1, 2, 3]
        assert [table.cells[second, row].rank for row in table.rows] == [1, 2, 2]
        assert "-0.5100 ± 0.0100* (1)" in to_text(table)

    def test_rows_without_a_measure_are_named(self) -> None:
        table = rank([*self.records(), run("no votes", 0, None)])
        assert "no votes" not in table.rows
        assert "Not measured: no votes." in table.notes

    def test_nothing_to_rank_by_is_an_error(self) -> None:
        with pytest.raises(DataError, match="no record of 'mine' has any of heldout_log_likelihood"):
            rank([run()])


NASTY = "a|b & 50% _x_ $y$ #1 {z} <script> \\n ~^ \x1b[31mred\n`c` *d* [e](f)"


class TestRendering:
    def table(self) -> Any:
        return summarise(runs(NASTY, 90.0, 91.0, 92.0, column=NASTY) + runs("=1+1", 80.0, 80.5, 81.5, column=NASTY))

    def test_markdown_keeps_its_columns_and_holds_no_html(self) -> None:
        text = to_markdown(self.table())
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows}) == 1
        assert "<script>" not in text
        assert "\x1b" not in text
        assert r"\_x\_" in text
        assert "**91.00 ± 1.00**" in text

    def test_latex_is_escaped_and_balanced(self) -> None:
        text = to_latex(self.table())
        body = [line for line in text.splitlines() if "91.00" in line]
        assert body[0].endswith(r"& \textbf{91.00 $\pm$ 1.00} \\")
        assert r"\textbackslash{}n \textasciitilde{}\textasciicircum{}" in body[0]
        bare = re.sub(r"\\[&%$#_{}]", "", text)
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        assert text.count(r"\begin{") == text.count(r"\end{")
        assert r"\toprule" in text

    def test_latex_writes_minus_signs(self) -> None:
        table = summarise(table3("TAIDTM", "LabelMe", 86.0))
        assert "($-$0.68)" in to_latex(table)
        assert "(-0.68)" in to_markdown(table)

    def test_csv_has_a_line_for_each_cell(self) -> None:
        table = summarise(table3("TAIDTM", "LabelMe", 86.0, 86.5, 87.0) + table3("CE", "LabelMe", 80.0, 80.1, 80.3))
        rows = {row["row"]: row for row in csv.DictReader(io.StringIO(to_csv(table)))}
        ours = rows["TAIDTM"]
        assert (ours["column"], ours["metric"], ours["status"], ours["seeds"]) == (
            "LabelMe",
            "test_accuracy",
            "ok",
            "3",
        )
        assert float(ours["mean"]) == 86.5
        assert float(ours["sd"]) == 0.5
        assert float(ours["printed_mean"]) == 86.68
        assert float(ours["difference"]) == pytest.approx(-0.18)
        assert ours["mark"] == "best"
        assert float(rows["CE"]["p"]) < 0.05

    def test_csv_text_cannot_be_a_formula(self) -> None:
        (row,) = [row for row in csv.DictReader(io.StringIO(to_csv(self.table()))) if "1+1" in row["row"]]
        assert row["row"] == "'=1+1"

    def test_terminal_output_has_no_control_characters_of_users(self) -> None:
        text = to_text(self.table())
        assert "\x1b" not in text
        assert "91.00 ± 1.00*" in text

    def test_colours_only_on_a_terminal(self) -> None:
        pipe = io.StringIO()
        show(self.table(), Console(file=pipe, width=100))
        assert "\x1b" not in pipe.getvalue()
        terminal = io.StringIO()
        show(self.table(), Console(file=terminal, width=100, force_terminal=True, color_system="standard"))
        assert "\x1b[1;32m" in terminal.getvalue()

    @pytest.mark.parametrize("width", [60, 80, 120])
    def test_wide_tables_are_split_rather_than_cut(self, width: int) -> None:
        records = [
            run("TAIDTM", seed, figure["TAIDTM"][0] + seed / 10, experiment="table1", column=column)
            for column, figure in paper.printed(1).items()
            if not paper.is_average(column)
            for seed in range(3)
        ]
        text = to_text(summarise(records), width)
        grid = text.split("Mean ±")[0]
        assert max(map(len, grid.splitlines())) <= width
        for figure in paper.printed(1).values():
            mean, sd = figure["TAIDTM"]
            assert (f"{mean:.2f} ± {sd:.2f}" if sd is not None else f"{mean:.2f} (") in grid
        assert "…" not in grid

    def test_files_appear_whole_and_unknown_endings_are_refused(self, tmp_path: Path) -> None:
        path = write(self.table(), tmp_path / "new" / "table.md")
        assert path.read_text(encoding="utf-8").startswith("**mine")
        assert [file.name for file in path.parent.iterdir()] == ["table.md"]
        with pytest.raises(ConfigError, match=r"written as .md, .tex, .csv, .txt, not '.docx'"):
            write(self.table(), tmp_path / "table.docx")

    def test_long_errors_are_shortened(self) -> None:
        table = summarise([run(), run("b", accuracy=None, error="x" * 5000)])
        assert len(to_text(table)) < 1500

    def test_plain_text_is_one_line(self) -> None:
        assert plain("a\tb\r\nc\x00 d\u202e") == "a b c d"


def test_every_metric_of_the_registry_can_be_summarised() -> None:
    for name, metric in METRICS.items():
        table = summarise([run(accuracy=None, **{name: 1.5})], name)
        assert f"{1.5:.{metric.digits}f}" in to_text(table)
        json.dumps(table.cells["birds", "CE"].values)


def test_runs_that_learnt_nothing_are_named_below_the_table() -> None:
    made = summarise([*runs("CE", 90.0, 91.0), run("MBEM", accuracy=10.0, warnings=["the classifier is at chance"])])
    assert "Warning, birds, MBEM, seed 0: the classifier is at chance" in made.notes
    assert not any("CE" in note for note in made.notes if note.startswith("Warning"))
