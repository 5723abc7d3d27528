"""What tests of the engine share."""

from __future__ import annotations

import pytest

from crowdwise.methods.core import base


@pytest.fixture(autouse=True)
def without_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models keep no labels of their training instances, half of a small fit: no test here looks at them."""
    monkeypatch.setattr(base, "label_arrays", lambda *_: {})
