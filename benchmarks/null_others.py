"""Simulations of what agreement, quality, aggregation, the report, the review page and tables of experiments publish."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from crowdwise import Annotations, agreement, quality, simulate
from crowdwise.aggregation import HierarchicalDawidSkene, MajorityVote, recommend
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.dependence import alike
from crowdwise.aggregation.recommend import suitable_method
from crowdwise.bench.comparison import paired
from crowdwise.figures.people import Verdict, people, verdicts
from crowdwise.figures.right import estimated as expected_share
from crowdwise.figures.right import measured as measured_share
from crowdwise.figures.right import shared_hits
from known_crowds import CORRELATED, DIFFICULT, KINDS, annotations_of, make_crowd
from null_cases import (
    CROWDS,
    Floats,
    Outcome,
    Simulation,
    alarm,
    crowd,
    estimate,
    holds,
    interval,
    shares_of,
)

RESAMPLES = 300
LARGE = 100_000  # items that stand for the population


# ------------------------------------------------------------------------------------------- agreement: chance


def chance(
    rng: np.random.Generator,
    *,
    n: int,
    annotators: int,
    classes: int,
    votes: int,
    skewed: bool = False,
    alone: bool = False,
    level: str = "nominal",
) -> Outcome:
    """Labels that do not depend on the item, of annotators with preferences of their own."""
    prior = shares_of(classes, skewed) * classes * 3
    liked = rng.dirichlet(prior, annotators) if alone else np.tile(shares_of(classes, skewed), (annotators, 1))
    instance = np.repeat(np.arange(n), votes)
    annotator = np.argsort(rng.random((n, annotators)), axis=1)[:, :votes].ravel()
    label = (rng.random(len(instance))[:, None] > liked[annotator].cumsum(axis=1)).sum(axis=1)
    label = np.minimum(label, classes - 1)
    sizes = {"n_instances": n, "n_annotators": annotators, "n_classes": classes}
    data = Annotations.from_triples(instance, annotator, label, **sizes)
    found = agreement.chance_test(data, level, n_permutations=199, random_state=rng)  # type: ignore[arg-type]
    return {"chance": float(not found.within_chance) if found.defined else float("nan")}


CHANCE = Simulation(
    "agreement",
    {"chance": alarm("chance_test: agreement is more than chance")},
    {
        "usual": {"n": 100, "annotators": 6, "classes": 3, "votes": 3},
        "12 items": {"n": 12, "annotators": 3, "classes": 2, "votes": 3},
        "8 classes, two labels": {"n": 100, "annotators": 10, "classes": 8, "votes": 2},
        "skewed classes": {"n": 100, "annotators": 5, "classes": 3, "votes": 3, "skewed": True},
        "preferences of their own": {"n": 100, "annotators": 5, "classes": 4, "votes": 3, "alone": True},
        "few labels each, preferences": {"n": 60, "annotators": 40, "classes": 3, "votes": 3, "alone": True},
        "ordered classes": {"n": 80, "annotators": 5, "classes": 5, "votes": 3, "level": "ordinal"},
    },
    chance,
    400,
    ("usual", "12 items"),
)


# ---------------------------------------------------------------------------------------- agreement: intervals


MEASURES: dict[str, Any] = {
    "raw agreement": agreement.raw_agreement,
    "alpha, nominal": agreement.krippendorff_alpha,
    "alpha, ordinal": lambda data, **more: agreement.krippendorff_alpha(data, "ordinal", **more),
    "alpha, interval": lambda data, **more: agreement.krippendorff_alpha(data, "interval", **more),
    "alpha, ratio": lambda data, **more: agreement.krippendorff_alpha(data, "ratio", **more),
    "Fleiss' kappa": agreement.fleiss_kappa,
    "Scott's pi": agreement.scott_pi,
    "Gwet's AC1": agreement.gwet_ac1,
    "Cohen's kappa": agreement.cohen_kappa,
    "Cohen's kappa, quadratic": lambda data, **more: agreement.cohen_kappa(data, weights="quadratic", **more),
}


@cache
def population(options: tuple[tuple[str, Any], ...]) -> tuple[dict[str, float], Floats]:
    """Every measure of very many items, and Cohen's kappa of every two annotators."""
    data = crowd(np.random.default_rng(3), **(dict(options) | {"n": LARGE}))[0]
    values = {name: float(measure(data, n_bootstrap=0).value) for name, measure in MEASURES.items()}
    return values, agreement.pairwise(data).matrix()


def measures(rng: np.random.Generator, **options: Any) -> Outcome:
    """Measures of some items, with intervals for those of the population."""
    truth, pairs = population(tuple(sorted(options.items())))
    data = crowd(rng, **options)[0]
    found = {name: measure(data, n_bootstrap=RESAMPLES, random_state=rng) for name, measure in MEASURES.items()}
    outcome = {name: holds(*each.interval, truth[name]) for name, each in found.items()}
    every = agreement.pairwise(data, n_bootstrap=RESAMPLES, random_state=rng)
    enough = every.n_common >= LEAST_COMMON
    if enough.any():
        known = pairs[every.first, every.second]
        outcome["pairwise"] = holds(every.low[enough], every.high[enough], known[enough])
    return outcome


