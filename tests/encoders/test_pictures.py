"""Pictures: folders, decoding within limits, and where the paths of exports lead."""

from __future__ import annotations

import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from crowdwise.data.located import located
from crowdwise.encoders import Pictures, PixelEncoder, kind_of, opened
from crowdwise.encoders.base import restore_encoder
from crowdwise.encoders.decoding import decode, look
from crowdwise.errors import CrowdwiseWarning, DataError, ModelFileError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "below").mkdir()
    Image.new("RGB", (60, 40), "red").save(tmp_path / "b.png")
    Image.new("RGB", (30, 90), "blue").save(tmp_path / "below" / "a.JPG", "JPEG")
    Image.new("RGB", (30, 90), "blue").save(tmp_path / ".hidden.png")
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def test_a_folder_is_its_pictures_sorted_by_name(folder):
    pictures = opened(folder)
    assert (pictures.ids, pictures.stems) == (("b.png", "below/a.JPG"), ("b", "below/a"))
    assert kind_of(pictures) == kind_of([folder / "b.png"]) == "pictures"
    assert opened([str(path) for path in pictures.files]).files == pictures.files
    assert pictures[[1]].ids == ("below/a.JPG",)
    assert pictures[0].shape == (40, 60, 3)


def test_pictures_of_any_size_fill_the_same_square(folder):
    encoder = PixelEncoder(size=32).fitted(opened(folder))
    pixels = encoder.transform(opened(folder))
    assert pixels.shape == (2, 32, 32, 3)
    assert np.abs(pixels[0].astype(int) - [255, 0, 0]).max() == 0
    again = restore_encoder(encoder.state(), {})
    np.testing.assert_array_equal(again.transform(opened(folder)), pixels)


def test_small_pictures_of_one_size_keep_it_and_grey_ones_their_channel():
    grey = [Image.new("L", (28, 28), 5), Image.new("L", (28, 28), 9)]
    assert PixelEncoder().fitted(grey).transform(grey).shape == (2, 28, 28, 1)
    assert PixelEncoder(colour="rgb").fitted(grey).transform(grey).shape == (2, 28, 28, 3)
    assert PixelEncoder().fitted([*grey, Image.new("L", (29, 28))]).facts_["height"] == 32


def test_cameras_are_turned_upright(tmp_path):
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    assert look(tmp_path / "a.png") == (40, 20, False)
    upright = decode(tmp_path / "a.png")
    assert upright.shape == (40, 20, 3)
    assert upright[:20].min() == 255
    assert upright[20:].max() == 0


def test_transparency_becomes_white_and_sixteen_bits_become_eight():
    assert decode(Image.new("RGBA", (4, 4), (255, 0, 0, 0))).min() == 255
    assert decode(Image.fromarray(np.full((4, 4), 65535, np.uint16))).max() == 255


def bomb(side: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [20_000, 9_500, 60_000])
def test_bombs_are_refused_before_they_unpack(tmp_path, side):
    (tmp_path / "bomb.png").write_bytes(bomb(side))
    with pytest.raises(DataError, match=r"bomb\.png"):
        PixelEncoder(size=8).fitted(opened(tmp_path)).transform(opened(tmp_path))


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\x89PNG\r\n\x1a\n" + b"\0" * 50])
def test_what_is_no_picture_is_named(tmp_path, content):
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.png cannot be decoded as a picture"):
        PixelEncoder().fitted(opened(tmp_path))


def test_a_forged_size_is_refused():
    for facts in ({}, {"height": 10**6, "width": 8, "channels": 3}, {"height": 8, "width": 8, "channels": 2}):
        with pytest.raises(ModelFileError):
            restore_encoder({"parameters": {"name": "pixels"}, "facts": facts}, {})


@pytest.mark.parametrize(
    "name",
    [
        "b.png",
        "./b.png",
        "/data/upload/12/b.png",
        "/data/upload/12/0a1b2c3d-b.png",
        "/data/local-files/?d=photos/b.png",
        "upload\\12\\b.png",
        "below/a.JPG",
        "/data/local-files/?d=below%2Fa.JPG",
    ],
)
def test_paths_of_exports_are_found_below_the_folder(folder, name):
    (found,) = located([name], ["1"], folder).files
    assert found.name in ("b.png", "a.JPG")


@pytest.mark.parametrize(
    "name", ["../secret.png", "/etc/passwd", "https://example.org/b.png", "link.png", "a\0.png", None, "x" * 9999]
)
def test_nothing_outside_of_the_folder_is_found(folder, name):
    root = folder / "below"
    (folder / "secret.png").write_bytes(b"secret")
    (root / "link.png").symlink_to(folder / "secret.png")
    with pytest.raises(DataError, match="1 of 1 pictures are not below the folder"):
        located([name], ["1"], root)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(DataError, match="has no pictures"):
        Pictures.of_folder(tmp_path)
    with pytest.raises(DataError, match="names no folder of pictures"):
        opened("no/such/folder")


def test_a_name_that_is_not_text_is_an_error_before_anything_is_decoded(folder):
    (folder / "b.png").rename(os.fsdecode(os.fsencode(folder) + b"/bad\xff.png"))
    with pytest.raises(DataError, match=r"not UTF-8: 'bad\\udcff.png'; rename"):
        Pictures.of_folder(folder)


def test_only_regular_files_are_pictures(folder):
    os.mkfifo(folder / "pipe.png")
    (folder / "link.png").symlink_to(folder / "b.png")
    with pytest.warns(CrowdwiseWarning, match=r"left out .*'pipe.png'"):
        assert Pictures.of_folder(folder).ids == ("b.png", "below/a.JPG", "link.png")
