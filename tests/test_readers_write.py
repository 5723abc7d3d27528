"""What is written is read again as it was; and consensus labels arrive where they are needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdwise import Annotations
from crowdwise.errors import ConfigError, DataError
from crowdwise.readers import Export, read, write, write_labels
from crowdwise.readers._files import load_columns
from export_samples import SAMPLES, sample

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=6).map(lambda word: "w" + word)
SECONDS = st.none() | st.floats(0, 1e6)
TIMES = st.none() | st.integers(10**15, 2 * 10**15)


@st.composite
def exports(draw: st.DrawFn) -> Export:
    """Annotations with all that can be known about them; ids of one kind each, labels are words."""
    labels = WORDS.map(str.strip)  # as they are read
    kinds = [draw(st.lists(ids, min_size=1, max_size=4, unique=True)) for ids in (_ids(draw), _ids(draw), labels)]
    n = draw(st.integers(1, 12))
    rows = [[draw(st.sampled_from(kind)) for _ in range(n)] for kind in kinds]
    crowd = Annotations.coerce(tuple(rows))
    models = draw(st.sets(st.integers(0, crowd.n_annotators - 1)))
    truths = {
        one: draw(st.sampled_from(crowd.classes.tolist())) for one in crowd.instances.tolist() if draw(st.booleans())
    }
    times = [draw(TIMES) for _ in range(n)]
    seconds = [draw(SECONDS) for _ in range(n)]
    texts = [draw(st.none() | WORDS) for _ in range(crowd.n_instances)]
    return Export(
        annotations=crowd,
        columns={},
        gold=truths or None,
        n_rows=n,
        message="",
        format="table",
        question=None,
        kinds=np.array(["model" if j in models else "person" for j in range(crowd.n_annotators)]),
        timestamps=np.array(times, "datetime64[us]") if any(time is not None for time in times) else None,
        durations=np.array(seconds, float) if any(one is not None for one in seconds) else None,
        texts=pa.array(texts, pa.large_string()) if any(texts) else None,
    )


def _ids(draw: st.DrawFn) -> Any:
    return draw(st.sampled_from([WORDS, st.integers(-(2**62), 2**62)]))


def facts(export: Export, *, order: bool = True, seconds_of_models: bool = True) -> list[Any]:
    """All that is known, annotation by annotation."""
    crowd = export.annotations
    rows = []
    for k, row in enumerate(crowd.to_frame().to_pylist()):
        kind = str(export.kinds[crowd.annotator[k]])
        time = None if export.timestamps is None else export.timestamps[k].astype(object)
        duration = None if export.durations is None or np.isnan(export.durations[k]) else float(export.durations[k])
        text = None if export.texts is None else export.texts[int(crowd.instance[k])].as_py()
        duration = duration if seconds_of_models or kind == "person" else None
        gold = (export.gold or {}).get(row["instance"])
        rows.append((row["instance"], row["annotator"], row["label"], kind, time, duration, text, gold))
    return rows if order else sorted(rows, key=repr)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(export=exports(), suffix=st.sampled_from(["csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz", "jsonl.zst"]))
@pytest.mark.parametrize("to", ["table", "crowd-kit"])
def test_tables_are_read_as_they_were_written(tmp_path: Path, export: Export, suffix: str, to: str) -> None:
    path = tmp_path / f"crowd.{suffix}"
    write(export, path, to)
    again = read(path)
    assert again.format == to
    assert facts(again) == facts(export)
    assert [found.name for found in tmp_path.glob(".*")] == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(export=exports())
def test_tasks_of_label_studio_are_read_as_they_were_written(tmp_path: Path, export: Export) -> None:
    write(export, tmp_path / "tasks.json")
    if "model" in export.kinds and any(
        name.startswith("crowdwise") for name in map(str, export.annotations.annotators)
    ):
        return
    again = read(tmp_path / "tasks.json")
    assert facts(again, order=False) == facts(export, order=False, seconds_of_models=False)


@pytest.mark.filterwarnings("ignore:Label Studio holds one class")  # soft labels of models
@pytest.mark.parametrize("file", SAMPLES)
@pytest.mark.parametrize("out", ["crowd.csv", "crowd.parquet", "crowd.json"])
def test_every_format_converts_into_every_other(tmp_path: Path, file: str, out: str) -> None:
    export = read(sample(tmp_path, file))
    write(export, tmp_path / out)
    again = read(tmp_path / out)

    def said(one: Export) -> list[Any]:
        texts = {"instance": str, "annotator": str, "label": str}
        crowd = one.annotations.hard() if out.endswith(".json") else one.annotations  # Label Studio has no soft labels
        return sorted(tuple(texts[name](row[name]) for name in texts) for row in crowd.to_frame().to_pylist())

    assert said(again) == said(export)
    assert {str(key): str(value) for key, value in (again.gold or {}).items()} == {
        str(key): str(value) for key, value in (export.gold or {}).items()
    }
    assert (again.texts is None) == (export.texts is None)
    assert sorted(again.kinds) == sorted(export.kinds)


def consensus(export: Export) -> pa.Table:
    crowd = export.annotations
    return pa.table(
        {
            "instance": crowd.instance_vocabulary.arrow,
            "label": crowd.class_vocabulary.take(crowd.votes().argmax(axis=1)),
            "confidence": np.linspace(0.5, 1, crowd.n_instances),
        }
    )


class TestConsensus:
    def test_predictions_for_label_studio_fit_the_tasks_they_came_from(self, tmp_path: Path) -> None:
        export = read(sample(tmp_path, "tasks.json"))
        write_labels(consensus(export), tmp_path / "out.json", export=export, model="dawid-skene")
        tasks = json.loads((tmp_path / "out.json").read_text())
        before = json.loads((tmp_path / "tasks.json").read_text())
        assert [(task["id"], task["data"]) for task in tasks] == [(task["id"], task["data"]) for task in before]
        (prediction,) = tasks[0]["predictions"]
        assert prediction == {
            "model_version": "crowdwise-dawid-skene",
            "score": 0.5,
            "result": [{"from_name": "sent", "to_name": "text", "type": "choices", "value": {"choices": ["pos"]}}],
        }

    def test_predictions_from_another_tool_show_its_text(self, tmp_path: Path) -> None:
        export = read(sample(tmp_path, "long.csv"))
        write_labels(consensus(export), tmp_path / "out.json", export=export)
        task = json.loads((tmp_path / "out.json").read_text())[1]
        assert task["data"] == {"text": 'say "no"'}
        assert task["predictions"][0]["result"][0]["to_name"] == "text"
        with pytest.raises(ConfigError, match="needs export="):
            write_labels(consensus(export), tmp_path / "out.json")

    @pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
    def test_a_frame_of_crowd_kit_has_its_names(self, tmp_path: Path, suffix: str) -> None:
        export = read(sample(tmp_path, "frame.csv"))
        write_labels(consensus(export), tmp_path / f"out.{suffix}", "crowd-kit")
        columns = load_columns(tmp_path / f"out.{suffix}", lambda names: names)
        assert list(columns) == ["task", "agg_label", "confidence"]
        write_labels(consensus(export), tmp_path / f"plain.{suffix}")
        assert list(load_columns(tmp_path / f"plain.{suffix}", lambda names: names)) == [
            "instance",
            "label",
            "confidence",
        ]

    def test_what_cannot_be_written_leaves_nothing(self, tmp_path: Path) -> None:
        export = read(sample(tmp_path, "long.csv"))
        for out, to, message in (
            ("a.csv", "label-studio", "written as .json"),
            ("a.json", "crowd-kit", "cannot be written as .json; .jsonl can"),
            ("a.xlsx", "auto", "unknown format"),
            ("none/a.json", "auto", "does not exist"),
        ):
            with pytest.raises(DataError, match=message):
                write(export, tmp_path / out, to)
        with pytest.raises(ConfigError, match="unknown output format 'tabel'; did you mean 'table'"):
            write(export, tmp_path / "a.csv", "tabel")
        broken = pa.table({"instance": [1, 2, 3], "label": ["a"] * 3, "confidence": [float("nan")] * 3})
        with pytest.raises(DataError, match="cannot be written as JSON"):
            write_labels(broken, tmp_path / "a.json", export=export)
        assert [path.name for path in tmp_path.iterdir()] == ["long.csv"]


def test_a_model_may_be_called_0(tmp_path: Path) -> None:
    result = [{"from_name": "q", "to_name": "t", "type": "choices", "value": {"choices": ["yes"]}}]
    task = {"id": 1, "data": {}, "annotations": [], "predictions": [{"model_version": 0, "result": result}]}
    (tmp_path / "tasks.json").write_text(json.dumps([task]), encoding="utf-8")
    assert read(tmp_path / "tasks.json").annotations.annotators.tolist() == [0]


@pytest.mark.parametrize("to", ["table", "crowd-kit"])
def test_weights_are_written_as_weights_and_not_as_gold(tmp_path: Path, to: str) -> None:
    path, out = tmp_path / "crowd.csv", tmp_path / "out.csv"
    path.write_text("item,worker,label,share\n1,a,1,2\n1,b,2,1\n2,a,2,1\n2,b,1,2\n")
    export = read(path, weight="share")
    write(export, out, to)
    again = read(out)
    assert again.gold is None
    assert again.annotations.weight is not None
    assert again.annotations.weight.tolist() == [2, 1, 1, 2]
