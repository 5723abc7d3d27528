"""What an encoder is: it learns on training rows how to turn what people have (texts, pictures, tables) into numbers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from crowdwise.constraints import check_parameters, check_settings, refuse_unknown
from crowdwise.data.types import Array
from crowdwise.errors import ConfigError, ModelFileError
from crowdwise.registry import Registry

ENCODERS: Registry[type[Encoder]] = Registry("encoder", "crowdwise.encoders")


@dataclass(kw_only=True)
class Encoder:
    """Base class. Parameters are fields; what is learnt is data: JSON values in ``facts_``, arrays in ``arrays_``.

    Subclasses write `learn` and `transform`. An encoder is fitted once, by `fitted`, which leaves the original as it is.
    """

    name: ClassVar[str] = ""
    takes: ClassVar[str] = ""
    """What it encodes: "text", "pictures", "table", or "" for anything."""
    pictures: ClassVar[bool] = False
    """Whether it gives pictures (n, h, w, channels); else features (n, d)."""
    prepare: ClassVar[str] = "auto"
    """How methods scale what it gives, where they are not told."""
    hears: ClassVar[bool] = False
    """Whether it learns from votes, too: see `hear`."""

    facts_: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    arrays_: dict[str, Array] = field(default_factory=dict, init=False, repr=False, compare=False)

    def learn(self, rows: Any, seed: int) -> None:
        """Learn from training rows."""

    def transform(self, rows: Any) -> Any:
        """Rows as an array (n, ...) or a sparse matrix."""
        raise NotImplementedError(f"{type(self).__name__} must define transform()")

    def departure(self, rows: Any) -> str:
        """How rows differ from those it learnt on; empty if they do not."""
        return ""

    def hear(self, rows: Any, votes: Array, seed: int) -> tuple[Array, Array] | None:
        """Learn from votes (n, C) on training rows, too, after `learn`: `transform` then gives more columns.

        The result says what these last columns are for training rows, so that no row tells of its own votes: the rows' places
        (m,) and their values (m, k). None: nothing was learnt.
        """
        return None

    @property
    def about(self) -> str:
        """What it does, in a few words."""
        return self.name

    def fitted(self, rows: Any, seed: int = 0) -> Self:
        """A copy that has learnt from ``rows``, which should be training data only."""
        check_parameters(self)
        learnt = self.blank()
        learnt.learn(rows, seed)
        return learnt

    def blank(self) -> Self:
        """A copy that has learnt nothing."""
        other = copy.copy(self)
        other.facts_, other.arrays_ = {}, {}
        return other

    # as data

    def parameters(self) -> dict[str, Any]:
        """Name and parameters, as JSON."""
        own = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.init}
        return {"name": self.name} | {k: list(v) if isinstance(v, tuple) else v for k, v in own.items()}

    def state(self) -> dict[str, Any]:
        """What a model file holds of it beside its arrays."""
        return {"parameters": self.parameters(), "facts": self.facts_}

    def check_state(self) -> None:
        """Refuse facts and arrays of a file that do not fit together; a ValueError, KeyError or ModelFileError says why."""


def make_encoder(settings: Mapping[str, Any]) -> Encoder:
    """An encoder from its name and parameters, ``{"name": "tfidf", "words": 1}`` for instance."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    name = given.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"an encoder needs a name: {', '.join(map(repr, ENCODERS))}", parameter="encoder")
    kind = ENCODERS[name]
    refuse_unknown(f"encoder {name!r}", given, [each.name for each in dataclasses.fields(kind) if each.init])
    check_settings(f"encoder {name!r}", given, kind)
    encoder: Encoder = kind(**given)
    return encoder


def restore_encoder(state: Mapping[str, Any], arrays: Mapping[str, Array]) -> Encoder:
    """An encoder from a model file: nothing in it is executed, and what does not fit together is refused."""
    try:
        encoder = make_encoder(state["parameters"])
        encoder.facts_, encoder.arrays_ = dict(state["facts"]), dict(arrays)
        encoder.check_state()
    except ModelFileError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ModelFileError(f"its encoder is damaged: {type(error).__name__}: {error}") from error
    return encoder


def need(encoder: Encoder, *shapes: tuple[str, tuple[int | None, ...], str]) -> None:
    """Check arrays of a file: name, shape (None: any size) and the kinds of number they may hold, ``"f"`` for instance."""
    for name, shape, kinds in shapes:
        array = encoder.arrays_.get(name)
        if (
            array is None
            or array.ndim != len(shape)
            or not all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
        ):
            raise ModelFileError(f"the array {name!r} of encoder {encoder.name!r} is missing or has another shape")
        if array.dtype.kind not in kinds or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            raise ModelFileError(f"the array {name!r} of encoder {encoder.name!r} holds no usable numbers")
