"""Encoders against second implementations: terms as strings, weights by their formulas, tables and pictures by hand."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from PIL import Image

from crowdwise.encoders import Pictures, PixelEncoder, TableEncoder, Tfidf, kind_of, ngrams, opened, opinions, take_rows
from crowdwise.encoders.decoding import decode, look
from crowdwise.encoders.rows import as_texts
from crowdwise.encoders.table import _frequent, _numbers, _scale, _scaled, guess_kind
from crowdwise.errors import DataError

TEXTS = [
    "Not good, not GOOD!",
    "don't stop: it's ok",
    "",
    "naïve café — ﬁne",
    "x 東京 y2k a_b",
    "aa aaa a",
    "'quoted' and rock'n'roll  ",
    "e\u0301t\u00e9 \u200b end",
]
Term = tuple[Any, ...]


def words_of(text: str) -> list[str]:
    """Runs of letters and digits, ideographs one by one, and every other sign."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    letter = r"(?:[^\W\u3040-\u30ff\u3400-\u9fff]|[\u0300-\u036f])"
    return re.findall(rf"{letter}(?:{letter}|(?<={letter})['\u2019](?={letter}))*|[\u3040-\u9fff]|[^\w\s\u200b]", plain)


def terms_of(text: str, words: int, characters: tuple[int, int] | None) -> Counter[Term]:
    """What `ngrams.terms` counts, as strings."""
    found: Counter[Term] = Counter()
    tokens = words_of(text)
    for n in range(1, words + 1):
        found.update(("words", *tokens[at : at + n]) for at in range(len(tokens) - n + 1))
    if characters is not None:
        for n in range(characters[0], characters[1] + 1):
            for word in tokens:
                found.update((n, "inside", word[at : at + n]) for at in range(len(word) - n + 1))
                if len(word) >= n - 1:
                    found.update([(n, "begin", word[: n - 1]), (n, "end", word[len(word) - n + 1 :])])
    return found


def test_the_second_implementation_finds_words() -> None:
    assert words_of("Don't stop: it's OK") == ["don't", "stop", ":", "it's", "ok"]
    assert words_of("x 東京 'a'") == ["x", "東", "京", "'", "a", "'"]


@pytest.mark.parametrize(("words", "characters"), [(1, None), (3, None), (0, (2, 4)), (2, (1, 3)), (1, (3, 3))])
@pytest.mark.parametrize("block", [1 << 20, 30])
def test_terms_are_those_of_strings(
    words: int, characters: tuple[int, int] | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngrams, "BLOCK", block)
    expected = [terms_of(text, words, characters) for text in TEXTS]
    every = sorted({term for found in expected for term in found}, key=repr)
    table = np.array([[found[term] for term in every] for found in expected])
    known, number = ngrams.frequencies(TEXTS, words, characters)
    assert len(known) == len(every)
    assert np.all(known[1:] > known[:-1])
    found = ngrams.counts(TEXTS, words, characters, known).toarray()
    assert sorted(map(tuple, found.T.tolist())) == sorted(map(tuple, table.T.tolist()))
    np.testing.assert_array_equal(number, (found > 0).sum(axis=0))
    some = known[::3]
    np.testing.assert_array_equal(ngrams.counts(TEXTS, words, characters, some).toarray(), found[:, ::3])
    assert ngrams.counts(TEXTS, words, characters, known[:0]).shape == (len(TEXTS), 0)


def test_blocks_hold_all_texts_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "BLOCK", 10)
    texts = ["a" * n for n in (3, 4, 9, 30, 1, 1)]
    parts = list(ngrams.blocks(texts))
    assert [len(part) for part in parts] == [3, 1, 2]
    assert [text for part in parts for text in part] == texts
    assert list(ngrams.blocks([])) == []


