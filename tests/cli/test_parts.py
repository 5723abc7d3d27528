"""The parts of commands and tasks by hand: what is said of figures, tables of annotators, runs, and gold by halves."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise.aggregation import DawidSkene
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.annotations import Annotations
from crowdwise.cli import aggregate as cli_aggregate
from crowdwise.cli import annotators as cli_annotators
from crowdwise.cli.console import document
from crowdwise.errors import DataError, ModelFileError, UsageError
from crowdwise.figures import Evidence, Person, RightShare, Verdict
from crowdwise.tasks import aggregate as tasks
from crowdwise.tasks.agreement import measure_agreement
from crowdwise.tasks.parameters import check_outputs, check_workers
from crowdwise.tasks.runs import of_earlier_version, read_history, read_run, result_facts, stages


def crowd(n: int = 60, seed: int = 0) -> tuple[Annotations, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    wrong = (truth[:, None] + rng.integers(1, 3, (n, 4))) % 3
    labels = np.where(rng.random((n, 4)) < [0.9, 0.8, 0.7, 0.4], truth[:, None], wrong)
    return Annotations.from_dense(labels, classes=[0, 1, 2]), truth


class TestWords:
    SHARE = RightShare(0.875, 0.8, 0.925, "estimated", 40)

    def test_an_estimate_tells_of_independent_errors_only_if_they_would_give_more(self) -> None:
        found = SimpleNamespace(right=self.SHARE, estimated=self.SHARE)
        for independent, said in ((0.9, "why; independent errors would promise 90.0%"), (0.88, "why"), (0.8, "why")):
            promise = tasks.Promise(0.875, 0.8, 0.925, independent, "why")
            assert cli_aggregate._estimate(promise, found) == said
        measured = SimpleNamespace(right=RightShare(0.5, 0.4, 0.6, "measured", 40), estimated=self.SHARE)
        assert cli_aggregate._estimate(promise, measured) is None

    def test_agreement_of_a_scale_comes_before_that_of_names(self) -> None:
        figures = SimpleNamespace(alpha=0.25, raw_agreement=0.5)
        assert cli_aggregate._agreement(figures, None) == "Krippendorff's alpha 0.250, raw agreement 0.500"
        assert cli_aggregate._agreement(figures, 0.75) == (
            "Krippendorff's alpha 0.750 as a scale, 0.250 as names, raw agreement 0.500"
        )

    def test_gold_is_measured_crosswise_or_not_used(self) -> None:
        gold = tasks.GoldAccuracy(0.75, 0.6, 0.9, 0.5, 1200, True, 0.8)
        assert cli_aggregate._gold(gold) == (
            "75.0% right on 1,200 instances (each half measured with the other half given); "
            "majority vote 50.0%, ties shared"
        )

    def test_a_document_holds_plain_values(self) -> None:
        value = {
            1: np.float64("nan"),
            "t": pa.table({"a": [1, None]}),
            "p": Path("x"),
            "s": (True, None, np.int32(3)),
            "e": Evidence("one class"),
            "r": self.SHARE,
        }
        found = json.loads(document(value))
        assert found["1"] is None
        assert found["t"] == [{"a": 1}, {"a": None}]
        assert (found["p"], found["s"]) == ("x", [True, None, 3])
        assert found["e"]["kind"] == "one class"
        assert found["e"]["enough"] is False
        assert found["r"] == {"share": 0.875, "low": 0.8, "high": 0.925, "basis": "estimated", "items": 40}


class TestAnnotators:
    @staticmethod
    def row(name: Any, labels: int, **more: Any) -> dict[str, Any]:
        return {"annotator": name, "num_examples_labeled": labels, "confused_class": None, "confused_with": None} | more

    def test_those_to_stop_come_first_then_cost_then_labels(self) -> None:
        people = [
            Person("fine", 500, 0.8, 0.75, 0.85, 0.2, verdict=Verdict.FINE),
            Person("7", 20, 0.3, 0.2, 0.4, 0.95, verdict=Verdict.STOP),
            Person("gpt", 900, 0.8, 0.79, 0.95, 0.1, model=True),
        ]
        rows = [self.row("few", 3), self.row("gpt", 900), self.row(7, 20, confused_class="x", confused_with="y")]
        rows += [self.row("many", 1200), self.row("fine", 500)]
        found = cli_annotators._first(
            SimpleNamespace(
                table=pa.Table.from_pylist([{**row, "annotator": str(row["annotator"])} for row in rows]), people=people
            )
        )
        assert [cells["annotator"] for cells in found] == ["7", "fine", "gpt", "many", "few"]
        assert found[0]["confuses"] == "x as y"
        assert (found[0]["skill"], found[0]["95% interval"]) == ("0.300", "0.200 to 0.400")
        assert [cells["what to do"] for cells in found] == ["stop asking", "fine", "-", "-", "-"]
        assert (found[3]["labels"], found[3]["skill"]) == ("1,200", "-")

    def test_the_first_thirty_are_shown(self) -> None:
        table = pa.Table.from_pylist([self.row(f"w{k}", 100 - k) for k in range(35)])
        found = cli_annotators._first(SimpleNamespace(table=table, people=[]))
        assert [cells["annotator"] for cells in found] == [f"w{k}" for k in range(30)]

    def test_gold_of_an_annotator_has_its_interval(self) -> None:
        gold = {"gold_accuracy": 0.5, "gold_accuracy_low": 0.25, "gold_accuracy_high": 0.754}
        assert cli_annotators._cells(self.row("a", 3, **gold))["right by gold"] == "50% (25-75)"
        assert cli_annotators._cells(self.row("a", 3, **dict.fromkeys(gold)))["right by gold"] == "-"
        assert cli_annotators._cells(self.row("a", 3))["right by gold"] == "-"


class TestGold:
    def test_each_half_is_measured_by_what_was_told_the_other(self) -> None:
        given, truth = crowd()
        gold = {item: int(truth[item]) for item in range(0, 40, 2)}
        fitted = tasks.Fit("dawid-skene", None, DawidSkene(random_state=0).fit(given, gold))
        found = tasks._crossed(fitted, given, gold, 0)
        halves = (dict(list(gold.items())[::2]), dict(list(gold.items())[1::2]))
        for half, other in (halves, halves[::-1]):
            alone = DawidSkene(random_state=0).fit(given, other).posterior_
            np.testing.assert_allclose(found[list(half)], alone[list(half)])
        rest = np.setdiff1d(np.arange(60), list(gold))
        np.testing.assert_array_equal(found[rest], fitted.model.posterior_[rest])
        seen = gold_codes(given, gold)
        assert found[list(gold)].max(axis=1).mean() < 1  # which the method, told all of it, has as certain
        worth = tasks.labels_worth(fitted, given, seen, found)
        told = tasks._accuracy(worth, found, seen, crossed=True)
        assert told is not None
        right = (found[list(gold)].argmax(axis=1) == truth[list(gold)]).mean()
        assert (told.accuracy, told.instances, told.crossed) == (pytest.approx(right), 20, True)
        assert told.claimed == pytest.approx(found[list(gold)].max(axis=1).mean())
        assert told.majority == worth.majority.share
        assert tasks._accuracy(worth, found, None, crossed=False) is None

    def test_agreement_counts_labels_of_items_with_gold(self, tmp_path: Path) -> None:
        rows = ["a,ann,x,x", "a,bob,y,x", "b,ann,y,y", "b,bob,y,y", "c,ann,x,", "c,bob,x,", "d,ann,y,x", "d,bob,x,x"]
        path = tmp_path / "a.csv"
        path.write_text("\n".join(["item,worker,label,gold", *rows]) + "\n")
        found = measure_agreement(path, tmp_path / "out.parquet", n_bootstrap=0)
        assert (found.gold, found.gold_labels) == (pytest.approx(4 / 6), 6)
        assert pq.read_table(tmp_path / "out.parquet").num_rows == found.report.to_table().num_rows

    def test_labels_are_told_with_confidence_where_there_is_evidence(self) -> None:
        given, _ = crowd(6)
        model = DawidSkene(random_state=0).fit(given)
        told = np.array([True, False, True, True, True, True])
        table = tasks.label_table(given, tasks.Fit("dawid-skene", None, model), proba=True, told=told)
        assert table["label"].to_pylist() == model.posterior_.argmax(axis=1).tolist()
        confidence = table["confidence"].to_pylist()
        assert confidence[1] is None
        assert [confidence[0], *confidence[2:]] == pytest.approx(model.posterior_.max(axis=1)[told].tolist())
        assert table["n_annotations"].to_pylist() == [4] * 6
        shares = np.array([[row["p_0"], row["p_1"], row["p_2"]] for row in table.to_pylist()], float)
        assert np.isnan(shares[1]).all()
        np.testing.assert_allclose(shares[told], model.posterior_[told])


class TestRuns:
    def test_a_history_ends_where_a_line_was_cut_off(self, tmp_path: Path) -> None:
        line = {"stage": "one", "index": 0, "epoch": 1, "loss": 0.5, "seconds": 1.5, "agreement": None}
        rows = [
            line,
            line | {"epoch": 2, "loss": 0.25, "agreement": 0.75},
            line | {"stage": "two", "index": 1, "loss": 2},
        ]
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / "metrics.jsonl").write_text(text + '\n{"stage": "two", "in')
        history = read_history(tmp_path)
        assert [record["loss"] for record in history] == [0.5, 0.25, 2.0]
        one, two = stages(history)
        assert (one.name, one.epochs, one.loss, one.agreement, one.seconds) == ("one", 2, 0.25, 0.75, 3.0)
        assert (two.name, two.epochs, two.agreement) == ("two", 1, None)
        (tmp_path / "metrics.jsonl").write_text("\n".join([json.dumps(rows[0]), "{}", json.dumps(rows[1])]))
        assert len(read_history(tmp_path)) == 1
        assert read_history(tmp_path / "nowhere") == []

    @pytest.mark.parametrize("change", [{"method": 3}, {"parameters": []}, {"data": None}])
    def test_a_run_without_its_parts_is_damaged(self, tmp_path: Path, change: dict[str, Any]) -> None:
        run = {"method": "ce", "parameters": {}, "data": {}}
        (tmp_path / "invocation.json").write_text(json.dumps(run))
        assert read_run(tmp_path) == run
        assert not of_earlier_version(tmp_path)
        (tmp_path / "run.json").write_text(json.dumps(run))  # which comes first
        assert of_earlier_version(tmp_path)
        (tmp_path / "run.json").write_text(json.dumps(run | {"data": {"content": "x"}}))
        assert not of_earlier_version(tmp_path)
        (tmp_path / "run.json").write_text(json.dumps(run | change))
        with pytest.raises(ModelFileError, match=r"run\.json is damaged: method, parameters or data are missing"):
            read_run(tmp_path)

    def test_results_in_words(self) -> None:
        found = result_facts({"test_accuracy": 0.5, "gold_accuracy": 0.25, "gold_instances": 1200, "seconds": 1.25})
        assert found["test accuracy"] == "50.00 %"
        assert found["accuracy on gold"] == "25.00 % of 1,200 instances"
        assert (found["validation agreement"], found["warning"]) == (None, None)
        assert result_facts({"agreement": 0.5, "warnings": ["One.", "Two."], "seconds": 1})["warning"] == "One. Two."


class TestOutputs:
    def test_nothing_that_is_read_is_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "in.csv").touch()
        (tmp_path / "folder.csv").mkdir()
        (tmp_path / "link.csv").symlink_to(tmp_path / "in.csv")
        check_outputs([tmp_path / "out.csv", tmp_path / "who.parquet"], [tmp_path / "in.csv", None])
        for out, problem in (
            ("link.csv", "would overwrite what is read"),
            ("out.docx", "docx"),
            ("folder.csv", "is a folder; name a file"),
        ):
            with pytest.raises(DataError, match=problem):
                check_outputs([tmp_path / out], [tmp_path / "in.csv"])
        with pytest.raises(DataError, match="labels and annotators cannot go to one file"):
            check_outputs([tmp_path / "a.csv", tmp_path / "." / "a.csv"], [])
        check_outputs([tmp_path / "model"], [], tables=False)

    def test_workers_are_those_of_a_cluster(self) -> None:
        check_workers("auto", 3)
        check_workers(None, None)
        with pytest.raises(UsageError, match=r"workers.* are those of Ray"):
            check_workers(None, 3)
