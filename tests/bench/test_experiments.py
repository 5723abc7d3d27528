"""Experiments are what their files say, and cells are known by what decides their result."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise.bench import paper
from crowdwise.bench.cells import Cell
from crowdwise.bench.experiments import Experiment, load_experiment, names
from crowdwise.bench.runner import _families
from crowdwise.errors import ConfigError
from crowdwise.registry import METHODS

DIGITS = '[[columns]]\npreset = "digits"\n'


def experiment(folder: Path, text: str, name: str = "mine") -> Experiment:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return load_experiment(path)


class TestPackagedExperiments:
    @pytest.mark.parametrize("name", names())
    def test_each_has_cells_whose_methods_accept_their_parameters(self, name: str) -> None:
        found = load_experiment(name)
        cells = found.cells()
        assert found.description
        assert len({cell.id for cell in cells}) == len(cells)
        for cell in cells:
            METHODS[cell.method](**cell.parameters)
            assert cell.dataset
            assert cell.heldout == 0

    @pytest.mark.parametrize("number", sorted(paper.TITLES))
    def test_the_papers_tables_have_its_columns_and_rows(self, number: int) -> None:
        printed = paper.printed(number)
        cells = load_experiment(f"table{number}").cells(seeds=[0])
        assert {cell.column for cell in cells} == {column for column in printed if not paper.is_average(column)}
        rows = {row for column in printed.values() for row in column}
        assert rows <= {cell.row for cell in cells}

    def test_every_method_has_a_title_but_the_one_that_needs_an_aggregator(self) -> None:
        assert [name for name in METHODS if not METHODS[name].title] == ["deep-aggregate"]

    def test_quick_is_digits(self) -> None:
        assert {cell.dataset for cell in load_experiment("quick").cells()} == {"digits"}

    def test_unknown_names_get_a_suggestion(self) -> None:
        with pytest.raises(ConfigError, match="unknown experiment 'qick'; did you mean 'quick'"):
            load_experiment("qick")


@pytest.mark.parametrize(("experiment", "dataset"), [("table1", "fashion-mnist"), ("table3", "music")])
def test_the_papers_tables_train_concord_as_the_other_methods(experiment: str, dataset: str) -> None:
    cells = load_experiment(experiment).cells(datasets=[dataset], methods=["ce", "concord"], seeds=[0])
    ce, concord = (next(cell.parameters for cell in cells if cell.method == name) for name in ("ce", "concord"))
    assert concord["recipe"] == "paper"
    assert concord == ce


class TestGrid:
    def test_columns_rows_and_seeds_are_multiplied(self, tmp_path: Path) -> None:
        text = (
            'seeds = 2\nmethods = ["ce", "dl-mv"]\n' + DIGITS + 'vary = { "simulate.noise_rate" = [0.1, 0.3, 0.5] }\n'
        )
        assert len(experiment(tmp_path, text).cells()) == 2 * 2 * 3

    def test_labels_are_filled_with_what_varies(self, tmp_path: Path) -> None:
        text = 'methods = ["taidtm"]\n' + DIGITS + 'label = "noise {noise_rate:.0%}, k={k}"\n'
        cells = experiment(
            tmp_path, text + 'vary = { "simulate.noise_rate" = [0.1], "parameters.k" = [1, 5] }\n'
        ).cells(seeds=[0])
        assert [cell.column for cell in cells] == ["noise 10%, k=1", "noise 10%, k=5"]
        assert [cell.parameters["k"] for cell in cells] == [1, 5]
        assert {cell.simulate["noise_rate"] for cell in cells} == {0.1}

    def test_without_a_label_columns_are_called_after_preset_or_experiment(self, tmp_path: Path) -> None:
        assert experiment(tmp_path, 'methods = ["ce"]\n' + DIGITS).cells()[0].column == "digits"
        text = 'methods = ["ce"]\n[[columns]]\ndata = { name = "digits" }\n'
        assert experiment(tmp_path, text).cells()[0].column == "mine"

    def test_what_is_nearer_to_the_method_wins(self, tmp_path: Path) -> None:
        text = '[rows."A"]\nmethod = "ce"\nlr = 0.3\n[rows."B"]\nmethod = "ce"\n' + DIGITS
        cells = experiment(tmp_path, text + "parameters = { lr = 0.2, epochs = 7, k = 4 }\n").cells(
            seeds=[0], parameters={"epochs": 9}
        )
        assert [cell.parameters["lr"] for cell in cells] == [0.3, 0.2]  # row over column
        assert {cell.parameters["epochs"] for cell in cells} == {9}  # command line over column over preset
        assert {cell.parameters["backbone"] for cell in cells} == {"cnn"}  # preset
        assert all("k" not in cell.parameters for cell in cells)  # which ce does not have

    def test_a_column_may_have_some_of_the_methods_only(self, tmp_path: Path) -> None:
        text = 'methods = ["ce", "dl-mv"]\n' + DIGITS + 'methods = ["ce"]\n'
        assert {cell.method for cell in experiment(tmp_path, text).cells()} == {"ce"}

    def test_a_part_is_chosen_by_data_method_row_and_noise(self) -> None:
        table = load_experiment("table1")
        chosen = table.cells(datasets=["k-mnist"], methods=["ce", "TAIDTM"], noise_rates=[0.1], seeds=[4])
        assert [(cell.dataset, cell.row, cell.seed) for cell in chosen] == [
            ("k-mnist", "CE", 4),
            ("k-mnist", "TAIDTM", 4),
        ]

    def test_a_part_without_cells_says_what_there_is(self, tmp_path: Path) -> None:
        columns = '[[columns]]\npreset = "music"\n' + DIGITS + "simulate = { noise_rate = 0.3 }\n"
        two = experiment(tmp_path, 'methods = ["ce"]\n' + columns)
        with pytest.raises(ConfigError, match=r"has no such runs: .* music, digits, .* ce, its noise rates 0.3"):
            two.cells(datasets=["music"], noise_rates=[0.3])
        with pytest.raises(ConfigError, match=r"experiment 'mine' has no noise rate 0.45; its noise rates: 0.3$"):
            two.cells(noise_rates=[0.3, 0.45])

    @pytest.mark.parametrize("names", [["cee"], ["ce", "cee"], ["TAIDMT"]])
    def test_an_unknown_method_is_refused_also_beside_known_ones(self, names: list[str]) -> None:
        with pytest.raises(ConfigError, match=f"unknown method {names[-1]!r}; did you mean"):
            load_experiment("quick").cells(methods=names)
        with pytest.raises(ConfigError, match="experiment 'quick' has no data set 'digit'; did you mean 'digits'"):
            load_experiment("quick").cells(datasets=["digits", "digit"])

    def test_a_registered_method_that_the_experiment_lacks_gets_a_row(self, tmp_path: Path) -> None:
        text = (
            'methods = ["ce", "dl-mv"]\n' + DIGITS + 'methods = ["ce"]\nparameters = { epochs = 7, momentum = 0.5 }\n'
        )
        found = experiment(tmp_path, text).cells(methods=["ce", "gce"], seeds=[0])
        assert [(cell.row, cell.method) for cell in found] == [("CE", "ce"), ("GCE", "gce")]
        assert found[1].parameters["epochs"] == 7
        assert found[1].data == found[0].data
        assert [cell.method for cell in experiment(tmp_path, text).cells(seeds=[0])] == ["ce"]


class TestOwnData:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "experiment"
        (folder / "files").mkdir(parents=True)
        np.savez(folder / "files" / "X.npz", first=np.zeros((2, 3)), second=np.ones((2, 3)), names=np.array(["a", "b"]))
        (folder / "labels.csv").write_text("instance,worker,label\n0,a,x\n1,b,y\n", encoding="utf-8")
        return folder

    TEXT = 'methods = ["ce"]\n[[columns]]\ninputs = "files/X.npz:second"\nannotations = "labels.csv"\nids = "names"\n'

    def test_files_lie_beside_the_toml_file(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir("/")
        data = experiment(folder, self.TEXT).cells()[0].data
        assert data["inputs"] == str(folder / "files" / "X.npz") + ":second"
        assert data["annotations"] == str(folder / "labels.csv")
        assert data["ids"] == "names"

    def test_a_tenth_of_the_annotations_is_held_out_unless_the_file_says_otherwise(self, folder: Path) -> None:
        assert experiment(folder, self.TEXT).cells()[0].heldout == 0.1
        assert experiment(folder, "heldout = 0.3\n" + self.TEXT).cells()[0].heldout == 0.3

    def test_other_contents_make_another_cell_and_another_place_does_not(self, folder: Path) -> None:
        before = experiment(folder, self.TEXT).cells()[0]
        moved = folder.rename(folder.with_name("moved"))
        assert experiment(moved, self.TEXT).cells()[0].id == before.id
        (moved / "labels.csv").write_text("instance,worker,label\n0,a,x\n1,b,x\n", encoding="utf-8")
        after = experiment(moved, self.TEXT).cells()[0]
        assert after.id != before.id
        assert after.family != before.family

    def test_a_preset_of_ones_own_lies_beside_it_too(self, folder: Path) -> None:
        (folder / "own.toml").write_text("[parameters]\nepochs = 3\n", encoding="utf-8")
        assert experiment(folder, self.TEXT + 'preset = "own.toml"\n').cells()[0].parameters["epochs"] == 3

    def test_missing_files_are_named_before_anything_runs(self, folder: Path) -> None:
        (folder / "labels.csv").unlink()
        with pytest.raises(
            ConfigError, match=r"experiment mine: there is no file .*labels\.csv .*beside the TOML file"
        ):
            experiment(folder, self.TEXT).cells()

    def test_a_data_set_may_have_the_annotations_of_a_table(self, folder: Path) -> None:
        cell = experiment(folder, 'methods = ["ce"]\n' + DIGITS + 'annotations = "labels.csv"\n').cells()[0]
        assert cell.dataset == "digits"
        assert cell.data["annotations"] == str(folder / "labels.csv")
        assert cell.heldout == 0  # its test labels are known


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('methods = ["ce"]\nseed = 3\n' + DIGITS, "unknown key 'seed'; did you mean 'seeds'"),
        ('methods = ["cee"]\n' + DIGITS, "unknown method 'cee'; did you mean 'ce'"),
        ('methods = "ce"\n' + DIGITS, "methods must be a list, each text, got 'ce'"),
        ('methods = ["ce"]\nseeds = 0\n' + DIGITS, "seeds must be an integer from 1 to 10000, got 0"),
        ('methods = ["ce"]\nseeds = true\n' + DIGITS, "seeds must be an integer from 1 to 10000, got True"),
        (
            'methods = ["ce"]\nheldout = 1.0\n' + DIGITS,
            "heldout must be a number of 0 or more and below 1, got 1.0",
        ),
        ('methods = ["ce"]\n', "needs methods .* and at least one table"),
        (DIGITS, "needs methods .* and at least one table"),
        ('methods = ["ce"]\n[columns]\npreset = "digits"\n', "columns must be a list, each a table, got"),
        ('methods = ["ce"]\n[[columns]]\nlabel = "x"\n', "columns 1: no data: give a preset"),
        (
            'methods = ["ce"]\n' + DIGITS + "lable = 1\n",
            "columns 1: unknown key 'lable'; did you mean 'label'",
        ),
        ('methods = ["ce"]\n' + DIGITS + 'inputs = "X.npy"\n', "inputs need annotations"),
        ('methods = ["ce"]\n' + DIGITS + 'methods = ["bltm"]\n', "methods: unknown key 'bltm'"),
        (
            'methods = ["ce"]\n' + DIGITS + "parameters = { epoch = 3 }\n",
            "parameters: unknown key 'epoch'; did you mean",
        ),
        ('methods = ["ce"]\n' + DIGITS + "simulate = { noise = 3 }\n", "simulate: unknown key 'noise'; did you mean"),
        ('methods = ["ce"]\n' + DIGITS + 'vary = { "noise_rate" = [1] }\n', "vary 'noise_rate' must be simulate.NAME"),
        ('methods = ["ce"]\n' + DIGITS + 'vary = { "simulate.nose" = [1] }\n', "vary simulate: unknown key 'nose'"),
        (
            'methods = ["ce"]\n' + DIGITS + 'vary = { "parameters.lr" = 1 }\n',
            "vary must be a table, each value a list, got",
        ),
        ('[rows."A"]\nepochs = 3\n' + DIGITS, "row 'A': method must be text, got None"),
        (
            '[rows."A"]\nmethod = "ce"\nepoch = 3\n' + DIGITS,
            "row 'A': unknown key 'epoch'; did you mean 'epochs'",
        ),
        ('methods = ["ce"]\n' + DIGITS + "parameters = { random_state = 3 }\n", "unknown key 'random_state'"),
        (
            '[rows."A"]\nmethod = "ce"\nepochs = -3\n' + DIGITS,
            "row 'A': epochs must be an integer of 0 or more, got -3",
        ),
        (
            'methods = ["ce"]\n' + DIGITS + "simulate = { noise_rate = 3 }\n",
            "noise_rate must be a number from 0 to 1, got 3",
        ),
        ("methods = [", "experiment .*mine.toml: "),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        experiment(tmp_path, text)


def test_a_label_that_cannot_be_filled_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the label 'k=\{k\}' cannot be filled with \{\}: 'k'"):
        experiment(tmp_path, 'methods = ["ce"]\n' + DIGITS + 'label = "k={k}"\n').cells()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no experiment file .*none\.toml"):
        load_experiment(tmp_path / "none.toml")


class TestCells:
    CELL = Cell("e", "column", "row", "ce", 0, {"name": "digits"}, {"noise_rate": 0.5}, {"epochs": 3}, 0.1)

    @pytest.mark.parametrize(
        "change",
        [
            {"method": "gce"},
            {"seed": 1},
            {"data": {"name": "music"}},
            {"simulate": {"noise_rate": 0.4}},
            {"parameters": {"epochs": 4}},
            {"heldout": 0.2},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_the_id_changes_with_what_decides_the_result(self, change: dict[str, Any]) -> None:
        assert dataclasses.replace(self.CELL, **change).id != self.CELL.id

    def test_the_id_does_not_change_with_the_place(self) -> None:
        moved = dataclasses.replace(self.CELL, experiment="f", column="another", row="A / B: ü")
        assert moved.id == self.CELL.id

    def test_the_order_of_parameters_is_irrelevant(self) -> None:
        one, other = ({"epochs": 3, "lr": 0.1}, {"lr": 0.1, "epochs": 3})
        assert dataclasses.replace(self.CELL, parameters=one).id == dataclasses.replace(self.CELL, parameters=other).id

    def test_ids_are_names_of_folders(self) -> None:
        odd = dataclasses.replace(self.CELL, data={"inputs": "/a b/../ü:ö.npy", "annotations": "x"})
        assert "/" not in odd.id
        assert not odd.id.startswith((".", "-"))

    def test_a_family_has_crowd_and_seed_in_common(self) -> None:
        assert dataclasses.replace(self.CELL, method="bltm", parameters={}).family == self.CELL.family
        for change in ({"seed": 1}, {"simulate": {}}, {"data": {}}, {"heldout": 0.0}):
            assert dataclasses.replace(self.CELL, **change).family != self.CELL.family

    def test_methods_with_first_stages_in_common_run_one_after_the_other(self) -> None:
        families = _families(load_experiment("quick").cells(seeds=[0, 1], noise_rates=[0.5]))
        together = [sorted(cell.method for cell in family) for family in families if len(family) > 1]
        assert together == 2 * [["bltm", "taidtm", "taidtm-ft"]]  # once for each seed
        assert all(len({cell.family for cell in family}) == 1 for family in families)