def test_weights_of_terms_by_their_formula() -> None:
    """(1 + ln count) (1 + ln (1 + n) / (1 + texts with it)); words and characters each have length 1."""
    texts = ["good good film", "bad film", "good plot", "dull dull dull"] * 6
    encoder = Tfidf(words=1, characters=None, min_texts=1, width=0).fitted(texts)
    found = encoder.transform(texts).toarray()
    vocabulary = sorted({word for text in texts for word in text.split()})
    rows = []
    for text in texts:
        counts = [text.split().count(word) for word in vocabulary]
        number = [sum(word in other.split() for other in texts) for word in vocabulary]
        weights = [
            (1 + math.log(c)) * (math.log(25 / (1 + m)) + 1) if c else 0 for c, m in zip(counts, number, strict=True)
        ]
        rows.append(np.array(weights) / np.linalg.norm(weights))
    expected = np.array(rows).T
    order, theirs = np.lexsort(found.round(4)), np.lexsort(expected.T.round(4))
    np.testing.assert_allclose(found.T[order], expected[theirs], atol=1e-5)
    both = Tfidf(min_texts=1, width=0).fitted(texts)
    n_words = len(both.arrays_["word_terms"])
    encoded = both.transform(texts).toarray()
    np.testing.assert_allclose(np.linalg.norm(encoded[:, :n_words], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(encoded[:, n_words:], axis=1), 1, rtol=1e-5)
    assert not np.any(both.transform(["zzz"]).toarray())


def test_rare_and_surplus_terms_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["often now", "often then"] * 12 + ["once often"]
    encoder = Tfidf(words=1, characters=None, width=0).fitted(texts)
    assert encoder.transform(["often now then once"]).nnz == 3
    few = Tfidf(words=1, characters=None, width=0).fitted([*texts[:4], "once"])  # fewer than 20 texts: all count
    assert few.transform(["often now then once"]).nnz == 4
    monkeypatch.setattr("crowdwise.encoders.tfidf.WORDS", 1)
    most = Tfidf(words=1, characters=None, width=0).fitted(texts)
    assert most.transform(["often"]).nnz == 1
    assert most.transform(["now then once"]).nnz == 0


def test_a_reduction_keeps_distances_and_has_columns_of_size_one() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([f"w{k}" for k in range(12)], 6)) for _ in range(60)]
    encoder = Tfidf(words=1, characters=None, width=11).fitted(texts)
    found = encoder.transform(texts)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-2)
    assert np.square(found).sum(axis=1).mean() == pytest.approx(11, rel=0.02)
    plain = encoder._sparse(texts).toarray()
    u, s, _ = np.linalg.svd(plain, full_matrices=False)
    exact = (u * s)[:, :11]
    exact -= exact.mean(axis=0)

    def distances(points: Any) -> Any:
        return np.linalg.norm(points[:, None] - points[None], axis=2)

    ratio = distances(found)[~np.eye(60, dtype=bool)] / distances(exact)[~np.eye(60, dtype=bool)]
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=0.05)


# votes


def test_share_and_penalty_have_the_least_error_when_each_text_is_left_out() -> None:
    rng = np.random.default_rng(0)
    A = sp.csr_array(rng.random((30, 12)) * (rng.random((30, 12)) < 0.5))
    Y = rng.dirichlet(np.ones(3), 30)
    errors = {}
    for share in opinions.SHARES:
        scaled = A.toarray() * np.sqrt(2 * np.where(np.arange(12) < 5, 1 - share, share))
        for penalty in opinions.PENALTIES:
            kernel = scaled @ scaled.T
            hat = kernel @ np.linalg.inv(kernel + penalty * np.eye(30))
            rest = (Y - Y.mean(0) - hat @ (Y - Y.mean(0))) / (1 - np.diag(hat))[:, None]
            errors[share, penalty] = (rest**2).sum()
    assert opinions._choose(A, 5, Y) == min(errors, key=errors.__getitem__)
    words_only = opinions._choose(A, 12, Y)
    assert words_only[0] == 0.0


def test_columns_of_votes_are_standardised_and_those_of_new_texts_go_with_them() -> None:
    rng = np.random.default_rng(1)
    A = sp.csr_array(rng.random((50, 12)) * (rng.random((50, 12)) < 0.5), dtype=np.float32)
    votes = rng.integers(0, 4, (50, 2)) + np.array([1, 0])
    found = opinions.learn_opinions(A, 5, votes, seed=0)
    np.testing.assert_allclose(found.training.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(found.training.std(axis=0), 1, atol=1e-5)
    factors = np.sqrt(2 * np.where(np.arange(12) < 5, 1 - found.share, found.share))
    Y, scaled = votes / votes.sum(axis=1, keepdims=True), A.toarray() * factors
    fold = np.empty(50, int)
    fold[np.random.default_rng(0).permutation(50)] = np.arange(50) % 5
    training, weights = np.zeros((50, 2)), np.zeros((12, 2))
    for k in range(5):
        kept = fold != k
        own = np.linalg.solve(
            scaled[kept].T @ scaled[kept] + found.penalty * np.eye(12), scaled[kept].T @ (Y[kept] - Y[kept].mean(0))
        )
        training[~kept] = scaled[~kept] @ own
        weights += own / 5
    centre, scale = training.mean(axis=0), training.std(axis=0)
    np.testing.assert_allclose(found.training, (training - centre) / scale, atol=0.02)
    np.testing.assert_allclose(A @ found.weights - found.centre, (scaled @ weights - centre) / scale, atol=0.05)


# tables


def test_numbers_are_scaled_by_the_middle_half() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, np.nan, np.inf])
    median, spread = _scale(values)
    assert (median, spread) == (3.0, pytest.approx(2 / 1.349))
    mostly = np.array([0.0] * 9 + [10.0])
    assert _scale(mostly).tolist() == [
        0.0,
        pytest.approx(3.0),
    ]  # its standard deviation, as the middle half is one value
    assert _scale(np.full(4, 7.0)).tolist() == [7.0, 1.0]
    assert _scale(np.full(4, np.nan)).tolist() == [0.0, 1.0]
    scaled = _scaled(np.array([3.0, 5.0, np.nan, -1e9]), np.array([3.0, 0.5]))
    assert scaled.tolist() == [[0, 0], [4, 0], [0, 1], [-10, 0]]


