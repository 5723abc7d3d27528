"""Texts as weighted counts of words and runs of characters, reduced to a few hundred columns: no downloads, and fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from crowdwise.constraints import Interval, PositiveInt
from crowdwise.data.types import Array
from crowdwise.encoders import ngrams
from crowdwise.encoders.base import ENCODERS, Encoder, need
from crowdwise.encoders.opinions import learn_opinions
from crowdwise.encoders.rows import as_texts
from crowdwise.errors import DataError, ModelFileError
from crowdwise.progress import progress_bar

ROWS = 50_000  # texts of which the terms are learnt
REDUCED_FROM = 10_000  # texts of which the reduction is learnt
WORDS, CHARACTERS = 50_000, 30_000  # terms of each kind that are kept, the most frequent ones
MANY = 20_000  # texts from which on fewer columns are enough
MOST_CLASSES = 200  # up to which a linear model has a column for each
FEWEST = 20  # texts with votes from which on it is worth while
LOUD = 4.0  # size of these columns, of which there are few: the others' is 1
_BLOCK = 4096  # texts that are reduced together
_ROUNDS = 3  # of products with the matrix, by which its leading directions come out


@ENCODERS.register("tfidf")
@dataclass(kw_only=True)
class Tfidf(Encoder):
    """Words, pairs of words and runs of characters, rare ones counting more, then a truncated singular value decomposition.

    Upper case does not matter, neither does the order beyond pairs. Works for every language that Unicode has.
    In a method's fit, a linear model of the votes on all terms adds a column for each class: see ``opinions``.

    >>> texts = ["a good film", "a bad film", "good, very good", "bad and boring"]
    >>> Tfidf(min_texts=1, width=2).fitted(texts).transform(["good!", "unknown"]).shape
    (2, 2)
    """

    name: ClassVar[str] = "tfidf"
    takes: ClassVar[str] = "text"
    prepare: ClassVar[str] = "none"  # the sizes of the columns mean something
    hears: ClassVar[bool] = True

    words: Annotated[int, Interval(1, 5)] = 2
    """Longest run of words that counts as a term."""
    characters: tuple[int, int] | None = (3, 5)
    """Shortest and longest run of characters within words that count as terms, too; None: words only."""
    min_texts: PositiveInt = 2
    """Number of training texts that must have a term."""
    width: Annotated[int, Interval(0, 10_000)] | None = None
    """Columns of the decomposition; 0: a sparse matrix with a column for each term; None: 800, or 300 beyond 20,000 texts."""
    opinions: bool = True
    """Whether methods add what a linear model on all terms says of each class, learnt from the crowd's votes and, for training
    texts, from the votes on other texts. Not with ``width=0``, nor with more than 200 classes."""

    def learn(self, rows: Any, seed: int) -> None:
        if self.characters is not None and not 1 <= self.characters[0] <= self.characters[1] <= 10:
            raise DataError(f"characters must be (from, to) with 1 <= from <= to <= 10, got {self.characters}")
        texts = as_texts(rows)
        sample = texts[:: -(-len(texts) // ROWS)] if texts else texts
        least = self.min_texts if len(sample) >= 20 else 1
        for part, cap in (("word", WORDS), ("character", CHARACTERS)) if self.characters else (("word", WORDS),):
            known, found = ngrams.frequencies(sample, *self._sizes(part))
            keep = found >= least
            known, found = known[keep], found[keep]
            if len(known) > cap:
                most = np.sort(np.lexsort((known, -found))[:cap])
                known, found = known[most], found[most]
            self.arrays_[f"{part}_terms"] = known.view(np.int64)
            self.arrays_[f"{part}_weights"] = (np.log((1 + len(sample)) / (1 + found)) + 1).astype(np.float32)
        if not sum(len(self.arrays_[name]) for name in self.arrays_):
            raise DataError(f"the {len(texts):,} texts have no word that occurs in {least} of them")
        if self.width != 0:
            self._learn_reduction(sample, len(texts), seed)

    def _learn_reduction(self, texts: Sequence[str], n: int, seed: int) -> None:
        A = self._sparse(texts[:: -(-len(texts) // REDUCED_FROM)])
        wanted = self.width if self.width is not None else 800 if n <= MANY else 300
        components = leading_directions(A, max(min(wanted, min(A.shape) - 1), 1), seed)
        # Turned at random, so that every column has its share of everything. Optimisers like Adam give all columns the same
        # step: with the directions themselves as columns, those that hardly matter would be learnt as fast as the main ones.
        components = components @ random_rotation(components.shape[1], seed)
        features = A @ components
        centre = features.mean(axis=0)
        scale = np.sqrt(features.shape[1] / max(np.square(features - centre).sum(1).mean(), 1e-12))
        components *= np.float32(scale)
        size = np.maximum(np.abs(components).max(1), 1e-12) / 127  # a byte for each number is exact enough
        self.arrays_["components"] = np.rint(components / size[:, None]).astype(np.int8)
        self.arrays_["component_sizes"] = size.astype(np.float32)
        self.arrays_["centre"] = (centre * scale).astype(np.float32)

    def hear(self, rows: Any, votes: Array, seed: int) -> tuple[Array, Array] | None:
        n, n_classes = votes.shape
        if not self.opinions or self.width == 0 or not 2 <= n_classes <= MOST_CLASSES or n < FEWEST:
            return None
        learnt = np.arange(0, n, -(-n // ROWS))
        texts = as_texts(rows)
        counts = self._sparse([texts[row] for row in learnt])
        found = learn_opinions(counts, len(self.arrays_["word_terms"]), votes[learnt], seed)
        self.arrays_["opinion_weights"] = (np.float32(LOUD) * found.weights).clip(-6e4, 6e4).astype(np.float16)
        self.arrays_["opinion_centre"] = np.float32(LOUD) * found.centre
        self.facts_["opinions"] = {"characters": found.share, "penalty": found.penalty}
        return learnt, np.float32(LOUD) * found.training

    def transform(self, rows: Any) -> Any:
        texts = as_texts(rows)
        if "components" not in self.arrays_:
            return self._sparse(texts)
        factors = [(self._components(), self.arrays_["centre"])]
        if self._has_opinions:
            factors.append((self.arrays_["opinion_weights"].astype(np.float32), self.arrays_["opinion_centre"]))
        result = np.empty((len(texts), sum(weights.shape[1] for weights, _ in factors)), np.float32)
        with progress_bar("encoding texts", len(texts), show=len(texts) > 5 * _BLOCK) as advance:
            for start in range(0, len(texts), _BLOCK):
                part = self._sparse(texts[start : start + _BLOCK])
                columns = [part @ weights - centre for weights, centre in factors]
                result[start : start + part.shape[0]] = np.hstack(columns)
                advance(part.shape[0])
        return result

    def _components(self) -> Array:
        """(V, width), float32."""
        sizes = self.arrays_.get("component_sizes")  # models of earlier versions have float16 components without it
        components = self.arrays_["components"].astype(np.float32)
        if sizes is not None:
            components *= sizes[:, None]
        return components

    @property
    def _has_opinions(self) -> bool:
        return "opinion_weights" in self.arrays_

    def _sparse(self, texts: Sequence[str]) -> sp.csr_array:
        """Weighted counts (n, V); words and characters each have length 1."""
        parts = []
        for part in ("word", "character"):
            if f"{part}_terms" in self.arrays_:
                count = ngrams.counts(texts, *self._sizes(part), self.arrays_[f"{part}_terms"].view(np.uint64))
                count.data = 1 + np.log(count.data)
                weighted = sp.csr_array(count @ sp.diags_array(self.arrays_[f"{part}_weights"]))
                length = np.sqrt(weighted.power(2).sum(axis=1))
                weighted.data /= np.repeat(np.where(length > 0, length, 1), np.diff(weighted.indptr))
                parts.append(weighted)
        joined = parts[0] if len(parts) == 1 else sp.hstack(parts, format="csr")
        return sp.csr_array(joined.astype(np.float32))

    def _sizes(self, part: str) -> tuple[int, tuple[int, int] | None]:
        return (self.words, None) if part == "word" else (0, self.characters)

    @property
    def about(self) -> str:
        terms = sum(len(self.arrays_[name]) for name in self.arrays_ if name.endswith("_terms"))
        reduced = f", reduced to {self.arrays_['components'].shape[1]:,}" if "components" in self.arrays_ else ""
        heard = ", and a linear model on all of them" if self._has_opinions else ""
        return f"tfidf: {terms:,} words and runs of characters{reduced}{heard}"

    def check_state(self) -> None:
        total = 0
        for part in ("word", "character") if self.characters else ("word",):
            n = len(self.arrays_[f"{part}_terms"])
            total += n
            need(self, (f"{part}_terms", (n,), "i"), (f"{part}_weights", (n,), "f"))
            terms = self.arrays_[f"{part}_terms"].view(np.uint64)
            if not (terms[1:] > terms[:-1]).all():
                raise ModelFileError("its terms are not in order")
        if self.width != 0:
            byte = "component_sizes" in self.arrays_
            need(self, ("components", (total, None), "i" if byte else "f"))
            need(self, *[("component_sizes", (total,), "f")] * byte)
            need(self, ("centre", (self.arrays_["components"].shape[1],), "f"))
        if self._has_opinions:
            need(self, ("opinion_weights", (total, None), "f"))
            need(self, ("opinion_centre", (self.arrays_["opinion_weights"].shape[1],), "f"))


def random_rotation(width: int, seed: int) -> Array:
    """An orthogonal matrix (width, width)."""
    start = np.random.default_rng(seed).standard_normal((width, width))
    turned: Array = np.linalg.qr(start)[0].astype(np.float32)
    return turned


def leading_directions(A: sp.csr_array, width: int, seed: int) -> Array:
    """The right singular vectors (V, width) of the largest singular values: randomised, in float32.

    The random start belongs to the columns, so that the order of the rows changes nothing but rounding.
    """
    several = min(width + 20, min(A.shape))
    start = np.random.default_rng(seed).standard_normal((A.shape[1], several), dtype=np.float32)
    Y = A @ start
    for _ in range(_ROUNDS):
        Y = A @ (A.T @ np.linalg.qr(Y)[0])
    B = (A.T @ np.linalg.qr(Y)[0]).T  # (several, V)
    squares, turn = np.linalg.eigh((B @ B.T).astype(np.float64))
    largest = np.argsort(-squares)[:width]
    length = np.sqrt(np.maximum(squares[largest], 1e-12))
    directions = B.T @ (turn[:, largest] / length).astype(np.float32)
    signs = np.sign(directions[np.abs(directions).argmax(0), np.arange(width)])
    found: Array = np.ascontiguousarray(directions * np.where(signs == 0, 1, signs), dtype=np.float32)
    return found
