"""A real browser for tests of pages."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

HURRIED = """for (const name of ["setTimeout", "setInterval"]) {
  const later = window[name].bind(window);
  window[name] = (then, wait, ...rest) => later(then, wait > 1000 ? wait / 10 : wait, ...rest);
}"""
"""A script for pages that ask every few seconds what is new: here ten times as often."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


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
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()
