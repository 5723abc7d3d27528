"""Review the items of a file in a browser, or write what a review has found so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdwise.data.codes import count
from crowdwise.reviewing.exporting import save
from crowdwise.reviewing.server import serve
from crowdwise.reviewing.session import Progress, Session
from crowdwise.storage.lock import locked
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import AUTO, check_aggregator, check_outputs
from crowdwise.tasks.reading import Reading, read_annotations


@dataclass(frozen=True)
class Request:
    """What to review, and how."""

    path: Path
    folder: Path | None = None
    """Where the answers are kept; by default beside the file, with the suffix .review."""
    reading: Reading | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `crowdwise.reviewing.session.Session`; ``root``, the folder of the pictures, is by default that of the
    file."""

    @property
    def place(self) -> Path:
        """The folder of the answers."""
        return self.path.with_name(f"{self.path.name.split('.')[0]}.review") if self.folder is None else self.folder


def serve_review(
    request: Request, port: int, *, ready: Callable[[dict[str, str], Progress], object], observer: Observer = SILENT
) -> None:
    """Serve the page on this machine until interrupted; ``ready`` is told the reviewers' links and how far the review is."""
    with _session(request, observer) as session:
        serve(
            session,
            port,
            lambda guard: ready(
                {name: guard.link(name) for name in session.reviewers}, session.progress(session.reviewers[0])
            ),
        )


def export_review(
    request: Request, out: str | Path, *, what: str = "annotations", to: str = "auto", observer: Observer = SILENT
) -> Progress:
    """Write the annotations or the labels as they are after the review so far."""
    out = Path(out)
    check_outputs([out], [request.path])
    with _session(request, observer) as session:
        out.parent.mkdir(parents=True, exist_ok=True)
        save(session, out, what, to)
        return session.progress(session.reviewers[0])


@contextmanager
def _session(request: Request, observer: Observer) -> Iterator[Session]:
    check_aggregator(request.options.get("method", AUTO))
    export = read_annotations(request.path, request.reading, observer)
    with ExitStack() as stack:
        stack.enter_context(locked(request.place))
        with observer.step("fitting the consensus"):
            session = Session(export, request.place, **{"root": request.path.parent, **request.options})
        stack.enter_context(session)
        if session.answers.strange:
            unknown = count(session.answers.strange, "answers")
            observer.note(
                f"{session.journal.path}: {unknown} about items or classes that {request.path.name} does not have"
            )
        yield session
