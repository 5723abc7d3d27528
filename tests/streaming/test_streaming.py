"""A streamed crowd gives the numbers of the same crowd in memory, whatever its rows, ids and partitions look like."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crowds import compile_always

from crowdwise import agreement, quality
from crowdwise.aggregation import IBCC, Aggregator, DawidSkene, OneCoinDawidSkene, Wawa, recommend
from crowdwise.errors import AnnotationError, ConfigError, DataError
from crowdwise.readers import read_table
from crowdwise.registry import AGGREGATORS
from crowdwise.streaming import aggregate, preparation, streamable
from crowdwise.streaming import table as streamed_table
from crowdwise.streaming.passes import Progress
from streaming_helpers import FIRST, MODELS, compare, crowd, same_tables, text, write

pytestmark = pytest.mark.usefixtures("small_pieces")


# the numbers


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_numbers_are_those_in_memory(model: Aggregator, tmp_path: Path) -> None:
    compare(write(tmp_path / "crowd.parquet", crowd()), model, tmp_path)


@pytest.mark.parametrize("model", FIRST, ids=repr)
def test_numbers_are_those_in_memory_with_compiled_kernels(
    model: Aggregator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_always(monkeypatch)
    compare(write(tmp_path / "crowd.parquet", text(crowd(seed=1))), model, tmp_path)


def test_every_method_that_streams_is_compared() -> None:
    assert {AGGREGATORS[name] for name in streamable()} == {type(model) for model in MODELS}


def test_auto_chooses_what_is_recommended(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    result = aggregate(path, out=tmp_path / "labels.parquet")
    assert result.method == "committee"
    expected = recommend(read_table(path).annotations, random_state=0)
    assert expected.name == "committee"
    assert result.reason is not None
    assert result.reason.split("(")[1] == expected.reason.split("(", 1)[1].split("(")[0]  # the same facts


def test_figures_are_those_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    found = aggregate(path, "dawid-skene", out=tmp_path / "labels.parquet")
    annotations = read_table(path).annotations
    votes, labels = annotations.votes(), DawidSkene().fit(annotations).labels_
    assert found.figures.ties == np.count_nonzero((votes == votes.max(axis=1)[:, None]).sum(axis=1) > 1)
    assert found.figures.changed == np.count_nonzero(votes[np.arange(len(votes)), labels] < votes.max(axis=1))
    confidence = DawidSkene().fit(annotations).posterior_.max(axis=1)[votes.sum(axis=1) > 0].mean()
    assert found.figures.confidence == pytest.approx(confidence)
    assert found.figures.alpha == pytest.approx(agreement.krippendorff_alpha(annotations, n_bootstrap=0).value)
    assert found.figures.raw_agreement == pytest.approx(agreement.raw_agreement(annotations, n_bootstrap=0).value)
    assert f"kept {annotations.n_duplicates} repeats" in found.message
    assert "instance = 'task', annotator = 'worker', label = 'label'" in found.message


@pytest.mark.parametrize(
    "change",
    [
        lambda table: {**table, "task": pa.array(table["task"] + 300, pa.uint64())},
        lambda table: {**table, "task": pa.array(table["task"] + 300, pa.uint64()).cast(pa.float64())},
        lambda table: {**table, "task": pa.array([2**63 + 400 + int(k) for k in table["task"]], pa.uint64())},
        lambda table: {**table, "worker": pa.array(table["worker"], pa.int8())},
        lambda table: {**table, "label": pa.array(table["label"] > 0)},
        lambda table: {**table, "label": pa.array(text(table)["label"]).dictionary_encode()},
        lambda table: {**table, "task": pa.array(text(table)["task"], pa.large_string())},
        lambda table: {name: column[np.argsort(table["task"], kind="stable")] for name, column in table.items()},
    ],
    ids=["uint64", "float", "large uint64", "int8", "bool", "categories", "large text", "sorted"],
)
def test_ids_of_any_type(tmp_path: Path, change: Any) -> None:
    compare(write(tmp_path / "crowd.parquet", change(crowd())), DawidSkene(max_iter=3, tol=0), tmp_path)


def test_a_folder_of_files_is_one_table(tmp_path: Path) -> None:
    table, folder = pa.table(text(crowd())), tmp_path / "crowd"
    (folder / "more").mkdir(parents=True)
    write(folder / "a.parquet", table.slice(0, 400))
    write(folder / "more" / "b.pq", table.slice(400))
    (folder / "_SUCCESS.parquet").write_text("")
    write(tmp_path / "whole.parquet", table)
    for path, out in ((folder, "one.parquet"), (tmp_path / "whole.parquet", "two.parquet")):
        aggregate(path, "dawid-skene", out=tmp_path / out)
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "two.parquet"))


def test_the_number_of_threads_changes_rounding_only(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    one, four = (aggregate(path, "ibcc", out=tmp_path / f"{k}.parquet", threads=k).model for k in (1, 4))
    np.testing.assert_allclose(one.confusion_, four.confusion_, atol=1e-10)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "tsv"])
def test_labels_in_every_format(tmp_path: Path, suffix: str) -> None:
    from crowdwise.readers import load_columns

    path = write(tmp_path / "crowd.parquet", text(crowd()))
    aggregate(path, "wawa", out=tmp_path / f"labels.{suffix}")
    labels = load_columns(tmp_path / f"labels.{suffix}", lambda names: names)
    assert list(labels) == ["instance", "label", "confidence", "n_annotations"]
    assert labels["label"].to_pylist() == Wawa().fit(read_table(path).annotations).labels_.tolist()


def test_large_tables_are_made_from_the_posterior_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdwise.streaming import output

    monkeypatch.setattr(output, "CONFUSION", 0.0)
    path = write(tmp_path / "crowd.parquet", crowd())
    aggregate(path, "one-coin", out=tmp_path / "labels.parquet", annotators_out=tmp_path / "annotators.parquet")
    annotations = read_table(path).annotations
    table = quality.annotators(annotations, OneCoinDawidSkene().fit(annotations).judging_posterior_)
    table = table.sort_by([("annotator_quality", "ascending"), ("num_examples_labeled", "descending")])
    same_tables(pq.read_table(tmp_path / "annotators.parquet"), table)


# degenerate tables


def test_one_row(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", {"task": ["t"], "worker": ["w"], "label": ["cat"]})
    result = aggregate(path, "dawid-skene", out=tmp_path / "labels.parquet")
    assert pq.read_table(tmp_path / "labels.parquet").to_pylist() == [
        {"instance": "t", "label": "cat", "confidence": None, "n_annotations": 1}
    ]
    assert (result.n_annotations, result.n_classes) == (1, 1)


def test_an_instance_larger_than_a_partition(tmp_path: Path) -> None:
    table = crowd()
    table["task"][:1000] = 5
    compare(write(tmp_path / "crowd.parquet", table), DawidSkene(max_iter=3, tol=0), tmp_path)


def fails(path: Path, error: type[Exception] = DataError, **options: Any) -> str:
    out = path.parent / "labels.parquet"
    with pytest.raises(error) as caught:
        aggregate(path, **{"method": "dawid-skene", "out": out, **options})
    assert not out.exists()
    return str(caught.value)


def test_a_missing_value_is_named_with_file_row_group_and_record(tmp_path: Path) -> None:
    table = text(crowd())
    table["worker"][777] = None
    message = fails(write(tmp_path / "crowd.parquet", table), AnnotationError)
    assert "crowd.parquet: column 'worker', row group 3, record 778: the value is missing" in message
    number = {**crowd(), "task": np.where(np.arange(1500) == 3, np.nan, 1.0)}
    message = fails(write(tmp_path / "number.parquet", number), AnnotationError)
    assert "number.parquet: column 'task', row group 0, record 4: the value is NaN" in message


def test_types_that_are_no_ids_are_refused(tmp_path: Path) -> None:
    table = {**crowd(), "label": [[1]] * 1500}
    assert "column 'label': ids of type list" in fails(write(tmp_path / "crowd.parquet", table), AnnotationError)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    assert "no column 'worke' for the annotator; did you mean 'worker'" in fails(
        path, AnnotationError, annotator="worke"
    )
    path = write(tmp_path / "other.parquet", {"task": [1], "colour": [2], "worker": [3]})
    assert "other.parquet: no column for the label" in fails(path, AnnotationError)


def test_files_of_a_folder_must_agree(tmp_path: Path) -> None:
    folder = tmp_path / "crowd"
    folder.mkdir()
    write(folder / "a.parquet", crowd())
    write(folder / "b.parquet", text(crowd()))
    assert "b.parquet: column 'task' holds large_string, but int64 in a.parquet" in fails(folder, AnnotationError)
    write(folder / "b.parquet", {"item": [1], "worker": [1], "label": [1]})
    assert "b.parquet: no column 'task' for the instance" in fails(folder, AnnotationError)
    assert "the folder has no Parquet files" in fails((tmp_path / "none").mkdir() or tmp_path / "none")  # type: ignore[func-returns-value]


def test_metadata_that_contradict_themselves_do_not_end_the_process(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", {key: values[:30] for key, values in text(crowd()).items()})
    whole, messages = path.read_bytes(), []
    for at, byte in enumerate(whole):
        if byte == 2:  # among these are whether a column may be missing
            path.write_bytes(whole[:at] + b"d" + whole[at + 1 :])
            try:
                list(streamed_table.Table([path], {}).batches(0, 100))
            except (DataError, AnnotationError) as error:
                messages.append(str(error))
    assert messages
    assert all(message.startswith(str(path)) for message in messages)


def test_truncated_and_damaged_files(tmp_path: Path) -> None:
    content = write(tmp_path / "crowd.parquet", text(crowd())).read_bytes()
    (tmp_path / "short.parquet").write_bytes(content[:-100])
    assert "short.parquet: cannot be read as parquet" in fails(tmp_path / "short.parquet")
    (tmp_path / "broken.parquet").write_bytes(content[:4] + bytes(3000) + content[3004:])
    assert "broken.parquet, row group 0: cannot be read as parquet" in fails(tmp_path / "broken.parquet")
    (tmp_path / "empty.parquet").write_bytes(b"")
    assert "empty.parquet: the file is empty" in fails(tmp_path / "empty.parquet")
    write(tmp_path / "rows.parquet", pa.table(crowd()).slice(0, 0))
    assert "rows.parquet: the table has columns but no rows" in fails(tmp_path / "rows.parquet")
    assert "no such file" in fails(tmp_path / "nothing.parquet")
    (tmp_path / "crowd.csv").write_text("task,worker,label\n1,1,1\n")
    assert "only Parquet" in fails(tmp_path / "crowd.csv")


def test_what_cannot_be_streamed_says_what_can(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    message = fails(path, ConfigError, method="ebcc")
    assert "ebcc cannot be streamed" in message
    assert "these can: committee, crh, dawid-skene, fast-dawid-skene, glad" in message
    assert "gibbs" in fails(path, ConfigError, method=IBCC(method="gibbs"))
    assert "tie='random' cannot be streamed" in fails(path, ConfigError, method=DawidSkene(tie="random"))
    assert "did you mean 'dawid-skene'" in fails(path, ConfigError, method="dawidskene")
    assert "memory must be a size of" in fails(path, ConfigError, memory="much")


@pytest.mark.filterwarnings("ignore:this crowd is too sparse")
def test_tables_beyond_the_bound_are_refused_before_they_are_made(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", {**crowd(), "worker": np.arange(1500), "label": np.arange(1500) % 100})
    assert "confusion matrices of 1,500 annotators by 100 classes take 0.12 GB" in fails(path, memory="100MB")
    assert "is 'label' the column of labels?" in fails(
        write(tmp_path / "wide.parquet", {**crowd(), "worker": np.arange(1500), "label": np.arange(1500)}),
        memory="16MB",
    )


def test_ids_beyond_the_bound_are_refused_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "BATCH", 50_000)
    path = write(tmp_path / "crowd.parquet", {**crowd(500_000), "task": np.arange(500_000)}, 100_000)
    message = fails(path, memory="16MB")
    assert "ids in 'task' and those of the other columns take" in message
    assert "is it the column of the instance?" in message


# memory


def test_partitions_and_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances lie in one partition, and no partition is larger than its bound and one instance."""
    path = write(tmp_path / "crowd.parquet", crowd(), row_group_size=1500)
    seen: list[int] = []
    monkeypatch.setattr(preparation, "factorise", lambda column: seen.append(len(column.data)) or original(column))
    store = preparation.prepare(path, tmp_path / "work", {}, 10**9, 2, Progress())
    assert max(seen) == 90
    parts = [store.load(k) for k in range(len(store))]
    assert len(parts) > 10
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert sum(len(part.layout.cells) for part in parts) == 1500
    largest = (
        preparation.PER_ANNOTATION * read_table(path).annotations.labels_per_instance.max() + preparation.PER_STATE * 3
    )
    for part in parts:
        size = preparation.PER_ANNOTATION * len(part.layout.cells) + preparation.PER_STATE * 3 * part.n_instances
        assert size <= preparation.PARTITION + largest


