"""Bounds and costs by hand-checked figures; theorems on exactly the graphs for which they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdwise
from crowdwise.bench.paper import theory
from crowdwise.errors import ConfigError, DataError
from engine_helpers import TAIDTM_QUICK, crowd

SETTING = {"n_classes": 10, "loss_bound": 5.0, "delta": 0.05}
seeds = st.integers(0, 100_000)


def relu(values):
    return np.maximum(values, 0)


def test_bound_without_transfer():
    assert theory.bound_no_transfer((1, 1), examples=100, input_bound=1, **SETTING) == pytest.approx(
        17.467567, abs=1e-6
    )


def test_bound_with_transfer():
    for omega, expected in [(0, 1.023342), (2, 1.140067)]:
        found = theory.bound_transfer(omega, examples=100, loss_bound=5, delta=0.05)
        assert found == pytest.approx(expected, abs=1e-6)


def test_bound_of_the_global_network_counts_all_labels():
    found = theory.bound_global((1, 2), instances=1000, labels_per_instance=2.5, **SETTING)
    assert found == pytest.approx(theory.bound_no_transfer((1, 2), examples=2500, **SETTING))


@given(st.integers(2, 10_000), st.integers(1, 10_000), st.floats(0, 50), st.floats(0.001, 0.999))
def test_bounds_fall_with_examples_and_only_one_grows_with_the_network(m, more, omega, delta):
    alone = [
        theory.bound_no_transfer((2, 3), examples=e, n_classes=4, loss_bound=1, delta=delta) for e in (m, m + more)
    ]
    transferred = [theory.bound_transfer(omega, examples=e, loss_bound=1, delta=delta) for e in (m, m + more)]
    assert alone[0] > alone[1]
    assert transferred[0] > transferred[1]
    assert theory.bound_no_transfer((4, 3), examples=m, n_classes=4, loss_bound=1, delta=delta) > alone[0]
    assert theory.bound_transfer(omega + 1, examples=m, loss_bound=1, delta=delta) > transferred[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.0}, "delta must be a number above 0 and below 1, got 0.0"),
        ({"delta": 1.5}, "delta must be a number above 0 and below 1, got 1.5"),
        ({"examples": 0}, "examples must be a number above 0, got 0"),
        ({"n_classes": -1}, "n_classes must be an integer of 1 or more, got -1"),
        ({"loss_bound": -2.0}, "loss_bound must be a number of 0 or more, got -2.0"),
        ({"input_bound": math.inf}, "input_bound must be a number of 0 or more, got inf"),
        ({"layer_norms": ()}, "layer_norms must hold the Frobenius norm of at least one layer"),
        ({"layer_norms": (1.0, math.nan)}, r"layer_norms must be a list, each a number of 0 or more, got \(1.0, nan\)"),
    ],
    ids=str,
)
def test_values_out_of_range_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        theory.bound_no_transfer(**({"layer_norms": (1, 1), "examples": 100} | SETTING | change))


def test_transfer_needs_two_examples_and_an_omega():
    with pytest.raises(ConfigError, match="examples must be a number of 2 or more, got 1"):
        theory.bound_transfer(0, examples=1, loss_bound=5)
    with pytest.raises(ConfigError, match="omega must be a number of 0 or more, got -1"):
        theory.bound_transfer(-1, examples=10, loss_bound=5)
    with pytest.raises(ConfigError, match="labels_per_instance must be a number above 0, got 0"):
        theory.bound_global((1,), instances=10, labels_per_instance=0, n_classes=2, loss_bound=1)


# costs

SIMULATED = theory.Run(
    instances=54_000, labels_per_instance=2, n_annotators=300, n_classes=10, width=64, hidden=64, k=50, batch_size=128,
    transition_epochs=5, individual_epochs=2, mapping_epochs=10, epochs=60,
)  # fmt: skip


def test_cost_as_the_paper_counts_it():
    cost = SIMULATED.paper_cost()
    assert cost.networks == pytest.approx(7.668e6)
    assert cost.heads == pytest.approx(1.0616832e12)
    assert cost.mapping == pytest.approx(1.5552e16)
    assert cost.graph == pytest.approx(5.805e8)
    assert cost.revision == 0
    assert cost.total == pytest.approx(7.668e6 + 1.0616832e12 + 1.5552e16 + 5.805e8)


def test_orders_of_evaluation():
    orders = SIMULATED.orders()
    assert orders.dense == pytest.approx(3.74e8, rel=0.01)
    assert orders.instances_first == pytest.approx(5.5e7, rel=0.01)
    assert orders.one_row == pytest.approx(5.5e6, rel=0.01)
    assert orders.heads_first == 300 * 64 * 65 * 100 + 256 * 65 * 100


def test_actual_cost_is_a_small_part_of_the_papers_and_names_the_revision():
    cost = SIMULATED.actual_cost()
    steps = 54_000 / 128
    assert cost.networks == 54_000 * (10 + 2 + 240)
    assert cost.heads == 2 * 54_000 * 2 * 65 * 10 * 2
    assert cost.mapping == pytest.approx(2 * steps * 10 * (2 * 300**2 * 64 + SIMULATED.orders().one_row))
    assert cost.revision == pytest.approx(2 * steps * 60 * (2 * 300**2 * 64 + SIMULATED.orders().instances_first))
    assert cost.mapping < 1e-4 * SIMULATED.paper_cost().mapping


def test_the_order_counted_is_the_order_taken():
    import scipy.sparse as sp

    from crowdwise.graph.mappings import GCNHeads

    for n_annotators in (5, 60, 127, 128, 129, 400):
        run = theory.Run(instances=1000, n_annotators=n_annotators, batch_size=128)
        heads = GCNHeads(sp.csr_array(sp.eye_array(n_annotators)), 64, 10, hidden=64)
        assert heads.heads_first(128, 256) == (run.orders().heads_first < run.orders().instances_first)


def test_impossible_sizes_are_named():
    with pytest.raises(ConfigError, match="batch_size must be an integer of 1 or more, got 0"):
        theory.Run(instances=10, batch_size=0)
    with pytest.raises(ConfigError, match="epochs must be an integer of 0 or more, got -1"):
        theory.Run(instances=10, epochs=-1)


# what graph convolutions do to annotators


@settings(max_examples=80, deadline=None)
@given(seeds, st.integers(0, 6), st.integers(1, 5), st.integers(1, 5), st.floats(0.1, 20))
def test_similar_annotators_come_as_close_as_theorem_3_says(seed, shared, inputs, outputs, scale):
    """N_i = {i} and S, N_j = {j} and S, A/k, ReLU."""
    rng = np.random.default_rng(seed)
    k = shared + 1
    h = rng.normal(size=(shared + 2, inputs))
    W = scale * rng.normal(size=(inputs, outputs))
    A = np.zeros((2, shared + 2))
    A[:, 2:] = A[0, 0] = A[1, 1] = 1
    after = relu(A / k @ h @ W)
    moved, apart = np.linalg.norm(after[0] - after[1]), np.linalg.norm(h[0] - h[1])
    assert moved <= theory.contraction(W, k) * apart * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(0, 6))
def test_mutual_neighbours_with_the_same_others_become_equal(seed, shared):
    """With i and j in both neighbourhoods nothing sets them apart."""
    rng = np.random.default_rng(seed)
    h, W = rng.normal(size=(shared + 2, 3)), rng.normal(size=(3, 4))
    after = relu(np.ones((2, shared + 2)) / (shared + 2) @ h @ W)
    np.testing.assert_allclose(after[0], after[1])


@settings(max_examples=50, deadline=None)
@given(seeds)
def test_close_heads_give_close_logits(seed):
    """Corollary 1: |t^j - t^i| <= ||theta_j - theta_i|| ||g||."""
    rng = np.random.default_rng(seed)
    theta, g = rng.normal(size=(2, 5, 3, 3)), rng.normal(size=5)
    logits = np.einsum("d,jdpq->jpq", g, theta)
    assert np.linalg.norm(logits[0] - logits[1]) <= np.linalg.norm(theta[0] - theta[1]) * np.linalg.norm(g) * (1 + 1e-9)


def test_dissimilar_annotators_need_not_stay_orthogonal():
    """The counter-example to Theorem 4, and a condition under which its claim holds."""
    before = np.eye(2)
    assert theory.group_cosines(before, [0, 1]).between == 0
    assert theory.group_cosines(relu(before @ np.ones((2, 2))), [0, 1]).between == pytest.approx(1)
    disjoint = np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 1.0]])  # groups use different columns
    assert theory.group_cosines(relu(before @ disjoint), [0, 1]).between == 0


def test_contraction_is_the_spectral_norm_over_k():
    assert theory.contraction(np.diag([3.0, 4.0]), 5) == pytest.approx(0.8)
    with pytest.raises(DataError, match=r"must be a matrix \(inputs, outputs\), not of shape \(2, 2, 2\)"):
        theory.contraction(np.zeros((2, 2, 2)), 1)
    with pytest.raises(ConfigError, match="k must be an integer of 1 or more, got 0"):
        theory.contraction(np.eye(2), 0)


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
def test_layers_of_a_fitted_model():
    X, annotations, _ = crowd()
    model = crowdwise.TAIDTM(**(TAIDTM_QUICK | {"epochs": 1})).fit(X, annotations)
    head = model.transition_.head
    expected = [np.linalg.norm(w.detach().flatten(1).numpy(), 2) / 2 for w in (head.first, head.last)]
    assert theory.gcn_contraction(model) == pytest.approx(expected)
    one_layer = crowdwise.TAIDTM(**(TAIDTM_QUICK | {"epochs": 1, "gcn_layers": 1})).fit(X, annotations)
    assert len(theory.gcn_contraction(one_layer)) == 1
    walks = crowdwise.TAIDTM(**(TAIDTM_QUICK | {"epochs": 1, "mapping": "deepwalk"})).fit(X, annotations)
    with pytest.raises(ConfigError, match="mapping='deepwalk' has no graph convolution"):
        theory.gcn_contraction(walks)
    assert 0 <= theory.group_cosines(model.heads_, np.arange(8) % 2).within <= 1


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 12), st.integers(1, 5))
def test_cosines_of_groups_equal_the_mean_over_pairs(seed, size, block):
    rng = np.random.default_rng(seed)
    heads, groups = rng.normal(size=(size, 2, 3)), rng.integers(3, size=size)
    heads[0] = 0
    within, between = [], []
    for i in range(size):
        for j in range(i):
            norms = np.linalg.norm(heads[i]) * np.linalg.norm(heads[j])
            cosine = abs(np.sum(heads[i] * heads[j])) / norms if norms else 0.0
            (within if groups[i] == groups[j] else between).append(cosine)
    found = theory.group_cosines(heads, groups, block=block)
    expected = [np.mean(part) if part else np.nan for part in (within, between)]
    np.testing.assert_allclose(found, expected)


def test_groups_must_be_named_for_every_annotator():
    with pytest.raises(DataError, match=r"one entry for each annotator, \(3,\), not \(2,\)"):
        theory.group_cosines(np.eye(3), [0, 1])
    with pytest.raises(DataError, match=r"heads must have shape \(annotators, ...\), not \(3,\)"):
        theory.group_cosines(np.ones(3), [0, 1, 2])
