"""Run directories: a checkpoint after every epoch, the weights after every stage, and metrics as JSON lines.

Files are safetensors (data only) whose header carries JSON and checksums; each is there whole or not at all.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from crowdwise.engine import distributed
from crowdwise.errors import ConfigError, ModelFileError
from crowdwise.storage.documents import json_value, read_as, read_json, write_json, write_json_lines
from crowdwise.storage.files import replacing, storing, tidy
from crowdwise.storage.lock import locked

RUN_VERSION = 2
CONTENT = "content"  # checksum of all data of a run, which runs of earlier versions have not
_LARGE = 1 << 20  # bytes from which checksums are worth several threads


class Stored(NamedTuple):
    """What a file of :func:`write_tensors` holds; ``digest`` is the checksum of the tensors alone."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]
    digest: str


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any], keep: Path | None = None) -> str:
    """Write tensors and JSON atomically to one safetensors file, with checksums; returns that of the tensors.

    The file that was there is renamed to ``keep`` if that is given.
    """
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    text, digest = json.dumps(about), _digest(plain)
    header = f"{_checksum(text, digest)} {digest} {text}"  # one entry: several would come in any order
    with replacing(path, keep=keep) as temporary:
        try:
            save_file(plain, temporary, metadata={"about": header})
        except SafetensorError as error:  # which has the system's error as a text
            number = re.search(r"os error (\d+)", str(error))
            code = int(number[1]) if number else errno.EIO
            raise OSError(code, os.strerror(code) if number else str(error)) from error
    return digest


