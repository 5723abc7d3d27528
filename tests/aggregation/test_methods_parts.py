"""Rounds of single methods against loops in Python: one step from the formulas of their papers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from crowds import rows_of, simulated
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, gammaln, psi

from crowdwise.aggregation import (
    CBCC,
    CRH,
    EBCC,
    GLAD,
    IBCC,
    KOS,
    AnnotatorHistory,
    DawidSkene,
    FastDawidSkene,
    HierarchicalDawidSkene,
    OneCoinDawidSkene,
    Panel,
    Wawa,
    ZeroBasedSkill,
)
from crowdwise.aggregation.core import kernels, patterns
from crowdwise.aggregation.core.correlation import crowd_matrix, typical
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.dependence import effective_votes, error_correlations
from crowdwise.aggregation.hierarchical import evidence, scaled_diagonal
from crowdwise.aggregation.panel import EXPONENTS, _matrices, _only
from crowdwise.aggregation.recommend import suitable_method
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError
from fixtures import t2
from tolerances import DOUBLE

Floats = npt.NDArray[np.float64]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RNG = np.random.default_rng(0)


def uneven(weighted: bool = False, n: int = 30) -> Annotations:
    """Annotators who label between a tenth and all of the items, three classes, some labels of some weight."""
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 3, n)
    i, j = np.nonzero(rng.random((n, 6)) < np.array([1.0, 0.9, 0.6, 0.4, 0.2, 0.1]))
    right = rng.random(len(i)) < np.array([0.9, 0.7, 0.8, 0.5, 0.9, 0.3])[j]
    y = np.where(right, truth[i], rng.integers(0, 3, len(i)))
    weight = rng.choice([0.5, 1.0, 1.0, 1.0, 2.0], len(i)) if weighted else None
    return Annotations.from_triples(i, j, y, n_instances=n + 1, n_annotators=7, n_classes=3, weight=weight)


HISTORY = np.zeros((7, 3, 3))
HISTORY[2] = [[5.0, 1.0, 0.0], [0.0, 3.0, 2.0], [1.0, 0.0, 7.0]]
HISTORY[6] = [[2.0, 0.0, 1.0], [1.0, 2.0, 0.0], [0.0, 0.0, 4.0]]  # who labels nothing here
PAST = AnnotatorHistory(range(7), range(3), HISTORY.transpose(0, 2, 1))


def counts_of(crowd: MemoryCrowd, posterior: Floats) -> Floats:
    """[annotator, label, class]."""
    counts = np.zeros((crowd.n_annotators, crowd.n_classes, posterior.shape[1]))
    for i, row in enumerate(rows_of(crowd.layout)):
        for j, y, w in row:
            counts[j, y] += w * posterior[i]
    return counts


# -- Dawid-Skene and its relatives -------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", ["auto", 0.5, None])
@pytest.mark.parametrize("history", [None, PAST])
def test_a_round_of_dawid_skene(prior: Any, history: Any) -> None:
    annotations = uneven(weighted=True)
    once, twice = (DawidSkene(prior=prior, max_iter=k, tol=0).fit(annotations, history=history) for k in (1, 2))
    crowd = once._crowd
    q = once.raw_posterior_
    counts, mass = counts_of(crowd, q), q[:30].sum(axis=0)
    if prior == "auto":
        start = crowd.majority()
        counts += 4 * crowd_matrix(counts_of(crowd, start))
        mass = mass + 1
    elif prior is not None:
        counts += prior
    if history is not None:
        counts += HISTORY
    told = (counts_of(crowd, np.ones((31, 1)))[:, :, 0] > 0) | (HISTORY.any(axis=2) & (history is not None))
    told[~told.any(axis=1)] = True
    counts = np.maximum(counts, 1e-10 if prior is not None else np.where(told, 1e-10, 0)[:, :, None])
    emission = counts / counts.sum(axis=1, keepdims=True)
    assert_allclose(once.confusion_, emission.transpose(0, 2, 1), atol=DOUBLE)
    assert_allclose(once.class_prior_, mass / mass.sum())
    step = kernels.em_step(crowd.layout, emission, mass / mass.sum())
    assert_allclose(twice.raw_posterior_, step.posterior, atol=DOUBLE)


def test_fast_dawid_skene_counts_the_most_probable_class() -> None:
    annotations = uneven()
    model = FastDawidSkene(prior=1.0, max_iter=1, tol=0).fit(annotations)
    hard = np.zeros((31, 3))
    for i, row in enumerate(model.raw_posterior_):
        best = row >= row.max() - 1e-9
        hard[i] = best / best.sum()
    counts = counts_of(model._crowd, hard) + 1.0
    assert_allclose(model.confusion_, (counts / counts.sum(axis=1, keepdims=True)).transpose(0, 2, 1))
    assert_allclose(model.class_prior_, hard[:30].sum(axis=0) / 30)
    soft = FastDawidSkene(hybrid=True, max_iter=1, tol=0).fit(annotations)
    assert_allclose(soft.raw_posterior_, DawidSkene(max_iter=1, tol=0).fit(annotations).raw_posterior_)


@pytest.mark.parametrize("prior", ["auto", (3.0, 1.0), None])
@pytest.mark.parametrize("history", [None, PAST])
def test_a_round_of_one_coin(prior: Any, history: Any) -> None:
    annotations = uneven(weighted=True)
    model = OneCoinDawidSkene(prior=prior, max_iter=1, tol=0).fit(annotations, history=history)
    crowd, q = model._crowd, model.raw_posterior_
    right, total = np.zeros(7), np.zeros(7)
    vote = counts_of(crowd, crowd.majority())
    if history is not None:
        right += np.einsum("jcc->j", HISTORY)
        total += HISTORY.sum(axis=(1, 2))
    if prior == "auto":
        accuracy = np.einsum("jcc->", vote) / vote.sum()
        right, total = right + 4 * accuracy, total + 4
    elif prior is not None:
        right, total = right + 3, total + 4
    given = counts_of(crowd, q)
    right, total = right + np.einsum("jcc->j", given), total + given.sum(axis=(1, 2))
    skill = np.divide(right, total, out=np.full(7, 1 / 3), where=total > 0)
    assert_allclose(model.skill_, np.clip(skill, 1e-10, 1 - 1e-10))
    assert model.confusion_[0, 1].tolist() == pytest.approx([(1 - skill[0]) / 2, skill[0], (1 - skill[0]) / 2])


@pytest.mark.parametrize("history", [None, PAST])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_m_step_of_the_hierarchy(history: Any, weighted: bool) -> None:
    """Rows with Dirichlet priors around the crowd's matrix, scaled by what the annotator does in other rows."""
    annotations = uneven(weighted)
    model = HierarchicalDawidSkene(max_iter=2, tol=0, strength=3.0, shrinkage=50.0).fit(annotations, history=history)
    crowd = model._crowd
    rng = np.random.default_rng(0)
    state = model._start(crowd, rng)
    for _ in range(2):
        state = model._round(crowd, state, rng)
    after = model._maximise(crowd, state, whole=True)
    counts, trust, shape = state.counts, state.trust, state.shape
    pooled = counts.sum(axis=0)
    accuracy = np.clip((np.trace(pooled) + 1) / (pooled.sum() + 2), 1 / 3 + 0.01, 0.99)
    even = np.full((3, 3), (1 - accuracy) / 2)
    np.fill_diagonal(even, accuracy)
    mean = shape * pooled + 50.0 * even
    mean /= mean.sum(axis=0)
    counts = trust * counts + (0 if history is None else HISTORY)
    given = counts.sum(axis=1)  # [annotator, class]
    right = np.einsum("jcc->jc", counts)

    def strength(now: float, counts: Floats, mean: Floats, total: Floats) -> float:
        a = now * mean
        above = now * np.sum(mean * (digamma(counts + a) - digamma(a))) + 3.0
        return float(np.clip(above / (np.sum(digamma(total + now) - digamma(now)) + 1), 0.01, 1e4))

    outcomes = np.stack([right.sum(axis=1), (given - right).sum(axis=1)], axis=1)
    tau = strength(state.skill_strength, outcomes, np.array([accuracy, 1 - accuracy]), given.sum(axis=1))
    assert after.skill_strength == pytest.approx(tau)
    means = np.zeros((7, 3, 3))
    for j in range(7):
        for p in range(3):
            others = [c for c in range(3) if c != p]
            elsewhere = (right[j, others].sum() + tau * accuracy) / (given[j, others].sum() + tau)
            odds = elsewhere / (1 - elsewhere) * (1 - accuracy) / accuracy * mean[p, p] / (1 - mean[p, p])
            own = odds / (1 + odds)
            means[j, :, p] = mean[:, p] * (1 - own) / (1 - mean[p, p])
            means[j, p, p] = own
    kappa = strength(state.row_strength, counts, means, given)
    assert after.row_strength == pytest.approx(kappa)
    emission = (counts + kappa * means) / (given + kappa)[:, None]
    assert_allclose(after.emission, emission, rtol=1e-7)
    prior = state.mass + 1 + state.votes
    assert_allclose(after.class_prior, prior / prior.sum())
    few = model._maximise(crowd, state)
    told = few.emission.any(axis=2)
    assert_allclose(few.emission[told], emission[told], rtol=1e-7)
    assert_array_equal(told, (crowd.label_counts > 0) | (HISTORY.any(axis=2) if history is not None else False))


