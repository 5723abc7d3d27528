"""The verb `annotators`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise.cli.console import number, say, say_scale, show_table, verb
from crowdwise.cli.options import File, GoldColumn, Method, Ordered, Seed, order, reads

if TYPE_CHECKING:
    from crowdwise.figures import Person
    from crowdwise.tasks.annotators import Judged

SHOWN = 30  # annotators on the screen
COLUMNS = ("annotator", "labels", "skill", "95% interval", "confuses", "what to do")


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
    if not result.evidence.enough:
        say(f"Skill is unknown. {result.evidence.sentence}")
    graded = bool(result.people)
    columns = [*COLUMNS] if graded else ["annotator", "labels"]
    if graded and "mean_absolute_error" in result.table.column_names:
        columns.append("off by")
    if "gold_accuracy" in result.table.column_names:
        columns.append("right by gold")
    show_table(
        "Annotators: whom to stop asking, then those whose errors cost most" if graded else "Annotators",
        columns,
        [[cells[column] for column in columns] for cells in _first(result)],
        right=("labels", "skill", "off by"),
    )
    if result.table.num_rows > SHOWN:
        rest = f"all of them are in {out}" if out is not None else "--out FILE writes all of them"
        say(f"The first {SHOWN} of {result.table.num_rows:,} annotators are shown; {rest}.")
    elif out is not None:
        say(f"{out}: {result.table.num_rows:,} annotators")
    return result


def _first(result: Judged) -> list[dict[str, str]]:
    """The annotators on the screen: those to stop asking, then those whose errors cost most; else those with most labels."""
    from crowdwise.figures import ordered_by_cost

    rows = {str(row["annotator"]): row for row in result.table.to_pylist()}
    known = [_cells(rows.pop(person.name)) | _judged(person) for person in ordered_by_cost(result.people)]
    others = sorted(rows.values(), key=lambda row: -row["num_examples_labeled"])
    return [*known, *(dict.fromkeys(COLUMNS, "-") | _cells(row) for row in others)][:SHOWN]


def _judged(person: Person) -> dict[str, str]:
    return {
        "skill": number(person.skill),
        "95% interval": f"{number(person.low)} to {number(person.high)}",
        "what to do": "-" if person.verdict is None else str(person.verdict),
    }


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """What the table of annotators says of one of them."""
    confused = row["confused_class"]
    return {
        "annotator": str(row["annotator"]),
        "labels": f"{row['num_examples_labeled']:,}",
        "confuses": "-" if confused is None else f"{confused} as {row['confused_with']}",
        "off by": number(row.get("mean_absolute_error")),
        "right by gold": _by_gold(row) if "gold_accuracy" in row else "-",
    }


def _by_gold(row: Mapping[str, Any]) -> str:
    if row["gold_accuracy"] is None:
        return "-"
    share, low, high = (100 * row[name] for name in ("gold_accuracy", "gold_accuracy_low", "gold_accuracy_high"))
    return f"{share:.0f}% ({low:.0f}-{high:.0f})"
