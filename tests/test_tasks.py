"""Tasks are for notebooks, too: they return what they found, say nothing, and encode annotations once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.data.training import from_files
from crowdwise.readers import read, write_table
from crowdwise.tasks.aggregate import aggregate
from crowdwise.tasks.annotators import judge_annotators
from crowdwise.tasks.convert import convert
from crowdwise.tasks.info import describe
from crowdwise.tasks.observer import Observer
from crowdwise.tasks.predict import predict
from crowdwise.tasks.train import Run, plan


class Listener(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    np.save("X.npy", (rng.normal(size=(40, 3)) + 3 * y[:, None]).astype(np.float32))
    said = np.where(rng.random((40, 4)) < 0.8, y[:, None], 1 - y[:, None])
    rows = [f"{i},w{j},{('dog', 'cat')[said[i, j]]}" for i in range(40) for j in range(4)]
    Path("rows.csv").write_text("\n".join(["instance,annotator,label", *rows]) + "\n")
    return tmp_path


def test_a_notebook_aggregates_trains_and_predicts(files: Path, capfd: Any) -> None:
    listener = Listener()
    labels = aggregate("rows.csv", "labels.csv", method="dawid-skene", observer=listener)
    assert (labels.method, labels.n_instances, labels.out) == ("dawid-skene", 40, Path("labels.csv"))
    assert 0 < labels.figures.alpha < 1
    assert judge_annotators("rows.csv").table.num_rows == 4
    assert convert("rows.csv", "rows.parquet").format == "table"

    run = Run.new(plan("ce", inputs="X.npy", annotations="rows.csv", settings={"epochs": 5}))
    trained = run.start(observer=listener)
    assert trained.path == Path("runs/X-ce-seed0")
    assert trained.results["agreement"] == pytest.approx(trained.model.history_[-1]["agreement"])
    assert Run.open(trained.path).resume().before
    assert predict(trained.path, "X.npy", "predictions.csv").table["label"].to_pylist() == list(
        trained.model.predict(np.load("X.npy"))
    )
    assert describe(trained.path)[0].state == "finished"
    assert [note.partition(":")[0] for note in listener.notes] == ["rows.csv", "X.npy"]
    assert capfd.readouterr().out == ""


def test_annotations_are_encoded_once_on_the_way_into_training(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def once(*arguments: Any, **options: Any) -> Any:
        made.append(read(*arguments, **options))
        return made[-1]

    monkeypatch.setattr("crowdwise.data.training.read", once)
    data = from_files("X.npy", "rows.csv", None)
    (export,) = made
    assert data.annotations.annotator is export.annotations.annotator
    assert data.annotations.label is export.annotations.label
    assert data.annotations.class_vocabulary is export.annotations.class_vocabulary


def test_instances_are_matched_by_id(files: Path) -> None:
    X = np.load("X.npy")
    write_table(pa.table({"id": [f"{39 - row}" for row in range(40)], "a": X[::-1, 0], "b": X[::-1, 1]}), "table.csv")
    by_id, by_row = from_files("table.csv", "rows.csv", "id"), from_files("X.npy", "rows.csv", None)
    assert by_id.annotations.instances.tolist() == list(range(39, -1, -1))
    one, two = by_id.annotations, by_row.annotations
    assert one.instances[one.instance].tolist() == two.instances[two.instance].tolist()
