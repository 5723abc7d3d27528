"""The paper's figures are packaged as printed, and each error named in the notes can be found in them."""

from __future__ import annotations

from statistics import mean

import pytest

from crowdwise.bench import paper
from crowdwise.errors import ConfigError


def wrong_averages(table: int) -> dict[tuple[str, str], float]:
    """Printed averages that differ from the mean of their columns by more than rounding, and that mean."""
    figures = paper.printed(table)
    found = {}
    for average in filter(paper.is_average, figures):
        columns = paper.averaged(average, figures)
        for row, (value, _) in figures[average].items():
            true = mean(figures[column][row][0] for column in columns)
            if abs(true - value) > 0.0101:
                found[average, row] = round(true, 2)
    return found


def test_all_eight_tables_are_there_in_full() -> None:
    cells = {table: sum(map(len, paper.printed(table).values())) for table in paper.TITLES}
    assert cells == {1: 216, 2: 216, 3: 72, 4: 21, 5: 12, 6: 16, 7: 12, 8: 9}
    assert sum(cells.values()) == 574


@pytest.mark.parametrize(
    ("table", "column", "row", "figure"),
    [
        (1, "K-MNIST|AIDN-30%", "TAIDTM", (96.15, 0.44)),
        (2, "CIFAR10|AIDN-40%", "BLTM", (73.06, 1.86)),
        (3, "Music", "Max-MIG", (70.71, 1.75)),
        (4, "SVHN|AIDN-40%", "TAIDTM-FT", (93.93, 0.76)),
        (6, "LabelMe", "TAIDTM", (86.68, 0.49)),
        (7, "CIFAR10|AIDN-40%|k=200", "TAIDTM w/o Graph Purifying", (75.33, None)),
        (8, "ImageNet100|AIDN-40%", "TAIDTM", (51.97, 1.11)),
    ],
)
def test_figures_are_as_printed(table: int, column: str, row: str, figure: paper.Printed) -> None:
    assert paper.printed(table)[column][row] == figure


def test_wrong_averages_are_exactly_those_noted() -> None:
    assert wrong_averages(1) == {("K-MNIST|Avg", "CrowdLayer"): 94.63}
    assert wrong_averages(3) == {("Avg", "BLTM"): 78.39, ("Avg", "DL-MV"): 74.33}
    assert [wrong_averages(table) for table in (2, 4, 5, 6, 7, 8)] == [{}] * 6
    for table in (1, 3):
        for (column, row), true in wrong_averages(table).items():
            (note,) = paper.notes(table, column, row)
            assert f"{true:.2f}" in note.text
            assert not note.target
    assert paper.printed(1)["K-MNIST|Avg"]["UnionNet"] == (94.47, None)


def test_copied_rows_of_table_1() -> None:
    for column, rows in paper.printed(1).items():
        assert (rows["AggNet"] == rows["MBEM"]) == column.startswith("K-MNIST")
        for row in ("AggNet", "MBEM"):
            assert bool(paper.notes(1, column, row)) == column.startswith("K-MNIST")


def test_tables_4_and_5_share_rows_that_table_3_contradicts() -> None:
    real, ablation, mapping = paper.printed(3), paper.printed(4), paper.printed(5)
    for column in ("LabelMe", "Music", "CIFAR10-N"):
        assert ablation[column]["BLTM"] == mapping[column]["TAIDTM w/ GAT"] != real[column]["BLTM"]
        assert ablation[column]["TAIDTM-FT"] == mapping[column]["TAIDTM w/ Deepwalk"]
        for table, row in ((4, "BLTM"), (4, "TAIDTM-FT"), (5, "TAIDTM w/ GAT"), (5, "TAIDTM w/ Deepwalk")):
            assert not any(note.target for note in paper.notes(table, column, row))
    assert not paper.notes(4, "SVHN|AIDN-40%", "BLTM")
    assert paper.printed(4)["SVHN|AIDN-40%"]["BLTM"] == paper.printed(2)["SVHN|AIDN-40%"]["BLTM"]


def test_every_note_concerns_figures_that_exist() -> None:
    for note in paper.all_notes():
        figures = paper.printed(note.table)
        assert set(note.columns) <= set(figures)
        assert all(set(note.rows) <= set(rows) for rows in figures.values())


def test_every_column_has_conditions() -> None:
    for table in paper.TITLES:
        for column in paper.printed(table):
            assert column == "Avg" or paper.conditions(column) is not None
    assert paper.conditions("Music") == paper.Conditions(50, 0.01, 50)
    assert paper.conditions("my own data") is None


def test_experiments_are_recognised_by_name() -> None:
    assert [paper.table_of(name) for name in ("table1", "table8", "table9", "mine", "table12")] == [
        1,
        8,
        None,
        None,
        None,
    ]
    with pytest.raises(ConfigError, match="tables 1 to 8, not 9"):
        paper.printed(9)
