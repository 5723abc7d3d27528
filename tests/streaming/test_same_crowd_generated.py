"""Tables of all kinds, drawn at random: streamed they are the crowd that is read in memory, or refused by name."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise.errors import CrowdwiseError, CrowdwiseWarning
from crowdwise.tasks.aggregate import aggregate
from streaming_helpers import same_tables

pytestmark = pytest.mark.usefixtures("small_pieces")
Values = list[Any]
SAME = "the same"


def texts(prefix: str) -> Callable[[Values], pa.Array]:
    return lambda codes: pa.array([None if code is None else f"{prefix}{code}" for code in codes], pa.string())


def of(kind: pa.DataType, scale: float = 1, shift: float = 0) -> Callable[[Values], pa.Array]:
    return lambda codes: pa.array([None if code is None else code * scale + shift for code in codes], kind)


def coded(make: Callable[[Values], pa.Array]) -> Callable[[Values], pa.Array]:
    return lambda codes: make(codes).dictionary_encode()


IDS: dict[str, Callable[[Values], pa.Array]] = {
    "int64": of(pa.int64(), 7, -30),
    "int8": of(pa.int8()),
    "uint64": of(pa.uint64(), 1, 2**63),
    "float": of(pa.float64(), 0.5, -3),
    "bool": lambda codes: pa.array([None if code is None else code % 2 == 0 for code in codes]),
    "text": texts("item-"),
    "long text": lambda codes: texts("ü" * 40)(codes).cast(pa.large_string()),
    "numbers as text": texts("0"),
    "category": coded(texts("c ")),
    "category of numbers": coded(of(pa.int32(), 3)),
}
DATE = of(pa.date32())
LABELS: dict[str, Callable[[Values], pa.Array]] = {
    "text": lambda codes: pa.array([None if c is None else ("cat", "dog ", "", " ", "eel", "\t")[c] for c in codes]),
    "categories": lambda codes: LABELS["text"](codes).dictionary_encode(),
    "digits": texts(""),
    "int64": of(pa.int64(), 5, -6),
    "float": lambda codes: pa.array([None if c is None else (1.0, -0.0, 0.0, np.nan, 2.5, 10.0)[c] for c in codes]),
    "bool": lambda codes: pa.array([None if c is None else c % 2 == 1 for c in codes]),
    "uint8": of(pa.uint8()),
    "category of numbers": coded(of(pa.int16(), -1)),
}
WEIGHTS: dict[str, Callable[[Values], pa.Array]] = {
    "float": of(pa.float64(), 0.25, 0.5),
    "float32": of(pa.float32(), 0.3, 0.1),
    "int": of(pa.int8(), 1, 1),
    "ones": of(pa.int64(), 0, 1),
    "text": lambda codes: pa.array([None if c is None else f"{c + 1}.5" for c in codes]),
    "category": lambda codes: WEIGHTS["text"](codes).dictionary_encode(),
    "some are 0": of(pa.float64()),
    "some are no numbers": lambda codes: pa.array(
        [None if c is None else ("1", "2", "x", "", "3", "-1")[c] for c in codes]
    ),
}
NAMES = {
    "instance": ("item", "task", "instance_id", "question", "Document"),
    "annotator": ("worker", "annotator", "performer", "Rater"),
    "label": ("label", "answer", "Vote"),
}
KINDS = (["person"], ["model", "person"], [" Model", None, "person"], ["MODEL"])


def drawn(rng: np.random.Generator) -> tuple[pa.Table, dict[str, Any], str]:
    """A table, how to read it, and a method."""

    def one(values: Any) -> Any:
        values = list(values)
        return values[rng.integers(len(values))]

    def codes(rows: int, size: int, empty: float = 0.0) -> Values:
        return [None if rng.random() < empty else int(code) for code in rng.integers(size, size=rows)]

    rows, reading = int(rng.integers(1, 120)), {}
    names = {role: one(known) for role, known in NAMES.items()}
    made = {
        names["instance"]: IDS[one(IDS)](codes(rows, 20, one([0, 0, 0, 0.01]))),
        names["annotator"]: (DATE if rng.random() < 0.05 else IDS[one(IDS)])(codes(rows, 5)),
        names["label"]: LABELS[one(LABELS)](codes(rows, 6, one([0, 0.2]))),
    }
    if rng.random() < 0.6:
        name = one(["weight", "weight", "Weight", "votes"])
        made[name] = WEIGHTS[one(WEIGHTS)](codes(rows, 6, one([0, 0, 0.02])))
        if name != "weight" and rng.random() < 0.5:
            reading["weight"] = name
    if rng.random() < 0.3:
        said = one(KINDS)
        of_annotator = dict(enumerate(rng.integers(len(said), size=200).tolist()))
        seen = made[names["annotator"]].to_pylist()
        place = {who: k for k, who in enumerate(dict.fromkeys(seen))}
        made[one(["kind", "annotator_type"])] = pa.array([said[of_annotator[place[who]]] for who in seen], pa.string())
    for name in ("task", "performer", "instance", "model", "truth", "text", "annotation_id", "id", "timestamp"):
        if rng.random() < 0.1 and name not in made:
            made[name] = LABELS["text"](codes(rows, 6))
    for role, name in names.items():
        if rng.random() < 0.1:
            reading[role] = name
    reading |= one([{}] * 8 + [{"format": "table"}] * 2 + [{"format": "crowd-kit"}])
    order = rng.permutation(list(made))
    return pa.table({name: made[name] for name in order}), reading, one(["majority-vote", "dawid-skene", "one-coin"])


def outcome(path: Path, out: Path, **options: Any) -> list[pa.Table] | CrowdwiseError:
    """Labels and annotators' table, or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdwiseWarning)
        try:
            done = aggregate(path, out, proba=True, **options)
        except CrowdwiseError as error:
            return error
    return [pq.read_table(done.out), pq.read_table(done.annotators_out)]


