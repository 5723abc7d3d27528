"""The parts of the label model against second implementations in loops, and against grids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, logsumexp, softmax

from crowdwise import Annotations
from crowdwise.aggregation import recommend
from crowdwise.engine import Engine, Problem
from crowdwise.errors import CrowdwiseWarning, DataError
from crowdwise.methods.core import label_model
from crowdwise.methods.core.label_check import CHECK, check_labels
from crowdwise.methods.core.label_model import (
    LabelModel,
    LabelRows,
    by_shares,
    forget,
    log_mean,
    lowered,
    power_alone,
    power_by_agreement,
)
from crowdwise.methods.core.labels import as_sure_as, label_arrays, label_summary, label_table, new_posterior
from crowdwise.methods.core.labels import label_model as label_model_of
from crowdwise.methods.core.prediction import with_mirror_image
from crowdwise.networks import Classifier, Stacked
from engine_helpers import crowd
from tolerances import DOUBLE, SINGLE

N, R, C = 14, 5, 3


def labels(seed: int = 0, weighted: bool = True) -> Annotations:
    """Some labels twice, some annotators with two labels for an instance, one instance without any, and weights."""
    rng = np.random.default_rng(seed)
    triples = rng.integers(0, [N - 1, R, C], (40, 3)).T
    weight = rng.choice([0.5, 1.0, 2.0], 40) if weighted else None
    return Annotations.from_triples(*triples, n_instances=N, n_annotators=R, n_classes=C, weight=weight)


def rows_by_hand(annotations: Annotations) -> dict[tuple[int, int, int], float]:
    """How often each annotation was made, or the sum of its weights."""
    found: dict[tuple[int, int, int], float] = {}
    weight = np.ones(len(annotations)) if annotations.weight is None else annotations.weight
    for i, j, y, w in zip(annotations.instance, annotations.annotator, annotations.label, weight, strict=True):
        found[int(i), int(j), int(y)] = found.get((int(i), int(j), int(y)), 0.0) + float(w)
    return dict(sorted(found.items()))


@pytest.fixture
def log_f() -> Any:
    return log_softmax(np.random.default_rng(1).normal(size=(N, C)) * 2, axis=1)


@pytest.fixture
def model(log_f: Any) -> LabelModel:
    shares = np.log(np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]))
    return LabelModel.from_posterior(LabelRows.of(labels()), softmax(log_f, axis=1), (0.7, 0.4), 3.0, shares)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_the_distinct_annotations(weighted: bool) -> None:
    annotations = labels(weighted=weighted)
    rows, expected = LabelRows.of(annotations), rows_by_hand(annotations)
    assert list(zip(rows.instance.tolist(), rows.annotator.tolist(), rows.label.tolist(), strict=True)) == [*expected]
    assert_allclose(rows.times, [*expected.values()])
    answers = [sum(w for (i, j, _), w in expected.items() if (i, j) == key[:2]) for key in expected]
    assert_allclose(rows.answers, answers)
    assert len(expected) < 40
    assert max(answers) > max(expected.values())
    values = np.random.default_rng(0).random((len(expected), 2))
    by_hand = np.zeros((N, 2))
    for place, (key, w) in enumerate(expected.items()):
        by_hand[key[0]] += w * values[place]
    assert_allclose(rows.by_instance(values), by_hand)


def test_a_sample_keeps_whole_instances_of_those_that_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = LabelRows.of(labels())
    judged = np.arange(N) % 3 != 1
    sample, instances = rows.sample(judged)
    assert instances.tolist() == sorted({int(i) for i in rows.instance if judged[i]})
    assert_array_equal(instances[sample.instance], rows.instance[judged[rows.instance]])
    assert_array_equal(sample.answers, rows.answers[judged[rows.instance]])
    assert sample.size == (len(instances), R, C)
    many = LabelRows.of(
        Annotations.from_triples(np.repeat(np.arange(2500), 2), [0, 1] * 2500, [1] * 5000, n_classes=90)
    )
    part, chosen = many.sample(np.ones(2500, bool))
    assert chosen.tolist() == list(range(0, 2500, 3))  # 5,000 labels, and 2,000 are enough
    assert len(part.label) == 2 * len(chosen)


def test_expected_counts_by_hand(model: LabelModel, log_f: Any) -> None:
    q = softmax(log_f, axis=1)
    counts, totals, common = {}, np.zeros((R, C)), np.zeros((C, C))
    for (i, j, y), w in rows_by_hand(labels()).items():
        counts[j, y] = counts.get((j, y), 0.0) + w * q[i]
        totals[j] += w * q[i]
        common[:, y] += w * q[i]
    assert [divmod(cell, C) for cell in model.cells.tolist()] == sorted(counts)
    assert_allclose(model.counts, [counts[key] for key in sorted(counts)])
    assert_allclose(model.totals, totals)
    common += np.eye(C) + 1 / C
    assert_allclose(model.common, common / common.sum(axis=1, keepdims=True))


def columns_by_hand(model: LabelModel, annotator: int, label: int, own: Any = 0.0, answers: Any = 0.0) -> Any:
    cells = model.cells.tolist()
    cell = annotator * C + label
    counts = model.counts[cells.index(cell)] if annotator >= 0 and cell in cells else np.zeros(C)
    totals = model.totals[annotator] if annotator >= 0 else np.zeros(C)
    above = np.maximum(counts - own, 0) + model.strength * model.common[:, label]
    return above / (np.maximum(totals - answers, 0) + model.strength)


def test_columns_of_matrices_by_hand(model: LabelModel, log_f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    annotator, label = (part.ravel() for part in np.meshgrid(np.arange(-1, R), np.arange(C), indexing="ij"))
    expected = [columns_by_hand(model, j, y) for j, y in zip(annotator, label, strict=True)]
    assert_allclose(model.columns(annotator, label), expected)
    rows, q = LabelRows.of(labels()), softmax(log_f, axis=1)
    honest = [
        columns_by_hand(model, j, y, w * q[i], answers * q[i])
        for i, j, y, w, answers in zip(rows.instance, rows.annotator, rows.label, rows.times, rows.answers, strict=True)
    ]
    assert_allclose(model.honest_columns(rows, q), honest)
    monkeypatch.setattr(label_model, "_BLOCK", 7)
    assert_allclose(model.honest_columns(rows, q), honest)
    some, instances = rows.sample(np.arange(N) > 4)  # which have fewer kinds of labels than the model knows
    assert_allclose(model.honest_columns(some, q[instances]), np.array(honest)[rows.instance > 4])


def test_the_posterior_by_its_formula(model: LabelModel, log_f: Any) -> None:
    rows = LabelRows.of(labels())
    columns = model.columns(rows.annotator, rows.label)
    found = model.weigh(log_f, rows, columns)
    a, b = model.weights
    for i in range(N):
        scores = a * log_f[i] + label_model.SHARES * (model.shares[1] - a * model.shares[0])
        given = [(key, w) for key, w in rows_by_hand(labels()).items() if key[0] == i]
        for (_, j, y), w in given:
            scores = scores + b * w * np.log(columns_by_hand(model, j, y))
        assert_allclose(found[i], np.exp(scores - logsumexp(scores)) if given else np.exp(log_f[i]), atol=DOUBLE)


def test_labels_are_predicted_from_the_others(model: LabelModel, log_f: Any) -> None:
    rows, q = LabelRows.of(labels()), softmax(log_f, axis=1)
    test = model.test(log_f, rows, q)
    columns = model.honest_columns(rows, q)
    value = 0.0
    for e, (i, w) in enumerate(zip(rows.instance, rows.times, strict=True)):
        scores = 0.3 * log_f[i] + by_shares(0.3, model.shares)
        for k in np.flatnonzero(rows.instance == i):
            scores = scores + (0.6 * rows.times[k] * np.log(columns[k]) if k != e else 0.0)
        value += w * np.log(np.exp(scores - logsumexp(scores)) @ columns[e])
    assert test.likelihood(0.3, 0.6) == pytest.approx(value)
    pull = 0.5 * np.log(0.3 / 0.5) ** 2 + 5.0 * np.log(0.6 / 0.5) ** 2
    assert test.score(0.3, 0.6) == pytest.approx(value - pull)


@pytest.mark.parametrize("most", [np.inf, 0.25])
def test_strength_and_weights_are_the_best_of_all(model: LabelModel, log_f: Any, most: float) -> None:
    rows, q = LabelRows.of(labels()), softmax(log_f, axis=1)
    chosen = model.choose(log_f, rows, q, most)
    scores = {s: replace(model, strength=s).test(log_f, rows, q).score(*model.weights) for s in label_model._STRENGTHS}
    assert chosen.strength == max(scores, key=scores.__getitem__)
    test = replace(model, strength=chosen.strength).test(log_f, rows, q)
    best = max(test.score(min(a, most), b) for a in label_model._WEIGHTS_F for b in label_model._WEIGHTS_LABELS)
    assert test.score(*chosen.weights) == pytest.approx(best)
    assert chosen.weights[0] <= most


def test_labels_make_no_classifier_less_sure(log_f: Any) -> None:
    """Weights grow by the least of the factors with which the posterior is as sure as the classifier is by itself."""
    rows, q = LabelRows.of(labels()), softmax(log_f, axis=1)
    timid = LabelModel.from_posterior(rows, q, (0.1, 0.1), 3.0)
    test = timid.test(log_f, rows, q)
    alone = lowered(max(label_model._WEIGHTS_F, key=lambda a: test.likelihood(a, 0.0)))
    least = np.mean([max(softmax(alone * each)) for each in log_f]) - 0.01
    found = timid.as_sure_as_f(log_f, rows, q)
    factor = found.weights[0] / 0.1
    assert found.weights[1] == pytest.approx(0.1 * factor)

    def sure(factor: float) -> float:
        model = replace(timid, weights=(0.1 * factor, 0.1 * factor))
        return float(model.weigh(log_f, rows, test.columns).max(axis=1).mean())

    enough = [each for each in label_model._FACTORS if sure(each) >= least]
    assert factor == pytest.approx(enough[0] if enough else label_model._FACTORS[-1])
    bold = replace(timid, weights=(3.0, 1.0))
    assert bold.as_sure_as_f(log_f, rows, q).weights == (3.0, 1.0)


def test_the_power_of_the_classifier_alone_is_the_best_of_all(model: LabelModel, log_f: Any) -> None:
    rows, q = LabelRows.of(labels()), softmax(log_f, axis=1)
    members = np.stack([log_f, log_softmax(np.random.default_rng(2).normal(size=(N, C)), axis=1)], axis=1)
    columns = model.honest_columns(rows, q)
    scores = {}
    for power in label_model._POWERS:
        f = np.mean([softmax(power * members[:, k], axis=1) for k in range(2)], axis=0)
        likelihood = sum(
            w * np.log(f[i] @ column) for i, w, column in zip(rows.instance, rows.times, columns, strict=True)
        )
        scores[power] = likelihood - 0.3 * np.log(power / 0.5) ** 2
    best = max(scores, key=scores.__getitem__)
    assert power_alone(model, members, rows, q) == best
    assert power_alone(model, members, rows, q, 0.06) == min(best, 0.06)


def test_networks_are_as_sure_as_they_agree() -> None:
    """Two of three pairs of networks say the same of most instances: their share, squared, is how sure they may be."""
    rng = np.random.default_rng(4)
    third = np.where(rng.random(90) < 0.7, np.arange(90) % C, rng.integers(0, C, 90))
    said = np.stack([np.arange(90) % C, np.arange(90) % C, third], axis=1)
    members = log_softmax(4.0 * np.eye(C)[said] + rng.normal(size=(90, 3, C)) * 0.1, axis=2)
    rows = LabelRows.of(Annotations.from_triples(np.arange(90), [0] * 90, np.arange(90) % C))
    agree = (1 + 2 * (said[:, 0] == said[:, 2]).mean()) / 3
    power = power_by_agreement(members, rows)
    sure = np.mean([max(np.mean([softmax(power * each) for each in row], axis=0)) for row in members])
    assert sure == pytest.approx(agree**2, abs=1e-3)
    at = np.arange(45)
    half = Annotations.from_triples([*range(90), *at], [0] * 90 + [1] * 45, [0] * 135, n_classes=C)
    assert power_by_agreement(members, LabelRows.of(half)) == np.inf  # 1.5 labels an instance
    fewer = half.where(np.arange(135) < 134)
    assert power_by_agreement(members, LabelRows.of(fewer)) < np.inf


def test_small_functions_by_hand() -> None:
    assert lowered(0.5) == pytest.approx(0.8 * 0.5**1.25)
    assert lowered(2.0) == pytest.approx(1.6)
    assert_allclose(log_mean(np.array([[0.5, 0.0], [0.1, 0.0]])), np.log([0.3, 1e-10]))
    assert_array_equal(log_mean(np.empty((0, 3))), np.zeros(3))
    shares = np.log(np.array([[0.2, 0.8], [0.5, 0.5]]))
    assert_allclose(by_shares(0.5, shares), np.log([0.5 / 0.2**0.5, 0.5 / 0.8**0.5]))


def test_forgetting_makes_learnt_labels_as_probable_as_others(log_f: Any) -> None:
    rows, trained = LabelRows.of(labels()), np.arange(N) % 4 > 0
    votes = rows.by_instance(np.eye(C)[rows.label])
    learnt = log_softmax(log_f + 2.0 * trained[:, None] * votes, axis=1)

    def probability(values: Any, chosen: Any) -> float:
        p = np.exp(values[rows.instance, rows.label])
        return float((rows.times * p)[chosen].sum() / rows.times[chosen].sum())

    own = trained[rows.instance]
    found = forget(learnt, rows, trained)
    assert probability(learnt, own) > probability(learnt, ~own) + 0.05
    assert probability(found, own) == pytest.approx(probability(learnt, ~own), abs=1e-3)
    assert_array_equal(found[~trained], learnt[~trained])
    spread = (learnt - found)[trained] - (learnt - found)[trained].mean(axis=1, keepdims=True)
    lengths = votes[trained] - votes[trained].mean(axis=1, keepdims=True)
    share = (spread * lengths).sum() / (lengths**2).sum()
    assert_allclose(spread, share * lengths, atol=1e-6)  # votes, times one number
    timid = log_softmax(log_f - 2.0 * trained[:, None] * votes, axis=1)
    assert forget(timid, rows, trained) is timid
    assert forget(learnt, rows, np.zeros(N, bool)) is learnt


# labels of new instances


def test_new_labels_are_matched_by_name(model: LabelModel, log_f: Any) -> None:
    """Annotators and classes of other codes; one annotator is new and gets the crowd's mean matrix."""
    classes, annotators = np.array(["ape", "bee", "cat"]), np.array(list("abcde"))
    names = {"classes": ["cat", "ape", "bee"], "annotators": ["e", "new", "b"], "n_instances": 4}
    crowd = Annotations.from_triples([1, 1, 0, 2], [0, 1, 2, 0], [0, 1, 2, 0], **names)
    found = new_posterior(model, log_f[:4], crowd, classes, annotators)
    given = {0: [(1, 1)], 1: [(4, 2), (-1, 0)], 2: [(4, 2)]}
    a, b = model.weights
    for i, each in given.items():
        scores = a * log_f[i] + by_shares(a, model.shares)
        scores = scores + b * sum(np.log(columns_by_hand(model, j, y)) for j, y in each)
        assert_allclose(found[i], softmax(scores))
    assert_allclose(found[3], np.exp(log_f[3]))
    with pytest.warns(CrowdwiseWarning, match="knows none of the annotators, 'x'"):
        new_posterior(model, log_f[:1], Annotations.coerce(([0], ["x"], ["ape"])), classes, annotators)
    with pytest.raises(DataError, match="'dog'; its classes are 'ape', 'bee', 'cat'"):
        new_posterior(model, log_f[:1], Annotations.coerce(([0], ["a"], ["dog"])), classes, annotators)


