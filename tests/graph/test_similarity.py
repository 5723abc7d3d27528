from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from crowdwise import Annotations
from crowdwise.errors import ConfigError, DataError
from crowdwise.graph import (
    SIMILARITIES,
    Evidence,
    communities,
    confusion,
    cosine,
    delta_cosine,
    embed,
    jaccard,
    l1_normalised,
    nearest,
)

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


def test_the_registry_names_the_similarities():
    assert list(SIMILARITIES) == [
        "cbcc",
        "confusion",
        "confusion-counts",
        "cosine",
        "delta-cosine",
        "jaccard",
        "l1-normalised",
    ]
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


def two_kinds(n=200, R=8, C=3, seed=0):
    """The first half of the annotators take class 0 for 1, the others class 1 for 2; everybody labels everything."""
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=n)
    label = np.tile(y, (R, 1))
    flip = rng.random((R, n)) < 0.5
    label[: R // 2][flip[: R // 2] & (y == 0)] = 1
    label[R // 2 :][flip[R // 2 :] & (y == 1)] = 2
    annotator, instance = np.divmod(np.arange(R * n), n)
    crowd = Annotations.from_triples(
        instance, annotator, label.ravel(), n_instances=n, n_annotators=R + 1, n_classes=C
    )  # annotator R is silent
    return crowd, y


def test_communities_find_annotators_of_one_kind():
    crowd, _ = two_kinds()
    r = communities(crowd, 2)
    assert_allclose(r.sum(axis=1), 1)
    S = r @ r.T
    same = np.kron(np.eye(2), np.ones((4, 4))) > 0
    assert S[:8, :8][same].min() > 0.95
    assert S[:8, :8][~same].max() < 0.05
    assert_allclose(S[8, :8], 0.5, atol=0.05)  # who says nothing belongs to either


def test_a_crowd_with_nothing_to_infer_has_communities_all_the_same():
    crowd = triples((0, 0, 0), (1, 1, 0), n=2, R=3, C=1)
    assert_allclose(communities(crowd, 4), 0.25)


@pytest.mark.parametrize("similarity", ["cbcc", "confusion-counts", "jaccard"])
def test_labels_tell_kinds_of_annotators_apart(similarity):
    crowd, y = two_kinds()
    counts = np.zeros((9, 3, 3))
    np.add.at(counts, (crowd.annotator, y[crowd.instance], crowd.label), 1)
    matrices = (counts + 1) / (counts + 1).sum(axis=2, keepdims=True)
    found = nearest(Evidence(annotations=crowd, matrices=matrices, communities=2), 3, similarity)
    chosen = found.graph.toarray()[:8, :8]
    assert chosen.sum() == 8 * 3
    assert_allclose(chosen, np.kron(np.eye(2), np.ones((4, 4)) - np.eye(4)))


def test_a_similarity_says_what_it_lacks():
    for similarity, message in [
        ("jaccard", "similarity 'jaccard' needs annotations"),
        ("cbcc", "similarity 'cbcc' needs annotations"),
        ("confusion-counts", "needs the annotators' matrices"),
        ("cosine", "similarity 'cosine' needs the annotators' heads"),
    ]:
        with pytest.raises(ConfigError, match=message):
            nearest(Evidence(), 1, similarity)
    with pytest.raises(ConfigError, match="similarity 'jaccard' needs annotations"):
        embed(HEADS, similarity="jaccard")
    with pytest.raises(DataError, match=r"classes, classes\), not \(3, 3\)"):
        nearest(Evidence(matrices=np.eye(3)), 1, "confusion-counts")
