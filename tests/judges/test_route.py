"""Routing: the bound holds, and people are spared where the model can be trusted."""

from __future__ import annotations

import numpy as np
import pytest

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
