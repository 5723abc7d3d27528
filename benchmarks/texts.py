"""Concord on crowds that label texts, beside logistic regression on words and pairs of words with majority votes.

    CROWDWISE_DATA=folder python benchmarks/texts.py [--sets sentiment ...] [--seed 0]    # -> benchmarks/results/texts.jsonl
    pip download --no-deps --no-binary :all: vaderSentiment==0.5                          # for --ratings vaderSentiment-0.5.zip

The sentences of `sentiment` with their own crowd, parts of them (300 and 800 sentences, unequal classes), several of them joined
to long texts, and made-up texts with and without meaning in runs of characters, with equal and unequal classes, the last
with simulated crowds: about five labels a text, annotators of unequal skill, texts of unequal difficulty, errors in common.
And four sets of sentences and tweets that 15 to 20 people each rated from -4 to 4 (C. J. Hutto and E. Gilbert, "VADER", ICWSM
2014; MIT licence): labels are classes of these ratings, of which some are drawn for each text. Who gave which is not known, so
annotators are made up: some are careless, some give ratings that are one too high or too low, some nearly always say the same.
Truth is what most of all ratings say. Balanced accuracy is the mean of the classes' recalls. Calibration is the expected
calibration error of the most probable class's probability, in 15 bins.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

import crowdwise
from crowdwise import Annotations, datasets
from crowdwise.aggregation import HierarchicalDawidSkene, MajorityVote
from stamp import commit

ARCHIVE = "vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz"
RECORDS = Path(__file__).parent / "results" / "texts.jsonl"
SYLLABLES = [one + other for one in "bcdfghklmnprstvz" for other in "aeiou"]
Array = Any


@dataclass
class Labelled:
    X: Any  # texts, or feature vectors
    truth: Array
    new: Any
    new_truth: Array
    annotations: Annotations


def sentences(n: int | None = None, rare: int | None = None, *, rng: np.random.Generator) -> Labelled:
    """Sentences with their own crowd: all, ``n`` of them, or ``rare`` positive ones beside five times as many others."""
    data = datasets.load("sentiment")
    assert data.annotations is not None
    truth = np.asarray(data.clean).astype(int)
    chosen = np.arange(len(truth)) if n is None else rng.choice(len(truth), n, replace=False)
    if rare is not None:
        parts = [rng.choice(np.flatnonzero(truth == c), m, replace=False) for c, m in ((1, rare), (0, 5 * rare))]
        chosen = np.concatenate(parts)
    chosen = np.sort(chosen)
    texts = [str(data.X_train[row]) for row in chosen]
    crowd = data.annotations.select(instances=chosen)
    return Labelled(texts, truth[chosen], [str(text) for text in data.X_test], np.asarray(data.y_test), crowd)


def joined(*, rng: np.random.Generator) -> Labelled:
    """Three to six sentences of one kind to a text."""
    data = datasets.load("sentiment")

    def texts(X: Any, y: Array, n: int) -> tuple[list[str], Array]:
        truth = rng.integers(2, size=n)
        pools = [np.flatnonzero(y == c) for c in range(2)]
        rows = [rng.choice(pools[c], rng.integers(3, 7), replace=False) for c in truth]
        return [" ".join(str(X[row]) for row in each) for each in rows], truth

    old, truth = texts(data.X_train, np.asarray(data.clean), 1000)
    new, new_truth = texts(data.X_test, np.asarray(data.y_test), 1500)
    return Labelled(old, truth, new, new_truth, crowd_of(truth, 2, rng))


def made_up(
    classes: int,
    length: int,
    strength: float,
    *,
    rng: np.random.Generator,
    characters: bool = False,
    n: int = 1000,
    shares: list[float] | None = None,
) -> Labelled:
    """Words by Zipf's law, a ``strength`` of them from 60 that a class prefers or, with ``characters``, with its ending."""
    words = sorted({"".join(rng.choice(SYLLABLES, rng.integers(1, 5))) for _ in range(12_000)})
    words = [words[place] for place in rng.permutation(len(words))[:6000]]
    usual = 1 / np.arange(3, len(words) + 3)
    preferred = [rng.choice(words, 60, replace=False) for _ in range(classes)]
    ending = rng.choice(SYLLABLES, classes, replace=False)
    truth = rng.choice(classes, n + 2000, p=shares)
    texts = []
    for c in truth:
        text = rng.choice(words, max(3, rng.poisson(length)), p=usual / usual.sum()).astype(object)
        draw = rng.random(len(text))
        own, ends = draw < strength, (draw >= strength) & (draw < 2 * strength)
        text[own] = rng.choice(preferred[c], own.sum())
        if characters:
            text[ends] = text[ends] + ending[c]
        texts.append(" ".join(text))
    return Labelled(texts[:n], truth[:n], texts[n:], truth[n:], crowd_of(truth[:n], classes, rng))


