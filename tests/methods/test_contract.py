"""What every method promises, over the registry: adding a method adds it here."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import crowdwise
from crowdwise import Annotations
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError, ModelFileError
from crowdwise.registry import METHODS
from engine_helpers import crowd, quick
from tolerances import SINGLE

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
FACTORED = {f"{method} with factored heads": method for method in ("taidtm", "taidtm-ft")}
every_method = pytest.mark.parametrize("method", [*METHODS, *FACTORED])


def make(method: str, **overrides):
    if method in FACTORED:
        return make(FACTORED[method], head_rank=2, **overrides)
    return METHODS[method](**(quick(method) | {"random_state": 1} | overrides))


@functools.cache
def fitted(method: str):
    """A model fitted to `crowd()`, shared by the tests that only read it."""
    X, annotations, _ = crowd()
    return make(method).fit(X, annotations)


@every_method
def test_learns_separable_classes_and_who_guesses(method):
    """Two of the eight annotators guess: the classes are learned all the same, and the two have the least skill."""
    X, annotations, y = crowd(300)
    guess = np.random.default_rng(1).integers(3, size=len(annotations))
    label = np.where(annotations.annotator < 2, guess, annotations.label)
    noisy = Annotations.from_triples(
        annotations.instance, annotations.annotator, label, n_instances=300, n_annotators=8, n_classes=3
    )
    model = make(method, epochs=12).fit(X, noisy)
    assert model.score(X, y) > 0.9
    assert model.skill_[:2].max() < model.skill_[2:].min()


@every_method
def test_probabilities_are_probabilities(method):
    X, _, _ = crowd()
    model = fitted(method)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (len(X), 3)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert model.predict_proba(X[:0]).shape == (0, 3)
    assert model.predict(X[:1]).shape == (1,)


@every_method
def test_same_seed_same_result_in_the_users_vocabulary_other_seed_other_result(method):
    X, annotations, _ = crowd()
    words = np.array(["ape", "bee", "cat"])
    named = Annotations.from_triples(
        annotations.instance,
        annotations.annotator,
        annotations.label,
        n_instances=len(X),
        n_annotators=8,
        classes=words,
    )
    first = fitted(method)
    second, other = (make(method, random_state=seed).fit(X, named) for seed in (1, 2))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    np.testing.assert_array_equal(words[first.predict(X)], second.predict(X))
    assert np.abs(first.predict_proba(X) - other.predict_proba(X)).max() > 0


@every_method
def test_parameters_follow_scikit_learn(method):
    model = make(method, lr=0.5)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied.set_params(epochs=7).epochs == 7
    with pytest.raises(NotFittedError, match="not fitted"):
        model.predict(np.zeros((2, 3)))


@every_method
def test_annotations_may_be_a_frame_a_matrix_or_single_labels(method):
    X, annotations, _ = crowd()
    dense = np.full((len(X), 8), -1)
    dense[annotations.instance, annotations.annotator] = annotations.label
    expected = fitted(method).predict_proba(X)
    np.testing.assert_allclose(make(method).fit(X, dense).predict_proba(X), expected, atol=SINGLE)
    single = make(method).fit(X, dense.max(1))
    assert single.annotators_.shape == (1,)


@every_method
def test_saved_and_loaded_model_predicts_the_same(method, tmp_path):
    X, _, _ = crowd()
    model = fitted(method)
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    if model.transition_ is not None:
        np.testing.assert_allclose(loaded.transition(X[:5]), model.transition(X[:5]), atol=SINGLE)
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(crowdwise.load(tmp_path / "again").predict_proba(X), model.predict_proba(X))


TOGETHER = {"silent annotator", "unseen class", "instances without labels", "repeated pairs", "no validation"}
CASES = ["one annotator", "two classes", "hundred classes", "images", "batch of one", "all kinds of gaps"]


@every_method
@pytest.mark.parametrize("case", CASES + [pytest.param(case, marks=pytest.mark.slow) for case in sorted(TOGETHER)])
def test_unusual_crowds_are_legal(method, case):
    cases = TOGETHER if case == "all kinds of gaps" else {case}
    X, annotations, _ = crowd(120, image=case == "images", n_classes=2 if case == "two classes" else 3)
    instance, annotator, label = annotations.instance, annotations.annotator, annotations.label
    sizes = {"n_instances": len(X), "n_annotators": 8, "n_classes": annotations.n_classes}
    short = {"epochs": 1, "transition_epochs": 1, "gcn_epochs": 1, "max_retries": 1}
    parameters = {name: value for name, value in short.items() if hasattr(make(method), name)}
    if case == "one annotator":
        annotator, sizes["n_annotators"] = np.zeros_like(annotator), 1
    elif case == "hundred classes":
        label, sizes["n_classes"] = label * 33, 100
        parameters |= {"bottleneck": 4} if hasattr(make(method), "bottleneck") else {}
    elif case == "images":
        parameters |= {"backbone": "cnn", "backbone_options": {"channels": 4, "hidden": 16}}
    elif case == "batch of one":
        parameters |= {"batch_size": 119, "validation_fraction": 0.0}
    if "silent annotator" in cases:
        sizes["n_annotators"] = 12
    if "unseen class" in cases:
        sizes["n_classes"] = 5
    if "instances without labels" in cases:
        keep = instance % 3 != 0
        instance, annotator, label = instance[keep], annotator[keep], label[keep]
    if "repeated pairs" in cases:
        instance, annotator, label = (np.concatenate([part, part[:50]]) for part in (instance, annotator, label))
    if "no validation" in cases:
        parameters |= {"validation_fraction": 0.0}
    model = make(method, **parameters).fit(X, Annotations.from_triples(instance, annotator, label, **sizes))
    probabilities = model.predict_proba(X)
    assert np.isfinite(probabilities).all()
    assert probabilities.shape == (120, sizes["n_classes"])
    if model.transition_ is not None:
        matrices = model.transition(X[:3])
        assert matrices.shape == (3, sizes["n_annotators"], sizes["n_classes"], sizes["n_classes"])
        np.testing.assert_allclose(matrices.sum(3), 1, atol=1e-5)
    assert model.skill_.shape == (sizes["n_annotators"],)
    labelled = np.bincount(annotator, minlength=sizes["n_annotators"]) > 5
    assert ((model.skill_[labelled] >= 0) & (model.skill_[labelled] <= 1)).all()
    if "silent annotator" in cases:
        assert np.isnan(model.skill_[8:]).all()


@every_method
def test_own_backbone(method, tmp_path):
    X, annotations, _ = crowd()
    backbone = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh())
    model = make(method, backbone=backbone).fit(X, annotations)
    model.save(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"trained with your own backbone \(Sequential\)"):
        crowdwise.load(tmp_path / "model")
    loaded = crowdwise.load(tmp_path / "model", backbone=backbone)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def own_backbone() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh())


@every_method
def test_the_seed_decides_the_weights_of_a_backbone_that_a_function_makes(method, tmp_path):
    X, annotations, _ = crowd()
    first = make(method, backbone=own_backbone).fit(X, annotations)
    torch.rand(3)  # the state of torch's own generator does not matter
    again = make(method, backbone=own_backbone).fit(X, annotations)
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    loaded = crowdwise.load(first.save(tmp_path / "model"), backbone=own_backbone)
    np.testing.assert_array_equal(loaded.predict_proba(X), first.predict_proba(X))


def test_a_function_that_makes_no_module_is_refused():
    X, annotations, _ = crowd()
    with pytest.raises(ConfigError, match="must make a module, but it made None"):
        make("ce", backbone=lambda: None).fit(X, annotations)


def test_score_against_annotations_is_skill_weighted_agreement():
    X, annotations, _ = crowd()
    model = fitted("ce")
    predicted = model.predict(X)
    skill = crowdwise.aggregation.HierarchicalDawidSkene(random_state=0).fit(annotations).skill_
    weight = np.clip((3 * skill - 1) / 2, 0, 1)[annotations.annotator]
    expected = weight[annotations.label == predicted[annotations.instance]].sum() / weight.sum()
    assert model.score(X, annotations) == pytest.approx(expected)


def test_grid_search_works():
    from sklearn.model_selection import GridSearchCV

    X, annotations, _ = crowd(n_annotators=4)
    dense = np.full((len(X), 4), -1)
    dense[annotations.instance, annotations.annotator] = annotations.label
    search = GridSearchCV(make("ce"), {"lr": [1e-6, 0.1]}, cv=3).fit(X, dense)
    assert search.best_params_ == {"lr": 0.1}


def test_order_of_annotations_is_irrelevant():
    X, annotations, _ = crowd()
    shuffled = np.random.default_rng(0).permutation(len(annotations))
    again = Annotations.from_triples(
        annotations.instance[shuffled], annotations.annotator[shuffled], annotations.label[shuffled],
        n_instances=len(X), n_annotators=8, n_classes=3,
    )  # fmt: skip
    result = make("taidtm").fit(X, again).predict_proba(X)
    np.testing.assert_array_equal(result, fitted("taidtm").predict_proba(X))


@pytest.mark.parametrize("file", ["model.json", "weights.safetensors"])
def test_tampered_models_are_refused(file, tmp_path):
    path = fitted("ce").save(tmp_path / "model")
    content = bytearray((path / file).read_bytes())
    at = content.find(b'"lr": 0.05') + 8 if file == "model.json" else len(content) - 3
    content[at] ^= 1
    (path / file).write_bytes(content)
    with pytest.raises(ModelFileError, match="checksum does not match"):
        crowdwise.load(path)


def test_unknown_versions_are_refused(tmp_path):
    path = fitted("ce").save(tmp_path / "model")
    text = (path / "model.json").read_text().replace('"version": 1', '"version": 99')
    (path / "model.json").write_text(text)
    with pytest.raises(ModelFileError, match="version must be 1, got 99"):
        crowdwise.load(path)


def test_a_directory_that_is_no_model_is_neither_read_nor_overwritten(tmp_path):
    (tmp_path / "precious.txt").write_text("keep me")
    with pytest.raises(ModelFileError, match="not a model directory"):
        fitted("ce").save(tmp_path)
    with pytest.raises(ModelFileError, match="not a model directory"):
        crowdwise.load(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_inputs_of_another_shape_are_refused():
    X, _, _ = crowd()
    with pytest.raises(DataError, match=r"trained on instances of shape \(6,\), X has \(5,\)"):
        fitted("ce").predict(X[:, :5])


def test_unknown_annotators_are_named():
    X, _, _ = crowd()
    with pytest.raises(DataError, match="unknown annotator 99"):
        fitted("taidtm").transition(X[:2], annotators=[0, 99])


def test_methods_without_matrices_say_so():
    X, _, _ = crowd()
    with pytest.raises(ConfigError, match="'ce' has no transition matrices"):
        fitted("ce").transition(X)


def test_too_few_distilled_examples_warn():
    X, annotations, _ = crowd(60)
    with pytest.warns(CrowdwiseWarning, match="fewer than 500 distilled examples"):
        make("bltm", min_distilled=500, max_retries=1).fit(X, annotations)
