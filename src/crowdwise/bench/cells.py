"""One run of a benchmark: a method with its parameters, on one crowd, with one seed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


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
    """Arguments of `crowdwise.datasets.load`, or ``inputs``, ``annotations`` and ``ids`` of the user's files."""
    simulate: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    heldout: float = 0.0
    """Share of the annotations that is held out to judge by, where there is no truth."""

    @property
    def id(self) -> str:
        """A name that changes with everything that decides the result, but not with the cell's place in a table."""
        decides = {k: v for k, v in asdict(self).items() if k not in ("experiment", "column", "row")}
        text = re.sub(r"[^\w.-]+", "-", f"{self.column}-{self.row}-seed{self.seed}".lower()).strip("-")
        return f"{text[:80]}-{_digest(decides)}"

    @property
    def family(self) -> str:
        """Cells of one family have crowd and seed in common, and so the first stages of their methods."""
        return _digest([self.data, self.simulate, self.seed, self.heldout])

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
