"""The verb `route`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import say, share, show_facts, verb
from crowdwise.cli.options import Files, Method, Seed, reads


@verb
@reads
def route(
    path: Files,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="OUT", help="Table to write: what people should label, by its suffix."),
    ],
    answers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table of true classes of the instances that a first run asked for."),
    ] = None,
    error: Annotated[float, typer.Option(min=0.001, max=0.999, help="Share of wrong labels allowed.")] = 0.05,
    risk: Annotated[float, typer.Option(min=0.001, max=0.999, help="Probability with which there may be more.")] = 0.05,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Instances drawn for people; 500 by default.", show_default=False)
    ] = None,
    method: Method = "auto",
    seed: Seed = 0,
    *,
    given: dict[str, Any],
) -> Any:
    from crowdwise.data.codes import count
    from crowdwise.tasks.route import route as task

    result = task(**given)
    found, n = result.route, result.n_instances
    if result.n_gold:
        say(f"gold has the classes of {result.n_gold:,} of the {count(len(found.ask), 'instances')} drawn at random")
    if found.to_people is None:
        say(f"{out}: {count(result.n_to_ask, 'instances')} drawn at random for people to label")
        say(
            f"Then run this again with --answers FILE, the same --seed{' and --sample' if sample else ''}, and another --out."
        )
        return result
    kept = found.threshold if found.threshold is not None and found.threshold <= 1 else None
    show_facts(
        "Summary",
        {
            "people": f"{share(found.n_people or 0, n)}, {len(found.ask):,} of them answered already",
            "kept": share(n - (found.n_people or 0), n),
            "threshold": "none: everything goes to people"
            if kept is None
            else f"labels of confidence {kept:.3f} or more",
            "bound": f"at most {found.bound:.1%} of all labels are wrong, with probability {1 - risk:.0%}",
            "method": result.method,
            "table": out,
        },
    )
    return result
