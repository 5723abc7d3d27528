from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from crowdwise.errors import ConfigError
from crowdwise.simulate import draw_pairs
from crowdwise.simulate.pairs import distinct


def assert_sorted_distinct_and_in_range(instance, annotator, n, size):
    codes = instance * size + annotator
    assert np.all(np.diff(codes) > 0)
    assert instance.min() >= 0
    assert instance.max() < n
    assert annotator.min() >= 0
    assert annotator.max() < size


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.floats(0, 1), st.sampled_from(["binomial", "paper", "exact"]))
def test_pairs_are_distinct_and_every_instance_has_one(n, size, density, scheme):
    mean = 1 + density * (size - 1)
    instance, annotator = draw_pairs(n, size, labels_per_instance=mean, pairs=scheme, random_state=n)
    assert_sorted_distinct_and_in_range(instance, annotator, n, size)
    assert np.bincount(instance, minlength=n).min() >= 1


@pytest.mark.parametrize("mean", [1.0, 1.5, 2.0, 5.0])
def test_binomial_counts_have_the_mean_and_spread_of_the_released_code(mean):
    n = 50_000
    instance, annotator = draw_pairs(n, 300, labels_per_instance=mean, pairs="binomial")
    counts = np.bincount(instance)
    assert abs(counts.mean() - mean) <= 3 * np.sqrt((mean - 1) / n)
    assert counts.var() == pytest.approx(mean - 1, rel=0.05, abs=1e-12)
    per_annotator = np.bincount(annotator, minlength=300)
    assert per_annotator.mean() == pytest.approx(n * counts.mean() / 300)
    assert abs(per_annotator - per_annotator.mean()).max() < 6 * np.sqrt(per_annotator.mean())


def test_a_third_of_the_instances_has_one_label_when_the_mean_is_two():
    instance, _ = draw_pairs(50_000, 300, labels_per_instance=2.0, pairs="binomial")
    assert np.mean(np.bincount(instance) == 1) == pytest.approx(0.368, abs=0.01)


def test_paper_scheme_gives_each_annotator_its_share_beyond_the_first_draw():
    n, size = 3_000, 30
    instance, annotator = draw_pairs(n, size, labels_per_instance=2.5, pairs="paper", random_state=4)
    assert len(instance) == n + size * 150
    assert np.bincount(annotator).min() >= 150
    first_draw = np.bincount(annotator) - 150
    assert first_draw.sum() == n
    assert first_draw.mean() == pytest.approx(100)


def test_exact_counts_are_the_two_integers_next_to_the_mean():
    instance, _ = draw_pairs(10_000, 20, labels_per_instance=2.3, pairs="exact")
    counts = np.bincount(instance)
    assert set(counts.tolist()) == {2, 3}
    assert counts.mean() == pytest.approx(2.3, abs=0.02)


def test_each_annotator_gives_exactly_the_wanted_number_of_labels():
    instance, annotator = draw_pairs(100, 7, labels_per_annotator=60)
    assert_array_equal(np.bincount(annotator), np.full(7, 60))
    assert_sorted_distinct_and_in_range(instance, annotator, 100, 7)


@pytest.mark.parametrize(
    ("n", "size", "votes", "per_annotator"), [(100, 10, 3, 30), (12, 9, 3, 4), (7, 7, 5, 5), (5, 4, 4, 5)]
)
def test_a_balanced_design_fixes_both_counts(n, size, votes, per_annotator):
    for seed in range(20):
        instance, annotator = draw_pairs(
            n, size, labels_per_instance=votes, labels_per_annotator=per_annotator, random_state=seed
        )
        assert_sorted_distinct_and_in_range(instance, annotator, n, size)
        assert_array_equal(np.bincount(instance), np.full(n, votes))
        assert_array_equal(np.bincount(annotator), np.full(size, per_annotator))


def test_three_votes_are_the_default_and_small_crowds_all_vote():
    assert len(draw_pairs(50, 10)[0]) == 150
    assert len(draw_pairs(50, 2)[0]) == 100


def test_everybody_labels_everything_at_the_upper_bound():
    for scheme in ("binomial", "exact"):
        assert len(draw_pairs(40, 6, labels_per_instance=6, pairs=scheme)[0]) == 240
    assert len(draw_pairs(40, 1, labels_per_instance=1, pairs="binomial")[0]) == 40


def test_subsets_are_uniform_whether_few_or_most_are_chosen():
    rng = np.random.default_rng(0)
    for count in (2, 4):
        owner, number = distinct(np.full(20_000, count), 5, rng)
        assert_array_equal(np.bincount(owner), np.full(20_000, count))
        subsets = np.bincount(np.bincount(owner, weights=2.0**number).astype(int), minlength=32)
        subsets = subsets[subsets > 0]
        expected = 20_000 / len(subsets)
        assert len(subsets) == {2: 10, 4: 5}[count]
        assert np.sum((subsets - expected) ** 2 / expected) < 35  # chi-square with at most 9 degrees of freedom


def test_the_same_seed_gives_the_same_pairs_and_another_seed_others():
    first, again, other = (draw_pairs(200, 30, random_state=seed)[1] for seed in (1, 1, 2))
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_many_annotators_cost_no_memory_of_their_own():
    import tracemalloc

    tracemalloc.start()
    instance, _ = draw_pairs(20_000, 30_000, labels_per_instance=2.0, pairs="binomial")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(instance) == pytest.approx(40_000, rel=0.02)
    assert peak < 20e6  # 20,000 x 30,000 booleans would be 600 MB


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels_per_instance": 0.5}, "labels_per_instance must be a number of 1 or more, got 0.5"),
        ({"labels_per_instance": 5}, "labels_per_instance must be at most the number of annotators, 4, got 5"),
        ({"labels_per_annotator": 11}, "labels_per_annotator must be at most the number of instances, 10, got 11"),
        (
            {"labels_per_annotator": 3, "labels_per_instance": 2},
            "4 annotators x 3 labels do not equal 10 instances x 2 labels",
        ),
        ({"pairs": "papper"}, "unknown pairs 'papper'; did you mean 'paper'"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        draw_pairs(10, 4, **arguments)


def test_an_empty_crowd_is_refused():
    with pytest.raises(ConfigError, match="n_annotators must be an integer of 1 or more, got 0"):
        draw_pairs(10, 0)
