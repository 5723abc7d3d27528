"""Annotations, methods and scikit-learn: what can be split, searched, cloned and scored, and by what."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import crowdwise
from crowdwise import Annotations, scoring
from crowdwise.errors import AnnotationError, DataError
from engine_helpers import crowd, quick

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
X, CROWD, Y = crowd(120, n_annotators=4, rate=0.7)
CODES = np.full((120, 4), -1)
CODES[CROWD.instance, CROWD.annotator] = CROWD.label
NAMED = np.array(["ape", "bee", "cat"])
TEXTS = np.array(["", *NAMED])[CODES + 1]
NAMES = [f"item {number}" for number in range(120)]
FRAME = pd.DataFrame(X, index=NAMES).sample(frac=1, random_state=0)
BEST = scoring.skill_weighted_agreement(CROWD, Y)  # that of the truth itself: annotators err
LONG = pd.DataFrame({"item": np.array(NAMES)[CROWD.instance], "worker": CROWD.annotator, "label": CROWD.label})


def ce() -> crowdwise.CE:
    return crowdwise.CE(**quick("ce") | {"epochs": 20, "lr": 0.05})


TARGETS = {
    "annotations": (X, CROWD),
    "annotations of a long table": (FRAME, Annotations.from_frame(LONG, instances=FRAME.index)),
    "annotations of a matrix with gaps": (X, Annotations.from_dense(np.where(TEXTS == "", None, TEXTS.astype(object)))),
    "a matrix of codes": (X, CODES),
    "a matrix of texts": (X, TEXTS),
    "a frame of texts": (X, pd.DataFrame(TEXTS, columns=list("abcd"))),
    "frames of both": (pd.DataFrame(X, index=NAMES), pd.DataFrame(TEXTS, index=NAMES, columns=list("abcd"))),
}


@pytest.mark.parametrize("target", TARGETS)
def test_every_form_of_annotations_can_be_split_and_scored(target: str) -> None:
    data, y = TARGETS[target]
    scores = cross_val_score(ce(), data, y, cv=3)
    assert scores.mean() > BEST - 0.05
    assert scores.min() > 0.75
    classes = y.classes if isinstance(y, Annotations) else NAMED if np.asarray(y).dtype.kind in "OU" else np.arange(3)
    predicted = cross_val_predict(ce(), data, y, cv=2)
    truth = pd.Series(classes[Y], index=NAMES)
    assert (predicted == (truth[data.index] if isinstance(data, pd.DataFrame) else truth).to_numpy()).mean() > 0.9


@pytest.mark.parametrize("target", ["annotations", "a matrix of texts"])
def test_grid_search_finds_the_rate_that_learns(target: str) -> None:
    data, y = TARGETS[target]
    with parallel_config("threading"):  # processes are started by the slow test below
        search = GridSearchCV(ce(), {"lr": [1e-7, 0.05]}, cv=2, n_jobs=2).fit(data, y)
    assert search.best_params_ == {"lr": 0.05}
    classes = NAMED if target == "a matrix of texts" else np.arange(3)
    assert (search.predict(data) == classes[Y]).mean() > 0.9


def test_what_goes_to_other_processes_arrives_as_it_was() -> None:
    model, annotations, scorer = pickle.loads(pickle.dumps((ce(), CROWD, scoring.Agreement(CROWD))))
    assert model.get_params() == ce().get_params()
    np.testing.assert_array_equal(annotations.votes(), CROWD.votes())
    fitted = ce().fit(X, CROWD)
    assert scorer(fitted, X, CROWD) == scoring.Agreement(CROWD)(fitted, X, CROWD)


@pytest.mark.slow
def test_grid_search_in_processes_finds_what_it_finds_in_one() -> None:
    one, two = (GridSearchCV(ce(), {"lr": [1e-7, 0.05]}, cv=2, n_jobs=jobs).fit(X, CROWD) for jobs in (1, 2))
    assert one.best_params_ == two.best_params_
    np.testing.assert_allclose(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])


def test_gaps_in_a_matrix_of_objects_need_annotations_or_folds() -> None:
    """scikit-learn sorts the values of y to choose folds, which None and texts do not allow."""
    gaps = np.where(TEXTS == "", None, TEXTS.astype(object))
    assert cross_val_score(ce(), X, gaps, cv=KFold(3)).mean() > BEST - 0.05


def test_pipelines_scale_search_and_pass_ids() -> None:
    pipeline = make_pipeline(StandardScaler(), ce())
    assert cross_val_score(pipeline, X, CROWD, cv=3).mean() > BEST - 0.05
    assert GridSearchCV(pipeline, {"ce__lr": [1e-7, 0.05]}, cv=2).fit(X, CROWD).best_params_ == {"ce__lr": 0.05}
    with pytest.raises(DataError, match="the rows of X have none"):  # scaled rows are an array
        pipeline.fit(FRAME, LONG)
    truth = pd.Series(Y, index=NAMES)[FRAME.index].to_numpy()
    for fitted in (
        clone(pipeline).fit(FRAME, LONG, ce__ids=FRAME.index),
        clone(pipeline).set_output(transform="pandas").fit(FRAME, LONG),
        clone(pipeline).fit(FRAME, Annotations.from_frame(LONG, instances=FRAME.index)),
    ):
        assert (fitted.predict(FRAME) == truth).mean() > 0.9


def test_train_test_split_takes_annotations_along() -> None:
    X_train, X_test, a_train, a_test, _, y_test = train_test_split(X, CROWD, Y, random_state=0)
    assert (a_train.n_instances, a_test.n_instances) == (90, 30)
    model = ce().fit(X_train, a_train)
    plain = LogisticRegression().fit(X_train, a_train.votes().argmax(1))  # of majority votes
    assert model.score(X_test, y_test) >= plain.score(X_test, y_test) - 0.05
    assert model.score(X_test, a_test) > scoring.skill_weighted_agreement(a_test, y_test) - 0.05


def test_annotations_are_indexed_by_instance() -> None:
    assert CROWD.shape == (120, 4)
    for rows in ([5, 2], slice(3, 6), np.arange(120) < 4, (np.array([1, 7]), Ellipsis)):
        key = rows[0] if isinstance(rows, tuple) else rows
        np.testing.assert_array_equal(CROWD[rows].votes(), CROWD.votes()[key])
    with pytest.raises(AnnotationError, match="out of range"):
        CROWD[[120]]
    with pytest.raises(TypeError):
        iter(CROWD)
    assert np.asarray(CROWD)[0] == {j: CODES[0, j] for j in range(4) if CODES[0, j] >= 0}


def test_long_tables_of_other_rows_are_refused_not_mixed_up() -> None:
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        cross_val_score(ce(), FRAME, LONG, cv=3)
    unordered = Annotations.from_frame(LONG)  # by first appearance, not in the order of FRAME
    with pytest.raises(ValueError, match="not among the 80 ids of X"):
        cross_val_score(ce(), FRAME, unordered, cv=3, error_score="raise")


# scores


def test_agreement_weighs_labels_by_skill() -> None:
    """Three annotators know, five guess: guessed labels hardly count."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=300)
    votes = np.where(np.arange(8) < 3, truth[:, None], rng.integers(3, size=(300, 8)))
    crowd_ = Annotations.from_dense(votes)
    assert scoring.skill_weighted_agreement(crowd_, truth) > 0.755
    assert scoring.annotator_weights(crowd_)[3:].max() < 0.15
    assert scoring.skill_weighted_agreement(crowd_, (truth + 1) % 3) < 0.05
    assert scoring.skill_weighted_agreement(crowd_, truth, np.ones(8)) == pytest.approx(
        (votes == truth[:, None]).mean()
    )


