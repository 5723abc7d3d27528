"""Download one file: resumable, verified before it gets its name, with the standard library only."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from crowdwise import __version__
from crowdwise.data.codes import count
from crowdwise.errors import DatasetError
from crowdwise.progress import progress_bar
from crowdwise.storage.files import rename
from crowdwise.storage.limits import VARIABLE, largest

_BLOCK = 1 << 16
_FIRST_WAIT = 1.0  # seconds before the first retry; doubled for each further one
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})  # status codes worth a retry


class _Interrupted(Exception):
    """The connection broke; what has arrived is worth keeping."""


def fetch(
    url: str,
    destination: str | os.PathLike[str],
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    progress: bool = True,
    retries: int = 3,
    timeout: float = 30.0,
) -> Path:
    """Download ``url`` (http or https) to ``destination`` and return that path.

    Data goes to ``<destination>.part``, which is renamed once size and checksum are right, so ``destination`` is never
    partial or damaged. An interrupted download keeps the ``.part``; the next call resumes it if there is a checksum to
    verify the result and the server supports it. A ``.part`` with a wrong checksum is removed. A correct
    ``destination`` is left alone. If several processes call this, one downloads and the others wait.

    sha256, md5 : hexadecimal digests to verify, either or both. size : expected number of bytes.
    retries : further attempts after a broken connection or a busy server. timeout : seconds without data.
    """
    destination = Path(destination)
    if urlsplit(url).scheme not in ("http", "https"):
        raise DatasetError(f"cannot download {url}: only http and https addresses are allowed")
    digests = {"sha256": sha256, "md5": md5}
    destination.parent.mkdir(parents=True, exist_ok=True)
    with _locked(destination.parent):
        if destination.exists() and _defect(destination, digests, size) is None:
            return destination
        part = destination.with_name(destination.name + ".part")
        _download(url, part, digests, size, progress, retries, timeout)
        rename(part, destination)
    return destination


def _download(
    url: str, part: Path, digests: dict[str, str | None], size: int | None, progress: bool, retries: int, timeout: float
) -> None:
    """Fill ``part`` with the verified content of ``url``."""
    provable = any(digests.values())
    for attempt in range(retries + 1):
        if not provable:
            part.unlink(missing_ok=True)  # without a checksum, old and new bytes may not belong together
        resumed = part.exists()
        try:
            _receive(url, part, size, progress, timeout)
        except (_Interrupted, ConnectionError, TimeoutError, http.client.HTTPException, urllib.error.URLError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in _BUSY:
                raise DatasetError(f"cannot download {url}: the server answered {error.code} {error.reason}") from error
            if attempt == retries:
                kept = f"; {part} is kept, call again to resume" if provable and part.exists() else ""
                reason = getattr(error, "reason", None) or error
                raise DatasetError(
                    f"cannot download {url} in {count(retries + 1, 'attempts')}: {reason}{kept}"
                ) from error
            time.sleep(_FIRST_WAIT * 2**attempt)
            continue
        defect = _defect(part, digests, size)
        if defect is None:
            return
        part.unlink()
        if not resumed or attempt == retries:
            raise DatasetError(f"{url} arrived damaged: {defect}; it was removed, try again or tell the maintainers")
        # The two parts may come from different versions of the file: start again from the first byte.


def _receive(url: str, part: Path, size: int | None, progress: bool, timeout: float) -> None:
    """Append the rest of ``url`` to ``part``, or start again if the server cannot resume."""
    start = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"crowdwise/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response = _open(urllib.request.Request(url, headers=headers), timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416 or not start:
            raise
        # The server has nothing beyond this part: either it is complete, or it is of another file and must go.
        if error.headers.get("Content-Range", "") == f"bytes */{start}":
            return
        part.unlink()
        raise _Interrupted("the server has fewer bytes than the part") from error
    with response:
        if start and not (response.status == 206 and _range_start(response) == start):
            start = 0
            if response.status == 206:
                part.unlink()
                raise _Interrupted("the server sent another range than asked for")
        length = response.headers.get("Content-Length", "")
        expected = start + int(length) if length.isdecimal() else size
        if size is not None and expected != size:
            part.unlink(missing_ok=True)
            raise DatasetError(f"cannot download {url}: the server offers {expected:,} bytes instead of {size:,}")
        limit = largest() if size is None else size
        received = expected or 0
        if received <= limit:
            with open(part, "ab" if start else "wb") as file:
                received = start + _copy(response, file, part.name, expected, start, limit, progress)
    if size is None and received > limit:
        part.unlink(missing_ok=True)
        raise DatasetError(f"cannot download {url}: more than {limit:,} bytes; if that is right, set {VARIABLE}=64GB")
    if expected is not None and received < expected:
        raise _Interrupted(f"truncated: {received:,} of {expected:,} bytes arrived")


def _copy(
    response: IO[bytes], file: IO[bytes], name: str, total: int | None, start: int, limit: int, progress: bool
) -> int:
    """Copy the body and return its length; stops once it exceeds ``limit``."""
    copied = 0
    with progress_bar(name.removesuffix(".part"), total, sizes=True, show=progress) as advance:
        advance(start)
        while block := response.read(_BLOCK):
            file.write(block)
            advance(len(block))
            copied += len(block)
            if start + copied > limit:
                break
    return copied


def _range_start(response: Any) -> int | None:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _defect(path: Path, digests: dict[str, str | None], size: int | None) -> str | None:
    """What is wrong with a file; None if nothing is."""
    if size is not None and path.stat().st_size != size:
        return f"it has {path.stat().st_size:,} bytes instead of {size:,}"
    for name, expected in digests.items():
        if expected is not None:
            with open(path, "rb") as file:
                found = hashlib.file_digest(file, partial(hashlib.new, name, usedforsecurity=False)).hexdigest()
            if found != expected.lower():
                return f"its {name} is {found} instead of {expected.lower()}"
    return None


class _WebOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only (urllib would also follow ftp)."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise DatasetError(f"cannot download {req.full_url}: it redirects to {newurl}, which is not http or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(request: urllib.request.Request, timeout: float) -> Any:
    return urllib.request.build_opener(_WebOnly).open(request, timeout=timeout)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for the folder's advisory lock, so that processes do not write the same part; go on if there are no locks."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks; the checksum still guards the result
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
