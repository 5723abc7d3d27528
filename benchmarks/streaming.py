"""Aggregation of a table larger than memory: seconds to prepare it, seconds per round, peak memory.

    python benchmarks/streaming.py                        # 100 million annotations: 1 GB of Parquet, 4 GB of disk
    python benchmarks/streaming.py --rows 5000000 --ids string --method one-coin
    python benchmarks/streaming.py --rows 5000000 --threads 1 --ray 2      # also as tasks of Ray, by 1 and by 2 workers

Makes a crowd with five labels per instance as Parquet (by row groups, so that the script needs little memory), runs a
method on it in a process of its own, and, for comparison, the same method in memory on 10 million annotations with
codes for ids and as many threads: the ratio of seconds per round and annotation says what streaming costs. With ``--ray``
the rounds are also run on a Ray of this machine. A record is appended to benchmarks/results/streaming.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "streaming.jsonl"
VOTES = 5  # labels of an instance
GROUP = 1_000_000  # rows of a row group


def write_crowd(path: Path, rows: int, annotators: int, classes: int, ids: str, order: str) -> None:
    """A one-coin crowd; the labels of an instance follow each other, or are scattered over a window of instances."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    accuracy, writer = rng.uniform(0.5, 0.95, annotators), None
    for start in range(0, rows, GROUP):
        size = min(GROUP, rows - start)
        instance = (start + np.arange(size)) // VOTES
        if order == "random":  # each row group has labels of instances of the whole table
            instance = rng.integers(0, max(rows // VOTES, 1), size)
        truth = (instance * 2_654_435_761 >> 7) % classes
        annotator = rng.integers(0, annotators, size)
        wrong = (truth + rng.integers(1, classes, size)) % classes
        label = np.where(rng.random(size) < accuracy[annotator], truth, wrong)
        columns = {"task": pa.array(instance), "worker": pa.array(annotator), "label": pa.array(label)}
        if ids == "string":
            columns = {
                name: pc.binary_join_element_wise(name, values.cast("string"), "-") for name, values in columns.items()
            }
        table = pa.table(columns)
        writer = pq.ParquetWriter(path, table.schema) if writer is None else writer
        writer.write_table(table)
    if writer is not None:
        writer.close()


def streamed(job: dict[str, Any]) -> dict[str, Any]:
    """Run a method on the file in this process, noting when the table was prepared and when rounds ended."""
    from crowdwise import streaming
    from crowdwise.registry import AGGREGATORS
    from crowdwise.streaming.crowd import StreamedCrowd

    marks: list[float] = []
    workers: list[float] = []
    cluster: dict[str, Any] = {}
    if "workers" in job:
        from crowdwise.cluster import RayPasses

        cluster = {"passes": RayPasses("local", job["workers"])}
    remember, recalled = StreamedCrowd.remember, StreamedCrowd.recalled

    def noted(self: Any, *arguments: Any) -> None:
        marks.append(time.perf_counter())
        workers.append(worker_peak_mb() if cluster else 0.0)
        remember(self, *arguments)

    def begun(self: Any, model: Any) -> Any:  # the table is prepared
        marks.append(time.perf_counter())
        return recalled(self, model)

    StreamedCrowd.remember, StreamedCrowd.recalled = noted, begun  # type: ignore[method-assign]
    model = AGGREGATORS[job["method"]](max_iter=job["rounds"], tol=0.0)
    files = {"out": job["folder"] + "/labels.parquet", "annotators_out": job["folder"] + "/annotators.parquet"}
    start = time.perf_counter()
    limits = {"memory": job["memory"], "threads": job["threads"], **cluster}
    result = streaming.aggregate(job["path"], model, **files, **limits, verbose=2)
    end = time.perf_counter()
    rounds = np.diff(marks)[1:]  # the first one also makes the start
    return {
        "prepare_s": marks[0] - start,
        "start_and_first_round_s": marks[1] - marks[0],
        "round_s": float(np.median(rounds)),
        "finish_s": end - marks[-1],
        "total_s": end - start,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "instances": result.n_instances,
        **({"worker_peak_mb": max(workers)} if cluster else {}),
    }


def worker_peak_mb() -> float:
    """Most memory that a process of Ray which runs tasks has held, with what it shares with others."""
    peak = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            busy = process.joinpath("cmdline").read_text().startswith(("ray::_sums", "ray::_combined", "ray::IDLE"))
            status = process.joinpath("status").read_text() if busy else ""
        except OSError:  # it has ended
            continue
        if "VmHWM:" in status:
            peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]) / 1024)
    return peak


def in_memory(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds per round in memory, from the difference of fits with more and fewer rounds."""
    from crowdwise.annotations import Annotations
    from crowdwise.registry import AGGREGATORS

    rng, size = np.random.default_rng(0), job["rows"]
    instance = np.arange(size) // VOTES
    annotator = rng.integers(0, job["annotators"], size)
    label = np.where(rng.random(size) < 0.7, instance % job["classes"], rng.integers(0, job["classes"], size))
    crowd = Annotations.from_triples(instance, annotator, label)

    def seconds(rounds: int) -> float:
        start = time.perf_counter()
        AGGREGATORS[job["method"]](max_iter=rounds, tol=0.0, n_jobs=job["threads"]).fit(crowd)
        return time.perf_counter() - start

    seconds(1)
    few, many = min(seconds(1) for _ in range(2)), min(seconds(6) for _ in range(2))
    return {"round_s": (many - few) / 5}


def run(kind: str, job: dict[str, Any]) -> dict[str, Any]:
    """Measure in a new process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", kind, json.dumps(job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Make the table, measure, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--annotators", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--ids", choices=["integer", "string"], default="integer")
    parser.add_argument("--order", choices=["sorted", "random"], default="sorted")
    parser.add_argument("--method", default="dawid-skene")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--threads", type=int, default=-1)
    parser.add_argument("--ray", type=int, default=0, help="workers of a Ray on this machine; 0: no Ray")
    parser.add_argument("--compare", type=int, default=10_000_000, help="annotations in memory; 0: no comparison")
    parser.add_argument("--folder", help="where to put the table and the work; a temporary folder by default")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(
            json.dumps({"streamed": streamed, "in-memory": in_memory}[options.child[0]](json.loads(options.child[1])))
        )
        return
    job = {name: value for name, value in vars(options).items() if name not in ("child", "folder", "compare", "ray")}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "crowd.parquet"
        start = time.perf_counter()
        write_crowd(path, options.rows, options.annotators, options.classes, options.ids, options.order)
        made = {"write_input_s": time.perf_counter() - start, "input_mb": path.stat().st_size / 2**20}
        place = {"path": str(path), "folder": folder}
        found = run("streamed", {**job, **place})
        crews = sorted({1, options.ray}) if options.ray else []
        spread = {number: run("streamed", {**job, **place, "workers": number}) for number in crews}
    record = {**job, **made, **found, **({"ray": spread} if spread else {})}
    if options.compare:
        reference = run("in-memory", {**job, "rows": options.compare})["round_s"] / options.compare
        record["in_memory_ns"] = reference * 1e9
        record["streamed_ns"] = found["round_s"] / options.rows * 1e9
        record["ratio"] = found["round_s"] / options.rows / reference
    stamp = {"time": time.strftime("%Y-%m-%dT%H:%M:%S"), "python": platform.python_version(), "cpus": os.cpu_count()}
    for name, value in record.items():
        print(f"{name:<26}{value:.3f}" if isinstance(value, float) else f"{name:<26}{value}")
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**record, **stamp}) + "\n")


if __name__ == "__main__":
    main()
