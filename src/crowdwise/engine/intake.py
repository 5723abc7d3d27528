"""From what a user calls X to arrays: encoders, columns by name, sparse matrices, large offsets. Learnt on training rows."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from crowdwise import encoders
from crowdwise.data.frames import frame_columns, is_frame
from crowdwise.data.matching import count_rows
from crowdwise.errors import DataError, NonFiniteError, shorten

Array = np.ndarray[Any, Any]
WIDE = 1000  # columns up to which a sparse matrix is made dense
REDUCED = 300  # columns to which a wider one is reduced
_SAMPLE = 10_000
_ODD = 10.0  # columns of a sparse matrix this many times larger or smaller than usual are brought to the usual size


@dataclass(frozen=True, eq=False)
class Intake:
    """How X becomes an array of numbers, as it was learnt on the training rows."""

    columns: tuple[str, ...] | None = None  # names of a frame's columns
    offset: Array | None = None  # (d,) float64: taken off before values are rounded to float32
    weights: Array | None = None  # (d,) factors on the columns of a wide sparse matrix
    components: Array | None = None  # (d, 300) what its rows are projected on
    encoder: encoders.Encoder | None = None  # what texts, pictures and tables become numbers by, before all that

    @classmethod
    def learn(
        cls,
        X: Any,
        rows: Array,
        seed: int,
        encoder: Any = "auto",
        encoder_rows: Array | None = None,
        votes: Callable[[], Array] | None = None,
    ) -> tuple[Intake, Any]:
        """From the training ``rows`` of X, and what all of X becomes.

        The encoder may learn from other rows (``encoder_rows``), too, and from ``votes`` (n, C) on the training rows.
        """
        X = encoders.opened(X)
        chosen = encoders.choose(encoder, X)
        if chosen is None:
            intake = cls._of_numbers(X, rows, seed)
            return intake, intake(X)
        fitted = chosen.fitted(encoders.take_rows(X, rows if encoder_rows is None else encoder_rows), seed)
        heard = fitted.hear(encoders.take_rows(X, rows), votes()[rows], seed) if votes and fitted.hears else None
        encoded = fitted.transform(X)
        if heard is not None:
            places, values = heard
            encoded[rows[places], -values.shape[1] :] = values
        intake = cls._of_numbers(encoded, rows, seed)
        return dataclasses.replace(intake, encoder=fitted), intake(encoded)

    @classmethod
    def _of_numbers(cls, X: Any, rows: Array, seed: int) -> Intake:
        if is_sparse(X):
            if not np.isfinite(X.data).all():
                bad = np.unique(X.tocoo().coords[0][~np.isfinite(X.tocoo().data)])
                raise NonFiniteError("X", bad.tolist())
            return cls() if X.shape[1] <= WIDE else cls._reduction(sp.csr_array(X)[rows], seed)
        columns = tuple(map(str, frame_columns(X))) if _is_frame(X) else None
        values = numbers(X) if columns is not None else X
        return cls(columns, _large_offset(values, rows))

    @classmethod
    def _reduction(cls, A: sp.csr_array, seed: int) -> Intake:
        from sklearn.utils.extmath import randomized_svd

        counts = np.bincount(A.indices, minlength=A.shape[1])
        squares = np.bincount(A.indices, weights=A.data.astype(np.float64) ** 2, minlength=A.shape[1])
        size = np.sqrt(squares / np.maximum(counts, 1))
        usual = np.median(size[size > 0]) if (size > 0).any() else 1.0
        odd = (size > _ODD * usual) | ((size > 0) & (size < usual / _ODD))
        weights = np.where(odd, usual / np.where(size > 0, size, 1.0), 1.0)
        n = max(min(REDUCED, min(A.shape) - 1), 1)
        _, _, components = randomized_svd(A @ sp.diags_array(weights), n, n_iter=4, random_state=seed % 2**32)
        return cls(weights=weights, components=np.ascontiguousarray(components.T.astype(np.float32)))

    def __call__(self, X: Any) -> Any:
        """X as an array, or as it is where it is a data set."""
        X = encoders.opened(X)
        kind = encoders.kind_of(X)
        if self.encoder is not None:
            X = encoders.checked(self.encoder, X).transform(X)
        elif kind in ("text", "pictures"):
            raise DataError(f"X holds {'texts' if kind == 'text' else kind}, but this model was trained on numbers")
        if _is_frame(X):
            X = numbers(X, self.columns)
        if self.components is not None and self.weights is not None:
            if X.shape[1] != len(self.components):
                raise DataError(f"this model was trained on {len(self.components):,} columns, X has {X.shape[1]:,}")
            weighted = sp.csr_array(X) @ sp.diags_array(self.weights)
            return np.asarray(weighted @ self.components, dtype=np.float32)
        if is_sparse(X):
            return X.toarray()
        if self.offset is not None and hasattr(X, "shape") and X.shape[1:] == self.offset.shape:
            values = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
            return values.astype(np.float64) - self.offset
        return X

    @property
    def about(self) -> str:
        """What is done to X, in a few words; empty where nothing is."""
        if self.encoder is not None:
            return f"X is encoded by {self.encoder.about}"
        if self.components is not None:
            return f"X is sparse: its {len(self.components):,} columns are reduced to {self.components.shape[1]} (truncated SVD)"
        return ""

    def prepare(self, mode: str) -> str:
        """How inputs are scaled: as ``mode`` says, or where that is "auto" as the encoder wants it."""
        return self.encoder.prepare if mode == "auto" and self.encoder is not None else mode

    def arrays(self) -> dict[str, Array]:
        """What a saved model holds of it, beside the columns' names."""
        found = {"offset": self.offset, "weights": self.weights, "components": self.components}
        return {name: value for name, value in found.items() if value is not None}


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix or array of scipy."""
    return bool(sp.issparse(X))


def numbers(frame: Any, columns: tuple[str, ...] | None = None) -> Array:
    """A frame's columns of numbers, in its own order or in that of ``columns``, which must be its columns: (n, d)."""
    names = frame_columns(frame)
    by_name = {str(name): name for name in names}
    if columns is not None:
        missing = [name for name in columns if name not in by_name]
        unknown = [name for name in by_name if name not in columns]
        if missing or unknown:
            said = [f"lacks the columns {shorten(missing, 8)}"] if missing else []
            said += [f"has the columns {shorten(unknown, 8)}, which the training data had not"] if unknown else []
            raise DataError("X " + " and ".join(said))
    order = [by_name[name] for name in (columns or by_name)]
    parts = []
    for name in order:
        values = np.asarray(frame[name])
        if values.dtype == object:  # nullable numbers, or no numbers at all
            with contextlib.suppress(TypeError, ValueError):
                values = values.astype(np.float64)
        if not (np.issubdtype(values.dtype, np.number) or values.dtype == bool):
            raise DataError(f"X must hold numbers, but its column {name!r} is of type {values.dtype}")
        parts.append(values.astype(np.float64))
    return np.stack(parts, axis=1) if parts else np.zeros((count_rows(frame), 0))


def _is_frame(X: Any) -> bool:
    return not isinstance(X, np.ndarray | Tensor | list | tuple) and not is_sparse(X) and is_frame(X)


def _large_offset(X: Any, rows: Array) -> Array | None:
    """Medians of columns (timestamps, for instance) that float32 could not tell from their neighbours; None without any."""
    wide = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.itemsize >= 4 and X.dtype.kind in "fiu"
    if not wide or X.dtype in (np.float32, np.uint8) or not len(rows):
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample = X[rows[:: max(1, len(rows) // _SAMPLE)]].astype(np.float64)
        median = np.median(sample, axis=0)
        large = np.abs(median) > 100 * sample.std(axis=0)
    return np.where(large & np.isfinite(median), median, 0.0) if large.any() else None
