"""A column called ``id``: the instance where it repeats, the number of the row where it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import crowdwise
from crowdwise.errors import AnnotationError
from crowdwise.readers import write_table

Rows = list[tuple[object, ...]]
HEADER = ("id", "review", "annotator", "label")
PEOPLE = ("ann", "bob", "cem")


def shown(n_items: int = 2) -> Rows:
    """Items labelled by three people: cem disagrees on every third item."""
    return [
        (f"r{item}", f"text {item}", who, ("good", "bad")[(item + (who == "cem" and item % 3 == 0)) % 2])
        for item in range(n_items)
        for who in PEOPLE
    ]


def write(path: Path, rows: Rows, header: tuple[str, ...] = HEADER) -> Path:
    columns = list(zip(*rows, strict=True))
    write_table(pa.table({name: list(column) for name, column in zip(header, columns, strict=True)}), path)
    return path


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz"])
@pytest.mark.parametrize("n_items", [2, 60])
@pytest.mark.parametrize("name", ["id", "ID", "_id"])
def test_an_id_that_repeats_is_the_instance(tmp_path: Path, suffix: str, n_items: int, name: str) -> None:
    export = crowdwise.read(write(tmp_path / f"labels.{suffix}", shown(n_items), (name, *HEADER[1:])))
    assert export.columns["instance"] == name
    assert export.annotations.instances.tolist() == [f"r{item}" for item in range(n_items)]
    assert len(export.annotations) == 3 * n_items


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    rows = shown(30)
    np.random.default_rng(0).shuffle(rows)  # type: ignore[arg-type]
    export = crowdwise.read(write(tmp_path / "labels.csv", rows))
    assert export.columns["instance"] == "id"
    assert export.annotations.n_instances == 30


def test_an_id_of_every_row_numbers_the_rows(tmp_path: Path) -> None:
    rows = [(number, *row[1:]) for number, row in enumerate(shown(40))]
    export = crowdwise.read(write(tmp_path / "labels.csv", rows))
    assert export.columns["instance"] == "review"
    assert export.annotations.n_instances == 40
    assert "column 'id' has another value in every row, so it numbers the rows" in export.message


def test_an_id_of_every_row_is_the_instance_where_nothing_else_can_be(tmp_path: Path) -> None:
    """One label for each item."""
    rows = [(f"r{item}", f"text {item}", PEOPLE[item % 3], "good" if item % 2 else "bad") for item in range(30)]
    export = crowdwise.read(write(tmp_path / "labels.csv", rows))
    assert export.columns["instance"] == "id"
    assert export.annotations.n_instances == 30
    assert "so every item has one label" in export.message


def test_too_few_rows_to_tell_are_refused_by_name(tmp_path: Path) -> None:
    rows = [(number, *row[1:]) for number, row in enumerate(shown(4))]
    with pytest.raises(
        AnnotationError, match="'id' has another value in every row, and 'review' may identify"
    ) as error:
        crowdwise.read(write(tmp_path / "labels.csv", rows))
    assert error.value.parameter == "instance"
    assert crowdwise.read(tmp_path / "labels.csv", instance="review").annotations.n_instances == 4
    assert crowdwise.read(tmp_path / "labels.csv", instance="id").annotations.n_instances == 12


def test_a_usual_name_comes_before_id(tmp_path: Path) -> None:
    rows = [(item, *row) for item, row in zip("ababab", shown(2), strict=True)]
    export = crowdwise.read(write(tmp_path / "labels.csv", rows, ("item", *HEADER)))
    assert export.columns["instance"] == "item"


def test_frames_know_an_id_that_repeats() -> None:
    columns = {name: list(column) for name, column in zip(HEADER, zip(*shown(3), strict=True), strict=True)}
    crowd = crowdwise.Annotations.from_frame(columns)
    assert crowd.instances.tolist() == ["r0", "r1", "r2"]
    with pytest.raises(AnnotationError, match="no column for the instance"):
        crowdwise.Annotations.from_frame({**columns, "id": list(range(9))})
