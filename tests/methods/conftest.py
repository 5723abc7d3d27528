"""What tests of methods share."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdwise.methods.core import base

ABOUT_LABELS = {
    "test_concord.py",
    "test_inputs.py",
    "test_label_check.py",
    "test_labels.py",
    "test_large_graphs.py",
    "test_protocol.py",
}


@pytest.fixture(autouse=True)
def without_labels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models keep no labels of their training instances, half of a small fit, where no test looks at them.

    `test_labels.py` looks at those of every method. In other tests of every method, one of them makes labels all the same.
    """
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    if request.path.name not in ABOUT_LABELS and parameters.get("method") != "ce":
        monkeypatch.setattr(base, "label_arrays", lambda *_: {})


@pytest.fixture(scope="module")
def first_stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs that differ only later find each other's warm-up and global transition."""
    return tmp_path_factory.mktemp("first-stages")
