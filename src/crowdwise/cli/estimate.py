"""The verb `estimate`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise.cli.console import number, say, show_table, verb
from crowdwise.cli.options import Files, GoldColumn, TableOut, reads

if TYPE_CHECKING:
    from crowdwise.judges import Estimate

What = StrEnum("What", "shares accuracy confusion mean")  # what is estimated
Assume = StrEnum("Assume", {"random": "random", "label_shift": "label-shift"})  # how gold was drawn


@verb
@reads
def estimate(
    path: Files,
    gold_column: GoldColumn = None,
    what: Annotated[
        What, typer.Option(help="Shares of classes, accuracy or confusion of a labeller, or the mean of numbers.")
    ] = What.shares,
    of: Annotated[
        str | None,
        typer.Option(metavar="ID|NAME", help="Whose labels: an annotator, or an aggregator; by default the latter."),
    ] = None,
    assume: Annotated[
        Assume, typer.Option(help="Gold is of instances drawn at random, or of others with other class shares.")
    ] = Assume.random,
    level: Annotated[float, typer.Option(min=0.01, max=0.999, help="Confidence of the intervals.")] = 0.95,
    out: TableOut = None,
    *,
    given: dict[str, Any],
) -> Any:
    from crowdwise.tasks.estimate import estimate as task

    result = task(**given)
    say(f"{result.n:,} gold labels and {result.N:,} further labels of {result.of}")
    low, high = f"{level:.0%} from", "to"
    columns = (what.value, "from labels of", "value", low, high, "")
    show_table("Estimates", columns, _rows(result), right=("value", low, high))
    if out is not None:
        say(f"{out}: the table")
    return result


def _rows(result: Estimate) -> Iterator[list[str]]:
    for row in result.to_table().to_pylist():
        name = " as ".join(str(row[key]) for key in ("class", "label") if key in row) or result.of
        labels = (row["labels_only"], row["labels_only_low"], row["labels_only_high"])
        gold = (row["gold_only"], row["gold_only_low"], row["gold_only_high"])
        worth = row["effective_n"]
        note = f"as from {worth:,.0f} gold labels" if worth is not None and worth == worth else ""
        yield [name, "gold only", *map(number, gold), ""]
        yield ["", f"{result.of} only", *map(number, labels), "" if row["labels_valid"] else "not valid"]
        yield ["", "both", *map(number, (row["value"], row["low"], row["high"])), note]
