"""A classifier that learnt nothing is noticed, tried again, and named."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import crowdwise
from crowdwise import Annotations
from crowdwise.errors import CrowdwiseWarning
from engine_helpers import QUICK, crowd


def said(model, X, annotations, **fit) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CrowdwiseWarning)
        model.fit(X, annotations, **fit)
    return [str(each.message) for each in caught if issubclass(each.category, CrowdwiseWarning)]


def random_labels(n: int = 400) -> tuple[np.ndarray, Annotations]:
    X, annotations, _ = crowd(n)
    label = np.random.default_rng(5).choice(3, p=[0.6, 0.2, 0.2], size=len(annotations))
    return X, Annotations.from_triples(
        annotations.instance, annotations.annotator, label, n_instances=n, n_annotators=8, n_classes=3
    )


def test_what_learns_is_left_in_peace():
    X, annotations, y = crowd(300)
    model = crowdwise.CE(epochs=10, verbose=0)
    assert said(model, X, annotations) == model.warnings_ == []
    assert model.score(X, y) > 0.9


def test_inputs_on_which_sgd_stalls_are_learnt_by_the_second_try():
    X, annotations, _ = crowd(600)
    model = crowdwise.CE(recipe="features", optimiser="sgd", lr=1e-5, epochs=20, prepare="none", dropout=0, verbose=0)
    (message,) = said(model, X / 10, annotations)
    assert "stage 'classifier' is of little use" in message
    assert "run again with Adam in place of sgd, at lr=0.001" in message
    assert model.warnings_[0] == message
    assert {record["stage"] for record in model.history_} == {"classifier", "classifier, by Adam"}


def test_labels_without_meaning_end_in_a_warning_that_says_what_to_do(tmp_path):
    X, annotations = random_labels()
    model = crowdwise.CE(epochs=3, verbose=0)
    first, second = said(model, X, annotations)
    assert "run again with a fifth of lr=0.001" in first
    assert "'classifier, slower' is still no better than a guess: " in second
    assert "Check that the rows of X are the instances of the annotations" in second
    assert crowdwise.load(model.save(tmp_path / "model")).warnings_ == [first, second]


def test_the_papers_protocol_is_not_changed_but_warns():
    X, annotations = random_labels()
    model = crowdwise.CE(**QUICK)
    (message,) = said(model, X, annotations)
    assert "always saying 0 with 0.6" in message or "nearly the same probabilities" in message
    assert {record["stage"] for record in model.history_} == {"classifier"}


def test_a_second_try_is_resumed_like_any_stage(tmp_path):
    X, annotations = random_labels()
    options = {"epochs": 4, "verbose": 0, "backbone_options": {"hidden": 8}}
    whole = crowdwise.CE(**options)
    said(whole, X, annotations)
    interrupted = crowdwise.CE(**options)

    class Stop:
        def epoch(self, record, predict):
            if (record["stage"], record["epoch"]) == ("classifier, slower", 1):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        said(interrupted, X, annotations, run_dir=tmp_path, callbacks=[Stop()])
    resumed = crowdwise.CE(**options)
    said(resumed, X, annotations, resume=tmp_path)
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
