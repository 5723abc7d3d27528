"""How far annotators agree with themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import entr

from crowdwise.agreement._measures import krippendorff_alpha
from crowdwise.annotations import Annotations
from crowdwise.data.codes import cells


def self_consistency(annotations: Any) -> pa.Table:
    """How far repeated labels of an instance by the same annotator agree, such as those of a model asked several times.

    Columns, a row per annotator: ``annotator``; ``n_repeated``, the instances labelled more than once; ``labels_each``,
    the mean number of labels of these; ``same``, the share of them with one answer only; ``alpha``, Krippendorff's alpha
    of the repeated labels, as if each were of another annotator; ``entropy``, the mean entropy of the answers in bits.
    All but the first two are null where nothing is repeated. The labels must be there as they were given: build the
    annotations with ``duplicates="keep"``.

    >>> table = {"item": [1, 1, 2, 2], "worker": ["m"] * 4, "label": ["a", "a", "a", "b"]}
    >>> row = self_consistency(table).to_pylist()[0]
    >>> row["n_repeated"], row["same"], row["entropy"]
    (2, 0.5, 0.5)
    """
    crowd = Annotations.coerce(annotations)
    rows = [_of_one(crowd, code) for code in range(crowd.n_annotators)]
    names = ("n_repeated", "labels_each", "same", "alpha", "entropy")
    columns = {name: [row[k] for row in rows] for k, name in enumerate(names)}
    types = {"n_repeated": pa.int64()}
    arrays = {name: pa.array(values, types.get(name, pa.float64())) for name, values in columns.items()}
    return pa.table({"annotator": crowd.annotator_vocabulary.arrow, **arrays})


def _of_one(crowd: Annotations, code: int) -> tuple[int, float | None, float | None, float | None, float | None]:
    rows = crowd.by_annotator[code]
    instance, label = crowd.instance[rows], crowd.label[rows]
    distinct, number, times = np.unique(instance, return_inverse=True, return_counts=True)
    repeated = times > 1
    if not repeated.any():
        return 0, None, None, None, None
    chosen, votes = np.unique(cells(number, crowd.n_classes, label), return_counts=True)
    item = chosen // crowd.n_classes
    answers = np.bincount(item, minlength=len(distinct))[repeated]
    bits = np.bincount(item, entr(votes / times[item]), minlength=len(distinct))[repeated] / np.log(2)
    kept = repeated[number]
    draws = Annotations.from_triples(number[kept], np.arange(int(kept.sum())), label[kept], n_classes=crowd.n_classes)
    alpha = krippendorff_alpha(draws, n_bootstrap=0).value
    same, each = float(np.mean(answers == 1)), float(times[repeated].mean())
    return int(repeated.sum()), each, same, None if np.isnan(alpha) else alpha, float(bits.mean())
