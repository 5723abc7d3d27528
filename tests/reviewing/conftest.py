"""A crowd to review, as a file and as a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crowdwise.readers import Export, read
from crowdwise.reviewing.session import Session
from review_crowds import write_crowd

Make = Callable[..., Session]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_crowd(tmp_path / "animals.csv")


@pytest.fixture
def export(file: Path) -> Export:
    return read(file)


@pytest.fixture
def make(export: Export, tmp_path: Path) -> Iterator[Make]:
    """Makes sessions in a folder; all are closed at the end."""
    made: list[Session] = []

    def session(**options: object) -> Session:
        folder = tmp_path / "review"
        folder.mkdir(exist_ok=True)
        given = options.pop("export", export)
        made.append(Session(given, folder, **options))  # type: ignore[arg-type]
        return made[-1]

    yield session
    for each in made:
        each.close()
