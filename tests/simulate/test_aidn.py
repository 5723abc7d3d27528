from __future__ import annotations

import importlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from crowdwise.errors import ConfigError, DataError
from crowdwise.simulate import aidn, label_distribution
from crowdwise.simulate.aidn import truncated_normal


def images(n=600, side=6, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(n, side, side), dtype=np.uint8), rng.integers(n_classes, size=n)


@pytest.mark.parametrize(("rate", "mean"), [(0.1, 0.12876), (0.2, 0.20551), (0.3, 0.3), (0.4, 0.39449), (0.5, 0.47124)])
def test_truncation_moves_the_mean_noise_rate(rate, mean):
    q = truncated_normal(rate, 0.1, 0.6, 100_000, np.random.default_rng(0))
    assert q.mean() == pytest.approx(mean, abs=0.002)
    assert q.min() >= 0
    assert q.max() <= 0.6


def test_hand_checked_label_distribution():
    p = label_distribution([1, 2], [[0, 1, 0], [0, 0, 1]], y=0, q=0.4)
    assert_allclose(p, [0.6, 0.107577, 0.292423], atol=1e-6)


def test_raw_pixels_do_not_overflow_and_single_out_one_wrong_class():
    x = np.random.default_rng(0).integers(256, size=(20, 784)).astype(float)
    p = label_distribution(x, np.random.default_rng(1).normal(size=(784, 10)), y=3, q=np.full(20, 0.4))
    assert_allclose(p.sum(axis=1), 1)
    assert_allclose(p[:, 3], 0.6)
    assert np.median(np.sort(p, axis=1)[:, -2]) == pytest.approx(0.4, abs=1e-6)


def test_every_instance_has_a_label_and_the_mean_is_as_asked():
    X, y = images(5_000)
    crowd = aidn(X, y, n_annotators=50, labels_per_instance=2.0)
    counts = crowd.annotations.labels_per_instance
    assert counts.min() >= 1
    assert abs(counts.mean() - 2) <= 3 * np.sqrt(1 / 5_000)


def test_rows_are_the_distributions_the_labels_come_from():
    X, y = images(20_000, side=3)
    crowd = aidn(X, y, n_annotators=9, labels_per_instance=2.0, pixel_scale=1)
    a = crowd.annotations
    assert_allclose(crowd.rows.sum(axis=1), 1)
    for true in range(4):
        drawn = np.bincount(a.label[y[a.instance] == true], minlength=4)
        expected = crowd.rows[y[a.instance] == true].sum(axis=0)
        assert np.sum((drawn - expected) ** 2 / expected) < 25  # chi-square, 3 degrees of freedom
    groups = crowd.groups[a.annotator]
    assert_allclose(crowd.rows[np.arange(len(a)), y[a.instance]], 1 - crowd.noise_rates[a.instance, groups])


def test_rows_are_rows_of_the_true_transition_matrices():
    X, y = images()
    for scale in (1, 255):
        crowd = aidn(X, y, n_annotators=10, pixel_scale=scale)
        a = crowd.annotations
        T = crowd.transition(X, a.instance, a.annotator)
        assert T.shape == (len(a), 4, 4)
        assert_allclose(T.sum(axis=2), 1)
        assert_allclose(T[np.arange(len(a)), y[a.instance]], crowd.rows, atol=1e-9)
        diagonal = np.diagonal(T, axis1=1, axis2=2)
        assert_allclose(diagonal, np.repeat(diagonal[:, :1], 4, axis=1))  # one q_i for all true classes


def test_annotators_of_one_group_are_alike_and_of_different_groups_are_not():
    X, y = images()
    crowd = aidn(X, y, n_annotators=9, n_groups=3, pixel_scale=1)
    instances = np.repeat(np.arange(100), 3)
    T = crowd.transition(X, instances, np.tile([0, 2, 3], 100)).reshape(100, 3, 4, 4)
    assert_array_equal(T[:, 0], T[:, 1])
    assert np.abs(T[:, 0] - T[:, 2]).max(axis=(1, 2)).min() > 1e-3


def test_groups_spread_the_remainder():
    X, y = images()
    sizes = np.bincount(aidn(X, y, n_annotators=11, n_groups=3).groups)
    assert sizes.sum() == 11
    assert sizes.max() - sizes.min() <= 1


def test_no_noise_gives_clean_labels():
    X, y = images()
    crowd = aidn(X, y, n_annotators=10, noise_rate=0.0, noise_std=0.0)
    assert_array_equal(crowd.annotations.label, y[crowd.annotations.instance])


def test_two_classes_have_one_wrong_label():
    X, y = images(n_classes=2)
    crowd = aidn(X, y, n_annotators=10)
    a = crowd.annotations
    wrong = crowd.rows[np.arange(len(a)), 1 - y[a.instance]]
    assert_allclose(wrong, crowd.noise_rates[a.instance, crowd.groups[a.annotator]])


