"""Whether annotators agree more than by chance: a permutation test of Krippendorff's alpha."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import special

from crowdwise.agreement._measures import Level, alpha_statistic
from crowdwise.agreement._scales import Ordered, scale_of
from crowdwise.agreement._values import Values, class_values
from crowdwise.agreement._votes import Votes
from crowdwise.annotations import Annotations
from crowdwise.constraints import OpenProbability, PositiveInt, check_value, checked
from crowdwise.data.codes import cells, count
from crowdwise.data.types import Array, Floats, Ints, RandomState

OWN_LABELS = 10  # labels from which on the labels of an annotator are permuted apart from those of others
MOST_LABELS = 50_000  # labels that are tested; of larger crowds, those of instances drawn at random
WORK = 20_000_000  # labels shuffled in all draws together, from which on there are fewer draws
FEWEST_DRAWS = 199
ENOUGH = 20  # draws as large as the observed value, after which the p-value is known well enough
FIRST_DRAWS = 39  # draws after which agreement far above all of them is called so
FAR = 6.0  # standard deviations above their mean
MIXING = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplying by it permutes the 64-bit integers

ChanceLevel = Literal["auto", "nominal", "ordinal", "interval"]


@dataclass(frozen=True)
class ChanceTest:
    """Result of `chance_test`.

    >>> print(ChanceTest(0.012, 0.31, 300, 1200))
    agreement is within chance: Krippendorff's alpha 0.012, p = 0.31 (1,200 labels of 300 instances)
    """

    alpha: float
    """Krippendorff's alpha of the labels tested; NaN if undefined."""
    p_value: float
    """Probability of so much agreement, or more, if no label depended on its instance; NaN if nothing can be tested."""
    n: int
    """Instances tested: those with labels of two or more annotators."""
    n_labels: int
    """Labels of these."""
    significance: float = 0.05
    """Agreement is called more than chance if the p-value is below this."""

    @property
    def defined(self) -> bool:
        """Whether there is something to test: two classes, on instances with labels of two annotators."""
        return bool(np.isfinite(self.p_value))

    @property
    def within_chance(self) -> bool:
        """Whether the agreement could well be chance; False if there is nothing to test."""
        return self.defined and not self.p_value < self.significance

    def __str__(self) -> str:
        if not self.defined:
            return "agreement cannot be compared with chance: no two annotators gave labels of two classes in common"
        verdict = "is within chance" if self.within_chance else "is more than chance"
        about = f"{count(self.n_labels, 'labels')} of {count(self.n, 'instances')}"
        p_value = f"p = {self.p_value:.2g}" if self.p_value >= 0.001 else "p < 0.001"
        return f"agreement {verdict}: Krippendorff's alpha {self.alpha:.3f}, {p_value} ({about})"


