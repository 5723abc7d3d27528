"""What further labels of each item are expected to bring."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from crowdwise.aggregation import DawidSkene, HierarchicalDawidSkene
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError
from crowdwise.figures import shared_hits
from crowdwise.quality import more_labels


def crowd(seed: int, n: int = 600, c: int = 3, votes: int = 9) -> tuple[Annotations, npt.NDArray[np.int64]]:
    """Items of unequal difficulty; each has so many labels, by 30 annotators."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, c, n)
    rate = rng.beta(3.0, 2.0, n)  # of right labels, by item
    annotator = np.argsort(rng.random((n, 30)), axis=1)[:, :votes]
    right = rng.random((n, votes)) < rate[:, None]
    label = np.where(right, truth[:, None], (truth[:, None] + rng.integers(1, c, (n, votes))) % c)
    made = Annotations.from_triples(np.repeat(np.arange(n), votes), annotator.ravel(), label.ravel(), n_classes=c)
    return made, truth


def first_labels(whole: Annotations, number: int) -> Annotations:
    """So many labels of each item."""
    place = np.arange(len(whole)) % (len(whole) // whole.n_instances)
    return whole.where(place < number)


def test_gains_are_near_those_of_labels_that_were_left_out() -> None:
    expected, found = [], []
    for seed in range(3):
        whole, truth = crowd(seed)
        few = HierarchicalDawidSkene().fit(first_labels(whole, 3))
        before = shared_hits(few.posterior_, truth).mean()
        for further in (2, 6):
            more = HierarchicalDawidSkene().fit(first_labels(whole, 3 + further))
            found.append(shared_hits(more.posterior_, truth).mean() - before)
            expected.append(more_labels(few, (further,))[0].gain)
    assert min(found) > 0.02  # there is something to expect
    assert np.mean(np.abs(np.subtract(expected, found))) < 0.035
    assert abs(np.mean(expected) - np.mean(found)) < 0.5 * np.mean(found)


def test_more_labels_bring_more_and_each_brings_less() -> None:
    model = HierarchicalDawidSkene().fit(first_labels(crowd(0)[0], 3))
    gains = [each.gain for each in more_labels(model, (1, 2, 4, 8, 16))]
    assert gains == sorted(gains)
    assert gains[-1] - gains[-2] < gains[-2]  # eight more, on top of eight
    assert all(each.right <= 1 for each in more_labels(model, (100,)))


def test_where_everybody_agrees_there_is_next_to_nothing_to_gain() -> None:
    answers = [[k % 2] * 6 for k in range(200)]
    assert more_labels(DawidSkene().fit(answers), (5,))[0].gain < 0.01


def test_the_same_model_has_the_same_curve() -> None:
    model = HierarchicalDawidSkene().fit(first_labels(crowd(1, 50)[0], 2))
    assert more_labels(model) == more_labels(model)


def test_crowds_without_labels_have_no_curve_and_nonsense_is_refused() -> None:
    model = DawidSkene().fit(Annotations.from_triples([], [], [], n_instances=2, n_classes=2))
    assert more_labels(model) == []
    with pytest.raises(ConfigError, match="further labels per item must be 1 or more, got 0"):
        more_labels(model, (3, 0))
