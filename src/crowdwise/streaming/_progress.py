"""What a person sees of a long run: what is being done, how far it is, how long it will take."""

from __future__ import annotations

import sys
from typing import Any

from crowdwise.progress import ProgressDisplay


class Progress(ProgressDisplay):
    """One bar for one step after the other at ``verbose=1``, a line for each at ``verbose=2``."""

    def __init__(self, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.title = "inferring labels"  # of the next passes over the data

    def columns(self, facts: Any) -> tuple[Any, ...]:
        from rich.progress import TaskProgressColumn, TimeRemainingColumn

        return TaskProgressColumn(), TimeRemainingColumn(), facts

    def step(self, name: str, total: int, facts: str = "") -> None:
        """Begin something of ``total`` parts; what was before is done."""
        if self.lines:
            print(f"{name}{f': {facts}' if facts else ''}", file=sys.stderr, flush=True)
        if self.bar is None:
            return
        if self.task is None:
            self.task = self.bar.add_task(name, total=total, facts=facts)
        else:
            self.bar.reset(self.task, description=name, total=total, facts=facts)

    def advance(self, parts: int = 1) -> None:
        """Some parts are done; threads may call it."""
        if self.bar is not None:
            self.bar.advance(self.task, parts)
