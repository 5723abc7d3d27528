"""Every file, command and output that README.md and docs/ show is made, run and compared here, as shown.

A fenced block is Python (run by ``test_documents.py`` and others), shell, or says in a comment above it what it is:

- ``<!-- file: NAME -->``: the file that the commands of the page read;
- ``<!-- output of: COMMAND -->``: lines that the command prints, in this order; ``...`` stands for anything;
- ``<!-- like the output of: COMMAND -->``: the same with other figures and another order of lines;
- ``<!-- message -->``: an error message, which a test below brings about;
- ``<!-- not run: REASON -->``.

Commands run one after the other in a folder of `shown_files`, which is laid out anew for every block; what they write stays.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import crowdwise
import shown_files
from crowdwise.cli import app
from crowdwise.errors import CrowdwiseError
from crowdwise.storage.lock import locked

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "migration" / "peerannot.md"]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))  # test_tutorials.py runs them
DRAWN = {"mermaid", "bibtex"}
SLOW = re.compile(
    r"crowdwise (train|compare|bench run|bench table|bench figures|demo|report (run|comparison|benchmark))\b"
)
NUMBERED_ROWS = {"report.md", "benchmarks.md"}
"""Pages on which labels name rows of X.npy."""

ELSEWHERE = {
    r"\d+\.\d+\.\d+\.\d+:\d+|--ray\b": "other machines",
    r"bench run (table\d|recommended|benchmarks/)": "hours on a GPU",
    r"bench table (3|table3)|bench figures quick --format": "the records of such a run",
    r"--download": "downloads",
    r"--serve|crowdwise review (?!.*--(labels|export))": "serves until Ctrl-C",
    r"--encoder (sentence-transformers|transformers|onnx):": "a network from the hub",
    r"train --(preset|data) |report labelme": "public data; tests/cli/test_cli_train.py trains on them",
    r"info NAME|bench run mine\.toml": "a name in place of yours",
    r"--memory 4GB": "a table larger than memory",
    r"cache --clear": "the user's cache",
    r"--plugin": "a module of yours; tests/test_plugins.py imports one",
    r"^crowdwise demo": "tests/cli/test_cli_demo.py runs it",
}
"""Commands whose options are parsed, but which are not run here, and why."""

PREPARED = {
    "report.md": [
        "aggregate labels.csv -o truth.csv",
        "train labels.csv --inputs X.npy -o run",
        "compare labels.csv --inputs X.npy -m logistic-majority-vote -m ce --folds 2 -o comparison",
        "bench run quick --seeds 1 --set epochs=1 --method ce --method dl-mv -o benchmark",
    ],
    "judges.md": ["route people.csv gpt.jsonl -o ask.csv"],
    "command-line.md": ["train --inputs X.npy --annotations annotations.csv -o run"],
}
"""What is done before the commands of a page, where another page shows how."""

QUICK = {"compare": ["-m", "logistic-majority-vote", "-m", "ce", "--folds", "2"], "bench run": ["--set", "epochs=2"]}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    mark: str
    """The comment above it, or nothing."""

    def marked(self, kind: str) -> str | None:
        """What follows ``kind`` in the mark."""
        found = re.fullmatch(rf"{kind}: (.+)", self.mark)
        return found.group(1) if found else None

    def commands(self) -> list[str]:
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.split(" #")[0].strip() for line in lines if re.search(r"(^|\| |\w=\S+ )crowdwise ", line)]


def blocks(page: Path) -> list[Block]:
    pattern = r"(?:^<!-- ([^\n]+?) -->\n)?^```(\S*)[^\n]*\n(.*?)^```"
    found = re.findall(pattern, page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [Block(language, text, mark) for mark, language, text in found]


def label(page: Path) -> str:
    return page.name


def shell_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "sh" and block.marked("not run") is None]


def shown_pages() -> Iterator[Any]:
    for page in PAGES:
        lines = [line for block in shell_blocks(page) for line in block.commands()]
        if lines:
            slow = any(SLOW.search(line) and not_run(line) is None for line in lines) and page.name != "index.md"
            yield pytest.param(page, id=label(page), marks=[pytest.mark.slow] * slow)


def not_run(line: str) -> str | None:
    """Why a command is not run here, if it is not."""
    return next((why for pattern, why in ELSEWHERE.items() if re.search(pattern, line)), None)


@pytest.mark.parametrize("page", [*PAGES, *TUTORIALS], ids=label)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks(page):
        known = block.language in {"python", "sh", *DRAWN}
        kinds = ("file", "output of", "like the output of", "not run")
        assert known or block.mark == "message" or any(block.marked(kind) for kind in kinds), (
            f"{page.name}: say above this block what it is:\n{block.text}"
        )


class Folder:
    """The folder that the commands of a page run in."""

    def __init__(self, path: Path, page: Path) -> None:
        self.path = path
        self.page = page
        self.prefix = "" if page.name in NUMBERED_ROWS else "r"

    def lay_out(self) -> None:
        """All files as they were, those that the page shows among them."""
        shown_files.make_files(self.path, prefix=self.prefix)
        for block in blocks(self.page):
            name = block.marked("file")
            if name is not None:
                (self.path / name).write_text(block.text, "utf-8")

    def run(self, line: str) -> str:
        """Run a command as a shell does, and return what it prints."""
        words = shlex.split(line)
        piped = None
        if words[0] == "cat":
            piped = (self.path / words[1]).read_bytes()
            words = words[words.index("|") + 1 :]
        environment = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        assert words.pop(0) == "crowdwise", line
        if words[0] == "train" and "-o" in words:  # the same folder again, in another example
            shutil.rmtree(self.path / words[words.index("-o") + 1], ignore_errors=True)
        earlier = self._set_aside("runs") if words[0] == "train" else []
        extra = next((more for verb, more in QUICK.items() if " ".join(words).startswith(verb)), [])
        if "-m" in words:
            extra = []
        result = CliRunner().invoke(app, [*words, *extra], input=piped, env=environment, catch_exceptions=False)
        assert result.exit_code == 0, f"{self.page.name}: {line}\n{result.output}"
        for run in earlier:
            if not (self.path / "runs" / run.name).exists():
                run.rename(self.path / "runs" / run.name)
        for out in re.findall(r"(?<=-o )\S+\.\w+|(?<=--labels )\S+|(?<=--export )\S+", line):
            assert (self.path / out).stat().st_size > 0, f"{line}: {out} is empty"
        return result.output

    def _set_aside(self, name: str) -> list[Path]:
        """Move the folders in ``name`` away, so that the same ones can be made once more."""
        away = self.path / f"{name}-before"
        shutil.rmtree(away, ignore_errors=True)
        if (self.path / name).exists():
            (self.path / name).rename(away)
        (self.path / name).mkdir()
        return list(away.glob("*"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROWDWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")  # so that no line is wrapped
    return tmp_path


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("in_this_process", "few_steps")
@pytest.mark.parametrize("page", list(shown_pages()))
def test_the_commands_run_and_print_what_is_shown(page: Path, folder: Path) -> None:
    place = Folder(folder, page)
    place.lay_out()
    for line in PREPARED.get(page.name, []):
        place.run(f"crowdwise {line}")
    printed: dict[str, str] = {}
    for block in shell_blocks(page):
        place.lay_out()
        for line in block.commands():
            parse(line)
            if not_run(line) is None:
                printed[line] = place.run(line)
    for block in blocks(page):
        command = block.marked("output of")
        if command is not None:
            assert_printed(block.text, printed[command], command)
        command = block.marked("like the output of")
        if command is not None:
            assert sorted(first_words(block.text)) == sorted(
                set(first_words(printed[command])) & set(first_words(block.text))
            )


def assert_printed(shown: str, printed: str, command: str) -> None:
    """Check that all lines shown were printed, in this order."""
    rest = [line.rstrip() for line in printed.splitlines()]
    for line in filter(None, map(str.rstrip, shown.splitlines())):
        wanted = re.compile(re.escape(line).replace(re.escape("..."), ".*"))
        while rest and not wanted.fullmatch(rest[0]):
            rest.pop(0)
        assert rest, f"{command} does not print (here):\n{line}\nbut:\n{printed}"


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.split()]


def parse(line: str) -> None:
    """Check that a command exists, with these options and values."""
    words = shlex.split(line)
    arguments = words[words.index("crowdwise") + 1 :]
    if "--help" in arguments or "NAME" in arguments:
        return
    if arguments[0] == "--plugin":
        arguments = arguments[2:]
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command)
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, line
        command = found
        context = command.make_context(
            name, list(arguments), parent=context, resilient_parsing=isinstance(found, click.Group)
        )


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("texts", [True, False], ids=["with texts", "without texts"])
@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_the_commands_of_the_start_page_take_files_of_its_form(folder: Path, suffix: str, texts: bool) -> None:
    """Sixty items and four annotators under the headers of the start page."""
    place = Folder(folder, ROOT / "docs" / "index.md")
    shown_files.make_files(folder)
    lines = [row.split(",") for row in (folder / "labels.csv").read_text("utf-8").splitlines()]
    kept = [0, 1, 3, 4] if texts else [0, 3, 4]
    rows = [[line[k] for k in kept] for line in lines]
    name = f"mine.{suffix}"
    if suffix == "csv":
        shown_files.write_csv(folder / name, rows[0], rows[1:])
    else:
        (folder / name).write_bytes(shown_files.xlsx({"Sheet1": rows}))
    assert "instance = 'id'" in place.run(f"crowdwise aggregate {name} -o truth.csv")
    place.run(f"crowdwise report {name} -o report.html")
    if texts:
        place.run(f"crowdwise train {name} --text review -o run")


@pytest.fixture
def reliability() -> list[str]:
    page = ROOT / "docs" / "reliability.md"
    return [" ".join(block.text.split()) for block in blocks(page) if block.mark == "message"]


def test_a_folder_in_use_is_refused_as_shown(reliability: list[str], tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def lock_it() -> str:
        with pytest.raises(CrowdwiseError) as error, locked(tmp_path / "run"):
            pass
        return str(error.value)

    with locked(tmp_path / "run"), ThreadPoolExecutor(1) as other:
        message = other.submit(lock_it).result()
    assert form(f"error: {message.replace(str(tmp_path) + '/', '')}") == form(reliability[0])


def test_bad_numbers_stop_training_as_shown(reliability: list[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).astype(np.float32)
    labels = np.stack([X[:, 0] > 0, X[:, 1] > 0], axis=1).astype(int)
    with pytest.raises(CrowdwiseError) as error:  # sums of the first layer are infinite
        crowdwise.CE(epochs=3, lr=0.01, prepare="none", verbose=0).fit(X * np.float32(1e38), labels)
    shown = re.sub(r"stage '\w+'", "stage", form(reliability[1].removeprefix("error: ")))
    assert re.sub(r"stage '\w+'", "stage", form(str(error.value))) == shown


def form(message: str) -> str:
    """A message without what differs from case to case: numbers, times, hosts, lists of ids."""
    message = re.sub(r" on \S+ since [\d\- :+]+", " on HOST since TIME", message)
    message = re.sub(r"(?<=with the instances ).*?(?=: lower)", "IDS", message)
    return re.sub(r"\d[\d.e+\-]*", "N", message)
