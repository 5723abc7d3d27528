"""The report on localhost, updated with its sources."""

from __future__ import annotations

import html
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from crowdwise.report.limits import safe_json

HOST = "127.0.0.1"
TIMEOUT = 10.0  # seconds
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')


def policy_of(content: str) -> str:
    """The policy that a page declares, for its header; nothing at all may be loaded by what declares none."""
    found = _POLICY.search(content[:4096])
    return (
        f"{html.unescape(found[1])}; frame-ancestors 'none'" if found else "default-src 'none'; frame-ancestors 'none'"
    )


class ReportServer(ThreadingHTTPServer):
    """Serves ``/``, the page, and ``/progress``, what changes during a run, to this machine only.

    The page asks for ``progress`` every two seconds. Its entry ``crowd`` changes with all other sources, and makes the
    page reload.
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
        """Content and its type, built one at a time."""
        with self._lock:
            if path == "/":
                return self._build(), "text/html"
            return (safe_json(self._progress()), "application/json") if path == "/progress" else None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is printed when a client goes away; anything else is a bug, and is."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    timeout = TIMEOUT  # of a client that says nothing

    def do_GET(self) -> None:
        # a website whose name was made to resolve to this machine must not read the report
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        if self.headers.get("Host") not in hosts:
            return self.send_error(HTTPStatus.FORBIDDEN, "this report is served at localhost only")
        status = HTTPStatus.OK
        try:
            answer = self.server.answer(self.path)
        except Exception as error:  # of any kind: the next request may succeed
            status, answer = HTTPStatus.SERVICE_UNAVAILABLE, (f"{type(error).__name__}: {error}", "text/plain")
        if answer is None:
            return self.send_error(HTTPStatus.NOT_FOUND)
        content = answer[0].encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{answer[1]}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", policy_of(answer[0]))
        if status != HTTPStatus.OK:
            self.send_header("Refresh", "2")
        self.end_headers()
        with suppress(ConnectionError):  # the page was closed or reloaded
            self.wfile.write(content)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line every two seconds would flood the terminal."""
