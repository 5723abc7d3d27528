"""How a task says how far it is."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


class Observer:
    """Is told what a task is doing. This one ignores it; front ends show it."""

    def note(self, message: str) -> None:
        """A line worth showing at once: what was read, what begins."""

    def step(self, what: str) -> AbstractContextManager[None]:
        """A step that may take a while; the context lasts as long as the step."""
        return nullcontext()


SILENT = Observer()
