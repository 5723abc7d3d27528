"""What two or three labels per instance show about the dependence of errors, and who is judged by what."""

from __future__ import annotations

import numpy as np
import pytest
from crowds import simulated
from numpy.testing import assert_allclose, assert_array_equal

from crowdwise.aggregation import Committee, DawidSkene, HierarchicalDawidSkene, MajorityVote, Wawa
from crowdwise.aggregation.core import correlation, patterns
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.kernels import Layout
from crowdwise.annotations import Annotations
from crowdwise.quality import annotators

SKILLS = np.array([0.9, 0.8, 0.85, 0.7, 0.75, 0.92])


def fraud(seed: int, share: float = 0.12, n: int = 1_500) -> tuple[Annotations, np.ndarray]:
    """Six annotators who err independently, three labels per instance, and a rare class."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < share).astype(int)
    annotator = np.argsort(rng.random((n, 6)), axis=1)[:, :3].ravel()
    instance = np.repeat(np.arange(n), 3)
    label = np.where(rng.random(3 * n) < SKILLS[annotator], truth[instance], 1 - truth[instance])
    return Annotations.from_triples(instance, annotator, label), truth


def shown(crowd: Annotations) -> float:
    """The correlation that patterns show."""
    return MemoryCrowd.of(crowd).patterns.correlation(correlation.typical())


def test_independent_errors_show_with_three_labels() -> None:
    right, claimed, votes = [], [], []
    for seed in range(3):
        crowd, truth = fraud(seed)
        model = HierarchicalDawidSkene().fit(crowd)
        assert model.tempering_.correlation < 0.15
        right.append((model.labels_ == truth).mean())
        claimed.append(model.posterior_.max(axis=1).mean())
        votes.append((MajorityVote().fit(crowd).labels_ == truth).mean())
    assert abs(np.mean(claimed) - np.mean(right)) < 0.03
    assert np.mean(right) > np.mean(votes) + 0.02


def test_where_nothing_can_be_known_the_typical_correlation_stays() -> None:
    typical = correlation.typical()
    assert shown(Annotations.coerce([[0, 0, 1], [1, 1, 1], [0, 1, 1]])) == pytest.approx(typical, abs=0.01)
    assert shown(simulated(600, 20, 2, 2, (0.7, 0.9), seed=0)[0]) > 0.2  # two labels, two classes
    assert shown(simulated(300, 20, 3, 7, seed=0)[0]) == pytest.approx(typical)  # more labels tell it otherwise


def test_classes_that_are_confused_with_each_other_make_patterns_unreadable() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.integers(4, size=1_500), 3)
    label = np.where(rng.random(4_500) < 0.75, truth, truth ^ 1)  # 0 with 1, and 2 with 3
    crowd = Annotations.from_triples(np.repeat(np.arange(1_500), 3), np.tile([0, 1, 2], 1_500), label)
    assert MemoryCrowd.of(crowd).patterns.belief < 0.01
    even = np.where(rng.random(4_500) < 0.75, truth, (truth + rng.integers(1, 4, 4_500)) % 4)
    crowd = Annotations.from_triples(np.repeat(np.arange(1_500), 3), np.tile([0, 1, 2], 1_500), even)
    assert MemoryCrowd.of(crowd).patterns.belief > 0.9
    assert shown(crowd) < 0.15


def test_hard_instances_show() -> None:
    rng = np.random.default_rng(1)
    truth, hard = np.repeat(rng.integers(5, size=2_000), 3), np.repeat(rng.random(2_000) < 0.4, 3)
    label = np.where(rng.random(6_000) < np.where(hard, 0.2, 0.95), truth, (truth + rng.integers(1, 5, 6_000)) % 5)
    assert shown(Annotations.from_triples(np.repeat(np.arange(2_000), 3), np.tile([0, 1, 2], 2_000), label)) > 0.2


def layout_of(answers: list[list[int]]) -> Layout:
    places = np.argwhere(np.array(answers) >= 0)
    label = np.array(answers)[tuple(places.T)]
    return MemoryCrowd.of(Annotations.from_triples(*places.T, label, n_classes=3)).layout


def test_patterns_are_counted_in_parts() -> None:
    answers = [[0, 1, 1], [1, 0, 1], [2, 2, -1], [0, -1, -1], [1, 1, 1]]
    layout = layout_of(answers)
    table = patterns.count(layout, 1).reshape(4, 4, 4)
    assert (table[0, 1, 1], table[2, 2, 3], table[1, 1, 1], table.sum()) == (2, 1, 1, 4)
    halves = [layout_of(part) for part in (answers[:2], answers[2:])]
    assert_array_equal(sum(patterns.count(half, 1) for half in halves), table.ravel())
    weight = np.ones(len(layout.cells), np.float32)
    assert_array_equal(patterns.count(layout._replace(weight=weight), 1), table.ravel())
    assert patterns.count(layout._replace(weight=weight / 2), 1).sum() == 0
    assert patterns.count(layout._replace(shape=(3, 100)), 1).sum() == 0  # a table too large


def test_annotators_are_neither_drawn_to_chance_nor_flattered() -> None:
    errors, inside = [], []
    for seed in range(3):
        crowd, truth = fraud(seed)
        model = Committee(random_state=0).fit(crowd)
        assert_allclose(model.judging_posterior_, model.members_["hierarchical-dawid-skene"].judging_posterior_)
        table = annotators(crowd, model)
        low, mean, high = (table[f"annotator_quality{end}"].to_numpy() for end in ("_low", "", "_high"))
        errors.append(mean - SKILLS)
        inside.append((low <= SKILLS) & (high >= SKILLS))
        said = np.zeros((2, 2))
        np.add.at(said, crowd.label, model.judging_posterior_[crowd.instance])
        true = (crowd.label[truth[crowd.instance] == 1] == 0).mean()
        assert abs(said[0, 1] / said[:, 1].sum() - true) < 0.12
    assert abs(np.mean(errors)) < 0.02
    assert np.mean(inside) > 0.85


def test_judging_lies_halfway() -> None:
    crowd, _ = simulated(200, 15, 3, 5, seed=0)
    model = DawidSkene().fit(crowd)
    assert_allclose(model.judging_posterior_, (model.posterior_ + model.raw_posterior_) / 2)
    bare, shares = DawidSkene(calibration="none").fit(crowd), Wawa(calibration="crowd").fit(crowd)
    assert bare.judging_posterior_ is bare.posterior_
    assert shares.judging_posterior_ is shares.posterior_
    assert Committee().fit(np.zeros((3, 2), int).tolist()).judging_posterior_.shape == (3, 1)
