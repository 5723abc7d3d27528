"""Truth inference side by side with crowd-kit: seconds, peak memory, ratio.

    python benchmarks/aggregation.py                          # everything that takes minutes
    python benchmarks/aggregation.py --only dawid-skene --sizes 100000 --crowdkit-python other-env/bin/python
    python benchmarks/aggregation.py --threads 2              # Dawid-Skene on one thread and on two, 1 M and 10 M labels

Every measurement is a process of its own that makes the same crowd from the same seed, fits on it to warm up (not
counted; code is compiled and cached then), and reports the best of a few fits and the peak of its memory, imports and
input included. Both libraries get the same data frame. Rows are appended to benchmarks/results/aggregation.jsonl.

With ``--threads``, fits with one thread and with several take turns in one process, and the best of each count: seconds by the
clock, and the processor time of the thread that calls `fit`, which does its share of the work and all that is not shared. Where
other programs keep the processors busy, only the latter says anything.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stamp import stamp

RESULTS = Path(__file__).parent / "results" / "aggregation.jsonl"
ROUNDS = 20  # of iterative methods, exactly
# name in crowdwise -> (its options, class of crowd-kit, its options, most annotations that crowd-kit is given)
METHODS: dict[str, tuple[dict[str, Any], str | None, dict[str, Any], int]] = {
    "majority-vote": ({}, "MajorityVote", {}, 10_000_000),
    "wawa": ({}, "Wawa", {}, 1_000_000),
    "zero-based-skill": ({}, "ZeroBasedSkill", {}, 100_000),
    "dawid-skene": (
        {"prior": None, "max_iter": ROUNDS, "tol": 0.0},
        "DawidSkene",
        {"n_iter": ROUNDS, "tol": -1e9},
        10_000_000,
    ),
    "one-coin": (
        {"prior": None, "max_iter": ROUNDS, "tol": 0.0},
        "OneCoinDawidSkene",
        {"n_iter": ROUNDS, "tol": -1e9},
        100_000,
    ),
    "hierarchical-dawid-skene": ({"max_iter": ROUNDS, "tol": 0.0}, None, {}, 0),
    "fast-dawid-skene": ({}, None, {}, 0),
    "zencrowd": ({}, None, {}, 0),
    "crh": ({}, None, {}, 0),
    "mmsr": ({"random_state": 0}, "MMSR", {}, 10_000),
    "kos": ({"random_state": 0}, "KOS", {"n_iter": 100}, 100_000),
    "glad": ({"max_iter": 10, "tol": 0.0}, "GLAD", {"n_iter": 10, "tol": -1e9}, 100_000),
    "mace": ({"max_iter": 50, "tol": 0.0}, "MACE", {"n_iter": 50}, 100_000),  # ten restarts each
    "ibcc": ({"max_iter": ROUNDS, "tol": 0.0}, None, {}, 0),
    "ebcc": ({"n_restarts": 10}, None, {}, 0),
    "cbcc": ({}, None, {}, 0),
}
SLOW = {"ebcc", "cbcc", "glad", "mace", "kos"}  # measured up to 100,000 annotations only


def make_crowd(size: int, ids: str, classes: int) -> Any:
    """A data frame of ``size`` labels, five an instance; 5,000 annotators, fewer in small crowds."""
    import pandas as pd

    rng = np.random.default_rng(0)
    n, annotators = size // 5, min(5_000, size // 100)
    truth, accuracy = rng.integers(0, classes, n, np.int32), rng.uniform(0.5, 0.95, annotators)
    instance = rng.permutation(np.repeat(np.arange(n, dtype=np.int32), 5))
    annotator = rng.integers(0, annotators, size, np.int32)
    wrong = (truth[instance] + rng.integers(1, classes, size, np.int32)) % classes
    label = np.where(rng.random(size) < accuracy[annotator], truth[instance], wrong).astype(np.int32)
    frame = pd.DataFrame({"task": instance, "worker": annotator, "label": label}, copy=False)
    if ids == "string":
        for column, prefix in (("task", "item-"), ("worker", "annotator-"), ("label", "class-")):
            frame[column] = prefix + frame[column].astype(str)
    return frame


def fitter(library: str, method: str, threads: int) -> Callable[[Any], Any]:
    """How to fit ``method`` of a library on a frame."""
    ours, theirs, their_options, _ = METHODS[method]
    if library == "crowd-kit":
        import crowdkit.aggregation

        return lambda frame: getattr(crowdkit.aggregation, str(theirs))(**their_options).fit_predict(frame)
    from crowdwise.registry import AGGREGATORS

    options = dict(ours)
    if threads > 1:
        options["n_jobs"] = threads
    return lambda frame: AGGREGATORS[method](**options).fit_predict(frame)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Best seconds and peak memory (MB) of one job, in this process."""
    import warnings

    warnings.simplefilter("ignore")
    frame = make_crowd(job["size"], job["ids"], job["classes"])
    before = _peak()
    if job["cold"]:
        start = time.perf_counter()
        fitter(job["library"], job["method"], job["threads"])(frame)
        return {"seconds": time.perf_counter() - start, "peak_mb": _peak(), "input_mb": before}
    fit = fitter(job["library"], job["method"], job["threads"])
    budget = time.perf_counter() + job["budget"]
    warm = frame if job["library"] == "crowdwise" else frame.iloc[:2_000]
    for _ in range(2):  # the first fit of a process does not wait for the compiler, the second does
        fit(warm)
    seconds = []
    while not seconds or (len(seconds) < 7 and time.perf_counter() < budget):
        start = time.perf_counter()
        fit(frame)
        seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds), "peak_mb": _peak(), "input_mb": before}