def test_a_table_of_labels_counts_weights() -> None:
    crowd = Annotations.from_triples(
        [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 1], weight=[0.9, 0.4, 0.3, 0.6, 0.7, 0.7], n_instances=4
    )
    table = label_table(crowd, [[0.2, 0.8], [0.9, 0.1], [0.8, 0.2], [0.9, 0.1]]).to_pylist()
    assert [row["majority_vote"] for row in table] == [0, 0, 0, None]
    assert [row["doubt"] for row in table] == ["against the votes", None, "tied votes", "no labels"]


def test_classes_of_a_table_may_be_more_and_in_another_order() -> None:
    votes = Annotations.coerce((["x", "x", "y", "z"], ["a", "b", "a", "a"], ["dog", "dog", "ant", "dog"]))
    table = label_table(votes, [[0.1, 0.9, 0.0], [0.69, 0.31, 0.0], [0.0, 0.3, 0.7]], ["ant", "dog", "eel"]).to_pylist()
    assert [row["majority_vote"] for row in table] == ["dog", "ant", "dog"]
    assert [row["label"] for row in table] == ["dog", "ant", "eel"]
    assert [row["doubt"] for row in table] == [None, "low confidence", "against the votes"]
    assert [row["instance"] for row in table] == ["x", "y", "z"]
    sure = label_table([["a"], ["b"]], [[0.7, 0.3], [0.3, 0.7]])
    assert sure["doubt"].to_pylist() == [None, None]


