"""Counts of words, pairs of words and runs of characters in texts, by array operations: a term is known by its 64-bit hash.

A vocabulary of hashes is an array of numbers: it is fast to look up, and can be saved without the texts it was made from.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Codes = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]
BLOCK = 1 << 20  # characters that are looked at together
LONGEST = 1 << 16  # characters of a text that count
SPACE, LETTER, SYMBOL, IDEOGRAPH = range(4)
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
_PAIR, _CHARACTERS = np.uint64(0xD6E8FEB86659FD93), 0xA5A5A5A5C3C3C3C3
_APOSTROPHES = (0x27, 0x2019)


def terms(texts: Sequence[str], words: int, characters: tuple[int, int] | None) -> tuple[Rows, Hashes]:
    """Row and hash of every term of the texts, one for each time it occurs: runs of up to ``words`` words (0: none), and runs
    of ``characters`` (from, to) within words.

    Upper case, and the forms of one character in Unicode, count as one. A word is a run of letters and digits; every
    other sign is a word of its own, and so is an ideograph.

    >>> rows, hashes = terms(["Not good", "good, not", "GOOD"], 1, None)
    >>> rows.tolist(), len(np.unique(hashes))
    ([0, 0, 1, 1, 1, 2], 3)
    """
    codes, row, kind = _characters(texts)
    follows = np.zeros(len(codes), bool)  # whether a character goes on with the word before it
    follows[1:] = (kind[1:] == LETTER) & (kind[:-1] == LETTER) & (row[1:] == row[:-1])
    start = np.flatnonzero((kind != SPACE) & ~follows)
    last = np.flatnonzero((kind != SPACE) & ~np.append(follows[1:], False))
    sums, inverse = _prefix(codes)
    word = _mixed((sums[last + 1] - sums[start]) * inverse[start])
    of_word = row[start]
    found_rows, found = ([of_word], [word]) if words else ([of_word[:0]], [word[:0]])
    run = word
    for n in range(2, words + 1):
        together = of_word[n - 1 :] == of_word[: max(len(of_word) - n + 1, 0)]
        run = _mixed(run[: len(together)] * _PAIR + word[n - 1 :])
        found_rows.append(of_word[n - 1 :][together])
        found.append(run[together])
    if characters is not None:
        place = np.cumsum(np.bincount(start, minlength=len(codes)))  # number of the word that a character is in
        inside = kind != SPACE
        for n in range(characters[0], characters[1] + 1):
            for at, hashes in _windows(n, inside, place, start, last, sums, inverse):
                found_rows.append(row[at])
                found.append(hashes)
    return np.concatenate(found_rows), np.concatenate(found)


def _windows(
    n: int, inside: npt.NDArray[np.bool_], place: Rows, start: Rows, last: Rows, sums: Hashes, inverse: Hashes
) -> Iterator[tuple[Rows, Hashes]]:
    """Runs of ``n`` characters of a word, the blanks around it counted: their places and hashes."""
    kind = np.uint64(_CHARACTERS * n % 2**64)
    if len(place) >= n:
        at = np.flatnonzero(
            inside[: len(place) - n + 1] & inside[n - 1 :] & (place[: len(place) - n + 1] == place[n - 1 :])
        )
        yield at, _mixed((sums[at + n] - sums[at]) * inverse[at] + kind)
    long = last - start + 1 >= n - 1  # at the edges: a blank and n - 1 characters
    begin, end = start[long], last[long]
    yield begin, _mixed((sums[begin + n - 1] - sums[begin]) * inverse[begin] + kind + np.uint64(1))
    yield end, _mixed((sums[end + 1] - sums[end - n + 2]) * inverse[end - n + 2] + kind + np.uint64(2))


def counts(texts: Sequence[str], words: int, characters: tuple[int, int] | None, known: Hashes) -> sp.csr_array:
    """How often each of the ``known`` terms (sorted) occurs in each text: (n, V)."""
    parts: list[Any] = [sp.csr_array((0, len(known)), dtype=np.float32)]
    for block in blocks(texts):
        row, column = _lookup(*terms(block, words, characters), known)
        ones = np.ones(len(row), np.float32)  # which are summed where a term repeats
        parts.append(sp.csr_array((ones, (row, column)), shape=(len(block), len(known))))
    return sp.csr_array(sp.vstack(parts, format="csr"))


def frequencies(texts: Sequence[str], words: int, characters: tuple[int, int] | None) -> tuple[Hashes, Rows]:
    """Every term of the texts, sorted, and in how many of them it occurs."""
    known, total = np.empty(0, np.uint64), np.empty(0, np.int64)
    pending: list[tuple[Hashes, Rows]] = []
    waiting = 0
    for block in blocks(texts):
        row, hashes = terms(block, words, characters)
        order = np.lexsort((row, hashes))
        row, hashes = row[order], hashes[order]
        new = np.append(True, (hashes[1:] != hashes[:-1]) | (row[1:] != row[:-1]))[: len(hashes)]
        found, count = np.unique(hashes[new], return_counts=True)
        pending.append((found, count))
        waiting += len(found)
        if waiting > 2 * BLOCK + len(known):
            known, total = _added([(known, total), *pending])
            pending, waiting = [], 0
    return _added([(known, total), *pending])


def _added(parts: list[tuple[Hashes, Rows]]) -> tuple[Hashes, Rows]:
    every, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    known, place = np.unique(every, return_inverse=True)
    return known, np.bincount(place, weights=counts, minlength=len(known)).astype(np.int64)


def blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in parts of about `BLOCK` characters."""
    start = size = 0
    for place, text in enumerate(texts):
        size += min(len(text), LONGEST) + 1
        if size >= BLOCK:
            yield texts[start : place + 1]
            start, size = place + 1, 0
    if start < len(texts):
        yield texts[start:]


