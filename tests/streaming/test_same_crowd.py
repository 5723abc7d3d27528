"""One rule of what is a label, a weight and a model, whether a table is streamed or read in memory; or a refusal by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise.errors import AnnotationError, ConfigError, CrowdwiseError, CrowdwiseWarning, DataError, UsageError
from crowdwise.streaming import aggregate as streamed
from crowdwise.tasks.aggregate import aggregate
from crowdwise.tasks.observer import Observer
from streaming_helpers import crowd, text, write

pytestmark = pytest.mark.usefixtures("small_pieces")


class Listening(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def both(path: Path, method: str = "majority-vote") -> list[Any]:
    """Labels of all instances, and what was said, in memory and streamed."""
    found = []
    for stream in (False, True):
        out, listening = path.parent / "o.parquet", Listening()
        aggregate(path, out, method=method, stream=stream, observer=listening)
        found.append((pq.read_table(out).to_pylist(), " ".join(listening.notes)))
    return found


def same(path: Path, method: str = "majority-vote") -> None:
    (memory, _), (disk, _) = both(path, method)
    assert [row["instance"] for row in disk] == [row["instance"] for row in memory]
    assert [row["label"] for row in disk] == [row["label"] for row in memory]
    for name in ("confidence", "n_annotations"):
        np.testing.assert_allclose([row[name] for row in disk], [row[name] for row in memory], rtol=1e-6)


def test_blank_labels_are_none_and_win_no_instance(tmp_path: Path) -> None:
    """Labels that were missing in memory became a class when streamed."""
    table = {"item": [0] * 5 + [1] * 3, "worker": list("abcdeabc"), "label": ["x", "x", "", " ", "", "x", "y", "x"]}
    (memory, said), (disk, also) = both(write(tmp_path / "b.parquet", table))
    assert disk == memory
    assert [row["label"] for row in disk] == ["x", "x"]
    for message in (said, also):
        assert "5 annotations of 2 instances by 3 annotators, 2 classes" in message
        assert "left out: 3 without a label" in message


BLANKS: list[tuple[str, Any]] = [
    ("texts", lambda label: np.array(["cat", "dog", "eel"])[label].astype(object)),
    ("integers", lambda label: label.astype(object)),
    ("floats", lambda label: label.astype(float).astype(object)),
    ("booleans", lambda label: (label > 0).astype(object)),
]


@pytest.mark.parametrize(("name", "make"), BLANKS, ids=[name for name, _ in BLANKS])
@pytest.mark.parametrize("categories", [False, True])
def test_rows_without_a_label_are_left_out_alike(tmp_path: Path, name: str, make: Any, categories: bool) -> None:
    table, rng = crowd(), np.random.default_rng(4)
    labels = make(table["label"])
    empty = rng.random(len(labels)) < 0.2
    empty[:450] = True  # whole batches, and a block
    labels[empty] = None
    if name == "texts":
        labels[empty & (rng.random(len(labels)) < 0.5)] = "  "
    column = pa.array(labels.tolist())
    table["label"] = column.dictionary_encode() if categories else column
    same(write(tmp_path / "crowd.parquet", table), "dawid-skene")


def test_labels_that_are_nan_are_none(tmp_path: Path) -> None:
    table = crowd()
    table["label"] = np.where(np.arange(1500) % 7 == 3, np.nan, table["label"].astype(float))
    same(write(tmp_path / "crowd.parquet", table))


def test_a_table_of_blank_labels_alone_is_refused_by_both(tmp_path: Path) -> None:
    path = write(tmp_path / "b.parquet", {"item": [1, 2], "worker": ["a", "b"], "label": ["", None]})
    for stream in (False, True):
        with pytest.raises(CrowdwiseError, match=r"there are no annotations \(left out: 2 without a label\)"):
            aggregate(path, tmp_path / "o.csv", stream=stream)


def test_a_preparation_goes_on_after_rows_without_a_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are left out count among those that were read, so none is read twice and none is skipped."""
    from crowdwise.streaming import preparation

    table = text(crowd())
    table["label"] = [None if k % 3 == 1 else label for k, label in enumerate(table["label"])]
    path, work = write(tmp_path / "crowd.parquet", table), tmp_path / "work"
    check, calls = preparation._Encoding._check_ids, []

    def dying(self: Any) -> None:
        calls.append(1)
        if len(calls) == 14:
            raise KeyboardInterrupt
        check(self)

    with monkeypatch.context() as patch:
        patch.setattr(preparation._Encoding, "_check_ids", dying)
        with pytest.raises(KeyboardInterrupt):
            streamed(path, "wawa", out=tmp_path / "one.parquet", work=work)
    assert list(work.glob("table-*/blocks/*"))
    streamed(path, "wawa", out=tmp_path / "one.parquet", work=work)
    streamed(path, "wawa", out=tmp_path / "two.parquet")
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "two.parquet"))


