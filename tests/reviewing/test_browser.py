"""The review in headless Chromium: by keyboard, killed and started again, by two, with 100,000 items, with hostile texts."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise
from browsers import HURRIED
from crowdwise.annotations import Annotations
from crowdwise.readers import read
from crowdwise.reviewing.server import Review
from crowdwise.storage.documents import read_json_lines
from review_crowds import write_crowd

Open = Callable[..., Any]
EVIL = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "'\"`${window.pwned=1}`{{7*7}}{% raw %}",
    "javascript:window.pwned=1",
    "]]>&lt;b&gt;\u202edesrever",
)


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens the link of a review; fails on anything in the console, and on requests that leave the machine."""
    contexts, said, asked = [], [], []
    gone = "error: Failed to load resource: net::ERR_"  # a page may ask once more when its server has ended

    def open_page(link: str, *, path: str = "", hurried: bool = False, **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 860}} | options))
        contexts.append(context)
        page = context.new_page()
        if hurried:
            page.add_init_script(HURRIED)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(link)
        if path:
            page.wait_for_url(lambda url: "/open?" not in url)  # the link's page goes on by itself
            page.goto(re.match(r"http://[^/]+", link)[0] + path)  # type: ignore[index]
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready=true]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not [line for line in said if not line.startswith(gone)]
    assert not [url for url in asked if not url.startswith(("data:", "http://127.0.0.1:", "http://localhost:"))]


