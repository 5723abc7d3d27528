"""Run directories: a checkpoint after every epoch, the weights after every stage, and metrics as JSON lines.

Files are safetensors (data only) whose header carries JSON; each is written to a temporary name and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from crowdwise.errors import ConfigError, ModelFileError

RUN_VERSION = 1


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=1, allow_nan=False, default=str) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """Read JSON, with an error that names the file and the place."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist") from None
    except (ValueError, RecursionError) as error:  # no JSON, or nested too deeply
        raise ModelFileError(f"{path} is damaged: {error}") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write tensors and JSON atomically to one safetensors file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    save_file(plain, temporary, metadata={"about": json.dumps(about)})
    os.replace(temporary, path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("about", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error


class RunDirectory:
    """Where a training run leaves its state, so that it can be interrupted at any time and go on."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def start(self, description: Mapping[str, Any]) -> None:
        """Begin a new run here."""
        if (self.path / "run.json").exists():
            raise ConfigError(f"{self.path} already holds a run; pass resume={str(self.path)!r} to go on with it")
        (self.path / "stages").mkdir(parents=True, exist_ok=True)
        write_json(self.path / "run.json", {"version": RUN_VERSION, **description})

    def resume(self, description: Mapping[str, Any]) -> None:
        """Go on with the run here, which must have been started with the same parameters and data."""
        found = read_json(self.path / "run.json")
        if found.get("version") != RUN_VERSION:
            raise ModelFileError(f"{self.path}/run.json has version {found.get('version')}, this is {RUN_VERSION}")
        wanted = json.loads(json.dumps(description, default=str))
        for key in sorted(set(found) | set(wanted) - {"version"}):
            if key != "version" and found.get(key) != wanted.get(key):
                raise ConfigError(
                    f"{self.path} was started with another {key}: {_difference(found.get(key), wanted.get(key))}"
                )
        (self.path / "stages").mkdir(exist_ok=True)

    def stage_file(self, index: int) -> Path:
        return self.path / "stages" / f"{index:02d}.safetensors"

    @property
    def checkpoint_file(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def log(self, record: Mapping[str, Any]) -> None:
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def rewrite_log(self, records: list[dict[str, Any]]) -> None:
        """Drop the records of epochs that will be run again."""
        temporary = self.path / f".metrics.{os.getpid()}.tmp"
        temporary.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        os.replace(temporary, self.path / "metrics.jsonl")


class SharedStages:
    """Results of first stages that several methods have in common, on the same data with the same seed."""

    def __init__(self, path: str | Path, origin: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.chain: str | None = json.dumps(origin, sort_keys=True, default=str)

    def file(self, stage: str, index: int, decides: Mapping[str, Any] | None) -> Path | None:
        """Where the result of the next stage lies; None from the first stage on that is not shared."""
        if self.chain is None or decides is None:
            self.chain = None
            return None
        content = json.dumps([self.chain, stage, index, decides], sort_keys=True, default=str)
        self.chain = hashlib.sha256(content.encode()).hexdigest()
        return self.path / f"{self.chain[:32]}.safetensors"


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
