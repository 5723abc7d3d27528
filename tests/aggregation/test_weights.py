"""Weights in labels: their scale changes nothing, whatever the method; and what follows from repeated or silent annotators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crowds import simulated
from numpy.testing import assert_allclose, assert_array_equal

from crowdwise.aggregation import DawidSkene, OneCoinDawidSkene, recommend
from crowdwise.aggregation.core import queries, tempering, weights
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.annotations import Annotations
from crowdwise.errors import CrowdwiseWarning
from crowdwise.registry import AGGREGATORS

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*usually weigh"),
    pytest.mark.filterwarnings("ignore:.*depend on random starts"),
]
every = pytest.mark.parametrize("name", sorted(AGGREGATORS))
LESS: dict[str, dict[str, Any]] = {name: {"n_restarts": 2} for name in ("cbcc", "committee", "ebcc", "mace")}


def uneven(n: int = 80, seed: int = 0) -> tuple[Annotations, npt.NDArray[np.float64]]:
    """A crowd in which nobody labels an item twice, and a weight for each label."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    i, j = np.nonzero(rng.random((n, 7)) < 0.6)
    y = np.where(rng.random(len(i)) < np.linspace(0.5, 0.95, 7)[j], truth[i], rng.integers(0, 3, len(i)))
    made = Annotations.from_triples(i, j, y, n_instances=n, n_annotators=7, n_classes=3)
    return made, rng.lognormal(0.0, 0.7, len(i))


def weighted(crowd: Annotations, weight: Any, rows: Any = None) -> Annotations:
    """Some rows of a crowd, with weights."""
    rows = np.arange(len(crowd)) if rows is None else np.asarray(rows)
    sizes = {"n_instances": crowd.n_instances, "n_annotators": crowd.n_annotators, "n_classes": crowd.n_classes}
    triples = crowd.instance[rows], crowd.annotator[rows], crowd.label[rows]
    return Annotations.from_triples(*triples, **sizes, weight=np.broadcast_to(weight, len(rows)))


def fit(name: str, crowd: Annotations) -> Any:
    return AGGREGATORS[name](random_state=0, **LESS.get(name, {})).fit(crowd)


@every
@pytest.mark.parametrize("scale", [0.001, 0.1, 7.0, 1_000.0])
def test_the_scale_of_weights_changes_nothing(name: str, scale: float) -> None:
    crowd, weight = uneven()
    one, other = (fit(name, weighted(crowd, weight * factor)) for factor in (1.0, scale))
    assert_array_equal(other.labels_, one.labels_)
    assert_allclose(other.posterior_, one.posterior_, atol=1e-3)
    assert_allclose(other.skill_, one.skill_, atol=1e-3)


@every
def test_one_weight_for_all_is_none(name: str) -> None:
    crowd, _ = uneven()
    for constant in (0.1, 5.0, 100.0):
        assert_allclose(fit(name, weighted(crowd, constant)).posterior_, fit(name, crowd).posterior_, atol=1e-12)


@every
def test_two_labels_of_half_a_weight_are_one(name: str) -> None:
    crowd, weight = uneven()
    rows = np.repeat(np.arange(len(crowd)), 2)
    halves = fit(name, weighted(crowd, np.repeat(weight, 2) / 2.0, rows))
    assert_allclose(halves.posterior_, fit(name, weighted(crowd, weight)).posterior_, atol=1e-6)


@every
def test_a_label_that_was_split_in_two_is_still_one(name: str) -> None:
    crowd, _ = uneven()
    rows = np.append(np.arange(len(crowd)), 0)
    weight = np.ones(len(rows))
    weight[[0, -1]] = 0.25, 0.75
    assert_allclose(fit(name, weighted(crowd, weight, rows)).posterior_, fit(name, crowd).posterior_, atol=1e-6)


@every
@pytest.mark.filterwarnings("ignore:this crowd is too sparse")
def test_posteriors_are_finite_whatever_the_weights(name: str) -> None:
    crowd, weight = uneven()
    spread = weight ** np.random.default_rng(1).choice([1, 12], len(weight))  # from 1e-9 to 1e8
    for each in (spread, np.where(np.arange(len(weight)) % 50 == 0, 1e6, weight)):
        posterior = fit(name, weighted(crowd, each)).posterior_
        assert np.all(np.isfinite(posterior))
        assert np.all(posterior >= 0.0)
        assert_allclose(posterior.sum(axis=1), 1.0, atol=1e-9)


@every
def test_a_silent_annotator_changes_nothing(name: str) -> None:
    crowd, _ = uneven()
    sizes = {"n_instances": crowd.n_instances, "n_annotators": 9, "n_classes": 3}
    wider = Annotations.from_triples(crowd.instance, crowd.annotator + 1, crowd.label, **sizes)
    assert_allclose(fit(name, wider).posterior_, fit(name, crowd).posterior_, atol=1e-9)


