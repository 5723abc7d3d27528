"""Dawid-Skene, fast and one-coin, and ZenCrowd: hand-computed steps, priors, gold, history, streams."""

from __future__ import annotations

import numpy as np
import pytest
from crowds import accuracy, compile_always, compile_never, simulated, sparse

from crowdwise.aggregation import (
    AnnotatorHistory,
    DawidSkene,
    FastDawidSkene,
    HierarchicalDawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
    ZenCrowd,
)
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError
from fixtures import t1, t2


@pytest.fixture(params=["compiled", "scipy"], autouse=True)
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    (compile_always if request.param == "compiled" else compile_never)(monkeypatch)


def test_first_steps_on_t1() -> None:
    one = DawidSkene(prior=None, max_iter=1, tol=0).fit(t1())
    np.testing.assert_allclose(one.raw_posterior_[:, 1], [0.133333, 0.962963, 0.037037, 0.866667, 0.5], atol=1e-6)
    three = DawidSkene(prior=None, max_iter=3, tol=0).fit(t1())
    np.testing.assert_allclose(three.objective_, [-8.855038, -8.373969, -8.136832], atol=1e-6)


def test_limit_on_t1() -> None:
    model = DawidSkene(prior=None, max_iter=300, tol=0).fit(t1())
    np.testing.assert_allclose(model.raw_posterior_[:, 1], [0, 1, 0, 1, 0.5], atol=1e-6)
    np.testing.assert_allclose(model.confusion_[0], [[1, 0], [0.2, 0.8]], atol=1e-6)
    assert model.objective_[-1] == pytest.approx(-5 * np.log(5), abs=1e-6)


def test_a_number_as_prior_is_added_to_every_count() -> None:
    model = DawidSkene(prior=0.01, max_iter=1000, tol=0).fit(t2())
    np.testing.assert_allclose(model.raw_posterior_[4], [0.000197, 0.999706, 0.000097, 0], atol=2e-6)
    np.testing.assert_allclose(model.raw_posterior_[5], [0.399708, 0.399953, 0.200339, 0], atol=2e-6)
    np.testing.assert_allclose(model.confusion_[4], 0.25)
    model.fit(t1())
    np.testing.assert_allclose(model.raw_posterior_[:, 1], [0.001277, 0.998723, 0.001277, 0.998723, 0.5], atol=1e-6)


@pytest.mark.parametrize("prior", [None, "auto", 0.5, np.array([[5.0, 1, 1], [1, 5, 1], [0, 2, 5]])])
@pytest.mark.parametrize("model", [DawidSkene, FastDawidSkene])
def test_the_objective_never_falls(model: type[DawidSkene], prior: object) -> None:
    crowd, _ = simulated(80, 8, 3, 4, (0.4, 0.9), seed=1)
    fitted = model(prior=prior, max_iter=60, tol=0).fit(crowd)  # type: ignore[arg-type]
    assert np.all(np.diff(fitted.objective_) >= -1e-8)


@pytest.mark.parametrize("prior", [None, "auto", (2.0, 1.0)])
def test_the_objective_of_one_coin_never_falls(prior: object) -> None:
    crowd, truth = simulated(80, 8, 3, 4, (0.4, 0.9), seed=1)
    gold = {i: int(truth[i]) for i in range(5)}
    fitted = OneCoinDawidSkene(prior=prior, max_iter=60, tol=0).fit(crowd, gold=gold)  # type: ignore[arg-type]
    assert np.all(np.diff(fitted.objective_) >= -1e-8)


@pytest.mark.filterwarnings("ignore:this crowd is too sparse")
@pytest.mark.parametrize("labels_per_annotator", [1, 2, 5, 20])
def test_sparse_crowds_do_not_collapse(labels_per_annotator: int) -> None:
    gains = {DawidSkene: [], OneCoinDawidSkene: []}  # type: ignore[var-annotated]
    for seed in range(10):
        crowd, truth = sparse(labels_per_annotator, seed)
        vote = accuracy(MajorityVote().fit_predict(crowd), truth)
        for model, gain in gains.items():
            gain.append(accuracy(model().fit_predict(crowd), truth) - vote)
    for model, gain in gains.items():
        assert np.mean(gain) > -1, model.__name__


def test_maximum_likelihood_does_collapse_there() -> None:
    crowd, truth = sparse(1, 0)
    with pytest.warns(CrowdwiseWarning, match="too sparse for DawidSkene: annotators gave a median of 1 labels"):
        collapsed = DawidSkene(prior=None, max_iter=50, tol=0).fit(crowd)
    assert accuracy(collapsed.labels_, truth) < accuracy(MajorityVote().fit_predict(crowd), truth) - 20