def test_scorers_by_all_annotations_and_by_truth() -> None:
    agreement = cross_val_score(ce(), X, CROWD, cv=3, scoring=scoring.Agreement(CROWD))
    assert agreement.mean() > BEST - 0.05
    accuracy = cross_val_score(ce(), X, CROWD, cv=3, scoring=scoring.Accuracy(dict(enumerate(Y.tolist()))))
    assert accuracy.min() > 0.9
    data, y = TARGETS["annotations of a long table"]
    by_id = cross_val_score(ce(), data, y, cv=3, scoring=scoring.Accuracy(dict(zip(NAMES, Y.tolist(), strict=True))))
    assert by_id.min() > 0.9
    assert np.isnan(scoring.Accuracy({})(ce().fit(X, CROWD), X, CROWD))
    with pytest.raises(DataError, match="does not know the annotators 'a'"):
        scoring.Agreement(CROWD)(ce(), X, pd.DataFrame(TEXTS, columns=list("abcd")))


def test_true_labels_are_matched_by_index_too() -> None:
    model = ce().fit(FRAME, LONG)
    truth = pd.Series(Y, index=NAMES)
    assert model.score(FRAME, truth) == model.score(FRAME, truth[FRAME.index]) > 0.9
    with pytest.raises(DataError, match="indexes that differ"):
        model.score(FRAME, truth.rename(lambda name: name + "x"))


EXEMPT = {
    "check_fit_score_takes_y": "fit names its second argument annotations, which is what it is",
    "check_dtype_object": "objects that are no numbers are a DataError, i.e. a ValueError, not a TypeError",
    "check_supervised_y_2d": "y of shape (n, 1) is a matrix of one annotator, not a mistake",
    "check_array_api_input": "needs SCIPY_ARRAY_API, and X goes through numpy",
}


@pytest.mark.slow
def test_scikit_learns_own_checks_pass() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(crowdwise.CE(epochs=40, verbose=0), on_fail=None, on_skip=None)
    failed = {each["check_name"]: each["exception"] for each in results if each["status"] != "passed"}
    assert set(failed) == set(EXEMPT), {name: repr(failed[name]) for name in failed if name not in EXEMPT}
    assert len(results) > 50
