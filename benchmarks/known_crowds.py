"""Crowds whose truth is known, on which confidence is measured: simulated ones of many kinds, and real ones.

A crowd is the fields of an annotation set: instance, annotator, label, n_instances, n_annotators, n_classes, clean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Crowd = dict[str, Any]
Floats = npt.NDArray[np.float64]

KINDS = {
    "even": "annotators of uneven skill, instances alike",
    "confusions": "every annotator has a confusion matrix",
    "spammers": "a third answers at random",
    "rare class": "nine in ten instances are of one class",
    "many classes": "12 to 30 classes",
    "few labels": "half of the annotators gave 1 to 5 labels",
    "difficulty": "some instances are answered at random by all",
    "glad": "the odds of being right are skill times easiness",
    "ordinal": "ratings: noise around an instance's own value, shared in part",
    "misleading": "instances have an attractive wrong class, on some the more attractive one",
    "subtypes": "subtypes of a class on which most err alike",
    "copying": "a third of the annotators repeats one opinion",
    "shared confusions": "everybody confuses the same classes",
}
CORRELATED = ("misleading", "subtypes", "copying", "ordinal")
DIFFICULT = ("difficulty", "glad")


def make_crowd(kind: str, seed: int) -> Crowd:
    """A crowd of a kind; numbers of instances, classes, labels and annotators vary with the seed."""
    rng = np.random.default_rng([91, list(KINDS).index(kind), seed])
    n = int(rng.choice([100, 300, 1_000, 2_000]))
    c = int(rng.choice([2, 2, 3, 4, 5, 7]))
    votes = int(rng.choice([2, 3, 5, 5, 8, 10, 20]))
    each = int(rng.choice([10, 20, 40, 100]))
    if kind == "many classes":
        c = int(rng.choice([12, 20, 30]))
    if kind == "ordinal":
        c = int(rng.choice([3, 5, 7]))
    r = max(n * votes // each, votes + 2)
    spread = 1.0
    if kind == "few labels":
        r, spread = max(n * votes // 8, votes + 5), 1.8
    shares = rng.dirichlet(np.full(c, 8.0))
    if kind == "rare class":
        shares = np.full(c, 0.1 / (c - 1))
        shares[rng.integers(c)] = 0.9
    truth = rng.choice(c, n, p=shares)
    lots = rng.normal(0.0, spread, r) + rng.gumbel(size=(n, r))
    annotator = np.argpartition(-lots, votes - 1, axis=1)[:, :votes].ravel()
    instance = np.repeat(np.arange(n), votes)
    rows = _probabilities(kind, instance, annotator, truth, (n, r, c), rng)
    label = draw(rows, rng)
    if kind == "copying":
        opinion = draw(np.where(np.eye(c, dtype=bool), 0.7, 0.3 / (c - 1))[truth], rng)
        follows = (rng.random(r) < 0.35)[annotator] & (rng.random(len(label)) < 0.8)
        label = np.where(follows, opinion[instance], label)
    sizes = {"n_instances": n, "n_annotators": r, "n_classes": c}
    return {"instance": instance, "annotator": annotator, "label": label, "clean": truth, **sizes}


def models_and_people(seed: int, n: int = 400, c: int = 3) -> Crowd:
    """Three models that share their errors label everything, ten people three times per instance."""
    rng = np.random.default_rng([7, seed])
    truth = rng.integers(0, c, n)
    skill = rng.uniform(0.7, 0.95, 10)

    def answers(accuracy: Any) -> npt.NDArray[np.int64]:
        return np.where(rng.random(n) < accuracy, truth, (truth + rng.integers(1, c, n)) % c)

    common = answers(0.82)
    models = [np.where(rng.random(n) < 0.8, common, answers(0.82)) for _ in range(3)]
    people = np.argsort(rng.random((n, 10)), axis=1)[:, :3]  # (n, 3) who is asked
    said = np.stack([answers(skill[people[:, k]]) for k in range(3)], axis=1)
    return {
        "instance": np.concatenate([np.tile(np.arange(n), 3), np.repeat(np.arange(n), 3)]),
        "annotator": np.concatenate([np.repeat(np.arange(3), n), people.ravel() + 3]),
        "label": np.concatenate([*models, said.ravel()]),
        "clean": truth,
        "n_instances": n,
        "n_annotators": 13,
        "n_classes": c,
    }


def _probabilities(
    kind: str,
    instance: npt.NDArray[np.int64],
    annotator: npt.NDArray[np.int64],
    truth: npt.NDArray[np.int64],
    sizes: tuple[int, int, int],
    rng: np.random.Generator,
) -> Floats:
    """Probabilities of the labels of every annotation, (E, C)."""
    n, r, c = sizes
    right = truth[instance]
    low = max(1.0 / c + 0.05, rng.choice([0.4, 0.55, 0.7]))
    skill = rng.uniform(low, 0.95, r)
    eye = np.eye(c)
    if kind == "glad":
        ability, easiness = rng.normal(1.2, 0.8, r), rng.lognormal(0.0, 0.8, n)
        return _coin(1.0 / (1.0 + (c - 1) * np.exp(-ability[annotator] * easiness[instance])), right, c)
    if kind == "ordinal":
        value = truth + rng.normal(0.0, rng.choice([0.2, 0.35]), n)  # what the instance looks like to everybody
        noise = rng.uniform(0.4, 1.2, r)[annotator] * (c / 5)
        closeness = -0.5 * ((np.arange(c) - value[instance, None]) / noise[:, None]) ** 2
        return np.exp(closeness) / np.exp(closeness).sum(axis=1, keepdims=True)
    if kind == "misleading":
        lure = (truth + rng.integers(1, c, n)) % c
        pull = rng.beta(0.5, rng.choice([1.5, 3.0]), n)[instance, None]
        error = (1.0 - skill)[annotator, None]
        return (1.0 - error) * ((1.0 - pull) * eye[right] + pull * eye[lure[instance]]) + error / c
    if kind == "subtypes":
        m = 4
        typical = np.full((c, m, c), 0.0)
        for p in range(c):
            for k in range(m):
                typical[p, k] = rng.dirichlet(np.where(np.arange(c) == p, 3.0 if k else 12.0, 2.0 / (c - 1)))
        subtype = rng.choice(m, n, p=rng.dirichlet(np.full(m, 2.0)))
        own = rng.dirichlet(np.full(c, 1.0), (r, c))
        weight = rng.beta(2.0, 5.0, r)[annotator, None]
        return (1.0 - weight) * typical[right, subtype[instance]] + weight * own[annotator, right]
    if kind in ("confusions", "shared confusions"):
        strength = 3.0 if kind == "confusions" else 40.0
        base = np.array([rng.dirichlet(np.full(c, 0.7)) for _ in range(c)])
        mean = 0.65 * eye + 0.35 * (base if kind == "shared confusions" else np.full((c, c), 1.0 / c))
        tables = rng.gamma(np.maximum(strength * mean, 0.02), size=(r, c, c))
        return np.asarray((tables / tables.sum(axis=2, keepdims=True))[annotator, right])
    rows = _coin(skill[annotator], right, c)
    if kind == "spammers":
        spams = (rng.random(r) < 0.33)[annotator, None]
        return np.where(spams, rng.dirichlet(np.full(c, 0.5), r)[annotator], rows)
    if kind == "difficulty":
        hardness = rng.beta(0.5, rng.choice([1.0, 2.0]), n)[instance, None]
        return np.asarray((1.0 - hardness) * rows + hardness / c)
    return rows


def _coin(skill: Floats, right: npt.NDArray[np.int64], c: int) -> Floats:
    rows = np.repeat(((1.0 - skill) / (c - 1))[:, None], c, axis=1)
    rows[np.arange(len(right)), right] = skill
    return rows


def draw(rows: Floats, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """One class from every row of probabilities."""
    return np.minimum((rng.random((len(rows), 1)) > rows.cumsum(axis=1)).sum(axis=1), rows.shape[1] - 1)


def real_crowds(folder: str | Path) -> dict[str, Crowd]:
    """Every annotation set of ``folder`` with known truth, by name; of CIFAR-10N, the first 3,000 pictures."""
    found = {}
    for path in sorted(Path(folder).glob("*.npz")):
        with np.load(path, allow_pickle=False) as data:
            crowd = _fields(path.stem, data)
        if crowd is not None:
            found[path.stem.removeprefix("agg_").removesuffix("_mturk")] = crowd
    return found


def _fields(name: str, data: Any) -> Crowd | None:
    if name.startswith("agg_"):
        return {field: data[field] for field in data.files}
    if name == "cifar10n" or name.endswith("_mturk"):
        crowd = {field: data[field] for field in data.files if field in FIELDS}
        if len(crowd) < len(FIELDS):
            return None
        return _first(crowd, 3_000) if name == "cifar10n" else crowd
    return None


def _first(crowd: Crowd, size: int) -> Crowd:
    """The first instances of a crowd."""
    kept, size = crowd["instance"] < size, min(size, int(crowd["n_instances"]))
    rows = {name: crowd[name][kept] for name in ("instance", "annotator", "label")}
    return crowd | rows | {"n_instances": size, "clean": crowd["clean"][:size]}


FIELDS = ("instance", "annotator", "label", "n_instances", "n_annotators", "n_classes", "clean")


def annotations_of(crowd: Crowd) -> Any:
    """The crowd as `crowdwise.Annotations`."""
    from crowdwise.annotations import Annotations

    sizes = {name: int(crowd[name]) for name in ("n_instances", "n_annotators", "n_classes")}
    return Annotations.from_triples(crowd["instance"], crowd["annotator"], crowd["label"], **sizes)
