"""Who may talk to the page: only a browser on this machine that was given the link, and only from the page itself."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any

Send = Any
Receive = Any
Scope = dict[str, Any]

HOSTS = ("127.0.0.1", "localhost")
BODY = 64 * 1024  # bytes of a request
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors {frames}"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(eq=False)
class Guard:
    """The secrets of a review: a token for the link of every reviewer, and one for the cookie that takes its place."""

    reviewers: Sequence[str]
    port: int = 0
    framed: bool = False
    """Whether pages of this machine, such as a notebook, may show the review in a frame."""
    tokens: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = {secrets.token_urlsafe(24): name for name in self.reviewers}
        self.cookies = {secrets.token_urlsafe(24): name for name in self.reviewers}

    def link(self, reviewer: str, host: str = HOSTS[0]) -> str:
        """The address that lets a browser in."""
        token = next(token for token, name in self.tokens.items() if name == reviewer)
        return f"http://{host}:{self.port}/open?token={token}"

    @property
    def cookie_name(self) -> str:
        """Cookies are shared by the ports of a host, so that the name has the port."""
        return f"crowdwise-review-{self.port}"

    def cookie(self, token: str) -> str | None:
        """The cookie for the token of a link; None for a wrong one."""
        reviewer = _matching(self.tokens, token)
        if reviewer is None:
            return None
        value = next(value for value, name in self.cookies.items() if name == reviewer)
        return f"{self.cookie_name}={value}; HttpOnly; SameSite=Strict; Path=/"

    def reviewer(self, headers: Mapping[str, str]) -> str | None:
        """Whose browser asks; None without a valid cookie."""
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            return None
        return None if morsel is None else _matching(self.cookies, morsel.value)

    def refusal(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Why a request is refused, whoever sends it; None if it is not."""
        own = [f"{host}:{self.port}" for host in HOSTS]
        if headers.get("host") not in own:  # a website whose name was made to resolve to this machine
            return "this page is served at localhost only"
        origin, expected = headers.get("origin"), f"http://{headers['host']}"
        if origin is None and method not in ("GET", "HEAD"):
            return "the request does not say where it comes from"
        if origin is not None and origin != expected:
            return "requests of other pages are refused"
        if method not in ("GET", "HEAD") and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "requests of other pages are refused"
        return None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every response."""
        frames = " ".join(f"http://{host}:*" for host in HOSTS) if self.framed else "'none'"
        return HEADERS | {"Content-Security-Policy": POLICY.format(frames=frames)}


def _matching(secret: Mapping[str, str], given: str) -> str | None:
    """The entry of a secret, compared in constant time."""
    found = None
    for value, name in secret.items():
        if hmac.compare_digest(value.encode(), given.encode("utf-8", "replace")):
            found = name
    return found


class Gate:
    """ASGI middleware: refuses what `Guard` refuses and bodies that are too large, and adds the headers."""

    def __init__(self, app: Any, guard: Guard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal, status = self.guard.refusal(scope["method"], headers), 403
        scope["reviewer"] = self.guard.reviewer(headers)
        if refusal is None and scope["reviewer"] is None and scope["path"] != "/open":
            refusal = "open the link that `crowdwise review` printed"
        length = headers.get("content-length", "0")
        if refusal is None and (not length.isdecimal() or int(length) > BODY):
            refusal, status = f"the request has more than {BODY:,} bytes", 413

        async def with_headers(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in self.guard.headers.items()]
                kept = [pair for pair in message.get("headers", []) if pair[0].lower() != b"server"]
                message = {**message, "headers": [*kept, *own]}
            await send(message)

        if refusal is not None:
            await _refuse(with_headers, status, refusal)
            return
        received = 0

        async def limited() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > BODY:  # of a body in chunks, whose length nobody has announced
                raise TooLarge
            return message

        try:
            await self.app(scope, limited, with_headers)
        except TooLarge:
            await _refuse(with_headers, 413, f"the request has more than {BODY:,} bytes")


class TooLarge(Exception):
    """A body beyond the limit."""


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = reason.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
