"""The page in headless Chromium: it opens cleanly, answers, and runs nothing that comes from data."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise import datasets, simulate
from crowdwise.annotations import Annotations
from crowdwise.data.factorise import Vocabulary
from crowdwise.report.content import Content, gather, training
from crowdwise.report.page import render, write
from crowdwise.report.serve import ReportServer
from crowdwise.report.source import Source, from_dataset
from report_crowds import SHAPES, crowd

QUICK = ("long names", "right to left", "one annotator")  # of SHAPES
EVIL = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<!--<script>",
    "\u2028window.pwned=1//\u2029",
    "'\"`${window.pwned=1}`{{7*7}}",
    "javascript:window.pwned=1",
    "]]>&lt;b&gt;\u202edesrever\x00",
)


BACK = """() => {
  for (const field of document.querySelectorAll("input, select")) {
    if (field.type === "radio") { if (field.defaultChecked && !field.checked) field.click(); continue; }
    if (field.id === "map-select") continue;
    field.value = field.options ? field.options[0].value : field.defaultValue;
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }));
  }
  for (const folded of document.querySelectorAll("details[open]")) folded.open = false;
  document.querySelector("#annotator-table tbody button").click();
  document.activeElement.blur();
  location.hash = "";
  scrollTo(0, 0);
}"""
"""A page as it was when it was opened, but for the order of annotators."""


TWO_FRAMES = "() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
"""What follows from a change of size has happened after it."""


def drawn(page: Any) -> None:
    """Wait until the charts of the annotator who was chosen are, which are drawn last."""
    page.wait_for_selector("#annotator-matrix svg .mark-text.role-mark text", state="attached")
    page.wait_for_selector("#annotator-detail:not(:has(.chart:empty))")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(gather(crowd(), budget=20), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def loaded(page_file: Path, opened_once: Any) -> Any:
    """The page, opened once, without a network."""
    return opened_once(page_file, offline=True, reduced_motion="reduce")


@pytest.fixture
def page(loaded: Any) -> Any:
    """The page, with nothing chosen, searched or unfolded, and the best annotators first."""
    loaded.evaluate(BACK)
    skill = loaded.locator("#annotator-table th", has_text="Skill")
    while skill.get_attribute("aria-sort") != "descending":
        skill.get_by_role("button").click()
    drawn(loaded)
    return loaded


@pytest.fixture(scope="module")
def dark(page_file: Path, opened_once: Any) -> Any:
    return opened_once(page_file, color_scheme="dark")


def names(page: Any) -> list[str]:
    """Annotators in the table, as they are shown."""
    found: list[str] = page.locator("#annotator-table tbody tr:not([hidden]) th").all_inner_texts()
    return found


def cells(page: Any, element: str) -> list[str]:
    found: list[str] = page.locator(f"#{element} svg .mark-text.role-mark text").all_text_contents()
    return found


def test_the_page_opens_offline_with_all_sections(page: Any) -> None:
    assert page.locator("nav a").all_inner_texts() == ["Overview", "Annotators", "Map", "Items", "Label next"]
    for anchor in ("overview", "annotators", "map", "items", "next"):
        assert page.locator(f"#{anchor} h2").count() == 1
        assert page.locator(f"#{anchor} svg.marks, #{anchor} .item").count() >= 1
    assert "animals" in page.title()


def test_models_and_people(tmp_path: Path, opened: Any) -> None:
    source = dataclasses.replace(crowd(160, 7, 6), kinds=np.array(["person"] * 4 + ["model"] * 3))
    names = ["ann", "bob", "cy", "dan", EVIL[0], EVIL[1], "gpt"]
    renamed = source.annotations.recoded(annotators=(np.arange(7), Vocabulary.of(names, "annotators")))
    page = opened(write(gather(dataclasses.replace(source, annotations=renamed), budget=5), tmp_path / "models.html"))
    assert "Models and people" in page.locator("nav a").all_inner_texts()
    assert page.locator("#models h2").inner_text() == "Models and people"
    assert page.locator("#model-table tbody th").all_inner_texts() == names[4:]
    assert page.locator("#model-heat tbody td").count() == 9
    colours = page.locator("#model-heat tbody td").evaluate_all(
        "cells => cells.map(c => getComputedStyle(c).backgroundColor)"
    )
    assert len(set(colours)) > 1
    assert "3 models count as" in page.inner_text("#models .attention")
    assert page.evaluate("window.pwned") is None
    page.focus("#models .scroll")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_annotators_sort_by_any_column(page: Any) -> None:
    best_first = names(page)
    assert best_first[0] in ("person 0", "person 1")
    page.get_by_role("button", name="Skill", exact=True).click()
    assert names(page) == best_first[::-1]
    page.get_by_role("button", name="Annotator", exact=True).click()
    assert names(page) == [f"person {k}" for k in range(6)]
    assert page.locator("#annotator-table th[aria-sort]").all_inner_texts() == ["Annotator"]


def test_the_annotators_are_searched(page: Any) -> None:
    page.fill("#annotator-search", "person 4")
    assert names(page) == ["person 4"]
    assert page.inner_text("#annotator-count") == "1 of 6 annotators"


def test_selecting_an_annotator_changes_the_matrix(page: Any) -> None:
    page.get_by_role("button", name="person 0", exact=True).first.click()
    drawn(page)
    assert page.inner_text("#annotator-detail h3") == "person 0"
    before = cells(page, "annotator-matrix")
    assert len(before) == 9
    page.locator("#annotator-table").get_by_role("button", name="person 5", exact=True).click()
    drawn(page)
    assert page.inner_text("#annotator-detail h3") == "person 5"
    assert cells(page, "annotator-matrix") != before
    assert page.inner_text("#map-detail h3") == "person 5"
    assert page.locator("#annotator-detail .chart svg").count() == 2  # the matrix, and quality over time


def test_the_keyboard_goes_through_the_annotators(page: Any) -> None:
    order = names(page)
    page.locator("#annotator-table tbody button").first.focus()
    for key, place in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", 5), ("Home", 0)):
        page.keyboard.press(key)
        assert page.inner_text("#annotator-detail h3") == order[place]
        assert page.evaluate("document.activeElement.textContent") == order[place]


def test_the_keyboard_sorts_and_leaves_the_table_at_once(page: Any) -> None:
    page.focus("#annotator-search")
    page.keyboard.press("Tab")
    for direction in ("ascending", "descending"):
        page.keyboard.press("Enter")
        assert page.get_attribute("#annotator-table th:first-child", "aria-sort") == direction
    stops = []
    for _ in range(14):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.closest('tbody, thead, #annotator-detail, #map')?.tagName"))
    assert stops.count("TBODY") == 1  # not one stop for each annotator
    assert stops[-1] != "THEAD"


def test_focus_is_visible(page: Any) -> None:
    for selector in (
        "nav a",
        "#theme",
        "#annotator-search",
        "#annotator-table thead button",
        "#item-class",
        "#item-on",
    ):
        page.locator(selector).first.focus()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")  # the outline is for the keyboard
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", selector


def test_headings_are_in_order_and_charts_have_words(page: Any) -> None:
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((each) => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(level - before <= 1 for before, level in pairwise(levels))
    drawn(page)
    page.wait_for_function("() => [...document.querySelectorAll('.chart')].every((each) => each.ariaLabel)")
    charts = page.evaluate("[...document.querySelectorAll('.chart')].map((each) => each.ariaLabel)")
    assert len(charts) >= 9
    assert all(charts)
    assert "Vega visualization" not in charts  # what it says for want of words


def test_nothing_moves_for_those_who_asked_for_that(page: Any) -> None:
    for motion, behaviour in (("no-preference", "smooth"), ("reduce", "auto")):
        page.emulate_media(reduced_motion=motion)
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == behaviour


def test_the_map_selects_by_list_and_by_click(page: Any) -> None:
    page.select_option("#map-select", label="person 3")
    assert page.inner_text("#annotator-detail h3") == "person 3"
    page.locator("#chart-map svg .mark-symbol path").nth(1).click(force=True)
    assert page.inner_text("#annotator-detail h3") == page.inner_text("#map-detail h3") != "person 3"


def lines_drawn(page: Any) -> int:
    """Lines of the map, once there are as many as the sentence above it says."""
    pairs, drawn = re.search(r"(\d+) pairs?(?:, the (\d+) strongest drawn)?", page.inner_text("#map-words")).groups()
    number = int(drawn or pairs)
    count = "number => document.querySelectorAll('#chart-map svg .mark-rule line').length === number"
    page.wait_for_function(count, arg=number)
    return number


def test_the_map_draws_confirmed_pairs_or_all_near_ones_and_names_annotators(page: Any) -> None:
    page.check("input[name=map-lines][value=before]")
    page.locator("#map-words", has_text="err most alike").wait_for()
    every = lines_drawn(page)
    page.check("input[name=map-lines][value=after]")
    page.locator("#map-words:not(:has-text('err most alike'))").wait_for()
    assert 0 < lines_drawn(page) <= every
    assert "person 0" in " ".join(page.locator("#chart-map svg .mark-text text").all_text_contents())
    assert set(page.locator("#chart-skills svg .role-axis-label text").all_text_contents()) >= {"person 0", "person 5"}


@pytest.mark.parametrize(
    ("button", "header", "lines"),
    [
        ("#annotator-download", '"name","labels","skill"', 7),
        ("#item-download", '"item","consensus","probability"', 61),
        ("#overview details button", '"Measure","Value","95% interval"', None),
        ("#annotator-detail details button", '"","cat","dog","owl"', 4),
    ],
)
def test_every_table_can_be_downloaded(page: Any, button: str, header: str, lines: int | None) -> None:
    for folded in page.locator("#overview details, #annotator-detail details").all():
        folded.locator("summary").click()
    with page.expect_download() as download:
        page.click(button)
    content = Path(download.value.path()).read_text("utf-8").splitlines()
    assert content[0].startswith(header)
    assert lines is None or len(content) == lines


def test_the_first_thing_said_is_how_good_the_labels_are(page: Any) -> None:
    first = page.locator(".headline li").first.inner_text()
    assert "%" in first
    assert "of the labels are right" in first
    assert "a small crowd" in page.inner_text("#about")
    assert page.locator("#overview", has_text="a small crowd").count() == 0
    page.locator(".headline a").first.click()
    assert page.url.endswith("#items")


def test_the_table_of_annotators_fits_on_a_phone(on_a_phone: Any) -> None:
    wide, room = on_a_phone.locator("#annotator-table").evaluate(
        "table => [table.scrollWidth, table.closest('.scroll').clientWidth]"
    )
    assert wide <= room


@pytest.fixture(scope="module")
def of_shape(opened_once: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The page of such a crowd, opened once."""
    return functools.cache(
        lambda shape: opened_once(write(gather(SHAPES[shape], budget=10), tmp_path_factory.mktemp("page") / "r.html"))
    )


