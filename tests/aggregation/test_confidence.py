"""Confidence that does not take errors for independent; committees and panels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from crowds import simulated
from numpy.testing import assert_allclose, assert_array_equal

from crowdwise.aggregation import (
    EBCC,
    Committee,
    DawidSkene,
    HierarchicalDawidSkene,
    MajorityVote,
    Panel,
    Wawa,
    recommend,
)
from crowdwise.aggregation.core import correlation, queries, tempering
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.dependence import alike, effective_votes, error_correlations
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.quality import annotators, calibration

EVEN = 3  # classes


def models_and_people(seed: int, n: int = 400) -> tuple[Annotations, np.ndarray]:
    """Three models that share most errors label everything; ten people label three times per instance."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, EVEN, n)

    def answers(accuracy: object) -> np.ndarray:
        return np.where(rng.random(n) < accuracy, truth, (truth + rng.integers(1, EVEN, n)) % EVEN)

    common, skill = answers(0.82), rng.uniform(0.7, 0.95, 10)
    labels = np.full((n, 13), -1)
    for j in range(3):
        labels[:, j] = np.where(rng.random(n) < 0.8, common, answers(0.82))
    people = np.argsort(rng.random((n, 10)), axis=1)[:, :3]
    for k in range(3):
        labels[np.arange(n), 3 + people[:, k]] = answers(skill[people[:, k]])
    return Annotations.coerce(labels), truth


def misleading(seed: int, n: int = 600) -> tuple[Annotations, np.ndarray]:
    """A fifth of the instances looks like another class to most."""
    crowd, truth = simulated(n, 30, 3, 7, (0.7, 0.95), seed=seed)
    odd = np.random.default_rng(seed).random(n) < 0.2
    swap = odd[crowd.instance] & (np.random.default_rng(seed + 1).random(len(crowd)) < 0.5)
    label = np.where(swap, (truth[crowd.instance] + 1) % 3, crowd.label)
    return Annotations.from_triples(crowd.instance, crowd.annotator, label, n_classes=3), truth


def test_labels_stay_and_no_posterior_becomes_surer() -> None:
    crowd, _ = misleading(0)
    model = DawidSkene().fit(crowd)
    assert_allclose(model.posterior_.sum(axis=1), 1.0)
    assert_array_equal(model.posterior_.argmax(axis=1), model.raw_posterior_.argmax(axis=1))
    assert np.all(model.posterior_.max(axis=1) <= model.raw_posterior_.max(axis=1) + 1e-9)
    raw = DawidSkene(calibration="none").fit(crowd)
    assert raw.posterior_ is raw.raw_posterior_
    assert_allclose(raw.posterior_, model.raw_posterior_)


def test_compiled_and_plain_tempering_agree() -> None:
    crowd, truth = misleading(1)
    layout = MemoryCrowd.of(crowd, np.where(np.arange(600) < 9, truth, -1).astype(np.int32)).layout
    posterior = np.random.default_rng(0).dirichlet(np.full(3, 0.3), 600)
    weight = np.random.default_rng(1).random(30)
    for given in (None, weight):
        plain, compiled = (layout._replace(compiled=flag) for flag in (False, True))
        assert_allclose(
            tempering.vote_evidence(plain, posterior, given), tempering.vote_evidence(compiled, posterior, given)
        )
        assert_allclose(
            tempering.tempered(plain, posterior, 1.3, 0.2, given),
            tempering.tempered(compiled, posterior, 1.3, 0.2, given),
        )


