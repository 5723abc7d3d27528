from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from crowdwise import Annotations
from crowdwise.errors import ConfigError, DataError
from crowdwise.graph import SIMILARITIES, confusion, cosine, delta_cosine, embed, jaccard, l1_normalised

HEADS = np.array([[3.0, 4.0], [4.0, 3.0], [3.0, -4.0]])


def test_cosine_of_hand_checked_heads():
    S = cosine(HEADS)
    assert_allclose([S[0, 1], S[0, 2], S[1, 2]], [0.96, -0.28, 0.0], atol=1e-12)


def test_l1_version_of_hand_checked_heads():
    S = l1_normalised(HEADS)
    assert_allclose([S[0, 0], S[0, 1]], [0.510204, 0.489796], atol=1e-6)


def test_delta_cosine_of_hand_checked_heads():
    S = delta_cosine(HEADS, [3, 3])
    assert_allclose([S[0, 1], S[0, 2]], [0.0, -1.0], atol=1e-12)


def test_subtracting_the_global_head_separates_heads_that_share_it():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=50)
    pattern = rng.normal(size=(2, 50))
    heads = shared + 0.01 * np.vstack([pattern[[0, 0]], pattern[[1, 1]]])
    assert cosine(heads).min() > 0.999
    S = delta_cosine(heads, shared)
    assert S[0, 1] > 0.999
    assert abs(S[0, 2]) < 0.5


@pytest.mark.parametrize("name", ["delta-cosine", "cosine", "l1-normalised"])
def test_a_zero_vector_is_similar_to_nobody(name):
    heads = np.vstack([HEADS, [0.0, 0.0]])
    vectors = embed(heads, np.zeros(2), name)
    S = vectors @ vectors.T
    assert np.all(S[3] == 0)
    assert np.all(S[:, 3] == 0)
    assert np.isfinite(S).all()


def test_the_registry_names_the_similarities_of_heads():
    assert list(SIMILARITIES) == ["cosine", "delta-cosine", "l1-normalised"]
    with pytest.raises(ConfigError, match=r"unknown similarity 'cosin'; did you mean 'cosine'\?"):
        embed(HEADS, similarity="cosin")


def test_bad_heads_are_named():
    with pytest.raises(DataError, match="annotator 1 is not finite"):
        cosine([[1.0, 2.0], [np.nan, 0.0]])
    with pytest.raises(DataError, match=r"not \(2, 2, 1\)"):
        cosine(np.zeros((2, 2, 1)))
    with pytest.raises(DataError, match="global head has 3 parameters, the heads have 2"):
        delta_cosine(HEADS, [1, 2, 3])
    with pytest.raises(ConfigError, match="needs the global head"):
        embed(HEADS)


def test_confusion_is_the_cosine_of_flattened_matrices():
    matrices = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3))
    assert_allclose(confusion(matrices), cosine(matrices.reshape(4, 9)))
    with pytest.raises(DataError, match="classes, classes"):
        confusion(np.eye(3))


def triples(*rows, n, R, C):
    instance, annotator, label = zip(*rows, strict=True)
    return Annotations.from_triples(instance, annotator, label, n_instances=n, n_annotators=R, n_classes=C)


def test_jaccard_of_hand_checked_sets_and_of_a_silent_annotator():
    crowd = triples((0, 0, 0), (1, 0, 1), (2, 0, 0), (0, 1, 0), (1, 1, 0), (3, 1, 1), n=4, R=3, C=2)
    S = jaccard(crowd).toarray()
    assert_allclose(S, [[1, 0.2, 0], [0.2, 1, 0], [0, 0, 0]])


def test_jaccard_equals_sets_of_pairs():
    rng = np.random.default_rng(1)
    cells = rng.permutation(20 * 6)[:70]
    rows = [(int(c // 6), int(c % 6), int(rng.integers(3))) for c in cells]
    S = jaccard(triples(*rows, n=20, R=6, C=3)).toarray()
    sets = [{(i, y) for i, j, y in rows if j == a} for a in range(6)]
    expected = [[len(a & b) / len(a | b) for b in sets] for a in sets]
    assert_allclose(S, expected)