def test_long_texts_begin_folded(of_shape: Callable[[str], Any]) -> None:
    quote = of_shape("long names").locator(".item blockquote").first
    before = len(quote.inner_text())
    quote.get_by_role("button").click()
    assert len(quote.inner_text()) > before


def test_items_are_filtered_by_class_disagreement_and_annotator(page: Any) -> None:
    assert page.inner_text("#item-count") == "60 items"
    page.select_option("#item-class", label="dog")
    dogs = int(page.inner_text("#item-count").split()[0])
    assert 0 < dogs < 60
    page.select_option("#item-kind", label="labels differ")
    assert int(page.inner_text("#item-count").split()[0]) < dogs
    page.select_option("#item-annotator", label="person 5")
    shown = page.locator(".item")
    assert all("person 5" in text for text in shown.all_inner_texts())
    page.select_option("#item-class", "")
    page.select_option("#item-kind", "all")
    page.select_option("#item-annotator", "")
    page.fill("#item-search", "number 17")
    assert page.inner_text("#item-count") == "1 of 60 items"
    assert "item 17" in page.inner_text(".item")


def test_items_are_ranked_by_doubt_and_come_in_pages(page: Any) -> None:
    doubts = [int(text.split("%")[0]) for text in page.locator(".item h3 .muted").all_inner_texts()]
    assert doubts == sorted(doubts, reverse=True)
    first = page.inner_text(".item h3 .data >> nth=0")
    page.click("#item-on")
    assert page.inner_text("#item-page") == "page 2 of 6"
    assert page.inner_text(".item h3 .data >> nth=0") != first


