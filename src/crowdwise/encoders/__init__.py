"""Encoders: from texts, pictures and tables to numbers. Every method takes them as ``encoder=``, and chooses by itself.

An encoder learns on the training rows only, and is saved with the model as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crowdwise.data.frames import is_frame
from crowdwise.data.matching import count_rows
from crowdwise.encoders.base import ENCODERS, Encoder, make_encoder, restore_encoder
from crowdwise.encoders.own import PREFIX, OwnEncoder
from crowdwise.encoders.pixels import PixelEncoder
from crowdwise.encoders.rows import Pictures, kind_of, opened, opened_folder, take_rows
from crowdwise.encoders.table import TableEncoder
from crowdwise.encoders.tfidf import Tfidf
from crowdwise.errors import ConfigError, DataError, suggest

__all__ = [
    "ENCODERS",
    "Encoder",
    "OwnEncoder",
    "Pictures",
    "PixelEncoder",
    "TableEncoder",
    "Tfidf",
    "as_encoder",
    "checked",
    "choose",
    "count_rows",
    "describe",
    "kind_of",
    "make_encoder",
    "opened",
    "opened_folder",
    "restore",
    "take_rows",
]
_NAMES = {"text": "texts", "pictures": "pictures", "table": "a table", "numbers": "numbers"}
_USUAL = {"text": "tfidf", "pictures": "pixels", "table": "table"}


def choose(encoder: Any, X: Any) -> Encoder | None:
    """The encoder for X: that which is given, or by ``"auto"`` the usual one for what X is; None where X is numbers."""
    kind = kind_of(X)
    if encoder == "auto":
        return None if kind == "numbers" else as_encoder(_USUAL[kind])
    found = as_encoder(encoder)
    return None if found is None else checked(found, X)


def checked(encoder: Encoder, X: Any) -> Encoder:
    """The encoder, if X is what it takes."""
    kind = kind_of(X)
    frame = kind in ("table", "numbers") and not hasattr(X, "ndim") and is_frame(X)
    if encoder.takes and encoder.takes != kind and not (encoder.takes == "table" and frame):
        raise DataError(
            f"encoder {encoder.name!r} takes {_NAMES[encoder.takes]}, but X is {_NAMES[kind]}", parameter="encoder"
        )
    return encoder


def as_encoder(encoder: Any) -> Encoder | None:
    """An encoder from what a user passes: a name, an `Encoder`, settings with a name, or a transformer of scikit-learn's."""
    if encoder is None or encoder == "none":
        return None
    if isinstance(encoder, Encoder):
        return encoder
    if isinstance(encoder, Mapping):
        return make_encoder(encoder)
    if isinstance(encoder, str):
        name, colon, model = encoder.partition(":")
        if name in ENCODERS:
            return make_encoder({"name": name, "model": model} if colon else {"name": name})
        raise ConfigError(
            f"unknown encoder {encoder!r}{suggest(encoder, ['auto', 'none', *ENCODERS])}", parameter="encoder"
        )
    if hasattr(encoder, "fit") and hasattr(encoder, "transform"):
        return OwnEncoder(transformer=encoder)
    raise ConfigError(
        f"encoder must be a name, an encoder, or have fit and transform, got {type(encoder).__name__}",
        parameter="encoder",
    )


def describe(encoder: Any) -> Any:
    """The parameter ``encoder`` as JSON; a transformer of the user's becomes its class's name."""
    if encoder is None or isinstance(encoder, str):
        return encoder
    found = as_encoder(encoder)
    settings: dict[str, Any] = {} if found is None else found.parameters()
    return settings["name"] if isinstance(found, OwnEncoder) else settings


def restore(state: Mapping[str, Any], arrays: Mapping[str, Any], own: Any, path: str | Path) -> Encoder:
    """The encoder of a saved model; ``own`` is the transformer that the user passed again, if any."""
    name = str(dict(state.get("parameters", {})).get("name", ""))
    if not name.startswith(PREFIX):
        return restore_encoder(state, arrays)
    if own is None:
        raise ConfigError(
            f"{path} was trained with your own encoder ({name.removeprefix(PREFIX)}), which a model does not hold: "
            "pass the fitted one, load(..., encoder=transformer)",
            parameter="encoder",
        )
    return OwnEncoder.restored(own.transformer if isinstance(own, OwnEncoder) else own, dict(state["facts"]))
