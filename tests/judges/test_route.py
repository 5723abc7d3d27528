"""Routing: the bound holds, and people are spared where the model can be trusted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crowdwise import judges
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError


def machine(n=2000, seed=0, power=1.0):
    """Labels that are right with a probability that confidence follows (power 1) or not (0)."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(4, 1, n)
    right = rng.random(n) < chance
    return power * chance + (1 - power) * rng.random(n), right


def routed(sure, right, **options):
    first = judges.route(sure, **options)
    return judges.route(sure, **options, answers={int(i): bool(right[i]) for i in first.ask})


@pytest.mark.parametrize(("error", "power"), [(0.05, 1.0), (0.1, 1.0), (0.1, 0.0)])
def test_the_error_exceeds_its_bound_as_rarely_as_promised(error, power):
    exceeded, saved = 0, []
    for seed in range(300):
        sure, right = machine(seed=seed, power=power)
        found = routed(sure, right, error=error, random_state=seed)
        exceeded += np.mean(~right & ~found.to_people) > error
        saved.append(found.saved)
        assert found.bound <= error
    assert exceeded / 300 <= 0.05
    assert np.mean(saved) > (0.2 if power else 0.05)


def test_better_confidence_saves_more():
    saved = [np.mean([routed(*machine(seed=s, power=p), error=0.1).saved for s in range(20)]) for p in (0, 0.5, 1)]
    assert saved[0] < saved[1] < saved[2]


def test_a_good_enough_machine_keeps_everything_not_asked():
    found = routed(np.full(3000, 0.9), np.ones(3000, bool), error=0.05)
    assert found.n_people == len(found.ask)
    assert found.to_people[found.ask].all()
    assert found.threshold == pytest.approx(0.9)


def test_too_few_draws_send_everything_to_people():
    sure, right = machine()
    with pytest.warns(CrowdwiseWarning, match="draw 59 or more"):
        found = routed(sure, right, sample=50)
    assert found.to_people.all()
    assert found.bound == 0
    assert found.saved == 0
    assert not routed(sure, np.ones(2000, bool), sample=59).to_people.all()


def test_posteriors_and_labels_say_the_same():
    rng = np.random.default_rng(0)
    posterior = rng.dirichlet([3, 1, 1], 500)
    truth = np.array([rng.choice(3, p=row) for row in posterior])
    label, sure = posterior.argmax(axis=1), posterior.max(axis=1)
    one = judges.route(posterior, error=0.3, answers=truth)
    other = judges.route(sure, labels=label, error=0.3, answers=dict(enumerate(truth.tolist())))
    third = judges.route(sure, error=0.3, answers=dict(enumerate((label == truth).tolist())))
    np.testing.assert_array_equal(one.to_people, other.to_people)
    np.testing.assert_array_equal(one.to_people, third.to_people)


def test_what_is_missing_is_named():
    sure, right = machine(200)
    first = judges.route(sure)
    with pytest.raises(DataError, match=r"1 of the .* instances drawn have no answer"):
        judges.route(sure, answers={int(i): bool(right[i]) for i in first.ask[1:]})
    with pytest.raises(DataError, match="probabilities"):
        judges.route([0.5, 1.7])
    with pytest.raises(DataError, match="no instances"):
        judges.route([])
    with pytest.raises(ConfigError, match="leave out labels"):
        judges.route([[0.5, 0.5]], labels=[0])
    assert "then route again" in str(first)


def by_trying_all(sure, right, draws, error, risk):
    """The lowest confidence that may be kept, by trying all of them: the draws below it show at most ``error``."""
    best = None
    for threshold in np.sort(np.unique(sure))[::-1]:
        wrong = int(np.sum(~right[draws] & (sure[draws] >= threshold)))
        if stats.beta.ppf(1 - risk, wrong + 1, len(draws) - wrong) > error:
            break
        best = threshold, wrong
    return best


@pytest.mark.parametrize(("error", "risk"), [(0.05, 0.05), (0.1, 0.05), (0.08, 0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_the_threshold_is_the_lowest_one_whose_bound_holds(error, risk, seed):
    sure, right = machine(1500, seed=seed)
    found = routed(sure, right, error=error, risk=risk, sample=200, random_state=seed)
    threshold, wrong = by_trying_all(sure, right, found.draws, error, risk)
    assert len(found.draws) == 200
    assert sorted(set(found.draws.tolist())) == found.ask.tolist()
    kept = np.flatnonzero(sure >= found.threshold)
    assert found.threshold == pytest.approx(threshold, abs=1e-4)  # ties are broken by noise of 1e-5
    assert found.bound == pytest.approx(stats.beta.ppf(1 - risk, wrong + 1, 200 - wrong))
    expected = np.ones(1500, bool)
    expected[np.setdiff1d(kept, found.ask)] = False
    np.testing.assert_array_equal(found.to_people, expected)
    assert found.n_people == expected.sum()
    assert found.saved == pytest.approx(1 - expected.mean())


def test_answers_of_another_shape_are_refused():
    sure, right = machine(100)
    with pytest.raises(DataError, match="answers has 99 entries, but there are 100 instances"):
        judges.route(sure, answers=right[:99])
    with pytest.raises(DataError, match=r"labels has shape \(99,\), but confidence \(100,\)"):
        judges.route(sure, labels=np.zeros(99, int))
    for bad in (np.full(3, np.nan), [-0.1], np.zeros((2, 2, 2))):
        with pytest.raises(DataError, match="must hold probabilities"):
            judges.route(bad)


def test_an_answer_of_minus_one_or_none_is_no_answer():
    sure, right = machine(300)
    first = judges.route(sure, labels=np.zeros(300, int), sample=100)
    truth = np.where(right, 0, 1)
    for nothing in (-1, None):
        answers = truth.astype(object)
        answers[first.ask[3]] = nothing
        with pytest.raises(
            DataError, match=f"1 of the {len(first.ask)} instances drawn have no answer .*{first.ask[3]}"
        ):
            judges.route(sure, labels=np.zeros(300, int), sample=100, answers=answers)
    full = judges.route(sure, labels=np.zeros(300, int), error=0.3, sample=100, answers=truth)
    told = judges.route(sure, error=0.3, sample=100, answers=dict(enumerate(right.tolist())))
    np.testing.assert_array_equal(full.to_people, told.to_people)


def test_what_a_route_says():
    sure, right = machine(1000)
    first = judges.route(sure, sample=100)
    assert f"{len(first.ask)}" in str(first)
    assert first.to_people is None
    assert str(routed(sure, right, error=0.2)).startswith("people label")


def test_a_fitted_aggregator_has_its_own_labels():
    from crowdwise.aggregation import MajorityVote

    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 300)
    labels = np.where(rng.random((300, 5)) < 0.8, truth[:, None], rng.integers(0, 3, (300, 5)))
    model = MajorityVote().fit(labels)
    one = judges.route(model, error=0.1, answers=truth)
    other = judges.route(model.posterior_, error=0.1, answers=truth)
    np.testing.assert_array_equal(one.to_people, other.to_people)
    with pytest.raises(ConfigError, match="leave out labels"):
        judges.route(model, labels=truth)
