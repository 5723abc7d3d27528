"""A streamed crowd gives the numbers of the same crowd in memory, whatever its rows, ids and partitions look like."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise import agreement, quality
from crowdwise._lock import locked
from crowdwise.aggregation import (
    CRH,
    GLAD,
    IBCC,
    MACE,
    Aggregator,
    DawidSkene,
    FastDawidSkene,
    HierarchicalDawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
    Wawa,
    ZenCrowd,
    ZeroBasedSkill,
    kernels,
    recommend,
)
from crowdwise.errors import (
    AnnotationError,
    ConfigError,
    CrowdwiseWarning,
    DataError,
    InUseError,
    ModelFileError,
    StorageError,
)
from crowdwise.readers import read_table
from crowdwise.registry import AGGREGATORS
from crowdwise.streaming import aggregate, preparation, streamable
from crowdwise.streaming import store as stores
from crowdwise.streaming._progress import Progress
from crowdwise.streaming.crowd import StreamedCrowd
from crowdwise.streaming.passes import Threads

MODELS: list[Aggregator] = [
    MajorityVote(),
    Wawa(),
    ZeroBasedSkill(max_iter=5),
    CRH(),
    DawidSkene(max_iter=8, tol=0),
    DawidSkene(max_iter=8, tol=0, prior=None),
    DawidSkene(max_iter=8, tol=0, prior=0.5),
    OneCoinDawidSkene(max_iter=8, tol=0),
    OneCoinDawidSkene(max_iter=8, tol=0, prior=None),
    FastDawidSkene(),
    FastDawidSkene(hybrid=True),
    HierarchicalDawidSkene(max_iter=6),
    IBCC(max_iter=8, tol=0),
    IBCC(max_iter=8, tol=0, class_count="empirical"),
    ZenCrowd(),
    GLAD(max_iter=8, tol=0),
    MACE(max_iter=8, n_restarts=3, random_state=0),
]
FITTED = ("confusion_", "skill_", "class_prior_", "objective_", "n_iter_", "converged_")


def crowd(rows: int = 1500, n: int = 300, annotators: int = 12, classes: int = 3, seed: int = 0) -> dict[str, Any]:
    """Labels in random order, some of them repeated, of instances with 1 to about 12 labels."""
    rng = np.random.default_rng(seed)
    truth, skill = rng.integers(classes, size=n), rng.uniform(0.4, 0.95, annotators)
    instance, annotator = rng.integers(n, size=rows), rng.integers(annotators, size=rows)
    right = rng.random(rows) < skill[annotator]
    label = np.where(right, truth[instance], rng.integers(classes, size=rows))
    return {"task": instance * 7 - 300, "worker": annotator, "label": label}


def text(table: dict[str, Any]) -> dict[str, Any]:
    names = {"task": "item-", "worker": "wörker ", "label": ""}
    return {column: [f"{names[column]}{value}" for value in values] for column, values in table.items()}


def write(path: Path, table: Any, row_group_size: int = 200) -> Path:
    pq.write_table(pa.table(table), path, row_group_size=row_group_size)
    return path


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small crowds are cut into many pieces."""
    monkeypatch.setattr(preparation, "PARTITION", 6_000)
    monkeypatch.setattr(preparation, "BATCH", 90)
    monkeypatch.setattr(preparation, "BLOCK", 400)


def fresh(model: Aggregator, **changes: Any) -> Aggregator:
    return type(model)(**{**model.get_params(), **changes})


def compare(path: Path, model: Aggregator, tmp_path: Path, **options: Any) -> None:
    out, profile = tmp_path / "labels.parquet", tmp_path / "annotators.parquet"
    options = {"threads": 2, **options}
    result = aggregate(path, fresh(model), out=out, annotators_out=profile, proba=True, **options)
    annotations = read_table(path).annotations
    expected = fresh(model).fit(annotations)
    labels = pq.read_table(out)
    assert labels["instance"].to_pylist() == expected.instances_.tolist()
    assert labels["label"].to_pylist() == expected.labels_.tolist()
    assert labels["n_annotations"].to_pylist() == annotations.labels_per_instance.tolist()
    posterior = np.stack([labels[f"p_{name}"].to_numpy() for name in expected.classes_], axis=1)
    np.testing.assert_allclose(posterior, expected.posterior_, atol=1e-8)
    np.testing.assert_allclose(labels["confidence"].to_numpy(), expected.posterior_.max(axis=1), atol=1e-8)
    for name in FITTED:
        if hasattr(expected, name):
            np.testing.assert_allclose(getattr(result.model, name), getattr(expected, name), rtol=1e-8, atol=1e-8)
    table = quality.annotators(annotations, expected)
    table = table.sort_by([("annotator_quality", "ascending"), ("num_examples_labeled", "descending")])
    same_tables(pq.read_table(profile), table)
    assert not out.with_name(".labels.parquet.work").exists()


