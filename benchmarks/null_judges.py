"""Simulations of what `crowdwise.judges` publishes."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from crowdwise import Annotations, judges
from crowdwise.judges._summary import ALIKE
from null_cases import Ints, Outcome, Simulation, alarm, holds, interval, said, shares_of

SMALL = 0.05  # p-values below which a test alarms


# ------------------------------------------------------------------------------------------- versions of a model


def drift(
    rng: np.random.Generator,
    *,
    n: int,
    classes: int,
    versions: int = 2,
    right: float = 0.7,
    same: float = 0.5,
    skewed: bool = False,
    reference: str = "none",
) -> Outcome:
    """Versions of equal accuracy, which share labels on some items and otherwise answer anew."""
    truth = rng.choice(classes, n, p=shares_of(classes, skewed)).astype(np.int64)
    base = said(rng, truth, right, classes)
    labels = [np.where(rng.random(n) < same, base, said(rng, truth, right, classes)) for _ in range(versions)]
    pairs = [(k, k + 1) for k in range(versions - 1)]
    gold = truth if reference == "gold" else None
    if reference == "people":
        labels += [said(rng, truth, 0.8, classes) for _ in range(4)]
    data = Annotations.from_dense(np.stack(labels, axis=1), classes=range(classes))
    models = None if reference == "people" else range(versions)
    rows = judges.drift(data, gold, pairs=pairs, models=models, n_bootstrap=200, random_state=rng).table.to_pylist()
    error = 1 - right
    alike = right**2 + error**2 / (classes - 1)
    flips = (1 - same**2) * (1 - alike)
    p = [row["p_adjusted"] for row in rows if row["p_adjusted"] is not None]
    found = {
        "changed": float(min(p) < SMALL) if p else float("nan"),
        "flips": holds([row["low"] for row in rows], [row["high"] for row in rows], flips),
    }
    if reference == "gold":
        ends = [(row["kappa_low"], row["kappa_high"]) for row in rows]
        found["kappa"] = holds(*np.array(ends).T, 0.0)
    return found


DRIFT = Simulation(
    "judges",
    {
        "changed": alarm("drift: a change between versions"),
        "flips": interval("drift: share of labels that differ"),
        "kappa": interval("drift: difference of kappa"),
    },
    {
        "25 items, 6 classes": {"n": 25, "classes": 6, "right": 0.5},
        "150 items, 4 versions": {"n": 150, "classes": 3, "versions": 4},
        "60 items, 8 classes, gold": {"n": 60, "classes": 8, "right": 0.6, "reference": "gold"},
        "300 items, skewed classes, gold": {"n": 300, "classes": 3, "skewed": True, "reference": "gold"},
        "200 items, 2 classes, people": {"n": 200, "classes": 2, "right": 0.8, "reference": "people"},
        "3,000 items, 4 classes": {"n": 3_000, "classes": 4, "same": 0.0, "right": 0.6},
    },
    drift,
    400,
    ("25 items, 6 classes",),
)


# ------------------------------------------------------------------------------------------------- order of pairs


def order(rng: np.random.Generator, *, pairs: int, consistent: float, ties: float = 0.0) -> Outcome:
    """A judge without a preference for a place, who contradicts itself in some pairs."""
    steady = rng.random(pairs) < consistent
    better = np.array(["a", "b"])[rng.integers(0, 2, pairs)]
    place = np.array(["first", "second"])[rng.integers(0, 2, pairs)]
    rows = []
    for k in range(pairs):
        for first, second in (("a", "b"), ("b", "a")):
            winner = better[k] if steady[k] else place[k]
            rows.append((k, "judge", first, second, "tie" if rng.random() < ties else winner))
    columns = ("item", "judge", "first", "second", "winner")
    row = judges.order({name: [each[k] for each in rows] for k, name in enumerate(columns)}).table.to_pylist()[0]
    same = consistent * (1 - ties) ** 2 + ties**2
    return {
        "place": float("nan") if row["p_value"] is None else float(row["p_value"] < SMALL),
        "first": holds(row["first_low"], row["first_high"], 0.5) if row["n_inconsistent"] else float("nan"),
        "consistency": holds(row["low"], row["high"], same),
    }


ORDER = Simulation(
    "judges",
    {
        "place": alarm("order: a preference for a place"),
        "first": interval("order: share that chose the first place"),
        "consistency": interval("order: consistency"),
    },
    {
        "20 pairs": {"pairs": 20, "consistent": 0.7},
        "60 pairs, ties": {"pairs": 60, "consistent": 0.6, "ties": 0.2},
        "300 pairs": {"pairs": 300, "consistent": 0.85},
    },
    order,
    1_000,
    ("20 pairs", "60 pairs, ties"),
)


# -------------------------------------------------------------------------------- alternative annotator test


def panel_of(rng: np.random.Generator, n: int, people: int, classes: int, right: float, model: float) -> Ints:
    """Labels of people and, in the last column, a model."""
    truth = rng.integers(0, classes, n)
    skill = np.append(np.full(people, right), model)
    return said(rng, np.repeat(truth[:, None], people + 1, axis=1), skill, classes)


def person_ahead(labels: Ints, person: int) -> Ints:
    """1 where a person agrees with more of the others than the model does, -1 where with fewer, (n,)."""
    others = np.delete(labels[:, :-1], person, axis=1)
    mine = (others == labels[:, person, None]).sum(axis=1)
    models = (others == labels[:, -1, None]).sum(axis=1)
    return np.sign(mine - models)


@cache
def accuracy_at(people: int, classes: int, right: float, epsilon: float) -> float:
    """Accuracy of a model that is worse than every person by ``epsilon`` exactly."""
    if right == 1.0:  # the others are right
        return 1 - epsilon
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        labels = panel_of(np.random.default_rng(1), 200_000, people, classes, right, middle)
        gap = np.mean([person_ahead(labels, j).mean() for j in range(people)])
        low, high = (middle, high) if gap > epsilon else (low, middle)
    return (low + high) / 2


@cache
def advantage_of(people: int, classes: int, right: float, model: float) -> float:
    """How often the model agrees with the others at least as well as a person does."""
    labels = panel_of(np.random.default_rng(2), 200_000, people, classes, right, model)
    return float(np.mean([(person_ahead(labels, j) <= 0).mean() for j in range(people)]))


def replace(
    rng: np.random.Generator,
    *,
    n: int,
    people: int,
    classes: int,
    right: float,
    epsilon: float,
    method: str = "t",
) -> Outcome:
    """A model that is worse than each person by epsilon exactly, so that it should win against nobody."""
    model = accuracy_at(people, classes, right, epsilon)
    labels = panel_of(rng, n, people, classes, right, model)
    data = Annotations.from_dense(labels, classes=range(classes))
    options: Any = {"epsilon": epsilon, "test": method, "min_instances": min(n, 30), "random_state": rng}
    found = judges.alt_test(data, [people], n_bootstrap=200 if method == "t" else 0, **options)
    row = found.table.to_pylist()[0]
    outcome = {"wins": float(row["winning_rate"] > 0), "passes": float(row["passed"])}
    if method == "t":
        outcome["advantage"] = holds(row["low"], row["high"], advantage_of(people, classes, right, model))
    return outcome


REPLACE = Simulation(
    "judges",
    {
        "wins": alarm("alternative annotator test: the model wins against somebody"),
        "passes": alarm("alternative annotator test: the model passes"),
        "advantage": interval("alternative annotator test: advantage probability"),
    },
    {
        "unanimous people, 35 items": {"n": 35, "people": 3, "classes": 2, "right": 1.0, "epsilon": 0.1},
        "unanimous people, 200 items": {"n": 200, "people": 4, "classes": 4, "right": 1.0, "epsilon": 0.2},
        "3 people, 30 items": {"n": 30, "people": 3, "classes": 2, "right": 0.8, "epsilon": 0.1},
        "8 people, 60 items, 4 classes": {"n": 60, "people": 8, "classes": 4, "right": 0.7, "epsilon": 0.2},
        "5 people, 400 items": {"n": 400, "people": 5, "classes": 3, "right": 0.85, "epsilon": 0.15},
        "by ranks, unanimous people, 20 items": {
            "n": 20, "people": 3, "classes": 2, "right": 1.0, "epsilon": 0.1, "method": "wilcoxon",
        },
        "by ranks, 4 people, 25 items": {
            "n": 25, "people": 4, "classes": 3, "right": 0.8, "epsilon": 0.15, "method": "wilcoxon",
        },
    },
    replace,
    500,
    ("unanimous people, 35 items", "by ranks, unanimous people, 20 items"),
)  # fmt: skip


# --------------------------------------------------------------------------------------------- errors in common


def dependence(
    rng: np.random.Generator, *, n: int, annotators: int, classes: int, right: float, reference: str
) -> Outcome:
    """Independent annotators, with gold, with people beside them, or compared with each other."""
    people = 4 if reference == "people" else 0
    truth = rng.integers(0, classes, n)
    labels = said(rng, np.repeat(truth[:, None], annotators + people, axis=1), right, classes)
    data = Annotations.from_dense(labels, classes=range(classes))
    models = range(annotators) if people else None
    found = judges.dependence(data, truth if reference == "gold" else None, models=models)
    return {"alike": float(found.beyond_chance and found.effective_votes < ALIKE * annotators)}


DEPENDENCE = Simulation(
    "judges",
    {"alike": alarm("dependence: annotators are said to err alike")},
    {
        "gold, 300 items": {"n": 300, "annotators": 5, "classes": 3, "right": 0.75, "reference": "gold"},
        "gold, 60 items": {"n": 60, "annotators": 5, "classes": 2, "right": 0.8, "reference": "gold"},
        "people, 300 items": {"n": 300, "annotators": 4, "classes": 3, "right": 0.75, "reference": "people"},
        "people, 80 items": {"n": 80, "annotators": 3, "classes": 2, "right": 0.8, "reference": "people"},
        "no reference, 300 items": {"n": 300, "annotators": 5, "classes": 3, "right": 0.75, "reference": "none"},
        "no reference, 8 classes": {"n": 600, "annotators": 8, "classes": 8, "right": 0.6, "reference": "none"},
    },
    dependence,
    200,
    ("gold, 300 items",),
)


# --------------------------------------------------------------------------- estimates from few gold labels


def estimates(
    rng: np.random.Generator,
    *,
    n: int,
    gold: int,
    classes: int,
    right: float,
    skewed: bool = False,
    what: str = "shares",
    drawn: str = "at random",
) -> Outcome:
    """A model that takes other classes for the first one too often; the true values are those of the population."""
    shares = shares_of(classes, skewed)
    if drawn == "label shift":
        truth = np.concatenate([rng.choice(classes, gold, p=shares[::-1]), rng.choice(classes, n - gold, p=shares)])
    else:
        truth = rng.choice(classes, n, p=shares)
    model = np.where(rng.random(n) < 0.1, 0, said(rng, truth, right, classes))
    chosen: Ints = np.arange(gold)
    options: dict[str, Any] = {}
    if drawn == "unequally":
        probability = np.clip(gold / n * np.where(model == 0, 0.5, 1.5), 0, 1)
        chosen = np.flatnonzero(rng.random(n) < probability)
        options["sampling"] = probability
    if drawn == "label shift":
        options["assume"] = "label-shift"
    known = {int(i): int(truth[i]) for i in chosen}
    columns = [model] if what in ("shares", "mean") else [model, *said(rng, np.stack([truth] * 3), 0.8, classes)]
    data = Annotations.from_dense(np.stack(columns, axis=1), classes=range(classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rare classes
        found = judges.estimate(data, known, what, 0, **options)  # type: ignore[arg-type]
    table = 0.9 * (right * np.eye(classes) + (1 - right) / (classes - 1) * (1 - np.eye(classes)))
    table[:, 0] += 0.1
    value: Any = {
        "shares": shares,
        "mean": shares @ np.arange(classes),
        "accuracy": shares @ np.diag(table),
        "confusion": table,
    }[what]
    outcome = {what: holds(found.low, found.high, value)}
    if drawn == "at random" and what != "confusion":
        outcome["gold"] = holds(found.gold_only_interval[..., 0], found.gold_only_interval[..., 1], value)
    return outcome


ESTIMATES = Simulation(
    "judges",
    {
        "shares": interval("estimate: shares of the classes"),
        "mean": interval("estimate: mean"),
        "accuracy": interval("estimate: accuracy of a labeller"),
        "confusion": interval("estimate: confusions of a labeller"),
        "gold": interval("estimate: from gold labels alone"),
    },
    {
        "100 gold, 3 classes": {"n": 1_000, "gold": 100, "classes": 3, "right": 0.8},
        "20 gold, 2 classes": {"n": 400, "gold": 20, "classes": 2, "right": 0.8},
        "200 gold, 8 classes": {"n": 2_000, "gold": 200, "classes": 8, "right": 0.7},
        "100 gold, skewed classes": {"n": 1_000, "gold": 100, "classes": 3, "right": 0.85, "skewed": True},
        "30 gold, skewed classes": {"n": 1_000, "gold": 30, "classes": 3, "right": 0.85, "skewed": True},
        "a mean, 40 gold": {"n": 600, "gold": 40, "classes": 5, "right": 0.7, "what": "mean"},
        "gold drawn unequally": {"n": 1_500, "gold": 150, "classes": 3, "right": 0.8, "drawn": "unequally"},
        "label shift, 300 gold": {"n": 2_000, "gold": 300, "classes": 2, "right": 0.85, "drawn": "label shift", "skewed": True},
        "label shift, 100 gold": {"n": 1_000, "gold": 100, "classes": 3, "right": 0.85, "drawn": "label shift"},
        "accuracy, 50 gold": {"n": 400, "gold": 50, "classes": 3, "right": 0.8, "what": "accuracy"},
        "accuracy, 25 gold, nearly all right": {"n": 300, "gold": 25, "classes": 2, "right": 0.97, "what": "accuracy"},
        "confusions, 150 gold": {"n": 600, "gold": 150, "classes": 3, "right": 0.8, "what": "confusion"},
    },
    estimates,
    1_000,
    ("100 gold, 3 classes", "a mean, 40 gold"),
    {"accuracy, 50 gold": 60, "accuracy, 25 gold, nearly all right": 60, "confusions, 150 gold": 60},
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- routing


def route(
    rng: np.random.Generator, *, n: int, error: float, risk: float = 0.05, power: float = 1.0, steps: int = 0
) -> Outcome:
    """A machine whose confidence follows how often it is right, or does not, or takes few values only."""
    chance = rng.beta(4, 1, n)
    right = rng.random(n) < chance
    sure = power * chance + (1 - power) * rng.random(n)
    if steps:
        sure = np.round(sure * steps) / steps
    seed = int(rng.integers(2**31))
    options: Any = {"error": error, "risk": risk, "random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few draws
        first = judges.route(sure, **options)
        found = judges.route(sure, **options, answers={int(i): bool(right[i]) for i in first.ask})
    assert found.to_people is not None
    wrong = float(np.mean(~right & ~found.to_people))
    return {"route": float(wrong > error)}


ROUTE = Simulation(
    "judges",
    {"route": alarm("route: more labels are wrong than the bound says")},
    {
        "2,000 items, 5 %": {"n": 2_000, "error": 0.05},
        "300 items, 10 %": {"n": 300, "error": 0.1},
        "confidence says nothing": {"n": 2_000, "error": 0.1, "power": 0.0},
        "five values of confidence": {"n": 1_000, "error": 0.1, "steps": 4},
        "risk 20 %": {"n": 5_000, "error": 0.15, "risk": 0.2},
    },
    route,
    1_000,
    ("2,000 items, 5 %", "300 items, 10 %"),
)

SIMULATIONS = {
    "drift": DRIFT,
    "order": ORDER,
    "replace": REPLACE,
    "dependence": DEPENDENCE,
    "estimates": ESTIMATES,
    "route": ROUTE,
}
