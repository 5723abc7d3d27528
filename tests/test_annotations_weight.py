"""Weights of annotations: soft labels, replicates, and that weights of 1 change nothing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest

from crowdwise import Annotations, agreement, quality
from crowdwise.aggregation import DawidSkene, MajorityVote
from crowdwise.aggregation.core import kernels, queries
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.errors import AnnotationError
from crowdwise.registry import AGGREGATORS
from tolerances import DOUBLE


def crowd(n=60, people=6, classes=3, seed=0, **options):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, n)
    i, j = np.nonzero(rng.random((n, people)) < 0.7)
    skill = np.linspace(0.5, 0.95, people)[j]
    y = np.where(rng.random(len(i)) < skill, truth[i], rng.integers(0, classes, len(i)))
    sizes = {"n_instances": n, "n_annotators": people, "n_classes": classes}
    return Annotations.from_triples(i, j, y, **sizes, **options)


def weighted(plain, weight):
    return Annotations(
        plain.instance,
        plain.annotator,
        plain.label,
        plain.instance_vocabulary,
        plain.annotator_vocabulary,
        plain.class_vocabulary,
        np.broadcast_to(np.float32(weight), len(plain)),
    )


def twice(plain, rows):
    return Annotations.concat([plain, plain.where(rows)])


# -- the column ----------------------------------------------------------------------------------------------------------


def test_without_weights_there_is_no_column():
    a = crowd()
    assert a.weight is None
    assert a.votes().dtype.kind == "i"
    assert "weight" not in a.to_frame().column_names


def test_weights_come_from_a_column_and_go_back_to_it():
    table = pa.table(
        {"item": [1, 1, 2, 3], "worker": ["a", "a", "b", "a"], "label": ["x", "y", "x", "y"], "w": [0.25, 0.75, 1, 0]}
    )
    a = Annotations.from_frame(table, weight="w")
    assert len(a) == 3  # weight 0 is no label
    assert a.n_instances == 3
    assert a.weight.dtype == np.float32
    assert not a.weight.flags.writeable
    np.testing.assert_allclose(a.votes(), [[0.25, 0.75], [1, 0], [0, 0]])
    assert a.labels_per_instance.tolist() == [1, 1, 0]
    back = Annotations.from_frame(a.to_frame(), weight="weight", instances=[1, 2, 3])
    assert back == a


@pytest.mark.parametrize(
    ("values", "problem"),
    [([1, -1], "row 1: weight -1"), ([1, float("nan")], "row 1: weight None"), (["1", "much"], "row 1: weight 'much'")],
)
def test_bad_weights_are_named(values, problem):
    table = {"item": [1, 2], "worker": [1, 1], "label": [0, 1], "weight": values}
    with pytest.raises(AnnotationError, match=problem):
        Annotations.from_frame(table, weight="weight")
    with pytest.raises(AnnotationError, match="no column 'wight' for the weight; did you mean 'weight'"):
        Annotations.from_frame(table, weight="wight")
    with pytest.raises(AnnotationError, match="shape"):
        Annotations.from_triples([0], [0], [0], weight=[1, 2])


def test_weights_follow_their_rows():
    a = crowd(weight=None)
    a = weighted(a, np.linspace(0.1, 1, len(a)))
    picked = a.where(np.arange(len(a)) % 2 == 0)
    np.testing.assert_array_equal(picked.weight, a.weight[::2])
    some = a.select([3, 1], [0, 2])
    mask = np.isin(a.instance, [1, 3]) & np.isin(a.annotator, [0, 2])
    assert sorted(some.weight) == sorted(a.weight[mask])
    both = Annotations.concat([a, crowd(seed=1)])
    np.testing.assert_array_equal(both.weight, [*a.weight, *np.ones(len(both) - len(a), np.float32)])
    assert copy.copy(a) == pickle.loads(pickle.dumps(a)) == a != crowd()


def test_soft_labels_from_probabilities():
    a = Annotations.from_soft([[[0.995, 0.005], [0.4, 0.6]], [[np.nan, np.nan], [1, 1]]], classes=["no", "yes"])
    assert len(a) == 5
    np.testing.assert_allclose(a.votes(), [[1.4, 0.6], [0.5, 0.5]], rtol=1e-6)
    assert a.labels_per_annotator.tolist() == [1, 2]
    assert a.n_duplicates == 0
    assert Annotations.from_soft([[1.0, 0.0]]).weight is None
    assert a.hard().to_frame().to_pylist()[1]["label"] == "yes"
    with pytest.raises(AnnotationError, match="shape"):
        Annotations.from_soft([0.5, 0.5])


# -- replicates ----------------------------------------------------------------------------------------------------------


def test_equal_draws_are_one_label_exactly():
    a = crowd()
    drawn = Annotations.concat([a] * 5).deduplicated("share")
    assert drawn == a
    assert drawn.weight is None


def test_draws_share_one_label():
    a = Annotations.from_triples([0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1], duplicates="share")
    np.testing.assert_allclose(a.votes(), [[0.25, 0.75], [0, 1]])
    assert a.label.tolist() == [1, 0, 1]
    assert a.n_duplicates == 0
    assert a.deduplicated("share") is a
    soft = Annotations.from_soft([[0.5, 0.5]])
    again = Annotations.concat([soft, Annotations.from_triples([0], [0], [1])])
    assert again.n_duplicates == 2
    np.testing.assert_allclose(again.deduplicated("share").votes(), [[0.25, 0.75]])


def test_self_consistency():
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(100), 4)
    steady, wavering = np.repeat(rng.integers(0, 3, 100), 4), rng.integers(0, 3, 400)
    a = Annotations.from_triples(
        np.concatenate([item, item, [0]]), [0] * 400 + [1] * 400 + [2], np.concatenate([steady, wavering, [1]])
    )
    rows = agreement.self_consistency(a).to_pylist()
    assert (rows[0]["same"], rows[0]["alpha"], rows[0]["entropy"], rows[0]["labels_each"]) == (1.0, 1.0, 0.0, 4.0)
    assert abs(rows[1]["alpha"]) < 0.1
    assert rows[1]["same"] < 0.1
    assert rows[1]["entropy"] > 0.8
    assert rows[2] == {"annotator": 2, "n_repeated": 0} | dict.fromkeys(("labels_each", "same", "alpha", "entropy"))


# -- aggregation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(AGGREGATORS))
def test_weights_of_one_change_nothing(name):
    a = crowd()
    one, other = (AGGREGATORS[name](random_state=0).fit(each) for each in (a, weighted(a, 1.0)))
    np.testing.assert_allclose(other.posterior_, one.posterior_, atol=DOUBLE)
    np.testing.assert_allclose(other.skill_, one.skill_, atol=DOUBLE)


@pytest.mark.parametrize("name", ["dawid-skene", "majority-vote", "wawa", "glad", "ibcc", "mace", "zero-based-skill"])
def test_a_weight_of_two_is_the_row_twice(name):
    a = crowd()
    rows = np.arange(len(a)) % 3 == 0
    one, other = (AGGREGATORS[name](random_state=0).fit(x) for x in (twice(a, rows), weighted(a, 1 + rows)))
    np.testing.assert_allclose(other.posterior_, one.posterior_, atol=DOUBLE)


@pytest.mark.parametrize("name", sorted(AGGREGATORS))
def test_every_method_takes_soft_labels(name):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 200)
    said = np.where(rng.random((200, 6)) < 0.8, truth[:, None], rng.integers(0, 3, (200, 6)))
    model = AGGREGATORS[name](random_state=0).fit(Annotations.from_soft(0.85 * np.eye(3)[said] + 0.05))
    assert np.mean(model.labels_ == truth) > 0.9
    assert np.isfinite(model.skill_interval()).all()


def test_pairs_of_labels_are_those_of_different_annotators():
    soft = Annotations.from_soft([[[0.5, 0.5], [1.0, 0.0]]])
    agreed, pairs = queries.pairs(MemoryCrowd.of(soft).layout)
    assert (agreed, pairs) == pytest.approx((1.0, 2.0))  # two ordered pairs, which agree by a half each


def test_dawid_skene_to_the_last_digits():
    a = crowd(n=300)
    rows = np.arange(len(a)) % 3 == 0
    one, other = (DawidSkene(max_iter=20, tol=0).fit(x) for x in (twice(a, rows), weighted(a, 1 + rows)))
    np.testing.assert_allclose(other.posterior_, one.posterior_, atol=DOUBLE)
    np.testing.assert_allclose(other.confusion_, one.confusion_, atol=DOUBLE)


def test_scaling_all_weights_leaves_the_vote_alone():
    a = crowd()
    weight = np.random.default_rng(0).uniform(0.1, 1, len(a))
    one, other = (MajorityVote().fit(weighted(a, weight * scale)) for scale in (1, 4))
    np.testing.assert_allclose(one.posterior_, other.posterior_, atol=1e-7)


@pytest.mark.parametrize("gold", [False, True])
def test_compiled_and_plain_passes_agree(gold):
    pytest.importorskip("numba")
    a = crowd(n=400)
    a = weighted(a, np.random.default_rng(1).uniform(0.1, 2, len(a)))
    known = np.where(np.arange(400) % 5 == 0, 1, -1).astype(np.int32) if gold else None
    plain = MemoryCrowd.of(a, known).layout
    for threads in (1, 2):
        fast = plain._replace(compiled=True, threads=threads)
        emission = np.random.default_rng(2).dirichlet(np.ones(3), (6, 3)).transpose(0, 2, 1).copy()
        prior = np.array([0.2, 0.5, 0.3])
        one, other = kernels.em_step(plain, emission, prior), kernels.em_step(fast, emission, prior)
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=DOUBLE)
        posterior = one.posterior
        np.testing.assert_allclose(
            kernels.confusion_counts(fast, posterior), kernels.confusion_counts(plain, posterior), atol=DOUBLE
        )


def test_the_order_of_rows_is_irrelevant():
    a = crowd()
    a = weighted(a, np.random.default_rng(0).uniform(0.1, 1, len(a)))
    order = np.random.default_rng(1).permutation(len(a))
    table = a.to_frame().take(order)
    shuffled = Annotations.from_frame(table, weight="weight", instances=range(60), annotators=range(6))
    np.testing.assert_array_equal(DawidSkene().fit(shuffled).posterior_, DawidSkene().fit(a).posterior_)


def test_a_soft_label_says_less_than_a_hard_one():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200)
    sure = np.where(rng.random((200, 3)) < 0.9, truth[:, None], 1 - truth[:, None])
    hard = np.eye(2)[sure]
    soft = 0.5 + (hard - 0.5) * 0.8
    one, other = (DawidSkene().fit(Annotations.from_soft(p)).posterior_ for p in (hard, soft))
    assert other.max(axis=1).mean() < one.max(axis=1).mean()
    assert np.mean(other.argmax(axis=1) == truth) > 0.9


def test_agreement_and_quality_take_soft_labels():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([2, 1, 1], (80, 4))
    soft = Annotations.from_soft(probabilities)
    hard = Annotations.from_dense(probabilities.argmax(axis=2))
    for measure in (agreement.krippendorff_alpha, agreement.fleiss_kappa, agreement.raw_agreement):
        assert measure(soft, n_bootstrap=0).value == measure(hard, n_bootstrap=0).value
    np.testing.assert_array_equal(
        agreement.pairwise(soft, n_bootstrap=0).value, agreement.pairwise(hard, n_bootstrap=0).value
    )
    model = DawidSkene().fit(soft)
    table = quality.annotators(soft, model)
    assert table.num_rows == 4
    assert np.isfinite(table["annotator_quality"].to_numpy()).all()
    assert quality.instances(soft, model).num_rows == 80
    assert quality.next_labels(soft, model, budget=5).num_rows == 0  # everybody has labelled everything


def without_repeats(rows, policy):
    """A policy for repeats by hand: of pairs labelled again, and of no others; a soft label is no repeat."""
    kept = []
    for pair in dict.fromkeys(row[:2] for row in rows):
        group = [row for row in rows if row[:2] == pair]
        total = sum(weight for *_, weight in group)
        labels = [label for *_, label, _ in group]
        if len(group) == 1 or (len(set(labels)) == len(labels) and total <= 1):
            kept += group
        elif policy == "share":
            kept += [
                (*pair, label, sum(row[3] for row in group if row[2] == label) / total)
                for label in dict.fromkeys(labels)
            ]
        else:
            kept.append(group[0] if policy == "first" else group[-1])
    return sorted(kept)


@pytest.mark.parametrize("policy", ["first", "last", "share"])
@pytest.mark.parametrize("seed", range(20))
def test_a_policy_for_repeats_changes_only_pairs_that_are_repeated(policy, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.integers(0, size, 14) for size in (5, 3, 3)]
    weight = rng.choice([0.25, 0.5, 1.0, 2.0], 14)
    a = Annotations.from_triples(*parts, weight=weight)
    rows = list(zip(*(part.tolist() for part in (*parts, weight)), strict=True))
    found = a.deduplicated(policy)
    given = np.ones(len(found)) if found.weight is None else found.weight
    columns = (found.instance, found.annotator, found.label, given)
    made = sorted(zip(*(column.tolist() for column in columns), strict=True))
    wanted = without_repeats(rows, policy)
    assert [row[:3] for row in made] == [row[:3] for row in wanted]
    np.testing.assert_allclose([row[3] for row in made], [row[3] for row in wanted], rtol=1e-6)
