"""Crowds of many kinds, drawn at random."""

from __future__ import annotations

import numpy as np
import pytest

from crowdwise.errors import ConfigError
from crowdwise.simulate import varied
from crowdwise.simulate.varied import KINDS, _copied, _right_votes


def test_a_seed_has_one_crowd() -> None:
    one, other, third = varied(4), varied(4), varied(5)
    assert one.annotations == other.annotations
    np.testing.assert_array_equal(one.truth, other.truth)
    assert one.annotations != third.annotations


@pytest.mark.parametrize("kind", KINDS)
def test_crowds_are_worth_aggregating_and_nobody_labels_twice(kind: str) -> None:
    sizes = set()
    for seed in range(8):
        crowd = varied([1, seed], kind)  # type: ignore[arg-type]
        annotations = crowd.annotations
        assert crowd.kind == kind
        assert annotations.n_duplicates == 0
        assert annotations.n_instances >= 60
        assert len(annotations) < 9_500
        assert set(crowd.truth.tolist()) <= set(range(annotations.n_classes))
        assert 0.38 < _right_votes(crowd) < 0.97
        sizes.add((annotations.n_instances, annotations.n_classes))
    assert len(sizes) > 4


def test_everybody_of_a_panel_labels_nearly_everything() -> None:
    for seed in range(5):
        crowd = varied([2, seed], "panel").annotations
        assert len(crowd) > 0.6 * crowd.n_instances * crowd.n_annotators


def test_copies_agree_where_their_source_labelled() -> None:
    rng = np.random.default_rng(0)
    instance, annotator = np.nonzero(np.ones((400, 30), bool))
    label = rng.integers(0, 5, len(instance))
    copied = _copied(rng, instance, annotator, label, 30).reshape(400, 30)
    agreement = np.array([[np.mean(copied[:, j] == copied[:, k]) for j in range(30)] for k in range(30)])
    np.fill_diagonal(agreement, 0)
    assert np.count_nonzero(agreement > 0.4) >= 2  # by chance 0.2
    assert np.mean(copied == label.reshape(400, 30)) > 0.6  # most annotators are themselves


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(ConfigError, match="kind"):
        varied(0, "robots")  # type: ignore[arg-type]
