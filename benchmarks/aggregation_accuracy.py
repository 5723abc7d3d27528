"""How accurate and how honest truth inference is, on real sets and on simulated crowds of many kinds.

    CROWDWISE_DATA=folder python benchmarks/aggregation_accuracy.py --crowdkit-python other-env/bin/python

On every real label-only set (agg_*.npz in CROWDWISE_DATA) all methods are fitted with their defaults, random ones with
several seeds, beside crowd-kit's method of the same name; the expected calibration error is that of the posterior as it
is and after `crowdwise.aggregation.calibrate`. Simulated crowds have 1,000 instances; there a method is compared with
majority vote, whose ties count by the share of the classes that are right. A loss is beyond chance when it exceeds two
standard deviations of what both disagree on. Rows replace those of the same set and method in
benchmarks/results/aggregation_accuracy.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RESULTS = Path(__file__).parent / "results" / "aggregation_accuracy.jsonl"
BENCHMARK = "aggregation accuracy"
PEERS = {
    "majority-vote": "MajorityVote",
    "wawa": "Wawa",
    "zero-based-skill": "ZeroBasedSkill",
    "dawid-skene": "DawidSkene",
    "one-coin": "OneCoinDawidSkene",
    "glad": "GLAD",
    "mace": "MACE",
    "kos": "KOS",
    "mmsr": "MMSR",
}
RANDOM = {"cbcc", "ebcc", "kos", "mace", "mmsr"}
LARGE = 9_000  # labels from which on these methods of crowd-kit take minutes or gigabytes
SLOW_PEERS = {"glad", "mace", "mmsr"}
SIMULATED = ("majority-vote", "wawa", "one-coin", "dawid-skene", "hierarchical-dawid-skene", "ibcc")
KINDS = (
    "even skills",
    "sparse",
    "dense",
    "poor annotators",
    "few experts",
    "spammers",
    "adversarial minority",
    "biased annotators",
    "confused classes",
    "unbalanced classes",
    "many classes",
    "correlated errors",
    "hard instances",
)
Crowd = dict[str, Any]  # the fields of an annotation set: instance, annotator, label, n_*, clean


def make_crowd(kind: str, seed: int, n: int = 1_000) -> Crowd:
    """A crowd of a kind; classes, labels per instance and per annotator, and diligence vary with the seed."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    c, votes, each = (int(rng.choice(values)) for values in ((2, 3, 4, 6), (2, 3, 5, 8), (3, 6, 12, 25, 60)))
    if kind == "sparse":
        votes, each = int(rng.choice([2, 3])), int(rng.choice([1, 2, 3]))
    if kind == "dense":
        votes, each = int(rng.choice([5, 10, 15])), int(rng.choice([60, 100]))
    if kind == "many classes":
        c = int(rng.choice([10, 20, 40]))
    r = n * votes // each + votes
    shares = rng.dirichlet(np.full(c, 20.0))
    if kind == "unbalanced classes":
        shares = np.full(c, 0.2 / (c - 1))
        shares[rng.integers(c)] = 0.8
    truth = rng.choice(c, n, p=shares)
    diligence = rng.lognormal(0.0, rng.choice([0.0, 1.0]), r)
    lots = np.log(diligence) + rng.gumbel(size=(n, r))
    annotator = np.argpartition(-lots, votes - 1, axis=1)[:, :votes].ravel()
    instance = np.repeat(np.arange(n), votes)
    rows = make_matrices(kind, r, c, rng)[annotator, truth[instance]]
    if kind == "hard instances":
        hardness = 0.8 * rng.beta(0.5, 2.0, n)[instance, None]
        rows = (1.0 - hardness) * rows + hardness / c
    label = draw(rows, rng)
    if kind == "correlated errors":  # a third of the annotators mostly repeat one opinion
        opinion = draw(np.where(np.eye(c, dtype=bool), 0.75, 0.25 / (c - 1))[truth], rng)
        follows = (rng.random(r) < 0.35)[annotator] & (rng.random(len(label)) < 0.8)
        label = np.where(follows, opinion[instance], label)
    sizes = {"n_instances": n, "n_annotators": r, "n_classes": c}
    return {"instance": instance, "annotator": annotator, "label": label, "clean": truth, **sizes}


