"""What a linear model on all terms of a text says of its class: a few columns beside those of a truncated decomposition.

A decomposition keeps what texts differ in most, which need not be what tells classes apart. Ridge regression of the crowd's votes
on all terms loses nothing, and takes seconds. So that a network can trust its predictions, those of a training text come from a
regression without the text (cross-fitting, as in stacking).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Floats = npt.NDArray[Any]
FOLDS = 5
SHARES = 0.1, 0.3, 0.5  # of runs of characters, beside words, to choose from
PENALTIES = 0.03, 0.1, 0.3, 1.0, 3.0, 10.0
_SAMPLE = 1200  # texts that the share and the penalty are chosen by
_ROUNDS = 60  # of conjugate gradients, at most
_CLOSE = 1e-3  # what is left of the error when they stop


@dataclass(frozen=True)
class Opinions:
    """Weights of terms by class, and what they say of the texts they were learnt from."""

    weights: Floats  # (V, C)
    centre: Floats  # (C,)
    training: Floats  # (n, C) of the training texts, each by regressions without it
    share: float
    penalty: float


def learn_opinions(A: sp.csr_array, n_words: int, votes: Floats, seed: int) -> Opinions:
    """From weighted counts (n, V), of which the first ``n_words`` columns are words', and votes (n, C), none of them empty.

    Columns are scaled to standard deviation 1, so that rare classes are heard as well as others.
    """
    Y = (votes / votes.sum(1, keepdims=True)).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(Y))
    share, penalty = _choose(A[np.sort(order[:_SAMPLE])], n_words, Y[np.sort(order[:_SAMPLE])])
    of_each = np.where(np.arange(A.shape[1]) < n_words, 1 - share, share)  # of words and of characters
    factors: Floats = np.sqrt(2 * of_each).astype(np.float32)  # (V,)
    A = sp.csr_array(A @ sp.diags_array(factors))
    fold = np.empty(len(Y), np.int64)
    fold[order] = np.arange(len(Y)) % FOLDS
    training, weights = np.zeros_like(Y), np.zeros((A.shape[1], Y.shape[1]), np.float32)
    for each in range(FOLDS):
        kept = fold != each
        own = _ridge(sp.csr_array(A[kept]), Y[kept] - Y[kept].mean(0), penalty)
        training[~kept] = A[~kept] @ own
        weights += own / FOLDS
    centre, scale = training.mean(0), np.maximum(training.std(0), 1e-6)
    return Opinions(factors[:, None] * weights / scale, centre / scale, (training - centre) / scale, share, penalty)


def _choose(A: sp.csr_array, n_words: int, Y: Floats) -> tuple[float, float]:
    """The share of characters and the penalty with the least error when each text is left out."""
    words, characters = ((part @ part.T).toarray() for part in (A[:, :n_words], A[:, n_words:]))
    found = []
    for share in SHARES if characters.any() else (0.0,):
        kernel = 2 * ((1 - share) * words + share * characters)
        value, vector = np.linalg.eigh(kernel)
        value, Z = np.maximum(value, 0), Y - Y.mean(0)
        for penalty in PENALTIES:
            kept = value / (value + penalty)
            error = (Z - (vector * kept) @ (vector.T @ Z)) / np.maximum(1 - np.square(vector) @ kept, 1e-3)[:, None]
            found.append((float(np.square(error).sum()), share, penalty))
    return min(found)[1:]


def _ridge(A: sp.csr_array, Y: Floats, penalty: float) -> Floats:
    """The weights (V, C) that minimise |A w - Y|^2 + penalty |w|^2: conjugate gradients on the texts' side."""
    alpha, rest = np.zeros_like(Y), Y.copy()
    step, size = rest.copy(), np.square(rest).sum(0)
    enough = _CLOSE**2 * np.maximum(size, 1e-12)
    back = sp.csr_array(A.T)
    for _ in range(_ROUNDS):
        if (size <= enough).all():
            break
        product = A @ (back @ step) + np.float32(penalty) * step
        length = size / np.maximum((step * product).sum(0), 1e-20)
        alpha += length * step
        rest -= length * product
        size, before = np.square(rest).sum(0), size
        step = rest + size / np.maximum(before, 1e-20) * step
    weights: Floats = back @ alpha
    return weights