@checked
def chance_test(
    annotations: Any,
    level: ChanceLevel = "auto",
    *,
    values: Values | None = None,
    ordered: Ordered = "auto",
    significance: OpenProbability = 0.05,
    n_permutations: PositiveInt = 999,
    random_state: RandomState = 0,
) -> ChanceTest:
    """Test whether annotators agree more than by chance, by permuting labels within annotators.

    If labels do not depend on their instances, any order of an annotator's labels is as likely as the observed one. The
    test shuffles the labels of every annotator over the instances that he or she labelled. The p-value is the share of
    these orders with an alpha as large as the observed one. It holds for few labels, many or rare classes, and annotators
    who use classes differently. Annotators with fewer than 10 labels are shuffled together.

    There are up to ``n_permutations`` draws: fewer if the result is clear, or if there are more than 20,000 labels. Of
    more than 50,000 labels, those of instances drawn at random are tested.

    ``level`` and ``values`` are as in `krippendorff_alpha`: "ordinal" and "interval" find agreement of ordered classes
    even if annotators seldom choose the same one. By default, the level is ordinal if the classes are ordered (by `scale_of`
    with ``ordered``), and nominal if not. If an annotator labelled an instance several times, the label given most
    often counts, and of equals the first class. The order of rows does not change the result of up to 50,000 labels.

    >>> rng = np.random.default_rng(1)
    >>> chance_test(rng.integers(0, 4, (100, 3))).within_chance
    True
    >>> truth = rng.integers(0, 4, (100, 1))
    >>> chance_test(np.where(rng.random((100, 3)) < 0.6, truth, rng.integers(0, 4, (100, 3)))).within_chance
    False
    """
    check_value("level", level, ChanceLevel)
    rng = np.random.default_rng(random_state)
    crowd = Annotations.coerce(annotations)
    if level == "auto":
        scale = scale_of(crowd, ordered)
        level = "nominal" if scale is None else "ordinal"
        if scale is not None and values is None:
            values = scale.values
    if len(crowd) <= MOST_LABELS:  # of more labels, random instances are tested anyway
        crowd = _in_canonical_order(crowd)
    crowd = _comparable_part(crowd, rng)
    votes = Votes.of(crowd)
    with np.errstate(divide="ignore", invalid="ignore"):  # an undefined alpha is NaN
        alpha = float(alpha_statistic(crowd, votes, level, values)(votes.count[None].astype(np.float64))[0])
    size = len(votes.pattern)
    if not np.isfinite(alpha):
        return ChanceTest(alpha, float("nan"), size, len(crowd), significance)
    stratum = _strata(crowd)
    order = np.argsort(stratum, kind="stable")
    stratum = stratum[order]
    instance = crowd.instance[order].astype(np.int64)
    label = crowd.label[order].astype(np.int64)
    agreeing = _agreement(instance, size, _numbers(crowd, level, values))

    def drawn() -> float:
        """The statistic of labels shuffled within strata: random numbers below 1 do not mix the strata."""
        return agreeing(label[np.argsort(stratum + rng.random(len(stratum)))])

    draws = min(n_permutations, max(FEWEST_DRAWS, WORK // len(label)))
    p_value = _sequential(agreeing(label), drawn, draws)
    return ChanceTest(alpha, p_value, size, len(crowd), significance)


def _in_canonical_order(crowd: Annotations) -> Annotations:
    """The same annotations, in an order of instances and rows that depends on annotators and labels alone.

    Random draws then meet the same rows, so that a streamed table and one in memory get the same p-value.
    """
    cell = cells(crowd.annotator, crowd.n_classes, crowd.label)
    mixed = cell.astype(np.uint64) * MIXING
    mixed ^= mixed >> np.uint64(29)
    content = np.zeros(crowd.n_instances, np.uint64)  # a hash of each instance's cells, in any order
    np.add.at(content, crowd.instance, mixed * MIXING)
    order = np.argsort(content, kind="stable")
    place = np.empty(crowd.n_instances, np.int32)
    place[order] = np.arange(crowd.n_instances, dtype=np.int32)
    rows = np.lexsort((cell, place[crowd.instance]))
    return replace(
        crowd,
        instance=place[crowd.instance][rows],
        annotator=crowd.annotator[rows],
        label=crowd.label[rows],
        instance_vocabulary=crowd.instance_vocabulary.subset(order),
        weight=None if crowd.weight is None else crowd.weight[rows],
    )


def _comparable_part(crowd: Annotations, rng: np.random.Generator) -> Annotations:
    """One label of every pair, of instances with two or more annotators, without other instances."""
    crowd = crowd.hard().deduplicated("share").hard()
    usable = np.flatnonzero(crowd.labels_per_instance >= 2)
    labels = crowd.labels_per_instance[usable]
    if labels.sum() > MOST_LABELS:
        shuffled = rng.permutation(len(usable))
        usable = np.sort(usable[shuffled[np.cumsum(labels[shuffled]) - labels[shuffled] < MOST_LABELS]])
    return crowd.select(instances=usable)


def _strata(crowd: Annotations) -> Ints:
    """Labels with equal numbers may change places: those of an annotator, and those of all with few labels, (E,)."""
    shared = crowd.n_annotators
    own = np.where(crowd.labels_per_annotator >= OWN_LABELS, np.arange(shared), shared)
    return np.asarray(own[crowd.annotator])


def _numbers(crowd: Annotations, level: Level, values: Values | None) -> Floats | None:
    """Positions of the classes, (C,), by whose squared differences labels disagree; None if all differ alike."""
    if level == "nominal":
        return None
    number = class_values(crowd, values, "interval alpha" if level == "interval" else None)
    if level == "ordinal":  # mid-ranks, as in ordinal alpha
        frequency = np.bincount(crowd.label, minlength=crowd.n_classes)
        ascending = np.argsort(number)
        rank = np.empty(len(number))
        rank[ascending] = frequency[ascending].cumsum() - frequency[ascending] / 2
        number = rank
    return np.asarray((number - number.mean()) / (np.ptp(number) or 1.0))


def _agreement(instance: Array, size: int, number: Floats | None) -> Callable[[Array], float]:
    """What grows with alpha when labels (E,) are shuffled, as the disagreement expected by chance stays the same."""
    per_instance = np.bincount(instance, minlength=size)
    weight = 1 / (per_instance - 1)

    def equal(label: Ints) -> float:
        """Pairs of equal labels, each instance divided by its number of labels - 1."""
        width = int(label.max()) + 1
        cell, times = np.unique(cells(instance, width, label), return_counts=True)
        return float((times * (times - 1) * weight[cell // width]).sum())

    def near(label: Ints) -> float:
        """Minus the squared differences of labels of an instance."""
        assert number is not None
        given = number[label]
        first = np.bincount(instance, given, size)
        second = np.bincount(instance, given**2, size)
        return -float(((per_instance * second - first**2) * weight).sum())

    return equal if number is None else near


def _sequential(observed: float, draw: Callable[[], float], most: int) -> float:
    """P-value of an ``observed`` value among up to ``most`` draws, which end early if the result is clear.

    After `ENOUGH` draws as large as the observed value, the p-value is their share of the draws so far (Besag & Clifford
    1991). A value `FAR` above the first draws gets the p-value of Student's t.
    """
    tolerance = 1e-9 * max(1.0, abs(observed))
    values: list[float] = []
    as_large = 0
    while len(values) < most:
        values.append(draw())
        as_large += values[-1] >= observed - tolerance
        if as_large == ENOUGH:
            return as_large / len(values)
        if len(values) == FIRST_DRAWS and not as_large:
            spread = float(np.std(values, ddof=1))
            distance = (observed - float(np.mean(values))) / spread if spread > 0 else 0.0
            if distance > FAR:
                # The upper tail of Student's t is its lower tail, mirrored.
                return float(special.stdtr(FIRST_DRAWS - 1, -distance / np.sqrt(1 + 1 / FIRST_DRAWS)))
    return (as_large + 1) / (most + 1)
