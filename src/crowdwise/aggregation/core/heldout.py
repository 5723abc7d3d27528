"""Which posterior is the better one, without truth: that which foretells labels it was not given.

One label of every instance with three or more is left out. A posterior q of the rest, with the matrices T that follow from
it, foretells label l of annotator j on instance i with probability Σ_c q_i(c) T_j[c, l]. Weights of several posteriors are

    w_m ∝ exp(VOTES · typical / ρ · N / (N + FEW) · mean log-probability of the N labels left out under m),

as if a few dozen labels had been foretold: votes that err together foretell each other too, so the best forecast is not
always the right one, and no member is silenced by little. Where the patterns of votes show that errors are independent
(small ρ), the forecast counts for more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.correlation import STRENGTH, crowd_matrix, typical
from crowdwise.aggregation.core.crowd import Crowd, MemoryCrowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.aggregation.core.patterns import Shown

VOTES = 50.0
FEW = 200.0  # labels left out that are too few to tell members apart


class HeldOut(NamedTuple):
    """A crowd without some of its labels, and these."""

    rest: MemoryCrowd
    instance: npt.NDArray[np.int64]  # (N,)
    cells: npt.NDArray[Any]  # (N,) annotator * C + label

    def score(self, posterior: Floats) -> float:
        """Mean log-probability of the labels left out, under a posterior (n, C) of the rest."""
        table = self.rest.counts(posterior)
        table += STRENGTH * crowd_matrix(table)
        table /= table.sum(axis=1, keepdims=True)
        rows = table.reshape(-1, self.rest.n_classes)[self.cells]
        return float(np.log(np.maximum((posterior[self.instance] * rows).sum(axis=1), 1e-6)).mean())

    def weights(self, scores: list[float], patterns: Shown) -> Floats:
        """Weights (M,) of posteriors with these scores; ``patterns`` are those of the whole crowd."""
        number, usual = len(self.cells), typical()
        votes = VOTES * usual / min(patterns.correlation(usual), usual)
        gains = votes * number / (number + FEW) * (np.array(scores) - max(scores))
        return np.asarray(np.exp(gains) / np.exp(gains).sum())


def without_some(crowd: Crowd, rng: np.random.Generator) -> HeldOut | None:
    """Leave out a label of every instance that has three; None where there is no such instance, and on disk.

    Which one is drawn by the ids of instance and annotator, so that the order of the annotations changes nothing.
    """
    if not isinstance(crowd, MemoryCrowd):
        return None
    layout, instance = crowd.layout, kernels.instances(crowd.layout)
    lots = crowd.drawn_for_instances(rng.random(crowd.n_instances))[instance]
    everybody = np.arange(crowd.n_annotators)
    lots += crowd.drawn_for_annotators(rng.random(crowd.n_annotators), everybody)[layout.cells // crowd.n_classes]
    order = np.lexsort((lots % 1.0, instance))
    first = order[layout.indptr[:-1][np.diff(layout.indptr) > 2]]
    if layout.gold.size:
        first = first[layout.gold[instance[first]] < 0]
    if not first.size:
        return None
    kept = np.ones(len(instance), bool)
    kept[first] = False
    rest = layout._replace(
        cells=layout.cells[kept],
        indptr=np.append(0, np.cumsum(kept))[layout.indptr],
        weight=None if layout.weight is None else layout.weight[kept],
    )
    return HeldOut(MemoryCrowd(rest, crowd.annotations, crowd.history), instance[first], layout.cells[first])
