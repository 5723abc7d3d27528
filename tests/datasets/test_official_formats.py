"""Small archives of the official formats, well-formed and not."""

import gzip
import io
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from crowdwise.datasets import ImageFolder, cifar10, is_here, load, mnist
from crowdwise.errors import ConfigError, DatasetError

RNG = np.random.default_rng(0)


def idx(array, magic=None):
    header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return (magic or header[:4]) + header[4:] + array.tobytes()


def write_mnist(folder, n_train=20, n_test=10, compress=True, **replaced):
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "train-images-idx3-ubyte": RNG.integers(0, 256, (n_train, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": np.arange(n_train, dtype=np.uint8) % 10,
        "t10k-images-idx3-ubyte": RNG.integers(0, 256, (n_test, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(n_test, dtype=np.uint8) % 10,
    }
    for name, array in arrays.items():
        content = replaced.get(name.replace("-", "_"), idx(array))
        (folder / (name + ".gz" * compress)).write_bytes(gzip.compress(content) if compress else content)
    return arrays


@pytest.mark.parametrize("name", ["fashion-mnist", "k-mnist"])
@pytest.mark.parametrize("compress", [True, False])
def test_idx_files_are_read_gzipped_or_plain(tmp_path, name, compress):
    arrays = write_mnist(tmp_path, compress=compress)
    dataset = load(name, root=tmp_path)
    np.testing.assert_array_equal(dataset.X_train, arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(dataset.y_test, arrays["t10k-labels-idx1-ubyte"])
    assert dataset.X_train.dtype == np.uint8
    assert dataset.y_train.dtype == np.int64
    assert dataset.X_train.flags.writeable


def test_a_folder_of_one_mnist_is_not_taken_for_the_other(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setenv("CROWDWISE_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match="k-mnist"):
        load("k-mnist")
    write_mnist(tmp_path / "k-mnist")
    assert len(load("k-mnist").X_train) == 20


def test_some_of_the_training_images_are_a_smaller_set_with_all_test_images(tmp_path):
    arrays = write_mnist(tmp_path, n_train=40)
    some = load("fashion-mnist", root=tmp_path, n_train=8)
    assert (some.name, len(some.X_train), len(some.X_test)) == ("fashion-mnist-8", 8, 10)
    whole = {image.tobytes(): label for image, label in zip(*list(arrays.values())[:2], strict=True)}
    for image, label in zip(some.X_train, some.y_train, strict=True):
        assert whole[image.tobytes()] == label
    again = load("fashion-mnist", root=tmp_path, n_train=8)
    np.testing.assert_array_equal(again.X_train, some.X_train)


@pytest.mark.parametrize("n_train", [0, 20, -1, True, 2.5])
def test_a_number_of_training_images_that_cannot_be_is_refused(tmp_path, n_train):
    write_mnist(tmp_path)
    with pytest.raises(ConfigError, match="n_train of fashion-mnist must be a whole number from 1 to 19"):
        load("fashion-mnist", root=tmp_path, n_train=n_train)


def test_whether_a_data_set_is_here_is_told_without_reading_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CROWDWISE_CACHE", str(tmp_path / "cache"))
    assert not is_here("k-mnist", root=tmp_path)
    write_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"damaged")
    assert is_here("k-mnist", root=tmp_path)
    assert not is_here("k-mnist", root=tmp_path, part="test10k")


IMAGES = np.zeros((20, 28, 28), np.uint8)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"train_images_idx3_ubyte": idx(IMAGES, magic=b"\0\0\x0d\3")}, "starts with 00000d03 instead of 00000803"),
        ({"train_labels_idx1_ubyte": idx(IMAGES)}, "starts with 00000803 instead of 00000801"),
        ({"train_images_idx3_ubyte": b""}, "starts with  instead of"),
        ({"train_images_idx3_ubyte": b"\0\0\x08\3\0\0"}, "ends inside its header"),
        ({"train_images_idx3_ubyte": idx(IMAGES)[:-1]}, "it has only 15,679"),
        ({"train_images_idx3_ubyte": idx(IMAGES) + b"x"}, "it has more"),
        ({"train_images_idx3_ubyte": struct.pack(">4B3I", 0, 0, 8, 3, *[2**31] * 3)}, "unpacks to more than"),
        ({"train_images_idx3_ubyte": idx(IMAGES[:, :20])}, r"\(20, 20, 28\) uint8 instead of"),
        ({"train_labels_idx1_ubyte": idx(np.zeros(19, np.uint8))}, "20 instances but 19 true classes"),
        ({"train_labels_idx1_ubyte": idx(np.full(20, 10, np.uint8))}, r"class 10, but there are 10 \(0..9\)"),
    ],
)
@pytest.mark.parametrize("compress", [True, False])
def test_malformed_idx_files_are_named_and_explained(tmp_path, replaced, message, compress):
    write_mnist(tmp_path, compress=compress, **replaced)
    with pytest.raises(DatasetError, match=message):
        load("fashion-mnist", root=tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-20], lambda c: b"no gzip", lambda c: c[:4000] + b"\xff" * 9 + c[4009:]]
)
def test_a_damaged_gzip_file_is_named(tmp_path, damage):
    write_mnist(tmp_path)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match=r"t10k-images-idx3-ubyte.gz is not a complete gzip file"):
        load("fashion-mnist", root=tmp_path)


