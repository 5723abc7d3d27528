"""Who is let in, and what leaves: the page over real HTTP, without a browser."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest
from PIL import Image

from crowdwise.errors import ConfigError
from crowdwise.readers import Export, read
from crowdwise.reviewing.app import EXPORTS, KEYS
from crowdwise.reviewing.guard import BODY
from crowdwise.reviewing.queue import View
from crowdwise.reviewing.server import Review
from review_crowds import write_crowd, write_tasks

ME = "reviewer"


class Client:
    """Sends requests as a browser of a reviewer would, unless told otherwise."""

    def __init__(self, review: Review, reviewer: str = ME) -> None:
        self.review, self.port = review, review.guard.port
        self.host = f"127.0.0.1:{self.port}"
        self.headers: dict[str, str] = {"Host": self.host, "Origin": f"http://{self.host}"}
        path = review.links[reviewer].partition(self.host)[2]
        self.headers["Cookie"] = self.ask("GET", path)[1]["set-cookie"].split(";")[0]

    def ask(self, method: str, path: str, body: Any = None, **changes: str | None) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in (self.headers | changes).items() if value is not None}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        data = urlencode(body).encode() if isinstance(body, dict) else body or b""
        if method == "POST":
            headers = {"Content-Length": str(len(data))} | headers
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(data or None)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


@pytest.fixture
def review(export: Export, tmp_path: Path) -> Iterator[Review]:
    with Review(export, tmp_path / "review", reviewers=(ME, "ann")) as running:
        yield running


@pytest.fixture
def client(review: Review) -> Client:
    return Client(review)


@pytest.fixture(scope="module")
def unanswered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Review]:
    """A review for all who are refused, or only look: it stays without an answer. A server takes a while to end."""
    folder = tmp_path_factory.mktemp("unanswered")
    with Review(read(write_crowd(folder / "animals.csv")), folder / "review", reviewers=(ME, "ann")) as running:
        yield running
        assert not running.session.answers.labels


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Who has given one answer, and gives no other."""
    folder = tmp_path_factory.mktemp("answered")
    with Review(read(write_crowd(folder / "animals.csv")), folder / "review") as running:
        client = Client(running)
        client.ask("POST", "/answer?fragment=1", ANSWER)
        yield client


@pytest.fixture
def visitor(unanswered: Review) -> Client:
    return Client(unanswered)


ANSWER = {"do": "label:0", "item": "3"}


def test_an_answer_moves_on_to_the_next_item(client: Client, review: Review) -> None:
    status, _, body = client.ask("POST", "/answer?fragment=1", ANSWER | {"comment": "ok", "seconds": "1.25"})
    assert status == 200
    assert "Saved: <bdi>item 3</bdi> is <b><bdi>cat</bdi></b>" in body.decode()
    assert review.session.answers.labels[ME, 3].answer.seconds == 1.25
    status, headers, _ = client.ask("POST", "/answer?order=file", ANSWER)  # without the script
    assert (status, headers["location"]) == (303, "/?order=file")


def test_an_item_in_the_address_is_held_for_who_looks_at_it(client: Client, review: Review) -> None:
    other = Client(review, "ann")
    assert "item 0" in client.ask("GET", "/?order=file&item=0")[2].decode()
    assert review.session.next_item("ann", View("file")) == 1
    assert "item 1" in other.ask("GET", "/?order=file")[2].decode()
    assert review.session.next_item(ME, View("file")) == 0  # ann's is not


