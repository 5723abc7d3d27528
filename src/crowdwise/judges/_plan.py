"""How many gold labels an estimate needs, and whether predictions are worth their price."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy import stats

from crowdwise.constraints import Interval, NonNegativeFloat, NonNegativeInt, OpenProbability, PositiveFloat, checked
from crowdwise.errors import UsageError

Correlation = Annotated[float, Interval(-1, 1)]
MOST = 1 << 62  # gold labels


@dataclass(frozen=True)
class Plan:
    """How many gold labels to collect."""

    n_gold: int
    """Instances to label by hand."""
    n_labels: int
    """Further instances with a label of the model."""
    width: float
    """Width of the interval to expect."""
    cost: float
    effective_n: float
    """Gold labels that would do as much without the model."""
    cost_gold_only: float
    """Of an interval as narrow, from gold labels alone."""
    use_model: bool
    """Whether the model's labels are worth their price."""

    def __str__(self) -> str:
        gold = f"{self.n_gold:,} gold labels (cost {self.cost:,.0f} with the model)"
        alone = f"{self.effective_n:,.0f} without it"
        verdict = f"instead of {alone}" if self.use_model else f"do no better than {alone}: use people only"
        return f"{gold} {verdict} (cost {self.cost_gold_only:,.0f}); width {self.width:.3f}"


@checked
def plan(
    correlation: Correlation,
    N: NonNegativeInt,
    *,
    cost_gold: PositiveFloat = 1.0,
    cost_label: NonNegativeFloat = 0.0,
    width: PositiveFloat | None = None,
    budget: PositiveFloat | None = None,
    deviation: PositiveFloat = 0.5,
    level: OpenProbability = 0.95,
) -> Plan:
    """How many gold labels an interval of a ``width`` needs, or how narrow one a ``budget`` buys.

    ``correlation`` is that of truth and prediction, ``N`` the number of instances that have a prediction only, each for
    ``cost_label``, and ``deviation`` the standard deviation of what is estimated (0.5 is the most a share can have). The
    variance of an estimate from n gold labels is deviation^2 / n (1 - correlation^2 N / (n + N)).

    >>> print(plan(0.8, 5000, cost_gold=1.0, cost_label=0.01, width=0.1))
    146 gold labels (cost 196 with the model) instead of 386 without it (cost 386); width 0.100
    """
    if (width is None) == (budget is None):
        raise UsageError("pass either width or budget", parameter="width")
    z = float(stats.norm.ppf(0.5 + level / 2))

    def reached(n: int) -> float:
        return float(2 * z * deviation * np.sqrt((1 - correlation**2 * N / (n + N)) / n))

    if budget is not None:
        n = int((budget - N * cost_label) / cost_gold)
        if n < 2:
            raise UsageError(
                f"a budget of {budget:g} leaves {max(n, 0)} gold labels after {N:,} labels of the model; 2 or more are needed",
                parameter="budget",
            )
    else:
        n = bisect_left(range(MOST), True, lo=2, key=lambda n: reached(n) <= width)  # type: ignore[operator]
    effective = n / (1 - correlation**2 * N / (n + N)) if correlation**2 < 1 or n + N > N else float("inf")
    cost, alone = n * cost_gold + N * cost_label, effective * cost_gold
    return Plan(n, N, float(reached(n)), float(cost), float(effective), float(alone), bool(cost < alone))
