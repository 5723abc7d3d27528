"""Every measure of agreement by name, and crowds to measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from crowdwise import Annotations, agreement

Matrix = list[list[Any]]
LEVELS = ("nominal", "ordinal", "interval", "ratio")
MEASURES: dict[str, Callable[..., agreement.Agreement]] = {
    "raw": agreement.raw_agreement,
    "fleiss": agreement.fleiss_kappa,
    "scott": agreement.scott_pi,
    "gwet": agreement.gwet_ac1,
    "cohen": agreement.cohen_kappa,
    **{
        f"alpha-{level}": lambda a, level=level, **options: agreement.krippendorff_alpha(a, level, **options)
        for level in LEVELS
    },
}

# Krippendorff (2011), Computing Krippendorff's alpha-reliability, example C: 4 observers, 12 units, some missing.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
UNITS = [list(unit) for unit in zip(*OBSERVERS, strict=True)]


def value(measure: Callable[..., agreement.Agreement], data: Any, *arguments: Any, **options: Any) -> float:
    return measure(data, *arguments, **options, n_bootstrap=0).value


def simulated(n: int, annotators: int, classes: int, rng: np.random.Generator, votes: int = 4) -> Annotations:
    """Every instance gets ``votes`` labels, each right with chance 0.7."""
    truth = rng.integers(0, classes, n)
    instance = np.repeat(np.arange(n), votes)
    annotator = np.argsort(rng.random((n, annotators)), axis=1)[:, :votes].ravel()
    label = np.where(rng.random(n * votes) < 0.7, truth[instance], rng.integers(0, classes, n * votes))
    return Annotations.from_triples(
        instance, annotator, label, n_instances=n, n_annotators=annotators, n_classes=classes
    )