def test_what_a_crowd_tells_before_any_model() -> None:
    annotations = uneven()
    crowd = MemoryCrowd.of(annotations)
    number = crowd.labels_per_instance.astype(float)
    same = crowd.agreement_beyond_chance()
    others = (number**2).sum() / number.sum() - 1
    reliability = others * same / (1 + max(others - 1, 0) * same)
    found = evidence(crowd)
    assert found.trust == pytest.approx(np.clip(reliability / 0.5, 0.04, 1))
    assert found.shape == pytest.approx(np.maximum(number - 2, 0).sum() / number.sum())
    shown = crowd.patterns
    likely = shown.prior[shown.place(typical())]
    even = max(1 - shown.correlation(typical()) / typical(), 0)
    votes = crowd.majority()[:30].sum(axis=0)
    assert_allclose(found.votes, (1 - found.shape) * ((1 - even) * votes + even * 30 * likely))
    pairs = MemoryCrowd.of(Annotations.coerce([[0, 1], [1, 1], [0, 0], [0, 0]]))
    assert evidence(pairs).shape == 0.0
    assert evidence(MemoryCrowd.of(Annotations.coerce([[0, 1], [1, 0]]))).trust == 0.04


def test_odds_of_the_diagonal_are_scaled() -> None:
    mean = np.array([[0.6, 0.3], [0.4, 0.7]])  # [label, class]
    ratio = np.array([[1.0, 1.0], [2.0, 0.5]])
    found = scaled_diagonal(mean, ratio, np.array([1, 1, 0]), np.array([0, 1, 1]))
    first, second = (2 * 1.5) / (1 + 2 * 1.5), (0.5 * 7 / 3) / (1 + 0.5 * 7 / 3)
    assert_allclose(found, [[first, 1 - second], [1 - first, second], [0.4, 0.7]])


