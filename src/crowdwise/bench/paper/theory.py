"""TAIDTM's theory in numbers: bounds, costs, and diagnostics of what its theorems assume.

Theorems and sections are numbered as in arXiv 2306.03116. The bounds are numerically vacuous for real networks: they show how
an error scales, not how large it is. Claims that the paper does not prove are left out (docs/theory.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from crowdwise.constraints import (
    Interval,
    NonNegativeFloat,
    NonNegativeInt,
    OpenProbability,
    PositiveFloat,
    PositiveInt,
    check_parameters,
    check_value,
    checked,
)
from crowdwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from crowdwise.methods.taidtm import TAIDTM


@checked
def bound_no_transfer(
    layer_norms: Sequence[NonNegativeFloat],
    *,
    n_classes: PositiveInt,
    examples: PositiveFloat,
    loss_bound: NonNegativeFloat,
    input_bound: NonNegativeFloat = 1.0,
    delta: OpenProbability = 0.05,
) -> float:
    """Theorem 1: how far the risk of an annotator's own transition network may exceed its empirical risk.

    2 C^2 B (sqrt(2 d ln 2) + 1) prod_i M_i / sqrt(C m_j) + M sqrt(ln(1/delta) / (2 m_j)), with probability 1 - delta, if the
    distilled examples are evenly distributed over the classes.

    Args:
        layer_norms: M_1 .. M_d, bounds on the Frobenius norms of the d layers.
        n_classes: C.
        examples: m_j, distilled examples of the annotator.
        loss_bound: M, the largest value of the loss.
        input_bound: B, the largest norm of an instance.
        delta: probability with which the bound may fail.

    >>> round(bound_no_transfer([1, 1], n_classes=10, examples=100, loss_bound=5), 6)
    17.467567
    """
    if not layer_norms:
        raise ConfigError("layer_norms must hold the Frobenius norm of at least one layer, got none")
    complexity = input_bound * (math.sqrt(2 * len(layer_norms) * math.log(2)) + 1) * math.prod(layer_norms)
    confidence = loss_bound * math.sqrt(math.log(1 / delta) / (2 * examples))
    return 2 * n_classes**2 * complexity / math.sqrt(n_classes * examples) + confidence


@checked
def bound_global(
    layer_norms: Sequence[NonNegativeFloat],
    *,
    n_classes: PositiveInt,
    instances: PositiveFloat,
    labels_per_instance: PositiveFloat,
    loss_bound: NonNegativeFloat,
    input_bound: NonNegativeFloat = 1.0,
    delta: OpenProbability = 0.05,
) -> float:
    """Theorem 7: the bound of Theorem 1 for the global network, which learns from all m r labels of m distilled instances.

    The statement in the paper has C where its proof has C^2; C^2 is used here.

    >>> settings = {"n_classes": 10, "loss_bound": 5}
    >>> one = bound_no_transfer([1, 1], examples=100, **settings)
    >>> everybody = bound_global([1, 1], instances=5000, labels_per_instance=2, **settings)
    >>> round(one / everybody, 6)  # sqrt(10000 / 100)
    10.0
    """
    return bound_no_transfer(
        layer_norms,
        n_classes=n_classes,
        examples=instances * labels_per_instance,
        loss_bound=loss_bound,
        input_bound=input_bound,
        delta=delta,
    )


@checked
def bound_transfer(
    omega: NonNegativeFloat,
    *,
    examples: Annotated[float, Interval(2)],
    loss_bound: NonNegativeFloat,
    delta: OpenProbability = 0.05,
) -> float:
    """Theorem 2: the same excess for a head that starts at the global network.

    M sqrt((omega + ln(2 m_j / delta)) / (2 (m_j - 1))), whatever the size of the network. ``omega`` bounds the
    Kullback-Leibler divergence between what the annotator's head may become and the global one; it cannot be observed,
    so its value is an assumption.

    >>> round(bound_transfer(0, examples=100, loss_bound=5), 6), round(bound_transfer(2, examples=100, loss_bound=5), 6)
    (1.023342, 1.140067)
    """
    return loss_bound * math.sqrt((omega + math.log(2 * examples / delta)) / (2 * (examples - 1)))


@dataclass(frozen=True)
class Cost:
    """Multiplications of a whole run, by what they are spent on."""

    networks: float
    """Passes through classifier and transition network."""
    heads: float
    """Evaluating heads at annotated pairs, in the individual and the mapping stage."""
    graph: float
    """Similarities and nearest neighbours; purifying is not counted."""
    mapping: float
    """Graph convolution in the mapping stage."""
    revision: float
    """Graph convolution and heads in the last stage, where the matrices are trained on."""

    @property
    def total(self) -> float:
        return float(sum(astuple(self)))


@dataclass(frozen=True, kw_only=True)
class Run:
    """The sizes on which the cost of a run depends, with the paper's settings for simulated crowds as defaults.

    >>> run = Run(instances=54_000)
    >>> f"{run.paper_cost().total:.1e}, {run.actual_cost().total:.1e}"
    '1.6e+16, 3.5e+12'
    """

    instances: PositiveInt
    labels_per_instance: NonNegativeFloat = 2.0
    n_annotators: PositiveInt = 300
    n_classes: PositiveInt = 10
    width: PositiveInt = 64
    """d, features that a head sees (beside the constant 1)."""
    hidden: PositiveInt = 64
    """Z_1, width of the graph convolution."""
    k: PositiveInt = 50
    batch_size: PositiveInt = 128
    transition_epochs: NonNegativeInt = 5
    individual_epochs: NonNegativeInt = 2
    mapping_epochs: NonNegativeInt = 10
    epochs: NonNegativeInt = 60
    """Of the last stage."""
    forward: NonNegativeFloat = 1.0
    """T, multiplications of one instance's pass through a network."""

    def __post_init__(self) -> None:
        check_parameters(self)

    def paper_cost(self) -> Cost:
        """The counts of the paper's section 5, term by term.

        They are pessimistic: a head costs d C^2 at a pair, not d^2 C^2, and a graph convolution far less than d k C^2 R^2 Z_1.
        They leave out that the last stage trains the matrices too.
        """
        n, d, c2, r = self.instances, self.width, self.n_classes**2, self.n_annotators
        passes = 2 * self.transition_epochs + self.individual_epochs + self.mapping_epochs + 2 * self.epochs
        step = d * self.k * c2 * r**2 * self.hidden
        return Cost(
            networks=n * self.forward * passes,
            heads=2 * n * self.labels_per_instance * d**2 * c2 * (self.individual_epochs + self.mapping_epochs),
            graph=(d * c2 + self.k) * r**2,
            mapping=2 * n * step * self.mapping_epochs / self.batch_size,
            revision=0.0,
        )

    def actual_cost(self) -> Cost:
        """The multiplications of crowdwise, with the paper's factor of 2 for a forward and backward step.

        Features are computed once for the individual and once for the mapping stage, heads only at annotated pairs, only in
        row y* where y* is known, and in the cheaper order; the graph is counted as a dense matrix.
        """
        n, d, c, r = self.instances, self.width + 1, self.n_classes, self.n_annotators
        orders, steps = self.orders(), n / self.batch_size
        spread = 2 * r**2 * self.hidden  # two products with A_hat
        pairs = self.batch_size * self.labels_per_instance
        # all R heads are made with all rows, though one is read
        one_row = min(r * self.hidden * d * c**2 + pairs * d * c, orders.one_row)
        return Cost(
            networks=n * self.forward * (2 * self.transition_epochs + 2 + 4 * self.epochs),
            heads=2 * n * self.labels_per_instance * d * c * self.individual_epochs,
            graph=(d * c**2 + 1) * r**2,
            mapping=2 * steps * self.mapping_epochs * (spread + one_row),
            revision=2 * steps * self.epochs * (spread + min(orders.heads_first, orders.instances_first)),
        )

    def orders(self) -> Orders:
        """Multiplications of one batch's pair logits, given the hidden features of annotators, in each order."""
        b, d, z, c2, r = self.batch_size, self.width + 1, self.hidden, self.n_classes**2, self.n_annotators
        pairs = b * self.labels_per_instance
        by_instance = b * d * z * c2 + pairs * z * c2
        return Orders(
            dense=r * z * d * c2 + b * r * d * c2,
            heads_first=r * z * d * c2 + pairs * d * c2,
            instances_first=by_instance,
            one_row=by_instance / self.n_classes,
        )


