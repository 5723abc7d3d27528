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
"""Keys of ``Cell.data`` that name the user's files."""


@dataclass(frozen=True)
class Cell:
    """The inputs of a run, and its place in a table."""

    experiment: str
    column: str
    """The setting, data and noise; named as in the paper if it is one of the paper's."""
    row: str
    """The method or variant."""
    method: str
    seed: int
    data: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `crowdwise.datasets.load`, or the user's files ``inputs``, ``annotations`` and ``ids``, with ``content``,
    a digest of their contents."""
    simulate: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    heldout: float = 0.0
    """Fraction of the annotations held out for evaluation, if there is no truth."""

    @property
    def id(self) -> str:
        """A name that depends on everything that determines the result, but not on the cell's place in a table.

        Files count by name and content, wherever they are.
        """
        text = re.sub(r"[^\w.-]+", "-", f"{self.dataset}-{self.method}-seed{self.seed}".lower()).strip("-")
        decides = [self.method, self.seed, self._source(), self.simulate, self._parameters(), self.heldout]
        return f"{text[:80]}-{_digest(decides)}"

    @property
    def family(self) -> str:
        """Cells of one family share crowd and seed, and so their methods can share first stages."""
        return _digest([self._source(), self.simulate, self.seed, self.heldout])

    @property
    def dataset(self) -> str:
        """The data set's name, or that of the inputs' file."""
        return str(self.data.get("name", Path(str(self.data.get("inputs", "data"))).stem))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def _parameters(self) -> dict[str, Any]:
        """The parameters as version 0.1 had them, whose only recipe was the paper's."""
        named = {"recipe": "auto", **self.parameters}
        return {key: value for key, value in named.items() if (key, value) != ("recipe", "paper")}

    def _source(self) -> dict[str, Any]:
        return {key: Path(str(value)).name if key in FILES else value for key, value in self.data.items()}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
