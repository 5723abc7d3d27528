"""Crowds to make reports of."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from crowdwise.annotations import Annotations
from crowdwise.report.source import Source


def crowd(
    n: int = 60, annotators: int = 6, per_item: int = 4, names: tuple[str, ...] = ("cat", "dog", "owl")
) -> Source:
    """Annotators from 95 % to 45 % right, with known truth, times, durations and texts."""
    rng = np.random.default_rng(0)
    truth = rng.integers(len(names), size=n)
    skill = np.linspace(0.95, 0.45, annotators)
    instance = np.repeat(np.arange(n), per_item)
    annotator = np.concatenate([rng.choice(annotators, per_item, replace=False) for _ in range(n)])
    wrong = rng.random(len(instance)) > skill[annotator]
    label = (truth[instance] + np.where(wrong, rng.integers(1, len(names), len(instance)), 0)) % len(names)
    annotations = Annotations.from_triples(
        instance,
        annotator,
        label,
        instances=[f"item {k}" for k in range(n)],
        annotators=[f"person {k}" for k in range(annotators)],
        classes=list(names),
    )
    return Source(
        "animals",
        annotations,
        "a small crowd",
        truth.astype(np.int32),
        timestamps=np.arange(len(instance)) * 10.0,
        durations=rng.uniform(2, 9, len(instance)),
        texts=[f"a picture of number {k}" for k in range(n)],
    )


def shaped(names: tuple[str, ...], people: list[str], size: int = 40, **rest: Any) -> Source:
    """A small crowd with these names of classes and annotators."""
    source = crowd(size, len(people), min(3, len(people)), names)
    triples = source.annotations
    renamed = Annotations.from_triples(
        triples.instance, triples.annotator, triples.label, annotators=people, classes=list(names)
    )
    return dataclasses.replace(source, annotations=renamed, **rest)


LONG = "a name that is much longer than anybody would want to read in a table or a chart"
ADDRESS = "somebody.with.a.long.name+{}@a.large.organisation.example.org"
SHAPES = {
    "two classes, no truth, no times": shaped(
        ("no", "yes"), list("abcd"), truth=None, timestamps=None, durations=None, texts=None
    ),
    "a hundred classes": shaped(tuple(f"class {k}" for k in range(100)), list("abcd")),
    "one annotator": shaped(("cat", "dog"), ["ann"]),
    "long names": shaped((LONG + " 1", LONG + " 2"), [ADDRESS.format(k) for k in range(5)], texts=[LONG * 9] * 40),
    "right to left": shaped(
        ("שלום", "مرحبا"), ["אבי", "بدر", "Zoë", "דנה", "سعد"], 160, texts=["שלום, עולם 123!"] * 160
    ),
}
"""Crowds that a page must look right for."""
