"""Time and memory of agreement and quality on one large crowd, each case in a process of its own.

    python benchmarks/agreement.py [annotations]

Five labels per instance, 1,000 annotators, 10 classes. Measures are timed without a bootstrap and with 1,000 resamples.
Peak memory is that of the whole process, the annotations included.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from crowdwise import Annotations, agreement, quality

PER_INSTANCE, ANNOTATORS, CLASSES = 5, 1000, 10
RESAMPLES = 1000


def crowd(size: int) -> Annotations:
    """Random annotators who are right seven times in ten, and otherwise guess."""
    rng = np.random.default_rng(0)
    instance = np.repeat(np.arange(size // PER_INSTANCE), PER_INSTANCE)
    truth = rng.integers(0, CLASSES, len(instance) // PER_INSTANCE)[instance]
    label = np.where(rng.random(len(instance)) < 0.7, truth, rng.integers(0, CLASSES, len(instance)))
    return Annotations.from_triples(instance, rng.integers(0, ANNOTATORS, len(instance)), label, n_classes=CLASSES)


MEASURES: dict[str, Callable[..., object]] = {
    "raw agreement": agreement.raw_agreement,
    "Krippendorff's alpha, nominal": agreement.krippendorff_alpha,
    "Krippendorff's alpha, ordinal": partial(agreement.krippendorff_alpha, level="ordinal"),
    "Krippendorff's alpha, interval": partial(agreement.krippendorff_alpha, level="interval"),
    "Krippendorff's alpha, ratio": partial(agreement.krippendorff_alpha, level="ratio"),
    "Fleiss' kappa": agreement.fleiss_kappa,
    "Scott's pi": agreement.scott_pi,
    "Gwet's AC1": agreement.gwet_ac1,
    "Cohen's kappa": agreement.cohen_kappa,
    "Cohen's kappa, quadratic": partial(agreement.cohen_kappa, weights="quadratic"),
    "report": agreement.report,
}
TABLES: dict[str, Callable[[Annotations], object]] = {
    "pairwise Cohen's kappa": agreement.pairwise,
    "pairwise Scott's pi": partial(agreement.pairwise, measure="scott"),
    "quality.annotators": quality.annotators,
    "quality.instances": quality.instances,
    "quality.issues": quality.issues,
    "quality.next_labels, budget 10,000": partial(quality.next_labels, budget=10_000),
}


def timed(action: Callable[[], object]) -> float:
    """Seconds that ``action`` takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def run(name: str, size: int) -> None:
    """Print one line: seconds without and with a bootstrap, and peak memory."""
    annotations = crowd(size)
    if name in TABLES:
        seconds, resampled = timed(lambda: TABLES[name](annotations)), ""
    else:
        seconds = timed(lambda: MEASURES[name](annotations, n_bootstrap=0))
        resampled = f"{timed(lambda: MEASURES[name](annotations, n_bootstrap=RESAMPLES, random_state=0)):8.2f} s"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name:<36}{seconds:8.2f} s  {resampled:>10}  {peak:6.2f} GB", flush=True)


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    if len(sys.argv) > 2:
        run(sys.argv[2], size)
        return
    print(f"{size:,} annotations{'':<14}    no interval   {RESAMPLES:,} resamples   peak memory")
    for name in (*MEASURES, *TABLES):
        subprocess.run([sys.executable, __file__, str(size), name], check=True)


if __name__ == "__main__":
    main()
