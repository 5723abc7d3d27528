"""The command line: one file per verb, which turns options into a task (`crowdwise.tasks`) and prints its result.

Everything that is slow to import (torch, scikit-learn, scipy, matplotlib, numpy) is imported inside the verbs.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import crowdwise
from crowdwise.cli.aggregate import aggregate
from crowdwise.cli.agreement import agreement
from crowdwise.cli.annotators import annotators
from crowdwise.cli.bench import app as bench
from crowdwise.cli.cache import cache
from crowdwise.cli.compare import compare
from crowdwise.cli.convert import convert
from crowdwise.cli.demo import demo
from crowdwise.cli.estimate import estimate
from crowdwise.cli.info import info
from crowdwise.cli.judges import judges
from crowdwise.cli.methods import methods
from crowdwise.cli.predict import predict
from crowdwise.cli.presets import presets
from crowdwise.cli.report import report
from crowdwise.cli.review import review
from crowdwise.cli.route import route
from crowdwise.cli.simulate import simulate
from crowdwise.cli.train import train

app = typer.Typer(
    name="crowdwise",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_VERBS = (
    demo,
    aggregate,
    agreement,
    annotators,
    judges,
    estimate,
    route,
    report,
    review,
    convert,
    simulate,
    compare,
    train,
    predict,
    info,
    presets,
    methods,
    cache,
)
for _verb in _VERBS:
    app.command()(_verb)
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crowdwise {crowdwise.__version__}")
        raise typer.Exit


@app.callback()
def _crowdwise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learning from crowds: classifiers and an understanding of every annotator, from labels that disagree."""


def main() -> None:
    """The entry point of the program ``crowdwise``."""
    try:
        app()
    except KeyboardInterrupt:  # between the verbs' own guards, while modules are imported for instance
        sys.exit(130)