def test_intervals_of_the_hierarchy_know_its_prior() -> None:
    model = HierarchicalDawidSkene().fit(simulated(80, 6, 3, 4, seed=1)[0])
    right, wrong = model._believed_skill(model._crowd)
    assert right + wrong == pytest.approx(model.skill_strength_)
    assert right / (right + wrong) == pytest.approx(np.trace(model._mean) / 3)
    assert_allclose(model._believed(model._crowd).sum(axis=0), model.row_strength_)
    assert_allclose(model.class_prior_.sum(), 1)
    assert_allclose(model.class_prior_, model.raw_posterior_.mean(axis=0), atol=DOUBLE)
    assert_allclose(model.skill_, np.einsum("jcc,c->j", model.confusion_, model.class_prior_))
    one = HierarchicalDawidSkene().fit([[0, 0], [0, 0]])  # nothing to infer
    assert one._believed(one._crowd).tolist() == [[0.5]]
    assert one._believed_skill(one._crowd) == (0.5, 0.5)


# -- Bayesian methods --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [None, PAST])
def test_a_round_of_ibcc(history: Any) -> None:
    annotations = uneven(weighted=True)
    once, twice = (IBCC(max_iter=k, tol=0, class_count=2.0).fit(annotations, history=history) for k in (1, 2))
    crowd = once._crowd
    counts = counts_of(crowd, once.raw_posterior_) + 1.0 + 3.0 * np.eye(3)
    counts += 0.0 if history is None else HISTORY
    nu = 2.0 + once.raw_posterior_[:30].sum(axis=0)
    assert_allclose(once.confusion_, (counts / counts.sum(axis=1, keepdims=True)).transpose(0, 2, 1))
    assert_allclose(once.class_prior_, nu / nu.sum())
    log_emission = psi(counts) - psi(counts.sum(axis=1, keepdims=True))
    step = kernels.em_step(crowd.layout, np.exp(log_emission), np.exp(psi(nu) - psi(nu.sum())))
    assert_allclose(twice.raw_posterior_, step.posterior, atol=DOUBLE)
    assert_allclose(once.skill_, np.einsum("jcc,c->j", once.confusion_, once.class_prior_))


