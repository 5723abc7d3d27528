"""Whether confidence is honest: what aggregators claim about their labels, and how many are right.

    CROWDWISE_DATA=folder python benchmarks/confidence.py [--seeds 5] [--methods auto dawid-skene ...]
    python benchmarks/confidence.py --report     # the tables of docs/aggregation.md and its diagram, from the records

Every real annotation set of CROWDWISE_DATA with known truth, and simulated crowds of the kinds in `known_crowds`, are given to
every method with its defaults. Records (benchmarks/results/confidence/METHOD.jsonl) hold accuracy, that of majority vote, the
mean claim and the expected calibration error (ten bins) with and without tempering, the share of annotators whose accuracy lies
in their interval, and the bins themselves. All other aggregators are measured on real sets only. The record "constants" holds for
every real set the constants learnt without it, and what the default claims with them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from aggregation_accuracy import KINDS as FAMILIES
from aggregation_accuracy import make_crowd as make_family
from known_crowds import KINDS, Crowd, annotations_of, make_crowd, models_and_people, real_crowds

RESULTS = Path(__file__).parent / "results" / "confidence"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "confidence.svg"
BINS = 10
METHODS = ("auto", "hierarchical-dawid-skene", "dawid-skene", "majority-vote")
FIVE = ("bluebird", "cf_weather", "dog", "rte", "web")
MODELS = "three models and ten people"
OTHER = "other families"  # of which none was looked at when the constants were learnt
OTHERS = (
    "committee",
    "ebcc",
    "ibcc",
    "cbcc",
    "mace",
    "glad",
    "one-coin",
    "fast-dawid-skene",
    "zencrowd",
    "crh",
    "mmsr",
    "kos",
    "wawa",
    "zero-based-skill",
)  # measured on real sets only
GROUPS = {
    "unequal difficulty": ("difficulty", "glad"),
    "errors in common": ("misleading", "subtypes", "copying", "ordinal"),
}
COMMON = ("difficulty", "glad", "misleading", "subtypes", "copying", "ordinal", "shared confusions")
SMALL = 6_000  # labels of the simulated crowds from which constants are learnt, at most
LARGE = 12_000  # labels above which simulated crowds are left out
Floats = npt.NDArray[np.float64]


def crowds(seeds: int) -> Iterator[tuple[str, str, Crowd]]:
    """Kind, name and crowd."""
    folder = os.environ.get("CROWDWISE_DATA")
    for name, crowd in (real_crowds(folder) if folder else {}).items():
        yield "real", name, crowd
    for seed in range(100, 100 + seeds):  # not those the constants were chosen with
        for kind in KINDS:
            yield kind, f"{kind} {seed}", make_crowd(kind, seed)
    for seed in range(400, 403):
        for kind in FAMILIES:
            yield OTHER, f"{kind} {seed}", make_family(kind, seed, 300)
    for seed in range(20):
        yield MODELS, f"{MODELS} {seed}", models_and_people(seed)


def measure(method: str, kind: str, name: str, crowd: Crowd, gold: Any = None) -> dict[str, Any]:
    """Fit a method to a crowd, and compare claims with the truth."""
    from crowdwise.aggregation import MajorityVote, recommend
    from crowdwise.registry import AGGREGATORS

    annotations, truth = annotations_of(crowd), np.asarray(crowd["clean"], np.int64)
    start = time.perf_counter()
    if method == "auto":
        chosen = recommend(annotations, gold, random_state=0)
        model, used = chosen.estimator, chosen.name
    else:
        model, used = AGGREGATORS[method](random_state=0, calibration="crowd").fit(annotations, gold), method
    seconds = time.perf_counter() - start
    known = (truth >= 0) & (annotations.labels_per_instance > 0)
    if gold is not None:
        known[list(gold)] = False
    votes = MajorityVote().fit(annotations).posterior_[known]
    first = votes >= votes.max(axis=1, keepdims=True) - 1e-9
    right = (model.labels_ == truth)[known]
    bins, error = reliability(model.posterior_[known].max(axis=1), right)
    _, raw_error = reliability(model.raw_posterior_[known].max(axis=1), right)
    return {
        "benchmark": "confidence",
        "kind": kind,
        "set": name,
        "method": method,
        "used": used,
        "gold": 0 if gold is None else len(gold),
        "n": int(known.sum()),
        "accuracy": float(right.mean()),
        "majority": float((first[np.arange(len(first)), truth[known]] / first.sum(axis=1)).mean()),
        "claimed": float(model.posterior_[known].max(axis=1).mean()),
        "claimed_raw": float(model.raw_posterior_[known].max(axis=1).mean()),
        "error": error,
        "error_raw": raw_error,
        "covered": covered(model, annotations, truth),
        "bins": bins,
        "seconds": round(seconds, 3),
    }


def reliability(confidence: Floats, right: npt.NDArray[np.bool_]) -> tuple[list[list[float]], float]:
    """Instances, sum of confidence and right labels by bin, and the expected calibration error."""
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    sums = [np.bincount(place, values, BINS) for values in (np.ones(len(place)), confidence, right)]
    error = float(np.abs(sums[1] - sums[2]).sum() / max(len(place), 1))
    return [[round(float(value), 4) for value in row] for row in sums], error


def covered(model: Any, annotations: Any, truth: npt.NDArray[np.int64]) -> float:
    """Share of the annotators with ten labels or more whose accuracy on them lies in their 95 % interval."""
    known = truth[annotations.instance] >= 0
    who = annotations.annotator[known]
    number = np.bincount(who, minlength=annotations.n_annotators)
    right = np.bincount(who, (annotations.label == truth[annotations.instance])[known], annotations.n_annotators)
    many, interval = number >= 10, model.skill_interval(0.95)
    skill = right / np.maximum(number, 1)
    inside = (interval[:, 0] <= skill + 1e-9) & (skill - 1e-9 <= interval[:, 1])
    return float(inside[many].mean()) if np.any(many) else float("nan")


class Votes(NamedTuple):
    """A crowd as hierarchical Dawid-Skene sees it: what its claims follow from, and which labels are right."""

    kind: str
    sums: tuple[float, float, float]  # of `correlation.excess_agreement`
    patterns: Any  # `patterns.Shown`
    layout: Any  # of the instances with known truth
    posterior: Floats
    vote: float
    right: npt.NDArray[np.bool_]

    def claims(self, rho: float) -> Floats:
        """Confidence (n,) with a correlation."""
        from crowdwise.aggregation.core import tempering

        return tempering.tempered(self.layout, self.posterior, self.vote, rho).max(axis=1)

    def loss(self, rho: float) -> float:
        """Mean log-loss of the claims."""
        claimed = np.clip(self.claims(rho), 1e-6, 1.0 - 1e-6)
        return float(-np.log(np.where(self.right, claimed, 1.0 - claimed)).mean())


def votes_of(kind: str, crowd: Crowd) -> Votes:
    from crowdwise.aggregation import HierarchicalDawidSkene
    from crowdwise.aggregation.core import correlation, queries

    truth = np.asarray(crowd["clean"], np.int64)
    model = HierarchicalDawidSkene().fit(annotations_of(crowd))
    memory, raw = model._crowd, model.raw_posterior_
    every = correlation.stride(memory.n_annotations, memory.n_instances, memory.n_classes)
    sums = correlation.excess_agreement(memory.layout, raw, memory.counts(raw), None, every)
    known = np.flatnonzero((truth >= 0) & memory.labelled)
    rows = queries.of_instances(memory.layout, known), raw[known]
    return Votes(kind, sums, memory.patterns, *rows, model.tempering_.vote, raw[known].argmax(axis=1) == truth[known])


def left_out(sets: dict[str, Crowd]) -> list[dict[str, Any]]:
    """For every real set, the constants of `correlation` learnt from the others and simulated crowds, and the default's claims.

    What is least is the log-loss of hierarchical Dawid-Skene's claims beyond that with the best correlation of each crowd;
    real sets, simulated crowds with independent errors and those with dependent ones weigh a third each.
    """
    from crowdwise.aggregation.core import correlation

    everything = {name: votes_of("real", crowd) for name, crowd in sets.items()}
    for seed in range(200, 204):
        for kind in KINDS:
            crowd = make_crowd(kind, seed)
            if len(crowd["label"]) <= SMALL:
                everything[f"{kind} {seed}"] = votes_of(kind, crowd)
    grid = np.geomspace(0.01, 0.8, 30)
    losses = {name: np.array([votes.loss(rho) for rho in grid]) for name, votes in everything.items()}
    groups = {
        name: "real" if v.kind == "real" else "common" if v.kind in COMMON else "independent"
        for name, v in everything.items()
    }
    size = {group: sum(each == group for each in groups.values()) for group in groups.values()}
    constants = list(
        itertools.product(np.geomspace(0.06, 0.3, 9), np.linspace(0.03, 0.15, 7), [300.0, 1_000.0, 3_000.0])
    )
    rows, now = [], (correlation.HALF, correlation.TYPICAL, correlation.PAIRS)
    found: dict[str, list[float]] = {name: [] for name in everything}
    for each in constants:
        correlation.HALF, correlation.TYPICAL, correlation.PAIRS = each
        for name, votes in everything.items():
            found[name].append(correlation.correlation(*votes.sums, votes.patterns))
    table = {  # regret of every crowd by constants, interpolated over correlations
        name: np.interp(np.log(found[name]), np.log(grid), losses[name]) - losses[name].min() for name in everything
    }
    weight = {name: 1.0 / size[groups[name]] for name in everything}
    for name in [*sets, None]:
        total = np.sum([weight[other] * table[other] for other in everything if other != name], axis=0)
        half, typical, pairs = best = constants[int(np.argmin(total))]
        row = {"benchmark": "confidence", "kind": "left out", "set": name or "none", "half": round(float(half), 3)}
        row |= {"typical": round(float(typical), 3), "pairs": pairs}
        if name is not None:
            correlation.HALF, correlation.TYPICAL, correlation.PAIRS = best
            claims = measure("auto", "real", name, sets[name])
            row |= {key: claims[key] for key in ("accuracy", "claimed", "error")}
        rows.append(row)
    correlation.HALF, correlation.TYPICAL, correlation.PAIRS = now
    print("constants in use:", *now, "; learnt from everything:", rows[-1], flush=True)
    return rows


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Replace the records of a method."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    partial = RESULTS / f"{name}.partial"
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    os.replace(partial, RESULTS / f"{name}.jsonl")


def read(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def pooled(rows: list[dict[str, Any]]) -> float:
    """Expected calibration error of crowds of a kind taken together, each with the same weight."""
    sums = np.sum([np.asarray(row["bins"]) / row["n"] for row in rows], axis=0)
    return float(np.abs(sums[1] - sums[2]).sum() / len(rows))


def report() -> None:
    """Print what the records say, and draw the reliability of the default."""
    kinds = ["five sets", "real", *GROUPS, *KINDS, OTHER, MODELS]
    print("| crowds | " + " | ".join(METHODS) + " |\n|---|" + "---|" * len(METHODS))
    for kind in kinds:
        cells = []
        for method in METHODS:
            rows = [row for row in read(method) if not row["gold"] and _belongs(row, kind)]
            if not rows:
                cells.append("")
                continue
            means = [100 * float(np.mean([row[key] for row in rows])) for key in ("accuracy", "claimed", "claimed_raw")]
            error = np.mean([row["error"] for row in rows]) if kind in ("five sets", "real") else pooled(rows)
            cells.append(f"{means[0]:.1f} / {means[1]:.1f} ({means[2]:.1f}) / {100 * error:.1f}")
        print(f"| {kind} | " + " | ".join(cells) + " |")
    print("\nleft out (set, constants, claimed - accuracy, error):")
    for row in read("constants"):
        gap = f"{row['claimed'] - row['accuracy']:+.3f} {row['error']:.3f}" if "claimed" in row else ""
        print(" ", row["set"], row["half"], row["typical"], row["pairs"], gap)
    print(
        "\n| on real sets | right | claimed | claimed by itself | calibration error | worst claim |\n|---|---|---|---|---|---|"
    )
    for method in (*METHODS, *OTHERS):
        rows = [row for row in read(method) if row["kind"] == "real"]
        if rows:
            means = [
                100 * float(np.mean([row[key] for row in rows]))
                for key in ("accuracy", "claimed", "claimed_raw", "error")
            ]
            worst = max((row["claimed"] - row["accuracy"] for row in rows), key=abs)
            print(f"| {method} | " + " | ".join(f"{mean:.1f}" for mean in means) + f" | {100 * worst:+.1f} |")
    rows = read("auto")
    for label, chosen in {"real": "real", MODELS: MODELS}.items():
        for gold in (0, 40):
            some = [row for row in rows if row["kind"] == chosen and row["gold"] == gold]
            if some:
                keys = ("accuracy", "majority", "claimed", "covered")
                print(label, f"gold {gold}:", *(f"{key} {np.nanmean([row[key] for row in some]):.3f}" for key in keys))
    draw(rows)


def _belongs(row: dict[str, Any], kind: str) -> bool:
    five = kind == "five sets" and row["kind"] == "real" and row["set"] in FIVE
    return five or row["kind"] == kind or row["kind"] in GROUPS.get(kind, ())


def draw(rows: list[dict[str, Any]]) -> None:
    """Reliability of the default on real crowds, on crowds with difficulty and with errors in common."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "crowdwise"
    import matplotlib.pyplot as plt

    groups = {"real": ("real",), **GROUPS}
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True, layout="constrained")
    for axis, (title, kinds) in zip(axes, groups.items(), strict=True):
        some = [row for row in rows if row["kind"] in kinds and not row["gold"]]
        sums = np.sum([np.asarray(row["bins"]) / row["n"] for row in some], axis=0) / len(some)
        seen = sums[0] > 0.002
        axis.plot([0.2, 1], [0.2, 1], color="0.6", linewidth=1)
        axis.scatter(sums[1][seen] / sums[0][seen], sums[2][seen] / sums[0][seen], s=400 * sums[0][seen], alpha=0.7)
        axis.set(title=f"{title}: {len(some)} crowds", xlabel="confidence", xlim=(0.2, 1.02), ylim=(0.2, 1.02))
    axes[0].set_ylabel("share of right labels")
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Measure, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="simulated crowds of every kind")
    parser.add_argument("--methods", nargs="+", default=["constants", *METHODS, *OTHERS])
    parser.add_argument("--report", action="store_true", help="only read the records")
    options = parser.parse_args()
    if options.report:
        report()
        return
    warnings.simplefilter("ignore")
    everything = [each for each in crowds(options.seeds) if each[0] == "real" or len(each[2]["label"]) <= LARGE]
    real = {name: crowd for kind, name, crowd in everything if kind == "real"}
    if real and "constants" in options.methods:
        write("constants", left_out(real))
    for method in (each for each in options.methods if each != "constants"):
        rows = [measure(method, *each) for each in everything if method in METHODS or each[0] == "real"]
        for kind, name, crowd in everything:
            if kind == MODELS and method == "auto":
                chosen = np.random.default_rng(0).choice(int(crowd["n_instances"]), 40, replace=False)
                gold = {int(i): int(crowd["clean"][i]) for i in chosen}
                rows.append(measure(method, kind, name, crowd, gold))
        write(method, rows)
        print(f"measured: {method}", flush=True)
    report()


if __name__ == "__main__":
    main()
