"""What verbs share on their way to the terminal: tables, lines, and failures that are one line on stderr."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer

from crowdwise.errors import CrowdwiseError, CrowdwiseWarning

P = ParamSpec("P")
WIDE = 120  # columns where nobody looks: in files and pipes


def verb(function: Callable[P, None]) -> Callable[P, None]:
    """Decorator of a verb: an error exits with 1, Ctrl-C with 130, each with one line that says what to do."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _short_warnings():
                function(*args, **kwargs)
        except BrokenPipeError:
            raise  # `crowdwise info ... | head`: the reader has seen enough
        except (CrowdwiseError, OSError) as error:
            complain("error", _message(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt as interrupt:
            complain("interrupted", str(interrupt))
            raise typer.Exit(130) from None

    return guarded


def complain(kind: str, message: str) -> None:
    """One line on stderr."""
    typer.secho(kind, bold=True, fg="yellow" if kind == "warning" else "red", nl=False, err=True)
    lines = [line.strip() for line in message.splitlines()]
    typer.echo(f": {'; '.join(filter(None, lines))}" if message else "", err=True)


def say(line: str = "") -> None:
    """One line on stdout, as it is: long paths are not broken."""
    typer.echo(line)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table on stdout; the columns in ``right`` hold numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDE).print(table)


def show_facts(title: str, facts: dict[str, Any]) -> None:
    """A title, and below it one line per fact; a fact that is None is left out."""
    typer.secho(title, bold=True)
    shown = {name: value for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        say(f"  {name:{width}}  {value}")


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Our own warnings as one line each; others as Python shows them."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
        if issubclass(category, CrowdwiseWarning):
            complain("warning", str(message))
        else:
            usual(message, category, *rest, **options)

    with warnings.catch_warnings():
        usual = warnings.showwarning
        warnings.showwarning = show
        warnings.simplefilter("always", CrowdwiseWarning)
        yield


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, CrowdwiseError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
