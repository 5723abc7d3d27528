"""Annotations: who gave which label to what, as int32 triples with vocabularies, validated once.

Everything in crowdwise uses this one structure. It is sparse: nothing of size (instances x annotators) is ever made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.constraints import check_value
from crowdwise.data import frames, notebook, repeats
from crowdwise.data.codes import (
    Codes,
    Grouped,
    Selection,
    Weights,
    cells,
    checked,
    checked_weights,
    count,
    freeze,
    integers,
    selected,
    size_of,
    totals,
)
from crowdwise.data.factorise import Column, Ids, Vocabulary, encode, encode_classes, merge, weights_of
from crowdwise.data.label_rules import labelled
from crowdwise.data.types import Array, Floats, Ints, RandomState
from crowdwise.errors import AnnotationError, ConfigError, CrowdwiseWarning, shorten, spelled, spelling
from crowdwise.system import total_memory

__all__ = ["Annotations", "Grouped"]

Duplicates = Literal["keep", "first", "last", "share", "error"]
Backend = Literal["pyarrow", "pandas", "polars"]
_COLUMNS = ("instance", "annotator", "label")


@dataclass(frozen=True, eq=False, repr=False)
class Annotations:
    """Immutable triples (instance, annotator, label), with the ids behind the codes.

    Create them with `from_frame`, `from_triples`, `from_dense` or `coerce`. Instances and annotators without labels,
    classes that nobody chose, repeated (instance, annotator) pairs and empty annotations are allowed. Error messages
    count rows from 0.

    >>> table = {"task": ["t1", "t1", "t2"], "worker": ["ann", "bob", "ann"], "label": ["cat", "dog", "cat"]}
    >>> a = Annotations.from_frame(table)
    >>> a
    Annotations(2 instances, 2 annotators, 2 classes, 3 annotations)
    >>> a.label, a.classes
    (array([0, 1, 0], dtype=int32), array(['cat', 'dog'], dtype='<U3'))
    >>> a.votes()
    array([[1, 1],
           [1, 0]])
    """

    instance: Codes
    """Code of the instance of every annotation, (E,), in input order; likewise ``annotator`` and ``label``."""
    annotator: Codes
    label: Codes
    instance_vocabulary: Vocabulary
    annotator_vocabulary: Vocabulary
    class_vocabulary: Vocabulary
    weight: Weights | None = None
    """How much of a label each annotation is, (E,), above 0; None where each is one. A soft label is several annotations of
    one instance by one annotator, whose weights sum to 1."""

    def __post_init__(self) -> None:
        if not len(self.instance) == len(self.annotator) == len(self.label):
            raise AnnotationError(
                f"columns differ in length: instance has {len(self.instance)}, annotator has {len(self.annotator)}, "
                f"label has {len(self.label)}"
            )
        set_once = object.__setattr__
        set_once(self, "instance", checked(self.instance, "instance", "instances", self.n_instances))
        set_once(self, "annotator", checked(self.annotator, "annotator", "annotators", self.n_annotators))
        set_once(self, "label", checked(self.label, "label", "classes", self.n_classes))
        if self.weight is not None:
            set_once(self, "weight", checked_weights(self.weight, len(self)))

    # -- construction ------------------------------------------------------------------------------------------------

    @classmethod
    def from_triples(
        cls,
        instance: Ids,
        annotator: Ids,
        label: Ids,
        *,
        n_instances: int | None = None,
        n_annotators: int | None = None,
        n_classes: int | None = None,
        instances: Ids | None = None,
        annotators: Ids | None = None,
        classes: Ids | None = None,
        duplicates: Duplicates = "keep",
        weight: Any = None,
    ) -> Annotations:
        """Annotations from integer codes.

        A size that is not passed is the length of its vocabulary, else the largest code + 1; pass it if the last
        instances may have no labels, the last annotators have given none, or the last classes may be unused.

        >>> Annotations.from_triples([0, 0, 2], [0, 1, 1], [1, 0, 1], n_instances=4)
        Annotations(4 instances, 2 annotators, 2 classes, 3 annotations)
        """
        i, j, y = integers(instance, "instance"), integers(annotator, "annotator"), integers(label, "label")
        return cls(
            i,
            j,
            y,
            _vocabulary(i, "instances", n_instances, instances),
            _vocabulary(j, "annotators", n_annotators, annotators),
            _vocabulary(y, "classes", n_classes, classes),
            weight,
        ).deduplicated(duplicates)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        instance: str | None = None,
        annotator: str | None = None,
        label: str | None = None,
        *,
        instances: Ids | None = None,
        annotators: Ids | None = None,
        classes: Ids | None = None,
        duplicates: Duplicates = "keep",
        weight: str | None = None,
        clean: bool = False,
    ) -> Annotations:
        """Annotations from a long table: pandas, polars, arrow, or a mapping of columns.

        Columns that are not named are found by their usual names (item, task, ...; worker, annotator, ...; label,
        answer, ...), so a crowd-kit frame works as it is. Instances and annotators are numbered in order of first
        appearance, classes in ascending order; ``instances``, ``annotators`` and ``classes`` fix the vocabularies,
        and may have ids that the table lacks. ``weight`` names a column of numbers: how much of a label each row is; rows
        of weight 0 are left out.

        Labels are read as in files: rows without a label and blanks at the ends of labels are left out, and a warning counts
        them; labels that look like one class are reported, and ``clean`` merges them.
        """
        chosen = {"instance": instance, "annotator": annotator, "label": label}
        chosen["instance"] = frames.repeated_id(frame, chosen) or instance
        try:
            taken = frames.choose_columns(frames.frame_columns(frame), chosen)
        except AnnotationError as error:
            hint = "a matrix with one column per annotator goes through Annotations.from_dense"
            raise AnnotationError(f"{error}; {hint}", parameter=error.parameter) from None
        i, j, y = frames.take_columns(frame, taken.values())
        w = None
        if weight is not None:
            (w,) = frames.take_columns(frame, [frames.known_column(weight, "weight", frames.frame_columns(frame))])
        y, rows, remarks = labelled(y, clean=clean, listed=classes is not None)
        if remarks:
            warnings.warn("; ".join(remarks), CrowdwiseWarning, stacklevel=2)
        if rows is not None:
            i, j, w = i.take(rows), j.take(rows), None if w is None else w.take(rows)
        return cls.from_columns(
            i, j, y, instances, annotators, classes, duplicates, None if w is None else weights_of(w)
        )

    @classmethod
    def from_dense(
        cls, matrix: Any, *, missing: Collection[Any] | None = None, classes: Ids | None = None
    ) -> Annotations:
        """Annotations from a matrix (n, R): one row per instance, one column per annotator.

        ``matrix`` is an array, a list of rows, or a frame, whose column names (and pandas index) become the ids.
        ``None``, NaN, masked cells and every value in ``missing`` are missing; by default that is an empty text, and -1 unless
        another label is negative or all others are 1.

        >>> Annotations.from_dense([[0, 1, -1], [1, None, 1]])
        Annotations(2 instances, 3 annotators, 2 classes, 4 annotations)
        """
        if missing is not None and (isinstance(missing, str) or not isinstance(missing, Collection)):
            missing = [missing]
        rows, columns, values, (n, width) = frames.dense_columns(matrix, missing)
        label, class_vocabulary = encode_classes(values, classes)
        instances, annotators = Vocabulary(n), Vocabulary(width)
        if frames.is_frame(matrix):
            annotators = Vocabulary.of(frames.frame_columns(matrix), "column names")
            ids = frames.row_ids(matrix)
            instances = instances if ids is None else Vocabulary.of(ids, "index")
        return cls(rows.astype(np.int32), columns.astype(np.int32), label, instances, annotators, class_vocabulary)

    @classmethod
    def from_soft(cls, probabilities: Any, *, annotators: Ids | None = None, classes: Ids | None = None) -> Annotations:
        """Soft labels: probabilities (n, R, C), or (n, C) of one annotator; rows of NaN or zeros are missing.

        Probabilities below 0.01 are left out, and the others scaled to sum to 1. A long table with a row for every class goes
        through `from_frame` with ``weight``.

        >>> a = Annotations.from_soft([[0.8, 0.2], [0.0, 1.0]])
        >>> a.votes().round(2).tolist()
        [[0.8, 0.2], [0.0, 1.0]]
        """
        shares = repeats.soft_shares(probabilities)
        i, j, y = np.nonzero(shares)
        sizes = dict(zip(("n_instances", "n_annotators", "n_classes"), shares.shape, strict=True))
        weight = None if np.all(shares[i, j, y] == 1) else shares[i, j, y]
        return cls.from_triples(i, j, y, **sizes, annotators=annotators, classes=classes, weight=weight)

    @classmethod
    def coerce(cls, data: Any) -> Annotations:
        """Annotations from annotations, a long table, a tuple of three arrays, or a dense matrix.

        Three integer arrays are codes; other arrays are ids.

        >>> Annotations.coerce((["a", "b"], ["ann", "ann"], ["yes", "no"]))
        Annotations(2 instances, 1 annotator, 2 classes, 2 annotations)
        """
        if isinstance(data, Annotations):
            return data
        if isinstance(data, tuple):
            if len(data) != 3:
                raise AnnotationError(f"expected three arrays (instance, annotator, label), got a tuple of {len(data)}")
            i, j, y = (Column.of(values, name) for values, name in zip(data, _COLUMNS, strict=True))
            if all(pa.types.is_integer(column.data.type) and not column.data.null_count for column in (i, j, y)):
                return cls.from_triples(i.data.to_numpy(), j.data.to_numpy(), y.data.to_numpy())
            return cls.from_columns(i, j, y)
        if frames.is_frame(data):
            with spelling(lambda name, value: f"Annotations.from_frame(table, {name}={value})"):
                return cls.from_frame(data)
        if isinstance(data, list) or hasattr(data, "__array__"):
            return cls.from_dense(data)
        raise AnnotationError(
            f"cannot read annotations from a {type(data).__name__}: expected Annotations, a table with instance, "
            "annotator and label columns, a tuple of three arrays, or a matrix (instances, annotators)"
        )

    @classmethod
    def concat(cls, parts: Iterable[Annotations]) -> Annotations:
        """All annotations of several sets, in order; new ids are appended to the vocabularies."""
        parts = list(parts)
        instance, instances = merge([(p.instance, p.instance_vocabulary) for p in parts], "instances")
        annotator, annotators = merge([(p.annotator, p.annotator_vocabulary) for p in parts], "annotators")
        label, classes = merge([(p.label, p.class_vocabulary) for p in parts], "classes")
        weight = None
        if any(p.weight is not None for p in parts):
            weight = np.concatenate([np.ones(len(p), np.float32) if p.weight is None else p.weight for p in parts])
        return cls(instance, annotator, label, instances, annotators, classes, weight)

    @classmethod
    def from_columns(
        cls,
        instance: Column,
        annotator: Column,
        label: Column,
        instances: Ids | None = None,
        annotators: Ids | None = None,
        classes: Ids | None = None,
        duplicates: Duplicates = "keep",
        weight: Any = None,
    ) -> Annotations:
        """Annotations from arrow columns of ids, with the given vocabularies if any; rows of ``weight`` 0 are left out."""
        i, instance_vocabulary = encode(instance, instances)
        j, annotator_vocabulary = encode(annotator, annotators)
        y, class_vocabulary = encode_classes(label, classes)
        if not len(i) == len(j) == len(y):
            lengths = ", ".join(f"{column.name} has {len(column.data)}" for column in (instance, annotator, label))
            raise AnnotationError(f"columns differ in length: {lengths}")
        if weight is not None and not np.all(weight):
            kept = np.flatnonzero(weight)
            i, j, y, weight = i[kept], j[kept], y[kept], weight[kept]
        made = cls(i, j, y, instance_vocabulary, annotator_vocabulary, class_vocabulary, weight)
        return made.deduplicated(duplicates, instance.where)

    # -- sizes and ids -----------------------------------------------------------------------------------------------

    @property
    def n_instances(self) -> int:
        """Number of instances n, with or without annotations."""
        return self.instance_vocabulary.size

    @property
    def n_annotators(self) -> int:
        """Number of annotators R, with or without annotations."""
        return self.annotator_vocabulary.size

    @property
    def n_classes(self) -> int:
        """Number of classes C, chosen or not."""
        return self.class_vocabulary.size

    @property
    def instances(self) -> Array:
        """Ids of the instances, (n,)."""
        return self.instance_vocabulary.values

    @property
    def annotators(self) -> Array:
        """Ids of the annotators, (R,)."""
        return self.annotator_vocabulary.values

    @property
    def classes(self) -> Array:
        """Ids of the classes, (C,)."""
        return self.class_vocabulary.values

    def instance_codes(self, ids: Ids) -> Codes:
        """Codes of instances by id; an unknown id is an error."""
        return self.instance_vocabulary.lookup(Column.of(ids, "instances", "entry {}".format))

    def annotator_codes(self, ids: Ids) -> Codes:
        """Codes of annotators by id; an unknown id is an error."""
        return self.annotator_vocabulary.lookup(Column.of(ids, "annotators", "entry {}".format))

    def class_codes(self, ids: Ids) -> Codes:
        """Codes of classes by id; an unknown id is an error."""
        return self.class_vocabulary.lookup(Column.of(ids, "classes", "entry {}".format))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, R), as of a matrix with a row per instance, which is how scikit-learn counts and splits."""
        return self.n_instances, self.n_annotators

    def __len__(self) -> int:
        return len(self.instance)

    def __getitem__(self, rows: Any) -> Annotations:
        """The annotations of some instances, as `select`, for what splits annotations together with X.

        >>> a = Annotations.from_triples([0, 1, 2], [0, 1, 1], [0, 1, 1])
        >>> a[[2, 0]].instances, a[1:]
        (array([2, 0]), Annotations(2 instances, 2 annotators, 2 classes, 2 annotations))
        """
        if isinstance(rows, tuple) and len(rows) == 2 and (rows[1] is Ellipsis or rows[1] == slice(None)):
            rows = rows[0]
        if isinstance(rows, slice):
            rows = np.arange(self.n_instances)[rows]
        return self.select(instances=np.atleast_1d(np.asarray(rows)))

    __iter__ = None  # of instances or of annotations? ``to_frame`` has the latter

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """For each instance a mapping from annotators to labels (n,), by which scikit-learn sees that these are no classes."""
        found = np.empty(self.n_instances, dtype=object)
        found[:] = [{} for _ in range(self.n_instances)]
        annotator, label = self.annotators.tolist(), self.classes.tolist()
        for i, j, y in zip(self.instance.tolist(), self.annotator.tolist(), self.label.tolist(), strict=True):
            found[i][annotator[j]] = label[y]
        return found

    def __repr__(self) -> str:
        sizes = (self.n_instances, "instances"), (self.n_annotators, "annotators"), (self.n_classes, "classes")
        return f"Annotations({', '.join(count(*size) for size in (*sizes, (len(self), 'annotations')))})"

    def _repr_html_(self) -> str:
        counts = np.bincount(self.label, minlength=self.n_classes)
        return notebook.counted(repr(self), self.classes.tolist(), counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Annotations):
            return NotImplemented
        vocabularies = ("instance_vocabulary", "annotator_vocabulary", "class_vocabulary")
        return all(getattr(self, name).same_as(getattr(other, name)) for name in vocabularies) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in (*_COLUMNS, "weight")
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and worker processes rebuild by the constructor, which freezes the arrays again."""
        vocabularies = self.instance_vocabulary, self.annotator_vocabulary, self.class_vocabulary
        return Annotations, (self.instance, self.annotator, self.label, *vocabularies, self.weight)

    # -- views -------------------------------------------------------------------------------------------------------

    @cached_property
    def by_instance(self) -> Grouped:
        """Rows grouped by instance."""
        return Grouped.of(self.instance, self.n_instances)

    @cached_property
    def by_annotator(self) -> Grouped:
        """Rows grouped by annotator."""
        return Grouped.of(self.annotator, self.n_annotators)

    @cached_property
    def labels_per_instance(self) -> Ints:
        """Number of labels of every instance, (n,): annotations, or the sum of their weights."""
        return freeze(totals(self.instance, self.weight, self.n_instances))

    @cached_property
    def annotators_per_instance(self) -> Ints:
        """Number of annotators of every instance, (n,)."""
        pairs = np.unique(self._pairs())
        return freeze(np.bincount(pairs // max(self.n_annotators, 1), minlength=self.n_instances))

    @cached_property
    def labels_per_annotator(self) -> Ints:
        """Number of labels of every annotator, (R,): annotations, or the sum of their weights."""
        return freeze(totals(self.annotator, self.weight, self.n_annotators))

    def check_size(self) -> None:
        """Refuse a table of all instances and classes that no memory holds: most often something else was taken for labels."""
        needed = 3 * 8 * self.n_instances * self.n_classes  # votes, posterior, and one on the way
        there = total_memory()
        if there is not None and needed > there:
            raise AnnotationError(
                f"{self.n_instances:,} instances by {self.n_classes:,} classes need {needed / 1e9:,.0f} GB, this machine has "
                f"{there / 1e9:,.0f}: are {shorten(self.class_vocabulary.arrow[:3].to_pylist())} labels?",
                parameter="label",
            )

    def votes(self) -> Any:
        """How often each class was chosen for each instance, (n, C): integers, or sums of weights."""
        n, c = self.n_instances, self.n_classes
        return np.bincount(cells(self.instance, c, self.label), self.weight, minlength=n * c).reshape(n, c)

    @cached_property
    def n_duplicates(self) -> int:
        """Number of annotations that repeat the (instance, annotator) pair of an earlier one; a soft label is none."""
        return repeats.count_repeats(self._pairs(), self.label, self.n_classes, self.weight)

    def _pairs(self) -> Ints:
        """The number of the (instance, annotator) pair of every annotation, (E,)."""
        return cells(self.instance, self.n_annotators, self.annotator)

    # -- new annotations from these ----------------------------------------------------------------------------------

    def select(self, instances: Selection | None = None, annotators: Selection | None = None) -> Annotations:
        """The annotations of some instances, some annotators, or both, each as codes or a boolean mask.

        Instances are renumbered 0, 1, ... in the order given. Annotators and classes keep their codes, so that what
        was learnt about them still applies.

        >>> a = Annotations.from_triples([0, 1, 2], [0, 1, 1], [0, 1, 1])
        >>> a.select([2, 0]).instance, a.select(annotators=[1])
        (array([1, 0], dtype=int32), Annotations(3 instances, 2 annotators, 2 classes, 2 annotations))
        """
        instance, vocabulary, keep = self.instance, self.instance_vocabulary, np.ones(len(self), bool)
        if annotators is not None:
            wanted = np.zeros(self.n_annotators, bool)
            wanted[selected(annotators, "annotator", self.n_annotators)] = True
            keep &= wanted[self.annotator]
        if instances is not None:
            codes = selected(instances, "instance", self.n_instances)
            number = np.full(self.n_instances, -1, np.int32)
            number[codes] = np.arange(len(codes), dtype=np.int32)
            instance, vocabulary = number[self.instance], vocabulary.subset(codes)
            keep &= instance >= 0
        return self._rows(keep, instance, vocabulary)

    def recoded(
        self,
        *,
        instances: tuple[npt.NDArray[Any], Vocabulary] | None = None,
        annotators: tuple[npt.NDArray[Any], Vocabulary] | None = None,
        classes: tuple[npt.NDArray[Any], Vocabulary] | None = None,
    ) -> Annotations:
        """The same annotations in other vocabularies: of each that changes, the new code of every old one, and the new one.

        >>> a = Annotations.from_triples([0, 1, 1], [0, 0, 1], [0, 1, 1])
        >>> a.recoded(classes=(np.array([1, 0]), Vocabulary.of(["no", "yes"], "classes"))).to_frame()["label"].to_pylist()
        ['yes', 'no', 'no']
        """
        i, instance_vocabulary = instances or (None, self.instance_vocabulary)
        j, annotator_vocabulary = annotators or (None, self.annotator_vocabulary)
        y, class_vocabulary = classes or (None, self.class_vocabulary)
        return Annotations(
            self.instance if i is None else i[self.instance],
            self.annotator if j is None else j[self.annotator],
            self.label if y is None else y[self.label],
            instance_vocabulary,
            annotator_vocabulary,
            class_vocabulary,
            self.weight,
        )

    def where(self, mask: npt.ArrayLike) -> Annotations:
        """The annotations for which ``mask`` (E,) is true; instances, annotators and classes do not change.

        >>> Annotations.from_triples([0, 1, 2], [0, 1, 1], [0, 1, 1]).where([True, False, True])
        Annotations(3 instances, 2 annotators, 2 classes, 2 annotations)
        """
        keep = np.asarray(mask, bool)
        if keep.shape != (len(self),):
            raise AnnotationError(f"the mask has shape {keep.shape}, but there are {len(self):,} annotations")
        return self._rows(keep, self.instance, self.instance_vocabulary)

    def split(
        self, fractions: float | Sequence[float], *, random_state: RandomState = None
    ) -> list[tuple[Annotations, Ints]]:
        """Random parts by instance, each with the codes of its instances in these annotations (ascending).

        ``fractions`` is the share of the second of two parts (``0.1``: nine tenths and one tenth), or the shares of
        all parts, which sum to 1.

        >>> a = Annotations.from_triples(range(10), [0] * 10, [0] * 10)
        >>> (train, train_codes), (test, test_codes) = a.split(0.2, random_state=0)
        >>> train.n_instances, test.n_instances, len(test_codes)
        (8, 2, 2)
        """
        shares = np.array([1 - fractions, fractions] if isinstance(fractions, int | float) else fractions, float)
        if shares.ndim != 1 or not np.all(shares >= 0) or not np.isclose(shares.sum(), 1):
            raise ConfigError(f"fractions must be a number in 0..1, or non-negative and sum to 1; got {fractions!r}")
        borders = np.rint(np.cumsum(shares)[:-1] * self.n_instances).astype(np.int64)
        shuffled = np.random.default_rng(random_state).permutation(self.n_instances)
        return [(self.select(codes), codes) for codes in map(np.sort, np.split(shuffled, borders))]

    def to_frame(self, backend: Backend = "pyarrow") -> Any:
        """A table with the columns instance, annotator, label and, where there are any, weight, with the user's ids."""
        check_value("backend", backend, Backend)
        table = pa.table(
            {
                "instance": self.instance_vocabulary.take(self.instance),
                "annotator": self.annotator_vocabulary.take(self.annotator),
                "label": self.class_vocabulary.take(self.label),
                **({} if self.weight is None else {"weight": pa.array(self.weight)}),
            }
        )
        if backend == "polars":
            import polars

            return polars.from_arrow(table)
        return table.to_pandas() if backend == "pandas" else table

    def _rows(self, rows: Array, instance: Codes, vocabulary: Vocabulary) -> Annotations:
        return Annotations(
            freeze(instance[rows]),
            freeze(self.annotator[rows]),
            freeze(self.label[rows]),
            vocabulary,
            self.annotator_vocabulary,
            self.class_vocabulary,
            None if self.weight is None else freeze(self.weight[rows]),
        )

    def hard(self) -> Annotations:
        """Without weights: of every (instance, annotator) the label that weighs most; the first of equals.

        >>> Annotations.from_soft([[0.3, 0.7], [0.6, 0.4]]).hard().label
        array([1, 0], dtype=int32)
        """
        if self.weight is None:
            return self
        shared = self.deduplicated("share") if self.n_duplicates else self
        if shared.weight is None:
            return shared
        rows = repeats.heaviest(shared._pairs(), shared.weight)
        return replace(shared, weight=None)._rows(rows, shared.instance, shared.instance_vocabulary)

    def deduplicated(self, policy: Duplicates, where: Callable[[int], str] = "row {}".format) -> Annotations:
        """The annotations without repeated (instance, annotator) pairs; errors name rows by ``where``.

        With "share", repeats are one label: each distinct one gets its share of them as weight.

        >>> Annotations.from_triples([0, 0], [1, 1], [0, 1]).deduplicated("last").label
        array([1], dtype=int32)
        """
        check_value("duplicates", policy, Duplicates)
        if policy == "keep" or not self.n_duplicates:
            return self
        rows, weight = self.rows_without_repeats(policy)
        if policy == "error":
            row = int(np.setdiff1d(np.arange(len(self)), rows)[0])
            (instance,) = self.instance_vocabulary.take(self.instance[[row]]).to_pylist()
            (annotator,) = self.annotator_vocabulary.take(self.annotator[[row]]).to_pylist()
            raise AnnotationError(
                f"{where(row)}: annotator {annotator!r} labels instance {instance!r} again (repeats in all: "
                f"{self.n_duplicates}); say {spelled('duplicates', 'first')}, last, keep or share",
                parameter="duplicates",
            )
        kept = replace(self, weight=None)._rows(rows, self.instance, self.instance_vocabulary)
        if weight is None or np.all(np.abs(weight - 1) < 1e-9):
            return kept
        return replace(kept, weight=weight.astype(np.float32))

    def rows_without_repeats(self, policy: Duplicates) -> tuple[Ints, Floats | None]:
        """Rows, ascending, that a policy for repeats keeps, and what they weigh; the weights are None where each is one."""
        if policy == "keep" or not self.n_duplicates:
            every: Ints = np.arange(len(self), dtype=np.int64)
            return every, None if self.weight is None else self.weight.astype(np.float64)
        return repeats.settled(policy, self._pairs(), self.label, self.n_classes, self.weight)


def _vocabulary(codes: Array, kind: str, size: int | None, ids: Ids | None) -> Vocabulary:
    if ids is None:
        return Vocabulary(size_of(size, codes, kind))
    vocabulary = Vocabulary.of(ids, kind)
    if size is not None and size != vocabulary.size:
        raise AnnotationError(f"n_{kind} is {size}, but {kind} lists {vocabulary.size} ids")
    return vocabulary
