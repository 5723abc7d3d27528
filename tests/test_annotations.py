"""What `Annotations` may be made from, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from crowdwise import Annotations
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.errors import AnnotationError, ConfigError, CrowdwiseWarning
from fixtures import CROWD_KIT, t1, t2


def as_backend(table: dict[str, list], backend: str):
    if backend == "mapping":
        return table
    if backend == "pyarrow":
        return pa.table(table)
    module = pytest.importorskip(backend)
    return module.DataFrame(table)


every_backend = pytest.mark.parametrize("backend", ["mapping", "pyarrow", "pandas", "polars"])


class TestTriples:
    def test_codes_are_read_only_int32_in_input_order(self):
        a = Annotations.from_triples([2, 0, 1], np.array([1, 0, 1], np.uint8), (0, 1, 1))
        for column in (a.instance, a.annotator, a.label):
            assert column.dtype == np.int32
            assert not column.flags.writeable
        assert a.instance.tolist() == [2, 0, 1]
        assert (a.n_instances, a.n_annotators, a.n_classes, len(a)) == (3, 2, 2, 3)

    def test_changing_the_input_afterwards_changes_nothing(self):
        instance = np.array([0, 1], np.int32)
        a = Annotations.from_triples(instance, [0, 0], [0, 1])
        instance[0] = 1
        assert a.instance.tolist() == [0, 1]

    def test_attributes_cannot_be_set(self):
        with pytest.raises(AttributeError):
            t1().label = np.zeros(14, np.int32)

    def test_repr_counts_everything(self):
        assert repr(t1()) == "Annotations(5 instances, 3 annotators, 2 classes, 14 annotations)"
        lonely = Annotations.from_triples([0], [0], [0])
        assert repr(lonely) == "Annotations(1 instance, 1 annotator, 1 class, 1 annotation)"

    def test_codes_are_their_own_ids(self):
        assert t2().instances.tolist() == list(range(6))
        assert t2().annotators.tolist() == list(range(5))
        assert t2().classes.tolist() == list(range(4))

    def test_unlabelled_instances_silent_annotators_and_unseen_classes_are_kept(self):
        a = t2()
        assert a.labels_per_instance.tolist() == [2, 3, 3, 3, 2, 0]
        assert a.labels_per_annotator.tolist() == [4, 4, 4, 1, 0]
        assert a.votes().shape == (6, 4)
        assert a.votes()[5].sum() == a.votes()[:, 3].sum() == 0

    def test_no_annotations_at_all_are_legal(self):
        a = Annotations.from_triples([], [], [], n_instances=2, n_classes=3)
        assert (len(a), a.n_annotators, a.n_duplicates) == (0, 0, 0)
        assert a.votes().tolist() == [[0, 0, 0], [0, 0, 0]]
        assert a.by_instance.indptr.tolist() == [0, 0, 0]
        assert a.to_frame().num_rows == 0

    def test_vocabularies_name_the_codes(self):
        a = Annotations.from_triples([0, 1], [0, 0], [1, 0], instances=["x", "y", "z"], classes=["no", "yes"])
        assert a.n_instances == 3
        assert a.to_frame()["label"].to_pylist() == ["yes", "no"]
        assert a.class_codes(["yes", "yes", "no"]).tolist() == [1, 1, 0]
        assert a.instance_codes(["z"]).tolist() == [2]
        with pytest.raises(AnnotationError, match=r"classes, entry 1: 'maybe' is unknown; known: 'no', 'yes'"):
            a.class_codes(["no", "maybe"])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([0], [0, 1], [0]), "instance has 1, annotator has 2, label has 1"),
            (([0, -1], [0, 0], [0, 0]), "row 1: instance -1 is out of range"),
            (([0.5], [0], [0]), "instance must hold integer codes, got float64"),
            (([0], ["a"], [0]), "annotator must hold integer codes"),
            (([[0]], [0], [0]), r"one axis, got shape \(1, 1\)"),
        ],
    )
    def test_bad_codes_are_named(self, arguments, message):
        with pytest.raises(AnnotationError, match=message):
            Annotations.from_triples(*arguments)

    def test_codes_beyond_the_size_are_named_with_the_bound(self):
        with pytest.raises(AnnotationError, match=r"row 1: annotator 7 is out of range: this crowd has 5 annotators"):
            Annotations.from_triples([0, 0], [0, 7], [0, 0], n_annotators=5)
        with pytest.raises(AnnotationError, match="label 0 is out of range: this crowd has no classes"):
            Annotations.from_triples([0], [0], [0], n_classes=0)
        with pytest.raises(AnnotationError, match="instance 4294967296 is out of range"):
            Annotations.from_triples([2**32], [0], [0], n_instances=5)

    def test_sizes_must_agree_with_vocabularies(self):
        with pytest.raises(AnnotationError, match="n_classes is 3, but classes lists 2 ids"):
            Annotations.from_triples([0], [0], [0], n_classes=3, classes=["a", "b"])
        with pytest.raises(AnnotationError, match="n_instances must be an integer of 0 or more, got -1"):
            Annotations.from_triples([], [], [], n_instances=-1)
        with pytest.raises(AnnotationError, match="classes, entry 1: 'a' is listed twice"):
            Annotations.from_triples([0], [0], [0], classes=["a", "a"])


class TestFrames:
    @every_backend
    def test_a_crowd_kit_frame_works_as_it_is(self, backend):
        a = Annotations.from_frame(as_backend(CROWD_KIT, backend))
        assert a.instances.tolist() == ["t2", "t1", "t3"]  # first appearance
        assert a.annotators.tolist() == ["bob", "ann"]
        assert a.classes.tolist() == ["ant", "cat", "dog"]  # ascending
        assert a.instance.tolist() == [0, 1, 0, 2]
        assert a.label.tolist() == [2, 1, 1, 0]
        assert a == Annotations.from_frame(CROWD_KIT)

    @every_backend
    def test_integer_ids_are_the_ids(self, backend):
        table = {"item": [70, 7, 70], "rater": [3, 3, 5], "answer": [10, 2, 2]}
        a = Annotations.from_frame(as_backend(table, backend))
        assert a.instances.tolist() == [70, 7]
        assert a.annotators.tolist() == [3, 5]
        assert a.classes.tolist() == [2, 10]
        assert a.instances.dtype == np.int64

    @pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
    def test_frames_come_back_in_the_users_ids(self, backend):
        pytest.importorskip(backend)
        frame = Annotations.from_frame(CROWD_KIT).to_frame(backend)
        assert type(frame).__module__.startswith(backend)
        columns = [list(map(str, frame[name])) for name in ("instance", "annotator", "label")]
        assert columns == list(CROWD_KIT.values())
        assert Annotations.from_frame(frame) == Annotations.from_frame(CROWD_KIT)

    def test_unknown_backends_are_refused(self):
        with pytest.raises(ConfigError, match="unknown backend 'spark'; known: 'pyarrow', 'pandas', 'polars'"):
            t1().to_frame("spark")

    @pytest.mark.parametrize(
        "columns",
        [("HITId2", "WorkerId", "Answer"), ("instance_id", "annotator_id", "label"), ("Question", "user", "response")],
    )
    def test_columns_are_found_by_the_names_in_use(self, columns):
        named = {"instance": columns[0]} if columns[0] == "HITId2" else {}
        frame = pa.table([["a", "b"], ["u", "u"], ["x", "y"]], names=list(columns))
        assert len(Annotations.from_frame(frame, **named)) == 2

    def test_a_named_column_is_not_taken_twice(self):
        frame = {"task": ["a"], "item": ["b"], "worker": ["w"], "label": ["x"], "value": ["y"]}
        assert Annotations.from_frame(frame).instances.tolist() == ["b"]
        assert Annotations.from_frame(frame, instance="task", label="value").classes.tolist() == ["y"]

    def test_an_unknown_column_is_named_with_a_suggestion_and_the_list(self):
        with pytest.raises(
            AnnotationError, match=r"no column 'wroker' for the annotator; did you mean 'worker'\?; col"
        ):
            Annotations.from_frame(CROWD_KIT, annotator="wroker")
        with pytest.raises(AnnotationError, match=r"no column for the label: .*columns: 'task', 'worker'"):
            Annotations.from_frame({"task": ["a"], "worker": ["b"]})
        with pytest.raises(AnnotationError, match="columns: none"):
            Annotations.from_frame(pa.table({}))
        with pytest.raises(AnnotationError, match="'task' cannot be both the instance and the annotator"):
            Annotations.from_frame(CROWD_KIT, instance="task", annotator="task")

    def test_an_unnamed_column_of_a_frame_is_named_where_the_frame_is_read(self):
        frame = {"case": [1, 2], "who": ["ann", "bob"], "label": ["x", "y"]}
        with pytest.raises(AnnotationError, match=r"name it with Annotations.from_frame\(table, annotator=COLUMN\)"):
            Annotations.coerce(frame)

    @every_backend
    def test_a_missing_id_is_named_by_column_and_row(self, backend):
        table = {**CROWD_KIT, "worker": ["bob", "ann", None, "bob"]}
        with pytest.raises(AnnotationError, match="column 'worker', row 2: the value is missing"):
            Annotations.from_frame(as_backend(table, backend))

    def test_nan_is_missing(self):
        column = pa.array([0.0, 1.0, float("nan"), 1.0])
        with pytest.warns(CrowdwiseWarning, match="left out: 1 row without a label"):
            assert len(Annotations.from_frame(pa.table({**CROWD_KIT, "label": column}))) == 3
        with pytest.raises(AnnotationError, match="column 'task', row 2: the value is NaN"):
            Annotations.from_frame(pa.table({**CROWD_KIT, "task": column}))

    @pytest.mark.parametrize("backend", ["mapping", "pandas"])
    def test_mixed_types_are_named_by_column_row_and_value(self, backend):
        table = {**CROWD_KIT, "label": ["dog", "cat", 3, "ant"]}
        with pytest.raises(AnnotationError, match=r"column 'label', row 2: 3 is a number, .* 'dog' are str"):
            Annotations.from_frame(as_backend(table, backend))

    def test_columns_of_different_length_are_named(self):
        with pytest.raises(AnnotationError, match=r"column 'worker' has 1"):
            Annotations.from_frame({**CROWD_KIT, "worker": ["ann"]})

    def test_lists_cannot_be_ids(self):
        table = {**CROWD_KIT, "label": [["a"], ["b"], ["c"], ["d"]]}
        with pytest.raises(AnnotationError, match="column 'label': ids cannot be of type list"):
            Annotations.from_frame(table)

    def test_other_things_are_not_frames(self):
        with pytest.raises(AnnotationError, match=r"expected a table .* got int"):
            Annotations.from_frame(3)

    @every_backend
    def test_an_empty_frame_with_columns_is_legal(self, backend):
        a = Annotations.from_frame(as_backend({"task": [], "worker": [], "label": []}, backend))
        assert repr(a) == "Annotations(0 instances, 0 annotators, 0 classes, 0 annotations)"

    def test_chunks_change_nothing(self):
        table = pa.table(CROWD_KIT)
        chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 2), table.slice(3)])
        assert chunked["task"].num_chunks > 1
        assert Annotations.from_frame(chunked) == Annotations.from_frame(table)

    def test_layouts_of_text_and_integers_change_nothing(self):
        table = pa.table({**CROWD_KIT, "label": [0, 2, 1, 1]})
        encoded = pa.table(
            {
                "task": table["task"].cast(pa.large_string()),
                "worker": table["worker"].dictionary_encode(),
                "label": table["label"].cast(pa.uint8()),
            }
        )
        assert Annotations.from_frame(encoded) == Annotations.from_frame(table)

    def test_unused_categories_are_not_annotators(self):
        pandas = pytest.importorskip("pandas")
        workers = pandas.Categorical(CROWD_KIT["worker"], categories=["zoe", "ann", "bob"])
        frame = pandas.DataFrame({**CROWD_KIT, "worker": workers})
        assert Annotations.from_frame(frame) == Annotations.from_frame(CROWD_KIT)

    def test_a_lazy_frame_is_collected(self):
        polars = pytest.importorskip("polars")
        assert Annotations.from_frame(polars.LazyFrame(CROWD_KIT)) == Annotations.from_frame(CROWD_KIT)

    def test_classes_fix_order_and_may_be_unseen(self):
        a = Annotations.from_frame(CROWD_KIT, classes=["dog", "cat", "bee", "ant"])
        assert a.classes.tolist() == ["dog", "cat", "bee", "ant"]
        assert a.label.tolist() == [0, 1, 1, 3]
        with pytest.raises(AnnotationError, match=r"column 'label', row 3: 'ant' is unknown; known: 'dog', 'cat'"):
            Annotations.from_frame(CROWD_KIT, classes=["dog", "cat"])
        with pytest.raises(
            AnnotationError, match="values such as 'dog' are large_string, but the known ids, such as 0,"
        ):
            Annotations.from_frame(CROWD_KIT, classes=[0, 1])

    def test_a_second_table_can_share_vocabularies(self):
        train = Annotations.from_frame(CROWD_KIT)
        other = {"task": ["t9"], "worker": ["ann"], "label": ["dog"]}
        test = Annotations.from_frame(other, annotators=train.annotators, classes=train.classes)
        assert test.annotator.tolist() == [1]
        assert test.label.tolist() == [2]

    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            (["10", "9", "2"], ["2", "9", "10"]),
            (["b10", "b9", "a"], ["a", "b10", "b9"]),
            ([True, False, True], [False, True]),
            ([0.5, -1.0, 0.5], [-1.0, 0.5]),
        ],
    )
    def test_classes_ascend(self, labels, classes):
        a = Annotations.from_frame({"task": [1, 2, 3], "worker": [1, 1, 1], "label": labels})
        assert a.classes.tolist() == classes
        assert a.classes[a.label].tolist() == labels

    def test_long_ids_become_objects_and_short_ones_fixed_width(self):
        a = Annotations.from_frame({"task": ["x" * 65], "worker": ["w"], "label": ["é"]})
        assert a.instances.dtype == object
        assert a.classes.dtype == np.dtype("<U1")


class TestDense:
    MATRIX = ((0, 1, None), (1, None, None), (None, None, None))

    @pytest.mark.parametrize(
        "matrix",
        [
            [list(row) for row in MATRIX],
            np.array([[0, 1, np.nan], [1, np.nan, np.nan], [np.nan] * 3]),
            np.array([[0, 1, -1], [1, -1, -1], [-1] * 3]),
            [[0, 1, ""], [1, "", None], [float("nan"), -1, ""]],
        ],
    )
    def test_nan_minus_one_none_and_blank_are_missing(self, matrix):
        expected = Annotations.from_triples([0, 0, 1], [0, 1, 0], [0, 1, 1], n_instances=3, n_annotators=3)
        assert Annotations.from_dense(matrix) == expected

    def test_text_labels(self):
        for matrix in ([["b", "a"], ["", "b"]], np.array([["b", "a"], ["", "b"]])):
            a = Annotations.from_dense(matrix)
            assert a.classes.tolist() == ["a", "b"]
            assert a.label.tolist() == [1, 0, 1]
            assert a.annotator.tolist() == [0, 1, 1]

    @pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
    def test_columns_of_a_frame_are_the_annotators(self, backend):
        a = Annotations.from_dense(as_backend({"ann": [0, 1], "bob": [None, 1]}, backend))
        assert a.annotators.tolist() == ["ann", "bob"]
        assert a.label.tolist() == [0, 1, 1]
        assert a.classes.dtype == np.int64

    @pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
    def test_frames_of_text(self, backend):
        a = Annotations.from_dense(as_backend({"ann": ["x", "y"], "bob": [None, "x"]}, backend))
        assert a.classes[a.label].tolist() == ["x", "y", "x"]

    def test_the_index_of_a_pandas_frame_names_the_instances(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"ann": [0, 1]}, index=["i7", "i3"])
        assert Annotations.from_dense(frame).instances.tolist() == ["i7", "i3"]

    def test_missing_values_can_be_chosen(self):
        a = Annotations.from_dense([[-1, 1], [9, 1]], missing=[9])
        assert a.classes.tolist() == [-1, 1]
        assert len(a) == 3

    def test_classes_can_be_fixed(self):
        assert Annotations.from_dense([[0, 2]], classes=[0, 1, 2]).label.tolist() == [0, 2]
        with pytest.raises(AnnotationError, match="matrix, row 1, column 0: 5 is unknown"):
            Annotations.from_dense([[0, 2], [5, 0]], classes=[0, 1, 2])

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            ([[0, 1], [0]], "matrix, row 1: 1 cells, but row 0 has 2"),
            ([[0, 1], ["a", 1]], "matrix, row 1, column 0: 'a' is a str"),
            ([0, 1], "matrix, row 0: expected one label per annotator, got 0"),
            (np.zeros(3), r"two axes \(instances, annotators\), got shape \(3,\)"),
        ],
    )
    def test_bad_cells_are_named(self, matrix, message):
        with pytest.raises(AnnotationError, match=message):
            Annotations.from_dense(matrix)

    def test_an_empty_matrix_is_legal(self):
        assert repr(Annotations.from_dense(np.empty((2, 0)))).startswith("Annotations(2 instances, 0 annotators")


class TestCoerce:
    def test_everything_users_have_means_the_same(self):
        a = t1()
        frame = a.to_frame()
        dense = np.full((5, 3), -1)
        dense[a.instance, a.annotator] = a.label
        assert Annotations.coerce(a) is a
        for data in (frame, frame.to_pydict(), dense, dense.tolist(), (a.instance, a.annotator, a.label)):
            assert Annotations.coerce(data) == a

    def test_three_arrays_of_text_are_ids(self):
        a = Annotations.coerce((["x", "y"], np.array(["u", "u"]), [1, 0]))
        assert a.instances.tolist() == ["x", "y"]
        assert a.classes.tolist() == [0, 1]

    @pytest.mark.parametrize("data", [3, "file.csv", None, ([0], [0]), {1, 2}])
    def test_anything_else_is_refused(self, data):
        with pytest.raises(AnnotationError, match=r"expected (three arrays|Annotations)"):
            Annotations.coerce(data)

    def test_columns_of_different_length_are_refused(self):
        with pytest.raises(AnnotationError, match="instance has 2, annotator has 1, label has 1"):
            Annotations.coerce((["a", "b"], ["u"], ["x"]))


class TestDuplicates:
    ROWS = ([0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 2])

    @pytest.mark.parametrize(("policy", "labels"), [("keep", [0, 1, 1, 2]), ("first", [0, 1]), ("last", [1, 2])])
    def test_policies(self, policy, labels):
        a = Annotations.from_triples(*self.ROWS, duplicates=policy)
        assert a.label.tolist() == labels
        assert a.n_duplicates == (2 if policy == "keep" else 0)
        assert a.n_classes == 3

    def test_error_names_the_first_repeat_in_the_users_ids(self):
        table = {"task": ["a", "b", "a"], "worker": ["u", "u", "u"], "label": [0, 1, 1]}
        with pytest.raises(
            AnnotationError, match=r"row 2: annotator 'u' labels instance 'a' again \(repeats in all: 1"
        ):
            Annotations.from_frame(table, duplicates="error")
        assert len(Annotations.from_frame(CROWD_KIT, duplicates="error")) == 4

    def test_unknown_policies_are_refused(self):
        with pytest.raises(ConfigError, match="unknown duplicates 'drop'"):
            Annotations.from_triples(*self.ROWS, duplicates="drop")


def test_ids_of_64_bits_are_read_from_lists_and_found_in_gold():
    ids = [2**64 - 1, 2**63, 2**64 - 1, 5]
    crowd = Annotations.from_frame({"item": ids, "worker": list("abba"), "label": list("xyyx")})
    assert crowd.instances.tolist() == [2**64 - 1, 2**63, 5]
    assert gold_codes(crowd, {2**63: "x", 2**64 - 1: "y"}).tolist() == [1, 0, -1]
    with pytest.raises(AnnotationError, match="cannot be read as ids"):
        Annotations.from_frame({"item": [2**63, -1], "worker": list("ab"), "label": list("xy")})
