"""Downloads, against a server on this machine that misbehaves on demand."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from crowdwise.datasets import download, fetch
from crowdwise.errors import DatasetError

CONTENT = np.random.default_rng(0).bytes(300_000)
PIECE = 10_000  # bytes that the server sends at once
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content`; `dies_after` and `statuses` are used up, one entry for each request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.ranges = True
        self.length = True
        self.dies_after: list[int] = []
        self.statuses: list[int] = []
        self.redirect = None
        self.range_shift = 0
        self.pause = 0.0  # seconds after each piece that is sent
        self.asked: list[str | None] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.asked.append(self.headers["Range"])
        if server.statuses:
            return self.send_error(server.statuses.pop(0))
        if server.redirect:
            self.send_response(302)
            self.send_header("Location", server.redirect)
            return self.end_headers()
        start = 0
        if server.ranges and self.headers["Range"]:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) + server.range_shift
            if start >= len(server.content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(server.content)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        else:
            self.send_response(200)
        body = server.content[start:]
        if server.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: server.dies_after.pop(0)] if server.dies_after else body
        with suppress(ConnectionError):
            for at in range(0, len(body), PIECE):
                self.wfile.write(body[at : at + PIECE])
                time.sleep(server.pause)
        return None

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "_FIRST_WAIT", 0.0)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "file.bin"


@pytest.fixture
def part(path):
    path.parent.mkdir()
    return path.with_name("file.bin.part")


def test_a_file_arrives_whole_and_leaves_no_part(server, path):
    assert fetch(server.url, path, md5=MD5, sha256=SHA256, size=len(CONTENT)) == path
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("checks", [{}, {"md5": MD5.upper()}, {"sha256": SHA256}, {"size": len(CONTENT)}])
def test_every_check_is_optional(server, path, checks):
    assert fetch(server.url, path, **checks).read_bytes() == CONTENT


def test_a_file_that_is_already_right_is_not_asked_for_again(server, path, part):
    path.write_bytes(CONTENT)
    fetch(server.url, path, md5=MD5)
    assert server.asked == []


def test_a_damaged_file_is_replaced(server, path, part):
    path.write_bytes(b"damaged")
    fetch(server.url, path, md5=MD5)
    assert path.read_bytes() == CONTENT


def test_a_server_dying_in_the_middle_is_resumed_where_it_died(server, path):
    server.dies_after = [100_000, 50_000]
    fetch(server.url, path, md5=MD5)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_truncated_download_keeps_its_part_and_the_next_call_resumes_it(server, path):
    server.dies_after = [100_000]
    with pytest.raises(DatasetError, match=r"truncated: 100,000 of 300,000 bytes.*file.bin.part is kept"):
        fetch(server.url, path, md5=MD5, retries=0)
    assert not path.exists()
    assert path.with_name("file.bin.part").read_bytes() == CONTENT[:100_000]
    fetch(server.url, path, md5=MD5, retries=0)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-"]


def test_a_server_without_ranges_is_asked_for_the_whole_file(server, path, part):
    server.ranges = False
    part.write_bytes(CONTENT[:1000])
    fetch(server.url, path, md5=MD5)
    assert path.read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_part_that_was_complete_needs_no_more_bytes(server, path, part):
    part.write_bytes(CONTENT)
    fetch(server.url, path, md5=MD5, retries=0)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"x" * 1000, b"x" * 300_000, b"x" * 400_000], ids=["shorter", "equal", "longer"])
def test_a_part_of_another_file_is_thrown_away(server, path, part, stale):
    part.write_bytes(stale)
    fetch(server.url, path, md5=MD5)
    assert path.read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(stale)}-", None]


def test_a_wrong_range_in_the_answer_is_not_appended(server, path, part):
    part.write_bytes(CONTENT[:1000])
    server.range_shift = 7
    fetch(server.url, path, md5=MD5)
    assert path.read_bytes() == CONTENT


def test_without_a_checksum_an_old_part_is_not_trusted(server, path, part):
    part.write_bytes(b"x" * 1000)
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None]


def test_a_corrupted_download_is_removed(server, path):
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(DatasetError, match=f"arrived damaged: its md5 is [0-9a-f]{{32}} instead of {MD5}"):
        fetch(server.url, path, md5=MD5)
    assert list(path.parent.iterdir()) == []
    assert len(server.asked) == 1


@pytest.mark.parametrize("length", [True, False])
def test_a_file_of_another_size_is_refused_before_it_fills_the_disk(server, path, length):
    server.length = length
    with pytest.raises(DatasetError, match=r"bytes instead of 10"):
        fetch(server.url, path, size=10)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("length", [True, False])
def test_a_file_without_a_known_size_has_a_limit_too(server, path, length, monkeypatch):
    server.length = length
    monkeypatch.setenv("CROWDWISE_UNPACK_LIMIT", "200kB")
    with pytest.raises(DatasetError, match="more than 200,000 bytes; if that is right, set CROWDWISE_UNPACK_LIMIT"):
        fetch(server.url, path, md5=MD5)
    assert list(path.parent.iterdir()) == []
    monkeypatch.setenv("CROWDWISE_UNPACK_LIMIT", "1MB")
    assert fetch(server.url, path, md5=MD5).read_bytes() == CONTENT


def test_without_a_content_length_the_size_still_reveals_a_truncation(server, path):
    server.length = False
    server.dies_after = [1000]
    fetch(server.url, path, md5=MD5, size=len(CONTENT))
    assert server.asked == [None, "bytes=1000-"]


def test_a_missing_file_is_reported_at_once(server, path):
    server.statuses = [404, 404]
    with pytest.raises(DatasetError, match=r"cannot download http://127\.0\.0\.1:\d+/file\.bin: .* 404"):
        fetch(server.url, path)
    assert len(server.asked) == 1
    assert list(path.parent.iterdir()) == []


def test_a_busy_server_is_asked_again(server, path):
    server.statuses = [503, 429]
    fetch(server.url, path, md5=MD5)
    assert len(server.asked) == 3


def test_retries_end(server, path):
    server.statuses = [503] * 9
    with pytest.raises(DatasetError, match="in 3 attempts"):
        fetch(server.url, path, retries=2)
    assert len(server.asked) == 3


def test_nobody_answers(server, path):
    closed = Server()
    url = closed.url
    closed.server_close()
    with pytest.raises(DatasetError, match="in 1 attempt"):
        fetch(url, path, retries=0)


@pytest.mark.parametrize("url", ["ftp://host/file", "file:///etc/hostname", "host/file", "data:,x"])
def test_only_web_addresses_are_fetched(url, path):
    with pytest.raises(DatasetError, match="only http and https"):
        fetch(url, path)


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/x", "file:///etc/hostname"])
def test_redirects_lead_to_web_addresses_only(server, path, target):
    server.redirect = target
    with pytest.raises(DatasetError):
        fetch(server.url, path)
    assert not path.exists()


def test_several_fetches_of_one_file_download_it_once(server, path):
    threads = [threading.Thread(target=fetch, args=(server.url, path), kwargs={"md5": MD5}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == CONTENT
    assert len(server.asked) == 1


def size_of(part):
    with suppress(FileNotFoundError):
        return part.stat().st_size
    return 0


def killed_again_and_again(server, folder, times):
    """Downloads in processes that are killed at random moments: what has its name is whole, the rest goes on."""
    rng, server.pause, kills, downloads = random.Random(0), 0.01, 0, 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    code = "import sys; from crowdwise.datasets import fetch; fetch(*sys.argv[1:3], sha256=sys.argv[3])"
    while kills < times:
        path, asked = folder / f"{downloads}.bin", len(server.asked)
        process = subprocess.Popen([sys.executable, "-c", code, server.url, str(path), SHA256], env=environment)
        part = path.with_name(f"{path.name}.part")
        before = size_of(part)
        while process.poll() is None and len(server.asked) == asked:
            time.sleep(0.005)
        moment = time.monotonic() + rng.uniform(0, 0.15)
        more = rng.random() < 0.7  # whether to wait until bytes have arrived
        while process.poll() is None and (time.monotonic() < moment or (more and size_of(part) <= before)):
            assert not path.exists() or path.read_bytes() == CONTENT
            time.sleep(0.001)
        process.kill()
        if process.wait() == -signal.SIGKILL:
            kills += 1
        else:
            assert process.returncode == 0
            assert path.read_bytes() == CONTENT
            downloads += 1
    server.pause = 0.0
    assert fetch(server.url, path, sha256=SHA256).read_bytes() == CONTENT
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"{k}.bin" for k in range(downloads + 1))
    assert any(start not in (None, "bytes=0-") for start in server.asked)


def test_downloads_that_are_killed_go_on_and_end_whole(server, tmp_path):
    killed_again_and_again(server, tmp_path, 4)


@pytest.mark.slow
def test_thirty_kills_leave_no_download_broken(server, tmp_path):
    killed_again_and_again(server, tmp_path, 30)
