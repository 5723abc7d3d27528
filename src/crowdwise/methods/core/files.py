"""Model files: a directory with ``model.json`` and ``weights.safetensors``. Data only; damage and tampering are noticed."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

import crowdwise
from crowdwise.annotations import Annotations
from crowdwise.data.factorise import Vocabulary
from crowdwise.engine.checkpoint import read_tensors, write_tensors
from crowdwise.engine.tensors import Inputs
from crowdwise.errors import ModelFileError
from crowdwise.storage.documents import read_as, read_json, write_json
from crowdwise.storage.files import replacing_folder

Array = npt.NDArray[Any]
MODEL_VERSION = 1
_AT_ONCE = 1024  # rows whose checksum is taken at once
MODEL_JSON, WEIGHTS = "model.json", "weights.safetensors"


@dataclass(frozen=True)
class ModelHeader:
    """``model.json``."""

    version: Literal[1]
    crowdwise: str
    method: str
    parameters: Mapping[str, Any]
    classes: Sequence[Any]
    annotators: Sequence[Any]
    prepare: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    weights_sha256: str
    sha256: str
    columns: Sequence[str] | None = None
    id_column: str | None = None
    encoder: Mapping[str, Any] | None = None
    warnings: Sequence[str] = ()
    mirrored: bool = False


def save_model(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Path:
    """Write a model directory: to a temporary one first, which then takes the place of an earlier model."""
    if path.exists() and not (path / MODEL_JSON).exists():
        raise ModelFileError(f"{path} exists and is not a model directory: choose another path")
    with replacing_folder(path) as temporary:
        write_tensors(temporary / WEIGHTS, tensors, {"version": MODEL_VERSION})
        content = json.loads(json.dumps({"version": MODEL_VERSION, "crowdwise": crowdwise.__version__, **about}))
        content["weights_sha256"] = _sha256((temporary / WEIGHTS).read_bytes())
        content["sha256"] = _digest(content)
        write_json(temporary / MODEL_JSON, content)
    return path


def load_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a model directory (or a run directory that holds one), refusing what is damaged, altered or unknown."""
    if (path / "model" / MODEL_JSON).exists():
        path = path / "model"
    if not (path / MODEL_JSON).exists():
        raise ModelFileError(f"{path} is not a model directory: it has no {MODEL_JSON}")
    about = read_json(path / MODEL_JSON)
    header = read_as(ModelHeader, about, str(path / MODEL_JSON), ModelFileError)
    if about.pop("sha256") != _digest(about):
        raise ModelFileError(f"{path / MODEL_JSON} was changed after it was written: its checksum does not match")
    try:
        if not stat.S_ISREG((path / WEIGHTS).stat().st_mode):
            raise ModelFileError(f"{path / WEIGHTS} is not a regular file")  # a device may have no end
        weights = (path / WEIGHTS).read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path / WEIGHTS} cannot be read: {error.strerror}") from error
    if _sha256(weights) != header.weights_sha256:
        raise ModelFileError(f"{path / WEIGHTS} was changed after it was written: its checksum does not match")
    return read_tensors(path / WEIGHTS, verify=False).tensors, vars(header)


def packed_ids(ids: Array) -> dict[str, Array]:
    """Ids of instances as arrays of numbers; nothing where they are row numbers."""
    if ids.dtype.kind in "iu":
        return {} if np.array_equal(ids, np.arange(len(ids))) else {"numbers": ids.astype(np.int64)}
    texts = [str(value).encode("utf-8", "surrogatepass") for value in ids.tolist()]
    data = np.frombuffer(b"".join(texts), np.uint8).copy()
    return {"text": data, "ends": np.cumsum([len(text) for text in texts], dtype=np.int64)}


def unpacked_ids(arrays: Mapping[str, Array]) -> Array | None:
    """The reverse of `packed_ids`; None where there is nothing."""
    if "numbers" in arrays:
        return arrays["numbers"]
    if "text" not in arrays:
        return None
    data, ends = arrays["text"].tobytes(), [0, *arrays["ends"].tolist()]
    texts = [data[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends)]
    return Vocabulary(len(texts), pa.array(texts, pa.large_string())).values


def named_ids(values: Sequence[Any], what: str) -> Array:
    """Ids from ``model.json``, which must be distinct texts, numbers or booleans, all of one kind."""
    kinds = {"text" if isinstance(value, str) else type(value).__name__ for value in values}
    if not kinds <= {"text", "int", "float", "bool"} or (len(kinds) > 1 and kinds != {"int", "float"}):
        raise ModelFileError(f"{what} must be texts, numbers or booleans, all of one kind")
    if len(set(values)) < len(values):
        raise ModelFileError(f"{what} are not distinct")
    lossy = any(isinstance(value, str) and value.endswith("\0") for value in values)  # numpy drops a final NUL
    return np.array(values, dtype=object if lossy else None)


def fingerprint(inputs: Inputs, annotations: Annotations) -> dict[str, Any]:
    """What identifies the data of a run: sizes and checksums; ``content`` is that of all inputs, annotations and ids.

    The others are what earlier versions noted: ``inputs`` is the checksum of a sample.
    """
    sample = np.unique(np.linspace(0, len(inputs) - 1, num=min(len(inputs), 256)).astype(np.int64))
    device = inputs.data.device if hasattr(inputs, "data") else torch.device("cpu")
    raw = inputs.take(torch.from_numpy(sample).to(device)).cpu().contiguous().numpy()
    triples = np.ascontiguousarray(np.stack([annotations.instance, annotations.annotator, annotations.label]))
    content = hashlib.sha256(triples.tobytes())
    content.update(b"" if annotations.weight is None else annotations.weight.tobytes())
    for vocabulary in (annotations.instance_vocabulary, annotations.annotator_vocabulary, annotations.class_vocabulary):
        content.update(b"" if vocabulary.ids is None else json.dumps(vocabulary.ids.to_pylist(), default=str).encode())
    content.update(f"{raw.dtype} {raw.shape[1:]}".encode())
    for rows in inputs.stream(torch.arange(len(inputs), device=device).split(_AT_ONCE)):
        content.update(rows.cpu().contiguous().numpy().tobytes())
    return {
        "instances": annotations.n_instances,
        "annotators": annotations.n_annotators,
        "classes": annotations.n_classes,
        "annotations": _sha256(triples.tobytes())[:16],
        "inputs": _sha256(raw.tobytes())[:16],
        "content": content.hexdigest()[:32],
    }


def _digest(content: Mapping[str, Any]) -> str:
    return _sha256(json.dumps(content, sort_keys=True).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