def test_numbers_of_every_kind() -> None:
    np.testing.assert_array_equal(_numbers(["1.5", "", None, "-2"], "a"), [1.5, np.nan, np.nan, -2])
    assert _numbers([True, False], "a").tolist() == [1, 0]
    days = _numbers(np.array(["1970-01-03", "NaT"], "datetime64[D]"), "a")
    assert days[0] == 2
    assert np.isnan(days[1])


def test_frequent_values_keep_their_order_and_others_share_a_column() -> None:
    assert _frequent(list("bbaccc"), 2) == ["b", "c"]
    assert _frequent(list("cba"), 2) == ["a", "b"]
    frame = {"town": [*"aaabbc"], "n": [1, 2, 3, 4, 5, 6]}
    encoder = TableEncoder(categories=2).fitted(frame)
    assert encoder.transform(frame)[:, :3].tolist() == [[1, 0, 0]] * 3 + [[0, 1, 0]] * 2 + [[0, 0, 1]]
    assert encoder.facts_["columns"][0]["others"] == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([f"v{k % 20}" for k in range(60)], "category"),  # twenty values at most
        ([f"v{k % 21}" for k in range(105)], "category"),  # or a fifth of the rows
        ([f"v{k % 21}" for k in range(100)], "drop"),
        ([f"a b{k}" for k in range(30)], "text"),
        ([f"ab{k}" if k % 2 else f"a b{k}" for k in range(30)], "drop"),
        (["one two three"] * 3 + ["four five six"] * 3, "category"),
        (["one two three", "four five six"], "text"),
        (["x" * 41, "y" * 41], "text"),
        (["x" * 40, "y" * 40], "category"),
        (["1", "2", "nan"], "category"),
        (["1e3", "-2"], "number"),
        ([True, False], "number"),
    ],
)
def test_kinds_of_columns_at_the_borders(column: list[Any], kind: str) -> None:
    assert guess_kind(column) == kind


# pictures


def gradient(width: int, height: int, mode: str = "L") -> Image.Image:
    values = np.add.outer(np.arange(height) * 9, np.arange(width) * 2) % 256
    return Image.fromarray(values.astype(np.uint8)).convert(mode)


def test_pictures_fill_their_size_and_are_cropped_to_the_centre() -> None:
    wide = Image.fromarray(np.repeat(np.array([[0, 100, 200, 250]], np.uint8), 2, axis=0))
    assert decode(wide, size=(2, 2)).tolist() == [[100, 200]] * 2
    assert decode(wide).tolist() == np.asarray(wide).tolist()
    assert decode(wide, grey=False).shape == (2, 4, 3)
    assert decode(gradient(100, 40), most=50).shape == (20, 50)
    assert decode(gradient(10, 4), most=50).shape == (4, 10)
    colour = Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]], np.uint8))
    assert decode(colour).tolist() == [[[255, 0, 0], [0, 0, 255]]]
    assert decode(colour, grey=True).tolist() == [[76, 29]]


def test_transparent_parts_are_white_and_deep_greys_are_brought_to_bytes() -> None:
    see_through = Image.fromarray(np.array([[[255, 0, 0, 0], [0, 0, 255, 255]]], np.uint8))
    assert decode(see_through).tolist() == [[[255, 255, 255], [0, 0, 255]]]
    deep = Image.fromarray(np.array([[0, 65535, 32768]], np.uint16))
    assert decode(deep).tolist() == [[0, 255, 127]]
    shallow = Image.fromarray(np.array([[0, 255, 7]], np.int32))
    assert decode(shallow).tolist() == [[0, 255, 7]]


def test_a_picture_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    gradient(8, 4).save(tmp_path / "turned.png", exif=exif)
    assert look(tmp_path / "turned.png") == (8, 4, True)
    assert decode(tmp_path / "turned.png").tolist() == np.rot90(np.asarray(gradient(8, 4)), -1).tolist()
    gradient(8, 4, "RGB").save(tmp_path / "plain.png")
    assert look(tmp_path / "plain.png") == (4, 8, False)


