"""What X may be, how it is scaled, and what is said of inputs and labels that do not fit a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch

import crowdwise
from crowdwise import datasets
from crowdwise.engine.prepare import Prepare
from crowdwise.errors import CrowdwiseWarning, DataError
from engine_helpers import crowd, quick
from tolerances import SINGLE, assert_likeliest

QUICK = {"epochs": 10, "verbose": 0}
NAMES = list("abcdef")


@pytest.fixture(scope="module")
def fitted():
    X, annotations, y = crowd(300)
    model = crowdwise.CE(**QUICK).fit(X, annotations)
    return X, annotations, y, model, model.predict_proba(X)


FORMS = {
    "float64": lambda X: X.astype(np.float64),
    "float16": lambda X: X.astype(np.float16),
    "integers": lambda X: np.round(X * 1000).astype(np.int64),
    "a tensor": torch.from_numpy,
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "csr": sp.csr_matrix,
    "coo": sp.coo_array,
    "times 1e4": lambda X: X * 1e4,
    "times 1e-4": lambda X: X * 1e-4,
    "plus 1e3": lambda X: X + 1e3,
    "plus 1e9": lambda X: X.astype(np.float64) + 1e9,
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_and_the_scale_of_features_change_nothing(form, fitted):
    X, annotations, _, _, expected = fitted
    given = FORMS[form](X)
    found = crowdwise.CE(**QUICK).fit(given, annotations).predict_proba(given)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_booleans_and_files_mapped_into_memory_are_inputs(tmp_path, fitted):
    X, annotations, y, _, expected = fitted
    assert crowdwise.CE(**QUICK, lr=0.01).fit(X > 0, annotations).score(X > 0, y) > 0.7
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(crowdwise.CE(**QUICK).fit(mapped, annotations).predict_proba(mapped), expected)


def test_masked_values_are_refused(fitted):
    X, annotations, _, _, _ = fitted
    with pytest.raises(DataError, match="X has 3 masked values"):
        crowdwise.CE(**QUICK).fit(np.ma.masked_array(X, np.arange(X.size).reshape(X.shape) < 3), annotations)


# scaling


def test_robust_scaling_draws_in_outliers_and_drops_constants():
    rng = np.random.default_rng(0)
    heavy = rng.standard_cauchy(2000) * 50 + 7
    rare = np.where(rng.random(2000) < 0.01, 1e3, 0.0)
    columns = np.stack([rng.normal(size=2000), heavy, rare, np.full(2000, 5.0)], axis=1).astype(np.float32)
    x = Prepare.learn("auto", torch.from_numpy(columns))(torch.from_numpy(columns))
    assert torch.isfinite(x).all()
    assert x.abs().max() < 20
    assert (x[:, 3] == 0).all()
    torch.testing.assert_close(x[:, :2].std(0), torch.ones(2), atol=0.01, rtol=0)
    np.testing.assert_allclose(x[:, 0], (columns[:, 0] - columns[:, 0].mean()) / columns[:, 0].std(), atol=0.3)


def test_scaling_is_learnt_from_training_rows_only():
    X, annotations, _ = crowd(200)
    labelled = np.unique(annotations.instance[annotations.instance < 150])
    some = annotations.where(annotations.instance < 150)
    other = X.copy()
    other[150:] = 1e6
    models = [crowdwise.CE(**QUICK).fit(each, some) for each in (X, other)]
    np.testing.assert_array_equal(*(model.predict_proba(X[labelled]) for model in models))


# frames and sparse matrices


def test_columns_of_a_frame_are_matched_by_name(fitted, tmp_path):
    X, annotations, _, _, expected = fitted
    frame = pd.DataFrame(X, columns=NAMES)
    model = crowdwise.CE(**QUICK).fit(frame, annotations)
    assert model.feature_names_in_.tolist() == NAMES
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    for each in (model, loaded):
        np.testing.assert_allclose(each.predict_proba(frame[NAMES[::-1]]), expected, atol=SINGLE)
    with pytest.raises(DataError, match="X lacks the columns 'a' and has the columns 'z'"):
        loaded.predict(frame.rename(columns={"a": "z"}))
    with pytest.raises(DataError, match="column 'a' is of type"):
        crowdwise.CE(encoder="none", **QUICK).fit(frame.assign(a="text"), annotations)


def test_a_wide_sparse_matrix_is_reduced_and_the_reduction_saved(tmp_path):
    _, annotations, y = crowd(400)
    rng = np.random.default_rng(0)
    words = sp.random(400, 3000, density=0.01, random_state=0, format="csr")
    row, column = np.repeat(np.arange(400), 3), 30 * np.repeat(y, 3) + rng.integers(30, size=1200)
    telling = sp.csr_matrix((np.ones(1200), (row, column)), shape=words.shape)
    X = (words + telling).tocsr()
    model = crowdwise.CE(epochs=30, verbose=0).fit(X, annotations)
    assert (model.n_features_in_, model.prepare_.shape) == (3000, (300,))
    assert model.score(X, y) > 0.8
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_allclose(loaded.predict_proba(X.toarray()), model.predict_proba(X), atol=1e-5)
    with pytest.raises(DataError, match="trained on 3,000 columns, X has 2,999"):
        loaded.predict(X[:, :-1])


# what does not fit


@pytest.mark.parametrize("factor", [1e4, 1e-5])
def test_values_unlike_the_training_data_are_named(factor, fitted):
    X, _, _, model, _ = fitted
    with pytest.warns(CrowdwiseWarning, match="X is unlike the training data: .*X has values from"):
        model.predict(X * factor)


def test_pictures_from_0_to_1_are_refused_by_a_model_of_8_bits():
    X, annotations, _ = crowd(200, image=True)
    model = crowdwise.CE(recipe="paper", epochs=5, lr=0.05, verbose=0).fit(X, annotations)
    with pytest.raises(DataError, match=r"trained on 8-bit pictures \(0 to 255\), X has values from 0 to 1: multiply"):
        model.predict(X / 255)
    assert_likeliest(model.predict(X.astype(np.float32)), model.predict_proba(X))


def test_score_refuses_labels_that_the_model_cannot_give(fitted):
    X, _, y, model, _ = fitted
    with pytest.raises(DataError, match=r"labels that this model cannot give: '.', '.', '.'; its classes are 0, 1, 2"):
        model.score(X, y.astype(str))


@pytest.mark.parametrize("name", ["music", "labelme"])
def test_a_data_sets_crowd_and_truth_speak_one_vocabulary(name):
    try:
        data = datasets.load(name)
    except crowdwise.errors.DatasetError as error:
        pytest.skip(str(error).splitlines()[0])
    model = crowdwise.CE(steps=300, verbose=0).fit(data.X_train, data.annotations)
    assert model.score(data.X_test, data.y_test) > 0.55


# X in forms that have no rows, or too many shapes


def test_a_list_of_arrays_is_an_array():
    X, annotations, _ = crowd(60)
    model = crowdwise.CE(**quick("ce")).fit(list(X), annotations)
    np.testing.assert_array_equal(model.predict_proba(list(X)), model.predict_proba(X))
    with pytest.raises(DataError, match=r"X\[0\] has \(6,\), X\[3\] has \(5,\)"):
        crowdwise.CE(**quick("ce")).fit([*X[:3], X[3, :5], *X[4:]], annotations)


@pytest.mark.parametrize("make", [iter, lambda X: (row for row in X), lambda X: map(list, X)])
def test_an_iterator_is_refused_by_name(make):
    X, annotations, _ = crowd(60)
    model = crowdwise.CE(**quick("ce")).fit(X, annotations)
    for use in (lambda: model.fit(make(X), annotations), lambda: model.predict(make(X))):
        with pytest.raises(DataError, match=f"X is a {type(make(X)).__name__}, which can be read only once"):
            use()
    with pytest.raises(DataError, match="X has no rows: it is a float"):
        model.fit(3.0, annotations)


def test_a_lazy_frame_is_read():
    X, annotations, _ = crowd(60)
    frame = pl.DataFrame({f"x{column}": values for column, values in enumerate(X.T)})
    model, lazy = (crowdwise.CE(**quick("ce")).fit(rows, annotations) for rows in (frame, frame.lazy()))
    np.testing.assert_array_equal(lazy.predict_proba(frame.lazy()), model.predict_proba(frame))
    np.testing.assert_array_equal(lazy.posterior(frame.lazy(), annotations), model.posterior(frame, annotations))
