"""Items that are most like a doubtful one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from crowdwise.errors import CrowdwiseError
from crowdwise.report import gather, render_page
from crowdwise.report.neighbours import nearest
from crowdwise.tasks.observer import SILENT
from crowdwise.tasks.report_source import Request, find
from report_crowds import crowd


def test_similar_items_are_shown_with_label_and_confidence() -> None:
    source = crowd(60)
    rng = np.random.default_rng(0)
    X = np.eye(3)[source.truth] + rng.normal(scale=0.05, size=(60, 3))  # type: ignore[index]
    page = gather(dataclasses.replace(source, X=X))
    rows = page.items["rows"]
    assert all(len(row["near"]) == 3 for row in rows)
    for row in rows:
        for place, name, _, sure, text in row["near"]:
            assert name != row["id"]
            assert rows[place]["id"] == name
            assert rows[place]["truth"] == row["truth"]  # classes are far apart
            assert 0 < sure <= 1
            assert text.startswith("a picture of number")
    assert "Most similar items" in render_page(page)
    assert "near" not in gather(source).items["rows"][0]


def test_texts_are_encoded() -> None:
    source = crowd(60)
    texts = np.array([["cats purr softly", "dogs bark loudly", "owls hoot at night"][code] for code in source.truth])  # type: ignore[union-attr]
    rows = gather(dataclasses.replace(source, X=texts, texts=texts.tolist())).items["rows"]
    assert all(near[4] == row["text"] for row in rows for near in row["near"])


def test_fewer_items_than_neighbours() -> None:
    assert nearest(np.eye(2), np.array([0]), np.arange(2)).tolist() == [[1, -1, -1]]


def test_inputs_are_matched_with_the_labels_by_id(tmp_path: Path) -> None:
    source = crowd(30)
    lines = [f"{k},p{who},{'ab'[(k + who) % 2]}" for k in reversed(range(30)) for who in range(3)]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *lines]))
    np.save(tmp_path / "X.npy", np.arange(30.0)[:, None] * np.ones(4))
    request = Request(str(tmp_path / "labels.csv"), inputs=tmp_path / "X.npy")
    found = find(request, SILENT)
    assert found.X[:, 0].tolist() == [float(name) for name in found.annotations.instances]  # type: ignore[union-attr]
    assert found.X[0, 0] == 29  # type: ignore[union-attr]
    np.save(tmp_path / "X.npy", np.ones((10, 4)))
    with pytest.raises(CrowdwiseError):
        find(request, SILENT)
    assert source.X is None
