"""Crowds to report on, and a page in a real browser."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise.annotations import Annotations
from crowdwise.report.source import Source

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
Open = Callable[..., Any]


def crowd(
    n: int = 60, annotators: int = 6, per_item: int = 4, names: tuple[str, ...] = ("cat", "dog", "owl")
) -> Source:
    """Annotators from 95 % to 45 % right, with known truth, times, durations and texts."""
    rng = np.random.default_rng(0)
    truth = rng.integers(len(names), size=n)
    skill = np.linspace(0.95, 0.45, annotators)
    instance = np.repeat(np.arange(n), per_item)
    annotator = np.concatenate([rng.choice(annotators, per_item, replace=False) for _ in range(n)])
    wrong = rng.random(len(instance)) > skill[annotator]
    label = (truth[instance] + np.where(wrong, rng.integers(1, len(names), len(instance)), 0)) % len(names)
    annotations = Annotations.from_triples(
        instance,
        annotator,
        label,
        instances=[f"item {k}" for k in range(n)],
        annotators=[f"person {k}" for k in range(annotators)],
        classes=list(names),
    )
    return Source(
        "animals",
        annotations,
        "a small crowd",
        truth.astype(np.int32),
        timestamps=np.arange(len(instance)) * 10.0,
        durations=rng.uniform(2, 9, len(instance)),
        texts=[f"a picture of number {k}" for k in range(n)],
    )


@pytest.fixture
def source() -> Source:
    return crowd()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; tests that need it are skipped, with a warning, where it is missing."""
    executable = os.environ.get("CROWDWISE_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        executable = None
    if executable is None:
        reason = "no Chromium (apt-get install chromium, pip install playwright): the page is not tried in a browser"
        warnings.warn(reason, stacklevel=1)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens a page and waits until all charts are drawn; fails on anything in the console, and on any request."""
    contexts, said, asked = [], [], []

    def open_page(address: str | Path, **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
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
