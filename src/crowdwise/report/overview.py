"""The first section of a report: sizes, agreement, the method compared with majority vote, and warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise import agreement
from crowdwise.data.codes import count
from crowdwise.errors import spelled
from crowdwise.readers import MODEL
from crowdwise.report.analysis import Analysis
from crowdwise.report.limits import number

RESAMPLES = 200  # for the intervals of agreement
LARGE = 500_000  # labels; no intervals above that
SPAMMER, SPAM_LABELS = 0.9, 10
HURRIED = 0.25  # of the crowd's median seconds per label
NAMED = 5  # names in a list
OVERCONFIDENT = 0.02  # predicted minus measured accuracy that earns a warning


def overview(analysis: Analysis, rows: Sequence[dict[str, Any]], *, seed: int = 0) -> dict[str, Any]:
    """Plain data for the first section; ``rows`` are those of the annotators."""
    crowd = analysis.source.annotations
    measured = _agreement(analysis, seed)
    votes = crowd.votes()
    most = votes.max(axis=1, initial=0)
    labelled = crowd.labels_per_instance > 0
    tied = int(np.count_nonzero(((votes == most[:, None]).sum(axis=1) > 1) & labelled))
    differs = int(np.count_nonzero((analysis.label != analysis.majority) & labelled))
    counts = np.bincount(analysis.label[labelled | (len(crowd) == 0)], minlength=crowd.n_classes)
    given = np.bincount(crowd.label, minlength=crowd.n_classes)
    confidence = analysis.posterior.max(axis=1, initial=0)[labelled | (len(crowd) == 0)]
    histogram = np.histogram(confidence, bins=20, range=(0, 1))[0]
    return {
        "message": analysis.source.message,
        "labelled": int(np.count_nonzero(labelled)),
        "sizes": _sizes(analysis),
        "agreement": measured,
        "method": {"name": analysis.method, "reason": analysis.reason, "differs": differs, "tied": tied},
        "accuracy": _accuracy(analysis),
        "facts": dict(analysis.source.facts),
        "warnings": _warnings(analysis, rows, measured, tied),
        "classes": {
            "consensus": (counts / max(counts.sum(), 1)).round(4).tolist(),
            "labels": (given / max(given.sum(), 1)).round(4).tolist(),
        },
        "confidence": histogram.tolist() if analysis.comparable else [],
    }


def _sizes(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Number, what it counts, and a comment."""
    crowd, kinds = analysis.source.annotations, analysis.source.kinds
    n, people, labels = crowd.n_instances, int(np.count_nonzero(crowd.labels_per_annotator)), len(crowd)
    unlabelled, models = int(np.count_nonzero(crowd.labels_per_instance == 0)), int(np.sum(kinds == MODEL))
    sizes = [(n, "items", f"{unlabelled:,} without labels" if unlabelled and labels else "")]
    if labels:
        each = f"{labels / max(people, 1):,.1f} labels each"
        sizes.append((people, "annotators", f"{each}; {count(models, 'models')} among them" if models else each))
        sizes.append((labels, "labels", f"{labels / max(n - unlabelled, 1):.1f} per item"))
    sizes.append((crowd.n_classes, "classes", ""))
    return [(f"{number:,}", count(number, what).partition(" ")[2], remark) for number, what, remark in sizes]


def _agreement(analysis: Analysis, seed: int) -> list[dict[str, Any]]:
    """Measures with their intervals; none if no instance has two labels."""
    crowd = analysis.source.annotations
    if not len(crowd) or not analysis.comparable or crowd.n_classes < 2:
        return []
    resamples = RESAMPLES if len(crowd) <= LARGE else 0
    report = agreement.report(crowd, n_bootstrap=resamples, random_state=seed)
    return [
        {
            "measure": row.measure,
            "value": number(row.value),
            "low": number(row.interval[0]),
            "high": number(row.interval[1]),
        }
        for row in report.rows
        if not math.isnan(row.value)
    ]