def same_tables(found: pa.Table, expected: pa.Table) -> None:
    assert found.column_names == expected.column_names
    for name in found.column_names:
        ours, theirs = found[name].to_pylist(), expected[name].to_pylist()
        if isinstance(theirs[0], float):
            np.testing.assert_allclose(np.array(ours, float), np.array(theirs, float), atol=1e-7, err_msg=name)
        else:
            assert ours == theirs, name


# the numbers


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_numbers_are_those_in_memory(model: Aggregator, tmp_path: Path) -> None:
    compare(write(tmp_path / "crowd.parquet", crowd()), model, tmp_path)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_numbers_are_those_in_memory_with_compiled_kernels(
    model: Aggregator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SMALL", 0)
    monkeypatch.setattr(kernels, "PATIENT", 0)
    compare(write(tmp_path / "crowd.parquet", text(crowd(seed=1))), model, tmp_path)


def test_every_method_that_streams_is_compared() -> None:
    assert {AGGREGATORS[name] for name in streamable()} == {type(model) for model in MODELS}


def test_auto_chooses_what_is_recommended(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    result = aggregate(path, out=tmp_path / "labels.parquet")
    expected = recommend(read_table(path).annotations, random_state=0)
    assert (result.method, result.reason) == (expected.name, expected.reason)


def test_figures_are_those_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    found = aggregate(path, "dawid-skene", out=tmp_path / "labels.parquet")
    annotations = read_table(path).annotations
    votes, labels = annotations.votes(), DawidSkene().fit(annotations).labels_
    assert found.figures.ties == np.count_nonzero((votes == votes.max(axis=1)[:, None]).sum(axis=1) > 1)
    assert found.figures.changed == np.count_nonzero(labels != votes.argmax(axis=1))
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
        lambda table: {**table, "task": np.sort(table["task"])},
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
    from crowdwise.readers._files import load_columns

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
    table = quality.annotators(annotations, OneCoinDawidSkene().fit(annotations).posterior_)
    table = table.sort_by([("annotator_quality", "ascending"), ("num_examples_labeled", "descending")])
    same_tables(pq.read_table(tmp_path / "annotators.parquet"), table)


# degenerate tables


def test_one_row(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", {"task": ["t"], "worker": ["w"], "label": ["cat"]})
    result = aggregate(path, "dawid-skene", out=tmp_path / "labels.parquet")
    assert pq.read_table(tmp_path / "labels.parquet").to_pylist() == [
        {"instance": "t", "label": "cat", "confidence": 1.0, "n_annotations": 1}
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
    table["label"][777] = None
    message = fails(write(tmp_path / "crowd.parquet", table), AnnotationError)
    assert "crowd.parquet: column 'label', row group 3, record 778: the value is missing" in message
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
    assert "these can: crh, dawid-skene, fast-dawid-skene, glad" in message
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


def test_ids_beyond_the_bound_are_refused_while_they_are_read(tmp_path: Path) -> None:
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
    parts = [store.load(k) for k in range(len(store.partitions))]
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


# going on after a kill

_KILLED = """
import os, sys
import crowdwise.streaming as streaming
from crowdwise.aggregation import kernels
from crowdwise.streaming import checkpoint, preparation, output
preparation.PARTITION, preparation.BATCH, preparation.BLOCK = 6_000, 90, 400
calls = 0
def dying(function, last):
    def counted(*arguments, **options):
        global calls
        calls += 1
        if calls == last:
            os._exit(9)
        return function(*arguments, **options)
    return counted
{patch}
streaming.aggregate(sys.argv[1], {method}, out=sys.argv[2], work=sys.argv[3])
"""


def killed(path: Path, out: Path, work: Path, patch: str, method: str = "'dawid-skene'") -> None:
    code = _KILLED.format(patch=textwrap.dedent(patch), method=method)
    done = subprocess.run([sys.executable, "-c", code, str(path), str(out), str(work)], timeout=120, check=False)
    assert done.returncode == 9
    assert not out.exists()


class Cut(BaseException):
    """A process that ends in the middle."""


CUTS: dict[str, tuple[Any, str, int]] = {  # what is called for the last time, and how many times it is
    "reading": (preparation._Preparation, "_check_ids", 12),
    "dealing": (preparation.np, "save", 1),
    "sorting": (preparation._Preparation, "_sort", 5),
    "manifest": (preparation.Store, "save", 1),
    "renaming": (preparation.shutil, "rmtree", 6),
}


def cut(path: Path, work: Path, where: str) -> None:
    """Begin to prepare a table, with one thread, and stop somewhere."""
    owner, name, last = CUTS[where]
    function, calls = getattr(owner, name), []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) >= last:  # nothing happens afterwards, in any thread
            raise Cut
        return function(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        with pytest.raises(Cut):
            aggregate(path, "wawa", out=path.with_name("labels.parquet"), work=work, threads=1)
    assert not path.with_name("labels.parquet").exists()


@pytest.mark.parametrize("make", [crowd, lambda: text(crowd())], ids=["numbers", "texts"])
@pytest.mark.parametrize(
    ("where", "rows", "sorted_parts"),
    [
        ("reading", 1100, [17]),
        ("dealing", 0, [17]),
        ("sorting", 0, [17 - 4]),
        ("manifest", 0, [0]),
        ("renaming", 0, [0]),
    ],
)
def test_a_preparation_that_was_cut_off_goes_on_with_what_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, where: str, rows: int, sorted_parts: Any
) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", make()), tmp_path / "labels.parquet", tmp_path / "work"
    cut(path, work, where)
    read, done = [], []
    codes, sort = preparation._Preparation._codes, preparation._Preparation._sort

    def encode(self: Any, role: str, column: Any) -> Any:
        if role == "label":
            read.append(len(column.data))
        return codes(self, role, column)

    monkeypatch.setattr(preparation._Preparation, "_codes", encode)
    monkeypatch.setattr(preparation._Preparation, "_sort", lambda *all: done.append(1) or sort(*all))
    result = aggregate(path, "dawid-skene", out=out, work=work)
    expected = DawidSkene().fit(read_table(path).annotations)
    np.testing.assert_allclose(result.model.confusion_, expected.confusion_, atol=1e-8)
    assert pq.read_table(out)["label"].to_pylist() == expected.labels_.tolist()
    assert sum(read) == rows
    assert len(done) in sorted_parts
    assert {entry.name for entry in work.iterdir() if not entry.name.startswith("state-")} == {"table", ".lock"}


def test_what_was_prepared_of_another_table_is_not_used(tmp_path: Path) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "labels.parquet", tmp_path / "work"
    cut(path, work, "sorting")
    write(path, crowd(seed=1))
    aggregate(path, "wawa", out=out, work=work)
    assert pq.read_table(out)["label"].to_pylist() == Wawa().fit(read_table(path).annotations).labels_.tolist()


@pytest.mark.parametrize(
    ("where", "file"),
    [
        ("reading", "codes/000000.npz"),
        ("sorting", "dealt/000010.bin"),
        ("sorting", "dealt/000000.json"),
        ("sorting", "parts/000000.bin"),
        ("sorting", "dealt.json"),
        ("sorting", "instances.arrow"),
        ("sorting", "source.json"),
    ],
)
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_what_was_prepared_and_is_damaged_is_prepared_again(tmp_path: Path, where: str, file: str, damage: str) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "labels.parquet", tmp_path / "work"
    cut(path, work, where)
    found = work / "table.partial" / file
    content = found.read_bytes()
    if damage == "gone":
        found.unlink()
    else:
        found.write_bytes(content[:-9] if damage == "cut" else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    if damage == "gone" and file in (
        "codes/000000.npz",
        "source.json",
        "dealt.json",
    ):  # as if it had not been written yet
        aggregate(path, "wawa", out=out, work=work)
    else:
        with pytest.warns(CrowdwiseWarning, match="the table is prepared from its beginning"):
            aggregate(path, "wawa", out=out, work=work)
    assert pq.read_table(out)["label"].to_pylist() == Wawa().fit(read_table(path).annotations).labels_.tolist()


@pytest.mark.parametrize(
    "model",
    [model for model in MODELS if type(model) not in (MajorityVote, Wawa)],
    ids=repr,
)
def test_a_run_that_stopped_between_rounds_goes_on_and_ends_alike(
    model: Aggregator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    rounds: list[int] = []
    step = type(model)._round

    def counted(self: Any, *arguments: Any) -> Any:
        rounds.append(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(type(model), "_round", counted)
    with pytest.raises(KeyboardInterrupt):
        aggregate(path, fresh(model), out=tmp_path / "labels.parquet", work=work, threads=2)
    monkeypatch.setattr(type(model), "_start", lambda *arguments: pytest.fail("it started from the beginning"))
    resumed = aggregate(path, fresh(model), out=tmp_path / "labels.parquet", work=work, threads=2)
    monkeypatch.undo()
    monkeypatch.setattr(preparation, "PARTITION", 6_000)
    whole = aggregate(path, fresh(model), out=tmp_path / "whole.parquet", threads=2)
    assert resumed.model.n_iter_ == whole.model.n_iter_  # type: ignore[attr-defined]
    np.testing.assert_array_equal(resumed.model.objective_, whole.model.objective_)  # type: ignore[attr-defined]
    assert pq.read_table(tmp_path / "labels.parquet").equals(pq.read_table(tmp_path / "whole.parquet"))


def test_a_process_that_was_killed_between_rounds_goes_on(tmp_path: Path) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "labels.parquet", tmp_path / "work"
    method = "streaming._model(__import__('crowdwise.aggregation').aggregation.DawidSkene(max_iter=9, tol=0), 0)[0]"
    killed(path, out, work, "os.replace = dying(os.replace, 6)", method)
    result = aggregate(path, DawidSkene(max_iter=9, tol=0), out=out, work=work)
    expected = DawidSkene(max_iter=9, tol=0).fit(read_table(path).annotations)
    np.testing.assert_allclose(result.model.objective_, expected.objective_, rtol=1e-10)  # type: ignore[attr-defined]


def test_a_prepared_table_serves_other_methods_until_the_input_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    made: list[int] = []
    run = preparation._Preparation.run
    monkeypatch.setattr(preparation._Preparation, "run", lambda self: made.append(1) or run(self))
    for method in ("wawa", "one-coin", "one-coin"):
        aggregate(path, method, out=tmp_path / "labels.parquet", work=work)
    assert len(made) == 1
    aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work, label="worker", annotator="label")
    assert len(made) == 2
    write(path, crowd(seed=3))
    aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work)
    assert len(made) == 3
    part = next((work / "table" / "parts").iterdir())
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.warns(CrowdwiseWarning, match=f"{part.name} is damaged.*the table is prepared again"):
        aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work)
    assert len(made) == 4
    assert (
        pq.read_table(tmp_path / "labels.parquet")["label"].to_pylist()
        == Wawa().fit(read_table(path).annotations).labels_.tolist()
    )


def test_a_damaged_state_is_named_and_the_one_before_it_used(tmp_path: Path) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    aggregate(path, "one-coin", out=tmp_path / "labels.parquet", work=work)
    before = (tmp_path / "labels.parquet").read_bytes()
    (state,) = work.glob("state-*.npz")
    state.write_bytes(state.read_bytes()[:-200])
    with pytest.warns(
        CrowdwiseWarning, match=r"state-.*npz is not a readable npz file.*going on from the round before"
    ):
        aggregate(path, "one-coin", out=tmp_path / "labels.parquet", work=work)
    assert (tmp_path / "labels.parquet").read_bytes() == before
    for file in work.glob("state-*"):
        file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ModelFileError, match=r"state-.*npz is not a readable npz file: .* remove it"):
        aggregate(path, "one-coin", out=tmp_path / "labels.parquet", work=work)


def test_a_state_of_another_method_is_not_taken(tmp_path: Path) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    aggregate(path, OneCoinDawidSkene(max_iter=1), out=tmp_path / "labels.parquet", work=work)
    (one,) = work.glob("state-*.npz")
    content = one.read_bytes()
    one.unlink()
    aggregate(path, OneCoinDawidSkene(max_iter=2, tol=0), out=tmp_path / "labels.parquet", work=work)
    for other in work.glob("state-*"):
        other.write_bytes(content)
    with pytest.raises(ModelFileError, match="it belongs to another table or method"):
        aggregate(path, OneCoinDawidSkene(max_iter=2, tol=0), out=tmp_path / "labels.parquet", work=work)


def test_a_working_folder_serves_one_run_at_a_time(tmp_path: Path) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"
    with locked(work), ThreadPoolExecutor(1) as pool:  # another thread is refused as another process is
        error = pool.submit(aggregate, path, "dawid-skene", out=tmp_path / "out.parquet", work=work).exception()
    assert isinstance(error, InUseError)
    assert f"{work} is in use by process {os.getpid()} on" in str(error)


def test_a_full_disk_is_named_and_the_next_run_prepares_the_table_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "work"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "write_ids", full)
        with pytest.raises(
            StorageError, match=rf"{work}/table cannot be written: No space left.* MB are free in {work}"
        ):
            aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work)
    result = aggregate(path, "wawa", out=tmp_path / "labels.parquet", work=work)
    assert result.n_instances == read_table(path).annotations.n_instances


def test_a_method_that_wants_everything_at_once_is_stopped(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    store = preparation.prepare(path, tmp_path / "work", {}, 10**9, 1, Progress())
    assert isinstance(store, stores.Store)
    with pytest.raises(ConfigError, match="a crowd on disk does not allow"):
        StreamedCrowd(store, Threads(1), 10**9, Progress()).layout
