from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from crowdwise.errors import ConfigError, DataError
from crowdwise.graph import pca


def test_coordinates_are_us_of_the_centred_matrix_up_to_sign():
    vectors = np.random.default_rng(0).normal(size=(12, 7)) + 100
    U, S, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    assert_allclose(np.abs(pca(vectors)), np.abs((U * S)[:, :2]), atol=1e-9)


def test_the_entry_of_largest_magnitude_is_positive():
    coordinates = pca(np.random.default_rng(1).normal(size=(9, 4)))
    largest = np.abs(coordinates).argmax(axis=0)
    assert np.all(coordinates[largest, [0, 1]] > 0)


def test_moving_all_vectors_changes_nothing():
    vectors = np.random.default_rng(2).normal(size=(9, 4))
    assert_allclose(pca(vectors + 5.0), pca(vectors), atol=1e-9)


@pytest.mark.parametrize("vectors", [np.ones((1, 5)), np.full((6, 3), 0.1), np.zeros((4, 2))])
def test_one_annotator_or_equal_vectors_are_a_single_point(vectors):
    assert_array_equal(pca(vectors), np.zeros((len(vectors), 2)))


@pytest.mark.parametrize("shape", [(60, 45), (45, 60)])
def test_lanczos_equals_lapack(shape, monkeypatch):

    vectors = np.random.default_rng(3).normal(size=shape) * np.linspace(5, 1, shape[1])
    exact = pca(vectors, 3)
    monkeypatch.setattr("crowdwise.graph._largest.DENSE_SVD", 20)
    assert_allclose(pca(vectors, 3), exact, atol=1e-8)
    assert_array_equal(pca(np.ones(shape)), 0)


def test_missing_dimensions_are_zero():
    coordinates = pca([[0.0], [1.0], [5.0]], n_components=3)
    assert coordinates.shape == (3, 3)
    assert_array_equal(coordinates[:, 1:], 0)


def test_wrong_input_is_named():
    with pytest.raises(DataError, match=r"not \(3,\)"):
        pca([1.0, 2.0, 3.0])
    with pytest.raises(ConfigError, match="n_components must be an integer of 1 or more, got 0"):
        pca([[1.0]], n_components=0)