def compare_threads(size: int, classes: int, threads: int, budget: float) -> list[dict[str, Any]]:
    """Dawid-Skene on one thread and on several, in turns: the whole of `fit_predict` on a table, `fit` alone, and a round."""
    from crowdwise import Annotations
    from crowdwise.aggregation import DawidSkene
    from crowdwise.aggregation.core.crowd import MemoryCrowd

    frame = make_crowd(size, "integer", classes)
    annotations = Annotations.coerce(frame)
    options = METHODS["dawid-skene"][0]
    table, prior = np.full((annotations.n_annotators, classes, classes), 1.0 / classes), np.full(classes, 1.0 / classes)
    table[:, np.arange(classes), np.arange(classes)] = 0.7

    def a_round(number: int) -> Callable[[], Any]:
        crowd, out = MemoryCrowd.of(annotations, threads=number), np.empty((annotations.n_instances, classes))
        return lambda: crowd.em_step(table, prior, out=out)

    parts: dict[str, Callable[[int], Callable[[], Any]]] = {
        "table to labels": lambda number: lambda: DawidSkene(**options, n_jobs=number).fit_predict(frame),
        "fit": lambda number: lambda: DawidSkene(**options, n_jobs=number).fit(annotations),
        "a round": a_round,
    }
    rows = []
    for part, make in parts.items():
        runs = {number: make(number) for number in (1, threads)}
        best = dict.fromkeys(runs, (np.inf, np.inf))
        for run_once in (*runs.values(), *runs.values()):
            run_once()
        until, times = time.perf_counter() + budget, 0
        while times < 5 or (times < 200 and time.perf_counter() < until):
            for number, run_once in runs.items():
                start = time.perf_counter(), time.thread_time()
                run_once()
                took = time.perf_counter() - start[0], time.thread_time() - start[1]
                best[number] = min(best[number][0], took[0]), min(best[number][1], took[1])
            times += 1
        alone, together = best[1], best[threads]
        rows.append(
            {"benchmark": "threads", "method": "dawid-skene", "part": part, "size": size, "classes": classes}
            | {"threads": threads, "seconds_one": alone[0], "seconds": together[0]}
            | {"speedup": alone[0] / together[0], "speedup_processor": alone[1] / together[1]}
            | {"processor_one": alone[1], "processor": together[1], "times": times, "load": os.getloadavg()[0]}
        )
    return rows


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(job: dict[str, Any], python: str, limit: float) -> dict[str, Any]:
    """Measure a job in a new process; a failure is a result too."""
    with tempfile.TemporaryDirectory() as empty:
        variables = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if job["cold"]:
            variables["NUMBA_CACHE_DIR"] = empty
        command = [python, str(Path(__file__).resolve()), "--child", json.dumps(job)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, env={**os.environ, **variables}, check=False
            )
        except subprocess.TimeoutExpired:
            return {**job, "error": f"more than {limit:g} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {**job, "error": lines[-1] if lines else f"ended with status {done.returncode}"}
    return {**job, **json.loads(done.stdout.splitlines()[-1])}


def jobs(sizes: list[int], methods: list[str], ids: list[str], classes: int) -> list[dict[str, Any]]:
    """Everything to measure, crowd-kit beside crowdwise, and two threads where threads matter."""
    made = []
    for size in sizes:
        for method in methods:
            if method in SLOW and size > 100_000:
                continue
            for kind in ids:
                job = {"method": method, "size": size, "ids": kind, "threads": 1, "cold": False}
                job["classes"] = 2 if method == "kos" else classes  # crowd-kit's KOS knows two classes only
                job["budget"] = 5.0
                if METHODS[method][1] is not None and size <= METHODS[method][3]:
                    made.append({**job, "library": "crowd-kit"})
                made.append({**job, "library": "crowdwise"})
                if method == "dawid-skene" and size >= 1_000_000 and kind == "integer":
                    made.append({**job, "library": "crowdwise", "threads": 2})
    return made


def main() -> None:
    """Measure, print a table, keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--only", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    parser.add_argument("--ids", nargs="+", default=["integer", "string"], choices=["integer", "string"])
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--crowdkit-python", default=sys.executable, help="interpreter that has crowd-kit")
    parser.add_argument("--threads", type=int, help="compare so many threads with one, and measure nothing else")
    parser.add_argument("--limit", type=float, default=1_800.0, help="seconds that one measurement may take")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(json.loads(options.child))))
        return
    if options.threads:
        _compare_threads(options.threads, [size for size in options.sizes if size >= 1_000_000], options.classes)
        return
    todo = jobs(options.sizes, options.only, options.ids, options.classes)
    if "dawid-skene" in options.only:
        first = {"method": "dawid-skene", "size": 100_000, "ids": "integer", "classes": options.classes}
        todo.append({**first, "threads": 1, "cold": True, "budget": 0.0, "library": "crowdwise"})
    print(f"{'method':<26}{'labels':>11} {'ids':<8}{'library':<22}{'seconds':>10}{'peak MB':>9}{'ratio':>8}")
    peers: dict[tuple[Any, ...], float] = {}
    for job in todo:
        python = options.crowdkit_python if job["library"] == "crowd-kit" else sys.executable
        row = run(job, python, options.limit)
        key = job["method"], job["size"], job["ids"]
        if job["library"] == "crowd-kit" and "seconds" in row:
            peers[key] = row["seconds"]
        elif key in peers and "seconds" in row:
            row["ratio"] = peers[key] / row["seconds"]
        _print(row)
        _keep(row)


def _compare_threads(threads: int, sizes: list[int], classes: int) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    head = f"{'labels':>11}  {'what':<16}{'1 thread, s':>12}{f'{threads} threads, s':>14}{'ratio':>7}"
    print(f"{head}{'by processor time':>19}{'load':>6}")
    for size in sizes:
        for row in compare_threads(size, classes, threads, budget=10.0):
            times = f"{row['seconds_one']:>12.4f}{row['seconds']:>14.4f}{row['speedup']:>7.2f}"
            print(
                f"{size:>11,}  {row['part']:<16}{times}{row['speedup_processor']:>19.2f}{row['load']:>6.1f}", flush=True
            )
            _keep(row)


def _keep(row: dict[str, Any]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(stamp() | row) + "\n")


def _print(row: dict[str, Any]) -> None:
    library = row["library"] + (f", {row['threads']} threads" if row["threads"] > 1 else "")
    library += ", first call" if row["cold"] else ""
    start = f"{row['method']:<26}{row['size']:>11,} {row['ids']:<8}{library:<22}"
    if "error" in row:
        print(start + row["error"], flush=True)
        return
    ratio = f"{row['ratio']:>7.1f}x" if "ratio" in row else ""
    print(f"{start}{row['seconds']:>10.4f}{row['peak_mb']:>9.0f}{ratio}", flush=True)


if __name__ == "__main__":
    main()
