"""Every file, command and output that README.md and docs/ show is made, run and compared here, as shown.

A fenced block is Python (run by ``test_documents.py`` and others), shell, or says in a comment above it what it is:

- ``<!-- file: NAME -->``: the file that the commands of the page read;
- ``<!-- output of: COMMAND -->``: lines that the command prints, in this order; ``...`` stands for anything;
- ``<!-- like the output of: COMMAND -->``: the same with other figures and another order of lines;
- ``<!-- message -->``: an error message, which a test below brings about;
- ``<!-- not run: REASON -->``.

Commands run one after the other in a folder of `shown_files`, which is laid out anew for every block; what they write stays.
Servers stop as soon as they are ready, and experiments of hours are planned. Commands within sentences run as well, where
they name files.
"""

from __future__ import annotations

import argparse
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import crowdwise
import shown_files
from crowdwise.cli import app
from crowdwise.errors import CrowdwiseError
from crowdwise.report.serve import ReportServer
from crowdwise.storage.lock import locked
from crowdwise.tasks.bench import Benchmark
from scripts import load_script

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "migration" / "peerannot.md"]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))  # test_tutorials.py runs them
DRAWN = {"mermaid", "bibtex"}
SLOW = re.compile(
    r"crowdwise (--plugin|train|compare|bench run quick|bench run birds|bench figures|report (run|comparison|benchmark))\b"
)
NUMBERED_ROWS = {"report.md", "benchmarks.md"}
"""Pages on which labels name rows of X.npy."""

HOURS = re.compile(r"bench run (table\d|recommended|printed|benchmarks/)")
"""Experiments that take hours on a GPU: their runs are planned only."""

SERVES = re.compile(r"--serve\b|crowdwise review (?!.*--(labels|export))")
"""Commands that serve until Ctrl-C: they end once they are ready."""

PUBLIC = re.compile(r"train --(preset|data) (labelme|music)\b|report labelme\b")
"""Commands that read public data, where these are."""

