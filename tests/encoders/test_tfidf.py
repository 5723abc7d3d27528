"""Terms of texts, and tfidf."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from crowdwise.encoders import Tfidf, make_encoder, ngrams
from crowdwise.encoders.base import restore_encoder
from crowdwise.encoders.tfidf import leading_directions
from crowdwise.errors import ConfigError, DataError, ModelFileError
from tolerances import SINGLE

TEXTS = [
    "The cast is phenomenal, especially the women.",
    "it isn't bad; it isn't good either",
    "good good GOOD film",
    "Für Straßen in Köln: 42 %",
    "",
    "映画は良い",
    "a",
]
PATTERN = r"(?u)[^\W_]+(?:'[^\W_]+)*|[^\w\s]"


def test_terms_are_those_of_scikit_learn():
    texts = [text.casefold() for text in TEXTS[:5]]
    expected = CountVectorizer(ngram_range=(1, 2), token_pattern=PATTERN).fit_transform(texts)
    known, found = ngrams.frequencies(texts, 2, None)
    counts = ngrams.counts(texts, 2, None, known)
    assert counts.shape == expected.shape
    assert sorted(counts.sum(axis=0)) == sorted(np.asarray(expected.sum(axis=0)).ravel())
    assert counts.sum(axis=1).tolist() == np.asarray(expected.sum(axis=1)).ravel().tolist()
    assert sorted(found) == sorted(np.asarray((expected > 0).sum(axis=0)).ravel())


def test_runs_of_characters_are_those_of_scikit_learn():
    texts = ["the cat sat", "a hat", "concatenate"]
    expected = CountVectorizer(analyzer="char_wb", ngram_range=(3, 4)).fit_transform(texts)
    known, _ = ngrams.frequencies(texts, 0, (3, 4))
    counts = ngrams.counts(texts, 0, (3, 4), known)
    ours = sorted(map(tuple, counts.toarray().astype(int).T.tolist()))
    whole = [" a "]  # a word that is shorter than a run: scikit-learn counts it with both blanks
    theirs = CountVectorizer(analyzer="char_wb", ngram_range=(3, 4)).fit(texts).vocabulary_
    columns = [column for term, column in theirs.items() if term not in whole]
    assert ours == sorted(map(tuple, expected.toarray()[:, columns].T.tolist()))


def test_case_and_unicode_forms_are_one_and_ideographs_are_words():
    for one, other in (("GOOD", "good"), ("Straße", "STRASSE"), ("ﬁlm", "film"), ("cafe\u0301", "café")):
        assert ngrams.terms([one], 2, (3, 5))[1].tolist() == ngrams.terms([other], 2, (3, 5))[1].tolist()
    assert len(ngrams.terms(["映画は良い"], 1, None)[1]) == 5


@pytest.mark.parametrize("texts", [[], [""], ["", "a"], ["\ud800 lone", "\x00"], ["a" * 100_000]])
def test_odd_texts_do_no_harm(texts):
    known, _ = ngrams.frequencies(texts, 2, (3, 5))
    assert ngrams.counts(texts, 2, (3, 5), known).shape == (len(texts), len(known))


def test_blocks_change_nothing(monkeypatch):
    known, found = ngrams.frequencies(TEXTS, 2, (3, 5))
    whole = ngrams.counts(TEXTS, 2, (3, 5), known).toarray()
    monkeypatch.setattr(ngrams, "BLOCK", 20)
    assert [each.tolist() for each in ngrams.frequencies(TEXTS, 2, (3, 5))] == [known.tolist(), found.tolist()]
    np.testing.assert_array_equal(ngrams.counts(TEXTS, 2, (3, 5), known).toarray(), whole)


def test_weights_are_those_of_scikit_learn():
    texts = [text.casefold() for text in TEXTS[:4]]
    theirs = TfidfVectorizer(ngram_range=(1, 2), token_pattern=PATTERN, sublinear_tf=True).fit_transform(texts)
    ours = Tfidf(characters=None, width=0).fitted(texts).transform(texts)
    np.testing.assert_allclose((ours @ ours.T).toarray(), (theirs @ theirs.T).toarray(), atol=SINGLE)


def test_leading_directions_are_those_of_an_exact_decomposition():
    import scipy.sparse as sp

    A = sp.random_array((60, 40), density=0.3, random_state=np.random.default_rng(0), format="csr", dtype=np.float32)
    found = leading_directions(A, 5, seed=0)
    exact = np.linalg.svd(A.toarray())[2][:5].T
    np.testing.assert_allclose(np.abs(found.T @ exact), np.eye(5), atol=1e-3)


def test_the_order_of_texts_changes_nothing():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["good", "bad", "film", "plot", "very", "not", "a"], 8)) for _ in range(80)]
    encoder = Tfidf(width=10).fitted(texts)
    shuffled = Tfidf(width=10).fitted([texts[row] for row in rng.permutation(80)])
    np.testing.assert_allclose(encoder.transform(texts), shuffled.transform(texts), atol=2e-2)


def test_it_is_data():
    encoder = Tfidf(width=3).fitted(TEXTS)
    again = restore_encoder(encoder.state(), encoder.arrays_)
    np.testing.assert_array_equal(again.transform(TEXTS), encoder.transform(TEXTS))
    assert make_encoder(encoder.parameters()) == Tfidf(width=3)


def test_encoders_of_earlier_versions_load():
    encoder = Tfidf(width=3).fitted(TEXTS)
    earlier = {name: array for name, array in encoder.arrays_.items() if name != "component_sizes"}
    sizes = encoder.arrays_["component_sizes"][:, None]
    earlier["components"] = (encoder.arrays_["components"] * sizes).astype(np.float16)
    again = restore_encoder(encoder.state(), earlier)
    np.testing.assert_allclose(again.transform(TEXTS), encoder.transform(TEXTS), atol=5e-3)


def test_training_leaves_the_original_as_it_is():
    encoder = Tfidf(width=2)
    encoder.fitted(TEXTS)
    assert not encoder.arrays_


def test_damage_is_refused():
    encoder = Tfidf(width=3).fitted(TEXTS)
    for change in (
        {"components": encoder.arrays_["components"][1:]},
        {"component_sizes": encoder.arrays_["component_sizes"][1:]},
        {"component_sizes": encoder.arrays_["component_sizes"] * np.nan},
        {"word_terms": encoder.arrays_["word_terms"][::-1].copy()},
        {"word_weights": encoder.arrays_["word_weights"] * np.nan},
    ):
        with pytest.raises(ModelFileError):
            restore_encoder(encoder.state(), encoder.arrays_ | change)
    with pytest.raises(ModelFileError):
        restore_encoder(encoder.state(), {})
    with pytest.raises(ModelFileError, match="unknown encoder 'tfdf'"):
        restore_encoder({"parameters": {"name": "tfdf"}, "facts": {}}, {})


def test_errors_say_what_is_wrong():
    with pytest.raises(DataError, match=r"X\[1\] is 3 of type int, expected a text"):
        Tfidf().fitted(["a", 3])
    with pytest.raises(DataError, match="no word"):
        Tfidf().fitted(["", " "])
    with pytest.raises(ConfigError, match="words must be an integer from 1 to 5, got 0"):
        Tfidf(words=0).fitted(TEXTS)
    with pytest.raises(ConfigError, match="did you mean 'words'"):
        make_encoder({"name": "tfidf", "wrods": 1})