original = preparation.factorise

_LIMITED = """
import resource, sys
import crowdwise.streaming as streaming
from crowdwise.aggregation import DawidSkene
from crowdwise.readers import read_table
kind, warm, path, out = sys.argv[1:]
def run(path):
    if kind == "streamed":
        streaming.aggregate(path, DawidSkene(max_iter=2, tol=0), out=out, threads=1, memory="32MB")
    else:
        DawidSkene(max_iter=2, tol=0).fit(read_table(path).annotations)
run(warm)
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 100_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
run(path)
"""


@pytest.mark.slow  # `test_partitions_and_batches_are_bounded` is quick
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to know the size of a process")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """100 MB on top of the imports do for four million rows, which in memory they do not."""
    write(tmp_path / "warm.parquet", crowd(30_000, 100), 10_000)
    rows = pa.table(crowd(1_000_000, 20_000, 200))
    with pq.ParquetWriter(tmp_path / "crowd.parquet", rows.schema) as writer:
        for _ in range(4):
            writer.write_table(rows, row_group_size=250_000)

    def limited(kind: str) -> subprocess.CompletedProcess[str]:
        files = (tmp_path / name for name in ("warm.parquet", "crowd.parquet", "labels.parquet"))
        command = [sys.executable, "-c", _LIMITED, kind, *map(str, files)]
        variables = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=os.environ | variables, check=False
        )

    done = limited("streamed")
    assert done.returncode == 0, done.stderr[-2000:]
    assert pq.read_table(tmp_path / "labels.parquet").num_rows == 20_000
    assert limited("in memory").returncode != 0


def test_small_files_with_long_values_are_read_in_small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, long = 600, "x" * 10_000
    triples = pa.table(
        {
            "instance": [k // 3 for k in range(n)],
            "annotator": [long, "b", "c"] * (n // 3),
            "label": [0, 1, 1] * (n // 3),
        }
    )
    for encoding in ("PLAIN", "DELTA_BYTE_ARRAY"):
        dictionary = encoding == "PLAIN"
        given = (
            {"use_dictionary": True}
            if dictionary
            else {"use_dictionary": False, "column_encoding": {"annotator": encoding}}
        )
        pq.write_table(triples, tmp_path / "long.parquet", **given)
        table = streamed_table.Table([tmp_path / "long.parquet"], {})
        monkeypatch.setattr(streamed_table, "DECODED", 100_000)
        parts = list(table.batches(0, 1 << 20))
        if dictionary:
            assert max(len(part["label"].data) for part in parts) <= 33
        rows = [
            row for part in parts for row in zip(*(column.data.to_pylist() for column in part.values()), strict=True)
        ]
        assert rows == list(zip(*triples.to_pydict().values(), strict=True))
        start = len(parts[0]["label"].data) + len(parts[1]["label"].data)
        later = [len(part["label"].data) for part in table.batches(start, 1 << 20)]
        assert sum(later) == n - start


def test_a_row_group_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"instance": list(range(5000)), "annotator": [0] * 5000, "label": [1] * 5000})
    pq.write_table(rows, tmp_path / "large.parquet", compression="zstd")
    monkeypatch.setenv("CROWDWISE_UNPACK_LIMIT", "2kB")
    with pytest.raises(DataError, match="unpacks to more than 2,000 bytes"):
        streamed_table.Table([tmp_path / "large.parquet"], {})