class Orders(NamedTuple):
    """Ways to evaluate mapped heads: W (Z, d+1, C, C) with hidden features (R, Z) and instances' features (B, d+1)."""

    dense: float
    """All R heads at all B instances."""
    heads_first: float
    """All R heads, then annotated pairs."""
    instances_first: float
    """W at all B instances, then annotated pairs."""
    one_row: float
    """Instances first, and of each matrix row y* alone."""


def contraction(weight: ArrayLike, k: int) -> float:
    """||W||_2 / k: the factor by which a layer shrinks the distance of two similar annotators; Theorem 3 needs it below 1.

    If i and j have k neighbours each, namely a common set and themselves, then with A/k as the normalised graph and an
    activation that is 1-Lipschitz ||h_i' - h_j'|| <= ||W||_2 / k ||h_i - h_j||.

    >>> contraction([[3.0, 0.0], [0.0, 4.0]], k=5)
    0.8
    """
    matrix = np.asarray(weight, dtype=np.float64)
    if matrix.ndim != 2:
        raise DataError(f"a layer's weight must be a matrix (inputs, outputs), not of shape {matrix.shape}")
    check_value("k", k, PositiveInt)
    return float(np.linalg.norm(matrix, 2)) / k


def gcn_contraction(model: TAIDTM) -> list[float]:
    """`contraction` of each layer of a fitted TAIDTM's graph convolution, with its number of neighbours for k.

    Its graph is purified and normalised differently, so this is only an indication.
    """
    head: Any = cast(Any, model._fitted_transition()).head
    if not hasattr(head, "graph"):
        raise ConfigError(f"transfer={model.transfer!r}, mapping={model.mapping!r} has no graph convolution")
    weights = [weight for weight in (head.first, head.last) if weight is not None]
    k = max(min(model.neighbours(head.n_annotators), head.n_annotators - 1), 1)
    return [contraction(weight.detach().flatten(1).cpu().numpy(), k) for weight in weights]


