"""What a linear model of the votes says of texts, as columns for networks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

import crowdwise
from crowdwise.encoders import Tfidf, opinions
from crowdwise.encoders.base import restore_encoder
from crowdwise.engine.intake import Intake
from crowdwise.errors import ModelFileError


def made(n=300, seed=0, classes=2):
    """Texts in which a few of many words tell the class, and votes of five annotators."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=n)
    words = [f"w{number}" for number in range(400)]
    texts = [" ".join([*rng.choice(words, 15), *rng.choice(words[10 * c : 10 * c + 10], 3)]) for c in truth]
    right = rng.random((n, 5)) < 0.75
    labels = np.where(right, truth[:, None], rng.integers(classes, size=(n, 5)))
    votes = np.stack([(labels == c).sum(1) for c in range(classes)], axis=1)
    return texts, labels, votes, truth


def test_the_regression_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    A = sp.random_array((80, 50), density=0.2, random_state=rng, format="csr", dtype=np.float32)
    Y = rng.normal(size=(80, 3)).astype(np.float32)
    expected = Ridge(alpha=0.3, fit_intercept=False).fit(A.toarray(), Y).coef_.T
    np.testing.assert_allclose(opinions._ridge(A, Y, 0.3), expected, atol=5e-3)


def test_no_training_text_tells_of_its_own_votes():
    texts, _, votes, _ = made(600)
    votes = np.random.default_rng(1).permutation(votes)  # nothing to learn, only to memorise
    encoder = Tfidf(width=5).fitted(texts)
    found = opinions.learn_opinions(encoder._sparse(texts), len(encoder.arrays_["word_terms"]), votes, seed=0)
    memorised = encoder._sparse(texts) @ found.weights
    own = votes[:, 1] / votes.sum(1)
    assert np.corrcoef(memorised[:, 1], own)[0, 1] > 0.5
    assert np.corrcoef(found.training[:, 1], own)[0, 1] < 0.1


@pytest.mark.parametrize("classes", [2, 5])
def test_columns_tell_classes_apart_in_new_texts(classes):
    texts, _, votes, truth = made(900, classes=classes)
    encoder = Tfidf(width=20).fitted(texts[:600])
    places, values = encoder.hear(texts[:600], votes[:600], seed=0)
    assert places.tolist() == list(range(600))
    new = encoder.transform(texts[600:])
    assert new.shape == (300, 20 + classes)
    assert np.mean(values.argmax(1) == truth[:600]) > 0.75
    assert np.mean(new[:, 20:].argmax(1) == truth[600:]) > 0.75
    assert 0.5 < new[:, 20:].std() / values.std() < 2
    assert "linear model" in encoder.about


def test_it_is_data_and_the_same_every_time():
    texts, _, votes, _ = made(100)
    encoder, other = (Tfidf(width=5).fitted(texts) for _ in range(2))
    _, values = encoder.hear(texts, votes, seed=0)
    np.testing.assert_array_equal(values, other.hear(texts, votes, seed=0)[1])
    again = restore_encoder(encoder.state(), encoder.arrays_)
    np.testing.assert_array_equal(again.transform(texts), encoder.transform(texts))
    for name in ("opinion_weights", "opinion_centre"):
        with pytest.raises(ModelFileError):
            restore_encoder(encoder.state(), encoder.arrays_ | {name: encoder.arrays_[name][1:]})


def test_only_some_of_many_texts_are_learnt_from(monkeypatch):
    monkeypatch.setattr("crowdwise.encoders.tfidf.ROWS", 50)
    texts, _, votes, _ = made(120)
    encoder = Tfidf(width=5).fitted(texts)
    places, values = encoder.hear(texts, votes, seed=0)
    assert places.tolist() == list(range(0, 120, 3))
    assert values.shape == (40, 2)


def test_there_is_none_without_need():
    texts, _, votes, _ = made(60)
    for encoder, n in ((Tfidf(width=5, opinions=False), 60), (Tfidf(width=0), 60), (Tfidf(width=5), 10)):
        fitted = encoder.fitted(texts)
        assert fitted.hear(texts[:n], votes[:n], seed=0) is None
        assert not fitted.facts_
    assert Tfidf(width=5, characters=None).fitted(texts).hear(texts, votes, seed=0) is not None


def test_training_rows_alone_are_heard():
    texts, _, votes, _ = made(100)
    rows = np.arange(20, 100)
    other = votes.copy()
    other[:20] = [[9, 0]]
    X, Y = (Intake.learn(texts, rows, 0, Tfidf(width=5), votes=lambda v=v: v)[1] for v in (votes, other))
    np.testing.assert_array_equal(X, Y)
    assert X.shape == (100, 7)
    assert Intake.learn(texts, rows, 0, Tfidf(width=5))[1].shape == (100, 5)


def test_a_model_has_it_and_keeps_it(tmp_path):
    texts, labels, _, truth = made(300)
    model = crowdwise.CE(encoder=Tfidf(width=10), epochs=20, verbose=0).fit(texts[:200], labels[:200])
    assert model.prepare_.shape == (12,)
    assert model.score(texts[200:], truth[200:]) > 0.7
    again = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(texts), model.predict_proba(texts))