ELSEWHERE = {
    r"\d+\.\d+\.\d+\.\d+:\d+|--ray\b": "other machines; tests/cluster tries some",
    r"bench table (3|table3)": "the records of hours on a GPU; tests/bench/test_tables.py makes this table",
    r"bench fill": "an hour on a GPU; tests/bench/test_filling.py fills less",
    r"--download": "downloads",
    r"data\.features=maps": "the authors' own files",
    r"--encoder (sentence-transformers|transformers|onnx):": "a network from the hub",
    r"info NAME|bench run mine\.toml": "a name in place of yours",
    r"--memory 4GB": "a table larger than memory",
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

LITTLE = ["--epochs", "1"]
QUICK = {
    "compare": ["-m", "logistic-majority-vote", "-m", "ce", "--folds", "2"],
    "bench run quick": ["--set", "epochs=2", "--seeds", "1"],
    "bench run birds.toml": ["--set", "epochs=2"],
    "review": ["--port", "0"],
    "report run --serve": ["--port", "0"],
    "train --preset labelme-printed": LITTLE,
    "train --preset labelme --method taidtm": [
        *LITTLE,
        *("--set", "transition_epochs=1", "--set", "individual_epochs=1"),
    ],
    "train --data": LITTLE,
}
"""Options that spare time, or take a port that is free, by how a command begins."""


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


def in_sentences(page: Path) -> list[str]:
    """Commands outside of blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`(crowdwise [^`,]+)`", text)


def has_files(line: str) -> bool:
    """Whether a command in a sentence is one to type: it names a file."""
    return re.search(r"\w\.(csv|json)\b", line) is not None


def of_benchmarks() -> list[str]:
    """Scripts as the pages call them."""
    lines = [line for page in PAGES for block in shell_blocks(page) for line in block.text.splitlines()]
    return [line.split(" #")[0].strip() for line in lines if line.startswith("python benchmarks/")]


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
    if PUBLIC.search(line) and not os.environ.get("CROWDWISE_DATA"):
        return "public data, which CROWDWISE_DATA would name"
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
        """All files as they were, those that the page shows among them, and the records in the sources."""
        if not (self.path / "benchmarks").exists():
            (self.path / "benchmarks").symlink_to(ROOT / "benchmarks")
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
        if words[0] == "--plugin":
            return self._run_with_plugin(words)
        if HOURS.search(line):
            return self._plan(words)
        if words[0] == "train" and "-o" in words:  # the same folder again, in another example
            shutil.rmtree(self.path / words[words.index("-o") + 1], ignore_errors=True)
        earlier = self._set_aside("runs") if words[0] == "train" else []
        extra = spared(words)
        result = CliRunner().invoke(app, [*words, *extra], input=piped, env=environment, catch_exceptions=False)
        assert result.exit_code == 0, f"{self.page.name}: {line}\n{result.output}"
        for run in earlier:
            if not (self.path / "runs" / run.name).exists():
                run.rename(self.path / "runs" / run.name)
        for out in re.findall(r"(?<=-o )\S+\.\w+|(?<=--labels )\S+|(?<=--export )\S+", line):
            assert (self.path / out).stat().st_size > 0, f"{line}: {out} is empty"
        return result.output

    def _plan(self, words: list[str]) -> str:
        """Find out which runs an experiment has, without any of them."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Benchmark, "run", lambda *_, **__: [])
            result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert re.search(r"; [1-9]\d* runs? in bench/", result.output), result.output
        return result.output

    def _run_with_plugin(self, words: list[str]) -> str:
        """Run a command in a process of its own, as this one would keep the plugin's methods."""
        source = plugin_of(self.page)
        (self.path / words[1]).write_text(source, "utf-8")
        command = [sys.executable, "-m", "crowdwise", *words, *spared(words[2:])]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _set_aside(self, name: str) -> list[Path]:
        """Move the folders in ``name`` away, so that the same ones can be made once more."""
        away = self.path / f"{name}-before"
        shutil.rmtree(away, ignore_errors=True)
        if (self.path / name).exists():
            (self.path / name).rename(away)
        (self.path / name).mkdir()
        return list(away.glob("*"))


def spared(words: list[str]) -> list[str]:
    """Options to add to a command, so that it takes moments."""
    if "-m" in words:
        return []
    return next((more for start, more in QUICK.items() if " ".join(words).startswith(start)), [])


def plugin_of(page: Path) -> str:
    """The method that a page writes, as the file that the page tells to make of it."""
    (block,) = (block for block in blocks(page) if "CrowdClassifier):" in block.text)
    kept = ("from ", "import ", "@dataclass")
    parts = [example.source for example in doctest.DocTestParser().get_examples(block.text)]
    source = "\n".join(part for part in parts if part.startswith(kept))
    name = re.search(r'name: ClassVar\[str\] = "(.+)"', source)
    assert name is not None
    register = f'from crowdwise.registry import METHODS\n\n@METHODS.register("{name[1]}")\n@dataclass('
    return source.replace("@dataclass(", register)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROWDWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")  # so that no line is wrapped
    return tmp_path


@pytest.fixture
def servers_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    monkeypatch.setattr(ReportServer, "serve_forever", lambda *_: None)


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("in_this_process", "few_steps", "servers_end_at_once")
@pytest.mark.parametrize("page", list(shown_pages()))
def test_the_commands_run_and_print_what_is_shown(page: Path, folder: Path) -> None:
    place = Folder(folder, page)
    place.lay_out()
    for line in PREPARED.get(page.name, []):
        place.run(f"crowdwise {line}")
    if page.name == "report.md":
        crowd = crowdwise.read(folder / "labels.csv").annotations
        crowdwise.CE(epochs=1, verbose=0).fit(np.load(folder / "X.npy"), crowd, run_dir=folder / "python-run")
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


@pytest.mark.parametrize("page", [*PAGES, *TUTORIALS], ids=label)
def test_commands_in_sentences_exist(page: Path) -> None:
    for line in in_sentences(page):
        command, words = command_of(shlex.split(line)[1:])
        known = {"--help"} | {name for each in command.params for name in [*each.opts, *each.secondary_opts]}
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known, f"{page.name}: {line}"


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process", "few_steps", "servers_end_at_once")
@pytest.mark.parametrize("page", [page for page in PAGES if any(map(has_files, in_sentences(page)))], ids=label)
def test_commands_in_sentences_run(page: Path, folder: Path) -> None:
    place = Folder(folder, page)
    for line in filter(has_files, in_sentences(page)):
        place.lay_out()
        place.run(line)


@pytest.mark.parametrize("script", sorted({line.split()[1] for line in of_benchmarks()}))
def test_scripts_of_benchmarks_have_the_options_shown(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Understood(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def parsed(*arguments: Any) -> None:
        parse(*arguments)
        raise Understood

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    for line in of_benchmarks():
        if line.split()[1] == script:
            monkeypatch.setattr(sys, "argv", shlex.split(line)[1:])
            with pytest.raises(Understood):
                load_script(Path(script).stem).main()


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
    words = words[words.index("crowdwise") + 1 :]
    if "--help" in words or "NAME" in words:
        return
    command, rest = command_of(words[2:] if words[0] == "--plugin" else words)
    command.make_context(words[0], rest)


def command_of(words: Sequence[str]) -> tuple[Any, list[str]]:
    """The command that words name, and the words that are left for it; typer may bring a click of its own."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    return command, rest


@pytest.mark.parametrize(
    "line",
    [
        "crowdwise aggregates labels.csv",
        "crowdwise aggregate labels.csv --methods mace",
        "crowdwise train --method ce --epochs few",
        "crowdwise bench runs quick",
        "crowdwise --plugin mine.py train labels.csv --texts review",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no command|no such option|a valid"):
        parse(line)


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