@pytest.mark.parametrize(
    "changes",
    [
        {"Cookie": None},
        {"Cookie": "crowdwise-review=guess"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_strangers_are_refused(visitor: Client, unanswered: Review, changes: dict[str, str | None]) -> None:
    assert visitor.ask("POST", "/answer", ANSWER, **changes)[0] in (400, 403)
    assert not unanswered.session.answers.labels
    if "Origin" not in changes and "Sec-Fetch-Site" not in changes:
        for path in ("/", "/state", "/queue", "/export/labels.csv", "/picture/0", "/static/review.js", "/nowhere"):
            assert visitor.ask("GET", path, **changes)[0] in (400, 403)


def test_a_page_elsewhere_cannot_read_either(visitor: Client) -> None:
    assert visitor.ask("GET", "/state", Origin="http://evil.example")[0] == 403
    assert visitor.ask("GET", "/state", Origin=None)[0] == 200


def test_a_wrong_token_gets_no_cookie(visitor: Client, unanswered: Review) -> None:
    for token in ("", "x", unanswered.links[ME][-10:], "é"):
        status, headers, _ = visitor.ask("GET", f"/open?{urlencode({'token': token})}", Cookie=None, Origin=None)
        assert status == 403
        assert "set-cookie" not in headers


def test_the_cookie_is_strict_and_the_policy_allows_no_inline_script(visitor: Client, unanswered: Review) -> None:
    path = unanswered.links["ann"].partition(visitor.host)[2]
    status, headers, _ = visitor.ask("GET", path, Cookie=None, Origin=None)
    assert status == 200
    assert headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Path=/")
    for path in ("/", "/state", "/static/review.css", "/nowhere"):
        policy = visitor.ask("GET", path)[1]["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    page = visitor.ask("GET", "/")[2].decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|https?://", page)


def test_each_link_is_a_reviewer_of_its_own(review: Review) -> None:
    for name in (ME, "ann"):
        client = Client(review, name)
        client.ask("POST", "/answer?fragment=1", ANSWER)
        assert f"as <b><bdi>{name}</bdi></b>" in client.ask("GET", "/")[2].decode()
    assert {who for who, _ in review.session.answers.labels} == {ME, "ann"}


def test_large_bodies_are_refused(visitor: Client, unanswered: Review) -> None:
    assert visitor.ask("POST", "/answer", b"comment=" + b"x" * BODY)[0] == 413
    chunk = b"%x\r\n" % (2 * BODY) + b"x" * 2 * BODY + b"\r\n0\r\n\r\n"
    headers: dict[str, Any] = {"Transfer-Encoding": "chunked", "Content-Length": None}
    assert visitor.ask("POST", "/answer", chunk, **headers)[0] == 413
    assert not unanswered.session.answers.labels


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"do": "dance", "item": "3"},
        {"do": "label:99", "item": "3"},
        {"do": "label:0", "item": "99999"},
        {"do": "label:0", "item": "-1"},
        {"do": "label:0", "item": "٣"},
        {"do": "label:", "item": "3"},
        {"do": "comment", "item": "3", "comment": "x" * 3000},
        {"do": "label:0", "item": "3"} | {f"more{k}": "x" for k in range(19)},
    ],
)
def test_wrong_forms_are_refused_in_words(visitor: Client, unanswered: Review, form: dict[str, str]) -> None:
    status, _, body = visitor.ask("POST", "/answer?fragment=1", form)
    assert status == 400
    assert body
    assert not unanswered.session.answers.labels


def test_wrong_addresses_are_refused(visitor: Client) -> None:
    assert visitor.ask("GET", "/?order=random")[0] == 400
    assert visitor.ask("GET", "/static/../app.py")[0] == 404
    assert visitor.ask("GET", "/static/..%2Fapp.py")[0] == 404
    assert visitor.ask("GET", "/export/..%2f..%2fetc%2fpasswd")[0] == 404
    assert visitor.ask("PUT", "/answer", b"")[0] in (403, 405)
    assert visitor.ask("GET", "/?item=zzz&class=99&annotator=x")[0] == 200  # as if nothing had been asked for


@pytest.mark.parametrize("name", EXPORTS)
def test_every_export_is_a_file(answered: Client, tmp_path: Path, name: str) -> None:
    status, headers, body = answered.ask("GET", f"/export/{name}")
    assert status == 200
    assert "attachment" in headers["content-disposition"]
    (tmp_path / name).write_bytes(body)
    if not name.startswith("labels"):
        assert len(read(tmp_path / name).annotations) == 241


def test_the_queue_comes_in_pieces_and_old_orders_stay_for_a_while(client: Client, review: Review) -> None:
    first = json.loads(client.ask("GET", "/queue?count=5")[2])
    assert (first["total"], len(first["rows"]), first["start"]) == (60, 5, 0)
    client.ask("POST", "/answer?fragment=1", {"do": "label:0", "item": str(first["rows"][0]["item"])})
    review.session.settle()
    newer = json.loads(client.ask("GET", "/queue?count=5")[2])
    assert newer["version"] > first["version"]
    assert newer["total"] == 59
    again = json.loads(client.ask("GET", f"/queue?count=5&version={first['version']}")[2])
    assert [row["item"] for row in again["rows"]] == [row["item"] for row in first["rows"]]
    assert again["rows"][0]["done"]
    pinned = json.loads(client.ask("GET", "/queue?count=5&first=17")[2])
    assert pinned["rows"][0]["item"] == 17
    assert json.loads(client.ask("GET", "/queue?start=59&count=5")[2])["rows"] == []


