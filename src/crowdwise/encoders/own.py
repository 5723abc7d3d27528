"""A transformer or pipeline of the user's, in the manner of scikit-learn."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from crowdwise.encoders.base import Encoder
from crowdwise.encoders.rows import Pictures, is_sparse, kind_of, take_rows
from crowdwise.errors import DataError, ModelFileError

PREFIX = "transformer:"
PROBE = ["A short text.", "Another one, with a number: 42!", ""]


@dataclass(kw_only=True)
class OwnEncoder(Encoder):
    """Wraps a transformer: it is cloned and fitted on the training rows. Models do not hold it: pass it again to `load`."""

    name: ClassVar[str] = "own"

    transformer: Any = None

    def learn(self, rows: Any, seed: int) -> None:
        from sklearn.base import clone

        self.transformer = clone(self.transformer).fit(_plain(rows))
        kind = kind_of(rows)
        self.facts_ = {"kind": kind, "width": int(self.transform(take_rows(rows, np.arange(1))).shape[1])}
        if kind == "text":
            self.facts_["probe"] = self._probe()

    def transform(self, rows: Any) -> Any:
        encoded = self.transformer.transform(_plain(rows))
        if is_sparse(encoded):
            return sp.csr_array(encoded)
        if hasattr(encoded, "to_numpy"):
            encoded = encoded.to_numpy()
        values = np.asarray(encoded)
        if values.ndim < 2:
            raise DataError(f"the transformer {self._kind} must give rows of numbers (n, d), got shape {values.shape}")
        return values

    def parameters(self) -> dict[str, Any]:
        return {"name": f"{PREFIX}{self._kind}"}

    @property
    def about(self) -> str:
        return f"{self._kind}: {self.facts_.get('width', 0):,} columns"

    @property
    def _kind(self) -> str:
        return type(self.transformer).__name__

    def _probe(self) -> str:
        """A checksum of what it makes of a few texts, and of its columns' names, by which another transformer is noticed."""
        encoded = self.transform(PROBE)
        values = encoded.toarray() if is_sparse(encoded) else encoded
        digest = hashlib.sha256(np.round(values.astype(np.float64), 4).astype(np.float32).tobytes())
        with contextlib.suppress(AttributeError, ValueError, NotImplementedError):
            digest.update("\n".join(map(str, self.transformer.get_feature_names_out())).encode("utf-8", "replace"))
        return digest.hexdigest()[:16]

    @classmethod
    def restored(cls, transformer: Any, facts: dict[str, Any]) -> OwnEncoder:
        """With the fitted transformer that the user passed to `load`."""
        encoder = cls(transformer=transformer)
        encoder.facts_ = facts
        if facts.get("kind") == "text":
            try:
                found = encoder._probe()
            except Exception as error:  # not fitted, for instance
                raise ModelFileError(
                    f"the encoder {encoder._kind} that was passed cannot encode texts ({error}): "
                    "pass the fitted transformer the model was trained with, model.intake_.encoder.transformer"
                ) from error
            if found != facts.get("probe"):
                raise ModelFileError(
                    f"the encoder {encoder._kind} that was passed is not the one that the model was trained with: "
                    "it encodes texts otherwise"
                )
        return encoder


def _plain(rows: Any) -> Any:
    """Paths of pictures as a list; everything else as it is."""
    return list(rows.files) if isinstance(rows, Pictures) else rows
