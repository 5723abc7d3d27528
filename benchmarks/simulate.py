"""Time of drawing crowds: AIDN on Fashion-MNIST's size, and its pairs for many annotators.

    python benchmarks/simulate.py [--repeats 3]

Images are Fashion-MNIST's where it is found (see crowdwise.datasets), else random ones of the same shape.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from crowdwise import datasets
from crowdwise.errors import DatasetError
from crowdwise.simulate import aidn, draw_pairs, one_coin


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Median of several runs after one that is not counted."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    rng = np.random.default_rng(0)

    try:
        fashion = datasets.load("fashion-mnist")
        X, y = fashion.X_train, fashion.y_train
        print("Fashion-MNIST")
    except DatasetError:
        X, y = rng.integers(256, size=(60_000, 28, 28), dtype=np.uint8), rng.integers(10, size=60_000)
        print("random images: Fashion-MNIST is not here")
    crowd = aidn(X, y)
    a = crowd.annotations
    million = rng.integers(10, size=1_000_000)
    cases: dict[str, Callable[[], object]] = {
        "aidn, 60,000 x 28 x 28, R = 300": lambda: aidn(X, y),
        "aidn, same, pairs='paper'": lambda: aidn(X, y, pairs="paper"),
        f"true T of its {len(a):,} pairs": lambda: crowd.transition(X, a.instance, a.annotator),
        "pairs, n = 1,000,000, R = 30,000": lambda: draw_pairs(10**6, 30_000, labels_per_instance=3.0),
        "one_coin, n = 1,000,000, R = 1,000": lambda: one_coin(million, np.full(1_000, 0.7)),
    }
    for name, call in cases.items():
        print(f"{name:40s} {seconds(call, repeats):6.2f} s")


if __name__ == "__main__":
    main()
