"""The review on this machine: one server, in this thread until interrupted, or in another beside a notebook."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from crowdwise.errors import ConfigError, spelled
from crowdwise.readers import Export
from crowdwise.reviewing.guard import HOSTS, Guard
from crowdwise.reviewing.session import Session
from crowdwise.storage.lock import locked

HINT = "the review needs starlette and uvicorn: pip install 'crowdwise[review]'"
CONNECTIONS = 100


def serve(session: Session, port: int, ready: Callable[[Guard], object]) -> None:
    """Serve a session until the process is interrupted; ``ready`` is told how to get in."""
    _runner(session, port, ready, framed=False)[0]()


def _runner(
    session: Session, port: int, ready: Callable[[Guard], object], framed: bool
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Functions that run the server and that stop it."""
    try:
        import uvicorn

        from crowdwise.reviewing.app import application
    except ImportError as error:
        raise ConfigError(HINT) from error
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOSTS[0], port))
        listener.listen()  # who connects before the server runs waits a moment
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"port {port} cannot be used: {error.strerror}; choose another with {spelled('port')}", parameter="port"
        ) from error
    guard = Guard(session.reviewers, listener.getsockname()[1], framed)
    config = uvicorn.Config(
        application(session, guard),
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)

    def run() -> None:
        with listener:
            ready(guard)
            server.run(sockets=[listener])

    def stop() -> None:
        server.should_exit = True

    return run, stop


class Review:
    """A running review: its links, its answers so far, and the way to end it. In a notebook it shows itself.

    Made by `crowdwise.review`.
    """

    def __init__(self, export: Export, folder: Path, port: int = 0, **options: Any) -> None:
        self._started = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._failure: Exception | None = None
        self.guard: Guard
        self.session: Session
        self._thread = threading.Thread(target=self._run, args=(export, folder, port, options), daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self, export: Export, folder: Path, port: int, options: dict[str, Any]) -> None:
        """The lock, the journal and the server belong to one thread."""
        try:
            with ExitStack() as stack:
                stack.enter_context(locked(folder))
                self.session = stack.enter_context(Session(export, folder, **options))
                run, self._stop = _runner(self.session, port, self._ready, framed=True)
                run()
        except Exception as error:  # of any kind: whoever waits gets it
            self._failure = error
        finally:
            self._started.set()

    def _ready(self, guard: Guard) -> None:
        self.guard = guard
        self._started.set()

    @property
    def links(self) -> dict[str, str]:
        """The link of every reviewer."""
        return {name: self.guard.link(name) for name in self.session.reviewers}

    @property
    def labels(self) -> Any:
        """The consensus so far: a table of instance, label, confidence, reviewed_by and comment."""
        from crowdwise.reviewing.exporting import consensus_labels

        return consensus_labels(self.session)

    @property
    def annotations(self) -> Any:
        """The annotations of crowd and reviewers."""
        return self.session.settle().annotations

    def save(self, path: str | Path, what: str = "annotations", to: str = "auto") -> None:
        """Write the annotations or the ``"labels"``, in a format that `crowdwise.readers.write` knows."""
        from crowdwise.reviewing.exporting import save

        save(self.session, Path(path), what, to)

    def stop(self) -> None:
        """End the server; every answer is in the journal."""
        self._stop()
        self._thread.join()

    def __enter__(self) -> Review:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Review({', '.join(self.links.values())})"

    def _repr_html_(self) -> str:
        """The page in a frame. The host is named as the notebook's most often is, so that its cookie is let through."""
        link = self.guard.link(self.session.reviewers[0], HOSTS[1])
        return (
            f'<iframe src="{link}" width="100%" height="820" style="border:1px solid #8884;border-radius:8px"></iframe>'
            f'<p><a href="{link}" target="_blank" rel="noreferrer">Open in a tab of its own</a></p>'
        )
