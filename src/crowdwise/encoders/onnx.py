"""Networks in ONNX files, run by onnxruntime: for pictures, and for texts with a tokenizer beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from crowdwise.constraints import Interval, PositiveInt
from crowdwise.data.types import Array
from crowdwise.encoders.base import ENCODERS
from crowdwise.encoders.decoding import decode
from crowdwise.encoders.pretrained import Pretrained, first_line, imported
from crowdwise.errors import ConfigError, DataError, ModelFileError

LARGEST = 1 << 32  # bytes of a file


@ENCODERS.register("onnx")
@dataclass(kw_only=True)
class Onnx(Pretrained):
    """``encoder="onnx:FILE"``. Pictures go in as (B, 3, size, size), (pixels / 255 - mean) / std; texts as token numbers.

    The first output counts; one of several tokens or places is averaged over these.
    """

    name: ClassVar[str] = "onnx"

    size: Annotated[int, Interval(8, 2048)] | None = None
    """Pixels on a side; None: what the network says, else 224."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Of each channel; likewise ``std``."""
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    tokenizer: str | None = None
    """``tokenizer.json`` for texts; None: that beside the network."""
    max_length: PositiveInt = 256
    """Tokens of a text that count."""

    def load(self) -> Any:
        runtime = imported("onnxruntime", "onnx")
        path = Path(self.model).expanduser()
        if not path.is_file():
            raise DataError(f"{path}: no such ONNX file", parameter="encoder")
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes; at most {LARGEST:,} are read")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if self.facts_.setdefault("sha256", digest) != digest:
            raise ModelFileError(f"{path} is not the network that this model was trained with: its checksum differs")
        try:
            session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has classes of its own for whatever is wrong with a file
            raise DataError(f"{path} cannot be loaded as ONNX: {first_line(error)}") from error
        return session, self._tokenizer(path) if self.facts_["kind"] == "text" else None

    def _tokenizer(self, path: Path) -> Any:
        library = imported("tokenizers", "onnx")
        file = Path(self.tokenizer).expanduser() if self.tokenizer else path.with_name("tokenizer.json")
        if not file.is_file():
            raise ConfigError(
                f"texts need a tokenizer: there is no {file}; name it with tokenizer=", parameter="encoder"
            )
        tokenizer = library.Tokenizer.from_str(file.read_text("utf-8"))
        tokenizer.enable_truncation(self.max_length)
        tokenizer.enable_padding()
        return tokenizer

    def encode(self, items: Sequence[Any]) -> Array:
        session, tokenizer = self.network_
        inputs = session.get_inputs()
        if tokenizer is None:
            mask, feed = None, {inputs[0].name: self._pixels(items, inputs[0])}
        else:
            encoded = tokenizer.encode_batch(list(items))
            mask = np.array([each.attention_mask for each in encoded], np.int64)
            known = {
                "input_ids": np.array([each.ids for each in encoded], np.int64),
                "attention_mask": mask,
                "token_type_ids": np.array([each.type_ids for each in encoded], np.int64),
            }
            unknown = [each.name for each in inputs if each.name not in known]
            if unknown:
                raise DataError(f"{self.model} wants an input {unknown[0]!r}; known: {', '.join(known)}")
            feed = {each.name: known[each.name] for each in inputs}
        try:
            found = np.asarray(session.run(None, feed)[0], np.float32)
        except Exception as error:  # as above
            raise DataError(f"{self.model} cannot encode: {first_line(error)}") from error
        if found.ndim == 3 and mask is not None:
            weight = mask[:, :, None].astype(np.float32)
            return np.asarray((found * weight).sum(1) / np.maximum(weight.sum(1), 1))
        if found.ndim == 4:
            found = found.mean((2, 3))
        if found.ndim == 3:
            found = found.mean(1)
        if found.ndim != 2 or len(found) != len(items):
            raise DataError(f"{self.model} must give a row of features for each item, got shape {found.shape}")
        return found

    def _pixels(self, items: Sequence[Any], wanted: Any) -> Array:
        shape = wanted.shape
        if len(shape) != 4 or (shape[1] not in (3, None) and not isinstance(shape[1], str)):
            raise DataError(f"{self.model} takes {shape}, not pictures (batch, 3, height, width)")
        height, width = (self.size or (side if isinstance(side, int) else 224) for side in shape[2:])
        pixels = np.stack([decode(item, size=(height, width), grey=False) for item in items]).astype(np.float32) / 255
        scaled = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