@pytest.mark.parametrize(
    ("sizes", "modes", "expected"),
    [
        ([(10, 6), (10, 6)], "LL", (6, 10, 1)),
        ([(10, 6), (10, 6)], ("L", "RGB"), (6, 10, 3)),
        ([(64, 64)], "L", (64, 64, 1)),
        ([(65, 64)], "L", (32, 32, 1)),
        ([(10, 3)], "L", (32, 32, 1)),
        ([(10, 6), (6, 10)], "LL", (32, 32, 1)),
    ],
)
def test_sizes_and_channels_are_learnt(sizes: Any, modes: Any, expected: tuple[int, int, int]) -> None:
    pictures = [gradient(*size, mode) for size, mode in zip(sizes, modes, strict=True)]
    found = PixelEncoder().fitted(pictures).transform(pictures)
    assert found.shape == (len(pictures), *expected)
    if expected == (6, 10, 1):
        np.testing.assert_array_equal(found[0, :, :, 0], np.asarray(pictures[0]))
    assert PixelEncoder(size=8, colour="rgb").fitted(pictures).transform(pictures).shape == (len(pictures), 8, 8, 3)


# rows


def test_rows_of_everything_that_has_rows() -> None:
    rows = np.array([2, 0])
    numbers = np.arange(6).reshape(3, 2)
    assert take_rows(numbers, rows).tolist() == [[4, 5], [0, 1]]
    assert take_rows(sp.coo_array(numbers), rows).toarray().tolist() == [[4, 5], [0, 1]]
    assert take_rows(["a", "b", "c"], rows) == ["c", "a"]
    assert take_rows({"x": ["a", "b", "c"]}, rows) == {"x": ["c", "a"]}
    frame = {"x": [1, 2, 3], "y": ["a", "b", "c"]}
    assert take_rows(pd.DataFrame(frame, index=[7, 8, 9]), rows)["y"].tolist() == ["c", "a"]
    assert take_rows(pl.DataFrame(frame), rows)["y"].to_list() == ["c", "a"]
    assert take_rows(pa.table(frame), rows)["y"].to_pylist() == ["c", "a"]
    assert take_rows(pl.Series(["a", "b", "c"]), rows).to_list() == ["c", "a"]


def test_kinds_of_inputs() -> None:
    assert kind_of(np.array(["a", None], object)) == "text"
    assert kind_of([None, "a"]) == "text"
    assert kind_of([None, None]) == "numbers"
    assert kind_of(pd.Series(["a", None])) == "text"
    assert kind_of(pd.Series([1.0, None])) == "numbers"
    assert kind_of([gradient(4, 4)]) == "pictures"
    assert kind_of(pd.DataFrame({"a": [1, 2], "b": [0.5, None]})) == "numbers"
    assert kind_of(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})) == "table"
    assert kind_of({"a": np.array([1, None], object)}) == "numbers"
    assert kind_of(np.zeros((2, 3))) == "numbers"
    assert as_texts(["a", None, float("nan")]) == ["a", "", ""]
    with pytest.raises(DataError, match=r"X\[1\] is 2.5 of type float, expected a text"):
        as_texts(["a", 2.5])


def test_names_of_pictures_are_those_that_are_asked_for(tmp_path: Path) -> None:
    for name in ("a/cat.png", "a/dog.JPG", "b/cow.png", ".hidden.png", "b/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        gradient(4, 4).save(tmp_path / name, format="PNG")
    pictures = Pictures.of_folder(tmp_path)
    assert pictures.ids == ("a/cat.png", "a/dog.JPG", "b/cow.png")
    assert pictures.stems == ("a/cat", "a/dog", "b/cow")
    assert pictures.names_for(["cow", "dog"]) == ("cat", "dog", "cow")
    assert pictures.names_for(["dog.JPG"]) == ("cat.png", "dog.JPG", "cow.png")
    assert pictures.names_for(["a/cat", "b/cow"]) == pictures.stems
    assert pictures.names_for(["nothing"]) == pictures.ids
    assert pictures[1:].ids == pictures[np.array([False, True, True])].ids == pictures[[1, 2]].ids
    assert pictures[0].shape == (4, 4)
    gradient(4, 4).save(tmp_path / "b/cat.png")
    twice = Pictures.of_folder(tmp_path)
    assert twice.names_for(["cat", "cow"]) == twice.ids  # cat may be either
    listed = opened([str(tmp_path / "a/cat.png")])
    assert isinstance(listed, Pictures)
    assert opened(["no/such.png"]).tolist() == ["no/such.png"]
    with pytest.raises(DataError, match="1 of 2 pictures do not exist"):
        opened([str(tmp_path / "a/cat.png"), str(tmp_path / "gone.png")])
