"""Networks that were trained elsewhere: models of transformers and sentence-transformers, by name or from a folder.

No code of a model's repository is run, and only weights in safetensors are read. A model file holds name, revision and what
the encoder made of a probe, not the weights: `check` notices when another network answers to the name.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from crowdwise.constraints import PositiveInt
from crowdwise.data.types import Array
from crowdwise.encoders import cache
from crowdwise.encoders.base import ENCODERS, Encoder, need
from crowdwise.encoders.rows import as_texts, kind_of
from crowdwise.errors import ConfigError, DataError, ModelFileError

PROBE = ["A short text.", "Another one, with a number: 42!"]
TOLERANCE = 0.02  # of the largest value of the probe: machines and versions round differently
_WEIGHTS = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]


def imported(module: str, extra: str) -> Any:
    """An optional dependency, or one line that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"this encoder needs {module}: pip install 'crowdwise[{extra}]' ({error})", parameter="encoder"
        ) from error


def first_line(error: Exception) -> str:
    """What a library says is wrong, without the pages that may follow."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def fetched(model: str, revision: str | None) -> tuple[Path, str | None]:
    """The folder of a model, and its revision where it came from a hub. Only data files are fetched."""
    path = Path(model).expanduser()
    if path.is_dir():
        folder, found = path, None
    else:
        hub = imported("huggingface_hub", "transformers")
        try:
            folder = Path(hub.snapshot_download(model, revision=revision, allow_patterns=_WEIGHTS))
        except Exception as error:  # no network, no such model: the hub has a dozen classes for it
            raise DataError(
                f"there is no folder {model}, and no model of that name can be fetched: {first_line(error)}"
            ) from error
        found = folder.name
    if not any(folder.rglob("*.safetensors")):
        raise DataError(f"{model}: there are no weights in safetensors, and no others are read", parameter="encoder")
    return folder, found


@dataclass(kw_only=True)
class Pretrained(Encoder):
    """What pretrained encoders share: probe, cache, and loading on first use."""

    model: str = ""
    """Name of a model, or a folder."""
    revision: str | None = None
    """Commit, tag or branch of a model that is fetched; the commit is recorded."""
    batch_size: PositiveInt = 32
    """Items that go through the network together."""

    network_: Any = field(default=None, init=False, repr=False, compare=False)

    def load(self) -> Any:
        """The network and what prepares its inputs."""
        raise NotImplementedError

    def encode(self, items: Sequence[Any]) -> Array:
        """Features (n, d) of texts, or of paths or PIL images."""
        raise NotImplementedError

    def blank(self) -> Any:
        other = super().blank()
        other.network_ = None
        return other

    def learn(self, rows: Any, seed: int) -> None:
        if not self.model:
            raise ConfigError(f"encoder {self.name!r} needs a model: {self.name}:NAME", parameter="encoder")
        kind = kind_of(rows)
        if kind not in ("text", "pictures"):
            raise DataError(f"encoder {self.name!r} takes texts or pictures, X is {kind}", parameter="encoder")
        self.facts_["kind"] = kind
        self._ready()
        probe = self.encode(_probe(kind))
        self.arrays_["probe"] = np.ascontiguousarray(probe, dtype=np.float32)

    def transform(self, rows: Any) -> Any:
        kind = kind_of(rows) if len(rows) else self.facts_["kind"]
        if kind != self.facts_["kind"]:
            raise DataError(f"encoder {self.name!r} learnt on {self.facts_['kind']}, X is {kind}")
        items = as_texts(rows) if kind == "text" else list(rows)
        self._ready()
        probe = self.arrays_["probe"]
        key = json.dumps([self.parameters() | {"batch_size": 0}, self.facts_, probe.round(3).tolist()], sort_keys=True)
        return cache.features(items, key, self._batches, f"encoding by {Path(self.model).name}")

    def _batches(self, items: Sequence[Any]) -> Array:
        parts = [self.encode(items[at : at + self.batch_size]) for at in range(0, len(items), self.batch_size)]
        return np.concatenate(parts) if parts else np.empty((0, self.arrays_["probe"].shape[1]), np.float32)

    def _ready(self) -> None:
        """Load the network, once; after `restore_encoder`, see that it is the one that was trained with."""
        if self.network_ is not None:
            return
        self.network_ = self.load()
        if "probe" not in self.arrays_:
            return
        before, now = self.arrays_["probe"], self.encode(_probe(self.facts_["kind"]))
        if now.shape != before.shape or np.abs(now - before).max() > TOLERANCE * max(np.abs(before).max(), 1e-6):
            self.network_ = None
            raise ModelFileError(
                f"the network {self.model!r} is not the one that this model was trained with: it encodes a probe otherwise"
            )

    @property
    def about(self) -> str:
        probe = self.arrays_.get("probe")
        return self.name if probe is None else f"{self.name} {self.model}: {probe.shape[1]:,} columns"

    def check_state(self) -> None:
        need(self, ("probe", (len(PROBE), None), "f"))
        if self.facts_.get("kind") not in ("text", "pictures", "numbers"):
            raise ModelFileError(f"its encoder {self.name!r} has an unknown kind of input")


@ENCODERS.register("transformers")
@dataclass(kw_only=True)
class Transformers(Pretrained):
    """A model of transformers, for texts or pictures: ``encoder="transformers:NAME"``, a name on the hub or a folder."""

    name: ClassVar[str] = "transformers"

    pooling: Literal["mean", "first"] = "mean"
    """Features of a text: the mean of all its words, or those of the first token."""
    max_length: PositiveInt = 256
    """Tokens of a text that count."""

    def load(self) -> Any:
        library = imported("transformers", "transformers")
        folder, self.facts_["revision"] = fetched(self.model, self.revision)
        safe = {"trust_remote_code": False, "local_files_only": True}
        try:
            network = library.AutoModel.from_pretrained(folder, use_safetensors=True, **safe).eval()
            if self.facts_["kind"] == "text":
                return network, library.AutoTokenizer.from_pretrained(folder, **safe)
            return network, library.AutoImageProcessor.from_pretrained(folder, **safe)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise DataError(f"{self.model} cannot be loaded: {first_line(error)}") from error

    def encode(self, items: Sequence[Any]) -> Array:
        import torch

        network, prepare = self.network_
        with torch.inference_mode():
            if self.facts_["kind"] == "text":
                inputs = prepare(
                    list(items), padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
                )
                states = network(**inputs).last_hidden_state
                mask = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
                found = states[:, 0] if self.pooling == "first" else (states * mask).sum(1) / mask.sum(1).clamp_min(1)
            else:
                output = network(**prepare(images=_images(items), return_tensors="pt"))
                found, states = getattr(output, "pooler_output", None), output.last_hidden_state
                if found is None:
                    found = states.mean(1) if states.ndim == 3 else states.flatten(2).mean(2)
                found = found.flatten(1)
        return np.asarray(found.float())


@ENCODERS.register("sentence-transformers")
@dataclass(kw_only=True)
class SentenceTransformers(Pretrained):
    """A model of sentence-transformers, for texts: ``encoder="sentence-transformers:NAME"``, a name on the hub or a folder."""

    name: ClassVar[str] = "sentence-transformers"
    takes: ClassVar[str] = "text"

    def load(self) -> Any:
        library = imported("sentence_transformers", "transformers")
        folder, self.facts_["revision"] = fetched(self.model, self.revision)
        modules = folder / "modules.json"
        if modules.exists():
            own = [str(each.get("type", "")) for each in json.loads(modules.read_text("utf-8"))]
            foreign = [kind for kind in own if not kind.startswith("sentence_transformers.")]
            if foreign:
                raise DataError(
                    f"{self.model} asks for code that is not of sentence-transformers ({foreign[0]}): it is not run"
                )
        try:
            return library.SentenceTransformer(
                str(folder),
                trust_remote_code=False,
                local_files_only=True,
                device="cpu",
                model_kwargs={"use_safetensors": True},
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise DataError(f"{self.model} cannot be loaded: {first_line(error)}") from error

    def encode(self, items: Sequence[Any]) -> Array:
        return np.asarray(self.network_.encode(list(items), batch_size=self.batch_size, show_progress_bar=False))


def _images(items: Sequence[Any]) -> list[Any]:
    from PIL import Image

    from crowdwise.encoders.decoding import decode

    return [Image.fromarray(decode(item, grey=False)) for item in items]


def _probe(kind: str) -> list[Any]:
    """Two inputs that never change."""
    if kind == "text":
        return list(PROBE)
    from PIL import Image

    ramp = np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)
    return [Image.fromarray(ramp), Image.fromarray(255 - ramp.transpose(1, 0, 2).copy())]