class Server:
    """`crowdwise review` as a process of its own."""

    def __init__(self, *arguments: Any) -> None:
        command = [sys.executable, "-m", "crowdwise", "review", *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.links: list[str] = []
        assert self.process.stdout is not None
        wanted = max(1, arguments.count("--as"))
        while len(self.links) < wanted:
            line = self.process.stdout.readline()
            assert line, "it ended before it served anything"
            self.links += re.findall(r"http://\S+", line)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


RESTED = """() => {
  const list = document.getElementById("queue");
  const rested = list.scrollTop > 0 && list.scrollTop === window.before;
  window.before = list.scrollTop;
  return rested && [...document.querySelectorAll("#rows a")].every((row) => row.dataset.item);
}"""
"""A list that was scrolled stays where it is, and its rows are filled."""


def press(page: Any, key: str) -> str:
    """Press a key that answers, and wait until the page says that it is saved; the item it was about."""
    before = page.get_attribute("#item", "data-item")
    page.keyboard.press(key)
    page.wait_for_function("before => document.getElementById('item').dataset.item !== before", arg=before)
    return str(before)


def answers(folder: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_json_lines(folder / "answers.jsonl")][1:]


def test_thirty_items_by_keyboard_two_undone_killed_and_started_again(file: Path, tmp_path: Path, opened: Open) -> None:
    given: dict[str, int] = {}
    with Server(file, "--as", "maria") as server:
        page = opened(server.links[0])
        for k in range(30):
            key = str(1 + k % 3)
            given[press(page, key)] = k % 3
            assert page.inner_text("#last").startswith("Saved: item")
        undone = []
        for _ in range(2):
            press(page, "u")
            undone.append(page.get_attribute("#item", "data-item"))
        assert undone == list(given)[:-3:-1]  # the last one first
        for item in undone:
            del given[item]
        assert "28" in page.inner_text("#progress .figures")
        page.goto("about:blank")
        server.kill()
    folder = tmp_path / "animals.review"
    assert [record["action"] for record in answers(folder)] == ["label"] * 30 + ["undo"] * 2
    with Server(file, "--as", "maria", "--as", "paul") as server:
        page = opened(server.links[0])
        assert page.inner_text("#progress strong >> nth=0") == "28"
        item = next(iter(given))
        page.goto(f"{server.links[0].split('/open')[0]}/?item={item}")
        assert page.locator(".class[aria-pressed=true]").count() == 1
        with page.expect_download() as download:
            page.locator(".menu summary", has_text="Export").click()
            page.get_by_role("link", name="annotations.csv").click()
        download.value.save_as(tmp_path / "export.csv")
        page.goto("about:blank")
    back = read(tmp_path / "export.csv").annotations
    crowd = read(file).annotations
    mine = [row for row in back.to_frame().to_pylist() if row["annotator"] == "maria"]
    names, classes = crowd.instances, crowd.classes
    assert [(row["instance"], row["label"]) for row in mine] == [(names[int(k)], classes[y]) for k, y in given.items()]
    assert back.to_frame().slice(0, len(crowd)).equals(crowd.to_frame())


def test_two_reviewers_at_once_never_see_the_same_item(file: Path, tmp_path: Path, opened: Open) -> None:
    with crowdwise.review(read(file), folder=tmp_path / "review", reviewers=("ann", "bob")) as review:
        pages = [opened(link) for link in review.links.values()]
        seen: list[list[str]] = [[], []]
        for _ in range(8):
            assert len({page.get_attribute("#item", "data-item") for page in pages}) == 2
            for page, own in zip(pages, seen, strict=True):
                own.append(press(page, "1"))
        assert not set(seen[0]) & set(seen[1])
        pages[0].wait_for_function("() => document.querySelector('#progress strong').textContent === '16'")
        assert "8 by you" in pages[0].inner_text("#progress")
        for page in pages:
            page.goto("about:blank")
    assert sorted(record["reviewer"] for record in answers(tmp_path / "review")) == ["ann"] * 8 + ["bob"] * 8


@pytest.fixture
def running(file: Path, tmp_path: Path) -> Iterator[Review]:
    with crowdwise.review(read(file), folder=tmp_path / "review") as review:
        yield review


def link(review: Review) -> str:
    return next(iter(review.links.values()))


def test_skip_comment_reveal_and_navigate_by_keyboard(running: Review, opened: Open) -> None:
    page = opened(link(running), path="/?blind=1")
    assert not page.locator("#evidence .columns").is_visible()
    page.keyboard.press("v")
    assert page.locator("#evidence .columns").is_visible()
    first = page.get_attribute("#item", "data-item")
    page.keyboard.press("c")
    page.keyboard.type("is 1 or 2?")  # digits in a comment label nothing
    page.keyboard.press("Enter")
    page.locator("#last", has_text="Saved a comment").wait_for()
    assert page.get_attribute("#item", "data-item") == first
    assert not page.locator("#evidence .columns").is_visible()
    assert press(page, "s") == first
    assert "Put aside" in page.inner_text("#last")
    now = press(page, "j")
    press(page, "k")
    assert page.get_attribute("#item", "data-item") == now
    page.keyboard.press("?")
    assert page.locator("#help dl").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help dl").is_visible()
    (record,) = running.session.answers.comments.items()
    assert record == (("reviewer", int(str(first))), "is 1 or 2?")


def test_the_consensus_changes_behind_an_item_that_stays(running: Review, opened: Open) -> None:
    page = opened(link(running), hurried=True)
    item = page.get_attribute("#item", "data-item")
    text = page.inner_text("#main .text")
    for code in range(20, 40):
        if str(code) != item:
            running.session.answer("somebody else", "label", code, 0)
    running.session.settle()
    page.wait_for_function("() => Number(document.querySelector('#progress strong').textContent) >= 19", timeout=15_000)
    assert (page.get_attribute("#item", "data-item"), page.inner_text("#main .text")) == (item, text)
    page.wait_for_function(
        "() => document.querySelector('#rows a[aria-current]')?.dataset.item === document.getElementById('item').dataset.item"
    )
    assert page.locator("#queue").evaluate("list => list.scrollTop") == 0


def test_the_list_is_not_reordered_under_the_hand(running: Review, opened: Open) -> None:
    page = opened(link(running), hurried=True)
    page.wait_for_selector("#rows a[data-item]")
    page.locator("#queue").hover()
    page.mouse.wheel(0, 600)
    page.wait_for_function(RESTED)
    before = page.locator("#rows a").all_inner_texts()
    running.session.answer("somebody else", "label", 50, 0)
    page.locator("#adopt").wait_for(timeout=15_000)
    shown = page.locator("#rows a").all_inner_texts()
    assert shown == before[: len(shown)]  # the button takes the place of a line
    page.click("#adopt")
    assert page.locator("#queue").evaluate("list => list.scrollTop") == 0
    page.mouse.move(10, 10)


def test_an_answer_that_does_not_arrive_is_not_called_saved(running: Review, opened: Open) -> None:
    page = opened(link(running))
    press(page, "1")
    page.context.set_offline(True)
    page.keyboard.press("2")
    page.locator("#failed").wait_for()
    assert "Not saved" in page.inner_text("#failed")
    page.context.set_offline(False)
    press(page, "2")
    assert "Saved" in page.inner_text("#last")
    assert not page.locator("#failed").is_visible()


LOSE_A_REPLY = """() => {
    const real = window.fetch;
    window.fetch = async (address, ...options) => {
        const reply = await real(address, ...options);
        if (!String(address).startsWith("/answer")) return reply;
        window.fetch = real;
        throw new TypeError("the reply was lost");
    };
}"""


@pytest.mark.parametrize(("key", "label"), [("2", 1), ("1", 0), ("u", None)])
def test_what_is_pressed_after_a_lost_reply_counts(running: Review, opened: Open, key: str, label: int | None) -> None:
    """The answer arrived, its reply did not; the reviewer then presses another key, the same one, or undo."""
    page = opened(link(running))
    item = int(page.get_attribute("#item", "data-item"))
    page.evaluate(LOSE_A_REPLY)
    page.keyboard.press("1")
    page.locator("#failed", has_text="Not saved").wait_for()
    session = running.session
    assert (session.answers.agreed()[item], session.answers.reviewed.sum()) == (0, 1)
    if key == "u":
        page.locator("button[value=undo]").evaluate("each => each.disabled = false")
        page.keyboard.press("u")
        page.locator("#last", has_text="Nothing answered yet").wait_for()
        assert page.get_attribute("#item", "data-item") == str(item)
    else:
        press(page, key)
        assert page.inner_text("#last b") == page.locator(".class bdi").nth(int(key) - 1).inner_text()
    assert session.answers.agreed()[item] == (-1 if label is None else label)
    assert len(session.answers.last["reviewer"]) == {"2": 2, "1": 1, "u": 0}[key]


def test_a_typed_comment_is_not_lost_by_looking_elsewhere(running: Review, opened: Open) -> None:
    page = opened(link(running), hurried=True)
    page.wait_for_selector("#rows a[data-item]")
    item = int(page.get_attribute("#item", "data-item"))
    page.fill("#comment", "of the list")
    page.locator("#rows a[data-item]").nth(3).click()
    page.wait_for_function("before => document.getElementById('item').dataset.item !== before", arg=str(item))
    other = int(page.get_attribute("#item", "data-item"))
    comments = running.session.answers.comments
    assert comments == {("reviewer", item): "of the list"}
    page.fill("#comment", "gone back")
    page.locator("#item").focus()
    press(page, "k")
    assert comments == {("reviewer", item): "of the list", ("reviewer", other): "gone back"}
    assert page.input_value("#comment") == "of the list"
    page.fill("#comment", "not to be saved")
    page.context.set_offline(True)
    page.locator("#item").focus()
    page.keyboard.press("j")
    page.locator("#failed", has_text="Not saved").wait_for()
    assert page.input_value("#comment") == "not to be saved"
    assert page.get_attribute("#item", "data-item") == str(item)
    page.context.set_offline(False)
    page.fill("#comment", comments["reviewer", item])  # nothing is left to save
    page.locator("#item").focus()


def test_a_typed_comment_waits_for_its_item_while_another_is_undone(running: Review, opened: Open) -> None:
    page = opened(link(running))
    first = press(page, "1")
    second = page.get_attribute("#item", "data-item")
    page.fill("#comment", "for later")
    page.locator("#item").focus()
    press(page, "u")
    assert (page.get_attribute("#item", "data-item"), page.input_value("#comment")) == (first, "")
    assert running.session.answers.comments == {}
    press(page, "2")
    if page.get_attribute("#item", "data-item") != second:
        page.evaluate("item => document.querySelector(`#rows a[data-item='${item}']`).click()", second)
        page.wait_for_function("item => document.getElementById('item').dataset.item === item", arg=second)
    assert page.input_value("#comment") == "for later"
    press(page, "1")
    assert running.session.answers.comments == {("reviewer", int(str(second))): "for later"}


@pytest.mark.parametrize("scripts", [True, False])
def test_a_blind_review_stays_blind(running: Review, opened: Open, scripts: bool) -> None:
    page = opened(link(running), path="/?blind=1", java_script_enabled=scripts)
    for _ in range(2):
        page.locator("#rows a .name").first.wait_for()
        said = page.locator("#rows .guess").all_inner_texts()
        assert {text for text in said if not text.startswith("✓")} == {""}
        assert not page.locator("#evidence .columns").is_visible()
        before = page.get_attribute("#item", "data-item")
        page.locator(".class").nth(1).click()
        page.locator(f"#item:not([data-item='{before}'])").wait_for()
    assert "blind=1" in page.url


def test_it_works_without_scripts(running: Review, opened: Open) -> None:
    page = opened(link(running), java_script_enabled=False)
    item = page.get_attribute("#item", "data-item")
    page.fill("#comment", "plain")
    page.locator(".class").nth(1).click()
    assert page.get_attribute("#item", "data-item") != item
    assert "Saved" in page.inner_text("#last")
    page.locator("button[value=undo]").click()
    assert page.get_attribute("#item", "data-item") == item
    page.locator("#rows a").nth(3).click()
    assert page.get_attribute("#item", "data-item") != item
    page.locator(".menu summary", has_text="View").click()
    page.select_option("select[name=order]", "file")
    page.get_by_role("button", name="Apply").click()
    assert "order=file" in page.url
    assert running.session.answers.labels == {}


class Notebook(BaseHTTPRequestHandler):
    """A page of this machine that shows what `Review._repr_html_` gives to a notebook."""

    html = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(f"<link rel=icon href=data:,>{self.html}".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_it_runs_inside_a_notebook(running: Review, browser: Any) -> None:
    Notebook.html = running._repr_html_()
    with ThreadingHTTPServer(("127.0.0.1", 0), Notebook) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://localhost:{server.server_port}/")
        frame = page.frame_locator("iframe")
        frame.locator(".class").nth(1).click()
        frame.locator("#last", has_text="Saved").wait_for()
        page.close()
        server.shutdown()
    assert len(running.session.answers.labels) == 1


def test_hostile_texts_run_no_script(tmp_path: Path, opened: Open) -> None:
    n = len(EVIL)
    crowd = Annotations.from_triples(
        np.repeat(np.arange(n), 3),
        np.tile(np.arange(3), n),
        np.arange(3 * n) % n,
        instances=list(EVIL),
        annotators=list(EVIL[:3]),
        classes=list(EVIL),
    )
    with crowdwise.review(crowd, list(EVIL), tmp_path / "review", reviewers=EVIL[1] + "!") as review:
        page = opened(link(review))
        for key in "1234":
            page.keyboard.press("c")
            page.keyboard.type(EVIL[0])
            page.keyboard.press("Escape")
            page.locator("#item").focus()
            press(page, key)
            page.wait_for_timeout(300)
        press(page, "u")
        page.locator(".menu summary", has_text="View").click()
        page.wait_for_selector("#rows a[data-item]")
        assert page.evaluate("window.pwned") is None
        assert page.locator("img[src=x], main script, svg").count() == 0
        assert page.locator("script").count() == 1
        assert EVIL[1] in page.inner_text(".who")
        filled = [page.locator("#rows a[data-item]", has_text=text) for text in EVIL]  # rows come empty at first
        functools.reduce(lambda some, other: some.or_(other), filled).first.wait_for()
        assert review.session.answers.comments


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Review]]:
    """Starts a review of so many items, with two labels of each."""
    with ExitStack() as running:

        def start(n: int) -> Review:
            rng = np.random.default_rng(0)
            triples = np.repeat(np.arange(n), 2), rng.integers(300, size=2 * n), rng.integers(3, size=2 * n)
            crowd = Annotations.from_triples(*triples, classes=["cat", "dog", "owl"])
            texts = [f"text of item {k}, which says something" for k in range(n)]
            return running.enter_context(crowdwise.review(crowd, texts, tmp_path_factory.mktemp("sized")))

        yield functools.cache(start)


