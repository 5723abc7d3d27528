"""What a person sees of a running fit: stage, epoch, loss, agreement, time left. Silent when nobody is looking."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class Progress:
    """A rich progress bar on a terminal at ``verbose=1``, plain lines at ``verbose=2``, nothing otherwise."""

    def __init__(self, verbose: int, title: str) -> None:
        self.title = title
        self.lines = verbose >= 2
        self.bar: Any = None
        self.task: Any = None
        if verbose == 1 and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[facts]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def stage(self, name: str, epochs: int | None, done: int = 0) -> None:
        """Begin a stage; ``epochs`` is None where their number is not known."""
        if self.bar is not None:
            if self.task is not None:
                self.bar.update(self.task, total=self.bar.tasks[-1].completed)
            description = f"{self.title}: {name}" if self.title else name
            self.task = self.bar.add_task(description, total=epochs, completed=done, facts="")

    def epoch(self, record: dict[str, Any]) -> None:
        facts = f"loss {record['loss']:.4f}"
        if record.get("agreement") is not None:
            facts += f"  agreement {record['agreement']:.3f}"
        if self.bar is not None:
            self.bar.update(self.task, advance=1, facts=facts)
        elif self.lines:
            print(f"{self.title} {record['stage']} epoch {record['epoch'] + 1}: {facts}", file=sys.stderr)
