"""The alternative annotator test: may a model replace people here?"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy import sparse, stats
from scipy.special import gammaln, xlogy

from crowdwise.agreement import class_values
from crowdwise.annotations import Annotations
from crowdwise.constraints import NonNegativeInt, OpenProbability, PositiveInt, checked
from crowdwise.data.shares import benjamini_yekutieli, wilson
from crowdwise.data.types import Floats, Ints
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError
from crowdwise.judges._people import Models, Sides

EPSILON = {"expert": 0.2, "skilled": 0.15, "crowd": 0.1}
"""How much worse than a person a model may be, by who the people are: what their labels cost more than the model's."""
FEW_DIFFERENCES = 10  # cases in which model or person is better, below which the test of their share is exact
MOST_EXACT = 60  # comparisons with a person, up to which p-values beside those of ranks are exact
NUISANCE = 60  # shares of cases in which model and person differ that these look at
FEW = 3  # people below which the result is of little worth

People = Literal["expert", "skilled", "crowd"]
Test = Literal["t", "wilcoxon"]
Score = Literal["accuracy", "rmse"] | Callable[[Any, Any], float]


@dataclass(frozen=True, eq=False)
class AltTest:
    """Result of `alt_test`."""

    epsilon: float
    fdr: float
    test: Test
    table: pa.Table
    """A row per model: model, passed, winning_rate, advantage_probability, low, high, n_people, n_skipped, n_instances,
    n_abstained. ``winning_rate`` is the share of people the model is not worse than; ``advantage_probability``, how often
    it agrees with the others at least as well as a person does."""
    people: pa.Table
    """A row per model and person: model, annotator, n, model_advantage, person_advantage, difference, p_value,
    rejected."""
    outcomes: dict[Any, Ints]
    """Of every model: how often each person was better than, as good as and worse than the model, (m, 3)."""

    @cached_property
    def needed(self) -> pa.Table:
        """What each model would need in order to pass: model, epsilon, n_instances.

        ``epsilon`` is the smallest one at which it passes, null where none up to 1 does; ``n_instances``, how many
        instances each person should label so that it passes at the present epsilon with probability 0.8 if it is as
        good as it seems, null where it does not seem good enough.
        """
        return pa.Table.from_pylist(
            [
                {"model": model, "epsilon": self._smallest(counts), "n_instances": self._instances(counts)}
                for model, counts in self.outcomes.items()
            ]
        )

    def _smallest(self, counts: Ints) -> float | None:
        def passes(epsilon: float) -> bool:
            return bool(benjamini_yekutieli(_p_values(counts, epsilon, self.test), self.fdr).mean() >= 0.5)

        low, high = -1.0, 1.0
        if not len(counts) or not passes(high):
            return None
        while high - low > 1e-4:
            middle = (low + high) / 2
            low, high = (low, middle) if passes(middle) else (middle, high)
        return round(high, 4)

    def _instances(self, counts: Ints) -> int | None:
        m = len(counts)
        if not m:
            return None
        wanted = -(-m // 2)  # people to win against
        level = wanted * self.fdr / (m * np.sum(1 / np.arange(1, m + 1)))
        mean, spread = _moments(counts)
        gap = self.epsilon - mean
        z = stats.norm.ppf(1 - level) + stats.norm.ppf(0.8)
        needed = np.where(gap > 0, (z * spread / np.where(gap > 0, gap, 1)) ** 2, np.inf)
        if self.epsilon > 0:  # without any difference, so many show that fewer than epsilon of the cases differ
            needed = np.maximum(needed, np.log(level) / np.log1p(-min(self.epsilon, 1 - 1e-9)))
        most = float(np.sort(needed)[wanted - 1])
        return None if np.isinf(most) else max(int(np.ceil(most)), 2)

    def __str__(self) -> str:
        return "\n".join(
            f"{row['model']}: {'passes' if row['passed'] else 'does not pass'}, not worse than {row['winning_rate']:.0%} of "
            f"{row['n_people']} people (epsilon {self.epsilon:g}), as good as one in {row['advantage_probability']:.0%} of cases"
            for row in self.table.to_pylist()
            if row["passed"] is not None
        )


@checked
def alt_test(
    annotations: Any,
    models: Models = None,
    *,
    kinds: Any = None,
    epsilon: float | None = None,
    people: People = "crowd",
    fdr: OpenProbability = 0.05,
    score: Any = "accuracy",
    values: Any = None,
    test: Test = "t",
    expert: Any = None,
    min_people: PositiveInt = 2,
    min_instances: PositiveInt = 30,
    n_bootstrap: NonNegativeInt = 200,
    random_state: int | np.random.Generator | None = 0,
) -> AltTest:
    """Whether each model may replace people, by the alternative annotator test (Calderon, Reichart, Dror, ACL 2025).

    Each person in turn is left out, and model and person are compared by how well they agree with the people who
    remain. The model wins against a person whom it is not worse than by ``epsilon`` or more, by a one-sided test over
    instances, corrected for the number of people (Benjamini-Yekutieli at ``fdr``); it passes if it wins against half of
    them. ``epsilon`` stands for what people cost more: by default .2, .15 or .1 where ``people`` are experts, skilled or
    crowd workers.

    ``score`` compares labels: "accuracy" (equal or not), "rmse" (numbers: classes that are numbers, or ``values``,
    one for each class), or a function of two classes that grows with their likeness. ``test="wilcoxon"`` is for
    people with few instances; its p-values are at least those of an exact test. With an ``expert`` (id or code of a
    person), model and people are compared by their agreement with this expert alone. Instances need ``min_people``
    people and a label of the model; people, ``min_instances`` such instances.

    >>> crowd = Annotations.from_dense([[c, c, c, c] for c in [0, 1] * 20])
    >>> print(alt_test(crowd, models=[3]))
    3: passes, not worse than 100% of 3 people (epsilon 0.1), as good as one in 100% of cases
    """
    sides = Sides.of(annotations, models, kinds)
    epsilon = EPSILON[people] if epsilon is None else epsilon
    if not -1 <= epsilon <= 1:
        raise ConfigError(f"epsilon must be a number from -1 to 1, got {epsilon}", parameter="epsilon")
    rng = np.random.default_rng(random_state)
    said = sides.of_people()
    contest = _Contest.of(said, _likeness(said, score, values), None if expert is None else _expert(sides, expert))
    needed = 1 if expert is not None else max(min_people, 2)
    rows: list[dict[str, Any]] = []
    people_rows: list[dict[str, Any]] = []
    outcomes: dict[Any, Ints] = {}
    most = 0
    for code in sides.models:
        name = sides.name(code)
        duels = contest.against(sides.labels_of(code, rng), needed)
        counts, who, skipped, largest = duels.counts(said.n_annotators, min_instances)
        most = max(most, largest)
        outcomes[name] = counts
        row = {"model": name, "passed": None, "winning_rate": None, "advantage_probability": None}
        row |= {"low": None, "high": None, "n_people": len(who), "n_skipped": skipped}
        row |= {"n_instances": duels.n_instances, "n_abstained": duels.n_abstained}
        if len(who):
            n, p = counts.sum(axis=1), _p_values(counts, epsilon, test)
            rejected = benjamini_yekutieli(p, fdr)
            better, worse = (counts[:, 1] + counts[:, 2]) / n, (counts[:, 0] + counts[:, 1]) / n
            row["winning_rate"] = float(rejected.mean())
            row["passed"] = bool(rejected.mean() >= 0.5)
            row["advantage_probability"] = float(better.mean())
            row["low"], row["high"] = duels.bootstrap(who, n_bootstrap, rng)
            people_rows.extend(
                {"model": name, "annotator": sides.name(j), "n": int(n[k]), "model_advantage": better[k],
                 "person_advantage": worse[k], "difference": worse[k] - better[k], "p_value": p[k],
                 "rejected": bool(rejected[k])}
                for k, j in enumerate(who)
            )  # fmt: skip
        rows.append(row)
    _judge_size(rows, most, min_instances, needed)
    return AltTest(float(epsilon), fdr, test, pa.Table.from_pylist(rows), pa.Table.from_pylist(people_rows), outcomes)


def _judge_size(rows: list[dict[str, Any]], most: int, min_instances: int, min_people: int) -> None:
    """Refuse crowds in which nobody can be compared with a model; warn where few can."""
    if not any(row["n_people"] for row in rows):
        raise DataError(
            f"no person can be compared with a model: each needs {min_instances} instances that {min_people} people "
            f"and the model labelled, but the most that anybody has is {most}: {min_instances - most} labels are missing"
        )
    few = [str(row["model"]) for row in rows if row["n_people"] < FEW]
    if few:
        warnings.warn(
            f"fewer than {FEW} people have {min_instances} instances in common with {', '.join(few)}: "
            "the result is of little worth",
            CrowdwiseWarning,
            stacklevel=4,
        )


def _likeness(crowd: Annotations, score: Any, values: Any) -> Any:
    """How alike two classes are, sparse or dense (C, C); only differences between numbers of a column matter."""
    c = crowd.n_classes
    if score == "accuracy":
        return sparse.eye_array(c, format="csr")
    if score == "rmse":  # roots and means of as many labels keep the order of sums of squares
        number = class_values(crowd, values, "score='rmse'")
        return -((number[:, None] - number) ** 2)
    if not callable(score):
        raise ConfigError(f"score must be 'accuracy', 'rmse' or a function of two classes, got {score!r}")
    names = crowd.class_vocabulary.arrow.to_pylist()
    return np.array([[float(score(one, other)) for other in names] for one in names]).reshape(c, c)


def _expert(sides: Sides, expert: Any) -> int:
    code = Sides.of(sides.crowd, [expert]).models[0]
    if code not in sides.people:
        raise ConfigError(f"the expert {expert!r} is a model, not a person", parameter="expert")
    return int(code)


@dataclass(frozen=True, eq=False)
class _Contest:
    """What is needed to compare a model with people: labels of people, and how alike they are to each class."""

    said: Annotations  # rows of the people compared
    total: Any  # (n, C) sum over the reference labels of their likeness to each class
    own: Any  # (C, C) likeness that a person's own label adds to `total`; None where it is not among them
    size: Ints  # (n,) reference labels of an instance

    @classmethod
    def of(cls, said: Annotations, likeness: Any, expert: int | None) -> _Contest:
        judges = said if expert is None else said.where(said.annotator == expert)
        n, c = said.n_instances, said.n_classes
        votes = sparse.csr_array((np.ones(len(judges)), (judges.instance, judges.label)), shape=(n, c))
        total = votes if sparse.issparse(likeness) else votes @ np.ascontiguousarray(likeness.T)  # sparse: the identity
        rest = said if expert is None else said.where(said.annotator != expert)
        return cls(rest, total, likeness if expert is None else None, judges.labels_per_instance)

    def against(self, model: Ints, min_people: int) -> _Duels:
        """Compare everybody with a model, whose labels are (n,), -1 where it has none."""
        enough = self.size >= min_people
        rows = np.flatnonzero(enough[self.said.instance] & (model[self.said.instance] >= 0))
        i, y = self.said.instance[rows], self.said.label[rows].astype(np.int64)
        f = model[i]
        ahead = _at(self.total, i, y) - _at(self.total, i, f)
        if self.own is not None:  # without the person's own label
            ahead -= _at(self.own, y, y) - _at(self.own, f, y)
        tolerance = 1e-9 * np.maximum(1.0, np.abs(_at(self.total, i, y)))
        outcome = np.where(np.abs(ahead) <= tolerance, 0, np.sign(ahead)).astype(np.int64)
        kept = enough & (model >= 0)
        return _Duels(i, self.said.annotator[rows], outcome, int(kept.sum()), int((enough & (model < 0)).sum()))


@dataclass(frozen=True, eq=False)
class _Duels:
    """Comparisons of a model with people on instances: 1 if the person is better, 0 if as good, -1 if worse."""

    instance: Any
    annotator: Any
    outcome: Ints
    n_instances: int
    n_abstained: int

    def counts(self, n_annotators: int, min_instances: int) -> tuple[Ints, Ints, int, int]:
        """Of people with enough instances: better, as good, worse (m, 3) and codes (m,); how many others; the most."""
        cells = self.annotator.astype(np.int64) * 3 + (1 - self.outcome)
        counts = np.bincount(cells, minlength=3 * n_annotators).reshape(-1, 3)
        total = counts.sum(axis=1)
        who = np.flatnonzero(total >= min_instances)
        return counts[who], who, int(np.count_nonzero(total)) - len(who), int(total.max(initial=0))

    def bootstrap(self, who: Ints, times: int, rng: np.random.Generator) -> tuple[float | None, float | None]:
        """Interval (95 %) of the advantage probability over resampled instances.

        It is Wilson's, of as many independent cases as have the variance of the resamples: percentiles of few losses
        are too narrow.
        """
        if not times:
            return None, None
        number = np.full(int(self.annotator.max(initial=0)) + 1, -1)
        number[who[who < len(number)]] = np.arange(len(who))
        rows = np.flatnonzero(number[self.annotator] >= 0)
        j, good = number[self.annotator[rows]], (self.outcome[rows] <= 0).astype(np.float64)
        distinct, i = np.unique(self.instance[rows], return_inverse=True)
        means = np.empty(times)
        for k in range(times):
            weight = np.bincount(rng.integers(0, len(distinct), len(distinct)), minlength=len(distinct))[i]
            drawn, wins = np.bincount(j, weight, minlength=len(who)), np.bincount(j, weight * good, minlength=len(who))
            means[k] = np.mean(wins[drawn > 0] / drawn[drawn > 0])
        mean = float(np.mean(np.bincount(j, good, len(who)) / np.bincount(j, minlength=len(who))))
        variance = float(means.var())
        cases = mean * (1 - mean) / variance if variance > 0 else float(len(distinct))
        low, high = wilson(mean * cases, cases)
        return float(low), float(high)


def _at(table: Any, rows: Any, columns: Any) -> Floats:
    found: Any = table[rows, columns]
    return np.asarray(found.todense() if hasattr(found, "todense") else found, np.float64).ravel()


def _moments(counts: Ints) -> tuple[Floats, Floats]:
    """Mean and standard deviation (ddof 1) of 1, 0 and -1 that occur so often, (m,) each."""
    n = counts.sum(axis=1)
    mean = (counts[:, 0] - counts[:, 2]) / n
    square = (counts[:, 0] + counts[:, 2]) / n
    return mean, np.sqrt(np.maximum(square - mean**2, 0) * n / np.maximum(n - 1, 1))


def _p_values(counts: Ints, epsilon: float, test: Test) -> Floats:
    """P-values (m,) of H0: a person is better than the model by epsilon or more."""
    n = counts.sum(axis=1)
    if test == "wilcoxon":  # of ranks alone, many small losses outweigh few large ones
        values = np.array([1.0, 0.0, -1.0]) - epsilon
        ranks = np.array([_wilcoxon(np.repeat(values, row)) for row in counts])
        return np.asarray(np.maximum(ranks, [_exact(row, epsilon) for row in counts]))
    mean, spread = _moments(counts)
    flat = spread < 1e-12
    t = (mean - epsilon) / np.where(flat, 1.0, spread / np.sqrt(n))
    p = np.asarray(stats.t.cdf(t, np.maximum(n - 1, 1)))
    p = np.where(flat, np.where(mean < epsilon, 0.0, 1.0), p)
    # Student's t is too sure of few differences; a person who is better by epsilon is better in as many cases at least.
    better, few = counts[:, 0], counts[:, 0] + counts[:, 2] < FEW_DIFFERENCES
    exact = np.asarray(stats.binom.cdf(better, n, epsilon)) if epsilon > 0 else p
    return np.where(few, np.maximum(p, exact), p)


def _exact(outcome: Ints, epsilon: float) -> float:
    """P-value of H0: a person is better than the model by epsilon or more, for a few comparisons: better, as good, worse.

    The largest probability, over all shares of cases in which they differ, of a Student's t as small as the observed one.
    Of more than `MOST_EXACT` comparisons, Student's t has its distribution.
    """
    n = int(outcome.sum())
    if n > MOST_EXACT:
        return float(_p_values(outcome[None], epsilon, "t")[0])
    wins, losses = (each.ravel() for each in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
    possible = wins + losses <= n
    counts = np.stack([wins, n - wins - losses, losses], axis=1)[possible]
    mean, spread = _moments(np.vstack([outcome, counts]))
    t = (mean - epsilon) / np.maximum(spread / np.sqrt(n), 1e-9)
    as_small = counts[t[1:] <= t[0] + 1e-9]
    shares = np.linspace(max(epsilon, 0.0), (1 + epsilon) / 2, NUISANCE)[:, None]  # of cases won
    chance = np.stack([shares, 1 - 2 * shares + epsilon, shares - epsilon])  # (3, NUISANCE, 1)
    log = xlogy(as_small.T[:, None], np.maximum(chance, 0.0)).sum(axis=0) - gammaln(as_small + 1).sum(axis=1)
    return float(min(1.0, np.exp(log + gammaln(n + 1)).sum(axis=1).max(initial=0)))


def _wilcoxon(differences: Floats) -> float:
    if np.ptp(differences) < 1e-12 and abs(differences[0]) < 1e-12:
        return 1.0
    return float(stats.wilcoxon(differences, alternative="less").pvalue)
