"""The report on localhost, which keeps up with what it is made from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from crowdwise.report.limits import safe_json

HOST = "127.0.0.1"


class ReportServer(ThreadingHTTPServer):
    """Serves ``/``, the page, and ``/progress``, what of it changes while a run goes on; to this machine only.

    ``progress`` is asked for every two seconds. Its entry ``crowd`` changes with everything else that the page is made
    from: the page then loads itself anew.
    """

    daemon_threads = True

    def __init__(self, port: int, build: Callable[[], str], progress: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__((HOST, port), _Handler)
        self._build, self._progress = build, progress
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def answer(self, path: str) -> tuple[str, str] | None:
        """Content and its type; one is made at a time."""
        with self._lock:
            if path == "/":
                return self._build(), "text/html"
            return (safe_json(self._progress()), "application/json") if path == "/progress" else None


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_GET(self) -> None:
        # a page elsewhere on the web whose name was made to point here must not read the report
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        if self.headers.get("Host") not in hosts:
            return self.send_error(HTTPStatus.FORBIDDEN, "ask for it at localhost")
        status = HTTPStatus.OK
        try:
            answer = self.server.answer(self.path)
        except Exception as error:  # of any kind: the next question may find better data
            status, answer = HTTPStatus.SERVICE_UNAVAILABLE, (f"{type(error).__name__}: {error}", "text/plain")
        if answer is None:
            return self.send_error(HTTPStatus.NOT_FOUND)
        content = answer[0].encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{answer[1]}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        if status != HTTPStatus.OK:
            self.send_header("Refresh", "2")
        self.end_headers()
        with suppress(ConnectionError):  # the page was closed or loaded anew
            self.wfile.write(content)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line for every two seconds would bury the terminal."""