@pytest.mark.parametrize(
    "weigh",
    [
        lambda weight: pa.array([str(one) for one in weight]),
        lambda weight: pa.array([str(one) for one in weight]).dictionary_encode(),
        lambda weight: pa.array(weight, pa.float32()),
        lambda weight: pa.array(weight.astype(int), pa.int8()),
        lambda weight: pa.array(weight).cast(pa.decimal128(20, 3), safe=False),
    ],
    ids=["texts", "categories", "float32", "int8", "decimals"],
)
def test_a_column_of_weights_counts_alike_whatever_its_type(tmp_path: Path, weigh: Any) -> None:
    """Weights written as texts counted in memory and were ignored when streamed."""
    table = crowd()
    table["weight"] = weigh(np.random.default_rng(5).integers(1, 6, 1500).astype(float))
    path = write(tmp_path / "crowd.parquet", table)
    same(path)
    same(path, "one-coin")


def test_weights_as_texts_decide(tmp_path: Path) -> None:
    table = {"item": [0] * 3, "worker": list("abc"), "label": list("xyy"), "weight": ["5", "1", "1.5"]}
    rows = both(write(tmp_path / "w.parquet", table))
    assert [row[0]["label"] for row, _ in rows] == ["x", "x"]
    assert [row[0]["confidence"] for row, _ in rows] == pytest.approx([5 / 7.5] * 2)


def test_a_named_column_of_weights_is_streamed(tmp_path: Path) -> None:
    table = {"item": [0] * 3, "worker": list("abc"), "label": list("xyy"), "votes": [5, 1, 1]}
    path, out = write(tmp_path / "w.parquet", table), tmp_path / "o.parquet"
    for weight, label in ((None, "y"), ("votes", "x")):
        for stream in (False, True):
            aggregate(path, out, method="majority-vote", stream=stream, reading={"weight": weight})
            assert pq.read_table(out)["label"].to_pylist() == [label]


@pytest.mark.parametrize(("format", "n"), [("auto", 2), ("crowd-kit", 2), ("table", 3)])
def test_columns_are_those_of_the_format(tmp_path: Path, format: str, n: int) -> None:
    """In a table of crowd-kit the instance is the task, whatever other columns are called."""
    labels = {"worker": list("ababab"), "label": list("xyxyxx")}
    path = write(tmp_path / "t.parquet", {"item": [1, 1, 2, 2, 3, 3], "task": [1, 1, 1, 1, 2, 2], **labels})
    for stream in (False, True):
        done = aggregate(path, tmp_path / "o.csv", method="wawa", stream=stream, reading={"format": format})
        assert done.n_instances == n


def test_another_format_is_not_taken_for_a_long_table(tmp_path: Path) -> None:
    """In memory this is an export of Label Studio, whose annotator and label are in other columns."""
    table = {"id": [1, 1], "annotator": ["a", "b"], "annotation_id": [7, 8], "item": [0, 1], "label": list("xy")}
    path = write(tmp_path / "t.parquet", {**table, "sentiment": ["good", "bad"]})
    with pytest.raises(AnnotationError, match=r"t.parquet: this is read as label-studio, as it has .* format=table"):
        streamed(path, "wawa", out=tmp_path / "o.parquet")
    assert streamed(path, "wawa", out=tmp_path / "o.parquet", format="table").n_instances == 2


