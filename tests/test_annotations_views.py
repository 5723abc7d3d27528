"""What `Annotations` promises once they are made: views, selections, parts, sums and identity."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdwise import Annotations
from crowdwise.errors import AnnotationError, ConfigError
from fixtures import CROWD_KIT, T1, t1, t2


@st.composite
def crowds(draw: st.DrawFn) -> Annotations:
    n, r, c = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    row = st.tuples(st.integers(0, n - 1), st.integers(0, r - 1), st.integers(0, c - 1))
    rows = np.array(draw(st.lists(row, max_size=30)), np.int64).reshape(-1, 3)
    return Annotations.from_triples(*rows.T, n_instances=n, n_annotators=r, n_classes=c)


class TestViews:
    def test_votes_of_the_fixture(self):
        assert t1().votes().tolist() == [[2, 1], [0, 3], [3, 0], [1, 2], [1, 1]]

    @given(crowds())
    def test_groups_hold_each_row_once_in_input_order(self, a):
        for grouped, codes, size in (
            (a.by_instance, a.instance, a.n_instances),
            (a.by_annotator, a.annotator, a.n_annotators),
        ):
            assert grouped.indptr.dtype == grouped.order.dtype == np.int64
            for g in range(size):
                assert grouped[g].tolist() == np.flatnonzero(codes == g).tolist()
            assert grouped.counts.sum() == len(a)

    @given(crowds())
    def test_counts_agree_with_votes(self, a):
        assert a.votes().sum(axis=1).tolist() == a.labels_per_instance.tolist()
        assert a.n_duplicates == len(a) - len({*zip(a.instance.tolist(), a.annotator.tolist(), strict=True)})

    def test_views_are_computed_once_and_read_only(self):
        a = t1()
        assert a.by_instance is a.by_instance
        assert not a.by_instance.order.flags.writeable
        assert not a.labels_per_instance.flags.writeable


class TestSelect:
    def test_instances_are_renumbered_in_the_order_given(self):
        a = Annotations.from_frame(CROWD_KIT)
        part = a.select([2, 0])
        assert part.instances.tolist() == ["t3", "t2"]
        assert part.instance.tolist() == [1, 1, 0]
        assert part.annotators.tolist() == a.annotators.tolist()
        assert part.classes.tolist() == a.classes.tolist()

    def test_codes_and_masks_agree(self):
        mask = np.array([True, False, True, False, False])
        assert t1().select(mask) == t1().select([0, 2])
        assert t1().select(mask).instances.tolist() == [0, 2]

    def test_annotators_are_filtered_but_not_renumbered(self):
        part = t1().select(annotators=[2])
        assert part.n_annotators == 3
        assert set(part.annotator.tolist()) == {2}
        assert part.n_instances == 5

    def test_selecting_everything_changes_nothing(self):
        assert t2().select() == t2().select(range(6), range(5)) == t2()

    def test_selecting_nothing_is_legal(self):
        assert repr(t1().select([])) == "Annotations(0 instances, 3 annotators, 2 classes, 0 annotations)"

    @pytest.mark.parametrize(
        ("selection", "message"),
        [
            ([5], "instance 5 is out of range: this crowd has 5 instances"),
            ([-1], "instance -1 is out of range"),
            ([1, 1], "instance 1 is selected 2 times"),
            ([True], r"the instance mask has shape \(1,\), expected \(5,\)"),
        ],
    )
    def test_bad_selections_are_named(self, selection, message):
        with pytest.raises(AnnotationError, match=message):
            t1().select(selection)


class TestSplit:
    def test_parts_are_disjoint_and_complete(self):
        a = t2()
        parts = a.split([0.5, 0.3, 0.2], random_state=0)
        assert sorted(np.concatenate([codes for _, codes in parts])) == list(range(6))
        assert sum(len(part) for part, _ in parts) == len(a)
        for part, codes in parts:
            assert part == a.select(codes)
            assert part.n_annotators == 5

    def test_a_number_is_the_share_of_the_second_part(self):
        (train, _), (test, held_out) = t1().split(0.2, random_state=1)
        assert (train.n_instances, test.n_instances, len(held_out)) == (4, 1, 1)

    def test_the_same_seed_gives_the_same_parts(self):
        first, second = t1().split(0.4, random_state=3), t1().split(0.4, random_state=3)
        assert [codes.tolist() for _, codes in first] == [codes.tolist() for _, codes in second]

    @pytest.mark.parametrize("fractions", [1.5, -0.1, [0.5, 0.2], [1.5, -0.5], [[1.0]]])
    def test_bad_fractions_are_refused(self, fractions):
        with pytest.raises(ConfigError, match="fractions must be"):
            t1().split(fractions)


class TestConcat:
    def test_same_ids_unify_and_new_ones_append(self):
        a = Annotations.from_frame(CROWD_KIT)
        b = Annotations.from_frame({"task": ["t0", "t1"], "worker": ["cyd", "bob"], "label": ["ape", "cat"]})
        both = Annotations.concat([a, b])
        assert both.instances.tolist() == ["t2", "t1", "t3", "t0"]
        assert both.annotators.tolist() == ["bob", "ann", "cyd"]
        assert both.classes.tolist() == ["ant", "cat", "dog", "ape"]
        assert both.to_frame().to_pylist() == a.to_frame().to_pylist() + b.to_frame().to_pylist()

    def test_codes_unify_by_number(self):
        both = Annotations.concat([t1(), t2()])
        assert repr(both) == "Annotations(6 instances, 5 annotators, 4 classes, 27 annotations)"

    def test_nothing_and_one_part(self):
        assert len(Annotations.concat([])) == 0
        assert Annotations.concat([t2()]) == t2()
        empty = Annotations.from_triples([], [], [])
        named = Annotations.from_frame(CROWD_KIT)
        assert Annotations.concat([empty, named, empty]) == named

    def test_ids_of_different_types_cannot_be_merged(self):
        with pytest.raises(AnnotationError, match=r"instances cannot be merged: ids such as 0 are int64, .* 't2'"):
            Annotations.concat([t1(), Annotations.from_frame(CROWD_KIT)])

    @given(crowds(), st.integers(0, 2**32 - 1))
    def test_the_parts_of_a_split_hold_the_same_annotations_as_the_whole(self, a, seed):
        whole = Annotations.concat([part for part, _ in a.split([0.4, 0.6], random_state=seed)])
        rows = whole.to_frame().to_pylist()
        assert sorted(map(str, rows)) == sorted(map(str, a.to_frame().to_pylist()))


class TestIdentity:
    def test_equality_compares_triples_sizes_and_ids(self):
        rows = list(zip(*T1, strict=True))
        assert t1() == t1()
        assert t1() != Annotations.from_triples(*rows, n_instances=6)
        assert t1() != Annotations.from_triples(*rows, classes=["no", "yes"])
        assert t1() != Annotations.from_triples(*rows[:2], [0] * 14, n_classes=2)
        assert t1() != "t1"
        assert Annotations.from_triples(*rows, classes=[0, 1]) == t1()

    def test_it_cannot_be_hashed(self):
        with pytest.raises(TypeError):
            hash(t1())

    @pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
    def test_copies_are_equal_and_still_read_only(self, clone):
        a = Annotations.from_frame(CROWD_KIT)
        assert clone(a) == a
        assert not clone(a).label.flags.writeable
