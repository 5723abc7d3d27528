"""Names, places, options, and what a data set promises."""

import os

import numpy as np
import pytest

from crowdwise.annotations import Annotations
from crowdwise.datasets import Dataset, files, load, names, prepare
from crowdwise.datasets.splits import stratified_split
from crowdwise.errors import ConfigError, DataError, DatasetError


def test_every_promised_name_is_registered():
    assert set(names()) == {
        *("digits", "fashion-mnist", "k-mnist", "cifar10", "svhn", "imagenet100"),
        *("cifar10n", "labelme", "music", "sentiment"),
        *("bluebird", "rte", "dog", "web", "cf-weather"),
    }


def test_every_data_set_is_documented():
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "datasets.md"), encoding="utf-8") as file:
        text = file.read()
    assert [name for name in names() if f"| `{name}` |" not in text] == []


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"unknown data set 'cifar-10'; did you mean 'cifar10'\?"):
        load("cifar-10")


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigError, match=r"data set 'cifar10n' has no option 'label'; did you mean 'labels'\?"):
        load("cifar10n", label="worst")


@pytest.mark.parametrize("name", [name for name in names() if name != "digits"])
def test_a_missing_data_set_says_where_it_was_looked_for_and_what_to_do(name, tmp_path, monkeypatch, cache):
    places = [tmp_path / "one", tmp_path / "two"]
    monkeypatch.setenv("CROWDWISE_DATA", os.pathsep.join(map(str, places)))
    monkeypatch.setattr(files.Path, "exists", lambda self: False)
    with pytest.raises(DatasetError) as caught:
        load(name, root=tmp_path / "root")
    message = str(caught.value)
    looked = [message.index(str(place)) for place in (tmp_path / "root", *places, cache / name)]
    assert looked == sorted(looked)
    assert "pass root=, or set CROWDWISE_DATA" in message
    official = name in ("fashion-mnist", "k-mnist", "cifar10", "svhn")
    assert ("download=True" in message) == official


def test_the_first_folder_that_holds_all_files_wins(tmp_path, monkeypatch):
    crowd = {"instance": [0], "annotator": [0], "label": [0], "n_instances": 1, "n_annotators": 1, "clean": [0]}
    for k, place in enumerate(("root", "first", "second/rte", "cache/rte")):
        (tmp_path / place).mkdir(parents=True)
        np.savez(tmp_path / place / "agg_rte.npz", **crowd, n_classes=k + 1)
    monkeypatch.setenv("CROWDWISE_DATA", f"{tmp_path / 'first'}{os.pathsep}{tmp_path / 'second'}")
    assert load("rte", root=tmp_path / "root").n_classes == 1
    for k, place in enumerate(("first", "second/rte", "cache/rte")):
        assert load("rte").n_classes == k + 2
        (tmp_path / place / "agg_rte.npz").unlink()


def test_an_incomplete_folder_is_reported_as_such(tmp_path):
    (tmp_path / "svhn_train.npz").touch()
    with pytest.raises(DatasetError, match=r"has only svhn_train.npz"):
        load("svhn", root=tmp_path)


@pytest.mark.parametrize("root", [True, False])
def test_missing_files_are_downloaded_with_their_checksums(tmp_path, cache, monkeypatch, root):
    calls = []

    def fetch(url, destination, *, md5):
        calls.append((url, destination, md5))
        raise DatasetError("no network")

    monkeypatch.setattr(files, "fetch", fetch)
    root = tmp_path / "root" if root else None
    with pytest.raises(DatasetError, match="no network"):
        load("svhn", root=root, download=True)
    url = "http://ufldl.stanford.edu/housenumbers/train_32x32.mat"
    assert calls == [(url, (root or cache) / "svhn" / "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373")]


def test_an_interrupted_write_leaves_nothing_behind(tmp_path):
    def write(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(tmp_path / "folder" / "file", write)
    assert list((tmp_path / "folder").iterdir()) == []


def test_digits_are_always_there_and_always_split_alike():
    digits = load("digits")
    assert digits.X_train.dtype == np.uint8
    assert (digits.X_train.min(), digits.X_train.max()) == (0, 255)
    assert (len(digits.X_train), len(digits.X_test)) == (1347, 450)
    assert np.bincount(digits.y_test).tolist() == [45, 45, 44, 46, 46, 45, 46, 44, 44, 45]
    assert digits.y_test[:12].tolist() == [3, 4, 7, 9, 2, 4, 5, 0, 6, 8, 6, 5]


def test_a_stratified_split_shares_out_every_class():
    y = np.repeat([0, 1, 2], [100, 30, 10])
    train, test = stratified_split(y, n_test=14)
    assert np.bincount(y[test]).tolist() == [10, 3, 1]
    assert sorted([*train, *test]) == list(range(140))
    assert stratified_split(y, n_test=14, seed=1)[1].tolist() != test.tolist()


def test_parts_of_a_data_set_must_fit_each_other():
    y = np.array([0, 1])
    crowd = Annotations.from_triples([0, 1, 2], [0, 0, 0], [0, 1, 0])
    with pytest.raises(DataError, match="test has 3 instances but 2 true classes"):
        Dataset("x", "features", ("a", "b"), X_test=np.zeros((3, 1)), y_test=y)
    with pytest.raises(DataError, match=r"y_train has class 1, but there are 1 \(0..0\)"):
        Dataset("x", "features", ("a",), y_train=y)
    with pytest.raises(DataError, match="truth has class -2"):
        Dataset("x", "labels", ("a", "b"), truth=np.array([-2, 0]))
    with pytest.raises(DataError, match="y_train has 2 entries, but the annotations cover 3 instances"):
        Dataset("x", "features", ("a", "b"), y_train=y, annotations=crowd)


def test_standardising_uses_the_training_part_only():
    rng = np.random.default_rng(0)
    X_train, X_test = rng.normal(3, 2, (50, 4)).astype(np.float32), rng.normal(size=(9, 4))
    X_train[:, 1] = 0.1
    prepared, none, test = prepare("standardise", X_train, None, X_test)
    np.testing.assert_allclose(prepared.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(prepared.std(axis=0), [1, 0, 1, 1], atol=1e-5)
    np.testing.assert_allclose(test[:, 0], (X_test[:, 0] - X_train[:, 0].mean()) / X_train[:, 0].std(), rtol=1e-5)
    assert none is None
    assert prepared.dtype == test.dtype == np.float32


def test_preparations_go_by_name():
    X = np.array([[0.0, 1.0]])
    assert prepare(None, X)[0] is X
    np.testing.assert_allclose(prepare("log1p", X)[0], np.log1p(X))
    with pytest.raises(DataError, match="one is -1"):
        prepare("log1p", X, -X)
    with pytest.raises(ConfigError, match=r"unknown preparation 'log'; did you mean 'log1p'\?"):
        prepare("log", X)
