"""True shares, accuracies and confusions from few gold labels and many labels of a model or a crowd."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import stats

from crowdwise.aggregation import Aggregator, recommend
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.agreement import class_values
from crowdwise.annotations import Annotations
from crowdwise.constraints import OpenProbability, Probability, checked
from crowdwise.data.shares import wilson
from crowdwise.data.types import Floats, Ints, Mask
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError, suggest
from crowdwise.judges._people import Sides
from crowdwise.judges._ppi import Mean, powered_mean, quantile, sampled_mean
from crowdwise.registry import AGGREGATORS

What = Literal["shares", "accuracy", "confusion", "mean"]
Assume = Literal["random", "label-shift"]
FEW = 5  # cases of a kind below which intervals are not to be trusted
CONDITION = 20.0  # of a confusion matrix, above which it is not inverted


@dataclass(frozen=True, eq=False)
class Estimate:
    """Result of `estimate`: numbers, or arrays of one number for each class, or (C, C) with the true class first."""

    what: What
    of: str
    """Whose labels were used."""
    classes: list[Any]
    value: Any
    low: Any
    high: Any
    gold_only: Any
    """From gold labels alone."""
    gold_only_interval: Any
    """Its interval, (..., 2)."""
    labels_only: Any
    """From the labels alone, as if they were true."""
    labels_only_interval: Any
    """Its interval as one would write it who takes labels for truth, (..., 2)."""
    lambda_: Any
    """How far the labels are relied on: 0 not at all, 1 fully."""
    effective_n: Any
    """Gold labels that would be needed without the other labels."""
    n: int
    """Instances with gold and a label."""
    N: int
    """Further instances with a label."""
    level: float
    warnings: tuple[str, ...] = ()

    @property
    def labels_valid(self) -> Any:
        """Whether the interval from the labels alone meets the combined one."""
        low, high = self.labels_only_interval[..., 0], self.labels_only_interval[..., 1]
        return (low <= self.high) & (high >= self.low)

    def to_table(self) -> pa.Table:
        """A row per number: class (and label, of confusions), value, low, high, gold_only, labels_only and so on."""
        c = len(self.classes)
        names: dict[str, Any] = {"what": [self.what]}
        if self.what == "shares":
            names = {"class": self.classes}
        elif self.what == "confusion":
            names = {"class": [p for p in self.classes for _ in range(c)], "label": self.classes * c}
        columns = {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "gold_only": self.gold_only,
            "gold_only_low": self.gold_only_interval[..., 0],
            "gold_only_high": self.gold_only_interval[..., 1],
            "labels_only": self.labels_only,
            "labels_only_low": self.labels_only_interval[..., 0],
            "labels_only_high": self.labels_only_interval[..., 1],
            "labels_valid": self.labels_valid,
            "lambda": self.lambda_,
            "effective_n": self.effective_n,
        }
        return pa.table({**names, **{name: np.ravel(column) for name, column in columns.items()}})


@checked
def estimate(
    annotations: Any,
    gold: Any,
    what: What = "shares",
    of: Any = None,
    *,
    sampling: Any = None,
    assume: Assume = "random",
    level: OpenProbability = 0.95,
    tuning: Literal["all", "class"] | Probability = "all",
    values: Any = None,
    random_state: int | np.random.Generator | None = 0,
) -> Estimate:
    """What is true of all instances, from gold labels of some, drawn at random, and labels of all.

    ``what``: the "shares" of the classes, the "accuracy" or "confusion" of a labeller, or the "mean" of classes that are
    numbers (or have ``values``). ``of`` is the labeller: the id of an annotator, such as a model, an aggregator or its
    name, a posterior (n, C), or None for the aggregator that `recommend` chooses. The interval is right however wrong
    the labels are (prediction-powered inference); good labels make it narrower. Aggregators are fitted without the gold
    labels, which must not inform what they correct.

    Gold labels that were drawn with unequal probabilities need ``sampling``: these probabilities, an array (n,) or a
    mapping from instance. With ``assume="label-shift"``, gold comes from other instances than those asked about: classes
    may be more or less frequent there, but labels err alike; shares are those of the instances without gold.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, 2000)
    >>> model = np.where(rng.random(2000) < 0.9, truth, 0)  # takes a tenth of the ones for zeros
    >>> found = estimate(model[:, None], {i: truth[i] for i in range(100)}, of=0)
    >>> [round(float(each[1]), 2) for each in (found.value, found.low, found.high, found.labels_only)]
    [0.51, 0.47, 0.56, 0.47]
    """
    crowd = Annotations.coerce(getattr(annotations, "annotations", annotations))
    truth = gold_codes(crowd, gold)
    if truth is None or not np.any(truth >= 0):
        raise DataError("there are no gold labels of these instances", parameter="gold")
    labeller = _labeller(crowd, of, what, random_state)
    case = _Case(crowd, truth.astype(np.int64), labeller, what, level, tuning, values)
    if assume == "label-shift":
        if what != "shares":
            raise ConfigError(f"assume='label-shift' is for what='shares', not {what!r}", parameter="assume")
        return case.shifted()
    if sampling is not None:
        if what == "confusion":
            raise ConfigError("sampling is for shares, accuracies and means, not for confusions", parameter="sampling")
        return case.drawn(_probabilities(crowd, sampling))
    return case.confusions() if what == "confusion" else case.means()


class _Labeller(NamedTuple):
    """Whose labels are used, and what they say."""

    name: str
    label: Ints  # (n,) code of its label, -1 where none
    shares: Floats  # (n, C) its labels as probabilities; NaN where none
    guess: Floats  # (n, C) what the true class may be, told without gold


@dataclass(frozen=True, eq=False)
class _Case:
    crowd: Annotations
    truth: Ints  # (n,) code, -1 where unknown
    labeller: _Labeller
    what: What
    level: float
    tuning: Any
    values: Any

    @property
    def usable(self) -> Mask:
        return self.labeller.label >= 0

    def columns(self) -> tuple[Floats, Floats]:
        """True values (n, k), which count where gold is known, and predictions of them (n, k)."""
        label, shares, guess = self.labeller.label, self.labeller.shares, self.labeller.guess
        rows, known = np.arange(len(label)), np.maximum(self.truth, 0)
        if self.what == "shares":
            return np.eye(self.crowd.n_classes)[known], shares
        if self.what == "accuracy":
            return (known == label).astype(np.float64)[:, None], guess[rows, np.maximum(label, 0)][:, None]
        number = class_values(self.crowd, self.values, "what='mean'")
        return number[known][:, None], shares @ number[:, None]

    def parts(self) -> tuple[Mask, Mask]:
        """Instances with gold and label, and those with a label only."""
        gold, rest = self.usable & (self.truth >= 0), self.usable & (self.truth < 0)
        if gold.sum() < 2:
            raise DataError(
                f"{int(gold.sum())} of the gold labels are of instances that {self.labeller.name} labelled; 2 are needed",
                parameter="gold",
            )
        return gold, rest

    def means(self) -> Estimate:
        gold, rest = self.parts()
        truth, predicted = self.columns()
        found = powered_mean(truth[gold], predicted[gold], predicted[rest], self.tuning)
        return self.result(found, truth[gold], predicted[self.usable], int(rest.sum()))

    def drawn(self, probability: Floats) -> Estimate:
        gold, rest = self.parts()
        all_ = self.usable
        truth, predicted = self.columns()
        found = sampled_mean(truth[all_], predicted[all_], gold[all_], probability[all_], self.tuning)
        alone = sampled_mean(truth[all_], predicted[all_], gold[all_], probability[all_], 0.0)
        return self.result(found, truth[gold], predicted[all_], int(rest.sum()), alone)

    def result(
        self, found: Mean, truth: Floats, predicted: Floats, further: int, alone: Mean | None = None
    ) -> Estimate:
        """Intervals, and the same from gold or labels alone."""
        n, bounded = len(truth), self.what != "mean"
        t = quantile(self.level, n)
        nothing = np.empty((0, truth.shape[1]))
        at_random = alone is None
        alone = powered_mean(truth, truth, nothing) if alone is None else alone
        naive = powered_mean(predicted, predicted, nothing)
        own, gold, labels = (_ends(each.value, each.error, t, bounded) for each in (found, alone, naive))
        gain = np.divide(alone.error**2, found.error**2, out=np.ones_like(found.error), where=found.error > 0)
        notes = []
        if bounded:
            number = truth.sum(axis=0)
            rare = np.minimum(number, n - number) < FEW
            if at_random:  # exact enough for few cases, and as wide as the combined one has to be then
                gold = np.stack(wilson(number, n, self.level), axis=-1)
                own[rare] = np.stack([np.minimum(own, gold)[:, 0], np.maximum(own, gold)[:, 1]], axis=-1)[rare]
            if rare.any():
                whose = f"{rare.sum()} of the {len(number)} classes have" if self.what == "shares" else "there are"
                notes.append(f"{whose} fewer than {FEW} gold cases for or against: the interval is a rough one")
        low, high = own.T
        parts: Any = (found.value, low, high, alone.value, gold, naive.value, labels, found.lambda_, n * gain)
        if self.what != "shares":  # a single number
            parts = [float(part[0]) if part.ndim == 1 else part[0] for part in parts]
        return self.estimate(parts, n, further, notes)

    def confusions(self) -> Estimate:
        """Rows of the confusion matrix as ratios of two means, by the delta method."""
        gold, rest = self.parts()
        c, n, many = self.crowd.n_classes, int(gold.sum()), int(rest.sum())
        given = np.eye(c)[np.maximum(self.labeller.label, 0)]
        t = quantile(self.level, n)
        value, error, alone, alone_error, labels, power = np.full((6, c, c), np.nan)
        few = []
        for p in range(c):
            is_p, guess_p = (self.truth[gold] == p).astype(np.float64), self.labeller.guess[:, p]
            if not is_p.any():
                few.append(p)
                continue
            a, b = is_p[:, None] * given[gold], is_p[:, None]
            fa, fb = guess_p[:, None] * given, guess_p[:, None]
            first = a.mean(axis=0) / b.mean()
            z, fz = a - first * b, fa - first * fb
            found = powered_mean(z, fz[gold], fz[rest], "all" if self.tuning == "class" else self.tuning)
            both = np.concatenate([a, b], axis=1), np.concatenate([fa, fb], axis=1)
            means = powered_mean(both[0], both[1][gold], both[1][rest], float(found.lambda_[0])).value
            value[p], base = means[:c] / means[c], abs(means[c])
            z, fz = a - value[p] * b, fa - value[p] * fb
            error[p] = powered_mean(z, fz[gold], fz[rest], float(found.lambda_[0])).error / base
            alone[p], alone_error[p] = first, powered_mean(a - first * b, z, z[:0]).error / b.mean()
            power[p] = found.lambda_
            labels[p] = fa[self.usable].mean(axis=0) / max(fb[self.usable].mean(), 1e-300)
            if is_p.sum() < FEW:
                few.append(p)
        error[few], alone_error[few] = np.nan, np.nan
        names = [str(self.crowd.classes[p]) for p in few]
        notes = [f"fewer than {FEW} gold labels, so no interval, for: {', '.join(names)}"] if few else []
        own, gold_alone = (_ends(v, e, t, True) for v, e in ((value, error), (alone, alone_error)))
        naive = np.stack([labels, labels], axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            effective = np.where(error > 0, n * alone_error**2 / error**2, n)
        value = np.clip(value, 0, 1) / np.clip(value, 0, 1).sum(axis=1, keepdims=True)
        parts = (value, own[..., 0], own[..., 1], alone, gold_alone, labels, naive, power, effective)
        return self.estimate(parts, n, many, notes)

    def shifted(self) -> Estimate:
        """Rogan and Gladen's correction for any number of classes: A^-1 g, with A[q, p] = P(label q | class p)."""
        gold, rest = self.parts()
        c, n, many = self.crowd.n_classes, int(gold.sum()), int(rest.sum())
        if many < 2:
            raise DataError("assume='label-shift' needs instances without gold", parameter="assume")
        counts = np.zeros((c, c))
        np.add.at(counts, (self.labeller.label[gold], self.truth[gold]), 1.0)
        total = counts.sum(axis=0) + c
        A = (counts + 1) / total
        condition = float(np.linalg.cond(A))
        if condition > CONDITION:
            raise DataError(
                f"the labels of {self.labeller.name} tell too little about the classes to correct their shares: condition "
                f"number {condition:.0f}, at most {CONDITION:.0f} is allowed"
            )
        g = np.bincount(self.labeller.label[rest], minlength=c) / many
        inverse = np.linalg.inv(A)
        value = inverse @ g
        spread = (np.diag(g) - np.outer(g, g)) / many
        for p in range(c):
            spread += value[p] ** 2 * (np.diag(A[:, p]) - np.outer(A[:, p], A[:, p])) / total[p]
        error = np.sqrt(np.diag(inverse @ spread @ inverse.T))
        z = float(stats.norm.ppf(0.5 + self.level / 2))
        own = _ends(value, error, z, True)
        nothing = np.full((c, 2), np.nan)
        naive = _ends(g, np.sqrt(g * (1 - g) / many), z, True)
        rare = [str(self.crowd.classes[p]) for p in np.flatnonzero(total - c < FEW)]
        notes = [f"fewer than {FEW} gold labels of: {', '.join(rare)}"] if rare else []
        unknown = np.full(c, np.nan)
        parts = (np.clip(value, 0, 1), own[:, 0], own[:, 1], unknown, nothing, g, naive, np.ones(c), unknown)
        return self.estimate(parts, n, many, notes)

    def estimate(self, parts: Any, n: int, many: int, notes: list[str]) -> Estimate:
        """``parts`` are the numbers of an estimate, from its value to its ``effective_n``."""
        for note in notes:
            warnings.warn(note, CrowdwiseWarning, stacklevel=5)
        classes = self.crowd.class_vocabulary.arrow.to_pylist()
        about: dict[str, Any] = {"n": n, "N": many, "level": self.level, "warnings": tuple(notes)}
        return Estimate(self.what, self.labeller.name, classes, *parts, **about)