SCROLL = """() => new Promise((resolve) => {
  const list = document.getElementById("queue"), drag = list.scrollHeight / 200;
  let step = 0;
  list.scrollTop = 0;
  const go = () => {
    step += 1;
    list.scrollTop += step <= 60 ? 400 : drag;
    step < 160 ? requestAnimationFrame(go) : resolve();
  };
  requestAnimationFrame(go);
})"""
"""Scroll by hand, then by dragging the bar, to beyond the middle."""


def scrolling(page: Any) -> float:
    """Seconds of processor that it takes; neither waiting nor other processes count."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    before = spent()
    page.evaluate(SCROLL)
    return spent() - before


def test_a_list_of_100_000_items_scrolls_as_smoothly_as_one_of_3_000(
    sized: Callable[[int], Review], opened: Open
) -> None:
    pages = [opened(link(sized(n))) for n in (3_000, 100_000)]
    for page in pages:
        page.wait_for_selector("#rows a[data-item]")
    small, large = (min(scrolling(page) for _ in range(3)) for page in pages)
    print(f"scrolling took {small:.2f} and {large:.2f} s of processor")
    assert 0 < large < 3 * small
    page = pages[1]
    page.wait_for_function("() => document.querySelectorAll('#rows a[data-item]').length > 10")
    assert page.locator("#rows li").count() < 60  # only what is in sight exists
    place = page.evaluate("Number(document.querySelector('#rows li[aria-posinset]').getAttribute('aria-posinset'))")
    assert place > 40_000
    press(page, "1")


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}, "has_touch": True}],
    ids=["light", "dark", "phone"],
)
def test_contrast_names_and_widths(running: Review, opened: Open, options: dict[str, Any]) -> None:
    page = opened(link(running), **options)
    press(page, "1")
    page.wait_for_selector("#rows a[data-item]")
    width, inner = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, input:not([type=hidden]), select, progress, img")]
             .filter((each) => !(each.textContent.trim() || each.labels?.length || each.ariaLabel || each.alt || each.title))
             .map((each) => each.outerHTML)"""
    )
    assert unnamed == []
    faint = page.evaluate(CONTRAST)
    assert faint == []


