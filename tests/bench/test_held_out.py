"""Labels that are held out for evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from crowdwise import Annotations
from crowdwise.bench.measure import split_votes


def crowd() -> Annotations:
    """700 labels of 300 instances: 100 with one label, 100 with two, 100 with four."""
    instance = np.repeat(np.arange(300), np.repeat([1, 2, 4], 100))
    annotator = np.arange(700) % 7
    return Annotations.from_triples(instance, annotator, np.arange(700) % 3)


@pytest.mark.parametrize(("fraction", "held_out"), [(0.1, 70), (0.5, 350), (0.9, 400)])
def test_the_fraction_is_held_out_and_every_instance_keeps_a_label(fraction: float, held_out: int) -> None:
    train, out = split_votes(crowd(), fraction, seed=3)
    assert out is not None
    assert len(out) == held_out
    assert train.labels_per_instance.min() == 1
    both = sorted((*row.values(),) for part in (train, out) for row in part.to_frame().to_pylist())
    assert both == sorted((*row.values(),) for row in crowd().to_frame().to_pylist())


def test_every_label_beyond_the_first_of_an_instance_is_as_likely_to_be_held_out() -> None:
    """Of four labels each is spared in a quarter of the splits, and held out in a third of the others."""
    labels = Annotations.from_dense(np.zeros((1000, 4), int))
    counts = np.zeros(4)
    for seed in range(10):
        _, out = split_votes(labels, 0.25, seed)
        assert out is not None
        counts += out.labels_per_annotator
    assert counts.sum() == 10_000
    assert counts / counts.sum() == pytest.approx(np.full(4, 0.25), abs=5 * np.sqrt(0.25 * 0.75 / 10_000))


def test_nothing_is_held_out_unless_asked() -> None:
    train, out = split_votes(crowd(), 0.0, seed=0)
    assert out is None
    assert len(train) == 700
