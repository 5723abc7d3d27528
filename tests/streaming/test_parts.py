"""The parts of streaming against second implementations: ids, batches, passes, states, limits, and where an error is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise import streaming
from crowdwise.aggregation import DawidSkene
from crowdwise.aggregation.core import queries
from crowdwise.data.factorise import Column
from crowdwise.errors import AnnotationError, ConfigError, CrowdwiseWarning, DataError
from crowdwise.readers import read_table
from crowdwise.registry import AGGREGATORS
from crowdwise.streaming import aggregate, parse_memory, preparation
from crowdwise.streaming import crowd as streaming_crowd
from crowdwise.streaming import table as tables
from crowdwise.streaming._ids import Ids, grown, kind_of
from crowdwise.streaming.checkpoint import Checkpoint, packed, unpacked
from crowdwise.streaming.crowd import StreamedCrowd
from crowdwise.streaming.folder import MARKER, working_in
from crowdwise.streaming.output import check_output
from crowdwise.streaming.passes import Pass, Progress, Question, Threads, added, larger
from crowdwise.streaming.store import Store, read_arrays, write_arrays
from streaming_helpers import crowd, text, write

pytestmark = pytest.mark.usefixtures("small_pieces")
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "texts": (pa.large_string(), ["", "a", "ab", "b", "ü", "日本", "a\0", "a\0b", *(f"item {k}" for k in range(1500))]),
    "int64": (pa.int64(), [0, -1, 2**63 - 1, -(2**63), *range(1, 1500)]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, 2**63, *range(1, 700)]),
    "float64": (pa.float64(), [0.0, 0.1, -1.5, 1e300, 5e-324, *np.linspace(2, 3, 700).tolist()]),
    "bool": (pa.bool_(), [True, False]),
}


@pytest.mark.parametrize("name", VALUES)
def test_ids_get_the_codes_of_a_dictionary(name: str) -> None:
    kind, values = VALUES[name]
    rng, ids, known = np.random.default_rng(0), Ids(kind), dict[Any, int]()
    for _ in range(40):
        some = [values[k] for k in rng.permutation(len(values))[: rng.integers(1, 90)]]
        codes = ids.codes(pa.array(some, kind)).tolist()
        assert codes == [known.setdefault(one, len(known)) for one in some]
        assert ids.size == len(known)
    assert ids.since(0).to_pylist() == list(known)
    assert ids.since(ids.size // 2).to_pylist() == list(known)[ids.size // 2 :]
    sliced = pa.array(values[:2] + values[:2], kind).slice(2)
    assert ids.codes(sliced).tolist() == [known.setdefault(one, len(known)) for one in values[:2]]


def test_an_array_grows_by_half_and_keeps_what_it_had() -> None:
    array = np.array([3, 1], np.int16)
    assert grown(array, 2) is array
    for size, length in ((3, 3), (9, 9)):
        larger_one = grown(array, size)
        assert (larger_one[:2].tolist(), larger_one.dtype, len(larger_one)) == ([3, 1], np.int16, length)
        assert not larger_one[2:].any()
    assert len(grown(np.ones(100), 101)) == 150


def test_kinds_of_ids() -> None:
    same = {pa.int8(): pa.int64(), pa.uint32(): pa.int64(), pa.uint64(): pa.uint64(), pa.float32(): pa.float64()}
    same |= {pa.bool_(): pa.bool_(), pa.string(): pa.large_string(), pa.dictionary(pa.int8(), pa.int16()): pa.int64()}
    assert {kind: kind_of("x", kind) for kind in same} == same
    for kind in (pa.date32(), pa.decimal128(5, 2), pa.binary(), pa.null(), pa.list_(pa.int8())):
        with pytest.raises(AnnotationError, match=r"column 'x': ids of type .* cannot be streamed"):
            kind_of("x", kind)


def test_arrays_come_back_of_every_length_and_a_file_cannot_stand_in_for_another(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(5),
        "b": np.empty(0, np.uint32),
        "c": pa.array(["x", "", "ü"]),
        "d": np.array([0.5, np.nan]),
    }
    write_arrays(tmp_path / "one.arrow", arrays)
    found = read_arrays(tmp_path / "one.arrow", check=True)
    assert {name: len(values) for name, values in found.items()} == {"a": 5, "b": 0, "c": 3, "d": 2}
    assert (found["a"].to_pylist(), found["c"].to_pylist()) == ([0, 1, 2, 3, 4], ["x", "", "ü"])
    np.testing.assert_array_equal(found["d"].to_numpy(), [0.5, np.nan])
    shutil.copy(tmp_path / "one.arrow", tmp_path / "other.arrow")
    with pytest.raises(ValueError, match=r"other.arrow is damaged: its size or checksum does not match"):
        read_arrays(tmp_path / "other.arrow", check=True)


@pytest.mark.parametrize("size", [7, 90, 10_000])
def test_batches_hold_all_rows_and_begin_again_where_one_began(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    table = pa.table(text(crowd(700)))
    for k, (start, stop) in enumerate([(0, 150), (150, 151), (151, 700)]):
        pq.write_table(table.slice(start, stop - start), folder / f"{k}.parquet", row_group_size=60)
    made = tables.Table(tables.parquet_files(folder), {})
    assert made.rows == streaming.count_rows(folder) == 700

    def rows(start: int) -> list[list[tuple[Any, ...]]]:
        batches = made.batches(start, size)
        return [list(zip(*(column.data.to_pylist() for column in part.values()), strict=True)) for part in batches]

    expected = list(zip(*(table[name].to_pylist() for name in ("task", "worker", "label")), strict=True))
    every = rows(0)
    assert [row for part in every for row in part] == expected
    assert max(map(len, every)) <= min(size, 60)
    begins = np.cumsum([0, *map(len, every)]).tolist()
    for start in begins[1::3]:
        assert [row for part in rows(start) for row in part] == expected[start:]


@pytest.mark.parametrize(("role", "column", "bad"), [("task", "task", None), ("weight", "weight", "x")])
def test_an_error_in_a_later_file_says_where_it_is(tmp_path: Path, role: str, column: str, bad: Any) -> None:
    """The second file, its third row group, the record of this file: rows before it without a label count, too."""
    folder = tmp_path / "f"
    folder.mkdir()
    table = text(crowd(400))
    table["label"][60:75] = [None] * 15
    table["weight"] = ["1"] * 400
    table[column][77 + 250] = bad
    for name, rows in (("a", slice(0, 250)), ("b", slice(250, 400))):
        write(folder / f"{name}.parquet", {key: values[rows] for key, values in table.items()}, row_group_size=30)
    with pytest.raises(AnnotationError, match=rf"b.parquet: column '{column}', row group 2, record 78: "):
        aggregate(folder, "wawa", out=tmp_path / "o.parquet")


def test_a_disk_without_room_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "o.parquet"
    usage = shutil.disk_usage(tmp_path)

    def free(number: int) -> None:
        monkeypatch.setattr(preparation.shutil, "disk_usage", lambda _: usage._replace(free=number))

    needed = preparation.SPILL * 1500
    free(needed - 1)
    with pytest.raises(DataError, match=r"preparing 1,500 annotations takes up to 0.0 GB on disk"):
        aggregate(path, "wawa", out=out, work=tmp_path / "work")
    assert not list((tmp_path / "work").rglob("*.arrow"))
    free(needed)
    aggregate(path, "wawa", out=out)


def test_what_an_interrupted_run_has_written_counts_as_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out, work = write(tmp_path / "crowd.parquet", crowd()), tmp_path / "o.parquet", tmp_path / "work"
    with monkeypatch.context() as patch:
        patch.setattr(preparation._Encoding, "_write_table", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            aggregate(path, "wawa", out=out, work=work)
    (ready,) = work.glob("table-*")
    there = sum(file.stat().st_size for file in ready.rglob("*") if file.is_file())
    usage = shutil.disk_usage(tmp_path)
    for free, enough in ((-1, False), (0, True)):
        room = usage._replace(free=preparation.SPILL * 1500 - there + free)
        monkeypatch.setattr(preparation.shutil, "disk_usage", lambda _, room=room: room)
        if enough:
            aggregate(path, "wawa", out=out, work=work)
        else:
            with pytest.raises(DataError, match="on disk"):
                aggregate(path, "wawa", out=out, work=work)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    path = write(tmp_path / "crowd.parquet", crowd())
    return preparation.prepare(path, tmp_path / "work", {}, 10**9, 1, Progress())


def test_partitions_hold_the_labels_of_their_instances(store: Store, tmp_path: Path) -> None:
    annotations = read_table(tmp_path / "crowd.parquet").annotations
    expected = sorted(zip(annotations.instance, annotations.annotator, annotations.label, strict=True))
    found = []
    for number in range(len(store)):
        part = store.load(number, check=True)
        instance = part.start + np.repeat(np.arange(part.n_instances), np.diff(part.layout.indptr))
        annotator, label = np.divmod(part.layout.cells, store.n_classes)
        found += list(zip(instance, annotator, label, strict=True))
        assert part.stop - part.start == part.n_instances
    assert found == expected
    assert store.vocabulary("instances").values.tolist() == annotations.instances.tolist()
    assert store.vocabulary("annotators").values.tolist() == annotations.annotators.tolist()
    assert store.vocabulary("classes").values.tolist() == annotations.classes.tolist()
    assert len(store) > 5


@pytest.mark.parametrize("number", [1, 2, 3, 7, 1000])
def test_stretches_are_all_partitions_in_order_and_about_equally_long(store: Store, number: int) -> None:
    stretches = Pass(store, Question(queries.majority), added).stretches(number)
    assert [one for stretch in stretches for one in stretch] == list(range(len(store)))
    assert len(stretches) == min(number, len(store))
    assert max(map(len, stretches)) - min(map(len, stretches)) <= 1


@pytest.mark.parametrize("threads", [1, 3])
def test_passes_add_up_and_hand_out_pieces_in_order(store: Store, threads: int) -> None:
    seen: list[int] = []
    task = Pass(store, Question(_sizes), added)
    total = Threads(threads).sums(task, seen.append)
    sizes = [store.load(number).n_annotations for number in range(len(store))]
    assert total[0].tolist() == [sum(sizes), len(sizes)]
    assert sum(seen) == len(sizes)
    pieces: list[int] = []
    task = Pass(store, Question(_piece), added)
    total = Threads(threads).pieces(task, pieces.append, seen.append)
    assert (pieces, total[0].tolist()) == (sizes, [sum(sizes), len(sizes)])
    assert sum(seen) == 2 * len(sizes)
    most = Threads(threads).sums(Pass(store, Question(_largest), larger), seen.append)
    assert most == (max(sizes),)


def _sizes(layout: Any) -> Any:
    return np.array([len(layout.cells), 1])


def _piece(layout: Any) -> Any:
    return len(layout.cells), (_sizes(layout),)


def _largest(layout: Any) -> Any:
    return len(layout.cells)


def test_sums_are_added_in_place_but_not_to_themselves() -> None:
    table, number = np.array([1.0, 2.0]), np.array([5.0])
    total = added((table, 3, ["a"], number), (np.array([10.0, 20.0]), 4, ["b"], number))
    assert total[0] is table
    assert (table.tolist(), total[1:3], total[3].tolist()) == ([11, 22], (7, ["a", "b"]), [5])
    assert larger((3, 1.5), (2, 4.0)) == (3, 4.0)


def test_a_question_gives_each_part_its_own_rows_and_answers_of_questions(store: Store) -> None:
    weights = np.arange(store.n_instances, dtype=float)
    asked = Question(_with_rows, (Question(queries.majority),), (weights,))
    for number in range(len(store)):
        part = store.load(number)
        posterior, rows = asked.of(part)
        assert rows.tolist() == list(range(part.start, part.stop))
        np.testing.assert_allclose(posterior, queries.majority(part.layout))


def _with_rows(layout: Any, posterior: Any, rows: Any) -> Any:
    return posterior, rows


def test_states_come_back_as_they_were() -> None:
    array = np.arange(6.0).reshape(2, 3)
    asked = Question(queries.majority, (array, 2), (np.ones(3),))
    text, arrays = packed({"state": [array, asked, np.float64(0.1), np.int64(3)], "trace": [1.5], "again": array})
    assert len(arrays) == 2  # each once
    found = unpacked(text, arrays)
    assert found["again"] is found["state"][0] is arrays["a0"]
    assert found["state"][1].query is queries.majority
    assert found["state"][1].arguments[1] == 2
    assert found["state"][2:] == [0.1, 3]


def test_a_state_belongs_to_a_method_its_parameters_and_a_table(tmp_path: Path) -> None:
    def key(model: Any, source: str = "table") -> str:
        return Checkpoint(tmp_path, model, source).key

    own = key(DawidSkene(max_iter=5))
    others = [DawidSkene(max_iter=6), DawidSkene(max_iter=5, tol=0.5), DawidSkene(max_iter=5, prior=0.5)]
    assert own not in {key(each) for each in others} | {key(DawidSkene(max_iter=5), "another")}
    assert own == key(DawidSkene(max_iter=5, n_jobs=3))  # which changes no result


@pytest.mark.parametrize(("memory", "size"), [("16MB", 16_000_000), ("1.5 gb", 1_500_000_000), (2 * 10**9, 2 * 10**9)])
def test_memory_is_a_size(memory: Any, size: int) -> None:
    assert parse_memory(memory) == size


@pytest.mark.parametrize("memory", ["15.9MB", 15_999_999, "much", "-4GB", "", 0])
def test_a_size_that_is_none_or_too_small_is_named(memory: Any) -> None:
    with pytest.raises(ConfigError, match=r"memory must be a size of 16MB or more, such as 4GB or 800MB; got"):
        parse_memory(memory)


def test_half_of_a_small_machine_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for total, expected in ((6 * 10**9, 3 * 10**9), (64 * 10**9, 4 * 10**9), (None, 4 * 10**9)):
        monkeypatch.setattr(streaming, "total_memory", lambda total=total: total)
        assert parse_memory(None) == expected


def test_outputs_that_can_be_written_piece_by_piece() -> None:
    for name in ("a.parquet", "a.arrow", "a.csv", "a.tsv"):
        check_output(Path(name))
    for name in ("a.jsonl", "a.csv.gz", "a.tsv.zst"):
        with pytest.raises(DataError, match=r"can be streamed to \.parquet, \.arrow, \.csv, \.tsv only"):
            check_output(Path(name))


def test_files_of_a_folder_are_in_order_and_hidden_ones_left_out(tmp_path: Path) -> None:
    for name in (
        "b.PQ",
        "a.parquet",
        "sub/c.parquet",
        ".h.parquet",
        "_x.parquet",
        ".git/d.parquet",
        "_tmp/e.pq",
        "n.csv",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.parquet").mkdir()
    found = [str(file.relative_to(tmp_path)) for file in tables.parquet_files(tmp_path)]
    assert found == ["a.parquet", "b.PQ", "sub/c.parquet"]
    assert [file.name for file in tables.other_tables(tmp_path)] == ["n.csv"]
    assert tables.other_tables(tmp_path, [tmp_path / "n.csv"]) == []
    for name, problem in (("missing.parquet", "no such file"), ("n.csv", "only Parquet .* can be streamed")):
        with pytest.raises(DataError, match=problem):
            tables.parquet_files(tmp_path / name)


def test_methods_that_stream_are_listed_and_no_others() -> None:
    listed = streaming.streamable()
    assert listed == sorted(listed)
    for name in AGGREGATORS:
        assert (name in listed) is bool(getattr(AGGREGATORS[name], "streams", False)), name
    assert 0 < len(listed) < len(list(AGGREGATORS))


def test_suffixes_of_single_files_are_read_in_any_case(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.PQ", "C.Parquet"):
        (tmp_path / name).touch()
        assert tables.parquet_files(tmp_path / name) == [tmp_path / name]


def test_every_worker_needs_its_own_confusion_tables(store: Store) -> None:
    table = 8 * store.n_annotators * store.n_classes
    for workers in (1, 4):
        fits = table * (streaming_crowd.TABLES + workers)
        for memory in (fits, fits - 1):
            crowd = StreamedCrowd(store, Threads(workers), memory, Progress())
            if memory == fits:
                crowd.check_table(1)
                continue
            with pytest.raises(DataError, match=f"{streaming_crowd.TABLES + workers} times, and the bound on memory"):
                crowd.check_table(1)


def test_work_begins_in_folders_of_its_own_only(tmp_path: Path) -> None:
    def begin(folder: Path, *, keep: bool = False) -> None:
        with working_in(folder, keep=keep):
            (folder / "table").mkdir(exist_ok=True)

    begin(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    begin(tmp_path / "kept", keep=True)
    begin(tmp_path / "kept", keep=True)  # which is marked
    assert (tmp_path / "kept" / MARKER).exists()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for name in ("file", "link"):
        with pytest.raises(ConfigError, match=f"{name} is not a folder"):
            begin(tmp_path / name)
    earlier = tmp_path / "earlier" / "table"
    earlier.mkdir(parents=True)
    for content, ours in (({"checksum": "x", "content": {}}, True), ({"content": {}}, False), (["content"], False)):
        (earlier / "manifest.json").write_text(json.dumps(content))
        if not ours:
            with pytest.raises(ConfigError, match=r"earlier holds other files \(table\)"):
                begin(tmp_path / "earlier")
            continue
        begin(tmp_path / "earlier", keep=True)
        (tmp_path / "earlier" / MARKER).unlink()


def test_long_texts_divide_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vocabulary of a batch is small, what it stands for may be large."""
    monkeypatch.setattr(tables, "DECODED", 100)
    codes = pa.array([0, 1, 1, None, 0, 1, 1, 1, 0], pa.int32())
    values = pa.DictionaryArray.from_arrays(codes, pa.array(["ab", "x" * 40]))
    batch = pa.record_batch([values, pa.array(range(9))], names=["text", "number"])
    parts = list(tables._parts(batch))
    assert [row for part in parts for row in part.to_pylist()] == batch.to_pylist()
    sizes = [sum(len(row["text"] or "") for row in part.to_pylist()) for part in parts]
    assert len(parts) > 1
    assert max(sizes) <= 140  # the bound, and one more
    assert list(tables._parts(batch.slice(0, 2))) == [batch.slice(0, 2)]


def test_models_are_those_that_any_row_marks() -> None:
    kinds = Column.of(["person", " MODEL ", None, "model", "models", "person"], "kind")
    annotator = np.array([4, 7, 1, 2, 0, 7], np.int32)
    assert preparation._models(annotator, kinds) == {7, 2}
    assert preparation._models(annotator, None) == set()


def test_models_are_said_to_err_together() -> None:
    with pytest.warns(CrowdwiseWarning, match="3 annotators are models, which err together, and wawa takes errors"):
        streaming._check_models(3, "wawa")
    with pytest.raises(ConfigError, match=r"3 annotators are models.*name another method"):
        streaming._check_models(3, "auto")