CONTRAST = """() => {
  const channel = (value) => { const c = value / 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; };
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = rgb(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const left_out = ":disabled, .hidden, option, [aria-hidden=true]";
  const written = (each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const shown = [...document.querySelectorAll("body *")].filter((each) => each.checkVisibility() && written(each));
  return shown.filter((each) => !each.matches(left_out)).flatMap((each) => {
    const [one, other] = [light(rgb(getComputedStyle(each).color)), light(ground(each))].sort((a, b) => b - a);
    const ratio = (one + .05) / (other + .05);
    return ratio < 4.5 ? [`${each.outerHTML.slice(0, 80)}: ${ratio.toFixed(2)}`] : [];
  });
}"""


def test_text_is_read_in_its_own_direction(tmp_path: Path, opened: Open) -> None:
    votes = [["שלום", "مرحبا", "שלום"], ["مرحبا", "مرحبا", "שלום"]]
    with crowdwise.review(votes, ["שלום, עולם 123!", "hello"], tmp_path / "review") as review:
        page = opened(link(review), path="/?item=0")
        assert page.locator(".text").evaluate("each => each.matches(':dir(rtl)')")
        page.goto(page.url.replace("item=0", "item=1"))
        assert page.locator(".text").evaluate("each => each.matches(':dir(ltr)')")


def test_many_classes_are_found_by_typing(tmp_path: Path, opened: Open) -> None:
    rng = np.random.default_rng(0)
    crowd = Annotations.from_triples(
        np.repeat(np.arange(50), 3),
        np.tile(np.arange(3), 50),
        rng.integers(100, size=150),
        classes=[f"kind {k:03}" for k in range(100)],
    )
    with crowdwise.review(crowd, folder=tmp_path / "review") as review:
        page = opened(link(review))
        item = page.get_attribute("#item", "data-item")
        page.keyboard.press("/")
        page.keyboard.type("077")
        press(page, "Enter")
        assert review.session.answers.labels["reviewer", int(str(item))].label == 77


def test_pictures_are_shown(tmp_path: Path, opened: Open) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), np.uint8)
    with crowdwise.review([["a", "b"], ["a", "a"], ["b", "b"], ["b", "a"]], pixels, tmp_path / "review") as review:
        page = opened(link(review))
        page.wait_for_function("() => document.querySelector('#item img').naturalWidth === 32")


def test_the_written_crowd_is_what_it_was(tmp_path: Path) -> None:
    assert read(write_crowd(tmp_path / "crowd.csv")).texts is not None