@pytest.mark.parametrize(
    ("reading", "named"),
    [
        ({"clean": True, "missing": ["x"]}, r"clean=, missing="),
        ({"models": False}, "how to leave out models"),
        ({"duplicates": "last"}, "duplicates=last"),
        ({"format": "toloka"}, "format=toloka"),
    ],
)
def test_what_streaming_does_not_know_is_named(tmp_path: Path, reading: dict[str, Any], named: str) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    with pytest.raises(UsageError, match=f"streaming does not know {named}: leave it out"):
        aggregate(path, tmp_path / "o.csv", stream=True, reading=reading)
    with pytest.raises(UsageError, match="streaming does not know to=label-studio"):
        aggregate(path, tmp_path / "o.json", stream=True, to="label-studio")


@pytest.mark.parametrize("bad", ["much", "", "-1", "nan"])
def test_weights_that_are_no_numbers_are_named_when_streamed(tmp_path: Path, bad: str) -> None:
    table = {"item": [0, 0, 1], "worker": list("aba"), "label": list("xyx"), "weight": ["1", bad, "1"]}
    with pytest.raises(AnnotationError, match=r"column 'weight', row group 0, record 2: weight"):
        streamed(write(tmp_path / "w.parquet", table), "majority-vote", out=tmp_path / "o.parquet")


@pytest.mark.parametrize("first", [True, False])
def test_files_of_which_only_some_have_weights_are_refused(tmp_path: Path, first: bool) -> None:
    """Where the first file of a folder had no column of weights, those of all others were dropped."""
    folder = tmp_path / "f"
    folder.mkdir()
    plain = {"item": [0] * 3, "worker": list("abc"), "label": list("xyy")}
    weighted = {**plain, "item": [1] * 3, "weight": [5.0, 1.0, 1.0]}
    write(folder / "a.parquet", weighted if first else plain)
    write(folder / "b.parquet", plain if first else weighted)
    has, lacks = ("a", "b") if first else ("b", "a")
    with pytest.raises(AnnotationError, match=rf"{has}.parquet has a column 'weight' .* {lacks}.parquet has none"):
        streamed(folder, "majority-vote", out=tmp_path / "o.parquet")
    write(folder / f"{lacks}.parquet", {**plain, "item": [2] * 3, "weight": [1.0, 1.0, 1.0]})
    streamed(folder, "majority-vote", out=tmp_path / "o.parquet")
    labels = {row["instance"]: row["label"] for row in pq.read_table(tmp_path / "o.parquet").to_pylist()}
    assert labels == {1: "x", 2: "y"}


def with_kinds(tmp_path: Path, models: int, name: str = "kind") -> Path:
    table = crowd()
    table[name] = [" Model" if worker < models else "person" for worker in table["worker"].tolist()]
    return write(tmp_path / "kinds.parquet", table)


@pytest.mark.parametrize("name", ["kind", "annotator_type"])
def test_models_are_known_when_streamed(tmp_path: Path, name: str) -> None:
    """A column that marks models was ignored: no panel, and no warning that models err together."""
    path, out = with_kinds(tmp_path, 2, name), tmp_path / "o.parquet"
    with pytest.raises(
        ConfigError, match=r"2 annotators are models, .* panel, the method for them, cannot be streamed"
    ):
        streamed(path, out=out)
    assert not out.exists()
    for stream in (False, True):
        with pytest.warns(CrowdwiseWarning, match="2 annotators are models, which err together, and wawa"):
            aggregate(path, out, method="wawa", stream=stream)


def test_one_model_is_an_annotator_like_others(tmp_path: Path) -> None:
    path = with_kinds(tmp_path, 1)
    assert streamed(path, out=tmp_path / "o.parquet").method == "committee"


