"""The alternative annotator test: published results, and crowds whose answer is known."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from crowdwise import Annotations, judges, read
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError

DATA = Path(os.environ.get("CROWDWISE_DATA", "nothing")) / "alttest"
MODELS = ("gemini_flash", "gemini_pro", "gpt-4o", "llama-31", "gpt-4o-mini", "mistral-v03")
PUBLISHED = {  # epsilon, score, people, instances, (winning rate, advantage probability) of each model
    "wax": (0.1, "accuracy", 8, 246, ".3750/.6923 .5/.7371 .5/.7300 0/.5730 0/.5945 0/.4977"),
    "lgbteen": (0.2, "accuracy", 4, 880, ".25/.7148 0/.6656 .75/.7724 0/.7194 .75/.7556 .25/.7466"),
    "mtbench": (0.2, "accuracy", 3, 120, "0/.7189 0/.7645 0/.7728 0/.6872 0/.7355 0/.6832"),
    "10k_prompts": (0.15, "rmse", 13, 1698, ".3077/.6737 .0769/.6300 .6923/.7590 .1538/.6692 .9231/.7968 .1538/.6736"),
    "lesion": (0.15, "rmse", 6, 500, ".1667/.7108 1/.8098 0/.6170 - .6667/.7349 -"),
}


@pytest.mark.skipif(not DATA.is_dir(), reason="CROWDWISE_DATA/alttest is not here")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_results_are_reproduced(name):
    epsilon, score, people, instances, figures = PUBLISHED[name]
    result = judges.alt_test(read(DATA / f"{name}.csv"), epsilon=epsilon, score=score, n_bootstrap=0)
    found = {row["model"]: row for row in result.table.to_pylist()}
    for model, figure in zip(MODELS, figures.split(), strict=True):
        if figure == "-":
            continue
        row = found[model]
        winning, advantage = map(float, figure.split("/"))
        assert row["n_people"] == people
        assert row["winning_rate"] == pytest.approx(winning, abs=5e-5)
        assert row["advantage_probability"] == pytest.approx(advantage, abs=5e-5)
        assert row["passed"] == (winning >= 0.5)
    assert max(row["n_instances"] for row in found.values()) <= instances


def simulated(error_model=0.3, error_people=0.3, n=300, people=5, classes=4, seed=0, labelled=0.8):
    """Labels are true, or else drawn from the prior; the model is the last annotator."""
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(classes))
    truth = rng.choice(classes, n, p=prior)

    def say(error):
        return np.where(rng.random(n) < 1 - error, truth, rng.choice(classes, n, p=prior))

    labels = np.stack([*(say(error_people) for _ in range(people)), say(error_model)], axis=1)
    labels[:, :-1][rng.random((n, people)) > labelled] = -1
    return labels


def outcome(labels, **options):
    return judges.alt_test(Annotations.from_dense(labels), models=[labels.shape[1] - 1], **{"n_bootstrap": 0} | options)


def brute_force(labels, epsilon, score):
    """The procedure, one instance at a time."""
    people, model = labels[:, :-1], labels[:, -1]
    ps, rhos = [], []
    for j in range(people.shape[1]):
        d, wins = [], []
        for row, f in zip(people, model, strict=True):
            others = [x for k, x in enumerate(row) if k != j and x >= 0]
            if row[j] < 0 or f < 0 or not others:
                continue
            ours, theirs = score(f, others), score(row[j], others)
            wins.append(ours >= theirs - 1e-12)
            d.append(int(theirs >= ours - 1e-12) - int(ours >= theirs - 1e-12))
        ps.append(stats.ttest_1samp(d, epsilon, alternative="less").pvalue)
        rhos.append(np.mean(wins))
    ps = np.sort(ps)
    m = len(ps)
    passed = [i + 1 for i, p in enumerate(ps) if p <= (i + 1) * 0.05 / (m * np.sum(1 / np.arange(1, m + 1)))]
    return max(passed, default=0) / m, np.mean(rhos), ps


SCORES = {
    "accuracy": lambda a, others: np.mean(np.array(others) == a),
    "rmse": lambda a, others: -np.sqrt(np.mean((np.array(others) - a) ** 2.0)),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("seed", range(3))
def test_counting_equals_the_procedure_instance_by_instance(score, seed):
    labels = simulated(seed=seed, error_model=0.2 + 0.1 * seed)
    winning, advantage, p = brute_force(labels, 0.15, SCORES[score])
    result = outcome(labels, epsilon=0.15, score=score)
    row = result.table.to_pylist()[0]
    assert row["winning_rate"] == winning
    assert row["advantage_probability"] == pytest.approx(advantage, abs=1e-12)
    assert np.sort(result.people["p_value"].to_numpy()) == pytest.approx(p, rel=1e-9)


def test_a_function_can_be_the_score():
    labels = simulated()
    by_name = outcome(labels, score="rmse").table.to_pylist()
    by_function = outcome(labels, score=lambda a, b: -((a - b) ** 2)).table.to_pylist()
    assert by_name == by_function


def test_a_perfect_model_passes_and_a_random_one_does_not():
    best, worst = outcome(simulated(error_model=0.0)), outcome(simulated(error_model=1.0))
    assert best.table["winning_rate"].to_pylist() == [1.0]
    assert best.table["advantage_probability"][0].as_py() > 0.9
    assert worst.table["winning_rate"].to_pylist() == [0.0]
    flawless = outcome(simulated(error_model=0.0, error_people=0.0, labelled=1.0)).table.to_pylist()[0]
    assert flawless["winning_rate"] == flawless["advantage_probability"] == 1.0


def test_the_order_of_annotators_is_irrelevant():
    labels = simulated()
    shuffled = labels[:, [3, 1, 4, 0, 2, 5]]
    one, other = outcome(labels).table.to_pylist()[0], outcome(shuffled).table.to_pylist()[0]
    assert one.pop("advantage_probability") == pytest.approx(other.pop("advantage_probability"), abs=1e-12)
    assert {**one, "model": 0} == {**other, "model": 0}


def test_a_larger_epsilon_never_lowers_the_winning_rate():
    labels = simulated(error_model=0.4)
    rates = [outcome(labels, epsilon=e).table["winning_rate"][0].as_py() for e in np.linspace(0, 0.6, 13)]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_a_copy_of_a_person_is_as_good_as_that_person():
    labels = simulated(labelled=1.0)
    labels[:, -1] = labels[:, 0]
    people = outcome(labels).people.to_pylist()
    assert people[0]["difference"] == 0.0
    assert all(abs(row["difference"]) < 0.15 for row in people)


def test_the_smallest_epsilon_is_where_the_model_begins_to_pass():
    labels = simulated(error_model=0.4)
    needed = outcome(labels).needed.to_pylist()[0]["epsilon"]
    assert outcome(labels, epsilon=needed).table["passed"][0].as_py()
    assert not outcome(labels, epsilon=needed - 0.001).table["passed"][0].as_py()


def test_the_instances_needed_give_the_model_its_chance():
    labels = simulated(n=4000, labelled=1.0)
    needed = outcome(labels, epsilon=0.1).needed.to_pylist()[0]["n_instances"]
    rng = np.random.default_rng(1)
    passed = [outcome(labels[rng.integers(0, 4000, needed)], epsilon=0.1).table["passed"][0].as_py() for _ in range(60)]
    assert 0.6 < np.mean(passed) <= 1.0
    assert outcome(simulated(error_model=1.0)).needed["n_instances"].to_pylist() == [None]


def test_abstentions_and_repeats():
    labels = simulated(labelled=1.0)
    labels[:50, -1] = -1
    row = outcome(labels).table.to_pylist()[0]
    assert (row["n_instances"], row["n_abstained"]) == (250, 50)
    crowd = Annotations.from_dense(labels)
    again = Annotations.concat([Annotations.from_dense(np.where(labels < 0, -1, (labels + 1) % 4)), crowd])
    people_twice = again.where(~((again.annotator == 5) & (np.arange(len(again)) < len(crowd))))
    last = judges.alt_test(people_twice, models=[5], n_bootstrap=0).table.to_pylist()[0]
    assert {**last, "model": 0} == {**row, "model": 0}  # of repeated labels of people, the last counts


def test_the_most_frequent_of_several_draws_is_the_label_of_a_model():
    labels = simulated(labelled=1.0)
    crowd = Annotations.from_dense(labels)
    model = crowd.where(crowd.annotator == 5)
    other = Annotations.from_dense(np.where(np.arange(6) == 5, (labels + 1) % 4, -1))
    drawn = Annotations.concat([crowd, model, other])
    assert judges.alt_test(drawn, [5], n_bootstrap=0).table.to_pylist() == outcome(labels).table.to_pylist()


def test_an_expert_is_the_measure():
    labels = simulated(error_model=0.1, labelled=1.0)
    rng = np.random.default_rng(0)
    labels[:, 0] = np.where(rng.random(300) < 0.95, labels[:, -1], labels[:, 0])
    result = outcome(labels, expert=0, people="expert")
    assert result.table.to_pylist()[0]["n_people"] == 4
    assert result.epsilon == 0.2
    agreed = np.mean(labels[:, -1] == labels[:, 0])
    first = result.people.to_pylist()[0]
    mine = np.mean((labels[:, -1] == labels[:, 0]) >= (labels[:, 1] == labels[:, 0]))
    assert first["model_advantage"] == pytest.approx(mine)
    assert agreed > 0.9


def test_few_instances_are_refused_or_compared_by_ranks():
    labels = simulated(n=20, labelled=1.0, error_model=0.0)
    with pytest.raises(DataError, match="the most that anybody has is 20: 10 labels are missing"):
        outcome(labels)
    assert outcome(labels, min_instances=20, test="wilcoxon").table["n_people"].to_pylist() == [5]


def test_few_people_are_warned_about():
    with pytest.warns(CrowdwiseWarning, match="fewer than 3 people"):
        outcome(simulated(people=2, labelled=1.0))


def test_the_interval_holds_the_advantage_probability():
    row = outcome(simulated(), n_bootstrap=100).table.to_pylist()[0]
    assert row["low"] < row["advantage_probability"] < row["high"] < row["low"] + 0.15


def test_models_must_be_known():
    crowd = Annotations.from_dense(simulated())
    with pytest.raises(ConfigError, match="none of the annotators is known to be a model"):
        judges.alt_test(crowd)
    with pytest.raises(ConfigError, match="no annotator is called 'gpt'"):
        judges.alt_test(crowd, ["gpt"])
    kinds = np.array(["person"] * 5 + ["model"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert judges.alt_test(crowd, kinds=kinds).table["model"].to_pylist() == [5]


@pytest.mark.parametrize("n", [30, 35, 60])
def test_few_differences_do_not_make_the_test_too_sure(n):
    """People agree on everything, and a model is wrong in a tenth of the items: it is worse by epsilon exactly."""
    rng = np.random.default_rng(0)
    passed = []
    for _ in range(300):
        truth = rng.integers(0, 2, n)
        model = np.where(rng.random(n) < 0.1, 1 - truth, truth)
        crowd = Annotations.from_dense(np.column_stack([truth, truth, truth, model]))
        passed.append(judges.alt_test(crowd, [3], n_bootstrap=0).table["passed"][0].as_py())
    assert np.mean(passed) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 300)


def test_few_differences_have_the_exact_p_value():
    """Of 50 items, the model is wrong on 2 and right where p0 is wrong on 1: a person who is better in a tenth of the cases
    is better in 2 of 50 or fewer with this probability."""
    truth = np.arange(50) % 2
    model, p0 = truth.copy(), truth.copy()
    model[:2] = 1 - model[:2]
    p0[-1] = 1 - p0[-1]
    crowd = Annotations.from_dense(np.column_stack([p0, truth, truth, model]))
    rows = judges.alt_test(crowd, [3], n_bootstrap=0).people.to_pylist()
    expected = sum(math.comb(50, k) * 0.1**k * 0.9 ** (50 - k) for k in range(3))
    assert rows[0]["p_value"] == pytest.approx(expected)
    assert rows[1]["p_value"] == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:fewer than 3 people")
def test_people_with_too_few_instances_are_counted():
    """Of four people, two have 40 instances, one has 12, and one has labelled nothing that others did."""
    rows = [(i, who, i % 2) for i in range(40) for who in ("a", "b", "gpt")]
    rows += [(i, "c", i % 2) for i in range(12)] + [(100 + i, "d", 1) for i in range(30)]
    crowd = Annotations.from_frame(
        {name: [row[k] for row in rows] for k, name in enumerate(("item", "worker", "label"))}
    )
    for least, people, skipped in ((30, 2, 1), (12, 3, 0), (13, 2, 1)):
        row = judges.alt_test(crowd, ["gpt"], min_instances=least, n_bootstrap=0).table.to_pylist()[0]
        assert (row["n_people"], row["n_skipped"], row["n_instances"]) == (people, skipped, 40)


def pass_rate(n, epsilon, draws=300, **options):
    """How often a model passes that is wrong in epsilon of the items, where people are never wrong."""
    rng = np.random.default_rng(4)
    passed = []
    for _ in range(draws):
        truth = rng.integers(0, 2, n)
        model = np.where(rng.random(n) < epsilon, 1 - truth, truth)
        crowd = Annotations.from_dense(np.column_stack([truth, truth, truth, model]))
        found = judges.alt_test(crowd, [3], epsilon=epsilon, min_instances=n, n_bootstrap=0, **options)
        passed.append(found.table["passed"][0].as_py())
    return np.mean(passed)


def test_ranks_do_not_let_a_model_pass_that_is_worse_by_epsilon():
    """Most items are ties, which count as small wins of the model: signed ranks alone let 8 of 10 such models pass."""
    assert pass_rate(20, 0.1, test="wilcoxon") <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 300)
    assert pass_rate(40, 0.15, test="wilcoxon") <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 300)


def test_p_values_of_ranks_are_at_least_those_of_all_outcomes():
    """Of 12 items the model loses 1 and wins 3; every sequence of 12 outcomes is tried out at several rates of losses."""
    n, epsilon = 12, 0.3
    outcomes = [(b, n - b - w, w) for b in range(n + 1) for w in range(n + 1 - b)]

    def student(b, _, w):
        values = np.repeat([1.0, -1.0, 0.0], [b, w, n - b - w])
        spread = values.std(ddof=1)
        return (values.mean() - epsilon) / (spread / np.sqrt(n)) if spread else np.sign(values.mean() - epsilon) * 1e9

    seen = student(1, 8, 3)
    rates = np.linspace(epsilon, (1 + epsilon) / 2, 200)
    as_small = [one for one in outcomes if student(*one) <= seen + 1e-9]
    p = max(
        sum(stats.multinomial.pmf(one, n, [q, 1 - 2 * q + epsilon, q - epsilon]) for one in as_small) for q in rates
    )
    truth = np.zeros(n, int)
    person, model = truth.copy(), truth.copy()
    model[0] = 1
    person[1:4] = 1
    crowd = Annotations.from_dense(np.column_stack([person, truth, truth, model]))
    options = {"epsilon": epsilon, "min_instances": n, "n_bootstrap": 0}
    row = judges.alt_test(crowd, [3], test="wilcoxon", **options).people.to_pylist()[0]
    ranks = stats.wilcoxon(np.repeat([0.7, -0.3, -1.3], [1, 8, 3]), alternative="less").pvalue
    assert row["p_value"] == pytest.approx(max(p, ranks), rel=0.01)
    assert p > ranks


def test_the_interval_of_the_advantage_probability_holds_it_where_losses_are_few():
    """Percentiles of resamples hold it in 86 % of such crowds."""
    rng = np.random.default_rng(5)
    held = []
    for _ in range(300):
        truth = rng.integers(0, 2, 35)
        model = np.where(rng.random(35) < 0.1, 1 - truth, truth)
        crowd = Annotations.from_dense(np.column_stack([truth, truth, truth, model]))
        row = judges.alt_test(crowd, [3], n_bootstrap=100).table.to_pylist()[0]
        assert row["low"] <= row["advantage_probability"] <= row["high"]
        held.append(row["low"] <= 0.9 <= row["high"])
    assert np.mean(held) >= 0.93 - 2 * np.sqrt(0.95 * 0.05 / 300)


def test_ranks_look_at_all_differences_where_nothing_is_allowed_for():
    """With an epsilon of 0, ties are no differences: the model is better in 12 of 30 items, and never worse."""
    truth = np.arange(30) % 2
    person = np.where(np.arange(30) < 12, 1 - truth, truth)
    crowd = Annotations.from_dense(np.column_stack([person, truth, truth, truth]))
    row = judges.alt_test(crowd, [3], epsilon=0.0, test="wilcoxon", n_bootstrap=0).people.to_pylist()[0]
    assert row["p_value"] < 0.01
    same = judges.alt_test(np.column_stack([truth] * 4), [3], epsilon=0.0, test="wilcoxon", n_bootstrap=0)
    assert set(same.people["p_value"].to_pylist()) == {1.0}
