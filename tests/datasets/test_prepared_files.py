"""Prepared npz files: annotations as triples, images as WebP strips."""

import io

import numpy as np
import pytest
from PIL import Image

from crowdwise.datasets import load, prepared
from crowdwise.errors import ConfigError, CrowdwiseWarning, DatasetError

RNG = np.random.default_rng(1)


def triples(n, annotators, classes, per_instance=2):
    instance = np.repeat(np.arange(n, dtype=np.int32), per_instance)
    return {
        "instance": instance,
        "annotator": (np.arange(len(instance)) % annotators).astype(np.int32),
        "label": RNG.integers(0, classes, len(instance)).astype(np.int32),
        "n_instances": n,
        "n_annotators": annotators,
        "n_classes": classes,
        "clean": RNG.integers(-1, classes, n).astype(np.int16),
    }


def strips(images, per_strip=4):
    parts = []
    for begin in range(0, len(images), per_strip):
        buffer = io.BytesIO()
        Image.fromarray(images[begin : begin + per_strip].reshape(-1, 32, 3)).save(buffer, "WEBP", lossless=True)
        parts.append(buffer.getvalue())
    offsets = np.cumsum([0, *map(len, parts)])
    return {"webp": np.frombuffer(b"".join(parts), np.uint8), "offsets": offsets}


def write_svhn(folder, n=10):
    X = RNG.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
    for part in ("train", "test"):
        np.savez(folder / f"svhn_{part}.npz", **strips(X), y=np.arange(n, dtype=np.uint8) % 10)
    return X


def test_label_only_sets_have_annotations_and_truth_but_no_instances(tmp_path):
    data = triples(30, 5, 3)
    np.savez(tmp_path / "agg_cf_weather.npz", **data)
    dataset = load("cf-weather", root=tmp_path)
    assert dataset.kind == "labels"
    assert dataset.X_train is None
    np.testing.assert_array_equal(dataset.truth, data["clean"])
    assert dataset.clean is dataset.truth
    assert (dataset.annotations.n_instances, dataset.annotations.n_annotators, dataset.n_classes) == (30, 5, 3)
    assert "60 labels of 30 instances by 5 annotators" in repr(dataset)


def test_a_prepared_file_with_an_impossible_label_is_refused(tmp_path):
    np.savez(tmp_path / "agg_rte.npz", **triples(30, 5, 3) | {"n_classes": 2})
    with pytest.raises(DatasetError, match="the files of data set 'rte' are damaged"):
        load("rte", root=tmp_path)


def test_a_prepared_file_whose_truth_has_another_length_is_refused(tmp_path):
    np.savez(tmp_path / "agg_rte.npz", **triples(30, 5, 3) | {"clean": np.zeros(29, np.int16)})
    with pytest.raises(DatasetError, match="truth has 29 entries, but the annotations cover 30 instances"):
        load("rte", root=tmp_path)


def test_a_prepared_file_without_an_array_is_named(tmp_path):
    data = triples(30, 5, 3)
    del data["label"]
    np.savez(tmp_path / "agg_rte.npz", **data)
    with pytest.raises(DatasetError, match=r"agg_rte.npz has no array 'label'"):
        load("rte", root=tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a zip archive", b"PK\3\4broken"])
def test_a_file_that_is_no_npz_is_named(tmp_path, content):
    (tmp_path / "agg_rte.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"agg_rte.npz is not a readable npz file"):
        load("rte", root=tmp_path)


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.savez(tmp_path / "agg_rte.npz", **triples(30, 5, 3) | {"label": np.array([object()] * 60)})
    with pytest.raises(DatasetError, match="pickled objects, which are never loaded"):
        load("rte", root=tmp_path)


def test_strips_are_decoded_once_and_then_read_from_the_cache(tmp_path, cache, monkeypatch):
    X = write_svhn(tmp_path)
    np.testing.assert_array_equal(load("svhn", root=tmp_path).X_train, X)
    cached = list((cache / "decoded").iterdir())
    assert sorted(path.name.rsplit("-", 1)[0] for path in cached) == ["svhn-test", "svhn-train"]
    monkeypatch.setattr(prepared, "_decode", None)
    again = load("svhn", root=tmp_path)
    np.testing.assert_array_equal(again.X_train, X)
    assert again.X_train.flags.writeable


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"nonsense"),
        lambda path: np.save(path, np.zeros((10, 32, 32, 3))),
        lambda path: np.save(path, np.zeros((9, 32, 32, 3), np.uint8)),
    ],
    ids=["truncated", "empty", "nonsense", "type", "shape"],
)
def test_a_damaged_cache_is_decoded_anew(tmp_path, cache, damage):
    X = write_svhn(tmp_path)
    load("svhn", root=tmp_path)
    (cached,) = (cache / "decoded").glob("svhn-train*.npy")
    whole = cached.read_bytes()
    damage(cached)
    np.testing.assert_array_equal(load("svhn", root=tmp_path).X_train, X)
    assert cached.read_bytes() == whole
    assert len(list((cache / "decoded").iterdir())) == 2


