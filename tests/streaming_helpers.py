"""Crowds in Parquet, every method that streams, and the comparison with the same crowd in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from crowdwise import quality
from crowdwise.aggregation import (
    CRH,
    GLAD,
    IBCC,
    MACE,
    Aggregator,
    Committee,
    DawidSkene,
    FastDawidSkene,
    HierarchicalDawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
    Wawa,
    ZenCrowd,
    ZeroBasedSkill,
)
from crowdwise.readers import read_table
from crowdwise.streaming import aggregate

MODELS: list[Aggregator] = [
    MajorityVote(),
    Wawa(),
    ZeroBasedSkill(max_iter=5),
    CRH(),
    DawidSkene(max_iter=8, tol=0),
    DawidSkene(max_iter=8, tol=0, prior=None),
    DawidSkene(max_iter=8, tol=0, prior=0.5),
    OneCoinDawidSkene(max_iter=8, tol=0),
    OneCoinDawidSkene(max_iter=8, tol=0, prior=None),
    FastDawidSkene(max_iter=5, tol=0),
    Committee(members=("hierarchical-dawid-skene", "wawa", "majority-vote")),
    FastDawidSkene(hybrid=True),
    HierarchicalDawidSkene(max_iter=6),
    IBCC(max_iter=8, tol=0),
    IBCC(max_iter=8, tol=0, class_count="empirical"),
    ZenCrowd(),
    GLAD(max_iter=8, tol=0),
    MACE(max_iter=8, n_restarts=3, random_state=0),
]
FIRST = [
    pytest.param(model, marks=[pytest.mark.slow] * any(type(model) is type(other) for other in MODELS[:number]))
    for number, model in enumerate(MODELS)
]
"""For tests in which the settings of a method matter little: one of each, the others when there is time."""
FITTED = ("confusion_", "skill_", "class_prior_", "objective_", "n_iter_", "converged_")


def crowd(rows: int = 1500, n: int = 300, annotators: int = 12, classes: int = 3, seed: int = 0) -> dict[str, Any]:
    """Labels in random order, some of them repeated, of instances with 1 to about 12 labels."""
    rng = np.random.default_rng(seed)
    truth, skill = rng.integers(classes, size=n), rng.uniform(0.4, 0.95, annotators)
    instance, annotator = rng.integers(n, size=rows), rng.integers(annotators, size=rows)
    right = rng.random(rows) < skill[annotator]
    label = np.where(right, truth[instance], rng.integers(classes, size=rows))
    return {"task": instance * 7 - 300, "worker": annotator, "label": label}


def text(table: dict[str, Any]) -> dict[str, Any]:
    names = {"task": "item-", "worker": "wörker ", "label": ""}
    return {column: [f"{names[column]}{value}" for value in values] for column, values in table.items()}


def write(path: Path, table: Any, row_group_size: int = 200) -> Path:
    pq.write_table(pa.table(table), path, row_group_size=row_group_size)
    return path


def fresh(model: Aggregator, **changes: Any) -> Aggregator:
    return type(model)(**{**model.get_params(), **changes})


def compare(path: Path, model: Aggregator, tmp_path: Path, **options: Any) -> None:
    out, profile = tmp_path / "labels.parquet", tmp_path / "annotators.parquet"
    options = {"threads": 2, **options}
    result = aggregate(path, fresh(model), out=out, annotators_out=profile, proba=True, **options)
    annotations = read_table(path).annotations
    expected = fresh(model).fit(annotations)
    labels = pq.read_table(out)
    assert labels["instance"].to_pylist() == expected.instances_.tolist()
    assert labels["label"].to_pylist() == expected.labels_.tolist()
    assert labels["n_annotations"].to_pylist() == annotations.labels_per_instance.tolist()
    posterior = np.stack([labels[f"p_{name}"].to_numpy() for name in expected.classes_], axis=1)
    np.testing.assert_allclose(posterior, expected.posterior_, atol=1e-8)
    np.testing.assert_allclose(labels["confidence"].to_numpy(), expected.posterior_.max(axis=1), atol=1e-8)
    for name in FITTED:
        if hasattr(expected, name):
            np.testing.assert_allclose(getattr(result.model, name), getattr(expected, name), rtol=1e-8, atol=1e-8)
    table = quality.annotators(annotations, expected)
    found = pq.read_table(profile)
    rank = list(
        zip(found["annotator_quality"].to_pylist(), pc.negate(found["num_examples_labeled"]).to_pylist(), strict=True)
    )
    assert rank == sorted(rank)
    same_tables(found.sort_by("annotator"), table.sort_by("annotator"))  # of two as good, either is first
    assert not out.with_name(".labels.parquet.work").exists()


def same_tables(found: pa.Table, expected: pa.Table) -> None:
    assert found.column_names == expected.column_names
    for name in found.column_names:
        ours, theirs = found[name].to_pylist(), expected[name].to_pylist()
        if isinstance(theirs[0], float):
            np.testing.assert_allclose(np.array(ours, float), np.array(theirs, float), atol=1e-7, err_msg=name)
        else:
            assert ours == theirs, name