def cifar_batches(n=4):
    labels = [RNG.integers(0, 10, n, dtype=np.uint8) for _ in range(6)]
    images = [RNG.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8) for _ in range(6)]
    rows = [
        np.concatenate([y[:, None], X.transpose(0, 3, 1, 2).reshape(n, -1)], axis=1).tobytes()
        for X, y in zip(images, labels, strict=True)
    ]
    return (
        images,
        labels,
        {f"cifar-10-batches-bin/{name}": row for name, row in zip(cifar10.BATCHES, rows, strict=True)},
    )


def write_tar(folder, members):
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
            else:
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)


@pytest.mark.parametrize("extracted", [True, False])
def test_cifar10_is_read_from_the_binary_archive_or_its_extracted_files(tmp_path, extracted):
    images, labels, members = cifar_batches()
    if extracted:
        (tmp_path / "cifar-10-batches-bin").mkdir()
        for name, content in members.items():
            (tmp_path / name).write_bytes(content)
    else:
        write_tar(tmp_path, dict(reversed(members.items())))
    dataset = load("cifar10", root=tmp_path)
    np.testing.assert_array_equal(dataset.X_train, np.concatenate(images[:5]))
    np.testing.assert_array_equal(dataset.y_train, np.concatenate(labels[:5]))
    np.testing.assert_array_equal(dataset.X_test, images[5])
    np.testing.assert_array_equal(dataset.y_test, labels[5])
    assert dataset.mean == (0.4914, 0.4822, 0.4465)


def test_reading_a_tar_archive_writes_nothing_whatever_its_members_are_called(tmp_path):
    _, _, members = cifar_batches()
    root = tmp_path / "a" / "b"
    root.mkdir(parents=True)
    write_tar(root, {"../escaped": b"x", "/tmp/../escaped": b"x", **members})
    before = sorted(tmp_path.rglob("*"))
    assert len(load("cifar10", root=root).X_train) == 20
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda name, content: {"../" + name: content},
        lambda name, content: {name: "/etc/hostname"},
        lambda name, content: {name: content + b"\0" * cifar10.ROW * cifar10.MOST_ROWS},
        lambda name, content: {},
    ],
    ids=["outside", "link", "too large", "missing"],
)
def test_only_regular_members_with_the_official_names_count(tmp_path, change):
    _, _, members = cifar_batches()
    name = "cifar-10-batches-bin/data_batch_2.bin"
    members |= {"cifar-10-batches-bin/readme.html": b"hello"}
    write_tar(tmp_path, change(name, members.pop(name)) | members)
    with pytest.raises(DatasetError, match=r"lacks cifar-10-batches-bin/data_batch_2.bin"):
        load("cifar10", root=tmp_path)


@pytest.mark.parametrize("content", [b"", b"\0" * (cifar10.ROW - 1)])
def test_a_cifar_batch_of_the_wrong_length_is_refused(tmp_path, content):
    _, _, members = cifar_batches()
    write_tar(tmp_path, members | {"cifar-10-batches-bin/test_batch.bin": content})
    with pytest.raises(DatasetError, match=r"test_batch.bin of CIFAR-10 has [\d,]+ bytes"):
        load("cifar10", root=tmp_path)


@pytest.mark.parametrize("damage", [lambda c: c[: len(c) // 2], lambda c: b"no archive", lambda c: gzip.compress(b"?")])
def test_a_damaged_cifar_archive_is_named(tmp_path, damage):
    write_tar(tmp_path, cifar_batches()[2])
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match=r"cifar-10-binary.tar.gz is not a complete tar.gz archive"):
        load("cifar10", root=tmp_path)


def write_svhn(folder, X, y):
    for part in ("train", "test"):
        savemat(folder / f"{part}_32x32.mat", {"X": X, "y": y}, do_compression=True)


def test_svhn_calls_ten_zero_and_puts_instances_first(tmp_path):
    X = RNG.integers(0, 256, (32, 32, 3, 10), dtype=np.uint8)
    write_svhn(tmp_path, X, np.arange(1, 11, dtype=np.uint8)[:, None])
    dataset = load("svhn", root=tmp_path)
    assert dataset.y_train.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    np.testing.assert_array_equal(dataset.X_test[3], X[..., 3])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((10, 32, 32, 3), np.uint8), np.ones((10, 1)), r"X \(10, 32, 32, 3\)"),
        (np.zeros((32, 32, 3, 10)), np.ones((10, 1)), "float64"),
        (np.zeros((32, 32, 3, 10), np.uint8), np.ones((9, 1)), r"y \(9, 1\)"),
        (np.zeros((32, 32, 3, 10), np.uint8), np.zeros((10, 1)), r"labels 0..0 instead of 1..10"),
    ],
)
def test_malformed_svhn_arrays_are_explained(tmp_path, X, y, message):
    write_svhn(tmp_path, X, y)
    with pytest.raises(DatasetError, match=message):
        load("svhn", root=tmp_path)


