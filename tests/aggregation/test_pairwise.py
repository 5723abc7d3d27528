"""M-MSR and KOS, the methods that compare annotators with each other."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from crowds import accuracy, compile_always, compile_never, simulated

from crowdwise.aggregation import KOS, MMSR, MajorityVote
from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.mmsr import Factors, pair_covariance, rank_one_skill
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError, CrowdwiseWarning
from fixtures import t1
from tolerances import DOUBLE


def test_agreement_of_pairs_on_t1() -> None:
    covariance = pair_covariance(MemoryCrowd.of(t1())).toarray()
    np.testing.assert_allclose(covariance, [[0, 0.6, 0], [0.6, 0, 0], [0, 0, 0]], atol=DOUBLE)


def test_pairs_without_common_instances_are_not_held() -> None:
    crowd = Annotations.from_triples([0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 0, 1], n_annotators=5)
    covariance = pair_covariance(MemoryCrowd.of(crowd))
    np.testing.assert_array_equal(np.diff(covariance.indptr), [1, 1, 1, 1, 0])
    np.testing.assert_allclose(covariance[[0], [1]], 1.0)
    np.testing.assert_allclose(covariance[[2], [3]], -1.0)


def test_a_rank_one_matrix_is_completed_exactly() -> None:
    skill = np.array([0.8, 0.6, 0.4, 0.2])
    matrix = np.outer(skill, skill)
    np.fill_diagonal(matrix, 0)
    rng, method = np.random.default_rng(0), MMSR()
    state = Factors(np.empty(0), -np.inf, sp.csr_array(matrix), *rng.random((2, 4)), 0)
    for _ in range(2_000):
        state = method._round(MemoryCrowd.of(t1()), state, rng)
    np.testing.assert_allclose(rank_one_skill(state.covariance, state.u, state.v), skill, atol=1e-9)


def test_weights_of_known_skills() -> None:
    skill = np.array([0.8, 0.6, 0.4, 0.2])
    accuracies = skill * 2 / 3 + 1 / 3
    np.testing.assert_allclose(accuracies, [0.866667, 0.733333, 0.6, 0.466667], atol=1e-6)
    weights = np.log(accuracies * 2 / (1 - accuracies))
    np.testing.assert_allclose(weights, [2.564949, 1.704748, 1.098612, 0.559616], atol=1e-6)
    crowd, _ = simulated(4_000, 4, 3, 4, matrices=_coins(accuracies), seed=1)
    model = MMSR(random_state=0).fit(crowd)
    np.testing.assert_allclose(model.skill_, accuracies, atol=0.04)
    np.testing.assert_allclose(model.weight_, np.log(model.skill_ * 2 / (1 - model.skill_)))


def test_adversaries_get_negative_weights() -> None:
    accuracies = np.array([0.9, 0.85, 0.8, 0.8, 0.15, 0.2])
    crowd, truth = simulated(1_000, 6, 2, 6, matrices=_coins(accuracies, 2), seed=2)
    model = MMSR(random_state=0).fit(crowd)
    assert np.all(model.weight_[:4] > 0)
    assert np.all(model.weight_[4:] < 0)
    assert accuracy(model.labels_, truth) > accuracy(MajorityVote().fit_predict(crowd), truth)


def test_trimmed_means_leave_out_the_extremes_on_either_side() -> None:
    values, centre = np.array([1.0, 2, 3, 10, 5, 5, 1, 9]), np.array([2.5, 5.0, 5.0])
    means = kernels.trimmed_means(np.array([0, 4, 6, 8]), values, centre, 1)
    np.testing.assert_allclose(means, [2.5, 5, 5])  # of 2 and 3; of 5 and 5; nothing left


def test_compiled_and_numpy_trimmed_means_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    borders = np.sort(np.r_[0, rng.integers(0, 500, 40), 500])
    values, centre = rng.random(500), rng.random(41)
    for trim in (0, 1, 5):
        compile_never(monkeypatch)
        slow = kernels.trimmed_means(borders, values, centre, trim)
        compile_always(monkeypatch)
        np.testing.assert_allclose(slow, kernels.trimmed_means(borders, values, centre, trim))


def test_nothing_of_size_annotators_squared_is_needed() -> None:
    crowd, truth = simulated(2_000, 3_000, 3, 5, (0.6, 0.95), seed=3)  # three labels each: few pairs meet
    covariance = pair_covariance(MemoryCrowd.of(crowd))
    assert covariance.nnz <= 2_000 * 5 * 4
    model = MMSR(random_state=0, max_iter=200, tol=1e-6).fit(crowd)
    assert accuracy(model.labels_, truth) > 80


def test_too_few_annotators_to_compare_fall_back_to_majority_vote() -> None:
    pair = Annotations.from_triples([0, 0, 1], [0, 1, 1], [1, 1, 0])
    with pytest.warns(CrowdwiseWarning, match="MMSR falls back to majority vote"):
        model = MMSR().fit(pair)
    assert model.labels_.tolist() == [1, 0]
    with pytest.warns(CrowdwiseWarning, match="KOS falls back to majority vote"):
        KOS().fit(Annotations.from_triples([0, 1], [0, 1], [1, 0]))


def test_kos_messages_of_one_round() -> None:
    crowd = Annotations.from_dense([[1, 1, 0], [0, 0, 0], [1, 1, 1]])
    np.testing.assert_allclose(KOS(init="ones", max_iter=1).fit(crowd).scores_[:, 1], [4, -4, 4])


def test_kos_oscillates_on_t1() -> None:
    np.testing.assert_allclose(KOS(init="ones", max_iter=1).fit(t1()).scores_[:, 0], [4, 0, 0, -4, 0])
    np.testing.assert_allclose(KOS(init="ones", max_iter=2).fit(t1()).scores_[:, 0], [8, -16, 16, -8, 0])


def test_kos_reads_a_random_sparse_crowd_and_does_not_overflow() -> None:
    table = _coins(np.random.default_rng(0).choice([0.5, 0.95], 1_000), 2)
    crowd, truth = simulated(2_000, 1_000, 2, 5, matrices=table, seed=4)
    model = KOS(random_state=0, max_iter=1_000).fit(crowd)
    assert np.all(np.isfinite(model.scores_))
    assert accuracy(model.labels_, truth) > accuracy(MajorityVote().fit_predict(crowd), truth)
    with pytest.raises(ConfigError, match="unknown init 'zeros'; known: 'normal', 'ones'"):
        KOS(init="zeros").fit(crowd)  # type: ignore[arg-type]


def _coins(accuracies: np.ndarray, c: int = 3) -> np.ndarray:
    skill = accuracies[:, None, None]
    return np.where(np.eye(c, dtype=bool), skill, (1 - skill) / (c - 1))
