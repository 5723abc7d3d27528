"""Processor time of this source beside that of another commit, in turns: nothing that stood before should become slower.

    git worktree add --detach ../before 211a2ed
    python benchmarks/beside.py ../before [--rounds 3] [--only dawid-skene ...]

Each job runs in a new process of each source, one thread, and the least of its times counts. The ratio is this source's time to
the other's. Posteriors are left as fitted, as earlier sources know nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "beside.jsonl"
AGGREGATORS = {  # registered name: annotations
    "majority-vote": 1_000_000,
    "dawid-skene": 1_000_000,
    "one-coin": 1_000_000,
    "wawa": 1_000_000,
    "ibcc": 200_000,
    "hierarchical-dawid-skene": 200_000,
    "glad": 100_000,
    "mace": 100_000,
}
METHODS = {"ce": {}, "bltm": {}, "taidtm": {"k": 3}}  # name: parameters
COMMON = """
import json, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
name, size, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)

def least(function, times):
    function()
    found = []
    for _ in range(times):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)

def known(kind, **values):
    fields = kind.__dataclass_fields__
    return kind(**{key: value for key, value in values.items() if key in fields})
"""
CROWD = """
instance, annotator = np.arange(size) // 5, rng.integers(0, 500, size)
truth = rng.integers(0, 4, size // 5)
label = np.where(rng.random(size) < 0.7, truth[instance], rng.integers(0, 4, size))
"""
JOBS = {
    "aggregation": CROWD
    + """
import crowdwise.aggregation
from crowdwise import Annotations
from crowdwise.registry import AGGREGATORS
crowd = Annotations.from_triples(instance, annotator, label)
model = AGGREGATORS[name]
took = least(lambda: known(model, random_state=0, calibration="none", n_restarts=1, max_iter=20).fit(crowd), 4)
""",
    "streaming": CROWD
    + """
import pathlib, shutil
import pyarrow as pa, pyarrow.parquet as pq
from crowdwise.aggregation import DawidSkene
from crowdwise.streaming import aggregate
folder = pathlib.Path(folder)
ids = np.array([f"task{i}" for i in range(size // 5)])[instance] if name == "texts" else instance
order = rng.permutation(size)
table = {"task": ids[order], "worker": annotator[order], "label": label[order]}
pq.write_table(pa.table(table), folder / "crowd.parquet", row_group_size=200_000)
model = known(DawidSkene, max_iter=5, tol=0.0, calibration="none")

def run():
    shutil.rmtree(folder / "work", ignore_errors=True)
    aggregate(folder / "crowd.parquet", model, out=folder / "labels.parquet", work=folder / "work")

took = least(run, 2)
""",
    "engine": """
import torch
torch.set_num_threads(1)
import crowdwise.methods
from crowdwise.registry import METHODS
X = rng.normal(size=(size, 1, 16, 16)).astype(np.float32)
labels = np.where(rng.random((size, 12)) < 0.25, rng.integers(0, 4, (size, 12)), -1)
labels[:, 0] = np.arange(size) % 4
settings = json.loads(sys.argv[4]) | {"recipe": "paper", "backbone": "cnn", "verbose": 0, "device": "cpu"}
settings |= {"random_state": 0, "warmup_epochs": 1, "transition_epochs": 1, "min_examples": 1, "max_retries": 0}
few, many = (least(lambda: known(METHODS[name], epochs=n, **settings).fit(X, labels), 2) for n in (1, 7))
took = (many - few) / 6  # an epoch of the last stage
""",
}


def jobs() -> list[tuple[str, str, int, dict[str, object]]]:
    """Kind, name, size and settings."""
    found: list[tuple[str, str, int, dict[str, object]]] = []
    found += [("aggregation", name, size, {}) for name, size in AGGREGATORS.items()]
    found += [("streaming", name, 2_000_000, {}) for name in ("numbers", "texts")]
    return found + [("engine", name, 2_000, dict(settings)) for name, settings in METHODS.items()]


def seconds(source: Path, folder: Path, kind: str, name: str, size: int, settings: dict[str, object]) -> float:
    """The least processor time of a job, by the package in ``source``."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-c",
        COMMON + JOBS[kind] + "print(took)",
        name,
        str(size),
        str(folder),
        json.dumps(settings),
    ]
    done = subprocess.run(
        command, env={**os.environ, **threads, "PYTHONPATH": str(source)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{kind}, {name}, by {source}:\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def head(folder: Path) -> str:
    command = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="names of jobs, or of kinds of them")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as scratch:
        for job in jobs():
            if options.only and not {job[0], job[1]} & set(options.only):
                continue
            least = {"before": float("inf"), "now": float("inf")}
            for _ in range(options.rounds):
                for when, tree in (("before", options.before.resolve()), ("now", here)):
                    least[when] = min(least[when], seconds(tree / "src", Path(scratch, when), *job))
            ratio = least["now"] / least["before"]
            print(
                f"{job[0]:<12} {job[1]:<26} {job[2]:>9,} {least['before']:>8.3f} {least['now']:>8.3f} s {ratio:>6.2f}"
            )
            row = {"benchmark": "beside", "kind": job[0], "name": job[1], "size": job[2], **least, "ratio": ratio}
            row |= {"commit_before": head(options.before), "commit": head(here), "load": os.getloadavg()[0]}
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row | {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}) + "\n")


if __name__ == "__main__":
    main()