def test_the_budget_decides_what_to_label_next(page: Any) -> None:
    page.fill("#next-budget", "7")
    assert page.locator("#next-table tbody tr").count() == 7
    assert page.inner_text("#next-words").startswith("7 labels from ")
    with page.expect_download() as download:
        page.click("#next-download")
    lines = Path(download.value.path()).read_text("utf-8").splitlines()
    assert lines[0] == '"item","annotator","expected_gain"'
    assert len(lines) == 8


def test_the_theme_follows_the_system_and_the_button(dark: Any) -> None:
    def brightness() -> int:
        return sum(map(int, dark.evaluate("getComputedStyle(document.body).backgroundColor")[4:-1].split(",")))

    assert brightness() < 200
    dark.click("#theme")
    dark.locator("html[data-theme=light]").wait_for()
    assert brightness() > 600
    assert dark.get_attribute("#theme", "aria-pressed") == "false"
    dark.click("#theme")
    dark.locator("html[data-theme=dark]").wait_for()
    assert brightness() < 200


def test_printing_from_a_dark_page_is_light_and_has_no_controls(dark: Any) -> None:
    page = dark
    page.evaluate("window.print = () => { window.printed = document.documentElement.dataset.theme; }")
    page.click("#print")
    page.locator("html[data-theme=dark]").wait_for()
    assert page.evaluate("window.printed") == "light"
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")


