"""Tables with columns of several kinds."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import crowdwise
from crowdwise.data.inputs import read_inputs
from crowdwise.encoders import TableEncoder, kind_of
from crowdwise.encoders.base import restore_encoder
from crowdwise.encoders.table import guess_kind
from crowdwise.errors import CrowdwiseWarning, DataError, ModelFileError, NonFiniteError

N = 60
RNG = np.random.default_rng(0)
COLUMNS = {
    "age": [None if row % 7 == 0 else float(row) for row in range(N)],
    "town": RNG.choice(["Rome", "Oslo", "Köln"], N).tolist(),
    "member": RNG.choice([True, False], N).tolist(),
    "note": [" ".join(RNG.choice(["good", "bad", "late", "kind", "slow"], 5)) for _ in range(N)],
}


@pytest.mark.parametrize(
    "make", [dict, pd.DataFrame, pl.DataFrame, pa.table], ids=["dict", "pandas", "polars", "arrow"]
)
def test_frames_of_every_library_give_the_same(make):
    frame = make(COLUMNS)
    assert kind_of(frame) == "table"
    encoder = TableEncoder(width=4).fitted(frame)
    assert [entry["kind"] for entry in encoder.facts_["columns"]] == ["number", "category", "number", "text"]
    expected = TableEncoder(width=4).fitted(COLUMNS).transform(COLUMNS)
    np.testing.assert_array_equal(encoder.transform(frame), expected)
    assert expected.shape == (N, 2 + 4 + 2 + 4)
    assert np.isfinite(expected).all()


def test_it_is_data():
    encoder = TableEncoder(width=4).fitted(COLUMNS)
    again = restore_encoder(json.loads(json.dumps(encoder.state())), encoder.arrays_)
    np.testing.assert_array_equal(again.transform(COLUMNS), encoder.transform(COLUMNS))
    with pytest.raises(ModelFileError):
        restore_encoder(encoder.state(), {})


def test_values_are_scaled_and_missing_ones_marked():
    encoded = (
        TableEncoder()
        .fitted({"a": [0.0, 10.0, 20.0, 1e9], "b": list("xyxx")})
        .transform({"a": [15.0, None, 1e12], "b": ["x", "z", None]})
    )
    assert encoded[0, 0] == 0
    assert encoded[1, :2].tolist() == [0, 1]
    assert encoded[2, 0] == 10  # cut
    assert encoded[:, 2:].tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]


def test_columns_are_matched_by_name():
    encoder = TableEncoder(width=4).fitted(COLUMNS)
    turned = dict(reversed(COLUMNS.items()))
    np.testing.assert_array_equal(encoder.transform(turned), encoder.transform(COLUMNS))
    with pytest.raises(DataError, match="X lacks the columns 'age'"):
        encoder.transform({name: values for name, values in COLUMNS.items() if name != "age"})
    with pytest.raises(DataError, match="X has the columns 'new'"):
        encoder.transform(COLUMNS | {"new": [1] * N})
    with pytest.raises(DataError, match="row 1: column 'age' holds 'old', expected a number"):
        encoder.transform(COLUMNS | {"age": ["1", "old"] + ["3"] * (N - 2)})


def test_a_column_of_ids_is_left_out_with_a_warning():
    frame = COLUMNS | {"key": [f"k{row}" for row in range(N)]}
    with pytest.warns(CrowdwiseWarning, match="left out of the table.*'key'"):
        encoder = TableEncoder(width=4).fitted(frame)
    np.testing.assert_array_equal(encoder.transform(frame), TableEncoder(width=4).fitted(COLUMNS).transform(COLUMNS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TableEncoder(kinds={"key": "drop"}).fitted(frame).facts_["columns"][-1]["kind"] == "drop"
    with pytest.raises(DataError, match="there is no column 'kye'"):
        TableEncoder(kinds={"kye": "drop"}).fitted(frame)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (["1", "2.5", ""], "number"),
        ([1, None, 3], "number"),
        (np.array(["2026-01-01", "2026-02-01"], "datetime64[D]"), "number"),
        (["yes", "no"] * 30, "category"),
        ([f"{row % 40}a" for row in range(400)], "category"),
        ([f"text number {row} is not like others" for row in range(50)], "text"),
        (["a long answer that repeats itself", "another such answer here"] * 50, "category"),
        ([f"id{row}" for row in range(100)], "drop"),
        ([None, None], "number"),
    ],
)
def test_kinds_are_guessed_by_content(column, kind):
    assert guess_kind(column) == kind


def test_a_value_that_is_no_number_is_found_by_its_record_also_below_missing_ones(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,age,town\n1,,a\n2,30,b\n3,old,c\n4,4,d\n5,5,d\n")
    with pytest.raises(DataError, match=r"table.csv, record 3: column 'age' holds 'old'"):
        read_inputs(path, expects="table")


# rows that are unlike the training data


def fitted_colours():
    y = RNG.integers(0, 2, 200)
    X = {"colour": np.array(["blue", "red"])[y].tolist(), "size": RNG.normal(size=200)}
    return crowdwise.CE(epochs=60, lr=0.01, verbose=0).fit(X, np.stack([y, y, y], axis=1)), X


def test_values_of_a_category_that_training_lacked_are_counted_and_named():
    model, X = fitted_colours()
    other = X | {"colour": ["teal", "red", "", "teal", *X["colour"][4:]]}
    with pytest.warns(CrowdwiseWarning, match=r"column 'colour' .* 3 of 200 rows: 'teal', '\(missing\)'"):
        model.predict(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X)
        model.predict({name: values[:1] for name, values in X.items()})


def test_a_category_with_rare_values_may_have_as_many_others_as_in_training():
    names = [f"town{number}" for number in range(80)]
    towns = [*names, *(["Rome"] * 160)]
    encoder = TableEncoder(kinds={"town": "category"}).fitted({"town": towns})  # 31 of 240 rows are others
    assert encoder.departure({"town": towns}) == ""
    assert encoder.departure({"town": ["elsewhere"] * 20 + ["Rome"] * 220}) == ""
    assert "100 of 240 rows: 'elsewhere'" in encoder.departure({"town": ["elsewhere"] * 100 + ["Rome"] * 140})
    earlier = restore_encoder(json.loads(json.dumps(encoder.state())), {})
    del earlier.facts_["columns"][0]["others"]  # as a model of an earlier version
    assert earlier.departure({"town": ["elsewhere"] * 100 + ["Rome"] * 140}) == ""
    assert "240 of 240 rows" in earlier.departure({"town": ["elsewhere"] * 240})


@pytest.mark.parametrize("others", [-1, 2, float("nan"), "many"])
def test_a_forged_share_of_others_is_refused(others):
    state = TableEncoder().fitted({"town": list("aabb")}).state()
    state["facts"]["columns"][0]["others"] = others
    with pytest.raises(ModelFileError, match="damaged"):
        restore_encoder(state, {})


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinities_are_errors_that_name_the_row_and_not_missing_values(value):
    model, X = fitted_colours()
    broken = X | {"size": np.where(np.arange(200) == 7, value, X["size"])}
    for use in (lambda: model.predict(broken), lambda: fit_like(model, broken)):
        with pytest.raises(NonFiniteError, match=f"row 7: column 'size' is {value}") as caught:
            use()
        assert caught.value.instances == [7]
    missing = X | {"size": np.where(np.arange(200) == 7, np.nan, X["size"])}
    assert len(model.predict(missing)) == 200


def fit_like(model, X):
    return model.__class__(epochs=1, verbose=0).fit(X, np.tile([[0, 1]], (200, 1)))