def test_changed_files_are_not_answered_from_an_old_cache(tmp_path):
    write_svhn(tmp_path)
    load("svhn", root=tmp_path)
    X = write_svhn(tmp_path)
    np.testing.assert_array_equal(load("svhn", root=tmp_path).X_train, X)


def test_a_cache_that_cannot_be_written_only_warns(tmp_path, cache):
    X = write_svhn(tmp_path)
    cache.write_text("a file where the folder should be")
    with pytest.warns(CrowdwiseWarning, match="has to be decoded each time"):
        np.testing.assert_array_equal(load("svhn", root=tmp_path).X_train, X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d | {"webp": d["webp"] ^ 255}, "strip 0 of .*svhn_train.npz cannot be decoded"),
        (lambda d: d | {"offsets": d["offsets"][:-1]}, "8 images but 10 classes"),
        (lambda d: d | {"y": d["y"][:-1]}, "cannot be decoded"),
        (lambda d: {key: d[key] for key in ("offsets", "y")}, "lacks the array webp"),
    ],
)
def test_malformed_strips_are_explained(tmp_path, change, message):
    write_svhn(tmp_path)
    path = tmp_path / "svhn_train.npz"
    with np.load(path) as archive:
        data = dict(archive)
    np.savez(path, **change(data))
    with pytest.raises(DatasetError, match=message):
        load("svhn", root=tmp_path)


def test_a_strip_must_be_32_pixels_wide(tmp_path):
    write_svhn(tmp_path)
    buffer = io.BytesIO()
    Image.new("RGB", (64, 160)).save(buffer, "WEBP", lossless=True)
    webp = np.frombuffer(buffer.getvalue(), np.uint8)
    np.savez(tmp_path / "svhn_train.npz", webp=webp, offsets=[0, len(webp)], y=np.zeros(10, np.uint8))
    with pytest.raises(DatasetError, match="64 pixels wide instead of 32"):
        load("svhn", root=tmp_path)


@pytest.fixture
def cifar10n(tmp_path):
    """CIFAR-10N in small: 10 + 10 training images, three labels each."""
    for name in ("train_a", "train_b", "test"):
        X = RNG.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
        np.savez(tmp_path / f"cifar10_{name}.npz", **strips(X), y=np.arange(10, dtype=np.uint8))
    data = triples(20, 7, 10, per_instance=3)
    for k, name in enumerate(("random_label1", "random_label2", "random_label3")):
        data[name] = data["label"][k::3].astype(np.uint8)
    np.savez(tmp_path / "cifar10n.npz", **data, aggre_label=data["random_label1"], worse_label=data["random_label3"])
    return tmp_path, data


@pytest.mark.parametrize(("labels", "annotators", "n"), [("workers", 7, 60), ("columns", 3, 60), ("worst", 1, 20)])
def test_cifar10n_is_cifar10_with_annotations(cifar10n, labels, annotators, n):
    root, _ = cifar10n
    dataset = load("cifar10n", root=root, labels=labels)
    np.testing.assert_array_equal(dataset.X_train, load("cifar10", root=root).X_train)
    assert dataset.name == "cifar10n"
    assert (dataset.annotations.n_annotators, len(dataset.annotations)) == (annotators, n)
    assert dataset.annotations.classes.tolist() == list(range(10))  # as in y_train


def test_columns_of_cifar10n_are_its_annotators(cifar10n):
    root, data = cifar10n
    crowd = load("cifar10n", root=root, labels="columns").annotations
    np.testing.assert_array_equal(crowd.label, data["label"])
    np.testing.assert_array_equal(crowd.label[np.asarray(crowd.annotator) == 1], data["random_label2"])
    with pytest.raises(ConfigError, match="labels of cifar10n must be 'workers', 'columns'"):
        load("cifar10n", root=root, labels="best")


