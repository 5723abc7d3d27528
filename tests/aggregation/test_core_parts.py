"""Parts of the core of aggregation against second implementations: loops in Python, dense matrices, numbers by hand."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from crowds import drawn, em_by_hand, rows_of, simulated, urn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from crowdwise.aggregation import (
    AnnotatorHistory,
    DawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
    Wawa,
    calibrate,
)
from crowdwise.aggregation.core import correlation, dependence, patterns, queries, tempering
from crowdwise.aggregation.core.base import IterativeAggregator, State
from crowdwise.aggregation.core.confidence import _foretold
from crowdwise.aggregation.core.crowd import Crowd, MemoryCrowd, confusion, resolve_threads
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError
from crowdwise.system import n_cores
from fixtures import t2
from tolerances import DOUBLE

Floats = npt.NDArray[np.float64]


# -- parts of a layout ------------------------------------------------------------------------------------------------


def test_some_instances_are_the_crowd_of_them_alone() -> None:
    layout = drawn(6, weighted=True)
    layout = layout._replace(gold=np.where(np.arange(26) % 3 == 0, 1, -1).astype(np.int32))
    chosen = np.array([3, 25, 4, 0, 24])
    part = queries.of_instances(layout, chosen)
    assert rows_of(part) == [rows_of(layout)[i] for i in chosen]
    assert_array_equal(part.gold, layout.gold[chosen])
    assert queries.of_instances(drawn(6), chosen).gold.size == 0


# -- the crowd ---------------------------------------------------------------------------------------------------------


def test_histories_are_counted_by_annotator() -> None:
    past = np.arange(3 * 2 * 2, dtype=float).reshape(3, 2, 2)  # [annotator, label, class]
    past[2] = 0.0
    crowd = MemoryCrowd.of(Annotations.from_triples([0, 1], [0, 0], [1, 1], n_annotators=3, n_classes=2), None, past)
    right, total = crowd.past_accuracy()
    assert_array_equal(right, [0 + 3, 4 + 7, 0])
    assert_array_equal(total, [0 + 1 + 2 + 3, 4 + 5 + 6 + 7, 0])
    assert_array_equal(crowd.used_labels[:, :, 0], [[1, 1], [1, 1], [1, 1]])
    past[0, 0] = 0.0
    crowd = MemoryCrowd.of(Annotations.from_triples([0, 1], [0, 0], [1, 1], n_annotators=3, n_classes=2), None, past)
    assert_array_equal(crowd.used_labels[:, :, 0], [[0, 1], [1, 1], [1, 1]])
    bare = MemoryCrowd.of(Annotations.from_triples([0, 1], [0, 0], [1, 1], n_annotators=3, n_classes=2))
    assert_array_equal(bare.used_labels[:, :, 0], [[0, 1], [1, 1], [1, 1]])
    assert_array_equal(np.array(bare.past_accuracy()), np.zeros((2, 3)))


def test_agreement_beyond_chance_by_hand() -> None:
    crowd = MemoryCrowd.of(Annotations.coerce([[0, 0, 1], [2, 2, 2], [1, -1, -1], [0, 1, -1]]))
    share = (1 + 3 + 0) / (3 + 3 + 1)  # of pairs
    assert crowd.agreement_beyond_chance() == pytest.approx((3 * share - 1) / 2)
    assert MemoryCrowd.of(Annotations.coerce([[0, -1], [-1, 1]])).agreement_beyond_chance() == 0.0
    assert MemoryCrowd.of(Annotations.coerce([[0, 0]])).agreement_beyond_chance() == 1.0


def test_confusion_matrices_from_few_counts() -> None:
    table = np.array([[[0.2, 0.0], [0.6, 0.0]], [[3.0, 1.0], [1.0, 4.0]]])  # [annotator, label, class]
    assert_allclose(confusion(table), [[[0.25, 0.75], [0.5, 0.5]], [[0.75, 0.25], [0.2, 0.8]]])


def test_weights_that_are_all_one_are_none() -> None:
    triples = [0, 0, 1], [0, 1, 1], [0, 1, 1]
    assert MemoryCrowd.of(Annotations.from_triples(*triples, weight=[1.0, 1.0, 1.0])).layout.weight is None
    assert MemoryCrowd.of(Annotations.from_triples(*triples, weight=[1.0, 2.0, 1.0])).layout.weight is not None


def test_numbers_of_threads() -> None:
    assert [resolve_threads(each) for each in (None, 0, 1, 3)] == [1, 1, 1, 3]
    assert resolve_threads(-1) == n_cores()
    assert resolve_threads(-n_cores() - 5) == 1


def test_where_to_start_with_an_earlier_posterior() -> None:
    earlier = np.array([[0.9, 0.1], [0.3, 0.7]])
    crowd = Annotations.coerce([[0, 1, 1], [2, 2, 0], [2, 0, 0]])
    gold = np.array([-1, 2, -1], np.int32)
    made = MemoryCrowd.of(crowd, gold, earlier=earlier)
    assert_allclose(made.initial(), [[0.9, 0.1, 0], [0, 0, 1], [2 / 3, 0, 1 / 3]])


# -- arrays over instances ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [2, 3, 32, 33, 40])
def test_the_most_probable_class_and_ties_by_brute_force(c: int) -> None:
    rng = np.random.default_rng(c)
    posterior = rng.integers(0, 3, (60, c)) / 3.0
    posterior[0] = 0.0
    best = [[k for k in range(c) if row[k] >= max(row) - 1e-9] for row in posterior.tolist()]
    assert queries.choose(posterior, "first", rng).tolist() == [each[0] for each in best]
    drawn_at_random = np.array([queries.choose(posterior, "random", rng) for _ in range(60)])
    for i, each in enumerate(best):
        assert set(drawn_at_random[:, i].tolist()) <= set(each)
    assert any(len(set(drawn_at_random[:, i].tolist())) > 1 for i in range(60))
    shares = [[1 / len(each) if k in each else 0.0 for k in range(c)] for each in best]
    assert_allclose(queries.tops(posterior), shares)
    other = posterior.copy()
    other[:7] = np.eye(c)[0] * 9
    layout = MemoryCrowd.of(Annotations.from_triples(range(55), [0] * 55, [0] * 55, n_instances=60, n_classes=c)).layout
    differ = [shares[i] != [1.0] + [0.0] * (c - 1) for i in range(7)]
    assert queries.top_differences(layout, posterior, other) == sum(differ)
    silent = layout._replace(indptr=np.append(np.zeros(5, np.int64), layout.indptr[: 60 - 4]))
    assert queries.differing_tops(silent, posterior, other) == sum(differ[5:])
    assert queries.distance(layout, posterior, other) == pytest.approx(np.abs(posterior - other).max())


def test_hard_counts_by_hand() -> None:
    crowd = MemoryCrowd.of(Annotations.coerce([[0, 1], [1, 1], [-1, -1], [0, 0]]))
    posterior = np.array([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1], [0.6, 0.4]])
    counts, mass, logs = crowd.hard_counts(posterior)
    assert_allclose(mass, [0.5 + 1, 0.5 + 1])
    assert logs == pytest.approx(np.log(0.5) + np.log(0.8) + np.log(0.6))
    assert_allclose(counts, [[[1.5, 0.5], [0, 1]], [[1, 0], [0.5, 1.5]]])
    assert_allclose(crowd.top_hits(posterior), [0.5 + 1 + 1, 0.5 + 1 + 1])


def test_weighted_majority_where_no_vote_weighs_anything() -> None:
    crowd = MemoryCrowd.of(Annotations.coerce([[0, 1, 1], [0, 0, -1], [-1, -1, -1]]), np.array([-1, -1, 1], np.int32))
    assert_allclose(crowd.weighted_majority(np.array([0.0, 0.0, 2.0])), [[0, 1], [1, 0], [0, 1]])
    assert_allclose(crowd.weighted_majority(np.zeros(3)), [[1 / 3, 2 / 3], [1, 0], [0, 1]])
    assert_allclose(crowd.weighted_majority(np.array([3.0, 1.0, 0.0])), [[0.75, 0.25], [1, 0], [0, 1]])


# -- tempering ---------------------------------------------------------------------------------------------------------


def test_tempered_shares_by_the_formula() -> None:
    """Against the class with most votes stands what no votes say, once, and what the votes of others say beyond that."""
    table = [0] * 6 + [1] * 3 + [2], [0, 1, 2, 3, 4, 5, 0, 1, 2, 0], [0, 0, 0, 1, 1, 2, 2, 2, 2, 1]
    layout = MemoryCrowd.of(Annotations.from_triples(*table, n_instances=4, n_classes=3)).layout
    posterior = queries.majority(layout)
    vote, rho = 1.3, 0.25
    found = tempering.tempered_shares(layout, posterior, vote, rho)

    def odds(votes: float) -> float:
        return float(np.exp(urn(votes, vote, rho)))

    others = odds(2) + odds(1) - odds(0)
    expected = [odds(3) / (odds(3) + others), odds(3) / (odds(3) + odds(0)), odds(1) / (odds(1) + odds(0))]
    assert_allclose(found.max(axis=1)[:3], expected, rtol=1e-5)
    assert_allclose(found[0, 1] / found[0, 2], 2.0)
    assert_allclose(found[3], 1 / 3)
    assert_array_equal(found.argmax(axis=1)[:3], [0, 2, 1])


def test_sharpening_is_a_few_rounds_of_em() -> None:
    crowd, _ = simulated(60, 6, 3, 4, (0.5, 0.9), seed=3)
    memory = MemoryCrowd.of(crowd)
    posterior = memory.majority()
    for _ in range(tempering.SHARPENING):
        counts = np.zeros((6, 3, 3))
        for i, j, y in zip(crowd.instance, crowd.annotator, crowd.label, strict=True):
            counts[j, y] += posterior[i]
        counts = counts + correlation.STRENGTH * correlation.crowd_matrix(counts.copy())
        emission = counts / counts.sum(axis=1)[:, None]
        prior = posterior.sum(axis=0) + 1
        posterior = em_by_hand(memory.layout, emission, prior / prior.sum())[0]
    assert_allclose(tempering.sharpened(memory, memory.majority()), posterior, atol=DOUBLE)


@pytest.mark.parametrize("shares", [False, True])
def test_correlation_from_gold_minimises_what_it_says(shares: bool) -> None:
    """Over a grid: the loss of gold labels by their probability, and of the distance from what is usual."""
    crowd, truth = simulated(40, 6, 3, 4, (0.5, 0.8), seed=4)
    wider = Annotations.from_triples(crowd.instance, crowd.annotator, crowd.label, n_instances=41, n_classes=3)
    gold = np.where(np.arange(41) % 4 == 0, np.append(truth, 1), -1).astype(np.int32)  # one has no labels
    layout = MemoryCrowd.of(wider, gold).layout
    posterior = np.random.default_rng(0).dirichlet(np.full(3, 0.5), 41)
    posterior = queries.majority(layout._replace(gold=np.empty(0, np.int32))) if shares else posterior
    method = tempering.tempered_shares if shares else tempering.tempered
    losses = []
    for rho in tempering.CORRELATIONS:
        q = method(layout._replace(gold=np.empty(0, np.int32)), posterior, 1.2, rho)
        miss = sum(-np.log(max(q[i, truth[i]], 1e-6)) for i in range(0, 40, 4))
        distance = np.log(rho / (1 - rho)) - np.log(0.3 / 0.7)
        losses.append(miss + 0.5 * (distance / tempering.SPREAD) ** 2)
    found = tempering.correlation_from_gold(layout, posterior, 1.2, 0.3, shares=shares)
    assert found == pytest.approx(tempering.CORRELATIONS[int(np.argmin(losses))])
    assert found != pytest.approx(0.3, abs=0.01)


def test_what_a_vote_says_is_never_nothing() -> None:
    crowd = MemoryCrowd.of(Annotations.coerce([[0, 0, 1], [1, 1, 0], [0, 1, 1]]))
    against = 1.0 - crowd.majority()  # the votes speak against the posterior
    vote, rho = tempering.read_votes(crowd, against, None, [])
    assert vote == tempering.WEAKEST
    assert 0 < rho < 1
    assert (
        tempering.read_votes(MemoryCrowd.of(Annotations.coerce([[0, 1], [1, 0]])), np.full((2, 2), 0.5), None, [])[0]
        == 1
    )


def test_pairs_within_groups_do_not_show_correlation() -> None:
    """Three copies agree with each other far too well; left out, the others show independent errors."""
    crowd, _ = simulated(400, 6, 3, 6, (0.6, 0.9), seed=5)
    labels = np.full((400, 6), -1)
    labels[crowd.instance, crowd.annotator] = crowd.label
    copied = MemoryCrowd.of(Annotations.coerce(np.concatenate([labels[:, :1]] * 3 + [labels], axis=1)))
    posterior = DawidSkene(calibration="none").fit(crowd).raw_posterior_
    group = np.arange(9) < 4
    everybody = tempering.read_votes(copied, posterior, None, [])[1]
    without = tempering.read_votes(copied, posterior, None, [group])[1]
    assert without < everybody - 0.1


# -- patterns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 2])
def test_patterns_by_brute_force(every: int) -> None:
    layout = drawn(9, n=40)
    expected = np.zeros((4, 4, 4))
    for row in rows_of(layout)[::every]:
        if len(row) in (2, 3):
            expected[tuple(sorted([y for _, y, _ in row] + [3] * (3 - len(row))))] += 1
    assert_array_equal(patterns.count(layout, every), expected.ravel())
    assert expected.sum() > 5


def test_labels_of_whole_weights_are_labels_given_as_often() -> None:
    """Half a label twice is one, two is the label twice; instances with other weights are left out."""
    table = [0, 0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 1, 0, 1, 0, 1, 0, 1], [1, 1, 0, 2, 2, 0, 1, 0, 2]
    weight = [0.5, 0.5, 1.0, 2.0, 1.0, 0.3, 1.0, 1.0, 1.0]
    layout = MemoryCrowd.of(Annotations.from_triples(*table, n_instances=5, n_classes=3)).layout
    found = patterns.count(layout._replace(weight=np.array(weight)), 1).reshape(4, 4, 4)
    places = [tuple(place) for place in np.argwhere(found).tolist()]
    assert places == [(0, 1, 3), (0, 2, 3), (2, 2, 2)]
    assert found.sum() == 3


# -- who errs alike ----------------------------------------------------------------------------------------------------


def test_correlations_of_errors_by_numpy() -> None:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, (60, 5))
    labels[rng.random((60, 5)) < 0.3] = -1
    labels[:, 3] = -1
    labels[:8, 3] = 1  # too few in common with anybody
    reference = rng.dirichlet(np.ones(3), 60)
    reference[50:] = 0.0  # nothing is known there
    layout = MemoryCrowd.of(Annotations.coerce(labels)).layout
    members = np.array([4, 0, 3, 1])
    found, common = dependence.error_correlations(layout, reference, members, least=15)
    there = (labels >= 0) & (np.arange(60) < 50)[:, None]
    errors = 1.0 - np.take_along_axis(reference, np.maximum(labels, 0), axis=1)
    for a, j in enumerate(members):
        for b, k in enumerate(members):
            shared = there[:, j] & there[:, k]
            assert common[a, b] == shared.sum()
            if a == b:
                assert found[a, b] == 1.0
            elif shared.sum() < 15:
                assert np.isnan(found[a, b])
            else:
                plain = np.corrcoef(errors[shared, j], errors[shared, k])[0, 1]
                assert found[a, b] == pytest.approx(plain * shared.sum() / (shared.sum() + 20))


def test_effective_votes_stay_between_one_and_all() -> None:
    assert dependence.effective_votes(np.array([[1.0, -0.9], [-0.9, 1.0]])) == 2.0
    assert dependence.effective_votes(np.ones((3, 3))) == pytest.approx(1.0)
    mixed = np.array([[1.0, 0.5, np.nan], [0.5, 1.0, 0.1], [np.nan, 0.1, 1.0]])
    assert dependence.effective_votes(mixed) == pytest.approx(3 / (1 + 2 * 0.3))
    assert dependence.effective_votes(np.full((2, 2), np.nan)) == 2.0


def test_agreements_of_pairs_by_brute_force() -> None:
    layout = drawn(10, labels=120)
    chosen = np.array([1, 2, 5])
    agreed, common = dependence._agreements(layout, chosen)
    for a, j in enumerate(chosen):
        for b, k in enumerate(chosen):
            mine = [{y for m, y, _ in row if m == j} for row in rows_of(layout)]
            other = [{y for m, y, _ in row if m == k} for row in rows_of(layout)]
            assert agreed[a, b] == sum(len(x & y) for x, y in zip(mine, other, strict=True))
            assert common[a, b] == sum(bool(x) and bool(y) for x, y in zip(mine, other, strict=True))


def test_a_product_of_skills_is_found_whatever_is_missing() -> None:
    skill = np.array([0.9, 0.3, 0.7, 0.5, 0.0])
    weight = np.random.default_rng(0).random((5, 5))
    weight = (weight + weight.T) * ~np.eye(5, dtype=bool)
    weight[0, 1] = weight[1, 0] = 0.0
    assert_allclose(dependence._rank_one(np.outer(skill, skill), weight), skill, atol=5e-3)
    assert np.all(np.isfinite(dependence._rank_one(np.zeros((3, 3)), np.zeros((3, 3)))))


def test_chance_is_what_shares_of_labels_give() -> None:
    crowd = MemoryCrowd.of(Annotations.coerce([[0, 0, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1]]))
    found = dependence._chance(crowd.layout, np.arange(3))
    assert found[1, 1] == pytest.approx(0.25**2 + 0.75**2)
    assert (found[0, 0], found[1, 2]) == (0.95, 0.75)  # at most
    assert found[0, 2] == found[0, 1] == 0.5  # at least what even labels give


def test_two_groups_among_people_have_numbers_of_their_own() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 3, 600)

    def answers(accuracy: float) -> npt.NDArray[Any]:
        return np.where(rng.random(600) < accuracy, truth, (truth + rng.integers(1, 3, 600)) % 3)

    labels = np.stack([answers(0.75) for _ in range(14)], axis=1)
    for j, k in ((3, 1), (8, 5), (11, 5)):
        labels[:, j] = np.where(rng.random(600) < 0.9, labels[:, k], labels[:, j])
    labels[:590, 13] = -1  # ten labels are too few to be looked at
    found = dependence.alike(MemoryCrowd.of(Annotations.coerce(labels)).layout)
    expected = np.full(14, -1)
    expected[[1, 3]], expected[[5, 8, 11]] = 0, 1
    assert_array_equal(found, expected)
    apart = np.full((200, 6), -1)
    for j in range(6):
        apart[j::6, j] = truth[j:200:6]  # nobody shares an instance with anybody
    assert np.all(dependence.alike(MemoryCrowd.of(Annotations.coerce(apart)).layout) == -1)


# -- fitting -----------------------------------------------------------------------------------------------------------


class Climbing(IterativeAggregator[State]):
    """Starts that reach 3, 7 and 5, in two, four and three rounds."""

    goals = 3.0, 7.0, 5.0

    def _starts(self) -> int:
        return 3

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> State:
        self.run = getattr(self, "run", -1) + 1
        return State(np.eye(2)[[self.run % 2] * crowd.n_instances], 0.0)

    def _round(self, crowd: Crowd, state: State, rng: np.random.Generator) -> State:
        return State(state.posterior, min(state.objective + 2.0, self.goals[self.run]))


def test_the_best_start_wins_with_its_rounds() -> None:
    model = Climbing(tol=1e-3, calibration="none").fit([[0, 1], [1, 1]])
    assert model.objective_.tolist() == [2.0, 4.0, 6.0, 7.0, 7.0]
    assert (model.n_iter_, model.converged_) == (5, True)
    assert_array_equal(model.posterior_, np.eye(2)[[1, 1]])


def test_a_fit_settles_by_its_change_per_labelled_instance() -> None:
    crowd = Annotations.from_triples([0, 1, 2, 3], [0] * 4, [0, 1, 0, 1], n_instances=90)
    before, after = State(np.empty(0), -4.0), State(np.empty(0), -3.9)
    memory = MemoryCrowd.of(crowd)
    assert DawidSkene(tol=0.026)._converged(memory, before, after)
    assert not DawidSkene(tol=0.024)._converged(memory, before, after)
    assert not DawidSkene(tol=0.024)._converged(memory, after, before)
    nobody = MemoryCrowd.of(Annotations.from_triples([], [], [], n_instances=2, n_classes=2))
    assert DawidSkene(tol=0.11)._converged(nobody, before, after)


def test_gold_adds_up_over_partial_fits_and_later_gold_corrects() -> None:
    model = MajorityVote()
    model.partial_fit((["a", "b"], ["x", "x"], ["cat", "dog"]), gold={"a": "dog"})
    assert model.labels_.tolist() == ["dog", "dog"]
    model.partial_fit((["c"], ["x"], ["cat"]))  # none new: the earlier one stands
    assert model.labels_.tolist() == ["dog", "dog", "cat"]
    model.partial_fit((["d", "a"], ["x", "y"], ["cat", "dog"]), gold={"d": "dog", "a": "cat"})
    assert model.labels_.tolist() == ["cat", "dog", "cat", "dog"]
    once = Wawa().partial_fit((["a", "b"], ["x", "x"], ["cat", "dog"]))
    once.partial_fit((["b"], ["y"], ["cat"]), gold={"b": "cat"})
    assert once.labels_.tolist() == ["cat", "cat"]


def test_sparse_warnings_need_a_crowd_and_look_at_those_who_label() -> None:
    def fit(people: int, labels: int) -> None:
        j = np.repeat(np.arange(people), labels)
        crowd = Annotations.from_triples(np.arange(len(j)) % 15, j, np.arange(len(j)) % 2, n_annotators=people + 40)
        OneCoinDawidSkene(max_iter=3, tol=0).fit(crowd)

    with pytest.warns(CrowdwiseWarning, match="a median of 1 labels"):
        fit(20, 1)
    with warnings.catch_warnings(action="error", category=CrowdwiseWarning):
        fit(19, 1)
        fit(20, 2)


def test_a_history_may_be_a_fit_or_counts_and_nothing_else() -> None:
    past = AnnotatorHistory(["x"], ["dog", "cow"], np.array([[[3.0, 1.0], [2.0, 6.0]]]))
    crowd = Annotations.coerce((["a", "a"], ["x", "y"], ["cat", "dog"]))
    table = past.counts_for(crowd)  # [annotator, label, class] of cat and dog
    assert table[0].tolist() == [[0, 0], [0, 3]]
    assert table[1].tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ConfigError, match="has no parameters of annotators"):
        MajorityVote().fit(crowd, history=past)
    with pytest.raises(DataError, match="none of this crowd's"):
        DawidSkene().fit(crowd, history=AnnotatorHistory(["x"], ["ant"], np.ones((1, 1, 1))))


# -- what a fit tells --------------------------------------------------------------------------------------------------


def test_skills_of_a_vote_are_shares_of_its_posterior() -> None:
    model = MajorityVote().fit(t2())
    crowd, q = t2(), model.posterior_
    given = [
        [q[i, y] for i, j, y in zip(crowd.instance, crowd.annotator, crowd.label, strict=True) if j == k]
        for k in range(5)
    ]
    skill = [float(np.mean(each)) for each in given[:4]]
    assert_allclose(model.skill_, [*skill, np.mean(skill)])
    assert_allclose(model.class_prior_, q[:5].mean(axis=0))
    silent = MajorityVote().fit(Annotations.from_triples([], [], [], n_instances=2, n_annotators=3, n_classes=4))
    assert_allclose(silent.skill_, 0.25)
    assert_allclose(silent.class_prior_, 0.25)


def test_intervals_of_skill_by_the_beta_distribution() -> None:
    from scipy.stats import beta

    counts = np.array([[[8.0, 2.0], [1.0, 5.0]], [[0.0, 0.0], [0.0, 0.0]]])  # [annotator, class, label]
    crowd = Annotations.coerce([[0, 1], [1, 1], [0, 0], [1, 0], [0, 0]])
    model = Wawa(calibration="crowd").fit(crowd, history=AnnotatorHistory([0, 1], [0, 1], counts))
    low, high = model.skill_interval(0.8).T
    for j, (right, total) in enumerate([(13.0, 16.0), (0.0, 0.0)]):
        ends = []
        for posterior in (model.posterior_, model.raw_posterior_):
            hits = sum(
                posterior[i, y] for i, k, y in zip(crowd.instance, crowd.annotator, crowd.label, strict=True) if k == j
            )
            ends.append(beta(hits + right + 0.5, 5 + total - hits - right + 0.5).ppf([0.1, 0.9]))
        assert low[j] == pytest.approx(min(end[0] for end in ends))
        assert high[j] == pytest.approx(max(end[1] for end in ends))


def test_foretelling_leaves_a_label_out_with_its_weight() -> None:
    """By hand: the others of an instance say what its label will be; each counts as much as it weighs."""
    rng = np.random.default_rng(3)
    triples = np.repeat(np.arange(5), 3), np.tile([0, 1, 2], 5), rng.integers(0, 3, 15)
    single = [np.append(column, value) for column, value in zip(triples, (5, 0, 1), strict=True)]
    weight = rng.choice([1.0, 1.0, 2.0, 0.5], 16)
    learnt = DawidSkene().fit(simulated(60, 3, 3, 3, seed=1)[0])
    held = MemoryCrowd.of(Annotations.from_triples(*single, n_classes=3, weight=weight))
    found = _foretold(learnt, held)
    matrix = np.log(np.maximum(learnt.confusion_, 1e-10))  # [annotator, class, label]
    for place, temperature in ((0, 1.0), (10, 2.0)):
        value = 0.0
        for row in rows_of(held.layout):
            if len(row) < 2:
                continue
            for own, (j, y, w) in enumerate(row):
                scores = np.log(learnt.class_prior_)
                for other, (k, z, v) in enumerate(row):
                    scores = scores + (v * matrix[k, :, z] if other != own else 0.0)
                q = np.exp(scores / temperature - logsumexp(scores / temperature))
                value += w * np.log(q @ np.exp(matrix[j, :, y]))
        assert found[place] == pytest.approx(value)


def test_calibrating_a_weighted_crowd_flattens_by_one_temperature() -> None:
    crowd, _ = simulated(120, 8, 3, 5, (0.6, 0.9), seed=2)
    weight = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(crowd))
    sizes = {"n_instances": 120, "n_annotators": 8, "n_classes": 3}
    model = DawidSkene().fit(
        Annotations.from_triples(crowd.instance, crowd.annotator, crowd.label, **sizes, weight=weight)
    )
    honest = calibrate(model, folds=2)
    flat = np.maximum(model.raw_posterior_, 1e-300) ** (1 / honest.temperature)
    assert_allclose(honest.posterior, flat / flat.sum(axis=1, keepdims=True), atol=DOUBLE)


# -- crowds too large for tables ---------------------------------------------------------------------------------------


class Huge(MemoryCrowd):
    """A crowd whose confusion matrices fit nowhere."""

    def check_table(self, states: int) -> None:
        raise DataError("too large")


def test_without_tables_confidence_is_what_is_usual() -> None:
    crowd, _ = simulated(200, 8, 3, 7, seed=6)
    small = MemoryCrowd.of(crowd)
    huge = Huge(small.layout, crowd)
    posterior = small.majority()
    assert tempering.sharpened(huge, posterior) is posterior
    vote, rho = tempering.read_votes(huge, posterior, None, [])
    along, squared = tempering.vote_evidence(small.layout, posterior)
    assert vote == pytest.approx(along / squared)
    assert rho == pytest.approx(correlation.correlation(0.0, 0.0, 0.0, small.patterns))
    assert tempering.read_votes(small, posterior, None, [])[1] != pytest.approx(rho)
    with pytest.raises(DataError, match="too large"):
        huge.counts(posterior)


def test_matrices_beyond_a_size_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = MemoryCrowd.of(simulated(50, 8, 3, 4, seed=6)[0])
    for size, fits in ((8 * 8 * 9, True), (8 * 8 * 9 - 1, False)):
        monkeypatch.setattr(tempering, "TABLES", size)
        assert tempering._fits(crowd) is fits
