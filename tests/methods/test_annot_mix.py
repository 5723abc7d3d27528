"""Annot-Mix: what is mixed, and in which limits it is a known method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crowdwise import Annotations, AnnotMix
from crowdwise.engine import Batch
from crowdwise.engine.augment import Mixup
from crowdwise.methods.annot_mix import PairNetwork, partners
from engine_helpers import crowd, quick, replay_static_steps

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")


def batch(weight: list[float], networks: int = 1) -> Batch:
    n = len(weight)
    codes = torch.arange(n)
    return Batch(
        torch.zeros(n, 2), codes, codes, codes, codes, codes, torch.tensor(weight), torch.tensor(1.0), torch.tensor(1.0),
        networks,
    )  # fmt: skip


def test_matrices_start_near_the_identity():
    pairs = PairNetwork(width=4, n_annotators=3, n_classes=5)
    with torch.no_grad():
        pairs.last.weight.zero_()
    matrices = torch.softmax(pairs(torch.randn(7, 128), torch.randn(7, 128)), 2)
    torch.testing.assert_close(matrices.diagonal(dim1=1, dim2=2), torch.full((7, 5), 0.9))


def test_every_annotation_is_mixed_with_another_of_its_network():
    first, second, share = partners(batch([1.0] * 12, networks=3), Mixup(1.0, torch.device("cpu")))
    assert first.tolist() == list(range(12))
    assert (second // 4).tolist() == (first // 4).tolist()
    assert sorted(second.tolist()) == list(range(12))
    assert ((share >= 0.5) & (share <= 1)).all()


def test_padding_is_never_mixed_in():
    for _ in range(5):
        first, second, _ = partners(batch([1.0, 1.0, 0.0, 1.0, 0.0, 0.0]), Mixup(1.0, torch.device("cpu")))
        assert first[[0, 1, 3]].tolist() == [0, 1, 3]
        assert not {2, 4, 5} & {*first.tolist(), *second.tolist()}


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("networks", [1, 2])
def test_captured_steps_with_padding_learn_too(alpha, networks, monkeypatch):
    X, annotations, y = crowd(300)
    replay_static_steps(monkeypatch)
    model = AnnotMix(steps=60, alpha=alpha, networks=networks, verbose=0).fit(X, annotations)
    assert model.score(X, y) > 0.9


def test_matrices_depend_on_instance_and_annotator():
    X, annotations, _ = crowd()
    matrices = AnnotMix(steps=60, verbose=0).fit(X, annotations).transition(X[:6])
    assert matrices.shape == (6, 8, 3, 3)
    assert np.ptp(matrices, axis=0).max() > 1e-3
    assert np.ptp(matrices, axis=1).max() > 1e-3


def test_annotators_without_labels_are_average_ones():
    X, annotations, _ = crowd()
    more = Annotations.from_triples(
        annotations.instance, annotations.annotator, annotations.label, n_instances=len(X), n_annotators=10, n_classes=3
    )
    embeddings = AnnotMix(**quick("annot-mix")).fit(X, more).transition_.pairs.annotator.weight.detach()
    torch.testing.assert_close(embeddings[8:], embeddings[:8].mean(0).expand(2, -1))
