"""Votes as people write them: names, words, missing winners, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.errors import CrowdwiseError, DataError
from crowdwise.ranking import Votes, tally, win_rate


@pytest.mark.parametrize(
    ("words", "outcomes"),
    [
        (["left", "right", "tie"], [0, 1, 2]),
        (["A", "b", "Draw"], [0, 1, 2]),
        (["model_a", "model_b", "tie (bothbad)"], [0, 1, 2]),
        ([1, 2, 1], [0, 1, 0]),
        (["cat", "eel", "both_bad"], [0, 1, 2]),
    ],
)
def test_words_and_names_of_winners(words: list[object], outcomes: list[int]) -> None:
    assert Votes.of(["cat", "dog", "cat"], ["dog", "eel", "eel"], words).outcome.tolist() == outcomes


def test_a_contestant_called_like_a_word_is_meant_by_it() -> None:
    votes = Votes.of(["b", "a"], ["a", "b"], ["b", "b"])
    assert votes.outcome.tolist() == [0, 1]


def test_rows_without_a_winner_or_an_opponent_are_left_out_and_counted() -> None:
    votes = Votes.of(["a", "a", "b"], ["b", "b", "b"], ["a", None, "b"], annotator=["x", "y", "z"])
    assert (len(votes), votes.skipped, votes.annotators.arrow.to_pylist()) == (1, 2, ["x"])


def test_sides_of_different_types_are_the_same_contestants() -> None:
    votes = Votes.of([1, 2], ["2", "3"], ["left", "right"])
    assert votes.contestants.arrow.to_pylist() == ["1", "2", "3"]


def test_dictionaries_of_arrow_are_read() -> None:
    left = pa.array(["a", "b"]).dictionary_encode()
    assert Votes.of(left, pa.array(["b", "a"]), pa.array(["tie", "b"]).dictionary_encode()).outcome.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((["a"], ["b"], ["c"]), "'c' is neither 'a' nor 'b'"),
        ((["a", "c"], ["b", "a"], ["a", "b"]), "row 1"),
        ((["a"], ["a"], ["a"]), "no comparisons"),
        (([], [], []), "no comparisons"),
        ((["a", "b"], ["b"], ["a", "b"]), "right has 1 rows, but winner has 2"),
    ],
)
def test_what_is_refused(columns: tuple[list[str], ...], message: str) -> None:
    with pytest.raises(CrowdwiseError, match=message):
        Votes.of(*columns)


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(DataError, match="annotator has 1 rows"):
        Votes.of(["a", "b"], ["b", "a"], ["a", "b"], annotator=["x"])


def test_win_rates_are_means_over_opponents() -> None:
    votes = Votes.of(["a"] * 5, ["b", "b", "b", "c", "d"], ["a", "a", "tie", "c", "a"])
    counts = tally(votes)
    codes = {name: code for code, name in enumerate(votes.contestants.arrow.to_pylist())}
    rate = win_rate(counts)
    assert rate[codes["a"]] == pytest.approx(((2 + 0.5) / 3 + 0 + 1) / 3)
    assert rate[codes["c"]] == 1
    assert counts[:, codes["a"], codes["b"]].tolist() == [2, 0, 1]
    assert np.array_equal(counts[0], counts[1].T)