def test_ties_stay_ties_and_unlabelled_instances_as_they_are() -> None:
    layout = MemoryCrowd.of(Annotations.coerce([[0, 1, 2], [0, 0, 1], [-1, -1, -1]])).layout
    posterior = np.array([[1 / 3, 1 / 3, 1 / 3], [0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
    found = tempering.tempered(layout, posterior, 1.0, 0.2)
    assert_allclose(found[[0, 2]], posterior[[0, 2]])
    shares = MajorityVote(calibration="crowd").fit([[0, 1, -1], [0, 0, 1]])
    assert_allclose(shares.posterior_[0], 0.5, atol=0.06)


def test_misleading_instances_are_allowed_for() -> None:
    errors, raw, gaps = [], [], []
    for seed in range(3):
        crowd, truth = misleading(seed)
        model = HierarchicalDawidSkene().fit(crowd)
        found = calibration(model.posterior_, truth, n_bins=10)
        errors.append(found.ece)
        gaps.append(found.confidence - found.accuracy)
        raw.append(calibration(model.raw_posterior_, truth, n_bins=10).ece)
    assert abs(np.mean(gaps)) < 0.05
    assert np.mean(errors) < max(0.07, np.mean(raw))


def test_gold_labels_correct_confidence() -> None:
    crowd, truth = simulated(1_500, 30, 3, 5, (0.6, 0.9), seed=2)  # errors are independent
    known = {i: int(truth[i]) for i in range(300)}
    bare, told = HierarchicalDawidSkene().fit(crowd), HierarchicalDawidSkene().fit(crowd, known)
    assert told.tempering_.n_gold == 300
    layout, usual = told._crowd.layout, 0.4  # as if the crowd had shown dependent errors
    without = bare.raw_posterior_
    corrected = tempering.correlation_from_gold(layout, without, bare.tempering_.vote, usual)
    assert corrected < 0.15
    assert tempering.correlation_from_gold(layout._replace(gold=np.empty(0, np.int32)), without, 1.0, usual) == usual
    gaps = []
    for rho in (usual, corrected):
        claimed = tempering.tempered(bare._crowd.layout, without, bare.tempering_.vote, rho)[300:].max(axis=1).mean()
        gaps.append(abs(float(claimed - (bare.labels_ == truth)[300:].mean())))
    assert gaps[1] < gaps[0]


def test_one_label_per_instance_says_nothing_about_skill() -> None:
    alone = np.array([[0], [1], [0], [1]])
    model = MajorityVote().fit(alone)
    assert not model.comparable_
    assert_array_equal(model.skill_interval(), [[0.0, 1.0]])
    row = annotators(alone, model).to_pylist()[0]
    assert row["annotator_quality"] is None
    assert (row["annotator_quality_low"], row["annotator_quality_high"]) == (0.0, 1.0)
    chosen = recommend(alone)
    assert chosen.estimator.posterior_.max() < 0.9


def test_no_annotator_is_said_to_drift_by_chance() -> None:
    flagged = 0
    for seed in range(20):
        crowd, _ = simulated(200, 15, 3, 5, (0.6, 0.9), seed=seed)
        times = np.random.default_rng(seed).permutation(len(crowd)).astype(float)
        table = annotators(crowd, timestamps=times)
        low, high = (table[name].to_numpy(zero_copy_only=False) for name in ("drift_low", "drift_high"))
        flagged += bool(np.any((low > 0) | (high < 0)))
    assert flagged <= 3


# who errs alike


def test_effective_votes_of_a_shared_latent() -> None:
    rng = np.random.default_rng(0)
    n, k, rate, rho = 6_000, 6, 0.3, 0.5
    shared, follow = rng.random(n) < rate, rng.random((n, k)) < np.sqrt(rho)
    wrong = np.where(follow, shared[:, None], rng.random((n, k)) < rate)
    truth = rng.integers(0, 2, n)
    layout = MemoryCrowd.of(Annotations.coerce(np.where(wrong, 1 - truth[:, None], truth[:, None]))).layout
    found, common = error_correlations(layout, np.eye(2)[truth], np.arange(k))
    assert np.all(common == n)
    assert effective_votes(found) == pytest.approx(k / (1 + (k - 1) * rho), rel=0.1)


def test_few_common_instances_have_no_correlation() -> None:
    layout = MemoryCrowd.of(Annotations.coerce(np.zeros((5, 2), int).tolist())).layout
    found, _ = error_correlations(layout, np.tile([0.5, 0.5], (5, 1))[:, : layout.shape[1]], np.arange(2))
    assert np.isnan(found[0, 1])
    assert effective_votes(found) == 2.0


def test_models_among_people_are_found_and_independent_annotators_are_not() -> None:
    crowd, _ = models_and_people(0)
    assert_array_equal(alike(MemoryCrowd.of(crowd).layout), [0, 0, 0] + [-1] * 10)
    for seed in range(3):
        assert np.all(alike(MemoryCrowd.of(simulated(300, 12, 3, 6, (0.6, 0.95), seed=seed)[0]).layout) < 0)


# panel and committee


def test_copies_of_a_judge_are_one_judge() -> None:
    crowd, _ = simulated(300, 6, 3, 6, (0.6, 0.9), seed=3)
    labels = np.full((300, 6), -1)
    labels[crowd.instance, crowd.annotator] = crowd.label
    copied = np.concatenate([labels[:, :1]] * 4 + [labels[:, 1:]], axis=1)
    one = Panel(models=[0], calibration="none", tol=0, max_iter=50).fit(labels)
    four = Panel(models=[0, 1, 2, 3], exponent=0.25, calibration="none", tol=0, max_iter=50).fit(copied)
    assert_allclose(four.posterior_, one.posterior_, atol=1e-6)
    kish = Panel(models=[0, 1, 2, 3], exponent="kish").fit(copied)
    assert kish.exponents_[0] == pytest.approx(0.25, abs=0.03)


def test_independent_judges_are_dawid_skene() -> None:
    crowd, _ = simulated(400, 14, 3, 14, (0.6, 0.9), seed=4)
    panel = Panel().fit(crowd)
    assert_array_equal(panel.exponents_, 1.0)
    assert_allclose(panel.raw_posterior_, DawidSkene().fit(crowd).raw_posterior_)
    models = Panel(models=list(range(4)), exponent="kish").fit(crowd)
    assert models.exponents_[0] > 0.8


def test_panel_and_recommendation_where_models_err_alike() -> None:
    ours, votes, gaps, inside = [], [], [], []
    for seed in range(4):
        crowd, truth = models_and_people(seed)
        chosen = recommend(crowd, random_state=0)
        assert chosen.name == "panel"
        assert "err alike" in chosen.reason
        model = chosen.estimator
        ours.append((model.labels_ == truth).mean())
        votes.append((chosen.majority_vote.labels_ == truth).mean())
        gaps.append(model.posterior_.max(axis=1).mean() - ours[-1])
        right = np.bincount(crowd.annotator, crowd.label == truth[crowd.instance]) / crowd.labels_per_annotator
        interval = model.skill_interval()
        inside.append(((interval[:, 0] <= right) & (right <= interval[:, 1])).mean())
    assert np.mean(ours) > np.mean(votes)
    assert abs(np.mean(gaps)) < 0.05
    assert np.mean(inside) > 0.85


def test_a_panel_of_models_alone_counts_as_one_vote_and_says_so() -> None:
    crowd, truth = models_and_people(1)
    only = crowd.annotator < 3
    models = Annotations.from_triples(crowd.instance[only], crowd.annotator[only], crowd.label[only])
    with pytest.warns(CrowdwiseWarning, match="count as one vote"):
        panel = Panel(models=[0, 1, 2]).fit(models)
    assert_allclose(panel.exponents_, 1 / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CrowdwiseWarning)
        told = Panel(models=[0, 1, 2]).fit(models, {i: int(truth[i]) for i in range(100)})
    assert told.exponents_from_ == "gold"
    rest = np.arange(100, 400)
    assert calibration(told.posterior_[rest], truth[rest], n_bins=10).ece < 0.1
    assert calibration(DawidSkene().fit(models).raw_posterior_[rest], truth[rest], n_bins=10).ece > 0.1


def test_a_panel_weighs_labels() -> None:
    """Labels that weigh nearly nothing are as if they were not there, also where exponents are learnt."""
    crowd, _ = models_and_people(0, 150)
    rng = np.random.default_rng(1)
    more = rng.integers(0, 150, 200), rng.integers(0, 13, 200), rng.integers(0, 3, 200)
    triples = [
        np.append(*columns) for columns in zip((crowd.instance, crowd.annotator, crowd.label), more, strict=True)
    ]
    weight = np.append(np.ones(len(crowd)), np.full(200, 1e-6))
    plain = Panel(models=[0, 1, 2], max_iter=20, tol=0).fit(crowd)
    weighted = Panel(models=[0, 1, 2], max_iter=20, tol=0).fit(Annotations.from_triples(*triples, weight=weight))
    assert plain.exponents_from_ == weighted.exponents_from_ == "the consensus of people"
    assert_allclose(weighted.exponents_, plain.exponents_)
    assert_allclose(weighted.raw_posterior_, plain.raw_posterior_, atol=1e-3)


def test_a_panel_refuses_strangers() -> None:
    with pytest.raises(ConfigError, match="none of the annotators named is in this crowd, such as 'gpt'"):
        Panel(models=["gpt", "claude"]).fit([[0, 1], [1, 1]])


def test_a_committee_is_the_mean_of_its_members() -> None:
    crowd, truth = simulated(200, 15, 3, 5, seed=5)
    gold = {0: int(truth[0])}
    model = Committee(n_restarts=1).fit(crowd, gold)
    assert list(model.members_) == ["hierarchical-dawid-skene", "ebcc", "wawa", "majority-vote"]
    votes = MajorityVote().fit(crowd, gold).posterior_
    wawa = Wawa().fit(crowd, gold).posterior_
    matrices = HierarchicalDawidSkene().fit(crowd, gold)
    subtypes = [EBCC(random_state=seed, n_restarts=1).fit(crowd, gold) for seed in range(2)]
    mean = (subtypes[0].posterior_ + subtypes[1].posterior_) / 2
    chosen = (votes + wawa + matrices.posterior_ + mean) / 4
    calibrated = [method(calibration="crowd").fit(crowd, gold).posterior_ for method in (MajorityVote, Wawa)]
    sure = (sum(calibrated) + matrices.posterior_ + mean) / 4
    assert_array_equal(model.posterior_.argmax(axis=1), chosen.argmax(axis=1))
    top = np.arange(200), chosen.argmax(axis=1)
    assert np.mean(np.abs(model.posterior_[top] - sure[top]) < 1e-9) > 0.95
    odds = np.sort(chosen, axis=1)[:, :2], np.sort(model.posterior_, axis=1)[:, :2]
    assert_allclose(odds[1][1:, 0] / odds[1][1:, 1], odds[0][1:, 0] / odds[0][1:, 1])
    raw = (subtypes[0].raw_posterior_ + subtypes[1].raw_posterior_) / 2
    assert_allclose(model.raw_posterior_, (matrices.raw_posterior_ + raw) / 2)
    assert model.posterior_[0, truth[0]] == 1.0
    assert_allclose(model.skill_interval(), matrices.skill_interval(), atol=0.2)
    with pytest.raises(ConfigError, match="two or more different aggregators"):
        Committee(members=("wawa",)).fit(crowd)
    with pytest.raises(ConfigError, match="member of itself"):
        Committee(members=("wawa", "committee")).fit(crowd)


def test_confidence_of_another_posterior_by_hand() -> None:
    layout = MemoryCrowd.of(
        Annotations.from_triples([0, 1, 2, 3, 4], [0] * 5, [0] * 5, n_instances=6, n_classes=3)
    ).layout
    layout = layout._replace(gold=np.array([-1, -1, -1, -1, 2, -1], np.int32))
    posterior = np.array(
        [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [1, 0, 0], [0.2, 0.2, 0.6], [0.6, 0.3, 0.1]]
    )
    other = np.array([[0.7, 0.2, 0.1], [0.9, 0.1, 0.0], [0.9, 0.1, 0], [0.6, 0.2, 0.2], [0.9, 0.1, 0], [0.9, 0.1, 0]])
    expected = [
        [0.7, 0.18, 0.12],  # the others share 0.3 as 3 to 2
        [2 / 8, 3 / 8, 3 / 8],  # 0.1 would not be the most probable class: as much as the next one
        [0.4, 0.4, 0.2],  # a tie
        [1, 0, 0],  # nothing is left to be shared
        [0, 0, 1],  # gold
        [0.6, 0.3, 0.1],  # no labels
    ]
    found = queries.with_confidence(layout, posterior, other)
    assert_allclose(found, expected, atol=2e-6)
    assert queries.choose(found, "first", np.random.default_rng(0)).tolist() == [0, 1, 0, 0, 2, 0]
    assert found[1, 1] > found[1, 2] + queries.TIE_TOLERANCE


def test_a_committee_of_a_large_crowd_leaves_out_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, _ = simulated(60, 8, 3, 4, seed=5)
    monkeypatch.setattr("crowdwise.aggregation.committee.MANY", 100)
    model = Committee().fit(crowd)
    assert list(model.members_) == ["hierarchical-dawid-skene", "wawa", "majority-vote"]
    assert model.spread_ == 0.0
    assert "EBCC" not in recommend(crowd).reason


def several_explanations(seed: int = 1, n: int = 150) -> Annotations:
    """Two camps of annotators who answer questions of their own: which of them is right nobody can tell."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, 4, (2, n))
    labels = np.stack([one] * 4 + [other] * 4, axis=1)
    return Annotations.coerce(np.where(rng.random(labels.shape) < 0.25, rng.integers(0, 4, labels.shape), labels))


@pytest.mark.filterwarnings("ignore:.*depend on random starts")
@pytest.mark.parametrize("make", [lambda: simulated(150, 12, 3, 4, (0.5, 0.8), seed=2)[0], several_explanations])
def test_the_same_crowd_has_the_same_labels_whatever_the_seed(make: Any) -> None:
    crowd = make()
    first = Committee(random_state=0).fit(crowd)
    for seed in (1, 2, None):
        other = recommend(crowd, random_state=seed).estimator
        assert_array_equal(other.posterior_, first.posterior_)


def test_a_fit_that_depends_on_its_start_says_so() -> None:
    spreads = []
    for seed in range(3):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            spreads.append(Committee(n_restarts=1).fit(several_explanations(seed)).spread_)
        assert [f"{spreads[-1]:.0%} of the labels depend on random starts" in str(each.message) for each in said] == [
            True
        ] * (spreads[-1] > 0.067)
    assert max(spreads) > 0.067  # ten labels of 150
    with warnings.catch_warnings(action="error", category=CrowdwiseWarning):
        assert Committee().fit(simulated(150, 12, 3, 5, (0.8, 0.95), seed=2)[0]).spread_ < 0.02


# what the crowd shows


def measured(crowd: Annotations, posterior: np.ndarray) -> float:
    """Excess agreement under a posterior."""
    memory = MemoryCrowd.of(crowd)
    agreed, possible, _ = correlation.excess_agreement(
        memory.layout, posterior, memory.counts(posterior), None, every=1
    )
    return agreed / possible


def test_excess_agreement_is_nothing_where_errors_are_independent() -> None:
    found = []
    for seed in range(4):
        crowd, truth = simulated(600, 30, 3, 7, (0.6, 0.95), seed=seed)
        found.append(measured(crowd, np.eye(3)[truth]))
    assert abs(np.mean(found)) < 0.005
    assert measured(*(lambda made: (made[0], np.eye(3)[made[1]]))(misleading(0))) > 0.1
    model = HierarchicalDawidSkene().fit(simulated(1_000, 30, 3, 8, (0.6, 0.95), seed=9)[0])
    assert model.tempering_.correlation < 0.1 < HierarchicalDawidSkene().fit(misleading(0)[0]).tempering_.correlation


def test_excess_agreement_by_its_formula() -> None:
    crowd, _ = simulated(12, 5, 3, 4, seed=1)
    memory, rng = MemoryCrowd.of(crowd), np.random.default_rng(0)
    posterior, weight = rng.dirichlet(np.ones(3), 12), rng.random(5)
    counts = memory.counts(posterior)
    found = correlation.excess_agreement(memory.layout, posterior, counts, weight, every=1)
    table = counts + correlation.STRENGTH * correlation.crowd_matrix(counts)
    table /= table.sum(axis=1, keepdims=True)
    agreed = possible = 0.0
    for i in range(12):
        own = [(j, y) for k, j, y in zip(crowd.instance, crowd.annotator, crowd.label, strict=True) if k == i]
        for c in range(3):
            for j, y in own:
                for k, z in own:
                    if j != k:  # all labels of an annotator are one voice
                        r, s = np.eye(3)[y] - table[j, :, c], np.eye(3)[z] - table[k, :, c]
                        d = np.sqrt((1 - (table[j, :, c] ** 2).sum()) * (1 - (table[k, :, c] ** 2).sum()))
                        agreed += posterior[i, c] * weight[j] * weight[k] * (r @ s)
                        possible += posterior[i, c] * weight[j] * weight[k] * d
    assert_allclose(found, (agreed, possible, 12 * (2 * 1) / 2))


def test_without_correlation_the_urn_is_the_model() -> None:
    urn = tempering.Urn.of(1.5, 1e-7)
    assert urn.log_odds(5.0) - urn.log_odds(2.0) == pytest.approx(1.5 * 3, rel=1e-3)
    tight = tempering.Urn.of(1.5, 0.5)
    steps = np.diff(tight.log_odds(np.arange(6.0)))
    assert steps[0] == pytest.approx(1.5)  # the first vote says what it says
    assert np.all(np.diff(steps) < 0)  # and every further one less


def test_gold_that_was_chosen_for_its_doubt_does_not_correct_confidence() -> None:
    votes = np.random.default_rng(0).integers(2, size=(60, 3))
    gold = dict(enumerate(1 - votes[:20, 0]))
    usual = DawidSkene(calibration="usual").fit(votes, gold)
    assert usual.tempering_.n_gold == 0
    assert usual.labels_.tolist() == DawidSkene().fit(votes, gold).labels_.tolist()
    assert DawidSkene().fit(votes, gold).tempering_.n_gold == 20


@pytest.mark.parametrize("method", [Committee, HierarchicalDawidSkene, DawidSkene])
def test_intervals_of_skill_hold_with_many_classes(method: type) -> None:
    rng = np.random.default_rng(0)
    n, classes, people = 400, 20, 30
    truth, skill = rng.integers(classes, size=n), rng.uniform(0.55, 0.9, people)
    instance, annotator = np.repeat(np.arange(n), 5), np.concatenate([rng.permutation(people)[:5] for _ in range(n)])
    right = rng.random(5 * n) < skill[annotator]
    label = np.where(right, truth[instance], (truth[instance] + rng.integers(1, classes, 5 * n)) % classes)
    model = method(random_state=0).fit(Annotations.from_triples(instance, annotator, label, n_classes=classes))
    low, high = model.skill_interval(0.95).T
    share = np.bincount(annotator, right, people) / np.bincount(annotator, minlength=people)
    assert np.mean((low <= share) & (share <= high)) >= 0.85
    if method is not DawidSkene:  # whose matrices have a pseudo-count in every cell
        assert np.mean((low <= model.skill_) & (model.skill_ <= high)) >= 0.9