def test_a_summary_counts_what_the_table_says() -> None:
    votes = [["a", "a", "b"], ["a", "b", None], ["b", "b", "b"], [None, None, None]]
    line = label_summary(label_table(votes, [[0.2, 0.8], [0.9, 0.1], [0.2, 0.8], [0.9, 0.1]]))
    assert line == "1 of 3 labels go against the majority vote (33.3 %), 1 decide a tie; 1 without labels"
    clear = label_summary(label_table([["a"], ["b"]], [[1, 0], [0, 1]]))
    assert clear == "0 of 2 labels go against the majority vote (0.0 %)"
    nothing = label_table(Annotations.from_triples([], [], [], n_classes=2), np.empty((0, 2)))
    assert label_summary(nothing) == "0 of 0 labels go against the majority vote (0.0 %)"


# what networks say


def test_powers_of_one_network_and_of_several() -> None:
    torch.manual_seed(0)
    members = [Classifier("mlp", (4,), C, {"hidden": 8}).eval() for _ in range(3)]
    x = torch.randn(6, 4)
    with torch.no_grad():
        each = [softmax(1.7 * member(x).numpy().astype(float), axis=1) for member in members]
        one, mean = as_sure_as(members[0], 1.7)(x).numpy(), as_sure_as(Stacked(members).eval(), 1.7)(x).numpy()
    assert_allclose(softmax(one, axis=1), each[0], atol=SINGLE)
    assert_allclose(softmax(mean, axis=1), np.mean(each, axis=0), atol=SINGLE)


