"""What a person sees of a long run: what is being done, how far it is, how long it will take."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class Progress:
    """A rich progress bar on a terminal at ``verbose=1``, a line per step at ``verbose=2``, nothing otherwise."""

    def __init__(self, verbose: int = 0) -> None:
        self.lines = verbose >= 2
        self.bar: Any = None
        self.task: Any = None
        if verbose == 1 and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = TextColumn("[bold]{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
            self.bar = Bar(*columns, TextColumn("{task.fields[facts]}"), console=Console(stderr=True))

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

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
