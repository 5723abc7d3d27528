"""The command line: one file per verb, which turns options into a task (`crowdwise.tasks`) and prints its result.

A verb is imported when it is called, and everything that is slow to import (torch, scikit-learn, scipy, matplotlib, numpy)
inside the verbs.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import crowdwise
from crowdwise.cli import process

VERBS = {
    "demo": "Show what crowdwise does: digits, labelled by 60 simulated annotators, four methods compared.",
    "aggregate": "Infer the label of every instance from the labels of many annotators.",
    "agreement": "Say how far annotators agree, beyond chance, with confidence intervals.",
    "annotators": "Say how good every annotator is, and how each one errs; worst first.",
    "judges": "Compare models with people: how often each is right, whether it may replace people, what they are worth "
    "together.",
    "estimate": "Estimate class shares, accuracies or confusions from few gold labels and many others, with valid "
    "intervals.",
    "route": "Say which instances people should label, so that the error of all labels stays under a bound.",
    "report": "Make a page to look at: annotators, items, what to label next; one file that opens anywhere.",
    "review": "Look at doubtful items in a browser and put them right; the consensus follows, and no answer is lost.",
    "convert": "Turn a file of annotations into one of another format.",
    "simulate": "Make annotations with known truth for the training instances of a data set.",
    "compare": "Find out which method suits your data: each is judged by labels (or gold) of instances it has not seen.",
    "train": "Train a classifier on annotations, in a run directory. After Ctrl-C, go on with --resume.",
    "predict": "Write the most probable class of each instance: columns instance and label, and with --annotations "
    "confidence and doubt.",
    "info": "Say what a file or directory holds, or what a name stands for.",
    "presets": "List the presets that come with crowdwise.",
    "methods": "List the methods that can be trained.",
    "cache": "Show how much room the features of pretrained encoders take on disk, or make it free.",
    "bench": "Run benchmarks: the paper's experiments, or the methods on your own data.",
}
"""Verb -> what it does; here, so that listing verbs imports none."""
_TABLES = {"aggregate", "agreement", "annotators", "convert"}  # verbs that read and write tables, and no more


class _Loaded(Mapping[str, Any]):
    """Verb -> command, imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in VERBS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@cache
def _command(name: str) -> Any:
    module = importlib.import_module(f"crowdwise.cli.{name}")
    if hasattr(module, "app"):  # a group of verbs
        command: Any = typer.main.get_group(module.app)
        command.help = VERBS[name]
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(help=VERBS[name])(getattr(module, name))
        command = typer.main.get_command(alone)
    command.name = name
    return command


class Verbs(TyperGroup):
    """All verbs, of which the help lists names and summaries only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = _Loaded()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        TyperGroup.format_help(self._summary(), ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        return TyperGroup.shell_complete(self._summary(), ctx, incomplete)

    def _summary(self) -> Verbs:
        listed = copy.copy(self)
        listed.commands = {name: TyperCommand(name, help=text) for name, text in VERBS.items()}
        return listed


app = typer.Typer(
    name="crowdwise",
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crowdwise {crowdwise.__version__}")
        raise typer.Exit


@app.callback()
def _crowdwise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Module or Python file with methods of yours. May be repeated."),
    ] = None,
) -> None:
    """Learning from crowds: classifiers and an understanding of every annotator, from labels that disagree."""
    if plugin:
        from crowdwise import plugins
        from crowdwise.cli.console import failing_in_one_line

        with failing_in_one_line():
            plugins.use(plugin)


def main() -> None:
    """The entry point of the program ``crowdwise``."""
    process.prepare()
    try:
        if _TABLES.intersection(sys.argv[1:2]) and "--ray" not in sys.argv:
            _leave_pandas_out()
        app()
    except KeyboardInterrupt:  # between the verbs' own guards, while modules are imported for instance
        sys.exit(process.stopped()[1])


def _leave_pandas_out() -> None:
    """Let pyarrow take pandas for missing in this process.

    pyarrow imports pandas, where it is installed, on its first conversion, to tell data frames from other sequences. Files
    hold no data frames, and the import takes longer than aggregating thousands of labels.
    """
    if "pandas" in sys.modules:
        return
    hidden: Any = _WithoutPandas()
    sys.meta_path.insert(0, hidden)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


class _WithoutPandas:
    """A finder by which pandas is not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)
