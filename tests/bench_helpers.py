"""Cells of a benchmark in this process, where starting others would take longer than the cells."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from crowdwise.bench.cells import Cell
from crowdwise.bench.pool import Pool, attempt


class InThisProcess(Pool):
    """One cell after the other."""

    def underway(self) -> Iterable[deque[Cell]]:
        return [self.current]

    def run(self) -> None:
        while self.families:
            self.current = self.families.popleft()
            while self.current:
                cell = self.current[0]
                self._end(self.current, attempt(cell, self.out, 1, lambda text, cell=cell: self._begun(cell, text)))
