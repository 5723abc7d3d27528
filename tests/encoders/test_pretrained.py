"""Pretrained encoders: tiny networks with random weights, saved and loaded by the real code; and the cache of features."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import crowdwise
from crowdwise.encoders import as_encoder, cache
from crowdwise.errors import ConfigError, DataError, ModelFileError
from tolerances import SINGLE

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "a", "."]
TEXTS = ["the good film", "a bad film", "good .", "bad bad film"] * 15
Y = np.array([1, 0, 1, 0] * 15)
VOTES = np.stack([Y, Y, np.where(np.arange(60) % 7 == 0, 1 - Y, Y)], axis=1)
QUICK = {"epochs": 15, "verbose": 0}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CROWDWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def bert(tmp_path):
    transformers = pytest.importorskip("transformers")
    import torch

    torch.manual_seed(0)
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(WORDS), **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def vit(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    folder = tmp_path / "vit"
    transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **sizes)).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def test_texts_by_a_model_of_transformers(bert, tmp_path):
    model = crowdwise.CE(encoder=f"transformers:{bert}", **QUICK).fit(TEXTS, VOTES)
    assert model.prepare_.shape == (16,)
    assert model.score(TEXTS, Y) > 0.9
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(loaded.predict_proba(TEXTS), model.predict_proba(TEXTS), atol=1e-5)
    assert loaded.encoder == f"transformers:{bert}"


def test_another_network_under_the_same_name_is_noticed(bert, tmp_path):
    import torch
    import transformers

    path = crowdwise.CE(encoder=f"transformers:{bert}", **QUICK).fit(TEXTS, VOTES).save(tmp_path / "model")
    torch.manual_seed(1)
    transformers.BertModel(transformers.BertConfig.from_pretrained(bert)).save_pretrained(bert)
    with pytest.raises(ModelFileError, match="is not the one that this model was trained with"):
        crowdwise.load(path).predict(TEXTS)


def test_pictures_by_a_model_of_transformers(vit, tmp_path):
    (tmp_path / "photos").mkdir()
    for number, bright in enumerate(Y):
        Image.new("RGB", (40, 30), (200,) * 3 if bright else (30,) * 3).save(tmp_path / "photos" / f"{number:02d}.png")
    model = crowdwise.CE(encoder=f"transformers:{vit}", **QUICK).fit(tmp_path / "photos", VOTES)
    assert model.prepare_.shape == (16,)
    assert model.score(tmp_path / "photos", Y) > 0.9


def test_only_safetensors_and_no_code(bert, tmp_path):
    (bert / "model.safetensors").rename(bert / "pytorch_model.bin")
    with pytest.raises(DataError, match="no weights in safetensors"):
        crowdwise.CE(encoder=f"transformers:{bert}", **QUICK).fit(TEXTS, VOTES)
    with pytest.raises(DataError, match="no model of that name can be fetched"):
        crowdwise.CE(encoder="transformers:nobody/nothing", **QUICK).fit(TEXTS, VOTES)
    with pytest.raises(ConfigError, match="needs a model"):
        crowdwise.CE(encoder="transformers", **QUICK).fit(TEXTS, VOTES)


def test_sentence_transformers(bert, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "sentences"
    library.SentenceTransformer(str(bert), device="cpu").save(str(folder))
    model = crowdwise.CE(encoder=f"sentence-transformers:{folder}", **QUICK).fit(TEXTS, VOTES)
    assert model.score(TEXTS, Y) > 0.9
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "os.system"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(DataError, match="it is not run"):
        crowdwise.CE(encoder=f"sentence-transformers:{folder}", **QUICK).fit(TEXTS, VOTES)


@pytest.fixture
def onnx_file(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    weight = np.random.default_rng(0).normal(size=(5, 3, 1, 1)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["pixels", "weight"], ["maps"])],
        "tiny",
        [onnx.helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [onnx.helper.make_tensor_value_info("maps", onnx.TensorProto.FLOAT, ["batch", 5, 16, 16])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "tiny.onnx"
    onnx.save(model, path)
    return path


def test_pictures_by_onnx(onnx_file, tmp_path):
    pictures = [Image.new("RGB", (40, 30), (200,) * 3 if bright else (30,) * 3) for bright in Y]
    model = crowdwise.CE(encoder=f"onnx:{onnx_file}", epochs=100, verbose=0).fit(pictures, VOTES)
    assert model.prepare_.shape == (5,)
    assert model.score(pictures, Y) > 0.9
    path = model.save(tmp_path / "model")
    np.testing.assert_allclose(crowdwise.load(path).predict_proba(pictures), model.predict_proba(pictures), atol=SINGLE)
    onnx_file.write_bytes(onnx_file.read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match="its checksum differs"):
        crowdwise.load(path).predict(pictures)


def test_a_broken_onnx_file_is_named(tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"broken\.onnx cannot be loaded as ONNX"):
        as_encoder(f"onnx:{tmp_path / 'broken.onnx'}").fitted([Image.new("RGB", (8, 8))])


def test_features_are_kept_by_content_and_encoder(tmp_path):
    computed = []

    def compute(items):
        computed.append(list(items))
        return np.array([[len(item)] for item in items], np.float32)

    for _ in range(2):
        assert cache.features(["a", "bb"], "key", compute, "").tolist() == [[1], [2]]
    assert computed == [["a", "bb"]]
    cache.features(["a", "bc"], "key", compute, "")
    cache.features(["a", "bb"], "other key", compute, "")
    assert len(computed) == 3
    assert cache.size()[0] == 3
    damaged = next(cache.folder().iterdir())
    damaged.write_bytes(b"damage")
    for key in ("key", "other key"):
        assert cache.features(["a", "bb"], key, compute, "").tolist() == [[1], [2]]
    assert cache.clear()[0] == 3
    assert cache.size() == (0, 0)


def test_the_cache_is_bounded_and_can_be_turned_off(monkeypatch):
    def compute(items):
        return np.ones((len(items), 1000), np.float32)

    monkeypatch.setenv("CROWDWISE_FEATURE_CACHE", "10kB")
    for text in "abcdef":
        cache.features([text], "key", compute, "")
    assert 0 < cache.size()[1] <= 10_000
    cache.clear()
    monkeypatch.setenv("CROWDWISE_FEATURE_CACHE", "0")
    cache.features(["a"], "key", compute, "")
    assert cache.size() == (0, 0)
    monkeypatch.setenv("CROWDWISE_FEATURE_CACHE", "much")
    with pytest.raises(ConfigError, match="must be a size"):
        cache.features(["a"], "key", compute, "")
