"""How far annotators err alike, and how many independent votes they are worth."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from crowdwise.aggregation import HierarchicalDawidSkene
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.dependence import MOST, SHRINKAGE, error_correlations
from crowdwise.annotations import Annotations
from crowdwise.constraints import PositiveInt, checked
from crowdwise.data.types import Floats, Ints, Mask
from crowdwise.errors import CrowdwiseWarning, DataError
from crowdwise.judges._joint_errors import against_each_other, against_others
from crowdwise.judges._people import FEW, Models, Sides, likeliest, reference_of

PARTS = 20  # of the instances, each left out once for a standard error
CERTAIN = 2.33  # standard errors from 0, for a chance of 1 in 100 if errors of the reference were known
REDUNDANT = 1.2  # votes below which a group adds next to nothing to one of its members


@dataclass(frozen=True, eq=False)
class Dependence:
    """Result of `dependence`: annotator k is ``annotators[k]``."""

    annotators: list[Any]
    """Ids of those compared, (K,)."""
    correlation: Floats
    """Correlation of errors, (K, K), shrunk towards 0; NaN for pairs with too few instances in common."""
    pairs: pa.Table
    """A row per pair: first, second, n_common, correlation, both_wrong, same_wrong (of these, with the same label)."""
    groups: pa.Table
    """A row per group: group, n_annotators, mean_correlation, effective_votes."""
    mean_correlation: float
    """Over all pairs that have one; NaN where none has."""
    effective_votes: float
    """Number of independent annotators that all of them are worth: K / (1 + (K - 1) mean correlation)."""
    weights: Floats
    """Weights (K,) of the vote with the smallest error variance, none below 0, that sum to 1."""
    reference: str
    """What errors are measured against: gold, people, or what was given."""
    n: int
    """Instances with a reference and a label of one of them."""
    error: float = float("nan")
    """Standard error of the mean correlation; NaN where annotators are compared with each other."""

    @property
    def beyond_chance(self) -> bool:
        """Whether independent annotators would hardly ever have a mean correlation as large.

        It must be `CERTAIN` standard errors above 0, as doubts of people about the right label are seen in part only.
        """
        return not self.mean_correlation <= CERTAIN * self.error

    def __str__(self) -> str:
        k = len(self.annotators)
        return (
            f"{k} annotators count as {self.effective_votes:.1f} votes: their errors have a mean correlation of "
            f"{self.mean_correlation:.2f} (against {self.reference}, {self.n:,} instances)"
        )


@checked
def dependence(
    annotations: Any,
    reference: Any = None,
    groups: Mapping[Any, Any] | Callable[[Any], Any] | None = None,
    *,
    models: Models = None,
    kinds: Any = None,
    min_common: PositiveInt = 20,
) -> Dependence:
    """How far models (or, where none are known, all annotators) err alike.

    ``reference`` tells right from wrong: gold labels, an array (n, C) of probabilities, or None for the consensus of
    people. An error is 1 - P(the label is right). The consensus is of others than those compared. What its own errors add
    to the correlations is removed, so that independent annotators have correlations of about 0.

    Correlations of errors (Pearson) are over common instances. Those of single pairs are shrunk by n / (n + 20), and pairs
    with fewer than ``min_common`` have none. ``groups`` maps annotators to groups, such as the model behind several
    prompts.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, 300)
    >>> one, other = (np.where(rng.random(300) < 0.8, truth, 1 - truth) for _ in range(2))
    >>> labels = np.stack([one, one, other], axis=1)  # the second one copies the first
    >>> print(dependence(labels, truth))
    3 annotators count as 1.8 votes: their errors have a mean correlation of 0.33 (against gold, 300 instances)
    """
    sides = Sides.of(annotations, models, kinds, need=False)
    truth, source = reference_of(sides, reference)
    crowd = sides.crowd
    who = sides.models if sides.models.size else np.arange(crowd.n_annotators)
    if len(who) > MOST:
        raise DataError(f"{len(who):,} annotators have too many pairs; pass the ids of at most {MOST:,} as models")
    reference = np.nan_to_num(np.where(np.isnan(truth).any(axis=1, keepdims=True), 0.0, truth))
    error = float("nan")
    if source == "people" and not sides.models.size:
        plain, common = against_each_other(crowd, who)
    else:
        measure = _against_people(sides, who) if source == "people" else _against(reference, crowd, who)
        plain, common = measure(np.ones(crowd.n_instances, bool))
        error = _error_of_mean(measure, crowd.n_instances, min_common)
    plain[common < min_common] = np.nan
    correlation = plain * common / (common + SHRINKAGE)
    np.fill_diagonal(correlation, 1.0)
    np.fill_diagonal(plain, 1.0)
    seen = np.isin(crowd.annotator, who) & (reference.sum(axis=1) > 0)[crowd.instance]
    names = [sides.name(code) for code in who]
    mean, votes = _effective(plain)
    table = _groups(names, plain, groups)
    for row in table.to_pylist():
        if groups is not None and row["n_annotators"] > 1 and (row["effective_votes"] or REDUNDANT) < REDUNDANT:
            warnings.warn(
                f"the {row['n_annotators']} annotators of group {row['group']!r} count as {row['effective_votes']:.1f} "
                "votes: more of them add next to nothing",
                CrowdwiseWarning,
                stacklevel=3,
            )
    return Dependence(
        names,
        correlation,
        _pairs(sides, who, truth, correlation, common),
        table,
        mean,
        votes,
        _weights(correlation),
        source,
        len(np.unique(crowd.instance[seen])),
        error,
    )


Measure = Callable[[Mask], tuple[Floats, Floats]]
"""Correlations of errors and common instances, (K, K) each, on some of the instances (n,)."""


def _against(reference: Floats, crowd: Annotations, who: Ints) -> Measure:
    """Errors against a reference (n, C), whose rows are zeros where nothing is known."""
    layout = MemoryCrowd.of(crowd).layout

    def measure(kept: Mask) -> tuple[Floats, Floats]:
        correlation, common = error_correlations(layout, reference * kept[:, None], who, 1)
        return np.clip(correlation * (1 + SHRINKAGE / np.maximum(common, 1)), -1, 1), common

    return measure


def _against_people(sides: Sides, who: Ints) -> Measure:
    """Errors of models, where only labels of people tell right from wrong."""
    rng = np.random.default_rng(0)
    said = np.array([sides.labels_of(code, rng) for code in who]).reshape(len(who), sides.crowd.n_instances)
    people = sides.of_people()
    consensus = np.array(HierarchicalDawidSkene().fit(people).raw_posterior_)
    consensus[people.labels_per_instance < FEW] = np.nan
    return lambda kept: against_others(said, np.where(kept[:, None], consensus, np.nan))


def _error_of_mean(measure: Measure, n: int, min_common: int) -> float:
    """Standard error of the mean correlation, by leaving out one of `PARTS` parts of the instances at a time."""
    part = np.random.default_rng(0).permutation(n) % PARTS
    means = []
    for k in range(PARTS):
        correlation, common = measure(part != k)
        correlation[common < min_common * (PARTS - 1) / PARTS] = np.nan
        means.append(_effective(correlation)[0])
    return float(np.sqrt((PARTS - 1) * np.var(means)))


def _pairs(sides: Sides, who: Ints, truth: Floats, correlation: Floats, common: Floats) -> pa.Table:
    """How often every two are wrong together, by the most frequent label of each and the most likely class."""
    n, c = truth.shape
    best = likeliest(truth)
    rng = np.random.default_rng(0)
    said = np.array([sides.labels_of(code, rng) for code in who]).reshape(len(who), n)
    row, column = np.nonzero((said >= 0) & (best >= 0) & (said != best))
    ones, label = np.ones(len(row)), said[row, column]
    wrong = sparse.csr_array((ones, (row, column)), shape=(len(who), n))
    wrong_label = sparse.csr_array((ones, (row, column * c + label)), shape=(len(who), n * max(c, 1)))
    first, second = np.triu_indices(len(who), 1)
    both, same = ((table @ table.T).toarray()[first, second] for table in (wrong, wrong_label))
    r = correlation[first, second]
    return pa.table(
        {
            "first": [sides.name(who[k]) for k in first],
            "second": [sides.name(who[k]) for k in second],
            "n_common": common[first, second].astype(np.int64),
            "correlation": pa.array(r, mask=np.isnan(r)),
            "both_wrong": both.astype(np.int64),
            "same_wrong": same.astype(np.int64),
        }
    )


def _effective(correlation: Floats) -> tuple[float, float]:
    """Mean correlation of the pairs that have one, and the number of votes (Kish), at most K."""
    k = len(correlation)
    r = correlation[np.triu_indices(k, 1)]
    r = r[~np.isnan(r)]
    if not r.size:
        return float("nan"), 1.0 if k == 1 else float("nan")
    mean = float(r.mean())
    return mean, float(min(k / (1 + (k - 1) * mean), k)) if mean > -1 / (k - 1) else float(k)


def _weights(correlation: Floats) -> Floats:
    """R^-1 1, without what is below 0, scaled to sum to 1; pairs that have no correlation get the mean one."""
    k = len(correlation)
    mean = _effective(correlation)[0]
    filled = np.where(np.isnan(correlation), 0.0 if np.isnan(mean) else mean, correlation)
    weights = np.maximum(np.linalg.lstsq(filled + 1e-9 * np.eye(k), np.ones(k), rcond=None)[0], 0) if k else np.ones(0)
    return np.asarray(weights / weights.sum()) if weights.sum() > 0 else np.full(k, 1 / max(k, 1))


def _groups(names: list[Any], correlation: Floats, groups: Any) -> pa.Table:
    group_of: Any = groups if callable(groups) else (groups or {}).get
    member = {name: "all" if groups is None else group_of(name) for name in names}
    member = {name: name if group is None else group for name, group in member.items()}
    rows = []
    for group in dict.fromkeys(member.values()):
        of = np.array([k for k, name in enumerate(names) if member[name] == group])
        mean, votes = (None if np.isnan(each) else each for each in _effective(correlation[np.ix_(of, of)]))
        row = {"group": str(group), "n_annotators": len(of), "mean_correlation": mean, "effective_votes": votes}
        rows.append(row)
    return pa.Table.from_pylist(rows)