class GroupCosines(NamedTuple):
    """Mean |cos| of heads over pairs of annotators of one group, and of different ones; NaN where there are none."""

    within: float
    between: float


def group_cosines(heads: ArrayLike, groups: ArrayLike, *, block: int = 1024) -> GroupCosines:
    """How parallel heads (R, ...) are inside groups (R,), and how far from orthogonal between them.

    Theorem 4 says that heads of dissimilar annotators stay orthogonal. That is false as stated, so measure it. A zero head
    has cosine 0 with all others.

    >>> group_cosines([[1, 0], [2, 0], [0, 1]], [0, 0, 1])
    GroupCosines(within=1.0, between=0.0)
    """
    vectors = np.asarray(heads, dtype=np.float64)
    names = np.asarray(groups)
    if vectors.ndim < 2:
        raise DataError(f"heads must have shape (annotators, ...), not {vectors.shape}")
    if names.shape != (len(vectors),):
        raise DataError(f"groups must have one entry for each annotator, ({len(vectors)},), not {names.shape}")
    vectors = vectors.reshape(len(vectors), -1)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(norms > 0, norms, 1.0)
    sums, counts = np.zeros(2), np.zeros(2)
    for start in range(0, len(vectors), block):
        part = slice(start, start + block)
        cosines = np.abs(vectors[part] @ vectors.T)
        same = names[part, None] == names[None]
        other = np.arange(len(vectors))[part, None] != np.arange(len(vectors))[None]
        for at, chosen in enumerate((same & other, ~same)):
            sums[at] += cosines[chosen].sum()
            counts[at] += chosen.sum()
    means = np.divide(sums, counts, out=np.full(2, np.nan), where=counts > 0).tolist()
    return GroupCosines(means[0], means[1])