def crowd_of(
    truth: Array, classes: int, rng: np.random.Generator, annotators: int = 40, labels: int = 5
) -> Annotations:
    """Annotators of unequal skill and activity; hard texts, which lure all of them to the same wrong class."""
    others = 1 - np.eye(classes)

    def errors(concentration: float) -> Array:
        wrong = (rng.dirichlet(np.full(classes, concentration), classes) + 1e-9) * others
        return wrong / wrong.sum(1, keepdims=True)

    common = errors(0.4)
    own = [(errors(0.5) + common) / 2 for _ in range(annotators)]
    active = np.maximum(rng.dirichlet(np.full(annotators, 0.7)), 1e-3)
    skill = np.clip(rng.normal(0.84, 0.13, annotators), 1 / classes + 0.05, 0.98)
    hard = rng.beta(1, 3, len(truth))
    rows = []
    for text, c in enumerate(truth):
        lure = rng.choice(classes, p=common[c])
        many = min(max(2, rng.poisson(labels)), annotators)
        for who in rng.choice(annotators, many, replace=False, p=active / active.sum()):
            if rng.random() < skill[who] * (1 - hard[text]) + 0.35 * hard[text]:
                label = c
            else:
                label = lure if rng.random() < hard[text] else rng.choice(classes, p=own[who][c])
            rows.append((text, who, label))
    return Annotations.from_triples(*np.array(rows).T)


SCALES: dict[str, Callable[[Array], Array]] = {
    "sign": lambda rating: np.sign(rating) + 1,
    "five": lambda rating: np.digitize(rating, [-1.5, -0.5, 0.5, 1.5]),
    "bad": lambda rating: np.less_equal(rating, -2),
    "good": lambda rating: np.greater_equal(rating, 3),
}
RATINGS: list[Path] = []
"""The archive of `rated`, as the command line says."""


def rated(
    name: str, scale: str, n: int, labels: float, annotators: int, *, rng: np.random.Generator, spam: float = 0.1
) -> Labelled:
    """``n`` texts, about ``labels`` labels each, drawn from real ratings; a share ``spam`` of the annotators is careless."""
    classes = SCALES[scale]
    with zipfile.ZipFile(RATINGS[0]) as outer, tarfile.open(fileobj=io.BytesIO(outer.read(ARCHIVE))) as inner:
        parts = [
            inner.extractfile(f"hutto_ICWSM_2014/{name}_{kind}.txt") for kind in ("GroundTruth", "anonDataRatings")
        ]
        texts, ratings = (part.read().decode("utf-8-sig", "replace").splitlines() for part in parts if part is not None)
    known = {line.split("\t")[0]: line.split("\t", 2)[2] for line in texts}
    found = [(cells[0], ast.literal_eval(cells[3])) for cells in (line.split("\t") for line in ratings)]
    found = [(key, given) for key, given in found if len(known.get(key, "").split()) > 1]
    votes = [np.bincount(classes(np.array(given)).astype(int), minlength=5) for _, given in found]
    truth = np.array([vote.argmax() for vote in votes])
    n_classes = int(np.flatnonzero(np.sum(votes, 0)).max()) + 1
    order = rng.permutation(len(found))
    active = np.maximum(rng.dirichlet(np.full(annotators, 0.7)), 1e-3)
    careful = np.clip(rng.normal(0.85, 0.15, annotators), 0.1, 1)
    careful[rng.random(annotators) < spam] = 0.1
    usual = rng.integers(n_classes, size=annotators)
    shift = np.where(rng.random(annotators) < 0.3, rng.choice([-1, 1], annotators), 0)
    rows = []
    for text, place in enumerate(order[:n]):
        given = rng.permutation(found[place][1])
        many = min(1 + int(rng.poisson(labels - 1)), annotators)
        for own, who in enumerate(rng.choice(annotators, many, replace=False, p=active / active.sum())):
            label = int(classes(given[own % len(given)] + shift[who] * rng.integers(2)))
            if rng.random() >= careful[who]:
                label = usual[who] if rng.random() < 0.5 else rng.integers(n_classes)
            rows.append((text, who, label))
    old, new = order[:n], order[n : n + 2500]
    crowd = Annotations.from_triples(*np.array(rows).T, n_instances=n, n_annotators=annotators, n_classes=n_classes)
    return Labelled([known[found[k][0]] for k in old], truth[old], [known[found[k][0]] for k in new], truth[new], crowd)


