"""One run of a benchmark: a method with its parameters, on one crowd, with one seed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FILES = ("inputs", "annotations", "ids")
"""Keys of ``Cell.data`` that name files of the user's."""


@dataclass(frozen=True)
class Cell:
    """What a run is made from, and where in a table it belongs."""

    experiment: str
    column: str
    """The setting: data and noise, in the paper's words where it is one of the paper's."""
    row: str
    """The method or variant."""
    method: str
    seed: int
    data: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `crowdwise.datasets.load`, or ``inputs``, ``annotations`` and ``ids`` of the user's files, with
    ``content``, a digest of what is in them."""
    simulate: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    heldout: float = 0.0
    """Share of the annotations that is held out to judge by, where there is no truth."""

    @property
    def id(self) -> str:
        """A name that changes with everything that decides the result, but not with the cell's place in a table.

        Files count with their names and contents, wherever they lie.
        """
        text = re.sub(r"[^\w.-]+", "-", f"{self.dataset}-{self.method}-seed{self.seed}".lower()).strip("-")
        decides = [self.method, self.seed, self._source(), self.simulate, self.parameters, self.heldout]
        return f"{text[:80]}-{_digest(decides)}"

    @property
    def family(self) -> str:
        """Cells of one family have crowd and seed in common, and so the first stages of their methods."""
        return _digest([self._source(), self.simulate, self.seed, self.heldout])

    @property
    def dataset(self) -> str:
        """The data set's name, or that of the file with the inputs."""
        return str(self.data.get("name", Path(str(self.data.get("inputs", "data"))).stem))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def _source(self) -> dict[str, Any]:
        return {key: Path(str(value)).name if key in FILES else value for key, value in self.data.items()}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
