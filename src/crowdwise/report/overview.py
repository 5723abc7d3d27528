"""The first section of a report: sizes, agreement, the method compared with majority vote, and warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise import agreement
from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.errors import spelled
from crowdwise.figures import SPAMMER, Verdict
from crowdwise.readers import MODEL
from crowdwise.report.analysis import Analysis
from crowdwise.report.limits import number

RESAMPLES = 200  # for the intervals of agreement
KRIPPENDORFF = "Krippendorff's alpha"
LARGE = 500_000  # labels; no intervals above that
HURRIED = 0.25  # of the crowd's median seconds per label
NAMED = 5  # names in a list


def overview(analysis: Analysis, rows: Sequence[dict[str, Any]], *, seed: int = 0) -> dict[str, Any]:
    """Plain data for the first section; ``rows`` are those of the annotators."""
    crowd = analysis.source.annotations
    measured = _agreement(analysis, seed)
    votes = analysis.worth.votes
    labelled = crowd.labels_per_instance > 0
    counts = np.bincount(analysis.label[labelled | (len(crowd) == 0)], minlength=crowd.n_classes)
    given = np.bincount(crowd.label, minlength=crowd.n_classes)
    confidence = analysis.posterior.max(axis=1, initial=0)[labelled | (len(crowd) == 0)]
    histogram = np.histogram(confidence, bins=20, range=(0, 1))[0]
    return {
        "message": analysis.source.message,
        "labelled": votes.labelled,
        "sizes": _sizes(analysis),
        "agreement": measured,
        "method": {"name": analysis.method, "reason": analysis.reason, "differs": votes.differing, "tied": votes.tied},
        "accuracy": _accuracy(analysis),
        "facts": dict(analysis.source.facts),
        "warnings": _warnings(analysis, rows, measured),
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
    if analysis.evidence.kind not in ("labels", "chance", "models"):
        return []
    resamples = RESAMPLES if len(crowd) <= LARGE else 0
    report = agreement.report(crowd, ordered=analysis.source.ordered, n_bootstrap=resamples, random_state=seed)
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
    """Right labels on instances with known truth, ties shared: of the method, of majority vote, of the classifier."""
    found, votes = analysis.worth.measured, analysis.worth.majority
    every = {analysis.method: found}
    every.setdefault("majority-vote", votes)
    if analysis.predicted is not None:
        every["the classifier alone"] = analysis.measured(analysis.predicted)
    return [
        {"name": name, "share": each.share, "low": each.low, "high": each.high, "known": each.items}
        for name, each in every.items()
        if each is not None
    ]


def _warnings(analysis: Analysis, rows: Sequence[dict[str, Any]], measured: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader should know before trusting the figures."""
    crowd = analysis.source.annotations
    found: list[str] = list(analysis.warnings)
    if not len(crowd):
        return [
            *found,
            f"The labels are missing: pass {spelled('annotations', 'FILE')} to see annotators and agreement.",
        ]
    labelled = analysis.worth.votes.labelled
    if not analysis.comparable:
        return [*found, analysis.evidence.sentence, *_oddities(crowd)]
    alphas = [row for row in measured if row["measure"].startswith("Krippendorff")]
    scale = analysis.worth.scale
    if scale is not None:
        alphas = [row for row in alphas if "ordinal" in row["measure"]] or alphas
        found.append(f"The classes are ordered ({scale.reason}): {scale}.")
    alpha = alphas[0]["value"] if alphas else math.nan
    name = f"{alphas[0]['measure'] if scale is not None else KRIPPENDORFF} {alpha:.2f}" if alphas else ""
    if alpha < 0.4:
        found.append(
            f"Annotators agree little ({name}, where 1 is perfect and 0 is chance). "
            "The task may be hard, or its instructions unclear."
        )
    elif alpha < 0.667:
        found.append(
            f"Annotators agree moderately ({name}); conclusions are commonly called tentative "
            "from 0.667 on, and reliable from 0.8 on."
        )
    if analysis.worth.contradicted:
        found.append(analysis.worth.why)
    single = int(np.count_nonzero(crowd.labels_per_instance == 1))
    tied = analysis.worth.votes.tied
    if single > 0.1 * labelled:
        found.append(f"{single:,} of {labelled:,} items have a single label, so errors in them cannot be detected.")
    if tied > 0.05 * labelled:
        found.append(f"{tied:,} of {labelled:,} items are tied in a majority vote.")
    return [*found, *_oddities(crowd), *_annotator_warnings(rows)]


def _oddities(crowd: Annotations) -> list[str]:
    """What is unusual about the file, whatever its labels are worth."""
    found = []
    if crowd.n_duplicates:
        found.append(f"{count(crowd.n_duplicates, 'labels')} by annotators who had already labelled the item.")
    silent = [str(name) for name in crowd.annotators[crowd.labels_per_annotator == 0]]
    if silent:
        found.append(f"{listed(silent)} gave no label.")
    unseen = [str(name) for name in crowd.classes[np.bincount(crowd.label, minlength=crowd.n_classes) == 0]]
    if unseen:
        found.append(f"Nobody chose {listed(unseen)}.")
    return found


def _annotator_warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    spam = [row["name"] for row in rows if row.get("verdict") == Verdict.STOP and row.get("spammer", 0) > SPAMMER]
    if spam:
        verb = "labels" if len(spam) == 1 else "label"
        found.append(f"{listed(spam)} {verb} almost independently of the item: check these labels.")
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
