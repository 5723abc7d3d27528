"""Whatever was acknowledged survives kills at any moment."""

from __future__ import annotations

import http.client
import json
import random
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from killing import Attempt, Program

PREPARE = """
import crowdwise.tasks.review, crowdwise.reviewing.app, uvicorn, rich.console
from crowdwise.cli import app
"""


class Reviewer(threading.Thread):
    """Answers as fast as it can, and keeps what the server has acknowledged."""

    def __init__(self, link: str, rng: random.Random, acknowledged: dict[str, tuple[int, int]]) -> None:
        super().__init__(daemon=True)
        self.link, self.rng, self.acknowledged = link, rng, acknowledged

    def run(self) -> None:
        with suppress(OSError, http.client.HTTPException):  # killed
            self.answer()

    def answer(self) -> None:
        host, path = re.match(r"http://([^/]+)(/.*)", self.link).groups()  # type: ignore[union-attr]
        connection = http.client.HTTPConnection(host, timeout=20)
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        headers = {"Cookie": response.headers["Set-Cookie"].split(";")[0], "Origin": f"http://{host}"}
        while True:
            item, label, key = self.rng.randrange(60), self.rng.randrange(3), f"{self.rng.random():.16f}"
            form = urlencode({"do": f"label:{label}", "item": item, "key": key})
            connection.request("POST", "/answer?fragment=1", form, headers)
            reply = connection.getresponse()
            assert b"Saved" in reply.read()
            self.acknowledged[key] = item, label


def links(attempt: Attempt, number: int) -> list[str]:
    deadline = time.monotonic() + 60
    while not attempt.output.exists() or len(found := re.findall(r"http://\S+", attempt.said())) < number:
        assert attempt.wait(0.02) is None, attempt.said()
        assert time.monotonic() < deadline, "no link was printed"
    return found


@pytest.mark.slow
def test_thirty_kills_lose_no_acknowledged_answer(file: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    acknowledged: dict[str, tuple[int, int]] = {}
    journal = tmp_path / "review" / "answers.jsonl"
    with Program(prepare=PREPARE) as program:
        for _ in range(30):
            attempt = program.start("review", file, "--as", "ann", "--as", "bob", "-o", tmp_path / "review")
            try:
                reviewers = [Reviewer(link, rng, acknowledged) for link in links(attempt, 2)]
                for reviewer in reviewers:
                    reviewer.start()
                time.sleep(rng.uniform(0, 1.0))
            finally:
                attempt.kill()
            for reviewer in reviewers:
                reviewer.join(30)
            kept = _kept(journal)
            lost = {key: said for key, said in acknowledged.items() if kept.get(key) != said}
            assert not lost
    print(f"{len(acknowledged):,} answers acknowledged, {len(_kept(journal)):,} kept")
    assert len(acknowledged) > 30


def _kept(journal: Path) -> dict[str, tuple[int, int]]:
    """What the journal holds, by key; half a line at the end was acknowledged to nobody."""
    classes = {"cat": 0, "dog": 1, "owl": 2}
    lines: list[Any] = journal.read_bytes().split(b"\n")
    records = [json.loads(line) for line in lines[1:-1]]
    return {each["key"]: (int(each["item"].removeprefix("item ")), classes[each["label"]]) for each in records}
