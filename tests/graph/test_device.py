"""Torch finds the same neighbours, and the same purified graph, as numpy: ties included."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from crowdwise import graph
from crowdwise.graph._largest import largest_triplets

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def crowd(kind: str, size: int) -> graph.Evidence:
    rng = np.random.default_rng(0)
    heads = rng.normal(size=(size, 6))
    if kind == "twins":  # exact ties everywhere
        heads = heads[rng.integers(5, size=size)]
    if kind == "strangers":  # half never left the global head
        heads[rng.random(size) < 0.5] = 0
    if kind == "axes":  # similarities of 0, 1 and -1 alone
        heads = np.eye(6)[rng.integers(6, size=size)] * rng.choice([-1, 1], size=(size, 1))
    return graph.Evidence(heads, np.zeros(6))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", [1, 7, 59])
@pytest.mark.parametrize("kind", ["plain", "twins", "strangers", "axes"])
def test_neighbours_equal_those_of_numpy(kind, k, device):
    evidence = crowd(kind, 60)
    expected = graph.nearest(evidence, k)
    found = graph.nearest(evidence, k, block=17, device=device)
    assert (found.graph != expected.graph).nnz == 0
    assert found.unrelated == expected.unrelated
    assert found.arbitrary == expected.arbitrary


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["plain", "twins", "axes"])
def test_the_purified_graph_equals_that_of_numpy(kind, device, monkeypatch):
    module = importlib.import_module("crowdwise.graph.purify")  # whose function has the same name
    monkeypatch.setattr(module, "DENSE_ROWS", 50)
    monkeypatch.setattr(module, "row_limit", lambda size: 20)
    before = graph.nearest(crowd(kind, 300), 12).graph
    expected = graph.purify(before, 4, skipped=[3, 5])
    found = graph.purify(before, 4, skipped=[3, 5], device=device)
    assert found.shape == expected.shape
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_singular_triplets_equal_those_of_numpy(device):
    before = graph.nearest(crowd("plain", 1200), 12).graph
    expected, found = largest_triplets(before, 3), largest_triplets(before, 3, device)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-10)
    np.testing.assert_allclose((found[0] * found[1]) @ found[2], (expected[0] * expected[1]) @ expected[2], atol=1e-8)
