"""The program's commands as typer runs them; each one's module is imported when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import crowdwise
from crowdwise.cli import VERBS
from crowdwise.cli.overview import overview

WrongUsage: type[Exception] = typer.BadParameter.__mro__[1]
"""The error that stands for wrong usage: of click, or of the copy of click that newer versions of typer bring."""


class _Loaded(Mapping[str, Any]):
    """Name -> command, imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in VERBS:
            raise KeyError(name)
        return command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@cache
def command(name: str) -> Any:
    """Import a command, or a group of them."""
    module = importlib.import_module(f"crowdwise.cli.{name}")
    if hasattr(module, "app"):  # a group of commands
        made: Any = typer.main.get_group(module.app)
        made.help = VERBS[name]
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(help=VERBS[name])(getattr(module, name))
        made = typer.main.get_command(alone)
    made.name = name
    return made


class Commands(TyperGroup):
    """All commands. Help is the overview, and wrong usage is one line on stderr."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = _Loaded()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        typer.echo(overview().removesuffix("\n"), nl=False)  # typer ends the line

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        imported, self.commands = self.commands, _listed()  # names and summaries are enough
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = imported

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        try:
            status = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except WrongUsage as error:
            sys.exit(_explain(error))
        except typer.Abort:
            typer.echo("stopped", err=True)
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


def _listed() -> dict[str, Any]:
    return {name: typer.core.TyperCommand(name, help=text) for name, text in VERBS.items()}


def _explain(error: Any) -> int:
    """Print what is wrong with a command line, and return its exit status."""
    from crowdwise.cli.console import complain

    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)  # the help of a group of commands
        return int(error.exit_code)
    message = error.format_message().removeprefix("Invalid value: ").strip()
    path = getattr(error.ctx, "command_path", "crowdwise")
    if type(error).__name__ != "BadParameter":
        message = f"{message[:1].lower()}{message[1:].rstrip('.')} (see {path} --help)"
    complain("error", message)
    return int(error.exit_code)


app = typer.Typer(
    name="crowdwise",
    cls=Commands,
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
    """Infer labels, annotator skill and classifiers from annotators who disagree."""
    if plugin:
        from crowdwise import plugins
        from crowdwise.cli.console import failing_in_one_line

        with failing_in_one_line():
            plugins.use(plugin)
