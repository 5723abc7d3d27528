"""`crowdwise report`: gather what there is to say about the input, and write or serve the page."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from crowdwise.cli._aggregation import check_method
from crowdwise.cli._console import complain, say
from crowdwise.cli._report_inputs import Request, find, is_result
from crowdwise.data.codes import count
from crowdwise.errors import ConfigError, DataError
from crowdwise.report.content import Content, compared, comparison, empty, gather, training
from crowdwise.report.page import render, write
from crowdwise.report.serve import ReportServer

METRICS = "metrics.jsonl"
PROGRESS = ("state", "training", "comparison", "compared")  # what changes while a run or a benchmark goes on


def write_report(request: Request, out: Path) -> None:
    """Make the page, and say where it is and what else to do."""
    inputs = [request.path, request.annotations, request.inputs]
    if any(each is not None and each.exists() and each.resolve() == out.resolve() for each in inputs):
        raise DataError(f"{out} would overwrite what is read; choose another name")
    if out.is_dir():
        raise DataError(f"{out} is a folder; name a file")
    page = make(request)
    write(page, out)
    for warning in page.overview.get("warnings", []):
        complain("note", warning)
    say(f"{out}: {out.stat().st_size / 1e6:.1f} MB, all in one file. Open it in a browser: {out.resolve().as_uri()}")
    if request.path.is_file() and not is_result(request.path):
        say(f"The labels as a table: crowdwise aggregate {shlex.quote(request.what)}{_options(request)} -o labels.csv")


def _options(request: Request) -> str:
    """What was asked for beyond the usual, as options of the other verbs."""
    asked = {**request.reading, "method": request.method}
    given = {name: value for name, value in asked.items() if value not in (None, "auto", "error", True)}
    return "".join(
        " --no-models" if value is False else f" --{name} {shlex.quote(value)}" for name, value in given.items()
    )


def serve_report(request: Request, port: int, out: Path | None) -> None:
    """Serve the page until Ctrl-C, and write it to ``out`` too, if that is given."""
    first = make(request)  # what is wrong shows before a browser asks
    if out is not None:
        write(first, out)
    kept = {request.crowd_stamp(): first}

    def current() -> tuple[str, Content]:
        crowd = request.crowd_stamp()
        if crowd not in kept:  # the crowd changes rarely, the metrics of a run every epoch
            kept.clear()
            kept[crowd] = about_crowd(request)
        return crowd, with_progress(kept[crowd], request)

    def build() -> str:
        crowd, page = current()
        return render(page, live=crowd)

    def progress() -> dict[str, Any]:
        page = with_progress(empty(""), request)
        return {"crowd": request.crowd_stamp(), **{name: getattr(page, name) for name in PROGRESS}}

    try:
        server = ReportServer(port, build, progress)
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}; choose another with --port") from error
    say(f"{server.address}  (Ctrl-C ends it)")
    with server:
        server.serve_forever()


def make(request: Request) -> Content:
    """Everything that the page shows."""
    check_method(request.method)
    return with_progress(about_crowd(request), request)


def about_crowd(request: Request) -> Content:
    """All but training and comparison."""
    found = find(request)
    if isinstance(found, Content):
        return found
    return gather(found, method=request.method, budget=request.budget, seed=request.seed)


def with_progress(page: Content, request: Request) -> Content:
    """The page with the curves of a run and the methods of a benchmark, as they are now."""
    page = dataclasses.replace(page)
    if request.is_run:
        from crowdwise.cli._training import finished, read_history

        history = read_history(request.path / METRICS)
        page.training = training(history)
        page.state = (
            "finished run" if finished(request.path) else f"run in progress, {count(len(history), 'epochs')} so far"
        )
    if request.records is not None:
        from crowdwise.bench.records import read_records

        records = read_records(request.records)
        page.comparison, page.compared = comparison(records), compared(records)
    return page
