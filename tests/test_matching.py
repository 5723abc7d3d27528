"""X and annotations are matched by id, never by luck: the order of rows, of X or of a table, changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import crowdwise
from crowdwise import Annotations
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.cli import app
from crowdwise.data.matching import match
from crowdwise.errors import DataError
from crowdwise.readers import write_table
from crowdwise.registry import AGGREGATORS, METHODS
from engine_helpers import crowd, quick

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
N = 120
NAMES = [f"item {number:03d}" for number in range(N)]
X, CROWD, _ = crowd(N)
LONG = pd.DataFrame(
    {
        "item": np.array(NAMES)[CROWD.instance],
        "worker": np.array([f"w{code}" for code in range(8)])[CROWD.annotator],
        "label": np.array(["ape", "bee", "cat"])[CROWD.label],
    }
)
INDEXED = pd.DataFrame(X, index=NAMES, columns=list("abcdef"))
EXPECTED = match(INDEXED, LONG).annotations.votes()
FAST = ("ce", "concord", "taidtm")


def shuffled(frame: Any, seed: int = 0) -> Any:
    return frame.sample(frac=1, random_state=seed)


def numbered(start: int = 0) -> pd.DataFrame:
    """The long table with numbers for names of items."""
    return LONG.assign(item=CROWD.instance.astype(int) + start)


# what is matched, and how

MIXED = shuffled(INDEXED)
FORMS = {
    "an index": (INDEXED, None),
    "a shuffled index": (MIXED, None),
    "ids beside an array": (MIXED.to_numpy(), MIXED.index),
    "ids beside a sparse matrix": (sp.csr_matrix(MIXED.to_numpy()), list(MIXED.index)),
    "ids beside a list of texts": (["text of " + name for name in MIXED.index], MIXED.index),
    "a series of texts": (pd.Series("text", index=MIXED.index), None),
    "a mapping from ids to rows": (dict(zip(MIXED.index, MIXED.to_numpy(), strict=True)), None),
    "a mapping from ids to texts": (dict.fromkeys(MIXED.index, "text"), None),
    "a column that is named": (MIXED.rename_axis("key").reset_index(), "key"),
    "a column id": (MIXED.rename_axis("id").reset_index(), None),
    "a column of polars": (pl.from_pandas(MIXED.rename_axis("id").reset_index()), None),
    "a column of arrow": (pa.Table.from_pandas(MIXED.rename_axis("id").reset_index()), None),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_with_ids_are_matched_by_id(form: str) -> None:
    data, ids = FORMS[form]
    for table in (LONG, shuffled(LONG), Annotations.from_frame(LONG)):
        found = match(data, table, ids)
        by_name = dict(zip(found.annotations.instances.tolist(), found.annotations.votes(), strict=True))
        np.testing.assert_array_equal([by_name[name] for name in NAMES], EXPECTED)
    assert "id" not in getattr(found.X, "columns", ())
    names = NAMES if form == "an index" else MIXED.index.tolist()
    assert found.annotations.instances.tolist() == names, "in the order of X"


def test_integer_ids_of_a_table_are_row_numbers_whatever_its_order() -> None:
    for table in (numbered(), shuffled(numbered()), numbered().sort_values("worker")):
        np.testing.assert_array_equal(match(X, table).annotations.votes(), EXPECTED)
        triple = tuple(table[name].to_numpy() for name in ("item", "worker", "label"))
        np.testing.assert_array_equal(match(X, triple).annotations.votes(), EXPECTED)


def test_rows_that_nobody_labelled_are_kept_and_predicted(tmp_path: Path) -> None:
    some = LONG[LONG["item"] < "item 100"]
    model = crowdwise.CE(**quick("ce")).fit(INDEXED, some)
    assert model.posterior_.shape == (N, 3)
    assert model.predict(INDEXED).shape == (N,)
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    assert model.instances_.tolist() == loaded.instances_.tolist() == NAMES


def test_codes_and_matrices_mean_rows() -> None:
    matrix = np.full((N, 8), -1)
    matrix[CROWD.instance, CROWD.annotator] = CROWD.label
    for data in (X, INDEXED, shuffled(INDEXED)):
        np.testing.assert_array_equal(match(data, CROWD).annotations.votes(), EXPECTED)
        np.testing.assert_array_equal(match(data, matrix).annotations.votes(), EXPECTED)
    wide = pd.DataFrame(matrix, index=NAMES)
    np.testing.assert_array_equal(
        match(MIXED, wide).annotations.votes(), EXPECTED[[NAMES.index(i) for i in MIXED.index]]
    )
    assert match(INDEXED, matrix).annotations.instances.tolist() == NAMES


def test_the_caller_may_say_that_annotations_list_the_rows_in_order() -> None:
    rows = [NAMES.index(name) for name in dict.fromkeys(shuffled(LONG)["item"])]
    found = match(X[rows], shuffled(LONG), ids="position")
    np.testing.assert_array_equal(found.annotations.votes(), EXPECTED[rows])
    declared = Annotations.from_frame(shuffled(LONG), instances=NAMES)
    np.testing.assert_array_equal(match(X, declared).annotations.votes(), EXPECTED)
    np.testing.assert_array_equal(
        match(X[10:50], declared.select(np.arange(10, 50))).annotations.votes(), EXPECTED[10:50]
    )


REFUSED = {
    "texts without ids of X": (X, LONG, None, "have ids .'item 000', 'item 001', 'item 002', ....*the rows of X have none"),
    "triples of texts": (X, tuple(LONG[name] for name in LONG), None, "'item 000', 'item 001', 'item 002'"),
    "annotations of texts": (X, Annotations.from_frame(LONG), None, "say with ids= the id of every row"),
    "ids from 1": (X, numbered(1), None, r"start at 1.*pass ids='1\.\.' if 1 is the first row, ids='0\.\.' if"),
    "ids from 1 without the last": (X, numbered(1)[lambda t: t["item"] < N], None, r"start at 1"),
    "ids from 100": (X, numbered(100), None, r"100 of 120 instances are no rows of X.*0\.\.119: 120, 121, 122, \.\.\."),
    "ids that X has not": (INDEXED.iloc[:100], LONG, None, "20 of 120 .* the 100 ids of X: 'item 100', 'item 101', 'item 102'"),
    "too few ids": (X, LONG, NAMES[:5], "X has 120 rows, but there are 5 ids"),
    "an id twice": (X, LONG, ["a"] * N, "'a' is listed twice"),
    "an unknown column": (INDEXED, LONG, "nothing", "ids='nothing' must be a column of X, 'position'"),
    "numbers in two orders": (X, CROWD, np.arange(N)[::-1], "also ids of X, in another order"),
    "a matrix of other rows": (X, np.zeros((N + 1, 3), int), None, "X has 120 instances, the annotations cover 121"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_matched_is_refused(case: str) -> None:
    data, table, ids, message = REFUSED[case]
    with pytest.raises((DataError, crowdwise.errors.AnnotationError), match=message):
        match(data, table, ids)


def test_numbers_from_one_are_matched_when_told() -> None:
    np.testing.assert_array_equal(match(X, numbered(1), "1..").annotations.votes(), EXPECTED)
    np.testing.assert_array_equal(match(X, numbered(1), range(1, N + 1)).annotations.votes(), EXPECTED)
    np.testing.assert_array_equal(
        match(X, numbered()[lambda t: t["item"] > 0], "0..").annotations.votes()[1:], EXPECTED[1:]
    )


def test_texts_of_numbers_and_numbers_are_the_same_ids() -> None:
    texts = shuffled(numbered().assign(item=lambda t: t["item"].astype(str)))
    np.testing.assert_array_equal(match(X, texts, ids=range(N)).annotations.votes(), EXPECTED)


# the order of rows changes nothing


def orders() -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    return {
        "of the table": (INDEXED, shuffled(LONG, 1)),
        "of X": (shuffled(INDEXED, 2), LONG),
        "of both": (shuffled(INDEXED, 3), LONG.sort_values("worker")),
    }


def check_method(method: str) -> None:
    def fit(data: pd.DataFrame, table: pd.DataFrame) -> Any:
        return METHODS[method](**quick(method)).fit(data, table)

    model = fit(INDEXED, LONG)
    expected, posterior = model.predict_proba(INDEXED), model.posterior(INDEXED, LONG)
    for order, (data, table) in orders().items():
        again, at = fit(data, table), [list(data.index).index(name) for name in NAMES]
        np.testing.assert_allclose(again.predict_proba(INDEXED), expected, atol=1e-6, err_msg=order)
        np.testing.assert_allclose(again.posterior_[at], model.posterior_, atol=1e-6, err_msg=order)
        np.testing.assert_allclose(model.posterior(data, table)[at], posterior, atol=1e-6, err_msg=order)
        assert again.annotators_.tolist() == model.annotators_.tolist()


@pytest.mark.parametrize("method", FAST)
def test_the_order_of_rows_changes_no_prediction(method: str) -> None:
    check_method(method)


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name not in FAST])
def test_the_order_of_rows_changes_no_prediction_of_any_method(method: str) -> None:
    check_method(method)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_order_of_rows_changes_no_aggregated_label(name: str) -> None:
    def fit(table: pd.DataFrame) -> dict[str, np.ndarray]:
        seeded = {"random_state": 0} if hasattr(AGGREGATORS[name], "random_state") else {}
        found: Aggregator = AGGREGATORS[name](**seeded).fit(table)
        return dict(zip(found.instances_.tolist(), found.posterior_, strict=True))

    two = LONG[LONG["label"] != "cat"] if name in ("kos",) else LONG
    expected = fit(two)
    found = fit(shuffled(two, 1))
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), atol=1e-6)


@pytest.mark.parametrize(("ids", "method"), [("id", "ce"), (None, "taidtm")])
def test_the_order_of_lines_changes_nothing_on_the_command_line(
    ids: str | None, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = {}
    others = orders() if method == "ce" else {"of both": orders()["of both"]}
    for order, (data, table) in {"as it is": (INDEXED, LONG), **others}.items():
        folder = tmp_path / order.replace(" ", "-")
        folder.mkdir()
        write_table(pa.Table.from_pandas(data.rename_axis("id").reset_index(), preserve_index=False), folder / "X.csv")
        write_table(pa.Table.from_pandas(table, preserve_index=False), folder / "labels.csv")
        arguments = [
            "train",
            "-m",
            method,
            "--inputs",
            str(folder / "X.csv"),
            "--annotations",
            str(folder / "labels.csv"),
        ]
        arguments += ["--out", str(folder / "run"), *(["--ids", ids] if ids else [])]
        arguments += [part for key, value in quick(method).items() for part in ("--set", f"{key}={value!r}")]
        for command in (
            arguments,
            ["predict", str(folder / "run"), str(folder / "X.csv"), "-o", str(folder / "p.csv")],
        ):
            result = CliRunner().invoke(app, command)
            assert result.exit_code == 0, result.output
        both = [
            pd.read_csv(file).set_index("instance").sort_index()
            for file in (folder / "p.csv", folder / "run/labels.csv")
        ]
        found[order] = pd.concat(both, axis=1)
    for order, table in found.items():
        pd.testing.assert_frame_equal(table, found["as it is"], rtol=1e-5, obj=order)


def test_ids_from_one_are_refused_on_the_command_line(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    numbered(1).to_csv(tmp_path / "labels.csv", index=False)
    command = ["train", "-m", "ce", "--inputs", str(tmp_path / "X.npy"), "--annotations", str(tmp_path / "labels.csv")]
    command += ["--epochs", "1", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert "pass --ids '1..' if 1 is the first row" in " ".join(result.output.split())
    result = CliRunner().invoke(app, [*command, "--ids", "1.."])
    assert result.exit_code == 0, result.output
