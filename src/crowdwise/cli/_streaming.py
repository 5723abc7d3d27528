"""`crowdwise aggregate` for tables larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from crowdwise import streaming
from crowdwise.cli._aggregation import beside, check_method, check_outputs, options_named, short_warnings, show_summary
from crowdwise.cli._console import say
from crowdwise.streaming.output import FORMATS
from crowdwise.streaming.passes import Passes
from crowdwise.streaming.table import SUFFIXES

MANY = 20_000_000  # rows above which a table is streamed unasked: in memory they would take some gigabytes


def why_stream(path: Path, out: Path, method: str, asked: bool) -> str | None:
    """Why to stream a table, or None; unasked, only what can be streamed is."""
    if asked:
        return "as asked for"
    if path.is_dir() and any(file.suffix.lower() in SUFFIXES for file in path.rglob("*")):
        return "as it is a folder"
    possible = out.suffix.lower().lstrip(".") in FORMATS and method in (streaming.AUTO, *streaming.streamable())
    if not possible or path.suffix.lower() not in SUFFIXES or not path.is_file():
        return None
    rows = streaming.count_rows(path)
    return f"with {rows:,} rows" if rows > MANY else None


def stream(
    path: Path,
    out: Path,
    annotators_out: Path | None,
    method: str,
    columns: Mapping[str, str | None],
    reason: str,
    *,
    memory: str | None,
    work: Path | None,
    ray: str | None,
    workers: int | None,
    proba: bool,
    seed: int,
) -> None:
    """Write the labels of all instances and the annotators' table, and print a summary."""
    annotators_out = beside(out) if annotators_out is None else annotators_out
    check_outputs([out, annotators_out], [path])
    check_method(method)
    bound = streaming.parse_memory(memory)
    say(f"{path.name}: streamed {reason}, within about {bound / 1e9:.1f} GB of memory")
    for file in (out, annotators_out):
        file.parent.mkdir(parents=True, exist_ok=True)
    with _resumable(), options_named(), short_warnings():
        result = streaming.aggregate(
            path,
            method,
            out=out,
            annotators_out=annotators_out,
            instance=columns["instance"],
            annotator=columns["annotator"],
            label=columns["label"],
            proba=proba,
            memory=bound,
            work=work,
            passes=_passes(ray, workers),
            random_state=seed,
            verbose=1,
        )
    say(result.message)
    facts = {"method": result.method, "why": result.reason, "labels": out, "annotators": annotators_out, "parts": work}
    show_summary((result.n_annotations, result.n_instances, result.n_annotators), result.figures, facts)


def _passes(ray: str | None, workers: int | None) -> Passes | None:
    """None: threads of this process."""
    if ray is None:
        return None
    from crowdwise.cluster import RayPasses

    return RayPasses(ray, workers)


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("run the same command again to go on where this one stopped") from None
