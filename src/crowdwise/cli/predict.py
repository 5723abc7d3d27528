"""The verb `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import say, verb
from crowdwise.cli.options import Device, Root, asked, reads


@verb
@reads
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL_OR_RUN", help="A saved model, or the directory of a finished run.")
    ],
    inputs: Annotated[
        str, typer.Argument(metavar="INPUTS", help="Instances, in a file or folder as for `crowdwise train --inputs`.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Table to write: csv, tsv, jsonl, parquet or arrow.")] = Path(
        "predictions.csv"
    ),
    proba: Annotated[
        bool, typer.Option("--proba", help="Also write the probability of each class, as p_CLASS.")
    ] = False,
    ids: Annotated[
        str | None, typer.Option(metavar="COLUMN|FILE", help="Ids of the rows, as for `crowdwise train`.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of texts to predict, in the inputs' table.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of pictures' paths, in the inputs' table.")
    ] = None,
    root: Root = None,
    annotations: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Labels that some of the instances have: predictions then take them into account."
        ),
    ] = None,
    device: Device = "auto",
    *,
    reading: dict[str, Any],
) -> Any:
    from crowdwise.tasks.predict import predict as task

    columns: dict[str, Any] = {"text": text, "image": image, "root": root}
    reading = asked(reading)
    gold = reading.pop("gold", None)
    result = task(
        model,
        inputs,
        out,
        proba=proba,
        ids=ids,
        **columns,
        annotations=annotations,
        reading=reading,
        gold=gold,
        device=device,
    )
    say(f"{result.out}: {result.table.num_rows:,} predictions by {result.method}")
    if result.gold is not None:
        say(f"{result.gold:.1%} of {result.gold_instances:,} instances with gold are right")
    return result