def check(seed: int, folder: Path) -> str:
    """Compare a table that is streamed as one file or several with the same one in memory; what became of it."""
    rng = np.random.default_rng(seed)
    table, reading, method = drawn(rng)
    whole, parts = folder / "whole.parquet", folder / "parts"
    parts.mkdir()
    pq.write_table(table, whole)
    borders = np.unique([0, *rng.integers(table.num_rows, size=rng.integers(3)).tolist(), table.num_rows]).tolist()
    for start, stop in pairwise(borders):
        pq.write_table(
            table.slice(start, stop - start), parts / f"{start:03}.parquet", row_group_size=int(rng.integers(5, 60))
        )
    options = {"method": method, "reading": reading}
    memory = outcome(whole, folder / "memory.parquet", stream=False, **options)
    disk = outcome(whole if len(borders) == 2 else parts, folder / "disk.parquet", stream=True, **options)
    if isinstance(disk, CrowdwiseError):
        assert re.search(r"no column|column '|no annotations|can be streamed", str(disk)), disk
        return "refused by both" if isinstance(memory, CrowdwiseError) else "not streamed"
    assert not isinstance(memory, CrowdwiseError), f"streamed, but in memory: {memory}"
    compare(disk[0], memory[0])
    same_tables(disk[1], memory[1])
    return SAME


def compare(found: pa.Table, expected: pa.Table) -> None:
    """Labels of a streamed table and of one in memory, which may differ where two classes are as likely as can be told."""
    assert found.column_names == expected.column_names
    assert found["instance"].to_pylist() == expected["instance"].to_pylist()
    names = [name for name in found.column_names if name.startswith("p_")]
    for name in ("confidence", "n_annotations", *names):
        np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=1e-5, atol=1e-7)
    posterior = np.sort([expected[name].to_numpy() for name in names], axis=0)
    for row, (ours, theirs) in enumerate(zip(found["label"].to_pylist(), expected["label"].to_pylist(), strict=True)):
        assert ours == theirs or posterior[-1, row] - posterior[-2, row] < 1e-6


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 400), marks=pytest.mark.slow)])
def test_a_streamed_table_is_the_same_crowd_as_in_memory_or_refused(tmp_path: Path, seeds: range) -> None:
    found: Counter[str] = Counter()
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            found[check(seed, folder)] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert found[SAME] > len(seeds) / 2, found  # most tables that are drawn can be streamed
