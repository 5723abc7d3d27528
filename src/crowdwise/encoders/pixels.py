"""Pictures as pixels, all of one size."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from crowdwise.constraints import Interval
from crowdwise.encoders.base import ENCODERS, Encoder
from crowdwise.encoders.decoding import decode, look
from crowdwise.errors import DataError, ModelFileError
from crowdwise.progress import progress_bar

USUAL = 32  # pixels on a side where nothing is said
KEPT = 64  # size up to which pictures of equal size are kept as they are
LARGEST = 8 << 30  # bytes of pixels that are held in memory
_AHEAD = 64


@ENCODERS.register("pixels")
@dataclass(kw_only=True)
class PixelEncoder(Encoder):
    """Decoded, turned upright, scaled until they fill the size, and cropped to the centre. The size is learnt in training.

    >>> from PIL import Image
    >>> pictures = [Image.new("RGB", (120, 80), "red"), Image.new("RGB", (60, 90), "blue")]
    >>> PixelEncoder(size=32).fitted(pictures).transform(pictures).shape
    (2, 32, 32, 3)
    """

    name: ClassVar[str] = "pixels"
    takes: ClassVar[str] = "pictures"
    pictures: ClassVar[bool] = True

    size: Annotated[int, Interval(4, 1024)] | None = None
    """Pixels on a side; None: 32, but pictures that all have the same size of at most 64 by 64 keep it."""
    colour: Literal["auto", "grey", "rgb"] = "auto"
    """``"grey"``: one channel; ``"rgb"``: three; ``"auto"``: grey where all training pictures are."""

    def learn(self, rows: Any, seed: int) -> None:
        files = _files(rows)
        seen = {look(picture) for picture in files}
        sizes, grey = {each[:2] for each in seen}, all(each[2] for each in seen)
        height = width = self.size or USUAL
        if self.size is None and len(sizes) == 1 and min(*sizes) >= 4 and max(max(each) for each in sizes) <= KEPT:
            ((height, width),) = sizes
        channels = 1 if self.colour == "grey" or (self.colour == "auto" and grey) else 3
        self.facts_ = {"height": height, "width": width, "channels": channels}

    def transform(self, rows: Any) -> Any:
        files = _files(rows)
        height, width, channels = (self.facts_[name] for name in ("height", "width", "channels"))
        if len(files) * height * width * channels > LARGEST:
            raise DataError(
                f"{len(files):,} pictures of {height} x {width} x {channels} take more than {LARGEST / 1e9:.0f} GB: "
                "choose a smaller size, or encode them with a pretrained model",
                parameter="encoder",
            )
        result = np.empty((len(files), height, width, channels), np.uint8)

        def fill(at: int) -> None:
            result[at] = decode(files[at], size=(height, width), grey=channels == 1).reshape(height, width, channels)

        with (
            ThreadPoolExecutor(4) as pool,
            progress_bar("decoding pictures", len(files), show=len(files) > 500) as advance,
        ):
            for start in range(0, len(files), _AHEAD):
                list(pool.map(fill, range(start, min(start + _AHEAD, len(files)))))
                advance(_AHEAD)
        return result

    @property
    def about(self) -> str:
        return "pixels: {height} x {width} x {channels}".format(**self.facts_) if self.facts_ else self.name

    def check_state(self) -> None:
        sizes = [self.facts_.get(name) for name in ("height", "width", "channels")]
        if not all(isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= 1024 for size in sizes):
            raise ModelFileError(f"its encoder {self.name!r} has an impossible size: {sizes}")
        if sizes[2] not in (1, 3):
            raise ModelFileError(f"its encoder {self.name!r} has {sizes[2]} channels")


def _files(rows: Any) -> Sequence[Any]:
    """Paths or PIL images."""
    return rows.files if hasattr(rows, "files") else list(rows)
