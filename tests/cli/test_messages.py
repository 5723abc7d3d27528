"""Messages name parameters as the front end in use writes them, and no option that it does not have."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from crowdwise import errors, tasks
from crowdwise.cli import VERBS, app
from crowdwise.cli.aggregate import aggregate
from crowdwise.cli.bench import run, table
from crowdwise.cli.console import as_options
from crowdwise.cli.convert import convert
from crowdwise.cli.predict import predict
from crowdwise.cli.report import report
from crowdwise.cli.train import train
from crowdwise.errors import CrowdwiseError, spelled, spelling

SOURCE = Path(errors.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@functools.cache
def options() -> dict[str, set[str]]:
    """Of every verb, those of sub-verbs together."""
    top: Any = get_command(app)
    found = {}
    for name, verb in top.commands.items():
        each = getattr(verb, "commands", {name: verb}).values()
        parameters = [parameter for one in each for parameter in one.params]
        found[name] = {name for one in parameters for name in (*one.opts, *one.secondary_opts)} | {"--help"}
    return found


def texts(path: Path) -> Iterator[str]:
    """All strings in a file but docstrings; the parts of a formatted string, joined."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


@pytest.mark.parametrize(
    "path", sorted(set(SOURCE.rglob("*.py")) - set((SOURCE / "cli").glob("*.py"))), ids=lambda path: path.stem
)
def test_the_library_names_no_options(path: Path) -> None:
    assert [text for text in texts(path) if OPTION.search(text)] == []


@pytest.mark.parametrize("verb", options())
def test_a_verb_names_its_own_options_or_those_of_the_command_it_shows(verb: str) -> None:
    for text in texts(SOURCE / "cli" / f"{verb}.py"):
        shown = re.findall(r"crowdwise (\w+)", text)
        known = options()[verb].union(*(options().get(name, set()) for name in shown))
        assert set(OPTION.findall(text)) <= known, text


@pytest.mark.parametrize("name", ["console", "options", "__init__"])
def test_what_verbs_share_names_options_that_all_of_them_have(name: str) -> None:
    shared = set(texts(SOURCE / "cli" / f"{name}.py")) - set(VERBS.values())  # summaries, which are the verbs' own
    named = {option for text in shared for option in OPTION.findall(text)}
    assert named <= {"--help", "--version", "--set", "--", "--ray", *OWN}


OWN = {
    "--method",
    "--format",
    "--models",
    "--no-models",
    "--json",
    "--clean",
    "--gold",
    "--map",
    "--out",
    "--ordered",  # named by say_scale, which only verbs with this option call
}  # declared there


def test_verbs_that_say_the_order_of_classes_have_the_option_that_it_names() -> None:
    using = [verb for verb in options() if "say_scale(" in (SOURCE / "cli" / f"{verb}.py").read_text(encoding="utf-8")]
    assert using
    assert all("--ordered" in options()[verb] for verb in using)


def test_parameters_are_spelled_as_the_verb_has_them() -> None:
    assert (spelled("ids", "FILE"), spelled("gold_column")) == ("ids=FILE", "gold_column=")
    verbs = {
        aggregate: {"gold_column": "--gold-column X", "ids": "ids=X", "method": "--method X"},
        train: {"settings": "--set X", "out": "--out X", "ids": "--ids X", "gold_column": "gold_column=X"},
        run: {"settings": "--set X", "ids": "ids=X", "noise_rate": "noise_rate=X"},
        table: {"form": "--format X"},
        convert: {"models": "--models X", "gold_column": "--gold-column X"},
        predict: {"ids": "--ids X", "inputs": "inputs=X"},
        report: {"annotations": "--annotations X"},
    }
    for verb, expected in verbs.items():
        with spelling(as_options(verb)):
            assert {name: spelled(name, "X") for name in expected} == expected


@functools.cache
def spelled_names() -> set[str]:
    """Every parameter that a message of the library spells, as far as it stands there as a word."""
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if path.parent.name != "cli")
    return set(re.findall(r"spelled\(['\"](\w+)['\"]", text))


def test_no_verb_spells_an_option_that_it_does_not_have() -> None:
    assert {"ids", "memory", "settings", "annotations", "several"} <= spelled_names()
    top: Any = get_command(app)
    verbs = {**top.commands, **top.commands["bench"].commands}
    for verb in verbs.values():
        if hasattr(verb, "commands"):
            continue
        own = {name for parameter in verb.params for name in parameter.opts}
        with spelling(as_options(verb.callback)):
            for name in spelled_names():
                assert set(OPTION.findall(spelled(name))) <= own, (verb.name, name)


@pytest.mark.parametrize(
    ("task", "parameter", "message"),
    [
        (lambda t: t.train.plan("ce", inputs="X.npy"), "inputs", "inputs= needs annotations="),
        (lambda t: t.train.plan("ce", data="digits", ids="id"), "ids", "ids= are ids of the rows of inputs="),
        (lambda t: t.train.plan("ce", data="digits").load(), "annotations", "pass annotations=FILE"),
        (lambda t: t.train.Run(Path("run"), t.train.plan("ce")).start(workers=2), "workers", "say which with ray="),
        (lambda t: t.aggregate.aggregate("a.csv", "b.csv", stream=True, gold="c.csv"), "stream", "stream= knows no"),
        (lambda t: t.aggregate.aggregate("crowd.csv", "b.csv"), "annotator", "name it with annotator=COLUMN"),
        (lambda t: t.aggregate.aggregate("crowd.csv", "b.csv", method="dawid"), "method", "unknown method 'dawid'"),
        (lambda t: t.simulate.simulate("digits", "b.csv", process="one-coin", groups=2), "groups", "groups= goes with"),
        (lambda t: t.bench.check_cluster("local", 2, None, None), "jobs", "with ray= say workers="),
    ],
)  # fmt: skip
def test_errors_of_tasks_carry_the_parameter(
    task: Any, parameter: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import crowdwise.tasks.aggregate
    import crowdwise.tasks.bench
    import crowdwise.tasks.simulate
    import crowdwise.tasks.train  # noqa: F401

    monkeypatch.chdir(tmp_path)
    Path("crowd.csv").write_text("item,who,label\n1,a,x\n")
    with pytest.raises(CrowdwiseError) as caught:
        task(tasks)
    assert caught.value.parameter == parameter
    assert message in str(caught.value)
    assert "--" not in str(caught.value)
