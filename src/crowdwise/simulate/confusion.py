"""Class-conditional crowds: every annotator j has one matrix T^j, T^j[p, q] = P(label q | true class p).

All functions: ``y`` holds the true class codes, (n,); ``n_classes`` defaults to the largest code + 1; the keywords
``labels_per_instance``, ``labels_per_annotator`` and ``pairs`` are those of :func:`crowdwise.simulate.draw_pairs`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from crowdwise.constraints import PositiveInt, Probability, checked
from crowdwise.data.types import Floats, Ints, RandomState
from crowdwise.errors import ConfigError, DataError
from crowdwise.simulate.crowd import SimulatedCrowd, draw_labels, seeds, simulated, true_classes
from crowdwise.simulate.pairs import Design, draw_pairs


def confusion_matrices(
    y: Any,
    matrices: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    random_state: RandomState = 0,
    **design: Unpack[Design],
) -> SimulatedCrowd:
    """Annotators with the given matrices, (R, C, C), who err independently of each other.

    ``groups`` (R,) says which annotators err alike; by default each one is its own group.

    >>> sure, guess = np.eye(2), np.full((2, 2), 0.5)
    >>> crowd = confusion_matrices([0, 1, 0, 1], [sure, guess, sure])
    >>> crowd.annotations.label[crowd.annotations.annotator == 2].tolist()
    [0, 1, 0, 1]
    """
    stacked = _checked(matrices)
    truth, _ = true_classes(y, stacked.shape[1])
    alike = np.arange(len(stacked)) if groups is None else np.asarray(groups, dtype=np.int64)
    if alike.shape != (len(stacked),):
        raise DataError(f"groups must have one entry per annotator, ({len(stacked)},), not {alike.shape}")
    pair_seed, label_seed = seeds(random_state, 2)
    drawn = instance, annotator = draw_pairs(
        len(truth), len(stacked), random_state=np.random.default_rng(pair_seed), **design
    )
    rows = stacked[annotator, truth[instance]]
    label = draw_labels(rows, np.random.default_rng(label_seed))
    return simulated(truth, alike, drawn, label, rows, partial(_class_conditional, matrices=stacked), matrices=stacked)


def one_coin(
    y: Any,
    accuracies: ArrayLike,
    *,
    n_classes: int | None = None,
    random_state: RandomState = 0,
    **design: Unpack[Design],
) -> SimulatedCrowd:
    """Annotators who are right with probability ``accuracies`` (R,) and otherwise choose a wrong class at random.

    >>> one_coin([0, 1, 2], [0.9, 0.6, 0.4]).matrices[1].round(6).tolist()
    [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]
    """
    truth, count = true_classes(y, n_classes)
    return confusion_matrices(truth, _coins(accuracies, count), random_state=random_state, **design)


@checked
def hammer_spammer(
    y: Any,
    n_annotators: PositiveInt = 20,
    *,
    spammer_share: Probability = 0.3,
    accuracy: Probability = 0.9,
    n_classes: int | None = None,
    random_state: RandomState = 0,
    **design: Unpack[Design],
) -> SimulatedCrowd:
    """Hammers (group 0), right with probability ``accuracy``, and spammers (group 1), who guess.

    Karger, Oh, Shah (2011). The last round(``spammer_share`` R) annotators are the spammers.

    >>> hammer_spammer([0, 1] * 50, n_annotators=5, spammer_share=0.4).groups.tolist()
    [0, 0, 0, 1, 1]
    """
    truth, count = true_classes(y, n_classes)
    groups = _last(spammer_share, n_annotators)
    matrices = _coins(np.where(groups == 1, 1 / count, accuracy), count)
    return confusion_matrices(truth, matrices, groups=groups, random_state=random_state, **design)


@checked
def adversarial(
    y: Any,
    n_annotators: PositiveInt = 20,
    *,
    adversary_share: Probability = 0.2,
    accuracy: Probability = 0.8,
    permutation: ArrayLike | None = None,
    n_classes: int | None = None,
    random_state: RandomState = 0,
    **design: Unpack[Design],
) -> SimulatedCrowd:
    """Honest annotators (group 0) and adversaries (group 1), who know the class as often but report another.

    The last round(``adversary_share`` R) annotators are adversaries: they report ``permutation[p]`` for class p, by
    default the next class (with two classes, the opposite).

    >>> adversarial([0, 1] * 50, n_annotators=5).matrices[4].round(6).tolist()
    [[0.2, 0.8], [0.8, 0.2]]
    """
    truth, count = true_classes(y, n_classes)
    reported = np.roll(np.arange(count), -1) if permutation is None else np.asarray(permutation)
    if not np.array_equal(np.sort(reported), np.arange(count)):
        raise ConfigError(f"permutation must hold each of the {count} classes once, not {reported.tolist()}")
    groups = _last(adversary_share, n_annotators)
    matrices = _coins(np.full(n_annotators, accuracy), count)
    matrices[groups == 1] = matrices[groups == 1][:, :, np.argsort(reported)]
    return confusion_matrices(truth, matrices, groups=groups, random_state=random_state, **design)


@checked
def correlated(
    y: Any,
    n_annotators: PositiveInt = 20,
    *,
    copier_share: Probability = 0.5,
    n_leaders: PositiveInt = 1,
    copy_rate: Probability = 0.8,
    accuracy: ArrayLike = 0.7,
    n_classes: int | None = None,
    random_state: RandomState = 0,
    **design: Unpack[Design],
) -> SimulatedCrowd:
    """Annotators some of whom copy: their labels are correlated beyond what the true class explains.

    The first ``n_leaders`` annotators are leaders, the next round(``copier_share`` R) copy them in turn, the rest are
    independent. With probability ``copy_rate``, a copier repeats the label its leader gave, or would have given; else
    it labels on its own. Group 0 is independent, group g is the g-th leader and its copiers. ``rows`` and ``matrices``
    describe each annotator alone, without the correlation.

    Args:
        accuracy: of labels that are not copied, as in :func:`one_coin`: one number, or one per annotator.

    >>> crowd = correlated([0, 1, 2] * 20, n_annotators=6, copy_rate=1.0, labels_per_instance=6)
    >>> crowd.groups.tolist()
    [1, 1, 1, 1, 0, 0]
    >>> labels = crowd.annotations.label.reshape(-1, 6)
    >>> bool((labels[:, 0] == labels[:, 3]).all()), bool((labels[:, 0] == labels[:, 4]).all())
    (True, False)
    """
    truth, count = true_classes(y, n_classes)
    n_copiers = round(copier_share * n_annotators)
    if n_leaders + n_copiers > n_annotators:
        raise ConfigError(
            f"{n_leaders} leaders and {n_copiers} copiers are more than {n_annotators} annotators; "
            "lower n_leaders or copier_share"
        )
    role = np.arange(n_annotators)
    copies = (role >= n_leaders) & (role < n_leaders + n_copiers)
    groups = np.where(role < n_leaders + n_copiers, role % n_leaders + 1, 0)
    alone = _coins(np.broadcast_to(np.asarray(accuracy, dtype=np.float64), n_annotators), count)

    pair_seed, label_seed, leader_seed, copy_seed = seeds(random_state, 4)
    drawn = instance, annotator = draw_pairs(
        len(truth), n_annotators, random_state=np.random.default_rng(pair_seed), **design
    )
    label = draw_labels(alone[annotator, truth[instance]], np.random.default_rng(label_seed))
    # a leader's label, given or not, is drawn once for each instance its group meets
    followed = groups[annotator] > 0
    met, inverse = np.unique(instance[followed] * n_leaders + groups[annotator[followed]] - 1, return_inverse=True)
    leading = draw_labels(alone[met % n_leaders, truth[met // n_leaders]], np.random.default_rng(leader_seed))[inverse]
    repeats = ~copies[annotator[followed]] | (np.random.default_rng(copy_seed).random(len(leading)) < copy_rate)
    label[followed] = np.where(repeats, leading, label[followed])

    marginal = alone.copy()
    marginal[copies] = copy_rate * alone[groups[copies] - 1] + (1 - copy_rate) * alone[copies]
    rows = marginal[annotator, truth[instance]]
    return simulated(
        truth, groups, drawn, label, rows, partial(_class_conditional, matrices=marginal), matrices=marginal
    )


def _class_conditional(X: Any, instances: Ints, annotators: Ints, *, matrices: Floats) -> Floats:
    return matrices[annotators]


def _checked(matrices: ArrayLike) -> Floats:
    stacked = np.array(matrices, dtype=np.float64)
    if stacked.ndim != 3 or stacked.shape[1] != stacked.shape[2] or not len(stacked):
        raise DataError(f"matrices must have shape (annotators, classes, classes), not {stacked.shape}")
    valid = (stacked >= 0).all(axis=2) & np.isclose(stacked.sum(axis=2), 1, atol=1e-6)
    if not valid.all():
        annotator, row = np.argwhere(~valid)[0]
        values = stacked[annotator, row].tolist()
        raise DataError(f"row {row} of annotator {annotator}'s matrix is not a distribution that sums to 1: {values}")
    return stacked


def _coins(accuracies: ArrayLike, count: int) -> Floats:
    """Matrices of annotators who err uniformly, (R,) -> (R, C, C)."""
    right = np.asarray(accuracies, dtype=np.float64)
    if right.ndim != 1 or not right.size:
        raise DataError(f"accuracies must have one entry per annotator, (R,), not {right.shape}")
    wrong = np.flatnonzero(~((right >= 0) & (right <= 1)))
    if wrong.size:
        raise ConfigError(f"the accuracy of annotator {wrong[0]} must be between 0 and 1, not {right[wrong[0]]:g}")
    other = ((1 - right) / (count - 1))[:, None, None]
    return np.where(np.eye(count, dtype=bool), right[:, None, None], other)


def _last(share: float, size: int) -> Ints:
    """Group 1 for the last round(share R) annotators, 0 for the others, (R,)."""
    return (np.arange(size) >= size - round(share * size)).astype(np.int64)
