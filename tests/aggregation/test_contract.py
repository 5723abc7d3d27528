"""What every aggregator of the registry promises, whatever its mathematics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crowds import accuracy, simulated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError, DataError
from crowdwise.registry import AGGREGATORS
from crowdwise.simulate.varied import KINDS, varied
from fixtures import t1, t2
from tolerances import DOUBLE

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*falls back to majority vote"),
    pytest.mark.filterwarnings("ignore:this crowd is too sparse"),
    pytest.mark.filterwarnings("ignore:.*depend on random starts"),
]
every = pytest.mark.parametrize("name", list(AGGREGATORS))
RANDOM = {
    "kos",
    "mmsr",
    "mace",
    "ebcc",
    "cbcc",
    "committee",
}  # start at random: equal in labels on a clear crowd, not to the last bit
VOTES = {"majority-vote", "gold-majority-vote", "wawa", "zero-based-skill", "crh"}
FASTER: dict[str, dict[str, Any]] = {
    "ebcc": {"n_restarts": 2, "n_subtypes": 2},
    "cbcc": {"n_restarts": 2},
    "mace": {"n_restarts": 2},
    "committee": {"n_restarts": 2},
}


def make(name: str, **options: Any) -> Any:
    return AGGREGATORS[name](**{"random_state": 0, **FASTER.get(name, {}), **options})


def check_fitted(model: Any, crowd: Annotations) -> None:
    n, r, c = crowd.n_instances, crowd.n_annotators, crowd.n_classes
    assert model.posterior_.shape == (n, c)
    assert np.all(np.isfinite(model.posterior_))
    assert np.all(model.posterior_ >= 0)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1.0, atol=1e-9)
    assert model.labels_.shape == (n,)
    assert set(model.labels_.tolist()) <= set(crowd.classes.tolist())
    assert model.confusion_.shape == (r, c, c)
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1.0, atol=1e-9)
    assert model.skill_.shape == (r,)
    assert np.all((model.skill_ >= 0) & (model.skill_ <= 1 + 1e-9))
    assert model.class_prior_.shape == (c,)
    assert model.class_prior_.sum() == pytest.approx(1.0)
    for interval, value in ((model.skill_interval(), None), (model.confusion_interval(), model.confusion_)):
        assert np.all((interval >= 0) & (interval <= 1))
        assert np.all(interval[..., 0] <= interval[..., 1])
        assert value is None or interval.shape == (*value.shape, 2)
    if hasattr(model, "n_iter_"):
        assert len(model.objective_) == model.n_iter_
        assert np.all(np.isfinite(model.objective_))


def renumbered(crowd: Annotations, *, annotators: Any = None, classes: Any = None, rows: Any = None) -> Annotations:
    """The same crowd with other numbers for annotators or classes, or its rows in another order."""
    i, j, y = crowd.instance, crowd.annotator, crowd.label
    j = j if annotators is None else np.asarray(annotators)[j]
    y = y if classes is None else np.asarray(classes)[y]
    rows = slice(None) if rows is None else rows
    sizes = {"n_instances": crowd.n_instances, "n_annotators": crowd.n_annotators, "n_classes": crowd.n_classes}
    return Annotations.from_triples(i[rows], j[rows], y[rows], **sizes)


def same_result(name: str, one: Any, other: Any) -> None:
    if name in RANDOM:
        np.testing.assert_array_equal(one.argmax(axis=1), other.argmax(axis=1))
    else:
        np.testing.assert_allclose(one, other, atol=1e-7)


@pytest.fixture(scope="module")
def clear() -> tuple[Annotations, Any]:
    """A crowd that agrees so well that no method should get it wrong; nothing is a tie."""
    crowd, truth = simulated(120, 9, 3, 5, (0.85, 0.97), seed=3)
    votes = np.sort(crowd.votes(), axis=1)
    decided = np.flatnonzero(votes[:, -1] > votes[:, -2])
    return crowd.select(decided), truth[decided]


@every
@pytest.mark.parametrize("crowd", [t1(), t2()], ids=["T1", "T2"])
def test_hand_made_crowds_give_finite_rows_that_sum_to_one(name: str, crowd: Annotations) -> None:
    check_fitted(make(name).fit(crowd), crowd)


@pytest.fixture(scope="module")
def varied_crowds() -> list[Annotations]:
    """Small crowds of every kind, in turn."""
    drawn = (varied([5, seed], KINDS[seed % 3]).annotations for seed in range(60))
    return [crowd for crowd in drawn if len(crowd) < 1_500][:9]


@every
@pytest.mark.filterwarnings("ignore:errors common to a group cannot be seen")
def test_posteriors_of_varied_crowds_are_distributions(name: str, varied_crowds: list[Annotations]) -> None:
    assert len(varied_crowds) == 9
    for crowd in varied_crowds:
        posterior = make(name).fit(crowd).posterior_
        assert np.all(np.isfinite(posterior))
        assert np.all(posterior >= 0)
        np.testing.assert_allclose(posterior.sum(axis=1), 1.0, atol=1e-9)


@every
def test_a_clear_crowd_is_read_right(name: str, clear: tuple[Annotations, Any]) -> None:
    crowd, truth = clear
    model = make(name).fit(crowd)
    check_fitted(model, crowd)
    assert accuracy(model.labels_, truth) > 97


@every
def test_renaming_annotators_changes_nothing(name: str, clear: tuple[Annotations, Any]) -> None:
    crowd, _ = clear
    order = np.random.default_rng(1).permutation(crowd.n_annotators)
    before, after = make(name).fit(crowd), make(name).fit(renumbered(crowd, annotators=order))
    same_result(name, before.posterior_, after.posterior_)
    if name not in RANDOM:
        np.testing.assert_allclose(before.skill_, after.skill_[order], atol=1e-7)


@every
def test_renaming_classes_renames_columns(name: str, clear: tuple[Annotations, Any]) -> None:
    crowd, _ = clear
    order = np.array([2, 0, 1])
    before, after = make(name).fit(crowd), make(name).fit(renumbered(crowd, classes=order))
    same_result(name, before.posterior_, after.posterior_[:, order])


@every
def test_order_of_annotations_is_irrelevant(name: str, clear: tuple[Annotations, Any]) -> None:
    crowd, _ = clear
    rows = np.random.default_rng(2).permutation(len(crowd))
    one, other = make(name).fit(crowd), make(name).fit(renumbered(crowd, rows=rows))
    np.testing.assert_array_equal(one.posterior_, other.posterior_)


@pytest.mark.parametrize("name", ["majority-vote", "wawa", "zero-based-skill", "crh"])
def test_everything_said_twice_changes_nothing(name: str, clear: tuple[Annotations, Any]) -> None:
    crowd, _ = clear
    twice = renumbered(crowd, rows=np.tile(np.arange(len(crowd)), 2))
    np.testing.assert_allclose(make(name).fit(crowd).posterior_, make(name).fit(twice).posterior_, atol=DOUBLE)


@every
def test_nothing_at_all_is_legal(name: str) -> None:
    crowd = Annotations.from_triples([], [], [])
    model = make(name).fit(crowd)
    assert model.posterior_.shape == (0, 0)
    assert model.labels_.shape == (0,)


@every
def test_without_annotations_posteriors_are_uniform(name: str) -> None:
    crowd = Annotations.from_triples([], [], [], n_instances=3, n_annotators=2, n_classes=4)
    model = make(name).fit(crowd)
    np.testing.assert_allclose(model.posterior_, np.full((3, 4), 0.25), atol=DOUBLE)
    check_fitted(model, crowd)


@every
def test_instances_without_classes_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="2 instances but no classes"):
        make(name).fit(Annotations.from_triples([], [], [], n_instances=2))


@every
def test_a_single_annotator_is_believed(name: str) -> None:
    crowd = Annotations.from_triples([0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 2, 1])
    model = make(name).fit(crowd)
    check_fitted(model, crowd)
    np.testing.assert_array_equal(model.labels_, [0, 1, 2, 1])


@every
def test_a_single_class_is_certain(name: str) -> None:
    crowd = Annotations.from_triples([0, 0, 1], [0, 1, 1], [0, 0, 0])
    model = make(name).fit(crowd)
    check_fitted(model, crowd)
    np.testing.assert_allclose(model.posterior_, np.ones((2, 1)), atol=DOUBLE)


@every
def test_instances_without_labels_say_nothing_about_the_others(name: str, clear: tuple[Annotations, Any]) -> None:
    crowd, _ = clear
    sizes = {
        "n_instances": crowd.n_instances + 50,
        "n_annotators": crowd.n_annotators + 2,
        "n_classes": crowd.n_classes,
    }
    wider = Annotations.from_triples(crowd.instance, crowd.annotator, crowd.label, **sizes)
    one, other = make(name).fit(crowd), make(name).fit(wider)
    check_fitted(other, wider)
    same_result(name, one.posterior_, other.posterior_[: crowd.n_instances])
    rest = other.posterior_[crowd.n_instances :]
    np.testing.assert_allclose(rest, np.broadcast_to(rest[0], rest.shape), atol=DOUBLE)
    if name in VOTES:
        np.testing.assert_allclose(rest, 1 / 3)


@every
def test_a_thousand_classes(name: str) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 1000, 30)
    labels = np.where(rng.random((30, 3)) < 0.8, truth[:, None], rng.integers(0, 1000, (30, 3)))
    crowd = Annotations.from_triples(
        np.repeat(np.arange(30), 3), np.tile(np.arange(3), 30), labels.ravel(), n_classes=1000
    )
    quick = {
        "ebcc": {"n_subtypes": 1, "n_restarts": 1},
        "cbcc": {"n_restarts": 1},
        "committee": {"members": ("hierarchical-dawid-skene", "wawa")},  # EBCC has tests of its own
    }
    rounds = {"max_iter": 10} if "max_iter" in make(name).get_params() else {}
    model = make(name, **rounds, **quick.get(name, {})).fit(crowd)
    assert np.all(np.isfinite(model.posterior_))
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1.0)


@every
def test_gold_labels_are_taken_for_true(name: str, clear: tuple[Annotations, Any]) -> None:
    crowd, truth = clear
    wrong = int(truth[0] + 1) % 3
    model = make(name).fit(crowd, gold={0: wrong, 7: int(truth[7])})
    np.testing.assert_allclose(model.posterior_[0], np.eye(3)[wrong], atol=DOUBLE)
    np.testing.assert_allclose(model.posterior_[7], np.eye(3)[truth[7]], atol=DOUBLE)
    check_fitted(model, crowd)


@every
def test_partial_fits_end_where_one_fit_does(name: str, clear: tuple[Annotations, Any]) -> None:
    crowd, _ = clear
    parts = np.array_split(np.random.default_rng(4).permutation(len(crowd)), 3)
    model = make(name)
    for rows in parts:
        model.partial_fit(renumbered(crowd, rows=rows))
    np.testing.assert_allclose(model.posterior_, make(name).fit(crowd).posterior_, atol=1e-6)


@every
def test_parameters_follow_scikit_learn(name: str, clear: tuple[Annotations, Any]) -> None:
    model = make(name, tie="random")
    params = model.get_params()
    copy = clone(model.fit(clear[0]))
    assert copy.get_params() == params
    assert not hasattr(copy, "posterior_")
    assert repr(model).startswith(type(model).__name__ + "(")
    assert model.set_params(tie="first") is model
    assert model.tie == "first"
    with pytest.raises(ConfigError, match=r"unknown parameter 'ties' of \w+; did you mean 'tie'"):
        model.set_params(ties="first")


@every
def test_an_unfitted_model_says_so(name: str) -> None:
    model = make(name)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.confusion_
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    check_is_fitted(model.fit(t1()))


@every
def test_the_same_seed_gives_the_same_result_and_no_global_seed_is_touched(name: str) -> None:
    crowd, _ = simulated(40, 6, 3, 3, (0.4, 0.8), seed=5)
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # type: ignore[index] # noqa: NPY002
    one, other = make(name, tie="random").fit(crowd), make(name, tie="random").fit(crowd)
    np.testing.assert_array_equal(one.posterior_, other.posterior_)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002


@every
def test_labels_come_in_the_users_vocabulary(name: str) -> None:
    table = {
        "task": ["t1", "t1", "t1", "t2", "t2", "t2", "t3", "t3", "t3"],
        "worker": ["a", "b", "c"] * 3,
        "label": ["cat", "cat", "cat", "dog", "dog", "dog", "cat", "cat", "cat"],
    }
    model = make(name)
    assert model.fit_predict(table).tolist() == ["cat", "dog", "cat"]
    assert model.classes_.tolist() == ["cat", "dog"]
    assert model.annotators_.tolist() == ["a", "b", "c"]
    assert model.instances_.tolist() == ["t1", "t2", "t3"]
    np.testing.assert_array_equal(model.fit_predict_proba(table), model.posterior_)


@every
def test_zero_tolerance_means_exactly_max_iter_rounds(name: str, clear: tuple[Annotations, Any]) -> None:
    if "max_iter" not in make(name).get_params():
        pytest.skip(f"{name} does not iterate")
    model = make(name, max_iter=7, tol=0.0).fit(clear[0])
    assert model.n_iter_ == 7
    for wrong in ({"max_iter": 0}, {"tol": -1.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            make(name, **wrong).fit(clear[0])


@every
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_crowds_give_distributions(name: str, data: st.DataObject) -> None:
    n, r, c = (data.draw(st.integers(1, high)) for high in (8, 5, 4))
    triple = st.tuples(st.integers(0, n - 1), st.integers(0, r - 1), st.integers(0, c - 1))
    triples = data.draw(st.lists(triple, max_size=25))
    i, j, y = zip(*triples, strict=True) if triples else ((), (), ())
    crowd = Annotations.from_triples(i, j, y, n_instances=n, n_annotators=r, n_classes=c)
    check_fitted(make(name).fit(crowd), crowd)
