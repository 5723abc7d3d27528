"""How good labels alone are: the default method, its members and others, on real and on simulated crowds.

    CROWDWISE_DATA=folder python benchmarks/label_only.py real
    python benchmarks/label_only.py simulated --crowds 500 --first-seed 10000 --only-default
    CROWDWISE_DATA=folder python benchmarks/label_only.py seeds
    CROWDWISE_DATA=folder python benchmarks/label_only.py more
    CROWDWISE_DATA=folder python benchmarks/label_only.py gold
    python benchmarks/label_only.py speed

Every row of benchmarks/results/label_only.jsonl is one method on one crowd: the share of right labels (ties count by the share
of the classes that are right), its mean confidence, and majority vote's share beside it. Real sets are those with labels of
people and known truth (agg_*, labelme, music, sentiment), and four panels of language models. Simulated crowds come from
`crowdwise.simulate.varied`. Nothing is fitted to these rows: method and confidence are the same for every crowd. Rows of the
default also have the share of labels that random starts decide, and whether a group of dependent annotators was found.

`seeds` repeats the default with 20 seeds (2 where a set has more than 6,100 labels): the largest share of labels that differ
from those of seed 0, and the range of the mean confidence, in points. `more` takes labels away, and compares what
`quality.more_labels` expects of further ones with what they bring. `gold` tells 30 and 100 true labels of each panel of models,
and measures the claim on the other items, over seven draws. `speed` has the processor time of a million labels.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

RESULTS = Path(__file__).parent / "results" / "label_only.jsonl"
PEOPLE = ("agg_*.npz", "labelme_mturk.npz", "music_mturk.npz", "sentiment_mturk.npz")
PANELS = ("css_*_llm.npz", "hatecheck_en.npz")
METHODS = ("majority-vote", "wawa", "hierarchical-dawid-skene", "ebcc", "dawid-skene", "one-coin")
DEFAULT = "recommend"
SEEDS = 20
FEW = 6_100  # labels of a set on which the default is fitted often


class Known(NamedTuple):
    """A crowd with known truth (-1: unknown)."""

    name: str
    kind: str
    annotations: Any
    truth: npt.NDArray[np.int64]
    models: list[Any]


def real(folder: Path) -> Iterator[Known]:
    """Crowds of people, then panels of models, which are known as such."""
    from crowdwise import Annotations

    for kind, patterns in (("people", PEOPLE), ("panel", PANELS)):
        for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
            with np.load(path, allow_pickle=False) as data:
                sizes = {size: int(data[size]) for size in ("n_instances", "n_annotators", "n_classes")}
                made = Annotations.from_triples(data["instance"], data["annotator"], data["label"], **sizes)
                truth = data["clean"].astype(np.int64)
            models = list(range(made.n_annotators)) if kind == "panel" else []
            yield Known(path.stem, kind, made, np.where(made.labels_per_instance > 0, truth, -1), models)


def simulated(seeds: range) -> Iterator[Known]:
    """Crowds of `crowdwise.simulate.varied`."""
    from crowdwise.simulate import varied

    for seed in seeds:
        crowd = varied(seed)
        truth = np.where(crowd.annotations.labels_per_instance > 0, crowd.truth, -1)
        yield Known(f"simulated {seed}", f"simulated {crowd.kind}", crowd.annotations, truth, [])


def right(posterior: npt.NDArray[np.float64], truth: npt.NDArray[np.int64]) -> float:
    """Share of right labels in per cent; ties count by the share of the classes that are right."""
    known = np.flatnonzero(truth >= 0)
    rows = posterior[known]
    top = rows >= rows.max(axis=1, keepdims=True) - 1e-9
    return float(100 * (top[np.arange(len(known)), truth[known]] / top.sum(axis=1)).mean())


def claimed(posterior: npt.NDArray[np.float64], truth: npt.NDArray[np.int64]) -> float:
    """Mean confidence in per cent."""
    return float(100 * posterior[truth >= 0].max(axis=1).mean())


def measured(crowd: Known, methods: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """A row for the default, and one for each other method."""
    from crowdwise.aggregation import recommend
    from crowdwise.aggregation.core.crowd import MemoryCrowd
    from crowdwise.aggregation.core.dependence import alike
    from crowdwise.figures import worth
    from crowdwise.registry import AGGREGATORS

    about = {"benchmark": "label only", "crowd": crowd.name, "kind": crowd.kind, "n_labels": len(crowd.annotations)}
    start = time.perf_counter()
    chosen = recommend(crowd.annotations, models=crowd.models)
    seconds = time.perf_counter() - start
    vote = right(chosen.majority_vote.posterior_, crowd.truth)
    groups = alike(MemoryCrowd.of(crowd.annotations).layout)
    of_votes = worth(crowd.annotations, chosen.estimator.posterior_).votes_estimated
    yield about | {
        "method": DEFAULT,
        "chosen": chosen.name,
        "right": right(chosen.estimator.posterior_, crowd.truth),
        "claimed": claimed(chosen.estimator.posterior_, crowd.truth),
        "votes": vote,
        "spread": float(getattr(chosen.estimator, "spread_", 0.0)),
        "votes_claimed": None if of_votes is None else 100 * of_votes.share,
        "alike": int(np.count_nonzero(groups >= 0)),
        "seconds": round(seconds, 3),
    }
    for name in methods:
        model = AGGREGATORS[name](random_state=0, calibration="crowd").fit(crowd.annotations)
        q = model.posterior_
        yield about | {
            "method": name,
            "right": right(q, crowd.truth),
            "claimed": claimed(q, crowd.truth),
            "votes": vote,
        }


def repeated(crowd: Known) -> Iterator[dict[str, Any]]:
    """How far labels and confidence of the default differ between seeds."""
    from crowdwise.aggregation import recommend

    number = SEEDS if len(crowd.annotations) <= FEW else 2
    found = [recommend(crowd.annotations, models=crowd.models, random_state=seed).estimator for seed in range(number)]
    labelled = crowd.annotations.labels_per_instance > 0
    first = found[0].posterior_.argmax(axis=1)
    differing = max(float((each.posterior_.argmax(axis=1) != first)[labelled].mean()) for each in found)
    claims = [claimed(each.posterior_, crowd.truth) for each in found]
    yield {
        "benchmark": "label only seeds",
        "crowd": crowd.name,
        "kind": crowd.kind,
        "method": f"{number} seeds",
        "differing": 100 * differing,
        "claims": max(claims) - min(claims),
    }


def thinned(crowd: Known) -> Iterator[dict[str, Any]]:
    """What further labels were expected to bring, and what they brought."""
    from crowdwise.aggregation import recommend
    from crowdwise.quality import more_labels

    a, per_item = crowd.annotations, crowd.annotations.labels_per_instance
    if crowd.kind != "people" or len(a) > 30_000:
        return
    order = np.lexsort((np.random.default_rng(0).random(len(a)), a.instance))
    place = np.empty(len(a), np.int64)  # of each label among those of its item
    place[order] = np.arange(len(a)) - np.repeat(np.cumsum(per_item) - per_item, per_item)
    rest = round(len(a) / np.count_nonzero(per_item))
    for kept in (2, 3, 5):
        fitted = recommend(a.where(place < kept)).estimator
        before = right(fitted.posterior_, crowd.truth)
        for more in sorted({1, rest - kept} - {0, -1, -2, -3}):
            after = right(recommend(a.where(place < kept + more)).estimator.posterior_, crowd.truth)
            yield {
                "benchmark": "label only more",
                "crowd": crowd.name,
                "kind": crowd.kind,
                "method": f"{kept} labels and {more} more",
                "gain": after - before,
                "expected": 100 * more_labels(fitted, (more,))[0].gain,
            }


def informed(crowd: Known) -> Iterator[dict[str, Any]]:
    """Right labels and claim on panels of models of which some true labels are told."""
    from crowdwise.aggregation import recommend

    if crowd.kind != "panel":
        return
    for number in (30, 100):
        own, claims = [], []
        for seed in range(7):
            told = np.random.default_rng(seed).choice(np.flatnonzero(crowd.truth >= 0), number, replace=False)
            gold = {int(item): int(crowd.truth[item]) for item in told}
            q = recommend(crowd.annotations, gold, models=crowd.models).estimator.posterior_
            rest = crowd.truth.copy()
            rest[told] = -1
            own.append(right(q, rest))
            claims.append(claimed(q, rest))
        yield {
            "benchmark": "label only gold",
            "crowd": crowd.name,
            "kind": crowd.kind,
            "method": f"{number} gold labels",
            "right": float(np.mean(own)),
            "distance": float(np.abs(np.subtract(claims, own)).mean()),
        }


def speed() -> Iterator[dict[str, Any]]:
    """Processor time of a million labels: Dawid-Skene, and the default with the members it has there."""
    from crowdwise.aggregation import Committee, DawidSkene
    from crowdwise.annotations import Annotations

    rng = np.random.default_rng(0)
    n, r, c = 200_000, 2_000, 4
    truth = rng.integers(0, c, n)
    instance, annotator = np.repeat(np.arange(n), 5), rng.integers(0, r, 5 * n)
    hit = rng.random(5 * n) < rng.uniform(0.5, 0.95, r)[annotator]
    label = np.where(hit, truth[instance], rng.integers(0, c, 5 * n))
    crowd = Annotations.from_triples(instance, annotator, label, n_instances=n, n_annotators=r, n_classes=c)
    small = Annotations.from_triples(instance[:5000], annotator[:5000], label[:5000], n_classes=c)
    for name, model in (("dawid-skene", DawidSkene()), ("committee", Committee())):
        model.fit(small)  # compiles
        times = []
        for _ in range(3):
            start = time.process_time()
            model.fit(crowd)
            times.append(time.process_time() - start)
        members = list(getattr(model, "members_", {}))
        about = {"benchmark": "label only speed", "crowd": "a million labels", "kind": "speed"}
        yield about | {"method": name, "processor": min(times), "members": members}


def keep(rows: list[dict[str, Any]]) -> None:
    """Put rows into the record in place of earlier ones of the same crowd and method, with few digits."""
    rows = [{key: round(each, 4) if isinstance(each, float) else each for key, each in row.items()} for row in rows]
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    everything = {(row["crowd"], row["method"]): row for row in [*map(json.loads, lines), *rows]}
    partial = RESULTS.with_suffix(".partial")
    partial.write_text("".join(json.dumps(row) + "\n" for row in everything.values()), encoding="utf-8")
    os.replace(partial, RESULTS)


def show(rows: list[dict[str, Any]]) -> None:
    """Print means by kind and method."""
    print(
        f"{'crowds':<24}{'method':<26}{'number':>7}{'right':>7}{'gain':>6}{'worst':>7}{'under -5':>9}{'distance':>9}{'bias':>6}"
    )
    kinds = dict.fromkeys("simulated" if row["kind"].startswith("simulated") else row["kind"] for row in rows)
    for kind in kinds:
        for method in dict.fromkeys(row["method"] for row in rows):
            chosen = [row for row in rows if row["kind"].startswith(kind) and row["method"] == method]
            own, claim, vote = (np.array([row[name] for row in chosen]) for name in ("right", "claimed", "votes"))
            gain = own - vote
            figures = f"{own.mean():7.2f}{gain.mean():6.2f}{gain.min():7.2f}{np.count_nonzero(gain < -5):9}"
            figures += f"{np.abs(claim - own).mean():9.2f}{(claim - own).mean():6.2f}"
            print(f"{kind:<24}{method:<26}{len(chosen):>7}{figures}")


EXTRA = {"seeds": repeated, "more": thinned, "gold": informed}


def main() -> None:
    """Measure, keep the rows, print means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["real", "simulated", *EXTRA, "speed", "show"])
    parser.add_argument("--crowds", type=int, default=200, help="simulated crowds")
    parser.add_argument("--first-seed", type=int, default=10_000)
    parser.add_argument("--only-default", action="store_true", help="leave out the other methods")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "show":
        lines = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
        show([row for row in lines if row["benchmark"] == "label only"])
        return
    crowds = simulated(range(options.first_seed, options.first_seed + options.crowds))
    if options.what == "real":
        crowds = real(Path(os.environ["CROWDWISE_DATA"]))
    if options.what == "speed":
        keep(list(speed()))
        return
    if options.what in EXTRA:
        for crowd in real(Path(os.environ["CROWDWISE_DATA"])):
            keep(list(EXTRA[options.what](crowd)))
        return
    rows: list[dict[str, Any]] = []
    for crowd in crowds:
        rows += measured(crowd, () if options.only_default else METHODS)
        keep(rows)
        print(f"measured: {crowd.name}", file=sys.stderr)
    show(rows)


if __name__ == "__main__":
    main()
