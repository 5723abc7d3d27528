"""The verb `agreement`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from crowdwise.cli.console import number, say, say_scale, share, show_table, verb
from crowdwise.cli.options import File, GoldColumn, Ordered, Seed, TableOut, order, reads

Level = StrEnum("Level", "nominal ordinal interval ratio")  # what differences between labels mean


@verb
@reads
def agreement(
    path: File,
    out: TableOut = None,
    level: Annotated[
        list[Level] | None,
        typer.Option(help="What labels are, for Krippendorff's alpha; nominal by default. May be repeated."),
    ] = None,
    ordered: Ordered = "auto",
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Confidence of the intervals.")] = 0.95,
    n_bootstrap: Annotated[
        int,
        typer.Option(
            "--bootstrap", min=0, help="How often instances are resampled for the intervals; 0: no intervals."
        ),
    ] = 1000,
    seed: Seed = 0,
    gold_column: GoldColumn = None,
    *,
    given: dict[str, Any],
) -> Any:
    from crowdwise.tasks.agreement import measure_agreement

    levels = [one.value for one in given.pop("level") or [Level.nominal]]
    result = measure_agreement(levels=levels, ordered=order(given.pop("ordered")), **given)
    low, high = f"{confidence:.0%} from", "to"
    rows = [[row.measure, *map(number, (row.value, *row.interval))] for row in result.report.rows]
    say(f"two labels or more: {share(result.report.n, result.n_instances)}")
    say_scale(result.report.scale)
    show_table("Agreement", ("measure", "value", low, high), rows, right=("value", low, high))
    if result.chance.within_chance:
        say(f"{result.chance}: the labels do not show which are correct")
    if result.gold is not None:
        say(f"of {result.gold_labels:,} labels of instances with gold, {result.gold:.1%} are right")
    if out is not None:
        say(f"{out}: {len(rows)} measures")
    return result
