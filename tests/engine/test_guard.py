"""A classifier that learnt nothing is noticed, tried again, and named."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import crowdwise
from crowdwise import Annotations
from crowdwise.engine import Engine, Group, Problem, Stage
from crowdwise.errors import CrowdwiseWarning
from crowdwise.networks import Classifier
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


def lost_and_found(permuted: range, epochs: int = 9, **more) -> tuple[list[tuple[str, int]], list[str], float]:
    """Stages and epochs of a run whose second stage learns permuted classes in some epochs, at its usual rate only."""
    X, annotations, y = crowd(600)
    problem = Problem.make(X, annotations, device=torch.device("cpu"), seed=0, validation_fraction=0.3)
    engine = Engine(problem)
    classifier = Classifier("mlp", problem.shape, 3, {"hidden": 16})
    group = Group(classifier, lr=0.02)
    now: list[int] = []

    def loss(batch):
        shift = 1 if now[-1] in permuted and len([each for each in now if each == 0]) == 1 else 0
        return F.cross_entropy(classifier(batch.x)[batch.row], (batch.label + shift) % 3)

    def stages():
        plain = Stage(
            "warm-up", problem.train, lambda b: F.cross_entropy(classifier(b.x)[b.row], b.label), {"c": group}, 6
        )
        yield plain
        stage = Stage("correction", problem.train, loss, {"c": group}, epochs, optimiser="adam", score=classifier)
        for name, value in {"keeps_classes": True, "before_epoch": now.append, **more}.items():
            setattr(stage, name, value)
        yield stage

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdwiseWarning)
        engine.run(stages())
    history = [record["stage"] for record in engine.history]
    return (
        [(name, history.count(name)) for name in dict.fromkeys(history)],
        engine.warnings,
        np.mean(engine.predict(classifier, X).argmax(1) == y),
    )


def test_classes_that_are_lost_at_the_start_are_noticed_after_a_third():
    stages, said, accuracy = lost_and_found(range(9))
    assert stages == [("warm-up", 6), ("correction", 3), ("correction, slower", 9)]
    assert "lost classes" in said[0]
    assert accuracy > 0.9


def test_classes_that_are_lost_later_are_noticed_at_the_end():
    stages, _, accuracy = lost_and_found(range(3, 9))
    assert stages == [("warm-up", 6), ("correction", 9), ("correction, slower", 9)]
    assert accuracy > 0.9


def test_a_stage_whose_best_epoch_counts_is_not_cut_short():
    stages, said, _ = lost_and_found(range(1, 9), keep="best")
    assert stages == [("warm-up", 6), ("correction", 9)]
    assert said == []
