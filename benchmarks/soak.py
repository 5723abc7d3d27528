"""A soak: thousands of small fits on random crowds, one after the other in one process.

    python benchmarks/soak.py                          # 2,000 fits, half aggregators, half classifiers
    python benchmarks/soak.py --fits 200 --seed 7

Every aggregator and every method in turn (with a tiny network, on features), each on a crowd of random size and kind,
often a degenerate one, with random parameters. No fit may crash or leave a number that is not finite, probabilities
must sum to 1, and the memory of the process must stay flat: the trimmed medians of its first and last fifth, after a
warm-up, within 5 %. Two errors of crowdwise count as refusals: that training cannot go on (`TrainingError`), and that
fewer than two instances have a label to train on. A record is appended to benchmarks/results/soak.jsonl.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import crowdwise
from crowdwise import Annotations
from crowdwise.errors import DataError, TrainingError
from crowdwise.registry import AGGREGATORS, METHODS

RESULTS = Path(__file__).parent / "results" / "soak.jsonl"
WARM_UP = 0.3  # share of the fits after which memory counts
EVERY = 5  # fits, after which memory is read
FLAT = 0.05
NAMES = [("aggregator", name) for name in AGGREGATORS] + [("method", name) for name in METHODS]
Array = npt.NDArray[Any]


@dataclass
class Crowd:
    """Instances (n, d), what was said of them, and what is odd about it."""

    kind: str
    X: Array
    annotations: Annotations


@dataclass
class Soak:
    """What happened."""

    fits: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """Each with what it takes to repeat it."""
    memory: list[float] = field(default_factory=list)
    """Of the process, in MB, after each fit."""

    @property
    def levels(self) -> tuple[float, float]:
        """Memory in the first and in the last fifth after the warm-up: medians without the highest and lowest tenth."""
        kept = self.memory[int(WARM_UP * len(self.memory)) :]
        fifth = max(len(kept) // 5, 1)
        return _level(kept[:fifth]), _level(kept[-fifth:])

    @property
    def flat(self) -> bool:
        first, last = self.levels
        return last <= (1 + FLAT) * first


def _level(values: list[float]) -> float:
    cut = len(values) // 10
    return float(np.median(sorted(values)[cut : len(values) - cut]))


# random crowds


def _ordinary(rng: np.random.Generator, n: int, r: int, c: int) -> tuple[Array, Array, Array]:
    per_instance = rng.integers(1, min(r, 5) + 1, size=n)
    instance = np.repeat(np.arange(n), per_instance)
    annotator = np.concatenate([rng.choice(r, size=k, replace=False) for k in per_instance])
    return instance, annotator, rng.integers(c, size=len(instance))


KINDS = (
    *["ordinary"] * 4,
    *("one annotator", "one instance", "one annotation", "one class", "one class seen", "two of many classes"),
    *("unlabelled instances", "silent annotators", "repeats", "one label per annotator", "everybody agrees"),
    *("constant features", "huge features", "adversaries"),
)


def random_crowd(rng: np.random.Generator) -> Crowd:
    kind = KINDS[rng.integers(len(KINDS))]
    n, r, c, d = (int(rng.integers(low, high)) for low, high in ((2, 120), (2, 25), (2, 7), (1, 9)))
    n = 1 if kind == "one instance" else n
    r = 1 if kind == "one annotator" else r
    c = 1 if kind == "one class" else 40 if kind == "two of many classes" else c
    truth = rng.integers(2 if kind == "two of many classes" else c, size=n)
    X = rng.normal(size=(n, d)) + 2 * rng.normal(size=(c, d))[truth]
    instance, annotator, random_label = _ordinary(rng, n, r, c)
    skill = rng.uniform(0.0 if kind == "adversaries" else 0.3, 1.0, r)
    label = np.where(rng.random(len(instance)) < skill[annotator], truth[instance], random_label)
    if kind == "one annotation":
        instance, annotator, label = instance[:1], annotator[:1], label[:1]
    elif kind == "one class seen":
        label = np.full_like(label, c - 1)
    elif kind == "two of many classes":
        label = label % 2
    elif kind == "unlabelled instances":
        kept = (instance % 3 == 0) | (instance == instance[0])
        instance, annotator, label = instance[kept], annotator[kept], label[kept]
    elif kind == "silent annotators":
        r += 5
    elif kind == "repeats":
        again = rng.integers(len(instance), size=len(instance))
        instance, annotator = np.append(instance, instance[again]), np.append(annotator, annotator[again])
        label = np.append(label, rng.integers(c, size=len(again)))
    elif kind == "one label per annotator":
        r, annotator = len(instance), np.arange(len(instance))
    elif kind == "everybody agrees":
        label = truth[instance]
    elif kind == "constant features":
        X = np.zeros_like(X)
    elif kind == "huge features":
        X *= 1e6
    crowd = Annotations.from_triples(instance, annotator, label, n_instances=n, n_annotators=r, n_classes=c)
    return Crowd(kind, X.astype(np.float32), crowd)


# random fits

CHOICES: dict[str, list[Any]] = {  # of aggregators and methods that have the parameter
    "max_iter": [1, 3, 20],
    "tol": [0.0, 1e-6, 1e-3],
    "tie": ["first", "random"],
    "n_restarts": [1, 2],
    "n_subtypes": [2, 4],
    "n_communities": [1, 3],
    "hybrid": [True, False],
    "class_count": [1.0, "empirical"],
    "loss": ["mean", "sum"],
    "normaliser": ["max", "sum"],
    "n_jobs": [None, 2],
    "epochs": [1, 2],
    "batch_size": [1, 8, 64],
    "lr": [1e-3, 0.1],
    "optimiser": ["sgd", "adam"],
    "prepare": ["auto", "standardise"],
    "reduction": ["annotation", "instance"],
    "validation_fraction": [0.0, 0.1, 0.5],
    "warmup_epochs": [1, 2],
    "transition_epochs": [1, 2],
    "individual_epochs": [1],
    "gcn_epochs": [1, 2],
    "gcn_hidden": [4],
    "bottleneck": [4],
    "k": [1, 3],
    "min_examples": [1, 5],
    "min_distilled": [1, 6],
    "max_retries": [0, 2],
    "revision_epochs": [1],
    "transfer": ["graph", "individual"],
    "mapping": ["gcn", "gat", "deepwalk"],
    "embedding": [3],
    "soft": [True, False],
    "divergence": ["kl"],
}


def random_parameters(rng: np.random.Generator, known: dict[str, Any]) -> dict[str, Any]:
    chosen = {name: values[rng.integers(len(values))] for name, values in CHOICES.items() if name in known}
    return {name: value for name, value in chosen.items() if rng.random() < 0.7 or name in SMALL}


SMALL = ("max_iter", "epochs", "warmup_epochs", "transition_epochs", "gcn_epochs", "revision_epochs", "n_restarts")


def fit_aggregator(name: str, crowd: Crowd, rng: np.random.Generator) -> None:
    kind, truth = AGGREGATORS[name], None
    model = kind(**random_parameters(rng, kind().get_params()) | {"random_state": int(rng.integers(2**31))})
    if name == "gold-majority-vote" or rng.random() < 0.2:
        truth = np.full(crowd.annotations.n_instances, -1)
        some = rng.integers(len(truth), size=max(1, len(truth) // 4))
        truth[some] = rng.integers(crowd.annotations.n_classes, size=len(some))
    model.fit(crowd.annotations) if truth is None else model.fit(crowd.annotations, gold=truth)
    n, c = crowd.annotations.n_instances, crowd.annotations.n_classes
    _check_probabilities("posterior_", model.posterior_, (n, c))
    _check_probabilities("confusion_", model.confusion_, (crowd.annotations.n_annotators, c, c))
    _check_probabilities("class_prior_", model.class_prior_, (c,))
    _check_shares("skill_", model.skill_)
    _check_shares("skill_interval", model.skill_interval())
    _check(set(model.labels_.tolist()) <= set(range(c)), "labels_ holds unknown classes")
    for objective in getattr(model, "objective_", []):
        _check(bool(np.isfinite(objective)), f"objective_ holds {objective}")


def fit_method(name: str, crowd: Crowd, rng: np.random.Generator) -> None:
    kind = METHODS[name]
    parameters = random_parameters(rng, kind.__dataclass_fields__)
    if name == "max-mig":  # compares the instances of a batch
        parameters["batch_size"] = max(parameters.get("batch_size", 8), 2)
    tiny = {"backbone": "mlp", "backbone_options": {"hidden": 6, "batch_norm": bool(rng.random() < 0.3)}}
    model = kind(**parameters | tiny | {"device": "cpu", "verbose": 0, "random_state": int(rng.integers(2**31))})
    model.fit(crowd.X, crowd.annotations)
    n, c = crowd.annotations.n_instances, crowd.annotations.n_classes
    _check_probabilities("predict_proba", model.predict_proba(crowd.X), (n, c))
    _check(set(model.predict(crowd.X).tolist()) <= set(range(c)), "predict gives unknown classes")
    spoke = crowd.annotations.labels_per_annotator > 0
    _check_shares("skill_", model.skill_[spoke & np.isfinite(model.skill_)])  # NaN without training labels
    if model.transition_ is not None:
        _check_probabilities("transition", model.transition(crowd.X[:2]), None)


def _check(right: bool, problem: str) -> None:
    if not right:
        raise AssertionError(problem)


def _check_probabilities(name: str, values: Array, shape: tuple[int, ...] | None) -> None:
    _check(shape is None or values.shape == shape, f"{name} has shape {values.shape} instead of {shape}")
    _check(bool(np.isfinite(values).all()), f"{name} is not finite")
    _check(bool((values >= 0).all()), f"{name} is negative")
    _check(bool(np.allclose(values.sum(axis=-1), 1.0, atol=1e-5)), f"{name} does not sum to 1")


def _check_shares(name: str, values: Array) -> None:
    _check(bool(np.isfinite(values).all()), f"{name} is not finite")
    _check(bool(((values >= -1e-9) & (values <= 1 + 1e-9)).all()), f"{name} is outside of [0, 1]")


# the soak


def resident_mb() -> float:
    """Memory that this process occupies now, without what the C library keeps of memory that was freed, where it can be told to
    give it back (glibc): a leak is what stays."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:  # not Linux: the largest it ever was
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def soak(fits: int, seed: int = 0, tell: Callable[[str], None] = lambda line: None) -> Soak:
    """Fit ``fits`` times; fit number k of a seed is the same whatever ran before it."""
    found = Soak()
    for number in range(fits):
        rng = np.random.default_rng([seed, number])
        what, name = NAMES[number % len(NAMES)]
        crowd = random_crowd(rng)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                (fit_aggregator if what == "aggregator" else fit_method)(name, crowd, rng)
        except Exception as error:
            labelled = np.count_nonzero(crowd.annotations.labels_per_instance)
            if isinstance(error, TrainingError) or (isinstance(error, DataError) and what == "method" and labelled < 2):
                found.refused[f"{name}: {str(error)[:80]}"] += 1
            else:
                place = f"{name} on {crowd.kind}, seed {seed}, number {number}"
                found.failures.append(f"{place}: {type(error).__name__}: {str(error)[:200]}")
                tell(f"{found.failures[-1]}\n{traceback.format_exc()}")
        found.fits += 1
        if number % EVERY == 0:
            found.memory.append(resident_mb())
        if (number + 1) % 100 == 0:
            tell(f"{number + 1:,} fits, {len(found.failures)} failures, {found.memory[-1]:.0f} MB")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    started = time.perf_counter()
    found = soak(options.fits, options.seed, lambda line: print(line, file=sys.stderr, flush=True))
    first, last = found.levels
    record = {
        "benchmark": "soak",
        "fits": found.fits,
        "seed": options.seed,
        "failures": found.failures,
        "refused": dict(found.refused),
        "rss_first_mb": round(first, 1),
        "rss_last_mb": round(last, 1),
        "rss_ratio": round(last / first, 4),
        "flat": found.flat,
        "seconds": round(time.perf_counter() - started, 1),
        "crowdwise": crowdwise.__version__,
        "python": platform.python_version(),
        "device": f"cpu x{os.cpu_count()}",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with options.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    for name in ("fits", "failures", "refused", "rss_first_mb", "rss_last_mb", "rss_ratio", "seconds"):
        print(f"{name:<14}{record[name]}")
    return int(bool(found.failures) or not found.flat)


if __name__ == "__main__":
    sys.exit(main())