def test_what_cannot_be_streamed_says_so() -> None:
    for model, what in ((IBCC(method="gibbs"), "gibbs"), (IBCC(tie="random"), "a draw cannot be repeated")):
        with pytest.raises(ConfigError, match=what):
            model.check_streams()
    IBCC().check_streams()


def test_empirical_classes_are_counted_by_votes() -> None:
    crowd = MemoryCrowd.of(t2())
    votes = crowd.majority()[:5].sum(axis=0)
    assert_allclose(IBCC(class_count="empirical")._alpha(crowd), np.maximum(votes, 1e-3))
    assert IBCC(class_count="empirical")._alpha(crowd)[3] == 1e-3
    assert IBCC(class_count=0.5)._alpha(crowd).tolist() == [0.5] * 4


@pytest.mark.parametrize("history", [None, PAST])
def test_confusion_rows_of_ebcc_are_means_over_subtypes(history: Any) -> None:
    model = EBCC(n_subtypes=3, n_restarts=1, concentration=4.0, max_iter=3, tol=0).fit(uneven(), history=history)
    crowd = model._crowd
    rng = np.random.default_rng(0)
    state = model._start(crowd, rng)
    for _ in range(3):
        state = model._round(crowd, state, rng)
    model._finish(crowd, state)
    m = state.posterior.shape[1] // 3
    assert m > 1
    counts = counts_of(crowd, state.posterior).reshape(7, 3, 3, m)  # [annotator, label, class, subtype]
    prior = 1.0 + 3.0 * np.eye(3) + (0.0 if history is None else HISTORY)
    prior = np.broadcast_to(prior, (7, 3, 3))
    mass = state.posterior[:30].sum(axis=0).reshape(3, m)
    share = mass + 4.0 / 3
    tau = share / share.sum(axis=1, keepdims=True)
    if len(state.eta[0]) == m:
        assert_allclose(state.eta, share, atol=DOUBLE)
    table = np.zeros((7, 3, 3))
    for s in range(m):
        rows = prior + counts[..., s]
        table += tau[None, None, :, s] * rows / rows.sum(axis=1, keepdims=True)
    table /= table.sum(axis=1, keepdims=True)
    assert_allclose(model.confusion_, table.transpose(0, 2, 1), atol=1e-6)
    alpha = np.maximum(crowd.majority()[:30].sum(axis=0), 1e-3) + mass.sum(axis=1)
    assert_allclose(model.class_prior_, alpha / alpha.sum())