LEAST_COMMON = 20  # items of a pair

INTERVALS = Simulation(
    "agreement",
    {name: interval(name) for name in MEASURES}
    | {"pairwise": interval(f"Cohen's kappa of two annotators, {LEAST_COMMON} common items or more")},
    {name: options for name, options in CROWDS.items() if name != "many items"}
    | {"no agreement": {"n": 60, "annotators": 4, "classes": 3, "votes": 3, "skills": (1 / 3, 1 / 3)}},
    measures,
    300,
)


# ----------------------------------------------------------------------------------------- quality: annotators


def profiles(rng: np.random.Generator, *, alike: bool = False, model: str = "votes", **options: Any) -> Outcome:
    """Annotators whose skill does not change; all have the same one if ``alike``."""
    if alike:
        options["skills"] = (0.75, 0.75)
    data, truth, skill = crowd(rng, **options)
    posterior = HierarchicalDawidSkene(calibration="crowd").fit(data) if model == "model" else None
    gold = {int(i): int(truth[i]) for i in rng.choice(len(truth), len(truth) // 3, replace=False)}
    table = quality.annotators(data, posterior, timestamps=rng.permutation(len(data)), gold=gold)
    rows = table.to_pylist()
    found = {name: np.array(table[name].to_pylist(), np.float64) for name in table.column_names if name in NUMBERS}
    changed = (found["drift_low"] > 0) | (found["drift_high"] < 0)
    judged = verdicts(people(rows), data.n_classes)
    typical = [float(each.verdict == Verdict.STOP) for each in judged if skill[int(each.name)] >= np.median(skill)]
    outcome = {
        "drift": float(changed.any()),
        "gold": holds(found["gold_accuracy_low"], found["gold_accuracy_high"], skill),
        "stop": float(np.mean(typical)) if typical else float("nan"),
        f"skill, {model}": holds(found["annotator_quality_low"], found["annotator_quality_high"], skill),
    }
    if posterior is not None:
        outcome["skill_interval"] = holds(*posterior.skill_interval().T, skill)
        right_, wrong = skill[:, None, None], ((1 - skill) / (data.n_classes - 1))[:, None, None]
        table_of = np.where(np.eye(data.n_classes, dtype=bool), right_, wrong)
        ends = posterior.confusion_interval()
        outcome["confusion_interval"] = holds(ends[..., 0], ends[..., 1], table_of)
    return outcome


NUMBERS = (
    "annotator_quality_low",
    "annotator_quality_high",
    "drift_low",
    "drift_high",
    "gold_accuracy_low",
    "gold_accuracy_high",
)

PROFILES = Simulation(
    "quality",
    {
        "drift": alarm("annotators: somebody's quality drifts"),
        "gold": interval("annotators: accuracy on gold"),
        "stop": alarm("verdict: an annotator as good as the typical one is to be asked no more", 0.025),
        "skill, votes": interval("annotators: quality, by the votes"),
        "skill, model": interval("annotators: quality, by a model"),
        "skill_interval": interval("skill_interval of hierarchical Dawid-Skene"),
        "confusion_interval": interval("confusion_interval of hierarchical Dawid-Skene"),
    },
    {
        **CROWDS,
        "all alike": CROWDS["usual"] | {"alike": True},
        "usual, by a model": CROWDS["usual"] | {"model": "model"},
        "few labels each, by a model": CROWDS["few labels each"] | {"model": "model"},
        "skewed classes, by a model": CROWDS["skewed classes"] | {"model": "model"},
        "eight classes, by a model": CROWDS["eight classes"] | {"model": "model"},
    },
    profiles,
    100,
    ("usual", "few items", "few labels each"),
)


# -------------------------------------------------------------------------------------- aggregation: dependence


def groups(rng: np.random.Generator, *, kinds: tuple[str, ...]) -> Outcome:
    """Annotators who err independently, in crowds of many kinds: no group of them errs alike."""
    kind = kinds[int(rng.integers(len(kinds)))]
    seed = int(rng.integers(2**31))
    if kind == "varied":
        data = simulate.varied(seed, "independent").annotations
    else:
        data = annotations_of(make_crowd(kind, seed))
    memory = MemoryCrowd.of(data)
    return {"alike": float(np.any(alike(memory.layout) >= 0)), "panel": float(suitable_method(memory)[0] == "panel")}


INDEPENDENT = tuple(kind for kind in KINDS if kind not in (*CORRELATED, *DIFFICULT, "shared confusions"))

GROUPS = Simulation(
    "aggregation",
    {
        "alike": alarm("groups of annotators who err alike"),
        "panel": alarm("recommend: the method for annotators who err alike"),
    },
    {
        "independent errors, six kinds": {"kinds": INDEPENDENT},
        "some items are harder for all": {"kinds": DIFFICULT},
        "varied, independent": {"kinds": ("varied",)},
    },
    groups,
    200,
)


# --------------------------------------------------------------------------------------- shares of right labels


def measured(rng: np.random.Generator, *, n: int, gold: int, **options: Any) -> Outcome:
    """The share of right labels, of items drawn at random for true labels."""
    data, truth, _ = crowd(rng, n=n, **options)
    votes = MajorityVote(random_state=0).fit(data)
    actual = float(shared_hits(votes.posterior_, truth).mean())
    known = np.full(n, -1)
    chosen = rng.choice(n, gold, replace=False)
    known[chosen] = truth[chosen]
    found = measured_share(votes.posterior_, known)
    hits = int(np.sum(votes.labels_[chosen] == truth[chosen]))
    rest = quality.measured(hits, gold, n - gold, 0.97)
    assert found is not None
    assert rest is not None
    left = np.setdiff1d(np.arange(n), chosen)
    return {
        "measured": holds(found.low, found.high, actual),
        "checked": holds(rest.low, rest.high, float(np.mean(votes.labels_[left] == truth[left]))),
    }


MEASURED = Simulation(
    "quality",
    {
        "measured": interval("share of right labels, measured on true labels"),
        "checked": interval("share of right labels, after checks of random items"),
    },
    {
        "20 of 1,000": {"n": 1_000, "gold": 20, "annotators": 8, "classes": 3, "votes": 4},
        "100 of 2,000, two labels": {"n": 2_000, "gold": 100, "annotators": 8, "classes": 2, "votes": 2},
        "60 of 1,000, nearly all right": {
            "n": 1_000, "gold": 60, "annotators": 9, "classes": 4, "votes": 7, "skills": (0.75, 0.95),
        },
    },
    measured,
    1_000,
    ("20 of 1,000",),
)  # fmt: skip


def expected(rng: np.random.Generator, *, kind: Any) -> Outcome:
    """Shares of right labels that are expected, not measured, and annotators' intervals, in crowds of many kinds."""
    made = simulate.varied(int(rng.integers(2**31)), kind)
    data, truth = made.annotations, made.truth
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = recommend(data, random_state=0).estimator
    label, sure = model.posterior_.argmax(axis=1), model.posterior_.max(axis=1)
    labelled = data.labels_per_instance > 0
    found = expected_share(sure[labelled], data.n_classes)
    doubtful = np.argsort(sure, kind="stable")[:CHECKED]
    pairs = [(float(sure[i]), bool(label[i] == truth[i])) for i in doubtful]
    left = np.setdiff1d(np.flatnonzero(labelled), doubtful)
    rest = quality.outlook(sure[left], pairs, data.n_classes, 0.97)
    assert found is not None
    who, hits = data.annotator, data.label == truth[data.instance]
    number = data.labels_per_annotator
    accuracy = np.bincount(who, hits, data.n_annotators) / np.maximum(number, 1)
    accuracy[number < 10] = np.nan
    return {
        "estimated": holds(found.low, found.high, np.mean(label[labelled] == truth[labelled])),
        "outlook": holds(rest.low, rest.high, np.mean(label[left] == truth[left])),
        "skill": holds(*model.skill_interval().T, accuracy),
    }


CHECKED = 30  # of the most doubtful labels

EXPECTED = Simulation(
    "quality",
    {
        "estimated": estimate("share of right labels, estimated without true labels"),
        "outlook": estimate(f"share of right labels, after checks of the {CHECKED} most doubtful items"),
        "skill": estimate("skill_interval of the recommended method"),
    },
    {
        "people": {"kind": "people"},
        "a panel of models": {"kind": "panel"},
        "independent errors": {"kind": "independent"},
    },
    expected,
    20,
)


# ----------------------------------------------------------------------------------------- tables of experiments


def runs(rng: np.random.Generator, *, seeds: int, examples: int, accuracy: float) -> Outcome:
    """Two methods that are equally good, each measured on a test set, run by run."""
    ours, theirs = (rng.binomial(examples, accuracy, seeds) / examples * 100 for _ in range(2))
    found = paired(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert found is not None
    return {"paired": float(found.p < 0.05)}


RUNS = Simulation(
    "benchmarks",
    {"paired": alarm("tables of experiments: two methods differ")},
    {
        "3 seeds, 10,000 examples": {"seeds": 3, "examples": 10_000, "accuracy": 0.9},
        "3 seeds, 100 examples": {"seeds": 3, "examples": 100, "accuracy": 0.95},
        "5 seeds, 300 examples": {"seeds": 5, "examples": 300, "accuracy": 0.8},
    },
    runs,
    5_000,
    ("3 seeds, 10,000 examples", "3 seeds, 100 examples", "5 seeds, 300 examples"),
)

SIMULATIONS = {
    "chance": CHANCE,
    "intervals": INTERVALS,
    "profiles": PROFILES,
    "groups": GROUPS,
    "measured": MEASURED,
    "expected": EXPECTED,
    "runs": RUNS,
}
