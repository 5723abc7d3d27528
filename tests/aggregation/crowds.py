"""Small simulated crowds, and the real label-only sets, for the tests of aggregators."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gammaln, logsumexp

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.kernels import Layout
from crowdwise.annotations import Annotations

LABEL_ONLY = ("agg_bluebird", "agg_cf_weather", "agg_dog", "agg_rte", "agg_web")
Codes = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


def simulated(
    n: int = 200,
    n_annotators: int = 10,
    n_classes: int = 3,
    votes: int = 5,
    accuracy: tuple[float, float] = (0.7, 0.95),
    class_prior: list[float] | None = None,
    matrices: npt.NDArray[np.float64] | None = None,
    seed: int = 0,
) -> tuple[Annotations, Codes]:
    """A one-coin crowd (or one with given confusion matrices) in which everybody labels about equally much."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(n_classes, n, p=class_prior)
    instance = np.repeat(np.arange(n), votes)
    rounds = -(-n * votes // n_annotators)
    annotator = np.concatenate([rng.permutation(n_annotators) for _ in range(rounds)])[: n * votes]
    if matrices is None:
        right = rng.random(len(instance)) < rng.uniform(*accuracy, n_annotators)[annotator]
        wrong = (truth[instance] + rng.integers(1, n_classes, len(instance))) % n_classes
        label = np.where(right, truth[instance], wrong)
    else:
        steps = matrices[annotator, truth[instance]].cumsum(axis=1)
        label = (rng.random(len(instance))[:, None] > steps).sum(axis=1).clip(max=n_classes - 1)
    sizes = {"n_instances": n, "n_annotators": n_annotators, "n_classes": n_classes}
    return Annotations.from_triples(instance, annotator, label, **sizes), truth


def sparse(labels_per_annotator: int, seed: int, n: int = 1_000) -> tuple[Annotations, Codes]:
    """A crowd in which everybody labels little: three classes, three votes for each instance, accuracies U(0.5, 0.95)."""
    return simulated(n, 3 * n // labels_per_annotator, 3, 3, (0.5, 0.95), seed=seed)


def accuracy(labels: Codes, truth: Codes) -> float:
    """Share of right labels in per cent, of instances whose truth is known."""
    known = truth >= 0
    return float((labels == truth)[known].mean() * 100)


def real(name: str) -> tuple[Annotations, Codes]:
    """A real label-only set and its truth (-1: unknown); skips where the data are not there."""
    folder = os.environ.get("CROWDWISE_DATA")
    path = Path(folder or ".") / f"{name}.npz"
    if folder is None or not path.exists():
        pytest.skip(f"set CROWDWISE_DATA to the folder that holds {name}.npz")
    with np.load(path, allow_pickle=False) as data:
        sizes = {key: int(data[key]) for key in ("n_instances", "n_annotators", "n_classes")}
        made = Annotations.from_triples(data["instance"], data["annotator"], data["label"], **sizes)
        return made, data["clean"].astype(np.int64)


def compile_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the compiled kernels on crowds of any size."""
    monkeypatch.setattr(kernels, "SMALL", 0)
    monkeypatch.setattr(kernels, "PATIENT", 0)


def compile_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use scipy on crowds of any size."""
    monkeypatch.setattr(kernels, "SMALL", 10**12)


def drawn(seed: int, n: int = 24, r: int = 6, c: int = 3, labels: int = 90, weighted: bool = False) -> Layout:
    """A crowd with silent annotators, instances without labels, repeats and, if wanted, weights."""
    rng = np.random.default_rng(seed)
    triples = rng.integers(0, [n, r, c], (labels, 3)).T
    sizes = {"n_instances": n + 2, "n_annotators": r + 1, "n_classes": c}
    weight = rng.choice([0.5, 1.0, 1.0, 2.5], labels) if weighted else None
    return MemoryCrowd.of(Annotations.from_triples(*triples, **sizes, weight=weight)).layout


def rows_of(layout: Layout) -> list[list[tuple[int, int, float]]]:
    """Annotator, label and weight of the annotations of every instance."""
    c = layout.shape[1]
    weight = np.ones(len(layout.cells)) if layout.weight is None else layout.weight
    cells = layout.cells.astype(int).tolist()
    return [
        [(cells[e] // c, cells[e] % c, float(weight[e])) for e in range(*layout.indptr[i : i + 2].tolist())]
        for i in range(len(layout.indptr) - 1)
    ]


def em_by_hand(layout: Layout, emission: Floats, prior: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Posterior, counts, mass and log-likelihood of `kernels.em_step`, in logarithms and loops."""
    width = len(prior) // layout.shape[1]
    counts, mass, value = np.zeros(emission.shape), np.zeros(len(prior)), 0.0
    posterior = np.zeros((len(layout.indptr) - 1, len(prior)))
    for i, row in enumerate(rows_of(layout)):
        scores = np.log(prior)
        for j, y, w in row:
            scores = scores + w * np.log(emission[j, y])
        if layout.gold.size and layout.gold[i] >= 0:
            scores[np.arange(len(prior)) // width != layout.gold[i]] = -np.inf
        posterior[i] = np.exp(scores - logsumexp(scores))
        for j, y, w in row:
            counts[j, y] += w * posterior[i]
        if row:
            mass += posterior[i]
            value += float(logsumexp(scores))
    return posterior, counts, mass, value


def urn(votes: float, vote: float, rho: float) -> float:
    """h(v) of `crowdwise.aggregation.core.tempering`."""
    s, a = 1 / rho - 1, 1 / (1 + np.exp(-vote))
    return float(gammaln(s * a + votes) - gammaln(s * (1 - a) + votes))