def test_communities_mix_their_matrices() -> None:
    model = CBCC(n_restarts=1, max_iter=5, tol=0, random_state=0).fit(uneven())
    assert_allclose(model.membership_.sum(axis=1), 1)
    mixed = np.einsum("jm,mpy->jpy", model.membership_, model.community_confusion_)
    assert_allclose(model.confusion_, mixed / mixed.sum(axis=2, keepdims=True))
    given = np.einsum("jm,jyp->myp", model.membership_, counts_of(model._crowd, model.raw_posterior_))
    matrices = given + 1.0 + 3.0 * np.eye(3)
    expected = (matrices / matrices.sum(axis=1, keepdims=True)).transpose(0, 2, 1)
    assert_allclose(model.community_confusion_[:, :, :], expected, atol=0.05)
    share = model.membership_[:6].sum(axis=0) + 1.0
    assert_allclose(model.membership_[6], share / share.sum())  # who is silent


def test_the_bound_of_one_community_is_its_formula() -> None:
    """H(q) + ln B(nu) / B(alpha) + sum over classes of ln B(beta + counts) / B(beta), with one matrix for all."""
    model = CBCC(n_communities=1, max_iter=1, tol=0, class_count=1.0).fit(uneven())
    q = model.raw_posterior_
    given = counts_of(model._crowd, q).sum(axis=0)

    def log_b(x: Floats) -> float:
        return float((gammaln(x).sum(axis=0) - gammaln(x.sum(axis=0))).sum())

    beta = 1.0 + 3.0 * np.eye(3)
    entropy = -np.sum(q[:30] * np.log(np.maximum(q[:30], 1e-300)))
    bound = entropy + log_b(1.0 + q[:30].sum(axis=0)) - log_b(np.ones(3)) + log_b(beta + given) - log_b(beta)
    assert model.objective_[0] == pytest.approx(bound)


# -- votes -------------------------------------------------------------------------------------------------------------


def test_weighted_votes_by_hand() -> None:
    annotations = uneven(weighted=True)
    model = Wawa().fit(annotations, history=PAST)
    crowd, vote = model._crowd, MemoryCrowd.of(annotations).majority()
    right, total = np.einsum("jcc->j", HISTORY), HISTORY.sum(axis=(1, 2))
    for i, row in enumerate(rows_of(crowd.layout)):
        best = vote[i] >= vote[i].max() - 1e-9
        for j, y, w in row:
            right[j] += w * best[y] / best.sum()
            total[j] += w
    assert_allclose(model.skill_, right / total)
    votes = np.zeros((31, 3))
    for i, row in enumerate(rows_of(crowd.layout)):
        for j, y, w in row:
            votes[i, y] += w * model.skill_[j]
    assert_allclose(model.raw_posterior_[:30], votes[:30] / votes[:30].sum(axis=1, keepdims=True))