@every
def test_without_a_seed_a_crowd_has_one_result(name: str) -> None:
    crowd, _ = uneven(40)
    one, other = (AGGREGATORS[name](tie="random", **LESS.get(name, {})).fit(crowd) for _ in range(2))
    assert_array_equal(other.posterior_, one.posterior_)
    assert_array_equal(other.labels_, one.labels_)


@pytest.mark.parametrize("name", ["crh", "wawa", "fast-dawid-skene", "zero-based-skill", "hierarchical-dawid-skene"])
def test_ties_do_not_ask_for_the_order_of_classes(name: str) -> None:
    """Two labels an item, so that nearly half of the items are ties; and four classes in each of two orders."""
    crowd, _ = simulated(60, 6, 4, 2, (0.4, 0.8), seed=4)
    order = np.array([3, 0, 2, 1])
    sizes = {"n_instances": 60, "n_annotators": 6, "n_classes": 4}
    renamed = Annotations.from_triples(crowd.instance, crowd.annotator, order[crowd.label], **sizes)
    with warnings.catch_warnings(action="ignore"):
        assert_allclose(fit(name, renamed).posterior_[:, order], fit(name, crowd).posterior_, atol=1e-9)


def test_one_coin_prior_is_in_labels() -> None:
    """Four labels, right as often as the weighted vote says: 2 (1 + 1) + 1 (2/3) + ... by hand."""
    table = [0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [0, 0, 1, 1, 1]
    weight = np.array([0.2, 0.2, 0.4, 0.2, 0.2])
    crowd = MemoryCrowd.of(Annotations.from_triples(*table, weight=weight))
    assert crowd.scale == pytest.approx(5.0)
    right, wrong = OneCoinDawidSkene()._beliefs(crowd)
    accuracy = (1 * 0.5 + 1 * 0.5 + 2 * 0.5 + 1 + 1) / 6  # instance 0: 2 votes against 2; instance 1: 2 of 2
    assert_allclose(right, 4 * accuracy)
    assert_allclose(wrong, 4 * (1 - accuracy))


def test_a_warning_names_weights_far_from_one() -> None:
    crowd, weight = uneven()
    with pytest.warns(CrowdwiseWarning, match=r"usually weigh 100: all weights are divided by that"):
        DawidSkene().fit(weighted(crowd, 100.0))
    with warnings.catch_warnings(action="error", category=CrowdwiseWarning):
        DawidSkene().fit(weighted(crowd, weight))


def test_recommendation_counts_annotators_not_weights() -> None:
    crowd, _ = uneven()
    plain, light = recommend(crowd), recommend(weighted(crowd, 0.1))
    assert (light.name, light.reason) == (plain.name, plain.reason)
    single = Annotations.from_triples([0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 1, 0], weight=[5.0, 4.0, 5.0, 5.0])
    assert recommend(single).name == "majority-vote"
    assert "one label per instance" in recommend(single).reason


# -- the parts ---------------------------------------------------------------------------------------------------------


def test_asking_for_pairs_leaves_the_layout_alone() -> None:
    """Sums of duplicates are made in place, and sparse matrices share arrays."""
    rows = np.repeat(np.arange(30), 2)
    crowd, _ = uneven()
    layout = MemoryCrowd.of(weighted(crowd, 0.5, rows)).layout
    before = [part.copy() for part in (layout.cells, layout.indptr, layout.weight)]
    agreed, pairs = queries.pairs(layout)
    for kept, now in zip(before, (layout.cells, layout.indptr, layout.weight), strict=True):
        assert_array_equal(now, kept)
    plain = MemoryCrowd.of(weighted(crowd, 1.0, rows[::2])).layout
    assert (agreed, pairs) == pytest.approx(queries.pairs(plain))


def test_voices_by_brute_force() -> None:
    rng = np.random.default_rng(3)
    table = np.unique(rng.integers(0, [9, 4, 3], (60, 3)), axis=0)  # soft labels: several of a pair
    crowd = Annotations.from_triples(*table.T, n_instances=10, weight=rng.random(len(table)) + 0.1)
    memory = MemoryCrowd.of(crowd)
    people = [len({j for i, j, _ in table.tolist() if i == k}) for k in range(10)]
    assert memory.annotators_per_instance.tolist() == crowd.annotators_per_instance.tolist() == people
    sums: dict[tuple[int, int], float] = {}
    for (i, j, _), weight in zip(table.tolist(), crowd.weight.tolist(), strict=True):
        sums[i, j] = sums.get((i, j), 0.0) + weight
    usual = sorted(sums.values())[(len(sums) - 1) // 2]
    assert memory.scale == pytest.approx(1 / usual, rel=1e-6)
    assert_allclose(sorted(weights.voice_weights(memory.layout)), np.array(sorted(sums.values())) / usual, rtol=1e-6)
    assert_allclose(memory.labels_per_instance.sum(), sum(sums.values()) / usual, rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_light_label_is_not_surer_when_tempered(compiled: bool) -> None:
    """The first tenth of a vote would say more than a tenth of what a vote says."""
    crowd = MemoryCrowd.of(Annotations.from_triples([0, 1, 2, 2], [0, 1, 0, 1], [0, 1, 1, 1], n_classes=2))
    share = np.array([0.1, 0.3])
    layout = crowd.layout._replace(compiled=compiled)
    posterior = np.array([[0.53, 0.47], [0.42, 0.58], [0.4, 0.6]])
    found = tempering.tempered(layout, posterior, 1.2, 0.4, share)
    assert np.all(found.max(axis=1) <= posterior.max(axis=1) + 1e-12)
    assert_array_equal(found.argmax(axis=1), posterior.argmax(axis=1))


def test_compiled_and_plain_tempering_agree_on_weights_of_annotations() -> None:
    crowd, weight = uneven(200)
    plain = MemoryCrowd.of(weighted(crowd, weight)).layout
    fast = plain._replace(compiled=True)
    posterior = np.random.default_rng(0).dirichlet(np.full(3, 0.3), 200)
    for share in (None, np.random.default_rng(1).random(7)):
        one, other = (tempering.vote_evidence(each, posterior, share) for each in (plain, fast))
        assert_allclose(other, one)
        one, other = (tempering.tempered(each, posterior, 1.3, 0.2, share) for each in (plain, fast))
        assert_allclose(other, one)
    unweighted = tempering.vote_evidence(plain._replace(weight=None), posterior)
    assert abs(unweighted[1] / tempering.vote_evidence(plain, posterior)[1] - 1.0) > 0.05  # weights count


def test_evidence_of_votes_by_hand() -> None:
    """Two votes lead by 2, with weights by 0.5 + 3 - 0.25; evidence is the logarithm of the odds."""
    table = [0, 0, 0, 1], [0, 1, 2, 0], [0, 0, 1, 1]
    layout = MemoryCrowd.of(Annotations.from_triples(*table, n_classes=2)).layout
    posterior = np.array([[0.8, 0.2], [0.25, 0.75]])
    assert_allclose(tempering.vote_evidence(layout, posterior), (np.log(4) * 1 + np.log(3) * 1, 2.0))
    heavy = layout._replace(weight=np.array([0.5, 3.0, 0.25, 2.0]))
    assert_allclose(tempering.vote_evidence(heavy, posterior), (np.log(4) * 3.25 + np.log(3) * 2, 3.25**2 + 4.0))


# -- hard labels and output ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ([1, 1, 1], [(0, 0, 2), (1, 0, 1)]),  # equal: the first
        ([1, 3, 1], [(0, 0, 1), (1, 0, 1)]),
        ([0.5, 0.25, 2], [(0, 0, 2), (1, 0, 1)]),
    ],
)
def test_hard_labels_are_one_a_pair(weight: list[float], expected: list[tuple[int, int, int]]) -> None:
    crowd = Annotations.from_triples([0, 0, 1], [0, 0, 0], [2, 1, 1], n_classes=3, weight=weight)
    hard = crowd.hard()
    assert hard.weight is None
    assert list(zip(hard.instance.tolist(), hard.annotator.tolist(), hard.label.tolist(), strict=True)) == expected


def test_hard_labels_add_up_repeats() -> None:
    crowd = Annotations.from_triples([0] * 4, [0] * 4, [1, 0, 0, 2], n_classes=3, weight=[0.4, 0.25, 0.25, 0.1])
    assert crowd.hard().label.tolist() == [0]  # two quarters are more than 0.4


@pytest.mark.parametrize("stream", [False, True])
def test_labels_are_counted_not_weighed(stream: bool, tmp_path: Any) -> None:
    from crowdwise.tasks.aggregate import aggregate

    table = {"item": [1, 1, 1, 2, 2], "worker": list("abcab"), "label": list("xyyxx"), "weight": [5.0, 1, 1, 0.5, 0.5]}
    pq.write_table(pa.table(table), tmp_path / "w.parquet")
    aggregate(tmp_path / "w.parquet", tmp_path / "o.parquet", method="majority-vote", stream=stream)
    found = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [row["n_annotations"] for row in found] == [3, 2]
    assert [row["label"] for row in found] == ["x", "x"]
