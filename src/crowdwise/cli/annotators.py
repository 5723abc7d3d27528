"""The verb `annotators`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import number, say, say_scale, show_table, verb
from crowdwise.cli.options import File, GoldColumn, Method, Ordered, Seed, order, reads

SHOWN = 30  # annotators on the screen


@verb
@reads
def annotators(
    path: File,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="OUT", help="Write the whole table, by its suffix.")
    ] = None,
    method: Method = "auto",
    gold_column: GoldColumn = None,
    ordered: Ordered = "auto",
    seed: Seed = 0,
    *,
    given: dict[str, Any],
) -> Any:
    from crowdwise.tasks.annotators import judge_annotators

    result = judge_annotators(ordered=order(given.pop("ordered")), **given)
    say(f"method: {result.method}{f'. {result.reason}' if result.reason else ''}")
    say_scale(result.scale)
    if not result.graded:
        say(f"{result.chance}: skill cannot be estimated. Check the task and its instructions, or pass gold labels.")
    distance = ("off by",) if "mean_absolute_error" in result.table.column_names else ()
    numbers = ("labels", "quality", "95% from", "to", "agreement", "spammer", *distance)
    gold = ("right by gold",) if "gold_accuracy" in result.table.column_names else ()
    show_table(
        "Annotators, worst first" if result.graded else "Annotators",
        ("annotator", *numbers, "worst class", "confuses", *gold),
        [_row(row) for row in result.table.slice(0, SHOWN).to_pylist()],
        right=numbers,
    )
    if result.table.num_rows > SHOWN:
        rest = f"all of them are in {out}" if out is not None else "--out FILE writes all of them"
        say(f"The {SHOWN} worst of {result.table.num_rows:,} annotators are shown; {rest}.")
    elif out is not None:
        say(f"{out}: {result.table.num_rows:,} annotators")
    return result


def _row(row: Mapping[str, Any]) -> list[str]:
    numbers = ("annotator_quality", "annotator_quality_low", "annotator_quality_high")
    return [
        str(row["annotator"]),
        f"{row['num_examples_labeled']:,}",
        *(number(row[name]) for name in (*numbers, "agreement_with_consensus", "spammer_score")),
        *([number(row["mean_absolute_error"])] if "mean_absolute_error" in row else []),
        "-" if row["worst_class"] is None else str(row["worst_class"]),
        "-" if row["confused_class"] is None else f"{row['confused_class']} as {row['confused_with']}",
        *([_by_gold(row)] if "gold_accuracy" in row else []),
    ]


def _by_gold(row: Mapping[str, Any]) -> str:
    if row["gold_accuracy"] is None:
        return "-"
    share, low, high = (100 * row[name] for name in ("gold_accuracy", "gold_accuracy_low", "gold_accuracy_high"))
    return f"{share:.0f}% ({low:.0f}-{high:.0f})"
