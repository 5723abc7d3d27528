"""Whether `crowdwise.compare` picks a good method: its choice beside the test accuracy of every method it compared.

    CROWDWISE_DATA=... python benchmarks/compare.py --seeds 10

For each data set of benchmarks/own_data.py with features and each seed, methods are compared with plain defaults, and then
fitted on all training instances, to see how far the choice is behind the best of them on the test instances. The comparison
sees neither test instances nor truth. Records go to benchmarks/results/compare_cpu.jsonl; ``--work`` keeps the fits of
comparisons, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from own_data import FEATURES, load
from stamp import commit

RESULTS = Path(__file__).parent / "results" / "compare_cpu.jsonl"


def measure(name: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Compare, and fit what was compared on everything."""
    import torch

    import crowdwise
    from crowdwise.comparison.candidates import choose_candidates

    warnings.simplefilter("ignore")
    data = load(name, seed)
    X, annotations = data["X"], data["annotations"]
    started = time.perf_counter()
    found = crowdwise.compare(
        X, annotations, folds=given.folds, seed=seed, seconds=given.seconds or None, jobs=given.jobs,
        folder=None if given.work is None else given.work / f"{name}-{seed}",
    )  # fmt: skip
    seconds = time.perf_counter() - started
    print(found, flush=True)
    torch.set_num_threads(1)
    accuracy, names = {}, [entry.method for entry in found.entries]
    for candidate in choose_candidates(names, X.shape[1:], seed, "cpu"):
        predicted = candidate.model.fit(X, annotations).predict_proba(data["X_test"]).argmax(1)
        accuracy[candidate.name] = round(100 * float((predicted == data["y_test"]).mean()), 3)
    best = max(accuracy, key=lambda method: accuracy[method])
    labelled = (data["clean"] >= 0) & (annotations.labels_per_instance > 0)
    votes = annotations.votes()[labelled].argmax(1)
    return {
        "data": name, "seed": seed, "folds": given.folds, "limit": given.seconds, "jobs": given.jobs,
        "recommended": found.recommended, "best": best, "behind": round(accuracy[best] - accuracy[found.recommended], 3),
        "test_accuracy": accuracy,
        "agreement": {entry.method: round(100 * entry.score, 3) for entry in found.entries},
        "behind_in_agreement": {e.method: [round(100 * e.behind, 3), round(100 * e.behind_error, 3)] for e in found.entries},
        "folds_done": {entry.method: entry.folds for entry in found.entries},
        "seconds_a_fit": {entry.method: round(entry.seconds, 2) for entry in found.entries},
        "expected": {key: round(100 * value, 2) for key, value in found.expected._asdict().items()},
        "majority_vote_right": round(100 * float((votes == data["clean"][labelled]).mean()), 2),
        "seconds": round(seconds, 1),
        "versions": {"crowdwise": crowdwise.__version__, "commit": commit(), "torch": torch.__version__,
                     "numpy": np.__version__, "python": platform.python_version()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a data set; may be repeated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=150, help="time limit of a comparison; 0: none")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=Path, help="a folder for the fits of comparisons")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for name in given.only or FEATURES:
            record = measure(name, seed, given)
            with given.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
            shown = ("data", "seed", "recommended", "best", "behind", "seconds")
            print(*(f"{key} {record[key]}" for key in shown), sep=", ", flush=True)


if __name__ == "__main__":
    main()