@pytest.fixture(scope="module")
def on_a_phone(page_file: Path, opened_once: Any) -> Any:
    return opened_once(page_file, viewport={"width": 390, "height": 844})


@pytest.mark.parametrize("name", ["page", "dark", "on_a_phone"])
def test_screenshots(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    page = request.getfixturevalue(name)
    picture = page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    assert len(picture) > 50_000
    width, inner = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner  # nothing sticks out


@pytest.mark.parametrize(
    "shape", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in SHAPES]
)
def test_nothing_sticks_out_whatever_the_crowd(shape: str, of_shape: Callable[[str], Any]) -> None:
    page = of_shape(shape)
    for media, width in (("screen", 1280), ("screen", 390), ("print", 718)):  # the last is A4, within its margins
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media=media)
        page.evaluate(TWO_FRAMES)
        fits = "document.documentElement.scrollWidth <= innerWidth"
        page.wait_for_function(fits)  # charts are drawn anew a moment after their width has changed
        page.evaluate(TWO_FRAMES)
        assert page.evaluate(fits), media


def test_text_is_read_in_its_own_direction(of_shape: Callable[[str], Any]) -> None:
    page = of_shape("right to left")
    ends = page.evaluate(
        """() => {
             const text = document.querySelector(".item blockquote").firstChild;
             const at = (k) => { const range = document.createRange(); range.setStart(text, k); range.setEnd(text, k + 1);
                                 return range.getBoundingClientRect().left; };
             return [at(0), at(text.length - 1)];
           }"""
    )
    assert ends[0] > ends[1]  # the first letter is on the right, the exclamation mark on the left
    worst = page.locator("#annotator-table td.of-worst").first.inner_text()
    assert worst.endswith("%)")


def pages() -> dict[str, Callable[[], Source]]:
    """The crowds whose pages must load quickly: a public one, one of labels alone, and pictures."""

    def digits() -> Source:
        data = datasets.load("digits")
        people = simulate.aidn(data.X_train, data.y_train, n_annotators=60, labels_per_instance=4, random_state=0)
        return Source("digits", people.annotations, truth=people.y.astype(np.int32), pictures=data.X_train)

    def public(name: str) -> Source:
        if not os.environ.get("CROWDWISE_DATA"):
            pytest.skip("CROWDWISE_DATA names no folder with the public data sets")
        return from_dataset(datasets.load(name))

    return {"labelme": lambda: public("labelme"), "rte": lambda: public("rte"), "digits": digits}


def work(browser: Any, path: Path) -> float:
    """Seconds of processor that a page takes until it is complete: neither waiting nor other processes count."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-complete=true]", timeout=60_000)
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd / 1000")
    context.close()
    print(f"{path.stem}: loaded in {loaded:.2f} s, {path.stat().st_size / 1e6:.1f} MB")
    return found["TaskDuration"]


@pytest.mark.slow
@pytest.mark.parametrize("name", pages())
def test_pages_of_large_crowds_load_nearly_as_quickly_as_of_a_small_one(
    name: str, browser: Any, page_file: Path, tmp_path: Path
) -> None:
    """A thousand items are not drawn at once; docs/report.md has what the print says on two idle cores."""
    path = write(gather(pages()[name]()), tmp_path / f"{name}.html")
    large, small = (min(work(browser, each) for _ in range(3)) for each in (path, page_file))
    assert 0 < large < 3 * small


def test_every_control_has_a_name(page: Any) -> None:
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, input, select")]
             .filter((each) => !(each.textContent.trim() || each.labels?.length || each.getAttribute("aria-label")))
             .map((each) => each.outerHTML)"""
    )
    assert unnamed == []


