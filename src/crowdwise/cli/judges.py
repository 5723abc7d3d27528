"""The verb `judges`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise.cli.console import say, show_facts, show_table, verb
from crowdwise.cli.options import Files, GoldColumn, Seed, TableOut, reads

if TYPE_CHECKING:
    from crowdwise.judges import JudgedModel

People = StrEnum("People", "expert skilled crowd")  # who the people are
Score = StrEnum("Score", "accuracy rmse")  # how labels are compared


@verb
@reads
def judges(
    path: Files,
    out: TableOut = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="An annotator that is a model. May be repeated.")
    ] = None,
    gold_column: GoldColumn = None,
    people: Annotated[
        People,
        typer.Option("--people-are", help="Who the people are: how much worse a model may be (0.2, 0.15 or 0.1)."),
    ] = People.crowd,
    epsilon: Annotated[
        float | None,
        typer.Option(min=-1, max=1, help="How much worse than a person a model may be.", show_default=False),
    ] = None,
    score: Annotated[Score, typer.Option(help="Whether labels are names or numbers.")] = Score.accuracy,
    seed: Seed = 0,
    *,
    given: dict[str, Any],
) -> Any:
    from crowdwise.tasks.judges import judge_models

    result = judge_models(models=given.pop("model") or (), **given)
    numbers = ("labels", "right by people", "right by gold", "wins", "as good")
    show_table("Models", ("model", *numbers, "passes", "what to do"), map(_row, result.models), right=numbers)
    show_facts(
        "Summary",
        {
            "people": f"{result.n_people} ({people.value}); a model may be worse by epsilon {result.epsilon:g}",
            "wins": "share of people the model is not worse than; it passes from 50% on",
            "as good": "how often the model agrees with the others at least as well as a person does",
            "votes": result.votes,
            "table": out,
        },
    )
    for line in result.advice:
        say(f"  {line}")
    return result


def _row(model: JudgedModel) -> list[str]:
    passed = "-" if model.passed is None else "yes" if model.passed else "no"
    shares = (f"{value:.0%}" if value is not None else "-" for value in (model.winning_rate, model.advantage))
    return [
        str(model.model),
        f"{model.n_labels:,}",
        *(str(share) if share is not None else "-" for share in (model.people, model.gold)),
        *shares,
        passed,
        model.verdict,
    ]