def test_confusion_matrices_are_recovered() -> None:
    matrices = np.random.default_rng(0).dirichlet(np.ones(3), (12, 3)) * 0.4 + 0.6 * np.eye(3)
    crowd, _ = simulated(3_000, 12, 3, 6, matrices=matrices, class_prior=[0.5, 0.3, 0.2], seed=2)
    model = DawidSkene().fit(crowd)
    assert np.abs(model.confusion_ - matrices).max() < 0.08
    np.testing.assert_allclose(model.class_prior_, [0.5, 0.3, 0.2], atol=0.03)
    np.testing.assert_allclose(model.skill_, np.einsum("jcc,c->j", matrices, [0.5, 0.3, 0.2]), atol=0.04)


def test_gold_helps_where_the_majority_is_wrong() -> None:
    matrices = np.array([[[0.9, 0.1], [0.1, 0.9]]] + [[[0.2, 0.8], [0.8, 0.2]]] * 4)
    crowd, truth = simulated(400, 5, 2, 5, matrices=matrices, seed=3)
    assert accuracy(DawidSkene().fit_predict(crowd), truth) < 50
    gold = np.full(400, -1)
    gold[:80] = truth[:80]
    model = DawidSkene().fit(crowd, gold=gold)
    assert accuracy(model.labels_[80:], truth[80:]) > 85
    np.testing.assert_array_equal(model.labels_[:80], truth[:80])


def test_history_of_known_annotators_is_their_prior() -> None:
    crowd, _ = simulated(60, 4, 2, 4, (0.55, 0.9), seed=4)
    counts = np.array([[[90.0, 10], [10, 90]]] + [[[50.0, 50], [50, 50]]] * 3)
    informed = DawidSkene().fit(crowd, history=AnnotatorHistory([0, 1, 2, 3], [0, 1], counts))
    said = np.full(60, -1)
    said[crowd.instance[crowd.annotator == 0]] = crowd.label[crowd.annotator == 0]
    asked = said >= 0
    assert (informed.labels_ == said)[asked].mean() > 0.9  # the only one who is known to be good
    assert informed.skill_[0] > 0.8 > informed.skill_[1:].max()


def test_an_earlier_fit_is_a_history_by_id() -> None:
    early, _ = simulated(300, 5, 2, 5, (0.6, 0.95), seed=5)
    past = DawidSkene().fit(early)
    late = Annotations.from_triples([0, 0], [1, 0], [0, 1], annotators=[4, 2], classes=[0, 1])
    now = DawidSkene().fit(late, history=past)
    np.testing.assert_allclose(now.skill_, past.skill_[[4, 2]], atol=0.03)
    chained = AnnotatorHistory.of(now)
    assert chained.counts.sum() == pytest.approx(past._crowd.label_counts[[4, 2]].sum() + 2)


def test_histories_that_fit_nothing_are_refused() -> None:
    with pytest.raises(DataError, match="shape"):
        AnnotatorHistory([0], [0, 1], np.zeros((1, 3, 3)))
    with pytest.raises(DataError, match="not negative"):
        AnnotatorHistory([0], [0, 1], np.full((1, 2, 2), -1.0))
    with pytest.raises(DataError, match="none of this crowd's"):
        DawidSkene().fit(t1(), history=AnnotatorHistory([0], ["a", "b"], np.ones((1, 2, 2))))
    with pytest.raises(DataError, match="cannot read a history from a int"):
        DawidSkene().fit(t1(), history=3)


@pytest.mark.parametrize("warm", [False, True])
def test_a_stream_ends_where_one_fit_does(warm: bool) -> None:
    crowd, truth = simulated(200, 10, 3, 5, (0.7, 0.95), seed=6)
    options = {"max_iter": 5_000, "tol": 1e-13, "warm_start": warm}
    stream = DawidSkene(**options)  # type: ignore[arg-type]
    for start in range(0, 200, 50):
        rows = (crowd.instance >= start) & (crowd.instance < start + 50)
        part = Annotations.from_triples(
            crowd.instance[rows], crowd.annotator[rows], crowd.label[rows], n_annotators=10, n_classes=3
        )
        stream.partial_fit(part, gold={start: int(truth[start])})
    gold = {start: int(truth[start]) for start in range(0, 200, 50)}
    once = DawidSkene(**options).fit(crowd, gold=gold)  # type: ignore[arg-type]
    np.testing.assert_allclose(stream.raw_posterior_, once.raw_posterior_, atol=1e-6)
    np.testing.assert_allclose(stream.confusion_, once.confusion_, atol=1e-6)


def test_a_stream_may_bring_new_annotators_classes_and_instances() -> None:
    model = DawidSkene().partial_fit((["a", "a"], ["x", "y"], ["cat", "cat"]))
    model.partial_fit((["b", "b", "a"], ["x", "z", "z"], ["dog", "dog", "cat"]))
    assert model.instances_.tolist() == ["a", "b"]
    assert model.annotators_.tolist() == ["x", "y", "z"]
    assert model.labels_.tolist() == ["cat", "dog"]


