"""Review the items of a file in a browser, or write what a review has found so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from crowdwise.data.codes import count
from crowdwise.reviewing.consensus import Trust
from crowdwise.reviewing.exporting import save
from crowdwise.reviewing.server import serve
from crowdwise.reviewing.session import Progress, Session
from crowdwise.storage.lock import locked
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_aggregator, check_outputs
from crowdwise.tasks.reading import Reading, read_annotations


@dataclass(frozen=True)
class Request:
    """What to review, and how."""

    path: Path
    folder: Path | None = None
    """Where the answers are kept; by default beside the file, with the suffix .review."""
    reviewers: Sequence[str] = ("reviewer",)
    method: str = "auto"
    trust: Trust = "gold"
    target: float = 0.97
    root: Path | None = None
    """Folder of the pictures; by default that of the file."""
    reading: Reading | None = None
    seed: int = 0

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
    check_aggregator(request.method)
    export = read_annotations(request.path, request.reading, observer)
    with ExitStack() as stack:
        stack.enter_context(locked(request.place))
        with observer.step("fitting the consensus"):
            session = Session(
                export,
                request.place,
                request.reviewers,
                method=request.method,
                trust=request.trust,
                target=request.target,
                root=request.path.parent if request.root is None else request.root,
                seed=request.seed,
            )
        stack.enter_context(session)
        if session.answers.strange:
            unknown = count(session.answers.strange, "answers")
            observer.note(
                f"{session.journal.path}: {unknown} about items or classes that {request.path.name} does not have"
            )
        yield session