def test_models_are_still_known_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdwise.streaming import preparation

    path, work = with_kinds(tmp_path, 2), tmp_path / "work"
    with monkeypatch.context() as patch:
        patch.setattr(preparation._Encoding, "_write_table", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            streamed(path, "wawa", out=tmp_path / "o.parquet", work=work)
    monkeypatch.setattr(preparation, "_models", lambda *_: set())  # nothing that is read from now on says so
    with pytest.warns(CrowdwiseWarning, match="2 annotators are models"):
        streamed(path, "wawa", out=tmp_path / "o.parquet", work=work)


def test_gold_that_is_not_used_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", {**crowd(), "truth": crowd()["label"]})
    assert "gold in 'truth' is not used" in streamed(path, "wawa", out=tmp_path / "o.parquet").message


# folders


def test_a_table_that_changed_is_prepared_again_though_its_size_and_time_did_not(tmp_path: Path) -> None:
    """A file that was restored with its time, of the same size, got the labels of the older one."""
    path, work, labels = tmp_path / "c.parquet", tmp_path / "work", []
    for answers in (["x", "x", "y"] * 80, ["y", "y", "x"] * 80):
        table = {"item": [k // 3 for k in range(240)], "worker": list("abc") * 80, "label": answers}
        pq.write_table(pa.table(table), path, compression="none", use_dictionary=False)
        os.utime(path, (1e9, 1e9))
        labels.append((path.stat().st_size, path.stat().st_mtime_ns))
        streamed(path, "majority-vote", out=tmp_path / f"o{len(labels)}.parquet", work=work)
    assert labels[0] == labels[1]
    found = [set(pq.read_table(tmp_path / f"o{k}.parquet")["label"].to_pylist()) for k in (1, 2)]
    assert found == [{"x"}, {"y"}]


def test_tables_of_a_folder_that_are_not_read_are_said(tmp_path: Path) -> None:
    """A csv beside Parquet files was left out without a word."""
    folder = tmp_path / "f"
    (folder / "more").mkdir(parents=True)
    write(folder / "a.parquet", crowd())
    (folder / "more" / "b.csv.gz").write_bytes(b"")
    (folder / "README.md").write_text("notes")
    (folder / ".hidden.csv").write_text("item")
    (folder / ".git").mkdir()
    (folder / ".git" / "x.csv").write_text("item")
    out = folder / "o.csv"
    for _ in range(2):  # the second time, labels of the first are there
        message = streamed(folder, "wawa", out=out, annotators_out=folder / "a.csv", work=folder / "work").message
    assert f"not read, as not Parquet: {str(Path('more', 'b.csv.gz'))!r};" in message
    assert "README" not in message
    assert "hidden" not in message
    assert "1 partition" in message or "csv.gz'; streamed" in message  # nothing else is named


@pytest.mark.parametrize("name", ["o.parquet", "more/o.pq"])
def test_labels_are_not_written_into_the_folder_that_is_read(tmp_path: Path, name: str) -> None:
    """The second run read the labels of the first one, and left its working folder."""
    folder = tmp_path / "f"
    (folder / "more").mkdir(parents=True)
    write(folder / "a.parquet", crowd())
    with pytest.raises(DataError, match="this lies in the folder that is read"):
        aggregate(folder, folder / name, method="wawa")
    assert sorted(file.name for file in folder.rglob("*")) == ["a.parquet", "more"]
    aggregate(folder, tmp_path / "f.parquet", method="wawa")


def test_a_file_under_two_names_is_refused(tmp_path: Path) -> None:
    """A symbolic link to a file of the folder counted its labels twice."""
    folder = tmp_path / "f"
    folder.mkdir()
    write(folder / "a.parquet", crowd())
    (folder / "b.parquet").symlink_to(folder / "a.parquet")
    with pytest.raises(DataError, match=r"b.parquet: this is the same file as .*a.parquet"):
        streamed(folder, "wawa", out=tmp_path / "o.parquet")


def test_several_files_to_stream_are_told_of_folders(tmp_path: Path) -> None:
    """Two Parquet files got "only tables can be streamed"."""
    files = [write(tmp_path / f"{name}.parquet", crowd()) for name in "ab"]
    with pytest.raises(UsageError, match="these are 2 files: put Parquet files that are one table into a folder"):
        aggregate(files, tmp_path / "o.csv", method="wawa", stream=True)


def test_blanks_at_the_ends_of_labels_make_no_class(tmp_path: Path) -> None:
    """The spellings of a label are one class by the same rule, streamed or in memory."""
    labels = ["cat", "cat ", "dog", "1", "1.0", "\tcat", "dog", "2.0", "cat"]
    table = {"item": [0] * 3 + [1] * 3 + [2] * 3, "worker": list("abc") * 3, "label": labels}
    path = write(tmp_path / "b.parquet", table)
    same(path)
    (memory, _), _ = both(path)
    assert [row["label"] for row in memory][:2] == ["cat", "1"]
