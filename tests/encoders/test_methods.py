"""Methods take texts, pictures, tables and transformers as X, and models carry their encoders."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crowdwise
from crowdwise.encoders import PixelEncoder, Tfidf
from crowdwise.errors import ConfigError, DataError, ModelFileError
from tolerances import SINGLE

QUICK = {"epochs": 12, "verbose": 0}
WORDS = {0: ["awful", "boring", "bad", "dull"], 1: ["great", "lovely", "good", "fine"]}


def sentences(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    texts = [" ".join([*rng.choice(["the", "a", "film", "plot"], 4), *rng.choice(WORDS[c], 2)]) for c in y]
    right = rng.random((n, 3)) < [0.9, 0.85, 0.75]
    return texts, np.where(right, y[:, None], 1 - y[:, None]), y


TEXTS, VOTES, Y = sentences(200)


@pytest.mark.parametrize("make", [list, tuple, np.array, pd.Series, pl.Series, lambda t: np.array(t, object)])
def test_texts_of_every_form_give_the_same(make):
    model = crowdwise.CE(**QUICK).fit(make(TEXTS), VOTES)
    assert model.score(make(TEXTS), Y) > 0.95
    expected = crowdwise.CE(**QUICK).fit(TEXTS, VOTES)
    np.testing.assert_array_equal(model.predict_proba(make(TEXTS)), expected.predict_proba(TEXTS))


@pytest.mark.parametrize("name", ["concord", "taidtm", "max-mig"])
def test_methods_learn_from_texts_and_models_carry_the_encoder(name, tmp_path):
    model = crowdwise.registry.METHODS[name](verbose=0, epochs=20).fit(TEXTS, VOTES)
    new, _, y = sentences(100, seed=1)
    assert model.score(new, y) > 0.9
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert loaded.posterior(new, VOTES[:100]).shape == (100, 2)


def test_encoders_learn_from_training_rows_only():
    held_out = crowdwise.CE(validation_fraction=0.5, **QUICK).fit(TEXTS, VOTES)
    every = crowdwise.CE(validation_fraction=0.0, **QUICK).fit(TEXTS, VOTES)
    weights = [model.intake_.encoder.arrays_["word_weights"] for model in (held_out, every)]
    assert weights[0].shape != weights[1].shape or not np.allclose(*weights)


def test_an_encoder_is_chosen_by_name_settings_or_object():
    for encoder in ("tfidf", {"name": "tfidf", "width": 5}, Tfidf(width=5)):
        model = clone(crowdwise.CE(encoder=encoder, **QUICK)).fit(TEXTS, VOTES)
        assert model.intake_.encoder.name == "tfidf"
        if encoder != "tfidf":
            assert model.prepare_.shape == (7,)  # five, and one for each class
    with pytest.raises(ConfigError, match="unknown encoder 'tfdf'; did you mean 'tfidf'"):
        crowdwise.CE(encoder="tfdf", **QUICK).fit(TEXTS, VOTES)
    with pytest.raises(DataError, match="encoder 'pixels' takes pictures, but X is texts"):
        crowdwise.CE(encoder="pixels", **QUICK).fit(TEXTS, VOTES)
    with pytest.raises(DataError, match="trained on numbers"):
        crowdwise.CE(encoder="none", **QUICK).fit(TEXTS, VOTES)


def test_settings_of_an_encoder_are_saved(tmp_path):
    model = crowdwise.CE(encoder=Tfidf(width=5, characters=None), **QUICK).fit(TEXTS, VOTES)
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    assert crowdwise.encoders.as_encoder(loaded.encoder) == Tfidf(width=5, characters=None)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_transformer_of_scikit_learn_must_be_passed_again(tmp_path, sparse):
    own = TfidfVectorizer() if sparse else make_pipeline(TfidfVectorizer(), StandardScaler(with_mean=False))
    model = crowdwise.CE(encoder=own, **QUICK).fit(TEXTS, VOTES)
    assert model.score(TEXTS, Y) > 0.85
    assert not hasattr(own, "vocabulary_")  # a copy was fitted
    path = model.save(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"trained with your own encoder .*pass the fitted one"):
        crowdwise.load(path)
    loaded = crowdwise.load(path, encoder=model.intake_.encoder.transformer)
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), model.predict_proba(TEXTS))
    with pytest.raises(ModelFileError, match="not the one that the model was trained with"):
        crowdwise.load(path, encoder=TfidfVectorizer().fit(["other words"]))
    with pytest.raises(ModelFileError, match="pass the fitted transformer"):
        crowdwise.load(path, encoder=TfidfVectorizer())


def test_a_model_of_texts_refuses_numbers_and_the_other_way_round():
    model = crowdwise.CE(**QUICK).fit(TEXTS, VOTES)
    with pytest.raises(DataError, match="encoder 'tfidf' takes texts, but X is numbers"):
        model.predict(np.zeros((3, 4)))
    numbers = crowdwise.CE(**QUICK).fit(np.random.default_rng(0).normal(size=(200, 4)) + Y[:, None], VOTES)
    with pytest.raises(DataError, match="X holds texts, but this model was trained on numbers"):
        numbers.predict(TEXTS)


def test_a_frame_of_numbers_and_texts(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"text": TEXTS, "size": rng.normal(size=200), "town": rng.choice(["a", "b"], 200)})
    model = crowdwise.CE(**QUICK).fit(frame, VOTES)
    assert model.score(frame, Y) > 0.95
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    turned = frame[["town", "size", "text"]]
    np.testing.assert_allclose(loaded.predict_proba(turned), model.predict_proba(frame), atol=SINGLE)


def test_a_folder_of_pictures(tmp_path):
    rng = np.random.default_rng(0)
    for number, shade in enumerate(np.where(Y[:60] == 1, 200, 60)):
        size = tuple(rng.integers(20, 60, 2))
        Image.new("L", size, int(shade)).save(tmp_path / f"p{number:03d}.png")
    model = crowdwise.CE(epochs=15, verbose=0, encoder=PixelEncoder(size=16), augment="none").fit(tmp_path, VOTES[:60])
    assert model.prepare_.shape == (1, 16, 16)
    files = sorted(tmp_path.glob("*.png"))
    assert model.score(files, Y[:60]) > 0.9
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(tmp_path), model.predict([str(path) for path in files]))


def test_pictures_called_by_name_are_matched_by_it(tmp_path):
    for number in range(4):
        Image.new("L", (9, 9), 60 * number).save(tmp_path / f"p{number}.png")

    def fitted(order):
        table = [(f"p{number}", who, number % 2) for number in order for who in "ab"]
        frame = pd.DataFrame(table, columns=["item", "worker", "label"])
        return crowdwise.CE(**QUICK).fit(tmp_path, frame)

    one, other = fitted((0, 1, 2, 3)), fitted((1, 3, 2, 0))
    np.testing.assert_array_equal(one.predict_proba(tmp_path), other.predict_proba(tmp_path))
    np.testing.assert_array_equal(one.posterior_, other.posterior_)
    with pytest.raises(DataError, match="p4"):
        fitted((0, 1, 2, 4))


def test_forged_encoders_are_refused(tmp_path):
    path = crowdwise.CE(**QUICK).fit(TEXTS, VOTES).save(tmp_path / "model")
    from crowdwise.methods.core import files

    about = json.loads((path / "model.json").read_text())
    about.pop("sha256")
    about["encoder"]["parameters"]["name"] = "os.system"
    about["sha256"] = files._digest(about)
    (path / "model.json").write_text(json.dumps(about))
    with pytest.raises(ModelFileError, match="its encoder is damaged"):
        crowdwise.load(path)
