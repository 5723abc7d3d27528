"""The report on localhost, which keeps up with what it is made from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.1"


class ReportServer(ThreadingHTTPServer):
    """Serves ``/``, the page, and ``/stamp``, which changes with what the page is made from; to this machine only.

    ``stamp`` is called for every question and must be quick; ``build`` makes the page when the stamp has changed.
    """

    daemon_threads = True

    def __init__(self, port: int, stamp: Callable[[], str], build: Callable[[str], str]) -> None:
        super().__init__((HOST, port), _Handler)
        self.stamp, self._build = stamp, build
        self._lock = threading.Lock()
        self._made: tuple[str, bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def page(self) -> bytes:
        """The page as it is now; one is made at a time."""
        with self._lock:
            now = self.stamp()
            if self._made is None or self._made[0] != now:
                self._made = now, self._build(now).encode("utf-8", "replace")
            return self._made[1]


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_GET(self) -> None:
        # a page elsewhere on the web whose name was made to point here must not read the report
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        if self.headers.get("Host") not in hosts:
            return self.send_error(HTTPStatus.FORBIDDEN, "ask for it at localhost")
        if self.path == "/":
            try:
                content, kind = self.server.page(), "text/html"
            except Exception as error:  # of any kind: the next question may find better data
                content, kind = f"{type(error).__name__}: {error}".encode("utf-8", "replace"), "text/plain"
        elif self.path == "/stamp":
            content, kind = self.server.stamp().encode(), "text/plain"
        else:
            return self.send_error(HTTPStatus.NOT_FOUND)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line for every two seconds would bury the terminal."""
