"""Labels of instances: what every method says of those it was trained on, and of new ones that have annotations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import crowdwise
from crowdwise import Annotations, quality
from crowdwise.errors import CrowdwiseWarning, DataError
from crowdwise.methods.core import label_model
from crowdwise.methods.core.label_model import LabelModel, LabelRows, forget, power_alone, power_by_agreement
from crowdwise.methods.core.labels import label_summary, label_table
from crowdwise.registry import METHODS
from engine_helpers import crowd, quick
from tolerances import SINGLE

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
WORDS = np.array(["ape", "bee", "cat"])
UNLABELLED = np.arange(0, 240, 12)


def named(annotations: Annotations, rows=slice(None), **ids) -> Annotations:
    """Some rows of the annotations, with words for classes and letters for annotators."""
    ids = {"annotators": list("abcdefgh"), "classes": WORDS, "n_instances": annotations.n_instances} | ids
    return Annotations.from_triples(
        annotations.instance[rows], annotations.annotator[rows], annotations.label[rows], **ids
    )


@pytest.fixture(scope="module")
def data():
    X, annotations, y = crowd()
    return X, named(annotations, ~np.isin(annotations.instance, UNLABELLED)), WORDS[y]


@pytest.fixture(scope="module")
def new():
    X, annotations, _ = crowd(seed=0)
    return X[:40] + 0.1, named(annotations.select(range(40)))


@pytest.fixture(scope="module", params=[*METHODS])
def model(request, data):
    X, annotations, _ = data
    return METHODS[request.param](**quick(request.param) | {"epochs": 10}).fit(X, annotations)


def test_training_instances_have_labels_with_confidence(model, data):
    X, annotations, y = data
    assert model.posterior_.shape == (240, 3)
    np.testing.assert_allclose(model.posterior_.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(model.labels_, model.classes_[model.posterior_.argmax(1)])
    np.testing.assert_array_equal(model.label_confidence_, model.posterior_.max(1))
    np.testing.assert_allclose(model.posterior_[UNLABELLED], model.predict_proba(X)[UNLABELLED], atol=1e-5)
    labelled = np.setdiff1d(np.arange(240), UNLABELLED)
    majority = WORDS[annotations.votes().argmax(1)]
    assert np.mean((model.labels_ == y)[labelled]) >= np.mean((majority == y)[labelled])


def test_new_annotations_give_a_posterior(model, new):
    X, annotations = new
    posterior = model.posterior(X, annotations)
    assert posterior.shape == (40, 3)
    np.testing.assert_allclose(posterior.sum(1), 1)
    ape, bee = (
        model.posterior(
            X,
            Annotations.from_triples(
                annotations.instance,
                annotations.annotator,
                np.full(len(annotations), word),
                n_instances=40,
                annotators=annotations.annotators,
                classes=WORDS,
            ),
        )
        for word in (0, 1)
    )
    assert (ape[:, 0] >= bee[:, 0]).all()  # both are 1 where a classifier is certain
    assert (ape[:, 0] > bee[:, 0]).any()


def test_instances_without_labels_get_the_classifier(model, new):
    X, annotations = new
    nothing = annotations.where(np.zeros(len(annotations), bool))
    np.testing.assert_allclose(model.posterior(X, nothing), model.predict_proba(X), atol=SINGLE)


def test_order_of_annotations_is_irrelevant(model, new):
    X, annotations = new
    order = np.random.default_rng(0).permutation(len(annotations))
    np.testing.assert_array_equal(model.posterior(X, named(annotations, order)), model.posterior(X, annotations))


def test_unknown_annotators_get_the_mean_matrix(model, new):
    X, annotations = new
    with pytest.warns(CrowdwiseWarning, match="knows none of the annotators"):
        strangers = model.posterior(X, named(annotations, annotators=list("stuvwxyz")))
    one = named(annotations, annotators=["only", *"tuvwxyz"])
    same = Annotations.from_triples(
        one.instance, one.annotator * 0, one.label, n_instances=40, classes=WORDS, annotators=["a stranger"]
    )
    np.testing.assert_allclose(model.posterior(X, same), strangers)


def test_saved_and_loaded_model_has_the_same_labels(model, new, tmp_path):
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.posterior_, model.posterior_)
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    np.testing.assert_allclose(loaded.posterior(*new), model.posterior(*new), atol=SINGLE)


@pytest.fixture(scope="module")
def plain(data):
    return crowdwise.CE(**quick("ce")).fit(*data[:2])


def test_classes_that_the_model_does_not_know_are_refused(plain, new):
    X, annotations = new
    other = named(annotations, classes=["ape", "bee", "dog"])
    with pytest.raises(DataError, match=r"classes that this model does not know: .*dog"):
        plain.posterior(X, other)
    unused = named(annotations, classes=[*WORDS, "dog"])
    np.testing.assert_allclose(plain.posterior(X, unused), plain.posterior(X, annotations), atol=SINGLE)


def test_annotations_must_cover_the_instances(plain, new):
    X, annotations = new
    with pytest.raises(DataError, match="X has 39 instances, the annotations cover 40"):
        plain.posterior(X[:39], annotations)


def test_repeated_annotations_count_each(plain, new):
    X, annotations = new
    twice = Annotations.concat([annotations, annotations])
    once, more = plain.posterior(X, annotations), plain.posterior(X, twice)
    assert (more[np.arange(40), more.argmax(1)] - once[np.arange(40), more.argmax(1)]).mean() > 0


def test_models_of_earlier_versions_say_that_they_have_no_labels(plain, new, tmp_path):
    loaded = crowdwise.load(plain.save(tmp_path / "model"))
    loaded.arrays_ = {"skill": loaded.arrays_["skill"]}
    crowdwise.load(loaded.save(tmp_path / "old"))
    with pytest.raises(AttributeError, match="holds no labels"):
        _ = loaded.labels_
    assert not hasattr(loaded, "posterior_")
    with pytest.raises(crowdwise.errors.ConfigError, match="holds no labels"):
        loaded.posterior(*new)


def test_quality_takes_a_fitted_method(plain, data):
    table = quality.instances(data[1], plain)
    np.testing.assert_allclose(table["consensus_quality_score"].to_numpy(), plain.label_confidence_)


@pytest.mark.parametrize("case", ["no validation", "one annotator", "one label each", "unseen class", "two labelled"])
def test_unusual_crowds_have_labels(case):
    X, annotations, _ = crowd(120)
    instance, annotator, label = annotations.instance, annotations.annotator, annotations.label
    parameters, sizes = {}, {"n_instances": 120, "n_annotators": 8, "n_classes": 3}
    if case == "no validation":
        parameters = {"validation_fraction": 0.0}
    elif case == "one annotator":
        annotator = np.zeros_like(annotator)
    elif case == "one label each":
        _, first = np.unique(instance, return_index=True)
        instance, annotator, label = instance[first], annotator[first], label[first]
    elif case == "unseen class":
        sizes["n_classes"] = 6
    else:
        instance, annotator, label = np.array([0, 1]), np.array([0, 0]), np.array([0, 1])
    crowd_ = Annotations.from_triples(instance, annotator, label, **sizes)
    model = crowdwise.CE(**quick("ce") | parameters).fit(X, crowd_)
    np.testing.assert_allclose(model.posterior_.sum(1), 1, atol=1e-5)


# the model of labels


def simulated(n=1500, n_annotators=20, n_classes=4, per=4, skill=0.7, hard=0.0, seed=0):
    """A calibrated classifier, labels and the truth; a share of the instances is hard, and annotators guess them alike."""
    rng = np.random.default_rng(seed)
    log_f = np.log(rng.dirichlet(np.full(n_classes, 0.5), size=n))
    y = np.array([rng.choice(n_classes, p=p) for p in softmax(log_f, axis=1)])
    lure, skills = rng.integers(n_classes, size=n), np.where(rng.random(n) < hard, 0.2, skill)
    instance = np.repeat(np.arange(n), per)
    annotator = np.concatenate([rng.choice(n_annotators, per, replace=False) for _ in range(n)])
    right, lured = rng.random(len(instance)) < skills[instance], rng.random(len(instance)) < 0.5
    guess = np.where(lured, lure[instance], rng.integers(n_classes, size=len(instance)))
    label = np.where(right, y[instance], guess)
    sizes = {"n_instances": n, "n_annotators": n_annotators, "n_classes": n_classes}
    return log_f, Annotations.from_triples(instance, annotator, label, **sizes), y


@pytest.mark.parametrize("hard", [0.0, 0.3])
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_confidence_is_calibrated_whatever_the_classifier_claims(hard, sharpness):
    log_f, annotations, y = simulated(hard=hard)
    rows, everything = LabelRows.of(annotations), np.ones(len(y), bool)
    model, posterior = LabelModel.fit(sharpness * log_f, rows, everything)
    result = quality.calibration(posterior, y)
    assert result.ece < 0.06
    assert result.accuracy > (annotations.votes().argmax(1) == y).mean()
    if hard:
        columns = model.columns(rows.annotator, rows.label)
        product = replace(model, weights=(1.0, 1.0)).weigh(sharpness * log_f, rows, columns)
        assert quality.calibration(product, y).ece > result.ece + 0.02


def test_an_overconfident_classifier_is_tempered():
    log_f, annotations, y = simulated()
    rows, all_of_them = LabelRows.of(annotations), np.ones(len(y), bool)
    honest, sharp = (LabelModel.fit(scale * log_f, rows, all_of_them)[0] for scale in (1, 4))
    assert sharp.weights[0] < honest.weights[0] / 2


def test_common_classes_do_not_lose_to_rare_ones(monkeypatch):
    rng = np.random.default_rng(0)
    y = (rng.random(800) < 0.15).astype(int)
    log_f = log_softmax(np.eye(2)[y] + 0.7 * rng.normal(size=(800, 2)) + [0, 0.7], axis=1)  # both classes alike
    labels = np.where(rng.random((800, 4)) < 0.8, y[:, None], 1 - y[:, None])
    rows, judged = LabelRows.of(Annotations.from_dense(labels)), np.ones(800, bool)
    accuracy = []
    for weight in (0.0, label_model.SHARES):
        monkeypatch.setattr(label_model, "SHARES", weight)
        model, posterior = LabelModel.fit(log_f, rows, judged)
        accuracy.append(float(np.mean(posterior.argmax(1) == y)))
    assert accuracy[1] > accuracy[0] + 0.01
    assert abs(np.exp(model.shares[1]) - posterior.mean(0)).max() < 0.02


def test_a_rare_class_does_not_confirm_itself():
    rng = np.random.default_rng(0)
    truth = (rng.random(1500) < 0.1).astype(int)
    label = np.where(rng.random((1500, 3)) < 0.85, truth[:, None], 1 - truth[:, None])
    annotations = Annotations.from_triples(
        np.repeat(np.arange(1500), 3), rng.integers(20, size=4500), label.ravel(), n_annotators=20
    )
    inflated = log_softmax(rng.normal((0, 0.5), 2, (1500, 2)), axis=1)  # a classifier that knows nothing
    _, posterior = LabelModel.fit(inflated, LabelRows.of(annotations), np.ones(1500, bool))
    assert posterior[:, 1].mean() < 0.3
    assert (posterior.argmax(1) == truth).mean() > 0.85


def members_of(rng, truth, right, sharpness, shared=0.5):
    """ln f (n, 2, C) of two networks that are ``right`` so often, and err in common."""
    n, n_classes = len(truth), 3
    wrong = (truth[:, None] + rng.integers(1, n_classes, (n, 2))) % n_classes
    wrong[:, 1] = np.where(rng.random(n) < shared, wrong[:, 0], wrong[:, 1])
    fails = rng.random((n, 2)) > right
    fails[:, 1] = np.where(rng.random(n) < shared, fails[:, 0], fails[:, 1])
    said = np.where(fails, wrong, truth[:, None])
    return log_softmax(sharpness * np.eye(n_classes)[said] * rng.random((n, 2, 1)), axis=2)


def test_predictions_are_as_sure_as_held_out_labels_allow():
    rng = np.random.default_rng(1)
    truth = rng.integers(3, size=2000)
    label = np.where(rng.random((2000, 3)) < 0.8, truth[:, None], rng.integers(3, size=(2000, 3)))
    annotations = Annotations.from_dense(label)
    rows = LabelRows.of(annotations)
    for sharpness in (2.0, 20.0):
        members = members_of(rng, truth, 0.7, sharpness)
        model, posterior = LabelModel.fit(np.log(np.exp(members).mean(1)), rows, np.ones(2000, bool))
        power = power_alone(model, members, rows, posterior)
        sure = softmax(power * members, axis=2).mean(1)
        assert abs(sure.max(1).mean() - (sure.argmax(1) == truth).mean()) < 0.08
    assert power < 0.6


def test_networks_that_disagree_do_not_overrule_single_labels():
    rng = np.random.default_rng(2)
    truth = rng.integers(3, size=1500)
    label = np.where(rng.random(1500) < 0.7, truth, rng.integers(3, size=1500))
    annotations = Annotations.from_triples(np.arange(1500), rng.integers(5, size=1500), label)
    rows = LabelRows.of(annotations)
    weak, strong = (members_of(rng, truth, right, 12.0) for right in (0.5, 0.97))
    bounds = [power_by_agreement(members, rows) for members in (weak, strong)]
    assert bounds[0] < bounds[1]
    for members, bound in zip((weak, strong), bounds, strict=True):
        _, posterior = LabelModel.fit(np.log(np.exp(members).mean(1)), rows, np.ones(1500, bool), bound)
        assert (posterior.argmax(1) == truth).mean() > (label == truth).mean() - 0.02
    twice = Annotations.concat([annotations, annotations])
    assert power_by_agreement(weak, LabelRows.of(twice)) == np.inf
    assert power_by_agreement(weak[:, :1], rows) == np.inf


def test_columns_without_the_own_labels_equal_counting_the_others():
    log_f, annotations, _ = simulated(n=30, n_annotators=4, per=3)
    q = softmax(log_f, axis=1)
    rows = LabelRows.of(annotations)
    model = LabelModel.from_posterior(rows, q, (1.0, 1.0), 3.0)
    columns = model.honest_columns(rows, q)
    for place in (0, 17, 80):
        j, label = rows.annotator[place], rows.label[place]
        others = (rows.annotator == j) & (rows.instance != rows.instance[place])
        total = q[rows.instance[others]].sum(0)
        count = q[rows.instance[others & (rows.label == label)]].sum(0)
        np.testing.assert_allclose(columns[place], (count + 3 * model.common[:, label]) / (total + 3))


def test_silent_and_unknown_annotators_have_the_mean_matrix():
    log_f, annotations, _ = simulated(n=50)
    model = LabelModel.from_posterior(LabelRows.of(annotations), softmax(log_f, axis=1), (1.0, 1.0), 3.0)
    columns = model.columns(np.full(4, -1), np.arange(4))
    np.testing.assert_allclose(columns, model.common.T)


def test_forgetting_takes_learnt_labels_out():
    log_f, annotations, y = simulated()
    rows, trained = LabelRows.of(annotations), np.arange(len(y)) % 5 > 0
    learnt = np.where(trained[:, None], log_f + 1.5 * annotations.votes(), log_f)
    again = softmax(forget(learnt, rows, trained), axis=1)
    assert np.abs(again - softmax(log_f, axis=1)).mean() < 0.05
    np.testing.assert_array_equal(forget(log_f, rows, np.ones(len(y), bool)), log_f)


def test_label_table_says_what_is_doubtful():
    votes = [["a", "a", "b"], ["b", "b", "b"], ["a", "b", None], [None, None, None], ["a", "a", None]]
    posterior = [[0.2, 0.8], [0.1, 0.9], [0.9, 0.1], [0.5, 0.5], [0.6, 0.4]]
    table = label_table(votes, posterior)
    assert table.column_names == ["instance", "label", "confidence", "majority_vote", "doubt"]
    assert table["label"].to_pylist() == ["b", "b", "a", "a", "a"]
    assert table["majority_vote"].to_pylist() == ["a", "b", "a", None, "a"]
    assert table["doubt"].to_pylist() == ["against the votes", None, "tied votes", "no labels", "low confidence"]
    line = label_summary(table)
    assert line.startswith("1 of 4 labels go against the majority vote (25.0 %)")
    assert line.endswith("; 1 without labels")
    with pytest.raises(DataError, match=r"posterior has shape \(5, 3\)"):
        label_table(votes, np.full((5, 3), 1 / 3))


def test_label_table_of_new_annotations_knows_all_classes_of_the_model(plain, new):
    X, annotations = new
    some = annotations.where(annotations.label < 2)
    few = Annotations.from_triples(
        some.instance, some.annotator, some.label, n_instances=40, annotators=some.annotators, classes=WORDS[:2]
    )
    table = label_table(few, plain.posterior(X, few), plain.classes_)
    assert set(table["label"].to_pylist()) == set(WORDS)
    assert set(table["majority_vote"].to_pylist()) <= {"ape", "bee", None}


def test_shares_of_classes_come_from_labels_alone():
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.15).astype(int)
    labels = np.where(rng.random((600, 4)) < 0.8, y[:, None], 1 - y[:, None])  # 29 % of the labels are of class 1
    shares = LabelRows.of(Annotations.from_dense(labels)).shares()
    assert abs(shares[1] - y.mean()) < abs(labels.mean() - y.mean()) / 2


def test_shares_of_very_many_classes_are_those_of_labels():
    rows = LabelRows.of(Annotations.from_triples([0, 1, 2], [0, 1, 1], [0, 3, 3], n_classes=10_000))
    shares = rows.shares()
    assert shares.sum() == pytest.approx(1)
    assert shares[3] == pytest.approx(0.5, abs=1e-3)
    nothing = LabelRows.of(Annotations.from_triples([], [], [], n_instances=2, n_annotators=1, n_classes=4))
    assert nothing.shares() == pytest.approx(np.full(4, 0.25))
