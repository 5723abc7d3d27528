"""crowdwise beside other libraries on one crowd, in one run: processor time, and how many times as much theirs is.

    python benchmarks/peers.py                      # 100,000 labels; minutes, nearly all of them the others'
    python benchmarks/peers.py --only cleanlab --size 10000

Needs the peers that are to be measured in the same environment (``pip install crowd-kit cleanlab peerannot``); one that is
missing is left out. Both sides start from the same data frame in a process of their own with one thread, and do the same number
of rounds; imports and a first call on a small crowd do not count. Processor time is compared, so that other programs matter
little. Rows are appended to benchmarks/results/peers.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stamp import stamp

RESULTS = Path(__file__).parent / "results" / "peers.jsonl"
ANNOTATORS, CLASSES = 200, 4
# name -> (peer, what is computed, rounds); a round of some peers takes so long that there are few
COMPARISONS = {
    "crowd-kit Dawid-Skene": ("crowd-kit", "Dawid-Skene", 20),
    "peerannot Dawid-Skene": ("peerannot", "Dawid-Skene", 2),
    "crowd-kit GLAD": ("crowd-kit", "GLAD", 1),
    "crowd-kit MACE": ("crowd-kit", "MACE, one start", 20),
    "cleanlab CROWDLAB": ("cleanlab", "labels and their quality, annotators", 0),
}


def make_crowd(size: int) -> Any:
    """A data frame of ``size`` labels, five an instance, no annotator twice: cleanlab and peerannot allow no repeats."""
    import pandas as pd

    rng = np.random.default_rng(0)
    n = size // 5
    truth, accuracy = rng.integers(0, CLASSES, n), rng.uniform(0.5, 0.95, ANNOTATORS)
    annotator = (
        rng.integers(0, ANNOTATORS, (n, 1)) + np.arange(5) * (ANNOTATORS // 5) + rng.integers(0, 20, (n, 5))
    ).ravel()
    annotator %= ANNOTATORS
    instance = np.repeat(np.arange(n), 5)
    wrong = (truth[instance] + rng.integers(1, CLASSES, size)) % CLASSES
    label = np.where(rng.random(size) < accuracy[annotator], truth[instance], wrong)
    return pd.DataFrame({"task": instance, "worker": annotator, "label": label}).sample(frac=1.0, random_state=0)


def ours(name: str, rounds: int) -> Callable[[Any], Any]:
    """What crowdwise does, from a data frame."""
    from crowdwise import quality
    from crowdwise.aggregation import GLAD, MACE, DawidSkene

    if "Dawid-Skene" in name:
        return DawidSkene(prior=None, max_iter=rounds, tol=0.0).fit_predict
    if "GLAD" in name:
        return GLAD(max_iter=rounds, tol=0.0).fit_predict
    if "MACE" in name:
        return MACE(max_iter=rounds, tol=0.0, n_restarts=1, random_state=0).fit_predict

    def judged(frame: Any) -> Any:
        model = DawidSkene().fit(frame)
        return quality.instances(frame, model), quality.annotators(frame, model)

    return judged


def theirs(name: str, rounds: int) -> Callable[[Any], Any]:
    """What the peer does, from the same data frame."""
    if name.startswith("crowd-kit"):
        from crowdkit.aggregation import GLAD, MACE, DawidSkene

        made = {
            "crowd-kit Dawid-Skene": lambda: DawidSkene(n_iter=rounds, tol=-1e9),
            "crowd-kit GLAD": lambda: GLAD(n_iter=rounds, tol=-1e9),
            "crowd-kit MACE": lambda: MACE(n_iter=rounds, n_restarts=1),
        }[name]
        return lambda frame: made().fit_predict(frame)
    if name.startswith("peerannot"):
        from peerannot.models import DawidSkene as Peer

        def aggregated(frame: Any) -> Any:
            answers: dict[int, dict[int, int]] = {}
            for task, worker, label in frame.sort_values("task").itertuples(index=False):
                answers.setdefault(int(task), {})[int(worker)] = int(label)
            model = Peer(answers, n_workers=ANNOTATORS, n_classes=CLASSES)
            model.run(epsilon=0.0, maxiter=rounds)
            return model.get_answers()

        return aggregated
    from cleanlab.multiannotator import get_label_quality_multiannotator

    def crowdlab(frame: Any) -> Any:
        matrix = frame.pivot(index="task", columns="worker", values="label")
        votes = np.stack([(matrix == code).sum(axis=1) for code in range(CLASSES)], axis=1) + 0.5
        return get_label_quality_multiannotator(matrix, votes / votes.sum(axis=1, keepdims=True), verbose=False)

    return crowdlab


def measure(job: dict[str, Any]) -> float:
    """Best processor time of one side, in this process."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # progress bars
        run = (ours if job["side"] == "ours" else theirs)(job["name"], job["rounds"])
        frame = make_crowd(job["size"])
        if job["side"] == "ours":
            run(frame)
        run(make_crowd(2_000) if job["side"] == "theirs" else frame)
        times: list[float] = []
        until = time.perf_counter() + job["budget"]
        while not times or (len(times) < 7 and time.perf_counter() < until):
            start = time.process_time()
            run(frame)
            times.append(time.process_time() - start)
    return min(times)


def in_process(job: dict[str, Any]) -> float:
    """`measure` in a new process with one thread."""
    variables = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)
    if done.returncode:
        raise SystemExit(f"{job['name']}, {job['side']}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return float(done.stdout.splitlines()[-1])


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--only", default="", help="comparisons with this in their name, such as GLAD or crowd-kit")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(measure(json.loads(options.child)))
        return
    import crowdwise

    print(f"{'peer':<24}{'what':<38}{'rounds':>7}{'theirs, s':>11}{'ours, s':>9}{'times':>8}")
    for name, (peer, what, rounds) in COMPARISONS.items():
        if options.only.lower() not in name.lower():
            continue
        number = version(peer)
        if number is None:
            print(f"{name}: left out, {peer} is not installed")
            continue
        job = {"name": name, "rounds": rounds, "size": options.size, "budget": 5.0}
        their, own = in_process({**job, "side": "theirs"}), in_process({**job, "side": "ours"})
        print(
            f"{peer + ' ' + number:<24}{what:<38}{rounds or '':>7}{their:>11.2f}{own:>9.3f}{their / own:>8.0f}",
            flush=True,
        )
        row = {
            "benchmark": "peers",
            "peer": peer,
            "version": number,
            "what": what,
            "rounds": rounds,
            "size": options.size,
        }
        row |= {
            "processor_theirs": their,
            "processor_ours": own,
            "ratio": their / own,
            "crowdwise": crowdwise.__version__,
        }
        options.out.parent.mkdir(exist_ok=True)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | stamp()) + "\n")


if __name__ == "__main__":
    main()
