"""The real files, where CROWDWISE_DATA says they are: counts and the figures that are known of them."""

import os

import numpy as np
import pytest

from crowdwise.datasets import load, prepare
from crowdwise.errors import DatasetError


@pytest.fixture(scope="module")
def real_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("decoded")


@pytest.fixture
def real(monkeypatch, real_data, real_cache):
    """`load` with CROWDWISE_DATA as it was set; skips the test where the data set is not there."""
    monkeypatch.setenv("CROWDWISE_CACHE", str(real_cache))
    if real_data:
        monkeypatch.setenv("CROWDWISE_DATA", os.pathsep.join(map(os.path.abspath, real_data.split(os.pathsep))))

    def load_or_skip(name, **options):
        try:
            return load(name, **options)
        except DatasetError as error:
            if "is not on this machine" not in str(error):
                raise
            pytest.skip(f"data set {name!r} is not on this machine (set CROWDWISE_DATA to its folder)")

    return load_or_skip


def majority_vote_accuracy(annotations, truth):
    """Accuracy where the truth is known; of tied classes the share that is right."""
    votes = annotations.votes()
    known = np.flatnonzero((truth >= 0) & (votes.sum(axis=1) > 0))
    winners = votes[known] == votes[known].max(axis=1, keepdims=True)
    return (winners[np.arange(len(known)), truth[known]] / winners.sum(axis=1)).mean()


@pytest.mark.parametrize(
    ("name", "shape", "n_test", "mean"),
    [
        ("fashion-mnist", (60_000, 28, 28), 10_000, [0.2860]),
        pytest.param("cifar10", (50_000, 32, 32, 3), 10_000, [0.4914, 0.4822, 0.4465], marks=pytest.mark.slow),
        pytest.param("svhn", (73_257, 32, 32, 3), 26_032, [0.4377, 0.4438, 0.4728], marks=pytest.mark.slow),
    ],
)
def test_images(real, name, shape, n_test, mean):
    dataset = real(name)
    assert dataset.X_train.shape == shape
    assert dataset.X_test.shape == (n_test, *shape[1:])
    assert dataset.X_train.dtype == np.uint8
    channels = dataset.X_train.reshape(*shape[:3], -1).mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(channels, mean, atol=1e-3)
    assert len(dataset.mean) == len(dataset.std) == len(mean)


def test_k_mnist_test10k(real):
    dataset = real("k-mnist", part="test10k")
    assert (len(dataset.X_train), len(dataset.X_test)) == (8000, 2000)
    assert np.bincount(dataset.y_test).tolist() == [200] * 10


def test_cifar10n(real):
    dataset = real("cifar10n")
    assert (len(dataset.annotations), dataset.annotations.n_annotators) == (150_000, 747)
    assert majority_vote_accuracy(dataset.annotations, dataset.y_train) == pytest.approx(0.9118, abs=0.006)
    assert (np.bincount(dataset.y_train) == 5000).all()


@pytest.mark.parametrize(("labels", "error"), [("columns", 0.176), ("aggregate", 0.0903), ("worst", 0.4021)])
def test_cifar10n_label_sets(real, labels, error):
    dataset = real("cifar10n", labels=labels)
    crowd = dataset.annotations
    assert (crowd.label != dataset.y_train[crowd.instance]).mean() == pytest.approx(error, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "counts", "annotators", "labels", "accuracy"),
    [
        ("labelme", (1000, 500, 1188), 59, 2547, 0.766),
        ("music", (700, None, 300), 44, 2945, 0.704),
        ("sentiment", (4999, None, 3999), 203, 27_746, 0.886),
    ],
)
def test_crowds(real, name, counts, annotators, labels, accuracy):
    dataset = real(name)
    found = tuple(None if X is None else len(X) for X in (dataset.X_train, dataset.X_valid, dataset.X_test))
    assert found == counts
    assert (dataset.annotations.n_annotators, len(dataset.annotations)) == (annotators, labels)
    assert majority_vote_accuracy(dataset.annotations, dataset.clean) == pytest.approx(accuracy, abs=0.015)


@pytest.mark.parametrize(
    ("name", "n", "annotators", "labels", "classes", "accuracy"),
    [
        ("bluebird", 108, 39, 4212, 2, 0.759),
        ("rte", 800, 164, 8000, 2, 0.897),
        ("dog", 807, 109, 8070, 4, 0.822),
        ("web", 2665, 177, 15_567, 5, 0.731),
        ("cf-weather", 300, 461, 1720, 5, 0.882),
    ],
)
def test_label_only_sets(real, name, n, annotators, labels, classes, accuracy):
    dataset = real(name)
    crowd = dataset.annotations
    assert (crowd.n_instances, crowd.n_annotators, len(crowd), dataset.n_classes) == (n, annotators, labels, classes)
    assert majority_vote_accuracy(crowd, dataset.truth) == pytest.approx(accuracy, abs=0.015)


@pytest.mark.parametrize(("name", "how", "accuracy"), [("labelme", "log1p", 0.92), ("music", "standardise", 0.73)])
def test_prepared_features_can_be_learnt_from(real, name, how, accuracy):
    from sklearn.linear_model import LogisticRegression

    dataset = real(name)
    X_train, X_test = prepare(how, dataset.X_train, dataset.X_test)
    model = LogisticRegression(max_iter=1000).fit(X_train, dataset.y_train)
    assert model.score(X_test, dataset.y_test) > accuracy
