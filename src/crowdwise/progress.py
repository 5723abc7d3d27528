"""Progress bars on a terminal; silent if nobody is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self


class ProgressDisplay:
    """Base class: a rich ``bar`` on a terminal at ``verbose=1``, ``lines`` at ``verbose=2``, else nothing."""

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
        """The columns after the bar; tasks have a field ``facts``."""
        raise NotImplementedError(f"{type(self).__name__} must define columns()")

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()


@contextmanager
def progress_bar(
    description: str, total: float | None, *, sizes: bool = False, show: bool = True
) -> Iterator[Callable[[float], None]]:
    """A bar on standard error if that is a terminal; yields ``advance(amount)``.

    ``sizes``: amounts are bytes. ``total`` may be unknown.

    >>> with progress_bar("counting", 3) as advance:
    ...     advance(3)
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    amount: ProgressColumn = DownloadColumn() if sizes else TextColumn("{task.percentage:>3.0f}%")
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (show and console.is_terminal), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda amount: progress.advance(task, amount)