def test_one_label_per_instance_works():
    X, y = images()
    for scheme in ("binomial", "paper"):
        counts = aidn(X, y, n_annotators=10, labels_per_instance=1.0, pairs=scheme).annotations.labels_per_instance
        assert_array_equal(counts, 1)


def test_pixels_and_unit_floats_are_the_same_images():
    import torch

    X, y = images()
    for scale in (255, 1):
        rows = aidn(X, y, n_annotators=10, pixel_scale=scale).rows
        for same in (X / 255.0, torch.from_numpy(X), torch.from_numpy(X / 255.0), X.reshape(len(X), -1)):
            assert_allclose(aidn(same, y, n_annotators=10, pixel_scale=scale).rows, rows, atol=1e-8)


class DecodedWhenAskedFor:
    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        return self.X[index], index


def test_images_decoded_when_asked_for_give_the_same_crowd(monkeypatch):
    monkeypatch.setattr(
        importlib.import_module("crowdwise.simulate.aidn"), "VALUES", 1_000
    )  # several blocks of each kind
    X, y = images()
    lazy = DecodedWhenAskedFor(X)
    crowd, same = aidn(X, y, n_annotators=10), aidn(lazy, y, n_annotators=10)
    assert crowd.annotations == same.annotations
    assert_array_equal(crowd.transition(X, [0, 5], [1, 9]), same.transition(lazy, [0, 5], [1, 9]))


def test_raw_pixels_repeat_one_wrong_class_and_unit_pixels_spread():
    X, y = images()
    raw, unit = (np.sort(aidn(X, y, n_annotators=10, pixel_scale=scale).rows, axis=1) for scale in (255, 1))
    assert np.median(raw[:, -3]) < 1e-6
    assert np.median(unit[:, -3]) > 1e-3


def test_pairs_depend_neither_on_groups_nor_on_noise():
    X, y = images()
    one = aidn(X, y, n_annotators=12, n_groups=2, noise_rate=0.1).annotations
    two = aidn(X, y, n_annotators=12, n_groups=4, noise_rate=0.5).annotations
    assert_array_equal(one.annotator, two.annotator)
    assert_array_equal(one.instance, two.instance)


def test_seeds_are_reproducible_and_neighbouring_seeds_share_no_group():
    X, y = images()
    first, again, other = (aidn(X, y, n_annotators=10, random_state=seed) for seed in (1, 1, 2))
    assert_array_equal(first.annotations.label, again.annotations.label)
    for g in range(3):
        for h in range(3):
            assert not np.allclose(first.noise_rates[:, g], other.noise_rates[:, h])


def test_a_generator_moves_on_between_calls():
    X, y = images()
    rng = np.random.default_rng(0)
    first, second = (aidn(X, y, n_annotators=10, random_state=rng).annotations for _ in range(2))
    assert not np.array_equal(first.annotator, second.annotator)


def test_more_classes_than_seen_are_kept():
    X, y = images()
    crowd = aidn(X, y, n_annotators=10, n_classes=7)
    assert crowd.annotations.n_classes == 7
    assert crowd.rows.shape[1] == 7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"labels_per_instance": 0.9},
            ConfigError,
            "labels_per_instance must be a number of 1 or more, got 0.9",
        ),
        (
            {"labels_per_instance": 11},
            ConfigError,
            "labels_per_instance must be at most the number of annotators, 10, got 11",
        ),
        ({"n_groups": 11}, ConfigError, "n_groups must be at most the number of annotators, 10, got 11"),
        ({"noise_rate": 0.7}, ConfigError, "noise_rate must be at most max_noise_rate=0.6, got 0.7"),
        ({"noise_std": -1}, ConfigError, "noise_std must be a number of 0 or more, got -1"),
        ({"n_classes": 3}, DataError, r"class 3 is out of range: this crowd has 3 classes \(0..2\)"),
    ],
)
def test_wrong_input_is_named(arguments, error, message):
    X, y = images()
    with pytest.raises(error, match=message):
        aidn(X, y, **{"n_annotators": 10, **arguments})


def test_data_that_do_not_fit_are_named():
    X, y = images()
    with pytest.raises(DataError, match="X has 599 instances, y has 600"):
        aidn(X[1:], y)
    with pytest.raises(DataError, match="integer class codes"):
        aidn(X, y.astype(float))
    with pytest.raises(ConfigError, match="at least 2 classes, not 1"):
        aidn(X, np.zeros_like(y))
    crowd = aidn(X, y, n_annotators=10)
    with pytest.raises(DataError, match=r"annotator 10 is out of range: this crowd has 10 annotators \(0..9\)"):
        crowd.transition(X, [0], [10])
    with pytest.raises(DataError, match="X has 1 instances, this crowd was made from 600"):
        crowd.transition(X[:1], [0], [0])
    with pytest.raises(DataError, match="2 instances and 1 annotators do not make pairs"):
        crowd.transition(X, [0, 1], [0])
