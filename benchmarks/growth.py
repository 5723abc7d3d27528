"""How the time of aggregation grows with annotations, instances, annotators and classes, one at a time.

    python benchmarks/growth.py             # measure, and draw docs/images/growth.svg; a minute
    python benchmarks/growth.py --draw      # draw the latest measurements again

Processor time of one thread, from `Annotations` to labels, the best of a few fits, 20 rounds of methods that iterate. Rows are
appended to benchmarks/results/growth.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from stamp import stamp

RESULTS = Path(__file__).parent / "results" / "growth.jsonl"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "growth.svg"
USUAL = {"annotations": 300_000, "instances": 60_000, "annotators": 1_000, "classes": 4}
VARIED = {
    "annotations": (30_000, 100_000, 300_000, 1_000_000, 3_000_000),
    "instances": (6_000, 20_000, 60_000, 200_000, 300_000),
    "annotators": (100, 1_000, 10_000, 50_000),
    "classes": (2, 4, 8, 16, 32, 64),
}
METHODS: dict[str, dict[str, Any]] = {
    "dawid-skene": {"max_iter": 20, "tol": 0.0},
    "one-coin": {"max_iter": 20, "tol": 0.0},
    "majority-vote": {},
}


def crowd(annotations: int, instances: int, annotators: int, classes: int) -> Any:
    """Annotators who are right in half to nearly all of the cases; every instance has a label."""
    from crowdwise import Annotations

    rng = np.random.default_rng(0)
    instance = np.concatenate([np.arange(instances), rng.integers(0, instances, max(annotations - instances, 0))])
    instance = rng.permutation(instance[:annotations])
    annotator, truth = rng.integers(0, annotators, annotations), rng.integers(0, classes, instances)
    wrong = (truth[instance] + rng.integers(1, classes, annotations)) % classes
    right = rng.random(annotations) < rng.uniform(0.5, 0.95, annotators)[annotator]
    label = np.where(right, truth[instance], wrong)
    sizes: Any = {"n_instances": instances, "n_annotators": annotators, "n_classes": classes}
    return Annotations.from_triples(instance, annotator, label, **sizes)


def measure(sizes: dict[str, int], method: str, budget: float) -> float:
    """Best processor time of a fit."""
    from crowdwise.registry import AGGREGATORS

    annotations, times = crowd(**sizes), list[float]()
    for _ in range(2):  # the first fit of a process does not wait for the compiler, the second does
        AGGREGATORS[method](**METHODS[method]).fit(annotations)
    until = time.process_time() + budget
    while len(times) < 3 or (len(times) < 20 and time.process_time() < until):
        start = time.process_time()
        AGGREGATORS[method](**METHODS[method]).fit(annotations)
        times.append(time.process_time() - start)
    return min(times)


def draw(rows: list[dict[str, Any]]) -> None:
    """Time against each of the four sizes, a line for each method."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "crowdwise", "svg.fonttype": "none", "font.size": 8})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), sharey=True, layout="constrained")
    for axis, varied in zip(axes, VARIED, strict=True):
        for method in METHODS:
            latest = {r[varied]: r["processor"] for r in rows if (r["varied"], r["method"]) == (varied, method)}
            axis.plot(sorted(latest), [latest[size] for size in sorted(latest)], marker="o", markersize=3, label=method)
        axis.set(xscale="log", yscale="log", xlabel=varied)
        axis.grid(alpha=0.3)
        axis.minorticks_off()
    axes[0].set_ylabel("processor time, s")
    axes[0].legend(fontsize=7)
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--budget", type=float, default=0.5, help="processor time to spend on a point, in seconds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for varied, values in VARIED.items() if not options.draw else ():
        for method in METHODS:
            for value in values:
                sizes = USUAL | {varied: value}
                seconds = measure(sizes, method, options.budget)
                print(f"{method:<16}{varied:<12}{value:>11,}{seconds:>9.4f} s", flush=True)
                row = {"benchmark": "growth", "varied": varied, "method": method, **sizes, "processor": seconds}
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row | stamp()) + "\n")
    draw([json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()])


if __name__ == "__main__":
    main()