def test_zero_based_skill_takes_shorter_steps() -> None:
    annotations = uneven()
    states = [ZeroBasedSkill(max_iter=k, tol=0, lr=0.8, lr_steps=2).fit(annotations) for k in (1, 2, 3)]
    crowd = states[0]._crowd
    skill, posterior = np.full(7, 1 / 3 + 1e-5), crowd.weighted_majority(np.full(7, 1 / 3 + 1e-5))
    for k, model in enumerate(states, start=1):
        target = crowd.top_hits(posterior) / np.maximum(crowd.labels_per_annotator, 1)
        target[6] = target[:6].mean()
        skill = skill + 0.8 * 0.5 ** (k // 2) * (target - skill)
        posterior = crowd.weighted_majority(skill)
        assert_allclose(model.skill_, skill)
        assert_allclose(model.raw_posterior_, posterior)


@pytest.mark.parametrize("loss", ["mean", "sum"])
@pytest.mark.parametrize("normaliser", ["max", "sum"])
@pytest.mark.parametrize("floor", [0.01, "half"])
def test_a_round_of_crh(loss: Any, normaliser: Any, floor: Any) -> None:
    model = CRH(loss=loss, normaliser=normaliser, floor=floor, max_iter=1, tol=0).fit(uneven())
    crowd = model._crowd
    number = crowd.labels_per_annotator.astype(float)
    wrong = number - crowd.top_hits(crowd.majority())
    scale = np.maximum(number, 1) if loss == "mean" else np.ones(7)
    least = 0.5 if floor == "half" else floor * scale
    losses = np.maximum(wrong, least) / scale
    losses[6] = 0
    total = losses.max() if normaliser == "max" else losses.sum()
    expected = [max(-np.log(each / total + 1e-7), 0) if n else 0 for each, n in zip(losses, number, strict=True)]
    assert_allclose(model.weight_, expected)
    assert_allclose(model.raw_posterior_, crowd.weighted_majority(np.array(expected)))


@pytest.mark.parametrize("classes", [2, 3])
def test_messages_of_kos(classes: int) -> None:
    """To an item all that its other labels say; to an annotator all that its other items say."""
    rng = np.random.default_rng(2)
    table = rng.integers(0, classes, (6, 4))
    annotations = Annotations.coerce(table.tolist())
    found = KOS(init="ones", max_iter=1, tol=0).fit(annotations).scores_
    for k in range(classes):
        answer = np.where(table == k, 1.0, -1.0)
        to_item = answer.sum(axis=1, keepdims=True) - answer
        heard = answer * to_item
        reliability = heard.sum(axis=0, keepdims=True) - heard
        scores = (answer * reliability * (1 if reliability.sum() >= 0 else -1)).sum(axis=1)
        assert_allclose(found[:, k], scores)


def test_directions_of_glad_go_up_and_learn_curvature() -> None:
    model = GLAD(max_iter=6, tol=0).fit(uneven(), history=PAST)
    assert np.all(np.diff(model.objective_) > 0)
    crowd = model._crowd
    rng = np.random.default_rng(0)
    state = model._start(crowd, rng)
    assert_allclose(state.parameters, 1.0)
    for k in range(12):
        after = model._round(crowd, state, rng)
        moved = after.parameters - state.parameters
        assert after.objective > state.objective
        assert np.abs(moved).max() <= 3.0 + 1e-9
        assert len(after.steps) <= min(k + 1, 10)
        if len(after.steps) > len(state.steps):
            assert_allclose(after.steps[-1][0], moved)
            assert_allclose(after.steps[-1][1], state.gradient - after.gradient)
            assert after.steps[-1][0] @ after.steps[-1][1] > 0
        state = after
    assert len(state.steps) == 10


# -- panels ------------------------------------------------------------------------------------------------------------


def judges(n: int = 120) -> tuple[Annotations, npt.NDArray[Any]]:
    """Three models that copy each other a lot, and four people."""
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 3, n)

    def answers(accuracy: float) -> npt.NDArray[Any]:
        return np.where(rng.random(n) < accuracy, truth, (truth + rng.integers(1, 3, n)) % 3)

    common = answers(0.75)
    labels = np.stack([np.where(rng.random(n) < 0.8, common, answers(0.75)) for _ in range(3)], axis=1)
    people = np.stack([answers(0.85) for _ in range(4)], axis=1)
    people[rng.random((n, 4)) < 0.3] = -1
    return Annotations.coerce(np.concatenate([labels, people], axis=1)), truth