def test_a_picture_and_its_mirror_image_have_the_same_mean() -> None:
    def classifier(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[:, 0, :, 0].sum(1), x[:, 0, :, -1].sum(1) * 2, x[:, 0, 0].sum(1)], 1)

    x = torch.randn(5, 1, 3, 4)
    found = torch.softmax(with_mirror_image(classifier)(x), 1)
    mean = (torch.softmax(classifier(x), 1) + torch.softmax(classifier(x.flip(3)), 1)) / 2
    torch.testing.assert_close(found, mean)
    torch.testing.assert_close(found, torch.softmax(with_mirror_image(classifier)(x.flip(3)), 1))


# labels of training instances


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("members", [None, 1, 3])
def test_labels_of_training_instances_from_their_parts(members: int | None, shuffled: bool) -> None:
    """Networks that were not trained on an instance judge it, where there are any; else what was learnt is forgotten."""
    X, annotations, _ = crowd(60)
    some = annotations.where(annotations.instance % 10 > 0)  # a tenth has no labels
    order = np.random.default_rng(0).permutation(60) if shuffled else None
    options = {"device": torch.device("cpu"), "seed": 0, "validation_fraction": 0.2, "order": order}
    problem = Problem.make(X, some, **options)
    engine = Engine(problem)
    classifier = Classifier("mlp", (6,), 3, {"hidden": 4})
    trained = np.zeros(60, bool)
    trained[problem.train.instance.numpy()] = True
    with torch.no_grad():
        logits = classifier.eval()(problem.prepare(torch.from_numpy(X))).double().numpy()
    log_f = log_softmax(logits, axis=1)
    rng = np.random.default_rng(1)
    honest = None
    if members is not None:
        honest = torch.from_numpy(log_softmax(rng.normal(size=(len(problem.train), members, 3)), axis=2))
    found = label_arrays(engine, some, classifier, honest)

    place = np.arange(60) if order is None else order
    rows = LabelRows.of(some.select(instances=place))
    every = np.repeat(log_f[place][:, None], members or 1, axis=1)
    if honest is not None:
        at = {instance: k for k, instance in enumerate(problem.train.instance.tolist())}
        for k, instance in enumerate(place.tolist()):
            if instance in at:
                every[k] = honest.numpy()[at[instance]]
    mean = logsumexp(every, axis=1) - np.log(every.shape[1])
    known = trained[place]
    if honest is None:
        mean = forget(mean, rows, known)
    judged = ~known if honest is None else np.ones(60, bool)
    most = power_by_agreement(every[known], rows)
    model, posterior = LabelModel.fit(mean, rows, judged, most)
    sample, instances = rows.sample(judged)
    alone = power_alone(model, every[instances], sample, posterior[instances], most)
    kept = label_model_of(found)
    assert kept.alone == pytest.approx(alone)
    assert kept.weights == pytest.approx(model.weights)
    assert kept.strength == model.strength
    assert_allclose(kept.shares, model.shares, atol=1e-6)
    check = check_labels(some.select(instances=place), mean, judged, most, 0)
    assert_allclose(found[CHECK], check.to_array())
    if check.labels_alone:
        posterior = recommend(some.select(instances=place), random_state=0).estimator.posterior_
    labelled = np.flatnonzero(some.labels_per_instance)
    by_instance = np.empty((60, 3))
    by_instance[place] = posterior
    assert_allclose(found["posterior"][labelled], by_instance[labelled], atol=1e-5)
    bare = np.flatnonzero(some.labels_per_instance == 0)
    assert_allclose(found["posterior"][bare], softmax(alone * logits[bare], axis=1), atol=1e-5)


def test_a_classifier_without_finite_predictions_has_no_labels() -> None:
    X, annotations, _ = crowd(30)
    problem = Problem.make(X, annotations, device=torch.device("cpu"), seed=0)
    classifier = Classifier("mlp", (6,), 3)
    classifier.linear.bias.data[0] = torch.nan
    assert label_arrays(Engine(problem), annotations, classifier, None) == {}


def test_label_models_of_earlier_versions_lack_parts(model: LabelModel) -> None:
    from crowdwise.errors import ModelFileError
    from crowdwise.methods.core.labels import _to_arrays

    arrays = _to_arrays(replace(model, alone=0.3))
    again = label_model_of(arrays)
    assert (again.weights, again.strength, again.alone) == (model.weights, model.strength, 0.3)
    assert_array_equal(again.shares, model.shares)
    earlier = {name: values for name, values in arrays.items() if name != "label_shares"}
    earlier["label_weights"] = earlier["label_weights"][:3]
    old = label_model_of(earlier)
    assert old.alone == 1.0
    assert not old.shares.any()
    assert label_model_of({}) is None
    with pytest.raises(ModelFileError, match="no array 'label_totals'"):
        label_model_of({name: values for name, values in arrays.items() if name != "label_totals"})