def _ends(value: Floats, error: Floats, factor: float, bounded: bool) -> Floats:
    ends = np.stack([value - factor * error, value + factor * error], axis=-1)
    return np.clip(ends, 0, 1) if bounded else ends


def _labeller(crowd: Annotations, of: Any, what: What, random_state: Any) -> _Labeller:
    if isinstance(of, np.ndarray):
        if of.shape != (crowd.n_instances, crowd.n_classes):
            raise DataError(
                f"of has shape {of.shape}, but there are {crowd.n_instances} x {crowd.n_classes} probabilities"
            )
        return _consensus("the posterior", np.asarray(of, np.float64), np.ones(crowd.n_instances, bool))
    labelled = crowd.labels_per_instance > 0
    if isinstance(of, Aggregator):
        model = type(of)(**of.get_params()).fit(crowd)  # without gold
        return _consensus(type(of).__name__, model.posterior_, labelled)
    if of is None:
        chosen = recommend(crowd, random_state=0)
        return _consensus(chosen.name, chosen.estimator.posterior_, labelled)
    ids = crowd.annotator_vocabulary.arrow.to_pylist()
    if of not in ids and of in list(AGGREGATORS):
        return _consensus(of, AGGREGATORS[of]().fit(crowd).posterior_, labelled)
    if of not in ids:
        known = [str(one) for one in ids[:1000]]
        raise ConfigError(f"of: no annotator is called {of!r}{suggest(str(of), known)}", parameter="of")
    code = ids.index(of)
    label = Sides.of(crowd, [of]).labels_of(code, np.random.default_rng(random_state))
    shares = np.where((label >= 0)[:, None], np.eye(crowd.n_classes)[np.maximum(label, 0)], np.nan)
    others = crowd.where(crowd.annotator != code)
    guess = np.full(shares.shape, 1 / max(crowd.n_classes, 1))
    if len(others) and what in ("accuracy", "confusion"):  # shares and means do without
        guess = recommend(others, random_state=0).estimator.posterior_
    return _Labeller(str(of), label, shares, guess)


def _consensus(name: str, posterior: Floats, labelled: Mask) -> _Labeller:
    label = np.where(labelled, posterior.argmax(axis=1), -1)
    return _Labeller(name, label, posterior, posterior)


def _probabilities(crowd: Annotations, sampling: Any) -> Floats:
    """Probability of every instance to be drawn for gold, (n,)."""
    if hasattr(sampling, "keys"):
        ids = crowd.instance_vocabulary.arrow.to_pylist()
        missing = [one for one in ids if one not in sampling]
        if missing:
            raise DataError(f"sampling lacks instance {missing[0]!r} and {len(missing) - 1} more", parameter="sampling")
        sampling = [sampling[one] for one in ids]
    given = np.asarray(sampling, np.float64)
    if given.shape != (crowd.n_instances,) or not ((given > 0) & (given <= 1)).all():
        raise DataError(
            f"sampling must hold a probability above 0 for each of the {crowd.n_instances} instances",
            parameter="sampling",
        )
    return given