def test_pictures_are_confined_to_the_root_and_drawn_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "upload" / "7").mkdir(parents=True)
    for path in ("in.png", "upload/7/0a1b2c3d-up.png"):
        Image.fromarray(np.full((9, 9, 3), 80, np.uint8)).save(root / path)
    Image.new("RGB", (9, 9)).save(tmp_path / "secret.png")
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "fake.png").write_text("<script>alert(1)</script>")
    names = ["in.png", "/data/upload/7/0a1b2c3d-up.png", "/data/local-files/?d=in.png"]
    names += ["../secret.png", "link.png", "fake.png", str(tmp_path / "secret.png"), "http://example.org/a.png"]
    names += ["/data/local-files/?d=../secret.png", "/data/upload/../../secret.png", "missing.png"]
    labels = [["cat", "dog", "cat"] for _ in names]
    file = write_tasks(tmp_path / "tasks.json", [{"image": name} for name in names], labels)
    with Review(read(file), tmp_path / "review", root=root) as review:
        client = Client(review)
        found = [client.ask("GET", f"/picture/{k}") for k in range(len(names))]
        assert [status for status, _, _ in found] == [200] * 3 + [404] * (len(names) - 3)
        assert all(headers["content-type"] in ("image/png", "image/jpeg") for _, headers, _ in found[:3])
        for path in ("/picture/99", "/picture/-1", "/picture/../../secret.png", "/picture/in.png"):
            assert client.ask("GET", path)[0] == 404


def test_an_answer_is_not_called_saved_where_the_journal_is_gone(client: Client, review: Review) -> None:
    review.session.journal.path.unlink()
    status, _, body = client.ask("POST", "/answer?fragment=1", ANSWER)
    assert (status, b"was removed while it was in use" in body) == (507, True)
    assert not review.session.answers.labels


def test_a_blind_list_does_not_say_what_the_crowd_thinks(client: Client, review: Review) -> None:
    seen = json.loads(client.ask("GET", "/queue?count=60")[2])["rows"]
    assert all(row["label"] is not None and row["doubt"] is not None for row in seen)
    client.ask("POST", "/answer?fragment=1", ANSWER | {"do": "label:1"})
    blind = json.loads(client.ask("GET", "/queue?blind=1&count=60&first=3")[2])["rows"]
    assert {row["item"] for row in blind} >= {row["item"] for row in seen} - {3}
    assert [(row["label"], row["doubt"]) for row in blind] == [(None, None)] * len(blind)
    assert [row["item"] for row in blind if row["mine"] == "dog"] == [3]  # one's own answer is shown
    page = client.ask("GET", "/?blind=1&item=3")[2].decode()
    (rows,) = re.findall(r'<ol id="rows">(.*?)</ol>', page, re.DOTALL)
    assert re.findall(r'class="guess">(.*?)</span>', rows)[0] == "✓ <bdi>dog</bdi>"
    assert set(re.findall(r'class="guess">(.*?)</span>', rows)[1:]) == {""}


def test_a_view_stays_without_the_script(client: Client) -> None:
    asked = "order=gain&class=1&blind=1"
    page = client.ask("GET", f"/?{asked}")[2].decode()
    (rows,) = re.findall(r'<ol id="rows">(.*?)</ol>', page, re.DOTALL)
    links = [parse_qs(unescape(link)) for link in re.findall(r'href="/\?(.*?)"', rows)]
    assert links
    for parameters in links:
        assert parameters.pop("item")
        assert parameters == {"order": ["gain"], "class": ["1"], "blind": ["1"]}
    (form,) = re.findall(r'action="(/answer[^"]*)"', page)
    headers = client.ask("POST", unescape(form), ANSWER)[1]
    assert headers["location"] == f"/?{asked}"
    headers = client.ask("POST", unescape(form), {"do": "undo"})[1]
    assert headers["location"] == "/?order=gain&class=1&item=3&blind=1"


def test_a_full_disk_is_not_taken_for_a_saved_answer(
    client: Client, review: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    status, _, body = client.ask("POST", "/answer?fragment=1", ANSWER)
    monkeypatch.undo()
    assert status == 507
    assert b"cannot be written" in body
    assert not review.session.answers.labels


def test_a_port_in_use_is_named(unanswered: Review, export: Export, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"port {unanswered.guard.port} cannot be used"):
        Review(export, tmp_path / "other", unanswered.guard.port)


def test_keys_of_classes_and_of_the_page_differ() -> None:
    assert len(set(KEYS)) == len(KEYS)
    assert not set(KEYS) & set("sucvjk/?")
