"""The parts that annotations are made of, against second implementations: codes, ids, repeats, shares, names, notebooks."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from scipy import stats

from crowdwise.annotations import Annotations
from crowdwise.data import label_rules, matching, notebook, repeats, training
from crowdwise.data.codes import Grouped, row_blocks, selected, totals
from crowdwise.data.comparing import comparable
from crowdwise.data.factorise import Column, Vocabulary, encode_classes, factorise, id_texts, merge, plain
from crowdwise.data.labelled import rows_of_export
from crowdwise.data.located import find_picture, located
from crowdwise.data.matching import POSITION, match
from crowdwise.data.shares import benjamini_yekutieli, holm, wilson
from crowdwise.errors import AnnotationError, DataError
from crowdwise.readers import read

LONG_TABLE = {"item": ["b", "a", "b"], "worker": ["ann", "ann", "bob"], "label": ["x", "y", "x"]}


def draw(seed: int = 0, size: int = 60) -> Annotations:
    """Random labels with weights, of which some pairs have several; the last of everything is never used."""
    rng = np.random.default_rng(seed)
    parts = [rng.integers(number - 1, size=size) for number in (12, 5, 4)]
    return Annotations.from_triples(
        *parts, n_instances=12, n_annotators=5, n_classes=4, weight=rng.choice([0.25, 0.5, 1.5], size)
    )


class TestCounts:
    def test_of_labels_and_annotators_cover_items_and_people_without_any(self) -> None:
        a = draw()
        rows = list(zip(a.instance.tolist(), a.annotator.tolist(), a.label.tolist(), a.weight.tolist(), strict=True))
        people = [len({j for i, j, _, _ in rows if i == item}) for item in range(12)]
        assert a.annotators_per_instance.tolist() == people
        assert people[-1] == 0
        for found, place, size in ((a.labels_per_instance, 0, 12), (a.labels_per_annotator, 1, 5)):
            expected = [math.fsum(row[3] for row in rows if row[place] == code) for code in range(size)]
            np.testing.assert_allclose(found, expected)
        votes = np.zeros((12, 4))
        for i, _, y, w in rows:
            votes[i, y] += w
        np.testing.assert_allclose(a.votes(), votes)

    def test_of_weights_are_integers_only_where_they_are_whole(self) -> None:
        codes = np.array([0, 0, 2])
        assert totals(codes, None, 4).tolist() == [2, 0, 1, 0]
        whole = totals(codes, np.array([0.5, 1.5, 3]), 4)
        assert (whole.tolist(), whole.dtype.kind) == ([2, 0, 3, 0], "i")
        assert totals(codes, np.array([0.5, 1.25, 3]), 4).tolist() == [1.75, 0, 3, 0]
        near = totals(np.zeros(3, int), np.full(3, 1 / 3, np.float32), 1)
        assert (near.tolist(), near.dtype.kind) == ([1], "i")  # a soft label of three draws is one label
        assert totals(np.zeros(1, int), np.array([1000.01]), 1).dtype.kind == "f"

    def test_a_table_beyond_the_memory_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        a = draw()
        needed = 3 * 8 * 12 * 4
        for there in (needed, needed + 1, None):
            monkeypatch.setattr("crowdwise.annotations.total_memory", lambda there=there: there)
            a.check_size()
        monkeypatch.setattr("crowdwise.annotations.total_memory", lambda: needed - 1)
        with pytest.raises(AnnotationError, match=r"12 instances by 4 classes need .* GB.*are 0, 1, 2 labels\?"):
            a.check_size()


class TestCodes:
    @pytest.mark.parametrize("seed", range(5))
    def test_groups_hold_rows_in_input_order(self, seed: int) -> None:
        codes = np.random.default_rng(seed).integers(7, size=40).astype(np.int32)
        for given in (codes, np.sort(codes), np.sort(codes)[::-1].copy()):
            grouped = Grouped.of(given, 9)
            for group in range(9):
                assert grouped[group].tolist() == [row for row, code in enumerate(given.tolist()) if code == group]
            assert grouped.counts.tolist() == [given.tolist().count(group) for group in range(9)]

    @pytest.mark.parametrize(("rows", "width", "limit"), [(0, 3, 6), (7, 3, 6), (6, 3, 6), (5, 10, 6), (5, 0, 2)])
    def test_blocks_cover_every_row_once_and_stay_below_the_limit(self, rows: int, width: int, limit: int) -> None:
        blocks = list(row_blocks(rows, width, limit))
        assert [row for block in blocks for row in range(rows)[block]] == list(range(rows))
        assert all(block.stop <= rows for block in blocks)
        assert all((block.stop - block.start) * width <= max(limit, width) for block in blocks)

    def test_a_selection_twice_is_refused_with_its_number(self) -> None:
        assert selected([3, 1], "instance", 4).tolist() == [3, 1]
        assert selected([False, True, True], "instance", 3).tolist() == [1, 2]
        assert selected([], "instance", 4).tolist() == []
        with pytest.raises(AnnotationError, match="instance 3 is selected 2 times"):
            selected([3, 1, 3], "instance", 4)


class TestIds:
    def test_of_any_width_of_integers_are_the_same(self) -> None:
        kinds = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64]
        made = [factorise(Column.of(np.array([7, 3, 7], kind), "x")) for kind in kinds]
        for codes, vocabulary in made:
            assert codes.tolist() == [0, 1, 0]
            assert vocabulary.arrow.type == pa.int64()
            assert vocabulary.same_as(made[0][1])
        union = merge([(codes, vocabulary) for codes, vocabulary in made], "instances")[1]
        assert union.values.tolist() == [7, 3]
        large = factorise(Column.of(np.array([2**63, 2**63 - 1], np.uint64), "x"))[1]
        assert large.arrow.to_pylist() == [2**63, 2**63 - 1]

    def test_have_one_type_for_texts_integers_and_decimals(self) -> None:
        for kind, one in ((pa.float32(), pa.float64()), (pa.int8(), pa.int64()), (pa.string(), pa.large_string())):
            values = ["a"] if kind == pa.string() else [1]
            assert plain(pa.array(values, kind)).type == one
        assert plain(pa.array([True])).type == pa.bool_()

    def test_one_long_text_does_not_widen_the_others(self) -> None:
        texts = [f"item {k}" for k in range(50)]
        assert factorise(Column.of(texts, "x"))[1].values.dtype.kind == "U"
        mixed = factorise(Column.of([*texts, "x" * 10_000], "x"))[1].values
        assert mixed.dtype.kind == "O"
        assert mixed.tolist() == [*texts, "x" * 10_000]

    def test_are_found_by_value_and_the_first_unknown_is_named(self) -> None:
        vocabulary = Vocabulary.of([f"w{k}" for k in range(9)], "annotators")
        assert vocabulary.lookup(Column.of(["w8", "w0", "w8"], "x")).tolist() == [8, 0, 8]
        with pytest.raises(AnnotationError, match=r"x, row 1: 'zoe' is unknown; known: 'w0', .*'w7', \.\.\.$"):
            vocabulary.lookup(Column.of(["w8", "zoe", "bob"], "x"))
        with pytest.raises(AnnotationError, match=r"'b' is unknown; known: 'a'$"):
            Vocabulary.of(["a"], "annotators").lookup(Column.of(["b"], "x"))
        with pytest.raises(AnnotationError, match="values such as 1 are int64, but the known ids, such as 'w0'"):
            vocabulary.lookup(Column.of([1], "x"))

    def test_are_sorted_as_people_sort_them(self) -> None:
        texts = ["p10", "p9", "q1", "10", "9", "p9b", "p09"]
        vocabulary = factorise(Column.of(texts, "x"))[1]
        assert [texts[code] for code in vocabulary.sorted_codes()] == ["9", "10", "p09", "p9", "p9b", "p10", "q1"]
        assert vocabulary.in_order_of_ids().tolist() == [5, 3, 6, 1, 0, 4, 2]
        assert Vocabulary.of(texts, "x").in_order_of_ids() is None
        assert factorise(Column.of([30, 4, -5], "x"))[1].sorted_codes().tolist() == [2, 1, 0]

    @pytest.mark.parametrize(
        ("values", "problem"),
        [
            ([None, 1, "a"], "x, row 2: 'a' is a str, but earlier values such as 1 are number"),
            ([1, 2.5, float("nan"), True], "x, row 3: True is a bool, but earlier values such as 1 are number"),
            ([np.True_, 2], "x, row 1: 2 is a number, but earlier values such as .*True.* are bool"),
            (["a", b"b"], "x, row 1: b'b' is a bytes, but earlier values such as 'a' are str"),
        ],
    )
    def test_of_several_types_are_refused_at_the_first_that_differs(self, values: list[Any], problem: str) -> None:
        for given in (values, pd.Series(values, dtype=object), np.array(values, object)):
            with pytest.raises(AnnotationError, match=problem):
                Column.of(given, "x")

    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            (["10", "9", "10"], ["9", "10"]),
            (["10", "9", "x"], ["10", "9", "x"]),
            (["02", "10", "2"], ["02", "2", "10"]),
            ([10, 9, -1], [-1, 9, 10]),
            ([2.5, -1.0, 2.5], [-1.0, 2.5]),
            ([True, False], [False, True]),
        ],
    )
    def test_of_classes_ascend_and_stay_with_their_labels(self, labels: list[Any], classes: list[Any]) -> None:
        codes, vocabulary = encode_classes(Column.of(labels, "label"), None)
        assert vocabulary.arrow.to_pylist() == classes
        assert [classes[code] for code in codes] == labels

    def test_annotations_keep_their_meaning_in_other_codes(self) -> None:
        a = Annotations.from_frame({"item": ["p", "q", "q"], "worker": ["u", "u", "v"], "label": ["x", "y", "x"]})
        a = Annotations.from_triples(
            a.instance,
            a.annotator,
            a.label,
            instances=["p", "q"],
            annotators=["u", "v"],
            classes=["x", "y"],
            weight=[1, 2, 3],
        )
        rows = [list(row.values()) for row in a.to_frame().to_pylist()]
        for role, names, column in (("instances", "pq", 0), ("annotators", "uv", 1), ("classes", "xy", 2)):
            other = Vocabulary.of([f"{name}!" for name in reversed(names)], role)
            found = a.recoded(**{role: (np.array([1, 0]), other)})
            expected = [[f"{value}!" if k == column else value for k, value in enumerate(row)] for row in rows]
            assert [list(row.values()) for row in found.to_frame().to_pylist()] == expected

    def test_weights_are_copied_and_read_only(self) -> None:
        given = np.array([1.0, 2.0], np.float32)
        a = Annotations.from_triples([0, 1], [0, 0], [0, 1], weight=given)
        given[0] = 9
        assert a.weight.tolist() == [1, 2]
        with pytest.raises(ValueError, match="read-only"):
            a.weight[0] = 9


class TestRepeats:
    @pytest.mark.parametrize("seed", range(10))
    def test_the_label_that_weighs_most_is_kept_and_the_first_of_equals(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        pairs, weight = rng.integers(8, size=40), rng.choice([0.2, 0.3, 0.5], 40)
        best: dict[int, int] = {}
        for row, (pair, heavy) in enumerate(zip(pairs.tolist(), weight.tolist(), strict=True)):
            if pair not in best or heavy > weight[best[pair]]:
                best[pair] = row
        assert repeats.heaviest(pairs, weight).tolist() == sorted(best.values())

    @pytest.mark.parametrize("seed", range(10))
    def test_hard_labels_are_the_heaviest_of_every_pair(self, seed: int) -> None:
        """Repeats are one label of shares first, so that a label said twice weighs more than one said once."""
        a = draw(seed)
        totals_of: dict[tuple[int, int], dict[int, float]] = {}
        for i, j, y, w in zip(
            a.instance.tolist(), a.annotator.tolist(), a.label.tolist(), a.weight.tolist(), strict=True
        ):
            own = totals_of.setdefault((i, j), {})
            own[y] = own.get(y, 0.0) + w
        hard = a.hard()
        assert hard.weight is None
        assert hard.n_duplicates == 0
        found = dict(
            zip(zip(hard.instance.tolist(), hard.annotator.tolist(), strict=True), hard.label.tolist(), strict=True)
        )
        assert found == {pair: max(own, key=own.__getitem__) for pair, own in totals_of.items()}

    def test_weights_of_one_on_two_labels_leave_the_first(self) -> None:
        hard = Annotations.from_triples([0, 0, 1], [0, 0, 0], [1, 0, 0], weight=[1, 1, 1]).hard()
        assert (hard.label.tolist(), hard.weight) == ([1, 0], None)

    def test_shares_are_at_least_one_percent_and_sum_to_one(self) -> None:
        given = np.array([[[2.0, 1.0, 1.0], [0, 0, 0]], [[np.nan, 1, 1], [0.985, 0.009, 0.006]]])
        np.testing.assert_allclose(repeats.soft_shares(given), [[[0.5, 0.25, 0.25], [0, 0, 0]], [[0, 0, 0], [1, 0, 0]]])
        np.testing.assert_array_equal(repeats.soft_shares(given[:, 0]), repeats.soft_shares(given)[:, :1])

    @pytest.mark.parametrize("bad", [-0.1, np.inf])
    def test_what_is_no_probability_is_refused(self, bad: float) -> None:
        with pytest.raises(AnnotationError, match="probabilities must be 0 or more"):
            Annotations.from_soft([[0.5, 0.5], [1.0, bad]])


class TestShares:
    @pytest.mark.parametrize(
        ("right", "total"), [(0, 9), (3, 9), (9, 9), (1, 1), (2, 50), (3, 50), (3, 51), (49, 51), (4, 60), (40, 1000)]
    )
    @pytest.mark.parametrize("level", [0.9, 0.95])
    def test_wilson_is_that_of_scipy_but_next_to_0_and_1(self, right: int, total: int, level: float) -> None:
        """Of a few cases, the end next to 0 or 1 is that of a Poisson distribution, by its relation to chi-squared."""
        expected = stats.binomtest(right, total).proportion_ci(level, "wilson")
        most = 3 if total > 50 else 2

        def fewest(cases: int) -> float:
            return float(stats.chi2.ppf(1 - level, 2 * cases) / 2 / total) if cases else 0.0

        ends = [expected.low, expected.high]
        if right <= most:
            ends[0] = min(ends[0], fewest(right))
        if total - right <= most:
            ends[1] = max(ends[1], 1 - fewest(total - right))
        low, high = wilson(right, total, level)
        assert (float(low), float(high)) == pytest.approx(ends, abs=1e-7)
        assert 0 <= low <= high <= 1

    def test_of_nothing_anything_may_be(self) -> None:
        low, high = wilson(np.array([0, 3]), np.array([0, 9]))
        assert (low[0], high[0]) == (0, 1)
        assert 0 < low[1] < high[1] < 1

    def test_holm_rejects_what_going_down_the_sorted_p_values_rejects(self) -> None:
        p = np.array([0.02, np.nan, 0.001, 0.3, 0.02, 0.011])
        known = sorted(value for value in p.tolist() if value == value)
        adjusted = holm(p)
        assert np.isnan(adjusted).tolist() == np.isnan(p).tolist()
        for level in (0.004, 0.006, 0.044, 0.05, 0.061, 0.3, 0.31):
            passed = 0
            while passed < 5 and known[passed] <= level / (5 - passed):
                passed += 1
            bar = known[passed - 1] if passed else -1.0
            assert (adjusted[~np.isnan(p)] <= level).tolist() == (p[~np.isnan(p)] <= bar).tolist()

    @pytest.mark.parametrize("seed", range(5))
    def test_benjamini_and_yekutieli_reject_up_to_the_last_that_passes(self, seed: int) -> None:
        p = np.round(np.random.default_rng(seed).beta(0.3, 2, 12), 3)
        harmonic = sum(1 / k for k in range(1, 13))
        passing = [rank for rank, value in enumerate(sorted(p.tolist()), 1) if value <= rank * 0.1 / (12 * harmonic)]
        bar = sorted(p.tolist())[max(passing) - 1] if passing else -1.0
        assert benjamini_yekutieli(p, 0.1).tolist() == (p <= bar).tolist()


def edits(one: str, other: str) -> int:
    """Letters put in, left out, changed, or swapped with the next, by recursion."""
    if not one or not other:
        return len(one) + len(other)
    best = min(edits(one[1:], other) + 1, edits(one, other[1:]) + 1, edits(one[1:], other[1:]) + (one[0] != other[0]))
    if one[:2] == other[1::-1] and len(one) > 1 < len(other):
        best = min(best, edits(one[2:], other[2:]) + 1)
    return best


def test_letters_are_counted_that_tell_two_names_apart() -> None:
    words = ["", "a", "ab", "ba", "abc", "bac", "acb", "cab", "abcd", "abdc", "bacd", "xbcd"]
    for one, other in itertools.product(words, words):
        for most in (0, 1, 2):
            assert label_rules._edits(one, other, most) == min(edits(one, other), most + 1)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("cta", ["cat"], None),  # too short
        ("brid", ["bird"], "bird"),
        ("brd", ["bird"], None),
        ("birrd", ["bird"], "bird"),
        ("elephnat", ["elephant"], "elephant"),
        ("elphnat", ["elephant"], None),
        ("elphnats", ["elephants"], "elephants"),
        ("lphnat", ["elephant"], None),
        ("Bird", ["bird"], "bird"),
        ("class 12", ["class 13"], None),
        (7, ["bird"], None),
        ("bird", [7], None),
    ],
)
def test_short_names_allow_fewer_mistakes(name: Any, known: list[Any], meant: Any) -> None:
    assert label_rules.misspelt(name, known) == meant


def test_gold_that_a_column_happens_to_hold_is_read_like_a_listed_class_or_left_as_it_is() -> None:
    rules = label_rules.LabelRules.of(False, ["cat", "dog"], (), None)
    for sure in (True, False):
        found = rules.resolve({"Cat": 2, "dog": 1}, {"DOG": 1, "cat": 1}, sure=sure)
        assert found.labels == {"Cat": "cat", "dog": "dog"}
        assert found.gold == {"DOG": "dog", "cat": "cat"}
    assert rules.resolve({"cat": 1}, {"bird": 1}, sure=False).gold == {"bird": "bird"}
    for labels, gold in (({"cat": 1}, {"bird": 1}), ({"bird": 1}, {})):
        with pytest.raises(AnnotationError, match=r"label 'bird' \(1 times?\) is none of the classes 'cat', 'dog'"):
            rules.resolve(labels, gold)
    with pytest.raises(AnnotationError, match=r"'bird' .* is none of the classes"):
        rules.resolve({"bird": 1}, {"bird": 1}, sure=False)  # which is a label as well


class TestDatasets:
    """Labels of a file for the instances of a public data set: classes by name or by code, rows by number."""

    DATA = SimpleNamespace(name="zoo", class_names=("ape", "bee", "cat"), n_classes=3, X_train=np.zeros((4, 2)))

    @pytest.mark.parametrize("labels", [["cat", "bee", "cat"], ["2", "1", "2"], [2, 1, 2]])
    def test_classes_are_names_or_codes(self, labels: list[Any]) -> None:
        found = training._of_dataset(
            Annotations.from_frame({"item": [3, 1, 1], "worker": ["u", "u", "v"], "label": labels}), self.DATA, "f.csv"
        )
        assert found.votes().tolist() == [[0, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]]
        assert found.classes.tolist() == ["ape", "bee", "cat"]

    @pytest.mark.parametrize(
        ("items", "labels", "problem"),
        [
            (
                [0, 1],
                ["cat", "3"],
                r"f\.csv: label '3' is no class of data set 'zoo': .*'ape', 'bee', 'cat' .*codes 0\.\.2",
            ),
            ([0, 4], ["cat", "ape"], "1 of 2 instances are no rows of the training part of 'zoo'.*0..3: 4"),
            (["a", "b"], ["cat", "ape"], "have ids .'a', 'b'."),
        ],
    )
    def test_others_are_refused_by_name(self, items: list[Any], labels: list[Any], problem: str) -> None:
        crowd = Annotations.from_frame({"item": items, "worker": ["u", "u"], "label": labels})
        with pytest.raises(DataError, match=problem):
            training._of_dataset(crowd, self.DATA, "some/f.csv")

    def test_without_instances_or_classes_no_crowd_can_be_simulated(self) -> None:
        data = SimpleNamespace(name="zoo", X_train=self.DATA.X_train, y_train=np.arange(4))
        assert training.with_truth(data) == (data.X_train, data.y_train)
        for missing in ("X_train", "y_train"):
            bare = SimpleNamespace(**{**vars(data), missing: None})
            with pytest.raises(DataError, match="data set 'zoo' has no instances with known classes"):
                training.with_truth(bare)


def test_labels_are_comparable_where_two_people_label_an_item_or_there_is_nothing_to_tell() -> None:
    alone = Annotations.from_triples([0, 1], [0, 1], [0, 1])
    assert not comparable(alone)
    assert comparable(alone, known=True)
    assert not comparable(Annotations.from_triples([0, 0, 1], [0, 0, 1], [0, 1, 1]))  # two labels of one person
    assert comparable(Annotations.from_triples([0, 0, 1], [0, 1, 1], [0, 1, 1]))
    assert comparable(Annotations.from_triples([], [], [], n_instances=2, n_annotators=2, n_classes=2))
    assert comparable(Annotations.from_triples([0, 1], [0, 1], [0, 0]))  # a single class


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        ([2.0**62, -(2.0**62), 1.5], [str(2**62), str(-(2**62)), "1.5"]),
        ([2.0**63, 1e300, -0.0], ["9.223372036854775808e+18", "1e+300", "0"]),
        ([True, False], ["true", "false"]),
        ([7, -7], ["7", "-7"]),
    ],
)
def test_ids_as_texts_are_whole_where_they_fit(ids: list[Any], texts: list[str]) -> None:
    found = id_texts(pa.array(ids)).to_pylist()
    assert [one if one in ("true", "false") else float(one) for one in found] == [
        one if one in ("true", "false") else float(one) for one in texts
    ]
    assert ["+" in one for one in found] == ["+" in one for one in texts]  # only what no integer holds has an exponent


class TestMatching:
    def test_a_table_without_a_column_of_ids_has_none(self) -> None:
        X = pd.DataFrame({"width": [1.0, 2.0], "height": [3.0, 4.0]})
        with pytest.raises(DataError, match="the rows of X have none"):
            match(X, LONG_TABLE)
        with_ids = X.assign(id=["a", "b"])
        assert match(with_ids, LONG_TABLE).annotations.votes().tolist() == [[0, 1], [2, 0]]
        for other in (["a", "c"], ["a", "a"], ["a", None]):  # not the ids of all items, each once
            with pytest.raises(DataError, match="the rows of X have none"):
                match(X.assign(id=other), LONG_TABLE)

    def test_codes_are_ids_where_ids_are_said(self) -> None:
        """Items 7, 5 and 9 in rows 0, 1 and 2, as three arrays of numbers and as annotations without ids."""
        X, triples = np.eye(3), ([5, 9, 9], [0, 0, 1], [1, 0, 1])
        expected = [[0, 0], [0, 1], [1, 1]]
        assert match(X, triples, ids=[7, 5, 9]).annotations.votes().tolist() == expected
        coded = Annotations.from_triples(*triples)
        assert match(X, coded, ids=[7, 5, 9]).annotations.votes().tolist() == expected

    def test_rows_that_were_drawn_twice_are_matched_in_their_order(self) -> None:
        frame = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=["p", "q", "r"])
        coded = Annotations.from_triples([0, 1, 2], [0, 0, 0], [0, 1, 0], n_classes=2)
        for index in (["q", "p", "p"], ["q", "p", "r"]):
            found = match(frame.loc[index], coded).annotations
            assert found.votes().tolist() == [[1, 0], [0, 1], [1, 0]]
            assert found.instances.tolist() == ([0, 1, 2] if len(set(index)) < 3 else index)

    def test_codes_in_the_order_of_rows_take_their_ids(self) -> None:
        coded = Annotations.from_triples([0, 2, 2], [0, 0, 1], [1, 0, 1])
        found = match(np.eye(3), coded, ids=["c", "a", "b"])
        by_id = dict(zip(found.annotations.instances.tolist(), found.annotations.votes().tolist(), strict=True))
        assert by_id == {"c": [0, 1], "a": [0, 0], "b": [1, 1]}
        assert np.array_equal(found.annotations.instances, ["c", "a", "b"])

    def test_numbers_of_other_items_that_are_also_ids_are_refused(self) -> None:
        coded = Annotations.from_triples([0, 1, 2], [0, 0, 1], [1, 0, 1])
        with pytest.raises(DataError, match="their row numbers are also ids of X, in another order"):
            match(np.eye(3), coded, ids=[2, 0, 1])
        assert match(np.eye(3), coded, ids=[0, 1, 2]).annotations.votes().tolist() == coded.votes().tolist()
        assert match(np.eye(3), coded, ids=POSITION).annotations.votes().tolist() == coded.votes().tolist()

    @pytest.mark.parametrize(
        ("columns", "wide"),
        [
            ({"ann": [0, 1, 1], "bob": [1, 1, 0]}, True),
            ({"ann": ["x", "", "y"], "bob": ["y", "x", None]}, True),
            ({"ann": [-1, 0, -1], "bob": [-1, 5, -1], "cyd": [-1, 6, -1]}, False),  # they share only what is missing
            ({"ann": ["", "p", ""], "bob": ["", "q", ""]}, False),
            ({"ann": [0, 1, 1], "bob": [5, 6, 7]}, False),
            ({"ann": [0, 1, 1], "bob": [1, 1, 0], "cyd": [5, 6, 7]}, True),
            ({"ann": [0, 1, 1]}, False),
            ({"label": [0, 1, 1], "bob": [1, 1, 0]}, False),
        ],
    )
    def test_a_frame_is_a_matrix_where_most_columns_share_their_values(self, columns: Any, wide: bool) -> None:
        assert matching._is_wide(pd.DataFrame(columns), 3) is wide
        assert matching._is_wide(pd.DataFrame(columns), 4) is False  # a matrix has a row per instance

    def test_true_labels_follow_their_index(self) -> None:
        X = pd.DataFrame({"a": [1, 2, 3]}, index=["p", "q", "r"])
        y = pd.Series([30, 10, 20], index=["r", "p", "q"])
        assert matching.labels_by_row(X, y).tolist() == [10, 20, 30]
        assert matching.labels_by_row(X.to_numpy(), y).tolist() == [30, 10, 20]
        assert matching.labels_by_row(X, [1, 2, 3]).tolist() == [1, 2, 3]
        for index in (["p", "q", "s"], ["p", "q", "q"]):
            with pytest.raises(DataError, match="indexes that differ"):
                matching.labels_by_row(X, pd.Series([1, 2, 3], index=index))
        twice = pd.DataFrame({"a": [1, 2, 3]}, index=["p", "q", "q"])
        with pytest.raises(DataError, match="indexes that differ"):
            matching.labels_by_row(twice, pd.Series([1, 2], index=["q", "p"]))


class TestPictures:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        root = tmp_path / "root"
        (root / "sub").mkdir(parents=True)
        for name in ("one.png", "sub/two.png", "my cat (1).png", "a b.png", "a_b.png"):
            Image.new("RGB", (2, 2)).save(root / name)
        Image.new("RGB", (2, 2)).save(tmp_path / "outside.png")
        return root

    @pytest.mark.parametrize(
        ("name", "file"),
        [
            ("one.png", "one.png"),
            ("/data/sub/two.png", "sub/two.png"),
            ("data\\sub\\two.png", "sub/two.png"),
            ("file:///data/sub/two.png", "sub/two.png"),
            ("/data/local-files/?d=sub/two.png", "sub/two.png"),
            ("/data/upload/3/8f2c61d0-one.png", "one.png"),
            ("/data/upload/3/8f2c61d0-my_cat_1.png", "my cat (1).png"),
            ("my%20cat%20(1).png", "my cat (1).png"),
            ("/data/upload/3/8f2c61d0-a_b.png", "a_b.png"),
            ("../outside.png", None),
            ("https://example.org/one.png", None),
            ("sub", None),
            ("two.png", None),
            ("on\0e.png", None),
            ("x" * 5000, None),
        ],
    )
    def test_are_found_below_the_folder_and_nowhere_else(self, folder: Path, name: str, file: str | None) -> None:
        found = find_picture(name, folder)
        assert found == (None if file is None else (folder / file).resolve())

    def test_that_are_missing_are_counted_and_named(self, folder: Path) -> None:
        names = ["one.png", None, "https://example.org/x.png", "no.png"]
        with pytest.raises(DataError, match=r"3 of 4 pictures are not below .*web addresses are not fetched.*no name"):
            located(names, list("abcd"), folder)
        with pytest.raises(DataError, match="there is no such folder of pictures"):
            located(["one.png"], ["a"], folder / "none")
        found = located(["sub/two.png", "one.png"], ["x", "y"], folder)
        assert ([file.name for file in found.files], list(found.ids)) == (["two.png", "one.png"], ["x", "y"])

    def test_a_folder_that_is_named_asks_for_pictures_also_beside_texts(self, folder: Path) -> None:
        table = folder.parent / "a.csv"
        rows = ["p,ann,x,a text,one.png", "q,ann,y,another,sub/two.png"]
        table.write_text("\n".join(["item,worker,label,text,image", *rows]) + "\n")
        export = read(table)
        assert rows_of_export(table, export).X.tolist() == ["a text", "another"]
        pictures = rows_of_export(table, export, root=folder).X
        assert [file.name for file in pictures.files] == ["one.png", "two.png"]
        assert rows_of_export(table, export, text="image").X.tolist() == ["one.png", "sub/two.png"]
        with pytest.raises(DataError, match="pass one of them"):
            rows_of_export(table, export, text="text", image="image")


class TestNotebooks:
    def test_shares_of_classes_are_of_all_labels_also_those_that_are_not_shown(self) -> None:
        counts = np.array([1, 40, 0, *[3] * 9])
        shown = notebook.counted("title", [f"class {k}" for k in range(12)], counts)
        assert shown.count("<tr>") == 1 + notebook.SHOWN
        assert "10 of 12 classes." in shown
        assert shown.index("class 1<") < shown.index("class 3<") < shown.index("class 11<")
        assert ("class 0<" in shown, "class 2<" in shown) == (False, False)
        assert f"{40 / 68:.3f}" in shown
        assert f"width:{8 * 40 / 68:.1f}em" in shown
        equal = notebook.counted("title", [f"c{k}." for k in range(40)], np.repeat([1, 2], 20))
        assert [equal.index(f">c{k}.<") for k in range(20, 30)] == sorted(
            equal.index(f">c{k}.<") for k in range(20, 30)
        )
        assert "0.000" in notebook.counted("title", ["a"], np.array([0]))

    def test_annotators_come_worst_first_and_unknown_ones_last(self) -> None:
        skill = np.array([0.9, np.nan, 0.2])
        shown = notebook.skills("title", ["ann", "bob", "cyd"], skill, "a note")
        assert shown.index(">cyd<") < shown.index(">ann<") < shown.index(">bob</td><td>-</td>")
        assert "<p>a note</p>" in shown
        equal = notebook.skills("title", [f"w{k}." for k in range(40)], np.repeat([0.5, 0.25], 20))
        assert [equal.index(f">w{k}.<") for k in range(20, 30)] == sorted(
            equal.index(f">w{k}.<") for k in range(20, 30)
        )
        many = notebook.skills("title", [f"w{k}" for k in range(11)], np.linspace(0, 1, 11), "a note")
        assert "<p>10 of 11 annotators. a note</p>" in many
        assert "of 10" not in notebook.skills("title", [f"w{k}" for k in range(10)], np.linspace(0, 1, 10))

    def test_bars_stay_in_their_cells(self) -> None:
        for share, width in ((-0.5, "0.0"), (0.25, "2.0"), (1.0, "8.0"), (1.5, "8.0")):
            assert f"width:{width}em" in notebook.table("t", ["c"], [[notebook.Bar(share)]])