def evil_content() -> Content:
    crowd = Annotations.from_triples(
        np.repeat(np.arange(7), 3),
        np.tile(np.arange(3), 7),
        np.array([0, 0, 1, 1, 1, 1, 2, 2, 0, 3, 3, 3, 4, 4, 5, 5, 5, 5, 6, 6, 1]),
        instances=list(EVIL),
        annotators=list(EVIL[:3]),
        classes=list(EVIL),
    )
    rest: dict[str, Any] = {"texts": list(EVIL), "pictures": list(EVIL), "facts": {EVIL[0]: EVIL[1]}}
    source = Source(EVIL[0], crowd, EVIL[1], kinds=np.array(["model", "person", "person"]), **rest)
    page = gather(source, budget=5)
    page.note, page.state, page.compared = EVIL[0], EVIL[1], EVIL[1]
    page.training = training(
        [{"stage": text, "epoch": 1, "loss": 1.0, "agreement": 0.5, "seconds": 1} for text in EVIL]
    )
    page.comparison = [
        {"column": text, "row": text, "mean": 1.0, "spread": None, "low": 1.0, "high": 1.0, "runs": 1} for text in EVIL
    ]
    return page


TOOLTIPS = """marks => marks.slice(0, 4).map((mark) => {
  for (const kind of ["pointermove", "mousemove"])
    mark.dispatchEvent(new MouseEvent(kind, { bubbles: true, cancelable: true, composed: true }));
  return document.getElementById("vg-tooltip-element")?.innerText ?? "";
}).join()"""
"""What Vega's tooltips say of some marks."""


def test_markup_and_script_from_data_do_not_run(opened: Any, tmp_path: Path) -> None:
    page = opened(write(evil_content(), tmp_path / "evil.html"))
    page.locator("#annotator-table tbody button").nth(1).click()
    marks = ".mark-symbol.role-mark path, .mark-rect.role-mark path, .mark-text.role-axis-label text"
    told = ""
    for chart in page.locator(".chart svg").all():
        chart.scroll_into_view_if_needed()
        told += chart.locator(marks).evaluate_all(TOOLTIPS)
    assert "onerror" in told
    page.fill("#item-search", "<")
    page.wait_for_timeout(500)
    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src=x], script[src]").count() == 0
    assert page.locator("script").count() == 3
    assert EVIL[0] in page.inner_text("h1")
    assert EVIL[1] in page.inner_text("#annotators")


def test_a_served_page_follows_the_training_and_is_loaded_anew_when_its_source_changes(
    source: Source, opened: Any
) -> None:
    content = gather(source, budget=0)
    state = {"epochs": 2, "model": 1}

    def progress() -> dict[str, Any]:
        epochs = [
            {"stage": "warm-up", "epoch": k, "loss": 1 / (k + 1), "agreement": None, "seconds": 1}
            for k in range(state["epochs"])
        ]
        return {
            "crowd": f"model {state['model']}",
            "state": f"{state['epochs']} epochs",
            "training": training(epochs),
            "comparison": [],
        }

    def build() -> str:
        now = progress()
        content.training, content.state = now["training"], now["state"]
        return render(content, live=now["crowd"])

    with ReportServer(0, build, progress) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        page = opened(server.address, hurried=True)
        points = page.locator("#chart-loss svg .mark-symbol.role-mark path")
        assert (page.inner_text("#state"), points.count()) == ("2 epochs", 2)
        page.fill("#item-search", "number 17")
        state["epochs"] = 5
        page.locator("#state", has_text="5 epochs").wait_for(timeout=20_000)
        points.nth(4).wait_for(state="attached")
        assert points.count() == 5
        assert page.input_value("#item-search") == "number 17"  # the page was not loaded anew
        with page.expect_event("load", timeout=20_000):
            state["model"] = 2
        assert page.input_value("#item-search") == ""
        page.wait_for_selector("html[data-complete=true]")
        page.goto("about:blank")
        server.shutdown()
        thread.join(10)