@pytest.mark.parametrize("method", [DawidSkene, HierarchicalDawidSkene])
def test_a_warm_start_knows_new_classes_and_instances(method: type[DawidSkene] | type[HierarchicalDawidSkene]) -> None:
    """Earlier rows stand as they were, with nothing for new classes; new rows start at their votes."""
    model = method(warm_start=True, max_iter=2).fit((["a", "a", "b"], ["x", "y", "x"], ["ant", "bee", "bee"]))
    earlier = model.raw_posterior_.copy()
    model.partial_fit((["c", "c", "c", "a"], ["x", "y", "z", "z"], ["cow", "cow", "bee", "cow"]))
    crowd = model._fitted_crowd()
    start = crowd.initial()
    np.testing.assert_allclose(start[:2, :2], earlier)
    np.testing.assert_allclose(start[:2, 2], 0.0)
    np.testing.assert_allclose(start[2], [0, 1 / 3, 2 / 3])
    first = model._start(crowd, np.random.default_rng(0))
    np.testing.assert_allclose(first.posterior, start)


def test_a_warm_hierarchy_ends_where_a_cold_one_does() -> None:
    crowd, _ = simulated(200, 10, 3, 5, (0.7, 0.95), seed=6)
    options = {"max_iter": 2_000, "tol": 1e-12}
    warm = HierarchicalDawidSkene(**options, warm_start=True)  # type: ignore[arg-type]
    for rows in (crowd.instance < 120, crowd.instance >= 120):
        warm.partial_fit(crowd.where(rows))
    cold = HierarchicalDawidSkene(**options).fit(crowd)  # type: ignore[arg-type]
    np.testing.assert_allclose(warm.raw_posterior_, cold.raw_posterior_, atol=1e-6)


def test_wrong_parameters_are_named() -> None:
    for prior in ("strong", -1.0, [1.0, 2.0]):
        with pytest.raises(ConfigError, match="prior must be"):
            DawidSkene(prior=prior).fit(t1())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"shape \(3, 3\), but this crowd has 2 classes"):
        DawidSkene(prior=np.ones((3, 3))).fit(t1())
    with pytest.raises(ConfigError, match="prior must be"):
        OneCoinDawidSkene(prior=(1.0, -1.0)).fit(t1())
    with pytest.raises(ConfigError, match="initial_skill"):
        ZenCrowd(initial_skill=1.0).fit(t1())


def test_fast_dawid_skene_keeps_the_fixed_point_of_t1() -> None:
    for rounds in (1, 2, 10):
        labels = FastDawidSkene(prior=None, max_iter=rounds, tol=0).fit_predict(t1())
        np.testing.assert_array_equal(labels, [0, 1, 0, 1, 0])


def test_fast_dawid_skene_is_as_good_in_fewer_rounds() -> None:
    crowd, truth = simulated(1_000, 20, 4, 5, (0.5, 0.95), seed=7)
    slow, fast, hybrid = DawidSkene(), FastDawidSkene(), FastDawidSkene(hybrid=True)
    scores = [accuracy(model.fit_predict(crowd), truth) for model in (slow, fast, hybrid)]
    assert fast.n_iter_ < slow.n_iter_
    assert min(scores[1:]) > scores[0] - 2


def test_one_coin_first_step_on_t1() -> None:
    model = OneCoinDawidSkene(prior=None, max_iter=1, tol=0).fit(t1())
    np.testing.assert_allclose(model.raw_posterior_[:, 1], [0.156300, 0.955736, 0.044264, 0.843700, 0.5], atol=1e-6)


def test_one_coin_equals_the_full_model_with_even_errors() -> None:
    crowd, _ = simulated(50, 6, 3, 4, seed=8)
    coin = OneCoinDawidSkene(prior=None, max_iter=3, tol=0).fit(crowd)
    before = OneCoinDawidSkene(prior=None, max_iter=2, tol=0).fit(crowd)
    step = coin._crowd.em_step(before.confusion_.transpose(0, 2, 1), before.class_prior_)
    np.testing.assert_allclose(coin.raw_posterior_, step.posterior, atol=1e-9)
    assert coin.objective_[-1] == pytest.approx(step.log_likelihood)


def test_zencrowd_on_t1() -> None:
    one, twenty = ZenCrowd(max_iter=1).fit(t1()), ZenCrowd().fit(t1())
    np.testing.assert_allclose(one.raw_posterior_[:, 1], [0.2, 0.984615, 0.015385, 0.8, 0.5], atol=1e-6)
    np.testing.assert_allclose(one.skill_, [0.813846, 0.813846, 0.592308], atol=1e-6)
    np.testing.assert_allclose(twenty.raw_posterior_[:, 1], [0.015877, 0.984123, 0.015877, 0.984123, 0.5], atol=1e-6)
    np.testing.assert_allclose(twenty.skill_, [0.887298, 0.887298, 0.5], atol=1e-6)
    assert ZenCrowd().fit(t2()).skill_[4] == pytest.approx(0.8)