def read_tensors(path: Path, *, verify: bool = True) -> Stored:
    """Read what :func:`write_tensors` wrote; ``verify=False``: the tensors alone, whose file was compared before."""
    try:
        with safe_open(path, framework="pt") as file:
            checksum, digest, text = _header(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    if not verify:
        return Stored(tensors, {}, digest)
    if checksum != _checksum(text, digest) or digest != _digest(tensors):
        raise ModelFileError(f"{path} is damaged: its checksum does not match")
    return Stored(tensors, json.loads(text), digest)


def stage_of(path: Path) -> int | None:
    """Number of the stage that a run's file is of, by its header alone; None where that cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            index = json_value(_header(file)[2])["index"]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None
    return index if isinstance(index, int) else None


def _header(file: Any) -> tuple[str, str, str]:
    """Checksum of everything, checksum of the tensors, and JSON; empty where they are not."""
    parts = (file.metadata() or {}).get("about", "").split(" ", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else ("", "", "")


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and values."""

    def one(name: str) -> bytes:
        tensor = tensors[name]
        content = hashlib.sha256(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            content.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        return content.digest()

    if sum(tensor.nbytes for tensor in tensors.values()) < _LARGE:
        return hashlib.sha256(b"".join(map(one, sorted(tensors)))).hexdigest()
    with ThreadPoolExecutor() as pool:
        return hashlib.sha256(b"".join(pool.map(one, sorted(tensors)))).hexdigest()


def _checksum(text: str, digest: str) -> str:
    return hashlib.sha256(f"{digest} {text}".encode()).hexdigest()


@dataclass(frozen=True)
class RunDescription:
    """``run.json``: what a run was started with."""

    version: Literal[2]
    method: str
    parameters: Mapping[str, Any]
    data: Mapping[str, Any]
    source: Mapping[str, Any] | None = None
    """Where the data come from."""


def explicit_parameters(parameters: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Parameters of a run as they are written today: version 0.1 had one recipe, and left features as they are.

    >>> explicit_parameters({"prepare": "auto", "epochs": 5}, (28, 28))
    {'prepare': 'standardise', 'epochs': 5, 'recipe': 'paper'}
    """
    if "recipe" in parameters:
        return dict(parameters)
    usual = "standardise" if len(shape) > 1 else "none"
    prepare = parameters.get("prepare", "auto")
    found = {**parameters, "prepare": usual if prepare == "auto" else prepare, "recipe": "paper"}
    own = (parameters.get("variant", "reference"), parameters.get("protocol", "paper"))
    if len(shape) > 1 and "classifier_start" in found and own == ("reference", "paper") and found.get("lr") is None:
        found["lr"] = 0.05  # then the rate of BLTM and TAIDTM on pictures
    return found


class RunDirectory:
    """The state of a training run on disk, from which it can be resumed after any interruption."""

    def __init__(self, path: str | Path, source: Mapping[str, Any] | None = None) -> None:
        """``source`` says where the data come from; it is noted for whoever goes on, and not compared."""
        self.path, self.source = Path(path), source

    def start(self, description: Mapping[str, Any]) -> None:
        """Begin a new run here."""
        if (self.path / "run.json").exists():
            raise ConfigError(f"{self.path} already holds a run; pass resume={str(self.path)!r} to resume it")
        self._refuse_links()
        left = [*sorted((self.path / "stages").glob("*.safetensors")), *filter(Path.exists, self.checkpoint_files)]
        if left:
            raise ConfigError(
                f"{self.path} holds parts of a run whose run.json is missing ({left[0].relative_to(self.path)}): "
                "remove them, or choose another folder"
            )
        with storing(self.path / "stages"):
            (self.path / "stages").mkdir(parents=True, exist_ok=True)
        source = {} if self.source is None else {"source": self.source}
        write_json(self.path / "run.json", {"version": RUN_VERSION, **description, **source})

    def resume(self, description: Mapping[str, Any], defaults: Mapping[str, Any], shape: tuple[int, ...] = ()) -> None:
        """Resume the run here, which must have been started with the same parameters and data.

        Parameters that did not exist when it was started count as the ``defaults``. ``shape`` is that of an instance.
        """
        path = self.path / "run.json"
        try:
            started = read_as(RunDescription, read_json(path), str(path), ModelFileError)
        except ModelFileError as error:
            raise ModelFileError(f"{error}; this run cannot be resumed: start a new one in another folder") from error
        found = vars(started) | {"parameters": {**_as_json(defaults), **explicit_parameters(started.parameters, shape)}}
        wanted_all = _as_json(description)
        if CONTENT not in started.data:  # an earlier version noted less
            wanted_all["data"] = {key: value for key, value in wanted_all["data"].items() if key != CONTENT}
        for key, wanted in sorted(wanted_all.items()):
            if found.get(key) != wanted:
                raise ConfigError(f"{self.path} was started with another {key}: {_difference(found.get(key), wanted)}")
        self._refuse_links()
        with storing(self.path / "stages"):
            (self.path / "stages").mkdir(exist_ok=True)
            tidy(self.path)
            tidy(self.path / "stages")

    def _refuse_links(self) -> None:
        """Whoever can put a link into the folder must not decide where stages are written."""
        if (self.path / "stages").is_symlink():
            raise ConfigError(f"{self.path / 'stages'} is a symbolic link: remove it, or choose another folder")

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes out, except those of the same run."""
        return locked(self.path) if distributed.leads() else nullcontext()

    def stage_file(self, index: int) -> Path:
        return self.path / "stages" / f"{index:02d}.safetensors"

    @property
    def checkpoint_files(self) -> tuple[Path, Path]:
        """The last checkpoint and the one before it."""
        return self.path / "checkpoint.safetensors", self.path / "checkpoint.previous.safetensors"

    @property
    def damaged_file(self) -> Path:
        """A checkpoint that turned out to be damaged."""
        return self.path / "checkpoint.damaged.safetensors"

    def write_checkpoint(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Write the checkpoint after an epoch, and keep the one before it: at every instant there is a good one."""
        last, previous = self.checkpoint_files
        write_tensors(last, tensors, about, keep=previous)

    def finish(self) -> None:
        """Remove what only an unfinished run needs."""
        tidy(self.path)
        for path in (*self.checkpoint_files, self.damaged_file):
            path.unlink(missing_ok=True)

    def log(self, record: Mapping[str, Any]) -> None:
        path = self.path / "metrics.jsonl"
        with storing(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def rewrite_log(self, records: list[dict[str, Any]]) -> None:
        """Drop the records of epochs that will be run again."""
        write_json_lines(self.path / "metrics.jsonl", records)


class SharedStages:
    """Results of the first stages that several methods share, on the same data with the same seed."""

    def __init__(self, path: str | Path, origin: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.chain: str | None = json.dumps(origin, sort_keys=True, default=str)

    def file(self, stage: str, index: int, decides: Mapping[str, Any] | None) -> Path | None:
        """The file of the next stage's result; None from the first stage on that is not shared."""
        if self.chain is None or decides is None:
            self.chain = None
            return None
        content = json.dumps([self.chain, stage, index, decides], sort_keys=True, default=str)
        self.chain = hashlib.sha256(content.encode()).hexdigest()
        return self.path / f"{self.chain[:32]}.safetensors"


def _as_json(content: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(content, default=str)))


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = [key for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
        return ", ".join(f"{key}={found.get(key)!r} there, {wanted.get(key)!r} now" for key in keys)
    return f"{found!r} there, {wanted!r} now"


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(prefix + "/")}


def clone_state(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
