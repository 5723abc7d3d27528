"""Whether a model changed between versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from crowdwise.agreement import Bootstrap
from crowdwise.constraints import NonNegativeInt, OpenProbability, checked
from crowdwise.data.shares import holm, wilson
from crowdwise.data.types import Ints
from crowdwise.errors import ConfigError, DataError
from crowdwise.judges._people import Sides, likeliest, reference_of

FEW_FLIPS = 1_000  # labels that differ, up to which p-values come from exchanging labels
EXCHANGES = 10_000
BATCH = 500  # exchanges at a time


@dataclass(frozen=True, eq=False)
class Drift:
    """Result of `drift`."""

    table: pa.Table
    """A row per change of version: model, before, after, n_common, flip_rate, low, high, shares_p (of equal class shares),
    n_reference, accuracy_before, accuracy_after, accuracy_p (McNemar's exact test), kappa_before, kappa_after, kappa_low,
    kappa_high (interval of their difference), p_value (the smaller of the two tests, times their number), p_adjusted
    (Holm, over all changes)."""
    reference: str | None
    """What right and wrong are measured against; None for nothing."""

    def __str__(self) -> str:
        lines = []
        for row in self.table.to_pylist():
            verdict = "changed" if row["p_adjusted"] is not None and row["p_adjusted"] < 0.05 else "no change shown"
            right = ""
            if row["n_reference"]:
                right = f", right {row['accuracy_before']:.1%} before and {row['accuracy_after']:.1%} after"
            lines.append(
                f"{row['model']}: {row['before']} -> {row['after']}: {verdict}; {row['flip_rate']:.1%} of "
                f"{row['n_common']:,} labels differ [{row['low']:.1%}, {row['high']:.1%}]{right}"
            )
        return "\n".join(lines)


@checked
def drift(
    annotations: Any,
    gold: Any = None,
    *,
    pairs: Sequence[Any] | None = None,
    models: Any = None,
    kinds: Any = None,
    level: OpenProbability = 0.95,
    n_bootstrap: NonNegativeInt = 500,
    random_state: int | np.random.Generator | None = 0,
) -> Drift:
    """How labels of the same instances differ between versions of a model.

    Versions are annotators called ``model@version``, compared in order of their first label, or the ``pairs`` (before,
    after) of ids. With gold labels, or people among the annotators, also who is right more often.

    >>> labels = {"item": list(range(50)) * 2, "worker": ["m@1"] * 50 + ["m@2"] * 50, "label": [0, 1] * 25 + [1] * 50}
    >>> print(drift(labels))
    m: m@1 -> m@2: changed; 50.0% of 50 labels differ [36.6%, 63.4%]
    """
    sides = Sides.of(annotations, models, kinds, need=False)
    compared = _versions(sides) if pairs is None else [(str(after), before, after) for before, after in pairs]
    ids = {sides.name(code): code for code in range(sides.crowd.n_annotators)}
    unknown = [one for _, *both in compared for one in both if one not in ids]
    if unknown:
        raise ConfigError(f"no annotator is called {unknown[0]!r}", parameter="pairs")
    if not compared:
        raise DataError("no model has two versions: call annotators model@version, or pass pairs", parameter="pairs")
    involved = {ids[one] for _, *both in compared for one in both}
    sides = Sides(sides.crowd, sides.models, np.setdiff1d(sides.people, [*involved]))
    truth, source = None, None
    if gold is not None or sides.people.size:
        reference, source = reference_of(sides, gold)
        truth = likeliest(reference)
    rng = np.random.default_rng(random_state)
    rows = []
    for model, before, after in compared:
        one, other = (sides.labels_of(ids[name], rng) for name in (before, after))
        row = {"model": model, "before": before, "after": after}
        rows.append(row | _compared(one, other, truth, sides.crowd.n_classes, level, n_bootstrap, rng))
    adjusted = holm(np.array([row["p_value"] for row in rows], np.float64))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return Drift(pa.table(columns | {"p_adjusted": pa.array(adjusted, mask=np.isnan(adjusted))}), source)


def _versions(sides: Sides) -> list[tuple[str, Any, Any]]:
    """(model, before, after) of annotators called model@version, in order of appearance."""
    versions: dict[str, list[Any]] = {}
    for code in sides.models if sides.models.size else range(sides.crowd.n_annotators):
        name = sides.name(int(code))
        if isinstance(name, str) and "@" in name:
            versions.setdefault(name.rpartition("@")[0], []).append(name)
    return [(model, before, after) for model, names in versions.items() for before, after in pairwise(names)]


def _compared(
    one: Ints, other: Ints, truth: Ints | None, classes: int, level: float, times: int, rng: np.random.Generator
) -> dict[str, Any]:
    both = np.flatnonzero((one >= 0) & (other >= 0))
    a, b = one[both], other[both]
    flips = int(np.count_nonzero(a != b))
    low, high = wilson(flips, len(both), level)
    shares_p = _equal_shares(a, b, rng)
    row: dict[str, Any] = {
        "n_common": len(both),
        "flip_rate": flips / len(both) if len(both) else float("nan"),
        "low": float(low),
        "high": float(high),
        "shares_p": shares_p,
    }
    names = ["accuracy_before", "accuracy_after", "accuracy_p"]
    names += ["kappa_before", "kappa_after", "kappa_low", "kappa_high"]
    row |= {"n_reference": 0, **dict.fromkeys(names)}
    tests = [shares_p]
    if truth is not None and np.any(truth[both] >= 0):
        known = truth[both] >= 0
        a, b, y = a[known], b[known], truth[both][known]
        better, worse = int(np.sum((a != y) & (b == y))), int(np.sum((a == y) & (b != y)))
        p = float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
        drawn = rng.integers(0, len(y), (times, len(y)))
        kappas = _kappa(a, y, classes), _kappa(b, y, classes)
        ends: tuple[Any, Any] = None, None
        if times:
            gains = np.array([_kappa(b[k], y[k], classes) - _kappa(a[k], y[k], classes) for k in drawn])
            value, n = np.asarray(kappas[1] - kappas[0]), np.asarray(len(y), np.float64)
            ends = Bootstrap(times, level, None).interval(gains, value, n)
        found = (np.mean(a == y), np.mean(b == y), p, *kappas, *ends)
        row |= {"n_reference": len(y)} | {
            name: None if value is None else float(value) for name, value in zip(names, found, strict=True)
        }
        tests.append(p)
    made = [one for one in tests if one is not None]
    return row | {"p_value": min(1.0, len(made) * min(made)) if made else None}


def _equal_shares(a: Ints, b: Ints, rng: np.random.Generator) -> float | None:
    """P-value of equal class shares of paired labels (Stuart's statistic); None if there is nothing to test.

    If nothing changed, the two labels of an instance could as well change places. Up to `FEW_FLIPS` labels that differ, the
    p-value is the share of random exchanges with a statistic as large as the observed one; it is exact with two classes.
    Beyond that, the statistic has a chi-square distribution.
    """
    if len(a) < 2:
        return None
    differ = a != b
    before, after = a[differ], b[differ]
    used, codes = np.unique(np.concatenate([before, after]), return_inverse=True)
    if len(used) == 2:
        return float(stats.binomtest(int(np.sum(before == used[0])), len(before)).pvalue)
    change = np.zeros((len(before), len(used)))  # +1 for the class before, -1 for the one after
    rows = np.arange(len(before))
    change[rows, codes[: len(before)]] = 1.0
    change[rows, codes[len(before) :]] = -1.0
    total = change.sum(axis=0)
    if not total.any():
        return 1.0
    inverse = np.linalg.pinv(change.T @ change)  # exchanges do not change it
    observed = float(total @ inverse @ total)
    if len(before) > FEW_FLIPS:
        return float(stats.chi2.sf(observed, np.linalg.matrix_rank(inverse)))
    as_large = 0
    for _ in range(EXCHANGES // BATCH):
        drawn = rng.choice([-1.0, 1.0], (BATCH, len(before))) @ change
        as_large += int(np.sum(np.einsum("bc,cd,bd->b", drawn, inverse, drawn) >= observed * (1 - 1e-9)))
    return (as_large + 1) / (EXCHANGES + 1)


def _kappa(a: Ints, b: Ints, classes: int) -> float:
    """Cohen's kappa."""
    one, other = (np.bincount(x, minlength=classes) / max(len(x), 1) for x in (a, b))
    chance = float(one @ other)
    return (float(np.mean(a == b)) - chance) / (1 - chance) if chance < 1 else float("nan")