def _lookup(row: Rows, hashes: Hashes, known: Hashes) -> tuple[Rows, Rows]:
    if not len(known):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    column = np.searchsorted(known, hashes)
    column[column == len(known)] = 0
    there = known[column] == hashes
    return row[there], column[there]


def _characters(texts: Sequence[str]) -> tuple[Codes, Rows, npt.NDArray[np.uint8]]:
    """Code point, row and kind of every character; a blank stands after each text."""
    plain = [unicodedata.normalize("NFKC", text[:LONGEST]).casefold() for text in texts]
    codes = np.frombuffer(" ".join([*plain, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    row = np.repeat(np.arange(len(plain)), [len(text) + 1 for text in plain])
    kind = _kinds(codes)
    inner = np.isin(codes[1:-1], _APOSTROPHES) & (kind[:-2] == LETTER) & (kind[2:] == LETTER)
    kind[1:-1][inner] = LETTER
    return codes, row, kind


def _kinds(codes: Codes) -> npt.NDArray[np.uint8]:
    present = np.flatnonzero(np.bincount(codes, minlength=1))
    table = np.zeros(int(present[-1]) + 1 if len(present) else 1, np.uint8)
    table[present] = [_kind(int(code)) for code in present]
    return table[codes]


@cache
def _kind(code: int) -> int:
    character = chr(code)
    if 0x3040 <= code <= 0x30FF or 0x3400 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF:
        return IDEOGRAPH
    category = unicodedata.category(character)
    if category[0] in "LNM" or character == "_":
        return LETTER
    return SPACE if category[0] in "ZC" and category not in ("Co", "Cn") else SYMBOL


def _prefix(codes: Codes) -> tuple[Hashes, Hashes]:
    """Sums of code times base^place before every place, and the inverse powers: a run's hash follows from two sums."""
    size = len(codes) + 1
    value = _mixed(codes.astype(np.uint64) + np.uint64(1))
    with np.errstate(over="ignore"):
        sums = np.append(np.uint64(0), np.cumsum(value * _powers(_BASE, size)[:-1], dtype=np.uint64))
    return sums, _powers(pow(_BASE, -1, 2**64), size)


def _powers(base: int, size: int) -> Hashes:
    steps = np.full(size, base, np.uint64)
    steps[:1] = 1
    return np.cumprod(steps, dtype=np.uint64)


def _mixed(values: Any) -> Hashes:
    """Numbers whose bits depend on all bits of the given ones (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = values ^ (values >> np.uint64(30))
        mixed = mixed * np.uint64(0xBF58476D1CE4E5B9)
        mixed = mixed ^ (mixed >> np.uint64(27))
        mixed = mixed * np.uint64(0x94D049BB133111EB)
        result: Hashes = mixed ^ (mixed >> np.uint64(31))
    return result
