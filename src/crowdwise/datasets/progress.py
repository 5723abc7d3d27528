"""A progress bar for what takes seconds: downloads and decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    description: str, total: float | None, *, sizes: bool = False, show: bool = True
) -> Iterator[Callable[[float], None]]:
    """A bar on standard error where that is a terminal, else nothing; yields ``advance(amount)``.

    ``sizes`` says that amounts are bytes; ``total`` may be unknown.

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