def _accuracy(analysis: Analysis) -> list[dict[str, Any]]:
    """Accuracy on instances with known truth: of the method, of majority vote, of the classifier."""
    truth = analysis.source.truth
    if truth is None or not (truth >= 0).any():
        return []
    known, labels = int(np.count_nonzero(truth >= 0)), {analysis.method: analysis.label}
    if len(analysis.source.annotations):
        labels.setdefault("majority-vote", analysis.majority)
    if analysis.predicted is not None:
        labels["the classifier alone"] = np.asarray(analysis.predicted.argmax(axis=1))
    return [{"name": name, "share": analysis.accuracy(found), "known": known} for name, found in labels.items()]


def _warnings(
    analysis: Analysis, rows: Sequence[dict[str, Any]], measured: Sequence[dict[str, Any]], tied: int
) -> list[str]:
    """What a reader should know before trusting the figures."""
    crowd = analysis.source.annotations
    found: list[str] = list(analysis.warnings)
    if not len(crowd):
        return [
            *found,
            f"The labels are missing: pass {spelled('annotations', 'FILE')} to see annotators and agreement.",
        ]
    labelled = max(int(np.count_nonzero(crowd.labels_per_instance)), 1)
    alpha = next((row["value"] for row in measured if row["measure"].startswith("Krippendorff")), None)
    if crowd.n_classes < 2:
        found.append("All labels are the same class, so there is nothing to compare.")
    elif alpha is None:
        found.append("No item has labels of two annotators, so agreement and annotators' errors cannot be estimated.")
    elif alpha < 0.4:
        found.append(
            f"Annotators agree little (Krippendorff's alpha {alpha:.2f}, where 1 is perfect and 0 is chance). "
            "The task may be hard, or its instructions unclear."
        )
    elif alpha < 0.667:
        found.append(
            f"Annotators agree moderately (Krippendorff's alpha {alpha:.2f}); conclusions are commonly called tentative "
            "from 0.667 on, and reliable from 0.8 on."
        )
    right = analysis.accuracy(analysis.label)
    if right is not None and analysis.comparable:
        known = analysis.source.truth >= 0  # type: ignore[operator]
        promised = float(analysis.posterior[known].max(axis=1).mean())
        if promised - right > OVERCONFIDENT:
            found.append(
                f"The probabilities are too high: on items with known truth they predict that {promised:.1%} of the "
                f"labels are right, but {right:.1%} are."
            )
    single = int(np.count_nonzero(crowd.labels_per_instance == 1))
    if alpha is not None and single > 0.1 * labelled:
        found.append(f"{single:,} of {labelled:,} items have only one label, which nothing can correct.")
    if tied > 0.05 * labelled:
        found.append(f"{tied:,} of {labelled:,} items are tied in a majority vote.")
    if crowd.n_duplicates:
        found.append(f"{count(crowd.n_duplicates, 'labels')} by annotators who had already labelled the item.")
    silent = [str(name) for name in crowd.annotators[crowd.labels_per_annotator == 0]]
    if silent:
        found.append(f"{listed(silent)} gave no label.")
    unseen = [str(name) for name in crowd.classes[np.bincount(crowd.label, minlength=crowd.n_classes) == 0]]
    if unseen:
        found.append(f"Nobody chose {listed(unseen)}.")
    found += _annotator_warnings(rows)
    return found


def _annotator_warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    spam = [row["name"] for row in rows if row.get("spammer", 0) > SPAMMER and row["labels"] >= SPAM_LABELS]
    if spam:
        found.append(f"The labels of {listed(spam)} hardly depend on the item: check them before you use them.")
    pace = [row["seconds"] for row in rows if row.get("seconds")]
    if len(pace) >= 3:
        usual = float(np.median(pace))
        fast = [row["name"] for row in rows if row.get("seconds") is not None and row["seconds"] < HURRIED * usual]
        if fast:
            found.append(f"{listed(fast)} took less than a quarter of the usual {usual:.1f} s per label.")
    worse = [row["name"] for row in rows if row.get("driftHigh", 0) is not None and row.get("driftHigh", 0) < 0]
    if worse:
        found.append(f"{listed(worse)} became less reliable over time.")
    return found


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """The first names, and how many more.

    >>> listed(["ann", "bob"])
    '“ann” and “bob”'
    """
    quoted = [f"“{name}”" for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(quoted)} and {len(names) - most:,} more"
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