SETS: dict[str, Callable[..., Labelled]] = {
    "sentiment": sentences,
    "sentiment, 300": partial(sentences, 300),
    "sentiment, 800": partial(sentences, 800),
    "sentiment, one in six": partial(sentences, rare=350),
    "sentiment, joined": joined,
    "made up, 2 classes": partial(made_up, 2, 60, 0.08),
    "made up, 5 classes": partial(made_up, 5, 120, 0.05),
    "made up, 5 classes, characters": partial(made_up, 5, 40, 0.06, characters=True),
    "made up, 5 unequal classes": partial(made_up, 5, 80, 0.08, shares=[0.45, 0.3, 0.15, 0.06, 0.04]),
    "made up, 20 classes": partial(made_up, 20, 80, 0.1, n=2000),
}
RATED: dict[str, Callable[..., Labelled]] = {
    "products, 3 classes": partial(rated, "amazonReviewSnippets", "sign", 1000, 5, 60),
    "products, one label": partial(rated, "amazonReviewSnippets", "sign", 1000, 1, 5),
    "products, very good or not": partial(rated, "amazonReviewSnippets", "good", 1000, 3, 5),
    "editorials, 3 classes": partial(rated, "nytEditorialSnippets", "sign", 1000, 3, 60),
    "editorials, bad or not": partial(rated, "nytEditorialSnippets", "bad", 1000, 5, 40),
    "tweets, 5 classes": partial(rated, "tweets", "five", 1500, 5, 100),
    "tweets, bad or not": partial(rated, "tweets", "bad", 1500, 3, 60),
    "tweets, 300": partial(rated, "tweets", "sign", 300, 3, 200),
    "tweets, 100": partial(rated, "tweets", "sign", 100, 3, 20),
    "films, 3000": partial(rated, "movieReviewSnippets", "five", 3000, 2, 200),
}
"""Those that need ``--ratings``."""


def calibration_error(truth: Array, probabilities: Array, bins: int = 15) -> float:
    """How far the most probable class's probability is from how often it is true, over bins of that probability."""
    sure, right = probabilities.max(1), probabilities.argmax(1) == truth
    place = np.minimum((bins * sure).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, sure - right)).sum() / len(truth))


def measure(name: str, seed: int) -> dict[str, Any]:
    """One record."""
    made = (SETS | RATED)[name](rng=np.random.default_rng(seed))
    model, figures = compared(made, seed, TfidfVectorizer(ngram_range=(1, 2)))
    words = round(float(np.mean([len(text.split()) for text in made.X])), 1)
    facts = {"texts": len(made.X), "words": words, "opinions": model.intake_.encoder.facts_.get("opinions")}
    return {"benchmark": "texts", "set": name, "seed": seed, "commit": commit(), **facts, **figures}


def compared(made: Labelled, seed: int, columns: Any) -> tuple[crowdwise.Concord, dict[str, Any]]:
    """Concord with plain defaults, logistic regression on what ``columns`` makes of X, and labels by votes alone."""
    crowd = made.annotations
    aggregated = HierarchicalDawidSkene(random_state=seed).fit(crowd)
    votes = MajorityVote(random_state=seed).fit(crowd)
    start, cpu = time.perf_counter(), time.process_time()
    model = crowdwise.Concord(random_state=seed, verbose=0).fit(made.X, crowd)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    regression = LogisticRegression(max_iter=1000).fit(columns.fit_transform(made.X), votes.labels_)
    by_regression = np.zeros((len(made.new), crowd.n_classes))
    by_regression[:, regression.classes_.astype(int)] = regression.predict_proba(columns.transform(made.new))

    def share(truth: Array, probabilities: Array) -> dict[str, float]:
        said = probabilities.argmax(1)
        return {
            "balanced": round(float(balanced_accuracy_score(truth, said)), 4),
            "accuracy": round(float(np.mean(truth == said)), 4),
            "calibration": round(calibration_error(truth, probabilities), 4),
        }

    return model, {
        "settings": "defaults",
        "classes": crowd.n_classes,
        "annotations": len(crowd.label),
        "rarest": int(np.bincount(made.truth).min()),
        "concord": share(made.new_truth, model.predict_proba(made.new)),
        "regression": share(made.new_truth, by_regression),
        "labels": share(made.truth, model.posterior_),
        "majority_vote": share(made.truth, votes.posterior_),
        "dawid_skene": share(made.truth, aggregated.posterior_),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=[*SETS, *RATED], default=None)
    parser.add_argument("--ratings", type=Path, help="vaderSentiment-0.5.zip, for the sets that people rated")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    RATINGS[:] = [] if chosen.ratings is None else [chosen.ratings]
    for name in chosen.sets or [*SETS, *(RATED if RATINGS else ())]:
        record = measure(name, chosen.seed)
        with RECORDS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