def test_a_round_of_a_panel_shares_the_say() -> None:
    annotations, _ = judges()
    models = [Panel(models=[0, 1, 2], exponent=0.4, max_iter=k, tol=0).fit(annotations) for k in (1, 2)]
    assert models[0].exponents_.tolist() == [0.4] * 3 + [1.0] * 4
    assert models[0].exponents_from_ == "the caller"
    crowd, q = models[0]._crowd, models[0].raw_posterior_
    start = crowd.weighted_majority(models[0].exponents_)
    pseudo = 4 * crowd_matrix(counts_of(crowd, start) * models[0].exponents_[:, None, None])
    counts = counts_of(crowd, q) + pseudo
    emission = counts / counts.sum(axis=1, keepdims=True)
    prior = q.sum(axis=0) + 1
    step = kernels.em_step(crowd.layout, emission ** models[0].exponents_[:, None, None], prior / prior.sum())
    assert_allclose(models[1].raw_posterior_, step.posterior, atol=DOUBLE)


@pytest.mark.filterwarnings("ignore:errors common to a group")
def test_a_panel_of_one_group_has_flatter_posteriors() -> None:
    annotations, _ = judges()
    three = annotations.select(annotators=np.arange(3))
    few = Annotations.from_triples(three.instance, three.annotator, three.label, n_classes=3)
    model = Panel(models=[0, 1, 2], exponent=0.5, max_iter=20, tol=0).fit(few)
    full = DawidSkene(max_iter=20, tol=0)
    crowd = model._crowd
    state = full._start(crowd, np.random.default_rng(0))
    state = replace(state, pseudo=4 * crowd_matrix(counts_of(crowd, crowd.majority()) * 0.5))
    state = full._maximise(
        crowd, state.posterior, 0.0, counts_of(crowd, state.posterior), crowd.mass(state.posterior), state.pseudo
    )
    for _ in range(20):
        state = full._round(crowd, state, np.random.default_rng(0))
    flat = np.sqrt(state.posterior)
    assert_allclose(model.raw_posterior_, flat / flat.sum(axis=1, keepdims=True), atol=1e-6)


def test_groups_may_be_named() -> None:
    annotations, _ = judges()
    model = Panel(groups={0: "a", 1: "a", 4: "b", 9: "b"}, models=[2], exponent=0.5, max_iter=2, tol=0).fit(annotations)
    assert model.groups_.tolist() == [1, 1, 0, -1, 2, -1, -1]
    assert model.exponents_.tolist() == [0.5, 0.5, 1, 1, 1, 1, 1]
    assert [each.tolist() for each in model._groups()] == [
        [False, False, True, False, False, False, False],
        [True, True, False, False, False, False, False],
        [False, False, False, False, True, False, False],
    ]
    assert model._people(model._crowd).tolist() == [False, False, True, True, True, True, True]
    with pytest.raises(ConfigError, match="such as 'x'"):
        Panel(models=["x"]).fit(annotations)


