"""Model files: a directory with ``model.json`` and ``weights.safetensors``. Data only; damage and tampering are noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import crowdwise
from crowdwise.annotations import Annotations
from crowdwise.engine.checkpoint import read_tensors, write_tensors
from crowdwise.engine.tensors import Inputs
from crowdwise.errors import ModelFileError
from crowdwise.storage.documents import read_as, read_json, write_json
from crowdwise.storage.files import replacing_folder

MODEL_VERSION = 1
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
    warnings: Sequence[str] = ()


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
        weights = (path / WEIGHTS).read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path / WEIGHTS} cannot be read: {error.strerror}") from error
    if _sha256(weights) != header.weights_sha256:
        raise ModelFileError(f"{path / WEIGHTS} was changed after it was written: its checksum does not match")
    return read_tensors(path / WEIGHTS, verify=False).tensors, vars(header)


def fingerprint(inputs: Inputs, annotations: Annotations) -> dict[str, Any]:
    """What identifies the data of a run: sizes, and checksums of the annotations and of a sample of the inputs."""
    sample = np.unique(np.linspace(0, len(inputs) - 1, num=min(len(inputs), 256)).astype(np.int64))
    device = inputs.data.device if hasattr(inputs, "data") else torch.device("cpu")
    raw = inputs.take(torch.from_numpy(sample).to(device)).cpu().contiguous().numpy()
    triples = np.stack([annotations.instance, annotations.annotator, annotations.label])
    if annotations.weight is not None:
        triples = np.concatenate([triples, annotations.weight.view(np.int32)[None]])
    return {
        "instances": annotations.n_instances,
        "annotators": annotations.n_annotators,
        "classes": annotations.n_classes,
        "annotations": _sha256(np.ascontiguousarray(triples).tobytes())[:16],
        "inputs": _sha256(raw.tobytes())[:16],
    }


def _digest(content: Mapping[str, Any]) -> str:
    return _sha256(json.dumps(content, sort_keys=True).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