def features(parts, d=6, classes=8):
    arrays = {f"X_{part}": RNG.normal(size=(n, d)) for part, n in parts.items()}
    return arrays | {f"y_{part}": RNG.integers(0, classes, n, dtype=np.uint8) for part, n in parts.items()}


def test_labelme_has_a_validation_part_and_music_has_none(tmp_path):
    np.savez(tmp_path / "labelme_mturk.npz", **triples(20, 5, 8), **features({"train": 20, "valid": 4, "test": 5}))
    music = features({"train": 20, "test": 5}, classes=3)
    np.savez(tmp_path / "music_mturk.npz", **triples(20, 5, 3), **music, class_names=["jazz", "pop", "rock"])
    labelme, music = load("labelme", root=tmp_path), load("music", root=tmp_path)
    assert labelme.X_valid.shape == (4, 6)
    assert music.X_valid is None
    assert music.class_names == ("jazz", "pop", "rock")
    assert labelme.X_train.dtype == music.X_test.dtype == np.float32
    assert labelme.clean is labelme.y_train


def test_sentences_are_text(tmp_path):
    texts = np.array([f"sentence {k}" for k in range(20)])
    data = triples(20, 5, 2) | {"clean": np.ones(20, np.int16)}
    np.savez(tmp_path / "sentiment_mturk.npz", **data, text_train=texts, text_test=texts[:3], y_test=[0, 1, 0])
    dataset = load("sentiment", root=tmp_path)
    assert dataset.X_train[2] == "sentence 2"
    assert dataset.y_train.dtype == np.int64
    assert "20 text" in repr(dataset)


def write_labelme_maps(folder, answers):
    folder.mkdir(parents=True)
    for part, n in {"train": len(answers), "valid": 4, "test": 5}.items():
        np.save(folder / f"data_{part}_vgg16.npy", RNG.normal(size=(n, 4, 4, 2)))
        np.save(folder / f"labels_{part}.npy", RNG.integers(0, 8, n).astype(float))
    np.save(folder / "answers.npy", answers)


def test_labelme_maps_come_from_the_authors_folder(tmp_path):
    answers = np.where(RNG.random((3000, 5)) < 0.4, RNG.integers(0, 8, (3000, 5)), -1).astype(float)
    write_labelme_maps(tmp_path / "LabelMe" / "prepared", answers)
    dataset = load("labelme", root=tmp_path, features="maps")
    assert dataset.X_train.shape == (3000, 32)
    crowd = dataset.annotations
    dense = np.full(answers.shape, -1)
    dense[crowd.instance, crowd.annotator] = crowd.label
    np.testing.assert_array_equal(dense, answers)


def test_malformed_labelme_maps_are_named(tmp_path):
    write_labelme_maps(tmp_path / "labelme", np.zeros(20))
    with pytest.raises(DatasetError, match=r"answers.npy has shape \(20,\) instead of \(instances, annotators\)"):
        load("labelme", root=tmp_path, features="maps")
    (tmp_path / "labelme" / "data_test_vgg16.npy").write_bytes(b"nonsense")
    with pytest.raises(DatasetError, match=r"data_test_vgg16.npy is not a readable npy file"):
        load("labelme", root=tmp_path, features="maps")
    with pytest.raises(ConfigError, match="'pooled' or 'maps', not 'raw'"):
        load("labelme", root=tmp_path, features="raw")


def test_the_test_part_of_k_mnist_can_stand_alone(tmp_path):
    y = (np.arange(1000) % 10).astype(np.uint8)
    X = np.broadcast_to(y[:, None, None], (1000, 28, 28))
    np.savez(tmp_path / "kmnist_test10k.npz", X=X, y=y)
    with pytest.raises(DatasetError, match=r"load\('k-mnist', part='test10k'\)"):
        load("k-mnist", root=tmp_path)
    dataset = load("k-mnist", root=tmp_path, part="test10k")
    assert dataset.name == "k-mnist-test10k"
    assert (len(dataset.X_train), len(dataset.X_test)) == (800, 200)
    np.testing.assert_array_equal(dataset.X_train[:, 0, 0], dataset.y_train)
    assert np.bincount(dataset.y_test).tolist() == [20] * 10
    with pytest.raises(ConfigError, match="'all' or 'test10k', not 'test'"):
        load("k-mnist", root=tmp_path, part="test")
