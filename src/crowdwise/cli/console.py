"""What verbs share on their way to the terminal: tables, lines, spinners, JSON, and failures as one line on stderr."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.models import OptionInfo

from crowdwise.cli.process import stopped
from crowdwise.errors import CrowdwiseError, UsageError, spelling
from crowdwise.storage.text import printable
from crowdwise.tasks.observer import Observer

if TYPE_CHECKING:
    from crowdwise.agreement import Scale

WIDE = 120  # columns where nobody looks: in files and pipes
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, for programs; what was read goes to stderr.")
]
_machine: ContextVar[bool] = ContextVar("machine", default=False)


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a verb, which returns its result: with ``--json`` it is printed as such, and nothing else is.

    Messages name the verb's options; an error exits with 1, Ctrl-C with 130, each with one line.
    """

    @functools.wraps(function)
    def guarded(*args: Any, as_json: bool = False, **kwargs: Any) -> None:
        token = _machine.set(as_json)
        try:
            with failing_in_one_line(), _short_warnings(), spelling(as_options(function)):
                result = function(*args, **kwargs)
                if as_json:
                    typer.echo(document(result))
        finally:
            _machine.reset(token)

    return with_options(guarded, function, {"as_json": (Json, False)})


@contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Turn errors into one line on stderr and an exit status: 1, or 130 after Ctrl-C (143 after SIGTERM)."""
    try:
        yield
    except UsageError as error:
        raise typer.BadParameter(printable(str(error))) from None
    except BrokenPipeError:
        raise  # `crowdwise info ... | head`: the reader has seen enough
    except (CrowdwiseError, OSError) as error:
        complain("error", _message(error))
        raise typer.Exit(1) from None
    except KeyboardInterrupt as interrupt:
        word, status = stopped()
        complain(word, str(interrupt))
        raise typer.Exit(status) from None


def with_options(
    verb: Callable[..., Any], function: Callable[..., Any], options: Mapping[str, tuple[Any, Any]], *without: str
) -> Callable[..., Any]:
    """``verb``, which stands for ``function``: with further options (name -> type, default), ``without`` some parameters."""
    signature = inspect.signature(function, eval_str=True)
    parameters = [each for each in signature.parameters.values() if each.name not in without]
    for name, (kind, default) in options.items():
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
    verb.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = {each.name: each.annotation for each in parameters}
    return verb


def document(result: Any) -> str:
    """A result as JSON text: fields by name, tables as lists of rows, NaN as null.

    A result that holds more than a program wants says so with a method ``as_json``, which returns what it does.
    """
    return json.dumps(_plain(result), ensure_ascii=False, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "as_json"):
        return _plain(value.as_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    for method in ("to_pylist", "tolist"):  # tables of arrow, arrays and numbers of numpy
        if hasattr(value, method):
            return _plain(getattr(value, method)())
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def for_people() -> bool:
    """Whether somebody reads along, not a program."""
    return not _machine.get()


def as_options(function: Callable[..., None]) -> Callable[[str, str], str]:
    """How a verb spells parameters: as options where it has them, else as Python does."""
    options: dict[str, str] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(info, OptionInfo):
                declared = (info.default, *(info.param_decls or ()))  # in Annotated, the first name is the "default"
                long = [each.split("/")[0] for each in declared if isinstance(each, str) and each.startswith("--")]
                options[name] = long[0] if long else "--" + name.replace("_", "-")

    def spell(name: str, value: str) -> str:
        return f"{options[name]} {value}".strip() if name in options else f"{name}={value}"

    return spell


class Terminal(Observer):
    """Shows notes on stdout, and while a step lasts a spinner on stderr, where that is a terminal."""

    def note(self, message: str) -> None:
        """What was read, say; on a terminal, what is long is broken into lines where its parts end."""
        for line in message.splitlines():
            parts = line.split("; ") if sys.stdout.isatty() and len(line) > WIDE else [line]
            for place, part in enumerate(parts):
                say(f"  {part}" if place else part)

    def step(self, what: str) -> AbstractContextManager[None]:
        from rich.console import Console

        console = Console(stderr=True)
        return console.status(what) if console.is_terminal else nullcontext()  # type: ignore[return-value]


def complain(kind: str, message: str) -> None:
    """One line on stderr."""
    typer.secho(kind, bold=True, fg="yellow" if kind in ("warning", "note") else "red", nl=False, err=True)
    lines = [line.strip() for line in printable(message).splitlines()]
    typer.echo(f": {'; '.join(filter(None, lines))}" if message else "", err=True)


def say(line: str = "") -> None:
    """One line on stdout, as it is: long paths are not broken. It goes to stderr where a program reads the result."""
    typer.echo(printable(line), err=not for_people())


def say_scale(scale: Scale | None) -> None:
    """A line on the order of the classes, if they are ordered."""
    if scale is None:
        return
    other = "" if scale.source == "declared" else "; --ordered no takes them for names"
    say(f"ordered classes: {scale} ({scale.reason}{other})")


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table on stdout; the columns in ``right`` hold numbers."""
    if not for_people():
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDE).print(table)


def show_facts(title: str, facts: Mapping[str, Any]) -> None:
    """A title, and below it one line per fact; a fact that is None is left out."""
    if not for_people():
        return
    typer.secho(printable(title), bold=True)
    shown = {name: value for name, value in facts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        say(f"  {name:{width}}  {value}")


def show_stages(title: str, history: Sequence[Mapping[str, Any]]) -> None:
    """The stages of a training run."""
    from crowdwise.tasks.runs import stages

    columns = ("stage", "epochs", "loss", "agreement", "seconds")
    rows = [
        [each.name, str(each.epochs), f"{each.loss:.4f}", number(each.agreement), f"{each.seconds:.1f}"]
        for each in stages(history)
    ]
    show_table(title, columns, rows, right=columns[1:])


def number(value: float | None) -> str:
    """A measure with three digits, a dash where it is unknown."""
    return "-" if value is None or value != value else f"{value:.3f}"


def share(part: int, total: int) -> str:
    """Some of the instances."""
    return f"{part:,} of {total:,} instances ({part / total:.1%})"


@contextmanager
def _short_warnings() -> Iterator[None]:
    """What methods warn about, each once and as one line, also where scikit-learn's classes carry it."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
        if not issubclass(category, UserWarning):
            usual(message, category, *rest, **options)
        elif str(message) not in shown:
            shown.add(str(message))
            complain("warning", str(message))

    with warnings.catch_warnings():
        usual = warnings.showwarning
        warnings.showwarning = show
        warnings.simplefilter("always", UserWarning)
        yield


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, CrowdwiseError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