def make_matrices(kind: str, r: int, c: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Confusion matrices (R, C, C) of a kind of crowd."""

    def coins(low: float, high: float) -> npt.NDArray[np.float64]:
        skill = rng.uniform(low, high, r)[:, None, None]
        return np.where(np.eye(c, dtype=bool), skill, (1.0 - skill) / (c - 1))

    def some(share: float) -> npt.NDArray[np.bool_]:
        return (rng.random(r) < share)[:, None, None]

    chance, usual = 1.0 / c, coins(0.6, 0.95)
    if kind == "sparse":
        return coins(0.5, 0.95)
    if kind == "poor annotators":
        return coins(chance + 0.1, chance + 0.4)
    if kind == "few experts":
        return np.where(some(0.2), coins(0.97, 0.97), coins(chance + 0.15, chance + 0.15))
    if kind == "spammers":
        return np.where(some(0.3), rng.dirichlet(np.full(c, 0.3), r)[:, None, :], usual)
    if kind == "adversarial minority":
        return np.where(some(0.12), np.roll(usual, 1, axis=2), usual)
    if kind == "biased annotators":
        weight = rng.uniform(0.0, 0.4, (r, 1, 1))
        return np.asarray((1.0 - weight) * usual + weight * rng.dirichlet(np.full(c, 0.5), r)[:, None, :])
    if kind == "confused classes":
        weight, eye = rng.beta(2.0, 2.0, (r, 1, 1)), np.eye(c)
        return np.asarray((1.0 - weight) * (0.65 * eye + 0.35 * np.roll(eye, 1, axis=1)) + weight * eye)
    return usual


def draw(rows: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """One class from every row of probabilities."""
    return np.minimum((rng.random((len(rows), 1)) > rows.cumsum(axis=1)).sum(axis=1), rows.shape[1] - 1)


def real_sets(folder: str | None) -> dict[str, Crowd]:
    """The label-only sets by name."""
    if folder is None:
        print("CROWDWISE_DATA is not set: real sets are left out", file=sys.stderr)
        return {}
    found = {}
    for path in sorted(Path(folder).glob("agg_*.npz")):
        with np.load(path, allow_pickle=False) as data:
            found[path.stem.removeprefix("agg_")] = {name: data[name] for name in data.files}
    return found


def crowdkit_accuracy(python: str, method: str, crowds: list[Crowd], seeds: int, limit: float) -> dict[str, Any]:
    """Accuracy of crowd-kit's method, all crowds and seeds in a new process of an interpreter that has it."""
    with tempfile.TemporaryDirectory() as folder:
        for k, crowd in enumerate(crowds):
            np.savez(Path(folder) / f"{k:04}.npz", **crowd)
        job = json.dumps({"folder": folder, "method": method, "seeds": seeds})
        command = [python, str(Path(__file__).resolve()), "--child", job]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return {"crowd_kit_error": f"more than {limit:g} s"}
    if done.returncode:
        return {"crowd_kit_error": (done.stderr.strip().splitlines() or ["failed"])[-1]}
    return {"crowd_kit": json.loads(done.stdout.splitlines()[-1])}


def child(job: dict[str, Any]) -> list[float]:
    """Accuracies of crowd-kit's method, crowd by crowd and seed by seed."""
    import crowdkit.aggregation
    import pandas as pd

    warnings.simplefilter("ignore")
    scores = []
    for path in sorted(Path(job["folder"]).glob("*.npz")):
        with np.load(path, allow_pickle=False) as crowd:
            frame = pd.DataFrame({"task": crowd["instance"], "worker": crowd["annotator"], "label": crowd["label"]})
            truth = crowd["clean"]
        for seed in range(job["seeds"]):
            options = {"random_state": seed} if job["method"] in RANDOM else {}
            labels = getattr(crowdkit.aggregation, PEERS[job["method"]])(**options).fit_predict(frame)
            scores.append(accuracy(labels.reindex(range(len(truth)), fill_value=-2).to_numpy(), truth))
    return scores


def accuracy(labels: npt.NDArray[Any], truth: npt.NDArray[Any]) -> float:
    """Share of right labels in per cent, of instances whose truth is known."""
    return float((labels == truth)[truth >= 0].mean() * 100)


def annotations_of(crowd: Crowd) -> Any:
    from crowdwise.annotations import Annotations

    sizes = {name: int(crowd[name]) for name in ("n_instances", "n_annotators", "n_classes")}
    return Annotations.from_triples(crowd["instance"], crowd["annotator"], crowd["label"], **sizes)


def on_real_set(name: str, crowd: Crowd, method: str, python: str | None, limit: float) -> dict[str, Any]:
    """Accuracy by seed, crowd-kit's, and the calibration error of the first seed."""
    from crowdwise.aggregation import calibrate
    from crowdwise.quality import calibration
    from crowdwise.registry import AGGREGATORS

    seeds, truth, annotations = 3 if method in RANDOM else 1, crowd["clean"], annotations_of(crowd)
    models = [AGGREGATORS[method](random_state=seed).fit(annotations) for seed in range(seeds)]
    row = {
        "set": name,
        "method": method,
        "accuracy": [accuracy(model.labels_, truth) for model in models],
        "calibration_error": calibration(models[0].posterior_, truth, n_bins=10).ece,
        "calibration_error_calibrated": calibration(calibrate(models[0]).posterior, truth, n_bins=10).ece,
    }
    binary_only = method == "kos" and int(crowd["n_classes"]) > 2
    slow = method in SLOW_PEERS and len(annotations) > LARGE
    if python is not None and method in PEERS and not binary_only and not slow:
        row |= crowdkit_accuracy(python, method, [crowd], 1 if method in SLOW_PEERS else seeds, limit)
    return row


def on_simulated(kind: str, seeds: range, method: str, python: str | None, limit: float) -> dict[str, Any]:
    """Gain over majority vote on crowds of a kind."""
    from crowdwise.registry import AGGREGATORS

    scores, gains, beyond, crowds = [], [], 0, [make_crowd(kind, seed) for seed in seeds]
    for crowd in crowds:
        annotations, truth = annotations_of(crowd), crowd["clean"]
        votes = np.zeros((annotations.n_instances, annotations.n_classes))
        np.add.at(votes, (crowd["instance"], crowd["label"]), 1)
        top = votes == votes.max(axis=1, keepdims=True)
        right = vote = top[np.arange(len(truth)), truth] / top.sum(axis=1)
        if method != "majority-vote":
            right = AGGREGATORS[method]().fit(annotations).labels_ == truth
        difference = right - vote
        scores.append(float(np.mean(right) * 100))
        gains.append(float(difference.mean() * 100))
        beyond += bool(difference.sum() < -2.0 * np.sqrt(np.square(difference).sum()))
    row = {"set": f"simulated: {kind}", "method": method, "seeds": [seeds.start, seeds.stop], "accuracy": scores}
    row |= {"gain": gains, "losses_beyond_chance": beyond}
    if python is not None and method == "dawid-skene":
        row |= crowdkit_accuracy(python, method, crowds, 1, limit)
    return row


def keep(rows: dict[tuple[str, str], dict[str, Any]], measured: list[dict[str, Any]]) -> None:
    """Add rows to those of this run, and put all into the record in place of earlier ones of the same set and method."""
    rows |= {(row["set"], row["method"]): {"benchmark": BENCHMARK} | row for row in measured}
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    everything = {(row["set"], row["method"]): row for row in map(json.loads, lines)} | rows
    partial = RESULTS.with_suffix(".partial")
    partial.write_text("".join(json.dumps(row) + "\n" for row in everything.values()), encoding="utf-8")
    os.replace(partial, RESULTS)
    print(f"measured: {measured[0]['set']}", file=sys.stderr)


def mean(values: list[float] | None) -> str:
    return "" if values is None else f"{np.mean(values):.2f}"


def show(rows: list[dict[str, Any]]) -> None:
    """Print both tables."""
    print(f"\n{'real set':<14}{'method':<26}{'accuracy':>9}{'crowd-kit':>10}{'error':>8}{'calibrated':>11}")
    for row in rows:
        if "gain" not in row:
            errors = f"{row['calibration_error']:>8.3f}{row['calibration_error_calibrated']:>11.3f}"
            print(
                f"{row['set']:<14}{row['method']:<26}{mean(row['accuracy']):>9}{mean(row.get('crowd_kit')):>10}{errors}"
            )
    print(f"\n{'simulated crowds':<24}{'method':<26}{'accuracy':>9}{'crowd-kit':>10}{'gain':>7}{'worst':>7}{'lost':>6}")
    for row in rows:
        if "gain" in row:
            start = f"{row['set'].removeprefix('simulated: '):<24}{row['method']:<26}{mean(row['accuracy']):>9}"
            worst = f"{mean(row['gain']):>7}{min(row['gain']):>7.1f}{row['losses_beyond_chance']:>6}"
            print(f"{start}{mean(row.get('crowd_kit')):>10}{worst}")


def main() -> None:
    """Measure, keep the rows, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crowdkit-python", help="interpreter that has crowd-kit; without, it is left out")
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="methods on real sets, by default all")
    parser.add_argument("--crowds", type=int, default=10, help="simulated crowds of every kind")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that one run of crowd-kit may take")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return
    from crowdwise.registry import AGGREGATORS

    warnings.simplefilter("ignore")
    methods = options.only or [name for name in AGGREGATORS if name != "gold-majority-vote"]  # needs gold labels
    rows, peer = dict[tuple[str, str], dict[str, Any]](), (options.crowdkit_python, options.limit)
    for name, crowd in real_sets(os.environ.get("CROWDWISE_DATA")).items():
        keep(rows, [on_real_set(name, crowd, method, *peer) for method in methods])
    seeds = range(options.first_seed, options.first_seed + options.crowds)
    for kind in KINDS if options.crowds else ():
        keep(rows, [on_simulated(kind, seeds, method, *peer) for method in SIMULATED])
    show(list(rows.values()))


if __name__ == "__main__":
    main()
