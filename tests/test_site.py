"""The documentation site holds every page and everything public, builds strictly, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from extras import needs
from scripts import load_script

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
needs("mkdocs", "the extra docs is not installed")
needs("merm", "the extra docs is not installed")


@pytest.fixture(scope="module")
def site() -> Any:
    return load_script("site", DOCS)


def test_the_navigation_lists_every_page() -> None:
    listed = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}, "put it into nav of mkdocs.yml"


def test_the_reference_holds_everything_public(site: Any) -> None:
    import crowdwise

    pages = site.reference()
    assert set(pages) >= {"crowdwise", "crowdwise.aggregation", "crowdwise.annotations", "crowdwise.tasks"}
    there = {place.rpartition(".")[2] for places in pages.values() for place in places} | {
        name.split(".")[-1] for name in pages
    }
    assert {name for name in crowdwise.__all__ if not name.startswith("_")} <= there


def test_examples_become_code(site: Any) -> None:
    text = "One line.\n\n>>> 1 + 1\n2\n\nMore.\n\n```python\n>>> 2\n```"
    assert (
        site.examples_as_code(text) == "One line.\n\n\n```python\n>>> 1 + 1\n2\n```\n\nMore.\n\n```python\n>>> 2\n```"
    )


def test_headings_have_the_anchors_of_github(site: Any) -> None:
    assert site.anchor("What happens to `texts`, and why?", "-") == "what-happens-to-texts-and-why"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(built: Path) -> None:
    pages = list(built.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\s\"'>]+)", text)
        assert not loaded, f"{page.name}: {loaded}"


class Links(HTMLParser):
    """The ids of a page, and where it leads to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        self.links += [given[name] for name in ("href", "src") if name in given]


@pytest.mark.slow
def test_every_link_of_every_page_leads_somewhere(built: Path) -> None:
    """Pages, files and anchors, as a browser follows them from a folder."""
    pages = {page: Links(page) for page in built.rglob("*.html")}
    broken = []
    for page, found in pages.items():
        for link in found.links:
            address = urlsplit(link)
            if address.scheme or page.name == "404.html":
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            anchor = unquote(address.fragment)
            there = target.is_file() and (not anchor or target not in pages or anchor in pages[target].ids)
            if not there:
                broken.append(f"{page.relative_to(built)}: {link}")
    assert sum(len(found.links) for found in pages.values()) > 1000
    assert not broken, broken[:20]


@pytest.mark.slow
def test_the_diagram_is_a_picture(built: Path) -> None:
    assert "<svg" in (built / "architecture.html").read_text("utf-8").partition('class="diagram"')[2][:100]


@pytest.mark.slow
def test_the_search_works_without_a_server(built: Path, browser: Any) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((built / "index.html").as_uri())
    page.click(".md-search__input")
    page.keyboard.type("krippendorff", delay=20)
    page.wait_for_selector(".md-search-result__item", timeout=20_000)
    page.close()
    assert all(url.startswith("file:") for url in asked)
