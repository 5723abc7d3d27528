"""The section of a report on models and people."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crowdwise import judges
from crowdwise.readers import MODEL
from crowdwise.report.analysis import Analysis, with_warnings
from crowdwise.report.limits import number

SHOWN = 30  # models


def models(analysis: Analysis, *, seed: int = 0) -> dict[str, Any]:
    """How models compare with people and with each other; empty without models."""
    source = analysis.source
    crowd, kinds = source.annotations, source.kinds
    if kinds is None or not (kinds == MODEL).any() or not len(crowd):
        return {}
    busiest = np.argsort(-crowd.labels_per_annotator, kind="stable")
    shown = [int(code) for code in busiest if kinds[code] == MODEL][:SHOWN]
    names = [crowd.annotator_vocabulary.arrow[code].as_py() for code in sorted(shown)]
    gold = source.gold
    people = (kinds != MODEL)[crowd.annotator]
    others = np.isin(crowd.annotator, shown)
    found, warned = with_warnings(
        lambda: judges.summary(crowd.where(people | others), gold, models=names, random_state=seed)
    )
    return {
        "rows": [
            {
                "name": str(model.model),
                "labels": model.n_labels,
                "people": None if model.people is None else str(model.people),
                "gold": None if model.gold is None else str(model.gold),
                "wins": model.winning_rate,
                "good": model.advantage,
                "passed": model.passed,
                "verdict": model.verdict,
            }
            for model in found.models
        ],
        "total": int((kinds == MODEL).sum()),
        "epsilon": found.epsilon,
        "votes": found.votes,
        "advice": [*found.advice, *warned],
        "alike": _alike(found),
    }


def _alike(found: judges.JudgedModels) -> dict[str, Any] | None:
    """Correlations of errors, with the strength of their colour; None where there are none."""
    if found.dependence is None or math.isnan(found.dependence.mean_correlation):
        return None
    table = found.dependence.correlation
    return {
        "names": [str(name) for name in found.dependence.annotators],
        "rows": [
            [None if math.isnan(r) else {"r": number(r, 2), "share": round(100 * abs(r))} for r in row] for row in table
        ],
    }
