"""What a person sees of a running fit: stage, epoch, loss, agreement, time left. Silent when nobody is looking."""

from __future__ import annotations

import sys
from typing import Any

from crowdwise.progress import ProgressDisplay


class Progress(ProgressDisplay):
    """A bar for each stage at ``verbose=1``, a line for each epoch at ``verbose=2``."""

    def __init__(self, verbose: int, title: str) -> None:
        super().__init__(verbose)
        self.title = title

    def columns(self, facts: Any) -> tuple[Any, ...]:
        from rich.progress import MofNCompleteColumn, TimeRemainingColumn

        return MofNCompleteColumn(), facts, TimeRemainingColumn()

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
