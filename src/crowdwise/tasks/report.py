"""A page about labels, a run or a benchmark: gather what there is to say, and write or serve it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise.data.codes import count
from crowdwise.errors import ConfigError, UsageError, spelled
from crowdwise.figures import Worth
from crowdwise.readers import STDIN
from crowdwise.report.content import Content, compared, comparison, empty, gather, training
from crowdwise.report.page import render, write
from crowdwise.report.serve import ReportServer
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_aggregator, check_outputs
from crowdwise.tasks.report_source import Request, find, is_result
from crowdwise.tasks.runs import finished, read_history

__all__ = ["Reported", "Request", "serve_report", "write_report"]

PROGRESS = ("state", "training", "comparison", "compared")  # what changes while a run or a benchmark goes on


@dataclass(frozen=True)
class Reported:
    """A page that was written."""

    out: Path
    warnings: list[str]
    """What a reader should know before trusting the figures."""
    labels: bool
    """The page is about a file of labels, which can be aggregated."""
    worth: Worth | None
    """How many labels are right, which figure to believe, and why; None without a crowd."""


def write_report(request: Request, out: str | Path, *, observer: Observer = SILENT) -> Reported:
    """Make the page, and write it to one file."""
    out = Path(out)
    check_outputs([out], [request.path, request.annotations, request.inputs], tables=False)
    page = _make(request, observer)
    write(page, out)
    labels = request.path.is_file() and not is_result(request.path, request.reading)
    return Reported(out, page.overview.get("warnings", []), labels, page.worth)


def serve_report(
    request: Request,
    port: int,
    out: str | Path | None = None,
    *,
    ready: Callable[[str], None],
    observer: Observer = SILENT,
) -> None:
    """Serve the page on this machine until interrupted, made anew as its input changes; ``ready`` is told the address.

    The page is also written to ``out``, if that is given.
    """
    if request.what == STDIN:
        raise UsageError("a page that is served anew cannot come from standard input", parameter="serve")
    first = _make(request, observer)  # what is wrong shows before a browser asks
    if out is not None:
        write(first, Path(out))
    kept = {request.crowd_stamp(): first}

    def current() -> tuple[str, Content]:
        crowd = request.crowd_stamp()
        if crowd not in kept:  # the crowd changes rarely, the metrics of a run every epoch
            kept.clear()
            kept[crowd] = _about_crowd(request, observer)
        return crowd, _with_progress(kept[crowd], request)

    def build() -> str:
        crowd, page = current()
        return render(page, live=crowd)

    def progress() -> dict[str, Any]:
        page = _with_progress(empty(""), request)
        return {"crowd": request.crowd_stamp(), **{name: getattr(page, name) for name in PROGRESS}}

    try:
        server = ReportServer(port, build, progress)
    except OSError as error:
        raise ConfigError(
            f"port {port} cannot be used: {error.strerror}; choose another with {spelled('port')}", parameter="port"
        ) from error
    ready(server.address)
    with server:
        server.serve_forever()


def _make(request: Request, observer: Observer) -> Content:
    """Everything that the page shows."""
    check_aggregator(request.method)
    return _with_progress(_about_crowd(request, observer), request)


def _about_crowd(request: Request, observer: Observer) -> Content:
    """All but training and comparison."""
    found = find(request, observer)
    if isinstance(found, Content):
        return found
    found = dataclasses.replace(found, ordered=request.ordered)
    return gather(found, method=request.method, budget=request.budget, seed=request.seed, cost=request.cost)


def _with_progress(page: Content, request: Request) -> Content:
    """The page with the curves of a run and the methods of a benchmark, as they are now."""
    page = dataclasses.replace(page)
    if request.is_run:
        history = read_history(request.path)
        page.training = training(history)
        page.state = (
            "finished run" if finished(request.path) else f"run in progress, {count(len(history), 'epochs')} so far"
        )
    if request.records is not None:
        from crowdwise.bench.records import read_records

        records = read_records(request.records)
        page.comparison, page.compared = comparison(records), compared(records)
        if not page.comparison and not page.note:
            why = next((str(record["error"]) for record in records if record.get("error")), "")
            page.note = (
                f"No run of this benchmark has a result to compare: {compared(records)}{why and f' The first: {why}'}"
            )
    return page
