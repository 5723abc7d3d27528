"""The verb `demo`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import Terminal, complain, say, show_facts, show_table, verb

COLUMNS = {"test_accuracy": "accuracy", "labels_right": "labels right", "confidence": "confidence"}


@verb
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures, results and the model.")] = Path(
        "crowdwise-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Of the crowd and of the methods.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few epochs only: to see that it runs, not how well.")
    ] = False,
) -> Any:
    from crowdwise.tasks.demo import SHOWN, demonstrate

    result = demonstrate(out, seed=seed, quick=quick, observer=Terminal())
    rows = [
        [*SHOWN[name], *(f"{100 * row[key]:.2f} %" for key in COLUMNS), f"{row['seconds']:.1f}"]
        for name, row in result.methods.items()
    ]
    columns = ("method", "idea", *COLUMNS.values(), "seconds")
    show_table("Classifiers on new digits, and labels of the crowd's digits", columns, rows, right=columns[2:])
    say(f"  Before, the majority vote was right for {100 * result.votes_right:.2f} % of the crowd's digits.")
    say()
    _show_groups(result.groups)
    if result.note is not None:
        complain("note", result.note)
    show_facts(f"Files, after {result.seconds:.0f} s", result.files)
    say("Now with labels of your own: crowdwise report labels.csv")
    return result


def _show_groups(groups: dict[str, Any]) -> None:
    """Which groups TAIDTM found, beside the true ones."""
    pairs = Counter(zip(groups["found"], groups["true"], strict=True))
    true = sorted(set(groups["true"]))
    columns = ["found group", *(f"true group {number + 1}" for number in range(len(true)))]
    rows = [[f"{found + 1}", *(str(pairs[found, one]) for one in true)] for found in sorted(set(groups["found"]))]
    show_table("Annotators in the groups that TAIDTM found", columns, rows, right=columns[1:])
    reached, right = (
        f"{100 * groups[f'{name}_after']:.1f} % (before: {100 * groups[f'{name}_before']:.1f} %)"
        for name in ("edge_recall", "edge_precision")
    )
    say(f"  Adjusted Rand index {groups['adjusted_rand']:.3f}. Purifying joins annotators with {reached} of their true")
    say(f"  group; of all neighbours, {right} are from the same group.")
    say()
