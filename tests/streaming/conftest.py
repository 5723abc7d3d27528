"""What tests of streaming share."""

from __future__ import annotations

import pytest

from crowdwise.streaming import preparation


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small crowds are cut into many pieces."""
    monkeypatch.setattr(preparation, "PARTITION", 6_000)
    monkeypatch.setattr(preparation, "BATCH", 90)
    monkeypatch.setattr(preparation, "BLOCK", 400)
