"""Fit a short list of methods out of fold, judge them without the truth, and recommend one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from crowdwise import encoders
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.annotations import Annotations
from crowdwise.comparison.candidates import Candidate, LogisticRegression, choose_candidates
from crowdwise.comparison.fits import Encoding, Fit, Observer, Records, Task, fingerprint, make_folds, run_all
from crowdwise.comparison.judge import Yardstick, expectation, is_at_chance
from crowdwise.comparison.result import Comparison, Entry
from crowdwise.data.frames import is_frame
from crowdwise.data.matching import match
from crowdwise.data.types import Array
from crowdwise.engine.device import resolve_device
from crowdwise.engine.intake import is_sparse, numbers
from crowdwise.errors import ConfigError, DataError, TrainingError, shorten
from crowdwise.registry import AGGREGATORS

PREFERRED = "concord"
_FEW_GOLD = 50
_ERRORS = 2  # by which another must be ahead of Concord: the best of several is so by luck as well


def compare(
    X: Any,
    annotations: Any,
    *,
    ids: Any = None,
    methods: Iterable[str] | Mapping[str, Any] | None = None,
    gold: Any = None,
    folds: int = 5,
    seed: int = 0,
    seconds: float | None = 150.0,
    max_instances: int | None = 10_000,
    jobs: int | None = None,
    folder: str | Path | None = None,
    device: str = "auto",
    observer: Observer | None = None,
) -> Comparison:
    """Find out which method suits these instances and this crowd.

    Each method is fitted without one of ``folds`` parts of the labelled instances at a time, predicts that part, and is judged
    by its annotations: the share of labels that agree with the prediction, each label counting as much as its annotator is
    better than chance. ``ids`` are the ids of the rows of ``X``, as in ``fit``. ``gold`` (true classes of some instances: a
    mapping from instance ids, or values of all instances, None where not known) is used to judge only, never to train.

    ``methods`` are names, or a mapping from titles to names or to methods with parameters of your own; by default logistic
    regression on majority votes and on Dawid-Skene labels, CE, Concord, Max-MIG, GeoCrowdNet and TAIDTM. Every method is fitted
    at least once; further folds are left out where they would end after so many ``seconds``. More than ``max_instances``
    labelled instances are sampled. With a ``folder`` an interrupted comparison goes on where it stopped. ``jobs`` processes work
    at the same time, by joblib: 2 by default, 1 with a GPU; a ``joblib.parallel_config`` (for Ray, for instance) is respected.
    ``observer`` is called after every fit with it, the number of fits so far, and the number expected.

    >>> import numpy as np, crowdwise
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4))
    >>> votes = ((X[:, :1] > 0) ^ (rng.random((200, 3)) < 0.2)).astype(int)
    >>> found = crowdwise.compare(X, votes, methods=["logistic-majority-vote", "logistic-dawid-skene"], folds=2, jobs=1)
    >>> found.at_chance, found["logistic-dawid-skene"].folds
    (False, 2)
    """
    matched = match(encoders.opened_folder(X), annotations, ids)
    X, crowd = _indexable(encoders.opened(matched.X)), matched.annotations
    truth = None if gold is None else known_truth(gold, crowd)
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"seconds must be positive, or None for no limit, got {seconds!r}")
    rows, notes = _sample(crowd, truth, max_instances, seed)
    if not isinstance(folds, int) or folds < 2:
        raise ConfigError(f"folds must be a whole number of at least 2, got {folds!r}")
    if len(rows) < 2 * folds:
        raise DataError(f"{folds} folds need at least {2 * folds} instances to judge by, got {len(rows)}")
    candidates = choose_candidates(methods, _shape(X), seed, device)
    parts = make_folds(rows, folds, seed)
    tasks = make_tasks(X, crowd, candidates, rows, parts)
    about = {"version": 1, "data": fingerprint(X, crowd), "folds": folds, "seed": seed, "max_instances": max_instances}
    records = None if folder is None else Records(folder, about)
    jobs = jobs if jobs is not None else default_jobs(device)
    encode = Encoding(X, seed)
    fits = run_all(tasks, records=records, seconds=seconds, jobs=jobs, observer=observer, encode=encode)
    yardstick = Yardstick.from_annotations(crowd) if truth is None else Yardstick.from_gold(truth, crowd.n_classes)
    found = judge(crowd, candidates, parts, fits, yardstick, truth, notes, text=encoders.kind_of(X) == "text")
    if records is not None:
        found.save(records.folder)
    return found


def judge(
    crowd: Annotations,
    candidates: Sequence[Candidate],
    parts: Sequence[Array],
    fits: Sequence[Fit],
    yardstick: Yardstick,
    gold: Array | None,
    notes: Sequence[str] = (),
    text: bool = False,
) -> Comparison:
    """The comparison that fits amount to."""
    failed = {fit.method: fit.error for fit in fits if fit.error}
    names = [candidate.name for candidate in candidates if candidate.name not in failed]
    if not names:
        raise TrainingError(f"no method could be fitted; {next(iter(failed))}: {next(iter(failed.values()))}")
    predicted = {name: np.full(crowd.n_instances, -1) for name in names}
    for fit in fits:
        if fit.method in predicted:
            predicted[fit.method][parts[fit.fold]] = fit.predicted

    # methods with fewer folds are compared on those folds with one that has all of them
    full = max(names, key=lambda name: int((predicted[name] >= 0).sum()))
    total = yardstick.score(predicted[full]).value
    scores = {name: total + yardstick.difference(predicted[name], predicted[full]).value for name in names}
    best = max(names, key=lambda name: scores[name])
    entries = []
    for candidate in candidates:
        if candidate.name not in failed:
            own = [fit for fit in fits if fit.method == candidate.name]
            behind = yardstick.difference(predicted[best], predicted[candidate.name])
            excess = yardstick.beyond_chance(predicted[candidate.name], parts)
            entries.append(
                Entry(
                    candidate.name,
                    candidate.title,
                    scores[candidate.name],
                    yardstick.score(predicted[candidate.name]).error,
                    behind.value,
                    behind.error,
                    is_at_chance(excess, len(names)),
                    len(own),
                    float(np.mean([fit.seconds for fit in own])),
                    tuple(dict.fromkeys(text for fit in own for text in fit.warnings)),
                )
            )
    ranked = tuple(sorted(entries, key=lambda entry: -entry.score))
    recommended, reason = recommend(ranked, simplest=entries[0])
    chosen = next(candidate for candidate in candidates if candidate.name == recommended.method)
    n_judged = int(((yardstick.weight > 0) & (predicted[full] >= 0)).sum())
    if gold is not None and n_judged < _FEW_GOLD:
        notes = [*notes, f"Only {n_judged} instances have gold labels: differences below the errors above mean little."]
    return Comparison(
        ranked,
        failed,
        recommended.method,
        reason,
        expectation(crowd, predicted[recommended.method], gold),
        next_line(chosen, text),
        yardstick.gold,
        n_judged,
        tuple(notes),
    )


def recommend(ranked: Sequence[Entry], simplest: Entry) -> tuple[Entry, str]:
    """Which method to use, and why: Concord where it is as good as any, else the best; the simplest where none learns."""
    best = ranked[0]
    if all(entry.at_chance for entry in ranked):
        return simplest, (
            "No method does better than chance on instances it has not seen. Check that the rows of X belong to the annotated "
            "instances, and whether X can tell the classes apart at all. Until then more than the simplest method is a waste: "
            f"{simplest.title}."
        )
    preferred = next((entry for entry in ranked if entry.method == PREFERRED and not entry.at_chance), None)
    if preferred is None or preferred is best:
        return best, f"Recommended: {best.title}, which has the highest score."
    if preferred.behind <= _ERRORS * preferred.behind_error:
        return preferred, (
            f"Recommended: {preferred.title}. {best.title} scores {100 * preferred.behind:.1f} points higher, which is within "
            "two standard errors."
        )
    return best, (
        f"Recommended: {best.title}. It scores {100 * preferred.behind:.1f} ± {100 * preferred.behind_error:.1f} points higher "
        f"than {preferred.title}."
    )


def next_line(candidate: Candidate, text: bool = False) -> str:
    """The line of Python that trains the recommended method on everything, which are texts or not."""
    if not isinstance(candidate.model, LogisticRegression):
        return f"model = crowdwise.{clone(candidate.model).set_params(verbose=1)!r}.fit(X, annotations)"
    labels = f"crowdwise.aggregation.{AGGREGATORS[candidate.model.aggregator].__name__}().fit_predict(annotations)"
    first = "TfidfVectorizer" if text else "StandardScaler"
    return f"model = make_pipeline({first}(), LogisticRegression()).fit(X, {labels})"


def make_tasks(
    X: Any, crowd: Annotations, candidates: Sequence[Candidate], rows: Array, parts: Sequence[Array]
) -> list[Task]:
    """Every candidate without every part: fold by fold, those that take longest first."""
    labelled = rows[crowd.labels_per_instance[rows] > 0]
    return [
        Task(X, crowd, candidate, fold, np.setdiff1d(labelled, test), test)
        for fold, test in enumerate(parts)
        for candidate in reversed(candidates)
    ]


def known_truth(gold: Any, crowd: Annotations) -> Array:
    """Codes of true classes, -1 where they are not known: (n,). Unlike labels to learn from, all of them must have rows."""
    if isinstance(gold, Mapping):
        unknown = set(gold).difference(crowd.instances.tolist())
        if unknown:
            raise DataError(
                f"gold has instances without a row in X: {shorten([key for key in gold if key in unknown], 8)}"
            )
    codes = gold_codes(crowd, gold)
    if codes is None or not (codes >= 0).any():
        raise DataError("gold has no class for any instance")
    return codes


def default_jobs(device: str) -> int:
    """Two processes, or one where all of them would share a GPU."""
    return 1 if resolve_device(device).type == "cuda" else min(2, os.cpu_count() or 1)


def _sample(crowd: Annotations, gold: Array | None, most: int | None, seed: int) -> tuple[Array, list[str]]:
    """Instances with labels or gold, at most so many; those with gold come first."""
    labelled = crowd.labels_per_instance > 0
    usable = labelled if gold is None else labelled | (gold >= 0)
    rows = np.flatnonzero(usable)
    if most is None or len(rows) <= most:
        return rows, []
    first = np.random.default_rng(seed).permutation(rows)
    if gold is not None:
        first = first[np.argsort(gold[first] < 0, kind="stable")]
    note = f"{most:,} of {len(rows):,} instances were drawn for the comparison."
    return np.sort(first[:most]), [note]


def _indexable(X: Any) -> Any:
    """X in a form whose rows can be taken."""
    if encoders.kind_of(X) != "numbers" or is_sparse(X) or hasattr(X, "detach") or isinstance(X, np.ndarray):
        return X
    if is_frame(X):
        return numbers(X)
    return np.asarray(X) if isinstance(X, list | tuple) or hasattr(X, "__array__") else X


def _shape(X: Any) -> tuple[int, ...]:
    kind = encoders.kind_of(X)
    if kind != "numbers":
        return (3, 64, 64) if kind == "pictures" else (1,)
    return tuple(X.shape[1:]) if hasattr(X, "shape") else tuple(np.shape(X[0]))
