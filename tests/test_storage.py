"""Arrays, documents, limits and texts on their way to and from files: what comes back, and what is refused."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.errors import ConfigError, DataError, ModelFileError
from crowdwise.storage import arrays as stored
from crowdwise.storage.arrays import read_npy, read_npz
from crowdwise.storage.documents import (
    named_toml,
    read_as,
    read_json,
    read_json_lines,
    toml_names,
    toml_table,
    write_json,
    write_json_lines,
)
from crowdwise.storage.files import cache_folder, replacing, replacing_all, replacing_folder, tidy
from crowdwise.storage.limits import LARGEST, RATIO, SMALL, VARIABLE, Bounded, largest, parse_size, unpack_limit
from crowdwise.storage.text import inert, inert_table, printable, restored

ARRAYS = {
    "plain": np.arange(12).reshape(3, 4),
    "by columns": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "nothing": np.empty((0, 7), np.float32),
    "one number": np.array(2.5),
    "texts": np.array(["a", "long one", ""]),
    "times": np.array(["2020-01-01", "NaT"], "datetime64[D]"),
    "a record": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
    "other byte order": np.arange(5, dtype=">i4"),
}


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version, allow_pickle=array.dtype.hasobject)
    return file.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_from_both_versions_of_the_format(tmp_path: Path, name: str, version: tuple[int, int]) -> None:
    path, array = tmp_path / "a.npy", ARRAYS[name]
    path.write_bytes(npy(array, version))
    for mapped in (False, True):
        found = read_npy(path, mapped=mapped)
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert found.tobytes("A") == array.tobytes("A")
        assert found.flags.f_contiguous == array.flags.f_contiguous
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[:-1], "header says shape"),
        (lambda data: data + b"x", "header says shape"),
        (lambda data: b"\x93NUMPY\x03\x00" + data[8:], "version \\(3, 0\\) of the format is not supported"),
        (lambda data: data[:6] + b"\x02" + data[7:], "not a readable npy file"),
        (lambda data: b"nonsense", "not a readable npy file"),
        (lambda data: data.replace(b"(3, 4)", b"(4, 4)"), "it holds 96 bytes of values"),
        (lambda data: npy(np.array([{}], object)), "pickled objects, which are never loaded"),
    ],
)
def test_a_header_must_say_what_the_file_holds(tmp_path: Path, change: Any, problem: str) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(change(npy(np.arange(12).reshape(3, 4))))
    for mapped in (False, True):
        with pytest.raises(ModelFileError, match=rf"a\.npy is not a readable npy file: .*{problem}|{problem}"):
            read_npy(path, ModelFileError, mapped=mapped)


def test_an_array_longer_than_a_block_and_one_that_is_nothing_many_times(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(stored, "BLOCK", 64)
    for rows in (7, 8, 9, 100):
        np.save(tmp_path / "a.npy", np.arange(rows))
        assert read_npy(tmp_path / "a.npy").tolist() == list(range(rows))
    monkeypatch.setattr(stored, "_MOST_EMPTY", 10)
    np.save(tmp_path / "a.npy", np.empty((10, 0)))
    assert read_npy(tmp_path / "a.npy").shape == (10, 0)
    np.save(tmp_path / "a.npy", np.empty((11, 0)))
    with pytest.raises(DataError, match=r"shape \(11, 0\), which is nothing, 11 times"):
        read_npy(tmp_path / "a.npy")


def test_arrays_of_an_archive_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.npz"
    np.savez_compressed(path, a=np.arange(3), b=np.zeros((2, 50)), c=np.array(["x"]))
    assert list(read_npz(path)) == ["a", "b", "c"]
    assert {name: array.tolist() for name, array in read_npz(path, ["c", "a"]).items()} == {"c": ["x"], "a": [0, 1, 2]}
    with pytest.raises(DataError, match=r"some.npz has no array 'd'; it needs a, d"):
        read_npz(path, ["a", "d"])
    monkeypatch.setenv(VARIABLE, "200")
    assert list(read_npz(path, ["a"])) == ["a"]  # what is not wanted is not counted
    with pytest.raises(
        ModelFileError, match=r"some.npz: unpacks to more than 200 bytes; .* set CROWDWISE_UNPACK_LIMIT"
    ):
        read_npz(path, ["a", "b"], ModelFileError)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("12", 12),
        ("3k", 3000),
        ("3KB", 3000),
        (" 1.5 mb ", 1_500_000),
        ("2G", 2 * 10**9),
        ("0.25t", 25 * 10**10),
    ],
)
def test_sizes_in_all_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "b4", "-1", "1e3", "4GiB", "4 G B x", "٣", "1.", "1,5GB"])
def test_what_is_no_size(text: str) -> None:
    assert parse_size(text) is None


def test_what_a_file_may_unpack_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    path = tmp_path / "a.gz"
    for size, limit in ((0, SMALL), (SMALL // RATIO, SMALL), (SMALL, SMALL * RATIO), (2 * SMALL, LARGEST)):
        with path.open("wb") as file:
            file.truncate(size)
        assert unpack_limit(path) == min(limit, LARGEST)
    assert largest() == LARGEST
    monkeypatch.setenv(VARIABLE, "1kB")
    assert unpack_limit(path) == largest() == 1000
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(ConfigError, match=r"CROWDWISE_UNPACK_LIMIT must be a size such as 64GB, not 'much'"):
        unpack_limit(path)


@pytest.mark.parametrize("limit", [99, 100, 101])
def test_a_stream_ends_in_an_error_beyond_its_limit(tmp_path: Path, limit: int) -> None:
    inner = io.BytesIO(b"0123456789" * 10)
    stream = Bounded(inner, tmp_path / "a.gz", limit, ModelFileError)
    assert stream.readable()
    if limit < 100:
        with pytest.raises(ModelFileError, match="unpacks to more than 99 bytes"):
            io.BufferedReader(stream, 16).read()
    else:
        assert io.BufferedReader(stream, 16).read() == b"0123456789" * 10
    stream.close()
    assert inner.closed


@dataclass
class Inner:
    n: int


@dataclass
class Settings:
    name: str
    seeds: int = 3
    parts: list[Inner] = field(default_factory=list)


def test_a_document_becomes_what_declares_it() -> None:
    found = read_as(Settings, {"name": "x", "parts": [{"n": 1}, {"n": 5}]}, "a.toml")
    assert found == Settings("x", 3, [Inner(1), Inner(5)])
    assert read_as(Settings, {"seeds": 8}, "a.toml", name="given") == Settings("given", 8)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, "a.toml: name is missing"),
        ({"name": "x", "sedes": 1}, "a.toml: unknown key 'sedes'; did you mean 'seeds'?"),
        ({"name": 4}, "a.toml: name"),
        ({"name": "x", "seeds": "3"}, "a.toml: seeds"),
        ({"name": "x", "parts": [{"n": 1}, {"m": 1}]}, "a.toml: parts 2: unknown key 'm'"),
        ({"name": "x", "parts": [{"n": 1}, {}]}, "a.toml: parts 2: n is missing"),
        (["name"], "a.toml must be a table"),
    ],
)
def test_what_is_wrong_with_a_document_is_named(content: Any, problem: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        read_as(Settings, content, "a.toml", ModelFileError)
    assert str(caught.value).startswith(problem)


def test_json_comes_back_and_what_is_none_is_named(tmp_path: Path) -> None:
    path, content = tmp_path / "a.json", {"a": [1, 2.5, None, "ü"], "b": {"c": True}}
    write_json(path, content)
    assert read_json(path) == content
    write_json(path, {"path": Path("x"), "number": np.float64(2.5)})  # by their texts
    assert read_json(path) == {"path": "x", "number": 2.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path)["number"] == 2.5  # the old file
    for damage in ("{", "[" * 100_000, "", "\ufeff{}x"):
        path.write_text(damage)
        with pytest.raises(DataError, match=r"a\.json is damaged: "):
            read_json(path, DataError)
    for missing, problem in ((tmp_path / "none", "does not exist"), (tmp_path, "is not a regular file")):
        with pytest.raises(ModelFileError, match=problem):
            read_json(missing)


def test_a_document_may_not_be_larger_than_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdwise.storage import documents

    monkeypatch.setattr(documents, "SMALL", 4)
    for text, fits in (("1234", True), ("12345", False)):
        (tmp_path / "a.json").write_text(text)
        if fits:
            assert read_json(tmp_path / "a.json") == 1234
        else:
            with pytest.raises(ModelFileError, match=r"has 5 bytes; a document may have 4 at most"):
                read_json(tmp_path / "a.json")


def test_json_lines_have_a_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_json_lines(path, [{"n": 1}, [2], "three"])
    assert list(read_json_lines(path)) == [
        (f"{path}, line {k}", one) for k, one in enumerate([{"n": 1}, [2], "three"], 1)
    ]
    path.write_text('{"n": 1}\n{"n": \n')
    with pytest.raises(ModelFileError, match=r"a.jsonl, line 2 is not JSON"):
        list(read_json_lines(path))


def test_toml_by_name_or_file(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    for name in ("b.toml", "a.toml", "own/c.toml", "note.txt"):
        (tmp_path / name).write_text(f'name = "{name}"')
    folders = (tmp_path, tmp_path / "own")
    assert toml_names(*folders) == ["a", "b", "c"]
    assert named_toml("preset", "c", *folders) == ("c", {"name": "own/c.toml"})
    assert named_toml("preset", tmp_path / "own" / "c.toml") == ("c", {"name": "own/c.toml"})
    for wrong, problem in (("bb", "unknown preset 'bb'; did you mean 'b'"), ("none.toml", "there is no preset file")):
        with pytest.raises(ConfigError, match=problem):
            named_toml("preset", wrong, *folders)
    (tmp_path / "a.toml").write_text("name = ")
    with pytest.raises(ConfigError, match="preset a: "):
        named_toml("preset", "a", *folders)
    with pytest.raises(ValueError, match="nested too deeply"):
        toml_table("a = " + "[" * 100_000)


RISKY = ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "'=x", "''-x"]
HARMLESS = ["", "x", "-1", "+1.5e3", "-.5", "1-2", "x=1", "'x", " =x", "-1.", "ü"]


def test_texts_for_spreadsheets_come_back() -> None:
    assert [inert(text) for text in RISKY] == [f"'{text}" for text in RISKY]
    assert [inert(text) for text in HARMLESS] == HARMLESS
    for kind in (pa.string(), pa.large_string()):
        texts = pa.array([*RISKY, None, *HARMLESS], kind)
        written = inert_table(pa.table({"a": texts, "n": range(len(texts)), "plain": ["x"] * len(texts)}))
        assert written["a"].to_pylist() == [None if text is None else inert(text) for text in texts.to_pylist()]
        assert written["n"].to_pylist() == list(range(len(texts)))
        assert restored(written["a"]).to_pylist() == texts.to_pylist()


def test_control_characters_are_shown() -> None:
    for character in ("\0", "\x07", "\x1b", "\x7f", "\x85", "\u202e", "\u2066", "\r"):
        assert printable(f"a{character}b") == f"a{character.encode('unicode_escape').decode()}b"
    assert printable("a\tb\nc ü 日本 \u200f") == "a\tb\nc ü 日本 \u200f"


def test_several_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("old")

    def fail() -> None:
        with replacing_all([one, other]) as staged:
            for file in staged.values():
                file.write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [file.name for file in tmp_path.iterdir()] == ["one.txt"]
    assert one.read_text() == "old"
    with replacing_all([one, other]) as staged:
        assert list(staged) == [one, other]
        assert {file.suffix for file in staged.values()} == {".txt"}
        for path, file in staged.items():
            file.write_text(path.stem)
    assert (one.read_text(), other.read_text()) == ("one", "other")


def test_a_folder_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    for content in ("first", "second"):
        with replacing_folder(folder) as staged:
            (staged / content).touch()
    assert [path.name for path in folder.iterdir()] == ["second"]
    with pytest.raises(RuntimeError), replacing_folder(folder) as staged:
        raise RuntimeError
    assert [path.name for path in folder.iterdir()] == ["second"]
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_only_what_was_left_behind_is_tidied(tmp_path: Path) -> None:
    names = [
        ".tmp-1-x",
        ".tmpabcdef",
        ".a.tmp",
        ".a.partial",
        "a.tmp",
        ".tmpabc",
        "kept.txt",
        "sub/.tmp-2-y",
        "sub/kept",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".tmp-3-folder").mkdir()
    tidy(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"a.tmp", ".tmpabc", "kept.txt", "sub", "sub/.tmp-2-y", "sub/kept"}
    tidy(tmp_path, everywhere=True)
    assert not (tmp_path / "sub" / ".tmp-2-y").exists()


def test_a_file_that_can_be_made_again_need_not_be_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with replacing(tmp_path / "a", durable=False) as temporary:
        temporary.write_text("x")
    assert ((tmp_path / "a").read_text(), synced) == ("x", [])
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("y")
    assert len(synced) == 2  # the file, and then its folder


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDWISE_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.setenv("CROWDWISE_CACHE", "")
    assert cache_folder() == Path.home() / ".cache" / "crowdwise"


def test_the_bound_on_arrays_counts_those_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, small=np.zeros(10), large=np.zeros(1000))
    for name, size in (("small", 10 * 8 + 128), ("large", 1000 * 8 + 128)):  # with the header
        monkeypatch.setattr(stored, "unpack_limit", lambda path, size=size: size)
        assert len(read_npz(path, [name])[name]) in (10, 1000)
        monkeypatch.setattr(stored, "unpack_limit", lambda path, size=size: size - 1)
        with pytest.raises(DataError, match="unpack"):
            read_npz(path, [name])


def test_what_is_left_behind_a_link_stays(tmp_path: Path) -> None:
    """A link among what killed processes left is no folder of theirs."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".tmp-x").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "work" / ".tmp-y").mkdir()
    (tmp_path / "work" / ".tmp-y" / "file").touch()
    tidy(tmp_path / "work")
    assert (tmp_path / "elsewhere" / "file").exists()
    assert not (tmp_path / "work" / ".tmp-y").exists()
