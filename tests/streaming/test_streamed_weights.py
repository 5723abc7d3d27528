"""Weights on disk: the same labels as in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise import Annotations, agreement, quality, streaming
from crowdwise.errors import AnnotationError
from crowdwise.registry import AGGREGATORS


def soft_table(n=300, people=5, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    shares = (
        rng.dirichlet([1, 1, 1], (n, people)) * 0.3
        + 0.7 * np.eye(3)[np.where(rng.random((n, people)) < 0.8, truth[:, None], 0)]
    )
    return Annotations.from_soft(shares, classes=["a", "b", "c"])


@pytest.mark.parametrize("method", ["majority-vote", "dawid-skene", "one-coin", "wawa", "glad"])
def test_streamed_equals_in_memory(tmp_path, method):
    crowd = soft_table()
    table = crowd.to_frame()
    pq.write_table(
        table.take(np.random.default_rng(1).permutation(len(crowd))), tmp_path / "crowd.parquet", row_group_size=200
    )
    out, who = tmp_path / "labels.parquet", tmp_path / "who.parquet"
    result = streaming.aggregate(tmp_path / "crowd.parquet", method, out=out, annotators_out=who, memory="16MB")
    assert "weight = 'weight'" in result.message
    model = AGGREGATORS[method](random_state=0).fit(crowd)
    found = {row["instance"]: row for row in pq.read_table(out).to_pylist()}
    np.testing.assert_allclose(
        [found[i]["confidence"] for i in range(300)], model.posterior_.max(axis=1), rtol=1e-6, atol=1e-9
    )
    assert [found[i]["label"] for i in range(300)] == model.labels_.tolist()
    assert {row["n_annotations"] for row in found.values()} == {5}
    alpha = agreement.krippendorff_alpha(crowd, n_bootstrap=0).value
    assert result.figures.alpha == pytest.approx(alpha, abs=1e-9)
    theirs = {row["annotator"]: row for row in quality.annotators(crowd, model).to_pylist()}
    for row in pq.read_table(who).to_pylist():
        assert row["annotator_quality"] == pytest.approx(theirs[row["annotator"]]["annotator_quality"], abs=1e-6)


def test_weights_of_one_are_as_without(tmp_path):
    crowd = soft_table().hard()
    pq.write_table(crowd.to_frame(), tmp_path / "plain.parquet")
    pq.write_table(crowd.to_frame().append_column("share", pa.array(np.ones(len(crowd)))), tmp_path / "ones.parquet")
    tables = []
    for name, options in (("plain", {}), ("ones", {"weight": "share"})):
        streaming.aggregate(
            tmp_path / f"{name}.parquet", "dawid-skene", out=tmp_path / f"{name}-out.parquet", **options
        )
        tables.append(pq.read_table(tmp_path / f"{name}-out.parquet"))
    np.testing.assert_allclose(tables[0]["confidence"], tables[1]["confidence"], atol=1e-9)


def test_bad_weights_are_named(tmp_path):
    table = {"item": [1, 2], "worker": [1, 1], "label": [0, 1], "weight": [1.0, 0.0]}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    with pytest.raises(AnnotationError, match=r"column 'weight', row group 0, record 2: weight 0 cannot be streamed"):
        streaming.aggregate(tmp_path / "t.parquet", "majority-vote", out=tmp_path / "o.parquet")
