"""A progress bar for what takes minutes, on a terminal; silent when nobody is looking."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class Shown:
    """Base of what counts: a rich ``bar`` on a terminal at ``verbose=1``, ``lines`` at ``verbose=2``, nothing otherwise."""

    def __init__(self, verbose: int) -> None:
        self.lines = verbose >= 2
        self.bar: Any = None
        self.task: Any = None
        if verbose == 1 and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            description, facts = TextColumn("[bold]{task.description}"), TextColumn("{task.fields[facts]}")
            self.bar = Progress(description, BarColumn(), *self.columns(facts), console=Console(stderr=True))

    def columns(self, facts: Any) -> tuple[Any, ...]:
        """What stands behind the bar; tasks have a field ``facts``."""
        raise NotImplementedError(f"{type(self).__name__} does not say what stands behind the bar")

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