def test_exponents_by_correlations_and_by_gold() -> None:
    annotations, truth = judges()
    gold = {i: int(truth[i]) for i in range(30)}
    kish = Panel(models=[0, 1, 2], exponent="kish").fit(annotations, gold)
    reference = np.zeros((120, 3))
    reference[range(30), truth[:30]] = 1.0
    layout = kish._crowd.layout
    correlations, _ = error_correlations(layout, reference, np.arange(3))
    assert_allclose(kish.exponents_[:3], effective_votes(correlations) / 3)
    assert kish.effective_votes_ == {0: pytest.approx(effective_votes(correlations))}
    assert kish.exponents_from_ == "correlations of errors against gold labels"

    told = Panel(models=[0, 1, 2], exponent="gold").fit(annotations, gold)
    bare = layout._replace(gold=np.empty(0, np.int32))
    fold = np.random.default_rng(0).permutation(30) % 5
    losses = np.zeros(len(EXPONENTS))
    for k in range(5):
        known = np.zeros((120, 3))
        rest = np.flatnonzero(fold != k)
        known[rest, truth[rest]] = 1.0
        emission, prior = _matrices(bare, known)
        for place, exponent in enumerate(EXPONENTS):
            say = np.where(np.arange(7) < 3, exponent, 1.0)[:, None, None]
            q = kernels.em_step(bare, emission**say, prior).posterior
            losses[place] -= sum(np.log(max(q[i, truth[i]], 1e-6)) for i in np.flatnonzero(fold == k))
    assert told.exponents_[0] == pytest.approx(EXPONENTS[int(np.argmin(losses))])
    assert told.exponents_from_ == "gold"
    auto = Panel(models=[0, 1, 2]).fit(annotations, gold)  # fewer than fifty: people say it
    assert auto.exponents_from_ == "the consensus of people"
    enough = Panel(models=[0, 1, 2]).fit(annotations, {i: int(truth[i]) for i in range(50)})
    assert enough.exponents_from_ == "gold"


def test_consensus_and_references_of_people() -> None:
    labels = [
        [0, 1, 1, 1, 2, 2],
        [0, 0, 2, 2, -1, 1],
        [1, 1, 0, -1, -1, -1],
        [2, 2, 1, 2, 1, 2],
        [0, 0, -1, -1, -1, -1],
    ]
    crowd = MemoryCrowd.of(Annotations.coerce(labels))
    panel = Panel(models=[0, 1])
    panel.groups_ = np.array([0, 0, -1, -1, -1, -1])
    people = panel._people(crowd)
    assert panel._consensus(crowd, people).tolist() == [-1, 2, -1, -1, -1]
    reference, how = panel._reference(crowd, people)
    assert how == "the consensus of people"
    assert reference.any(axis=1).tolist() == [True, True, False, True, False]
    assert panel._reference(crowd, np.array([False] * 5 + [True]))[1] == ""
    assert panel._few_people(crowd) is False
    only = _only(crowd.layout, people)
    assert rows_of(only) == [[each for each in row if each[0] >= 2] for row in rows_of(crowd.layout)]


def test_matrices_from_a_reference_lean_on_the_crowd() -> None:
    layout = MemoryCrowd.of(Annotations.coerce([[0, 1], [1, 1], [0, 0]])).layout
    reference = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    emission, prior = _matrices(layout, reference)
    counts = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]]])
    drawn = counts + 4 * crowd_matrix(counts.copy())
    assert_allclose(emission, drawn / drawn.sum(axis=1, keepdims=True))
    assert_allclose(prior, [0.5, 0.5])


# -- nothing to see ----------------------------------------------------------------------------------------------------


def test_a_part_without_labels_shows_no_pattern() -> None:
    layout = MemoryCrowd.of(Annotations.from_triples([], [], [], n_instances=3, n_annotators=1, n_classes=2)).layout
    assert patterns.count(layout, 1).sum() == 0
    assert patterns.count(layout._replace(weight=np.empty(0)), 1).sum() == 0


# -- chance ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agreed", "chance"), [(54, True), (56, False)])
def test_agreement_is_chance_within_a_standard_deviation(agreed: int, chance: bool) -> None:
    """A hundred pairs of two classes: 8 or 12 % beyond chance, of which the standard deviation is 10 %."""
    first = np.arange(100) % 2
    second = np.where(np.arange(100) < agreed, first, 1 - first)
    i = np.tile(np.arange(100), 2)
    annotator = np.concatenate([np.arange(100) % 3, (np.arange(100) + 1) % 3])
    crowd = MemoryCrowd.of(Annotations.from_triples(i, annotator, np.concatenate([first, second]), n_instances=150))
    name, reason = suitable_method(crowd)
    assert (name == "majority-vote") is chance
    assert ("Too few labels can be compared" in reason) is chance
