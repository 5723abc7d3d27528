"""A crowd to report on, and a page in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browsers import HURRIED
from crowdwise.report.source import Source
from report_crowds import crowd

Open = Callable[..., Any]


@pytest.fixture
def source() -> Source:
    return crowd()


def opening(browser: Any) -> Iterator[Open]:
    """Opens a page and waits until all charts are drawn; fails on anything in the console, and on any request."""
    contexts, said, asked = [], [], []

    def open_page(address: str | Path, *, hurried: bool = False, **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
        if hurried:
            page.add_init_script(HURRIED)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address.as_uri() if isinstance(address, Path) else address)
        page.wait_for_selector("html[data-complete=true]", timeout=60_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not said, said
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))]


opened = pytest.fixture(opening)
opened_once = pytest.fixture(opening, scope="module")  # for pages that several tests share
