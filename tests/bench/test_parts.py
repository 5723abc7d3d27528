"""The parts of a benchmark by hand: its status, its records, and what is measured of a run."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crowdwise import Annotations
from crowdwise.bench import measure, pool, records
from crowdwise.bench.cells import Cell
from crowdwise.bench.comparison import paired
from crowdwise.bench.pool import Pool, Status
from crowdwise.bench.records import RecordLog, folder_of, shared_of
from crowdwise.bench.runner import _families
from crowdwise.bench.selection import select, value_of
from crowdwise.bench.sharing import counted
from crowdwise.errors import ConfigError, DataError, ModelFileError
from crowdwise.quality import calibration


def cell(method: str = "ce", seed: int = 0, **changes: Any) -> Cell:
    settings: dict[str, Any] = {
        "data": {"name": "digits"},
        "simulate": {"noise_rate": 0.1},
        "parameters": {"epochs": 3},
    }
    return Cell("mine", "digits|10%", changes.pop("row", method), method, seed, **(settings | changes))


# cells, and what becomes of them


def test_a_cell_is_named_by_all_that_decides_its_result() -> None:
    one = cell()
    assert cell(row="another place").id == one.id
    assert cell(parameters={"epochs": 3, "recipe": "auto"}).id == one.id
    others = [
        cell("bltm"),
        cell(seed=1),
        cell(parameters={"epochs": 4}),
        cell(parameters={"epochs": 3, "recipe": "paper"}),
        cell(simulate={"noise_rate": 0.2}),
        cell(data={"name": "music"}),
        cell(heldout=0.1),
    ]
    assert len({each.id for each in [one, *others]}) == 8
    assert one.id.startswith("digits-ce-seed0-")
    families = [each.family == one.family for each in others]
    assert families == [True, False, True, True, False, False, False]
    here, there = (cell(data={"inputs": f"/{place}/X.npy", "content": "abc"}) for place in ("a", "b"))
    assert here.id == there.id
    assert here.dataset == "X"
    assert cell(data={"inputs": "/a/X.npy", "content": "abd"}).id != here.id


def test_a_pool_keeps_count(tmp_path: Path) -> None:
    first, second, other = cell("bltm"), cell("taidtm"), cell("ce", seed=1)
    told: list[Any] = []

    class Waiting(Pool):
        def underway(self) -> Any:
            return [family]

    family, status = deque([first, second]), Status(3)
    working = Waiting(tmp_path, deque([deque([other])]), status, told.append, None, None)
    for each in (first, other):
        shared_of(tmp_path, each).mkdir(parents=True)
    working._begun(first, "warm-up, epoch 1")
    working._begun(first, "warm-up, epoch 1")
    assert told == [None]  # nothing new
    working._begun(first, "warm-up, epoch 2")
    assert (status.running, len(told)) == ({first.id: "warm-up, epoch 2"}, 2)
    working._end(family, {"cell": first.id})
    assert (status.finished, status.failed, status.running) == (1, {}, {})
    assert list(family) == [second]
    assert shared_of(tmp_path, first).exists()  # the next of the family needs it
    working._end(family, {"cell": second.id, "error": "it broke"})
    assert (status.finished, status.failed) == (1, {second.id: "it broke"})
    assert len(status.seconds) == 2
    assert status.seconds[0] >= status.seconds[1] >= 0
    assert not shared_of(tmp_path, first).exists()
    assert shared_of(tmp_path, other).exists()
    assert told[-1] == {"cell": second.id, "error": "it broke"}


def test_cells_that_share_stages_are_families() -> None:
    cells = [cell("ce"), cell("bltm"), cell("taidtm"), cell("ce", parameters={}), cell("bltm", seed=1)]
    assert [[each.method for each in family] for family in _families(cells)] == [
        ["ce"],
        ["bltm", "taidtm"],
        ["ce"],
        ["bltm"],
    ]


def test_an_attempt_ends_with_a_record_or_with_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, told = cell(), []

    def run_cell(cell: Cell, folder: Path, shared: Path, *, sharing: int, watch: Any) -> dict[str, Any]:
        assert (folder, shared, sharing) == (folder_of(tmp_path, cell), shared_of(tmp_path, cell), 3)
        watch({"stage": "classifier", "epoch": 4, "test_accuracy": 81.25})
        watch({"stage": "classifier", "epoch": 5})
        if fails:
            raise ValueError("no luck")
        return {"cell": cell.id}

    monkeypatch.setattr(measure, "run_cell", run_cell)
    fails = True
    record = pool.attempt(one, tmp_path, 3, told.append)
    assert record["error"] == "ValueError: no luck"
    assert "run_cell" in record["traceback"]
    assert told == ["starting", "classifier, epoch 5, 81.25 %", "classifier, epoch 6"]
    assert records.read_record(folder_of(tmp_path, one)) == record
    fails = False
    assert pool.attempt(one, tmp_path, 3, told.append) == {"cell": one.id}
    assert records.read_record(folder_of(tmp_path, one)) is None  # the failure is forgotten


def test_a_log_holds_this_runs_cells_in_order_and_others(tmp_path: Path) -> None:
    one, twice, other = cell(), cell(row="again"), cell(seed=1)
    log = RecordLog([other, one, twice], tmp_path)
    assert log.records() == []
    folder_of(tmp_path, one).mkdir(parents=True)
    log.add({"cell": one.id, "row": "?", "column": "?", "experiment": "?", "seed": 0, "test_accuracy": 80.0})
    assert [(record["row"], record["column"]) for record in log.records()] == [
        ("ce", "digits|10%"),
        ("again", "digits|10%"),
    ]
    assert [record["row"] for record in records.read_records(tmp_path)] == ["ce", "again"]
    later = RecordLog([cell(seed=5)], tmp_path)
    assert later.records() == []
    assert [record["row"] for record in later.others] == ["ce", "again"]
    same_place = RecordLog([cell(parameters={"epochs": 9})], tmp_path)
    assert [record["row"] for record in same_place.others] == ["again"]
    folder_of(tmp_path, one).rmdir()
    assert RecordLog([cell(seed=5)], tmp_path).others == []  # its folder was removed
    with pytest.raises(ConfigError, match="there are no records"):
        records.read_records(tmp_path / "nothing")
    (tmp_path / "x.jsonl").write_text('{"row": "a", "column": "b", "cell": "../c"}\n')
    with pytest.raises(ModelFileError, match="cell must be a plain name"):
        records.read_records(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text('{"row": "a"}\n')
    with pytest.raises(ModelFileError, match="it has no row and column"):
        records.read_records(tmp_path / "x.jsonl")


# what is measured


class Model:
    """A stand-in for a fitted method."""

    def __init__(self, proba: Any, history: Any = (), **attributes: Any) -> None:
        self.proba, self.history_ = np.asarray(proba, float), list(history)
        self.arrays_: dict[str, Any] = {}
        self.__dict__.update(attributes)

    def predict_proba(self, X: Any) -> Any:
        return self.proba[: len(X)]


def epoch(stage: str, number: int, agreement: float | None, seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"stage": stage, "index": 0, "epoch": number, "agreement": agreement, "seconds": seconds, **more}


def test_accuracies_of_the_last_stage_and_of_what_it_repeats() -> None:
    history = [
        epoch("warm-up", 0, 0.9, test_accuracy=99.0),
        epoch("classifier", 0, 0.7, test_accuracy=70.0),
        epoch("classifier", 1, 0.6, test_accuracy=60.0),
        epoch("classifier, slower", 0, 0.75, test_accuracy=71.0),
        epoch("classifier, slower", 1, 0.8, test_accuracy=72.0),
        epoch("classifier, slower", 2, 0.78, test_accuracy=73.0),
    ]
    data = SimpleNamespace(X_test=np.zeros((3, 1)), y_test=np.array([0, 1, 1]), gold=None)
    found = measure.accuracies(Model([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], history), data)
    assert found == {
        "test_accuracy": pytest.approx(66.667),
        "curve": [[0, 0.75, 71.0], [1, 0.8, 72.0], [2, 0.78, 73.0]],
        "first_try": {"epochs": 2, "validation_agreement": 0.6, "test_accuracy": 60.0},
        "validation_agreement": 0.78,
        "test_accuracy_at_best_agreement": 72.0,
    }
    blind = SimpleNamespace(X_test=None, y_test=None, gold=None)
    assert measure.accuracies(Model([], [epoch("classifier", 0, None)]), blind) == {}
    assert measure.accuracies(Model([], [epoch("classifier", 0, 0.5)]), blind) == {"validation_agreement": 0.5}


def test_times_are_by_stage() -> None:
    history = [epoch("a", 0, None, 1.0), epoch("a", 1, None, 2.0), epoch("a", 2, None, 9.0), epoch("b", 0, None, 4.0)]
    assert measure.times(Model([], history), 17.123) == {
        "seconds": 17.12,
        "stage_seconds": {"a": 12.0, "b": 4.0},
        "median_epoch_seconds": {"a": 2.0, "b": 4.0},
    }


def test_labels_are_measured_where_the_truth_and_labels_are() -> None:
    posterior = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]])
    model = Model(posterior, posterior_=posterior)
    model.arrays_["posterior"] = posterior
    train = Annotations.from_triples([0, 0, 1, 2, 3], [0, 1, 0, 1, 0], [0, 0, 0, 1, 1], n_instances=5, n_classes=2)
    data = SimpleNamespace(y_train=np.array([0, 1, 0, -1, 0]))
    known = [0, 1, 2]
    assert measure.labels(model, data, train) == {
        "labels_right": pytest.approx(66.667),
        "claimed": pytest.approx(76.667),
        "calibration_error": pytest.approx(calibration(posterior[known], np.array([0, 1, 0])).ece, abs=1e-4),
        "majority_vote_right": pytest.approx(33.333),
    }
    assert measure.labels(model, SimpleNamespace(y_train=None), train) == {}
    assert measure.labels(Model(posterior), data, train) == {}


def test_held_out_votes_are_explained_by_counted_matrices() -> None:
    rng = np.random.default_rng(0)
    f = rng.dirichlet(np.ones(3), 12)
    i, j = np.nonzero(rng.random((12, 4)) < 0.7)
    everything = Annotations.from_triples(i, j, rng.integers(0, 3, len(i)), n_instances=12, n_annotators=4, n_classes=3)
    train, out = measure.split_votes(everything, 0.25, 0)
    counts = np.zeros((4, 3, 3))
    for i_, j_, y in zip(train.instance, train.annotator, train.label, strict=True):
        counts[j_, :, y] += f[i_]
    mean = counts.sum(axis=0) + 1
    mean /= mean.sum(axis=1, keepdims=True)
    matrices = counts + 5 * mean
    matrices /= matrices.sum(axis=2, keepdims=True)
    rows = list(zip(out.instance, out.annotator, out.label, strict=True))
    logs = [np.log(f[i_] @ matrices[j_, :, y]) for i_, j_, y in rows]
    assert measure.votes_explained(Model(f), np.zeros((12, 1)), train, out) == {
        "heldout_log_likelihood": pytest.approx(np.mean(logs), abs=1e-5),
        "heldout_agreement": pytest.approx(np.mean([f[i_].argmax() == y for i_, _, y in rows]), abs=1e-5),
        "heldout_votes": len(out),
    }
    assert measure.votes_explained(Model(f), np.zeros((12, 1)), train, None) == {}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fraction", [0.2, 0.9])
def test_every_instance_keeps_a_vote(weighted: bool, fraction: float) -> None:
    rng = np.random.default_rng(1)
    instance = np.repeat(np.arange(30), rng.integers(0, 5, 30))
    weight = rng.choice([0.1, 3.0], len(instance)) if weighted else None
    annotations = Annotations.from_triples(
        instance, np.arange(len(instance)) % 7, rng.integers(0, 2, len(instance)), n_instances=30, weight=weight
    )
    train, out = measure.split_votes(annotations, fraction, 3)
    number = np.bincount(instance, minlength=30)
    assert np.all((np.bincount(train.instance, minlength=30) > 0) == (number > 0))
    assert len(train) + len(out) == len(instance)
    assert len(out) == min(round(fraction * len(instance)), int(np.maximum(number - 1, 0).sum()))
    assert measure.split_votes(annotations, 0.0, 3) == (annotations, None)
    assert measure.split_votes(annotations, 0.2, 4)[1] != measure.split_votes(annotations, 0.2, 5)[1]


def test_a_curve_knows_accuracy_and_company() -> None:
    seen: list[Any] = []
    data = SimpleNamespace(X_test=np.zeros((2, 1)), y_test=np.array([0, 1]))
    curve = measure.Curve(data, seen.append)
    company = SimpleNamespace(asked=0)
    company.count = lambda: setattr(company, "asked", company.asked + 1)
    curve.company = company
    record = {"index": 1, "epoch": 4}
    curve.epoch(record, lambda X: np.array([[0.9, 0.1], [0.8, 0.2]]))
    assert record["test_accuracy"] == 50.0
    assert (curve.seen, company.asked, seen) == ({(1, 4)}, 1, [record])
    curve.epoch({"index": 1, "epoch": 5}, None)
    assert "test_accuracy" not in seen[-1]
    assert curve.seconds > 0


def test_runs_on_a_device_count_each_other(tmp_path: Path) -> None:
    with counted("gpu", root=tmp_path) as first:
        assert first.most == 1
        with counted("gpu", root=tmp_path) as second:
            assert second.most == 2
            with counted("another", root=tmp_path) as other:
                assert other.most == 1
        first.count()
        assert first.most == 1  # the others have left in between
        with counted("gpu", 5, root=tmp_path) as known:
            assert known.most == 5
    assert not list((tmp_path / "gpu").iterdir())
    with counted(None, 3, root=tmp_path) as nobody:
        assert nobody.most == 3


# records


def record(row: str, seed: int, **more: Any) -> dict[str, Any]:
    return {"experiment": "mine", "column": "c", "row": row, "seed": seed, "cell": f"{row}{seed}", **more}


def test_the_last_success_of_a_repeated_run_counts() -> None:
    runs = select(
        [
            record("a", 0, test_accuracy=1.0),
            record("a", 0, error="then it broke"),
            record("a", 0, test_accuracy=2.0),
            record("a", 1, error="first"),
            record("a", 1, error="second"),
            record("b", 0, test_accuracy=3.0),
        ]
    )
    assert runs.finished["c", "a"][0]["test_accuracy"] == 2.0
    assert runs.failed == {("c", "a"): {1: "second"}}
    assert (runs.rows, runs.columns, runs.seeds("c")) == (["a", "b"], ["c"], [0, 1])
    assert [each["test_accuracy"] for each in runs.of_row("b")] == [3.0]
    with pytest.raises(DataError, match="seed 0 was run with different settings"):
        select([record("a", 0), record("a", 0, cell="other")])
    with pytest.raises(DataError, match="record 2 has no seed"):
        select([record("a", 0), {"experiment": "mine", "column": "c", "row": "a"}])
    values = [value_of({"m": value}, "m") for value in (1, 2.5, True, "3", None, np.inf, 10**400)]
    assert values == [1.0, 2.5, None, None, None, None, None]


def test_rows_are_compared_by_common_seeds() -> None:
    from scipy.stats import ttest_rel

    ours, theirs = {0: 80.0, 1: 83.0, 2: 79.0, 5: 90.0}, {0: 78.0, 1: 80.0, 2: 80.0, 7: 10.0}
    found = paired(ours, theirs)
    assert found.difference == pytest.approx(4 / 3)
    assert found.p == pytest.approx(ttest_rel([80, 83, 79], [78, 80, 80]).pvalue)
    assert paired(ours, {0: 1.0, 1: 2.0}) is None
    assert paired(ours, {seed: value - 2 for seed, value in ours.items()}) == (2.0, 0.0)
    assert paired(ours, ours) == (0.0, 1.0)
