"""All measures of one crowd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crowdwise.agreement import _measures as of
from crowdwise.agreement._measures import Level, measured
from crowdwise.agreement._result import Agreement, Report
from crowdwise.agreement._scales import Ordered, scale_of
from crowdwise.agreement._values import Values
from crowdwise.agreement._votes import Bootstrap, Votes
from crowdwise.annotations import Annotations
from crowdwise.data.types import RandomState


def report(
    annotations: Any,
    *,
    levels: Sequence[Level] = ("nominal",),
    values: Values | None = None,
    ordered: Ordered = "auto",
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    random_state: RandomState = None,
) -> Report:
    """All measures of a crowd in a small table, with Krippendorff's alpha at each of ``levels``.

    If the classes are ordered, by `scale_of` with ``ordered``, the table also has ordinal alpha and Cohen's kappa with
    quadratic weights. ``values`` takes the place of the numbers of that scale.

    >>> print(report([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 0, 1]], n_bootstrap=0))
    Annotations(4 instances, 3 annotators, 2 classes, 12 annotations)
    4 with two or more labels
                                     value   95% interval
    raw agreement                    0.667       -      -
    Krippendorff's alpha (nominal)   0.389       -      -
    Fleiss' kappa                    0.333       -      -
    Scott's pi                       0.333       -      -
    Cohen's kappa                    0.385       -      -
    Gwet's AC1                       0.333       -      -
    """
    crowd = Annotations.coerce(annotations)
    votes, bootstrap = Votes.of(crowd), Bootstrap(n_bootstrap, confidence, random_state)
    scale = scale_of(crowd, ordered)
    weighted: list[Agreement] = []
    if scale is not None:
        values = scale.values if values is None else values
        levels = levels if "ordinal" in levels else [*levels, "ordinal"]
        weighted = [of.cohen(crowd, votes, bootstrap, "quadratic", values)]
    alphas = [measured(of.alpha_name(x), votes, of.alpha_statistic(crowd, votes, x, values), bootstrap) for x in levels]
    rows = (
        measured(of.RAW, votes, of.raw_statistic(votes), bootstrap),
        *alphas,
        measured(of.FLEISS, votes, of.fleiss_statistic(votes), bootstrap),
        measured(of.SCOTT, votes, of.scott_statistic(votes), bootstrap),
        of.cohen(crowd, votes, bootstrap),
        *weighted,
        measured(of.GWET, votes, of.gwet_statistic(votes), bootstrap),
    )
    return Report(repr(crowd), votes.n_pairable, rows, scale)
