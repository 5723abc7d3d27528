"""What to label next: which instance, by whom, and the expected gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import entr

from crowdwise.annotations import Annotations
from crowdwise.constraints import NonNegativeFloat, NonNegativeInt, PositiveInt, check_value, checked
from crowdwise.data.codes import Selection, row_blocks, selected
from crowdwise.data.types import Floats, Ints
from crowdwise.errors import ConfigError, DataError
from crowdwise.quality._belief import NUMBERS, Belief, floats
from crowdwise.quality._instances import entropy
from crowdwise.quality._skill import skill


@checked
def next_labels(
    annotations: Any,
    posterior: Any = None,
    *,
    budget: float,
    confusion: Any = None,
    annotators: Selection | None = None,
    per_annotator: PositiveInt | None = None,
    panel: PositiveInt = 20,
    costs: Mapping[Any, Any] | None = None,
    kinds: Any = None,
    votes: Mapping[Any, float] | None = None,
) -> pa.Table:
    """The ``budget`` most informative labels to ask for, one per instance, best first.

    ``posterior`` and ``confusion`` are as in `annotators`; without confusion matrices, an annotator is right with
    probability ``annotator_quality`` and errs uniformly. The ``panel`` most informative of ``annotators`` (codes or a
    mask; all by default) are asked, each for at most ``per_annotator`` labels (by default twice an even share), and
    never for an instance they have labelled. Candidates are the 2 ``budget`` + 100 instances of highest entropy. The
    gains hold for one label each: call this again when the labels are in.

    With ``costs``, the budget is money: ``costs`` maps annotators to the price of a label, or the kinds "person" and
    "model" where ``kinds`` (R,) says which is which (an annotator of its own goes before its kind), and labels are ranked by
    gain per price. ``votes`` maps annotators to what their votes count, such as effective votes divided by the number of
    models (`crowdwise.judges.dependence`), by which their gains are multiplied.

    Columns: ``instance``; ``annotator``; ``expected_gain``, the mutual information between label and true class in
    bits; ``expected_accuracy_gain``, the expected increase of the probability that the most likely class is right;
    ``consensus_label`` and ``consensus_quality_score``, the current ones; with ``costs``, ``cost``. Gains and scores are null
    where nothing tells right labels from wrong ones yet.

    >>> crowd = Annotations.from_dense([[0, 0, 0], [0, 1, None], [1, 1, 1], [0, 0, None]])
    >>> next_labels(crowd, budget=1).select(["instance", "annotator"]).to_pylist()
    [{'instance': 1, 'annotator': 2}]
    """
    crowd = Annotations.coerce(annotations)
    belief = Belief.of(crowd, posterior, confusion)
    check_value("budget", budget, NonNegativeInt if costs is None else NonNegativeFloat, parameter="budget")
    price, names = _prices(crowd, costs, kinds), crowd.annotator_vocabulary.arrow.to_pylist()
    worth = np.array([float((votes or {}).get(name, 1.0)) for name in names])  # what each vote counts, (R,)
    money = float(budget)
    labels = int(money) if price is None else int(min(money / price.min(), crowd.n_instances)) if len(price) else 0
    budget = labels if crowd.n_classes else 0  # without classes there is nothing to learn
    everyone = np.arange(crowd.n_annotators)
    available = everyone if annotators is None else selected(annotators, "annotator", crowd.n_annotators)
    uncertain = np.argsort(-entropy(belief), kind="stable")[: 2 * budget + 100]
    who, matrices = _panel(crowd, belief, available, panel)
    capacity = per_annotator if per_annotator is not None else -(-2 * budget // max(len(who), 1))
    gains = _gains(belief.posterior[uncertain], matrices)
    gains *= worth[who]
    gains[_labelled(crowd, uncertain, who)] = -np.inf
    per_price = gains if price is None else gains / price[who]
    chosen, asked = _assign(per_price, budget, capacity)
    if price is not None:
        spent = np.cumsum(price[who[asked]]) <= money + 1e-9
        chosen, asked = chosen[spent], asked[spent]
    gain = gains[chosen, asked]
    better = _accuracy_gains(belief.posterior[uncertain[chosen]], matrices, asked)
    codes = uncertain[chosen]
    untold = np.full(len(codes), not belief.comparable)
    return pa.table(
        {
            "instance": crowd.instance_vocabulary.take(codes),
            "annotator": crowd.annotator_vocabulary.take(who[asked]),
            "expected_gain": floats(gain, untold),
            "expected_accuracy_gain": floats(better, untold),
            "consensus_label": crowd.class_vocabulary.take(belief.label[codes]),
            "consensus_quality_score": floats(belief.confidence[codes], untold),
            **({} if price is None else {"cost": price[who[asked]]}),
        }
    )


def _prices(crowd: Annotations, costs: Mapping[Any, Any] | None, kinds: Any) -> Floats | None:
    """The price of a label of every annotator, (R,)."""
    if costs is None:
        return None
    names = crowd.annotator_vocabulary.arrow.to_pylist()
    of_kind = [None] * len(names) if kinds is None else [str(kind) for kind in kinds]
    if len(of_kind) != len(names):
        raise DataError(f"kinds has {len(of_kind)} entries, but there are {len(names)} annotators", parameter="kinds")
    found = [costs.get(name, costs.get(kind)) for name, kind in zip(names, of_kind, strict=True)]
    for name, price in zip(names, found, strict=True):
        if not isinstance(price, int | float) or isinstance(price, bool) or not price > 0:
            raise ConfigError(f"costs: annotator {name!r} needs a price above 0, got {price!r}", parameter="costs")
    return np.array(found, np.float64)


def _panel(annotations: Annotations, belief: Belief, available: Ints, size: int) -> tuple[Ints, Floats]:
    """The most informative annotators (K,) and their confusion matrices (K, C, C)."""
    classes = annotations.n_classes
    if belief.confusion is None:
        mean = skill(annotations, belief).mean
        who = available[np.argsort(-mean[available], kind="stable")[:size]]
        right, wrong = mean[who], (1 - mean[who]) / max(classes - 1, 1)
        return who, wrong[:, None, None] + (right - wrong)[:, None, None] * np.eye(classes)
    frequency = belief.posterior.sum(axis=0, keepdims=True) + 1e-9
    prior = frequency / max(frequency.sum(), 1e-9)
    blocks = row_blocks(len(available), classes**2, NUMBERS)
    value = np.concatenate([np.empty(0), *(_gains(prior, belief.confusion[available[rows]])[0] for rows in blocks)])
    who = available[np.argsort(-value, kind="stable")[:size]]
    return who, belief.confusion[who]


def _gains(posterior: Floats, matrices: Floats) -> Floats:
    """Mutual information of class and label in bits, (M, K): H(label) - H(label | class)."""
    annotators, classes = matrices.shape[:2]
    side_by_side = matrices.transpose(1, 0, 2).reshape(classes, annotators * classes)
    given_class = entr(matrices).sum(axis=2)  # (K, C)
    gains = np.empty((len(posterior), annotators))
    for rows in row_blocks(len(posterior), annotators * classes, NUMBERS):
        labels = (posterior[rows] @ side_by_side).reshape(rows.stop - rows.start, annotators, classes)
        gains[rows] = entr(labels).sum(axis=2) - posterior[rows] @ given_class.T
    return np.asarray(np.maximum(gains, 0) / np.log(2))


def _labelled(annotations: Annotations, instances: Ints, who: Ints) -> tuple[Ints, Ints]:
    """Positions (instance, annotator) of the pairs that already have a label."""
    row, column = np.full(annotations.n_instances, -1), np.full(annotations.n_annotators, -1)
    row[instances], column[who] = np.arange(len(instances)), np.arange(len(who))
    rows, columns = row[annotations.instance], column[annotations.annotator]
    both = (rows >= 0) & (columns >= 0)
    return rows[both], columns[both]


def _assign(gains: Floats, budget: int, capacity: int) -> tuple[Ints, Ints]:
    """Instances and annotators of the best pairs: one annotator per instance, ``capacity`` instances per annotator.

    In each round, every free instance picks the best annotator with room, and annotators accept the best of them. A
    round either spends the budget or fills an annotator, so there are at most as many rounds as annotators.
    """
    asked, free = np.full(len(gains), -1), gains.copy()
    room = np.full(gains.shape[1], capacity)
    while free.size and (left := budget - int(np.count_nonzero(asked >= 0))) > 0:
        best = free.argmax(axis=1)
        value = free[np.arange(len(free)), best]
        wanted = np.argsort(-value, kind="stable")[:left]
        wanted = wanted[np.isfinite(value[wanted])]
        if not len(wanted):
            break
        accepted = wanted[_rank(best[wanted]) < room[best[wanted]]]
        asked[accepted] = best[accepted]
        room -= np.bincount(best[accepted], minlength=len(room))
        free[accepted], free[:, room == 0] = -np.inf, -np.inf
    chosen = np.flatnonzero(asked >= 0)
    chosen = chosen[np.argsort(-gains[chosen, asked[chosen]], kind="stable")]
    return chosen, asked[chosen]


def _rank(group: Ints) -> Ints:
    """Position of each entry among those of its group, (k,).

    >>> _rank(np.array([5, 3, 5, 5]))
    array([0, 0, 1, 2])
    """
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - np.repeat(first, np.diff(first, append=len(group)))
    return rank


def _accuracy_gains(posterior: Floats, matrices: Floats, asked: Ints) -> Floats:
    """Expected increase of the largest posterior probability by one label, (k,)."""
    gains = np.empty(len(posterior))
    for rows in row_blocks(len(posterior), posterior.shape[1] ** 2, NUMBERS):
        joint = posterior[rows, :, None] * matrices[asked[rows]]  # (b, C, C)
        gains[rows] = joint.max(axis=1).sum(axis=1) - posterior[rows].max(axis=1)
    return np.maximum(gains, 0)
