"""Time and memory of building `Annotations` at ten million rows, each case in a process of its own.

    python benchmarks/annotations.py [rows]

Peak memory is that of the whole process, input included. The string case reads an arrow file that another process
wrote, so that making the ids is not counted.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise import Annotations

INSTANCES, ANNOTATORS, CLASSES = 3_000_000, 20_000, 10
CHUNK = 1_000_000


def codes(rows: int) -> list[np.ndarray]:
    """Random triples: every instance equally likely, annotators and classes too."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, high, rows, dtype=np.int32) for high in (INSTANCES, ANNOTATORS, CLASSES)]


def write_strings(rows: int, path: Path) -> None:
    """The same triples as ids like ``task-0001234``, in chunks, as a reader would deliver them."""
    columns = dict(zip(("task", "worker", "label"), codes(rows), strict=True))
    schema = pa.schema([(name, pa.string()) for name in columns])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for start in range(0, rows, CHUNK):
            part = {
                name: pc.binary_join_element_wise(
                    name, pc.utf8_lpad(pa.array(column[start : start + CHUNK]).cast(pa.string()), 7, "0"), "-"
                )
                for name, column in columns.items()
            }
            writer.write_table(pa.table(part, schema=schema))


def timed(action: Callable[[], object]) -> tuple[float, object]:
    """Seconds that ``action`` takes, and what it returns."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def report(name: str, seconds: float) -> None:
    """One line per case."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name:<44}{seconds:8.2f} s   peak {peak:5.2f} GB", flush=True)


def case_strings(rows: int, path: Path) -> None:
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    seconds, made = timed(lambda: Annotations.from_frame(table))
    assert len(made) == rows
    report(f"from_frame, {rows:,} arrow string rows", seconds)


def case_integers(rows: int, path: Path) -> None:
    columns = codes(rows)
    seconds, _ = timed(lambda: Annotations.from_triples(*columns))
    report(f"from_triples, {rows:,} integer rows", seconds)


def case_views(rows: int, path: Path) -> None:
    made = Annotations.from_triples(*codes(rows))
    for name, view in {
        "by_instance": lambda: made.by_instance,
        "by_annotator": lambda: made.by_annotator,
        "votes": made.votes,
        "n_duplicates": lambda: made.n_duplicates,
        "select half": lambda: made.select(np.arange(0, made.n_instances, 2)),
    }.items():
        seconds, _ = timed(view)
        report(f"{name}, {rows:,} rows", seconds)


CASES = {"strings": case_strings, "integers": case_integers, "views": case_views}


def main(arguments: list[str]) -> None:
    """Run one case here, or every case in its own process."""
    if len(arguments) == 3:
        name, rows, path = arguments
        {"write": write_strings, **CASES}[name](int(rows), Path(path))
        return
    rows = arguments[0] if arguments else "10000000"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("write", *CASES):
            subprocess.run([sys.executable, __file__, name, rows, str(Path(folder) / "strings.arrow")], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