@pytest.mark.parametrize("damage", [lambda c: c[:-20], lambda c: b"", lambda c: b"text" * 99, lambda c: c[:100]])
def test_a_damaged_mat_file_is_named(tmp_path, damage):
    write_svhn(tmp_path, np.zeros((32, 32, 3, 2), np.uint8), np.ones((2, 1)))
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match=r"train_32x32.mat is not a readable SVHN file"):
        load("svhn", root=tmp_path)


@pytest.fixture
def imagenet(tmp_path):
    for part, n in (("train", 3), ("val", 2)):
        for c, name in enumerate(("n01", "n02")):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for k in range(n):
                mode, colour = [("RGB", (200, 100, 0)), ("L", 90), ("CMYK", (0, 0, 0, 0))][k]
                Image.new(mode, (50 + 30 * c, 40), colour).save(folder / f"{part}_{k}.JPEG")
            (folder / "notes.txt").write_text("not an image, and not asked for")
    return tmp_path


def test_an_image_folder_decodes_lazily_to_squares(imagenet):
    dataset = load("imagenet100", root=imagenet, size=16)
    assert dataset.X_train.shape == (6, 16, 16, 3)
    assert dataset.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.y_test.tolist() == [0, 0, 1, 1]
    assert dataset.class_names == ("n01", "n02")
    pixels, index = dataset.X_train[-6]
    assert index == 0
    assert pixels.shape == (16, 16, 3)
    assert pixels.dtype == np.uint8
    np.testing.assert_allclose(pixels.mean(axis=(0, 1)), (200, 100, 0), atol=4)
    assert [index for _, index in dataset.X_train] == list(range(6))
    assert "6 x 16 x 16 x 3 uint8" in repr(dataset)


def test_the_centre_of_an_image_is_kept_undistorted(tmp_path):
    pixels = np.zeros((40, 80, 3), np.uint8)
    pixels[:, 20:60] = 255
    (tmp_path / "c").mkdir()
    Image.fromarray(pixels).save(tmp_path / "c" / "x.png")
    decoded, _ = ImageFolder(tmp_path, size=40)[0]
    assert decoded.min() == 255


def test_some_classes_can_be_chosen_in_any_order(imagenet):
    assert load("imagenet100", root=imagenet, classes=["n02"]).class_names == ("n02",)
    assert load("imagenet100", root=imagenet, classes=["n02", "n01"]).X_train.files[0] == "n02/train_0.JPEG"
    with pytest.raises(DatasetError, match="no folder for class 'n03'"):
        load("imagenet100", root=imagenet, classes=["n03"])


@pytest.mark.parametrize("content", [b"not an image", b""])
def test_a_file_that_is_no_image_is_named_when_it_is_asked_for(imagenet, content):
    (imagenet / "train" / "n01" / "train_1.JPEG").write_bytes(content)
    images = load("imagenet100", root=imagenet).X_train
    assert images[0][0].shape == (224, 224, 3)
    with pytest.raises(DatasetError, match=r"train_1.JPEG cannot be decoded as an image"):
        images[1]


def test_a_truncated_image_is_named(imagenet):
    path = imagenet / "train" / "n01" / "train_0.JPEG"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DatasetError, match=r"train_0.JPEG cannot be decoded"):
        load("imagenet100", root=imagenet).X_train[0]


def test_image_folders_that_make_no_sense_are_refused(imagenet, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(DatasetError, match="has no class folders"):
        ImageFolder(empty)
    (empty / "c").mkdir()
    with pytest.raises(DatasetError, match="has no images"):
        ImageFolder(empty)
    with pytest.raises(ConfigError, match="size must be at least 1"):
        ImageFolder(imagenet / "train", size=0)
    with pytest.raises(IndexError, match="image 6 is out of range"):
        ImageFolder(imagenet / "train")[6]


def test_official_files_are_those_that_the_servers_have():
    assert [remote.name for remote in mnist.K_MNIST] == list(mnist.FILES)
    assert cifar10.ARCHIVE.name == "cifar-10-binary.tar.gz"
