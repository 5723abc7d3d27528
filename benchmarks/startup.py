"""Processor time of short commands, user and system, from the start of Python to the end of the process.

    python benchmarks/startup.py [--times 10]

The least of some runs, after one that does not count and leaves bytecode behind. Rows are appended to
benchmarks/results/startup.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from stamp import stamp

RESULTS = Path(__file__).parent / "results" / "startup.jsonl"
COMMANDS = {
    "crowdwise --help": ["--help"],
    "crowdwise --version": ["--version"],
    "crowdwise aggregate --help": ["aggregate", "--help"],
    "crowdwise aggregate, 10,000 labels": ["aggregate", "crowd.csv", "-o", "labels.csv"],
    "crowdwise agreement, 10,000 labels": ["agreement", "crowd.csv"],
    "crowdwise convert, 10,000 labels": ["convert", "crowd.csv", "crowd.parquet"],
}


def write_crowd(path: Path) -> None:
    """2,000 instances with five labels each by 100 annotators."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 2_000)
    lines = ["task,worker,label"]
    for i in range(2_000):
        for j in rng.choice(100, 5, replace=False):
            lines.append(f"t{i},w{j},c{truth[i] if rng.random() < 0.7 else rng.integers(0, 4)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(words: list[str], folder: Path, times: int) -> float:
    """Least processor time of a command, in seconds."""
    variables: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    found = []
    for _ in range(times + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "crowdwise", *words]
        subprocess.run(command, cwd=folder, env=variables, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="runs of each command")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_crowd(Path(folder, "crowd.csv"))
        for name, words in COMMANDS.items():
            seconds = measure(words, Path(folder), options.times)
            print(f"{name:<40}{seconds:>7.3f} s", flush=True)
            row = {"benchmark": "startup", "command": name, "processor": seconds, "times": options.times}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row | stamp()) + "\n")


if __name__ == "__main__":
    main()
