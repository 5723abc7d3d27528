"""What a method is given: inputs and annotations, split into training and validation. True labels have no place here."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crowdwise.annotations import Annotations
from crowdwise.data.matching import count_rows
from crowdwise.data.types import Array, Ints
from crowdwise.engine.device import derive_seed
from crowdwise.engine.intake import Intake
from crowdwise.engine.prepare import Prepare
from crowdwise.engine.tensors import Inputs, ResidentInputs, StreamedInputs, Units, to_channels_first
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError, NonFiniteError

_CHUNK = 1 << 20  # values of X that are checked at once
REDUCTIONS = ("annotation", "instance")


@dataclass
class Problem:
    """Inputs, annotations and the split; codes only, no vocabularies, no truth."""

    prepare: Prepare
    train: Units
    validation: Units
    shape: tuple[int, ...]  # of one prepared instance
    n_annotators: int
    n_classes: int
    device: torch.device
    seed: int
    annotations: Annotations  # of the training instances, in the order of `train`
    intake: Intake = field(default_factory=Intake)
    order: Ints | None = None
    """All rows in the order in which they are drawn and trained on; None: that of X."""

    @classmethod
    def make(
        cls,
        X: Any,
        annotations: Annotations,
        *,
        device: torch.device,
        seed: int,
        prepare: str = "auto",
        reduction: str = "annotation",
        validation_fraction: float = 0.1,
        order: Ints | None = None,
        encoder: Any = "auto",
    ) -> Problem:
        """The rows of X and their annotations; ``order`` is that in which rows are drawn and trained on, by default theirs."""
        if count_rows(X) != annotations.n_instances:
            raise DataError(
                f"X has {count_rows(X)} instances, the annotations cover {annotations.n_instances}; "
                "they must be the same instances in the same order"
            )
        if not 0 <= validation_fraction < 1:
            raise ConfigError(f"validation_fraction must be in [0, 1), got {validation_fraction}")
        if reduction not in REDUCTIONS:
            raise ConfigError(f"unknown reduction {reduction!r}; use 'annotation' or 'instance'")
        rows = np.arange(annotations.n_instances) if order is None else order
        labelled = np.flatnonzero(annotations.labels_per_instance[rows])  # places in this order
        if len(labelled) < 2:
            raise DataError(
                f"at least 2 instances must have a label to train on, got {len(labelled)} (n_samples={len(labelled)})"
            )
        labelled = np.random.default_rng(derive_seed(seed, "split")).permutation(labelled)
        n_validation = min(int(validation_fraction * len(labelled)), len(labelled) - 2)
        validation, train = (rows[np.sort(part)] for part in (labelled[:n_validation], labelled[n_validation:]))
        try:
            learning = np.setdiff1d(np.arange(annotations.n_instances), validation)
            intake, numbers = Intake.learn(X, train, derive_seed(seed, "intake"), encoder, learning, annotations.votes)
            inputs = make_inputs(numbers, device)
        except NonFiniteError as error:
            raise _named(error, annotations) from None
        everything = make_units(inputs, annotations, device, reduction)
        sample = train[:: max(1, len(train) // 2000)] if not inputs.resident else train
        try:
            raw = inputs.take(torch.from_numpy(sample).to(device))
        except NonFiniteError as error:
            raise _named(error, annotations) from None
        learned = Prepare.learn(intake.prepare(prepare), raw).to(device)
        return cls(
            learned,
            everything.subset(torch.from_numpy(train).to(device)),
            everything.subset(torch.from_numpy(validation).to(device)),
            tuple(raw.shape[1:]),
            annotations.n_annotators,
            annotations.n_classes,
            device,
            seed,
            annotations.select(instances=train),
            intake,
            order,
        )


def make_units(inputs: Inputs, annotations: Annotations, device: torch.device, reduction: str) -> Units:
    """All instances with their annotations; weights are theirs or 1, over their sum r_i where instances count alike."""
    # annotators in order too, so that the order in which annotations came changes nothing
    order = np.lexsort((annotations.label, annotations.annotator, annotations.instance))
    given = None
    if annotations.weight is not None:
        order = np.lexsort((annotations.weight, annotations.label, annotations.annotator, annotations.instance))
        given = torch.from_numpy(annotations.weight[order]).to(device)
    label = torch.from_numpy(annotations.label[order].astype(np.int64)).to(device)
    annotator = torch.from_numpy(annotations.annotator[order].astype(np.int64)).to(device)
    indptr = torch.from_numpy(annotations.by_instance.indptr.copy()).to(device)
    counts = indptr.diff()
    weight = torch.ones(len(label), device=device) if given is None else given.clone()
    if reduction == "instance":
        total = counts
        if given is not None:
            row = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)
            total = torch.zeros(len(counts), device=device).index_add_(0, row, given)
        share = torch.repeat_interleave(1 / total.clamp_min(1 if given is None else 1e-12), counts)
        weight = share if given is None else given * share
    instance = torch.arange(annotations.n_instances, device=device)
    return Units(inputs, instance, torch.full_like(instance, -1), indptr, annotator, label, weight, given=given)


def make_inputs(X: Any, device: torch.device) -> Inputs:
    """Arrays and tensors go to the device whole where they fit; everything else is streamed."""
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if _is_map_style(X):
        return StreamedInputs(X, device)
    X = _real_numbers(np.asanyarray(X))
    if X.dtype != np.uint8:
        X = _single_precision(X)
    array = to_channels_first(X)
    if device.type == "cuda" and array.nbytes > 0.5 * torch.cuda.mem_get_info(device)[0]:
        return StreamedInputs(array, device)
    try:
        return ResidentInputs(_on_device(X, array, device))
    except torch.OutOfMemoryError:
        warnings.warn(
            f"X ({array.nbytes / 1e9:.2f} GB) does not fit into the memory of {device} beside what is there: it stays on the "
            "host, and batches are brought to the device one by one",
            CrowdwiseWarning,
            stacklevel=2,
        )
        return StreamedInputs(np.ascontiguousarray(array), device)


def _is_map_style(X: Any) -> bool:
    """Return whether X gives items one by one, as data sets of torch do, and is no array or list."""
    if isinstance(X, np.ndarray | list | tuple) or hasattr(X, "__array__"):
        return False
    return hasattr(X, "__getitem__") and hasattr(X, "__len__")


def _real_numbers(X: Array) -> Array:
    """Return the array with a type of real numbers or booleans; anything else is an error."""
    if isinstance(X, np.ma.MaskedArray):
        masked = int(np.ma.getmaskarray(X).sum())
        if masked:
            raise DataError(f"X has {masked:,} masked values; fill them, or leave the instances out")
        X = X.data
    if X.dtype.kind == "c":
        raise DataError("Complex data not supported: X must hold real numbers")
    if X.dtype == object and not any(isinstance(value, str | bytes) for value in X.flat):
        with contextlib.suppress(TypeError, ValueError):
            X = X.astype(np.float64)
    if X.ndim == 2 and not X.shape[1]:
        raise DataError(f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    if X.dtype == object or not (np.issubdtype(X.dtype, np.number) or X.dtype == bool):
        raise DataError(f"X must hold numbers, got dtype {X.dtype}{_where_text(X)}")
    return X


def _single_precision(X: Array) -> Array:
    """Return the numbers as float32, which must hold them."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = X.astype(np.float32, copy=not X.flags.writeable)  # torch warns of memory that must not be written to
    if np.issubdtype(X.dtype, np.floating):
        _check_finite(X, values)
    return values


def _on_device(X: np.ndarray[Any, Any], array: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    """``array``, which is X with channels first, on the device.

    A GPU moves the channels itself: for large pictures the host would take a third of the time of predicting them.
    """
    if device.type == "cuda" and X.ndim == 4 and array is not X:
        return torch.from_numpy(np.ascontiguousarray(X)).to(device).movedim(3, 1).contiguous()
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def _where_text(X: np.ndarray[Any, Any]) -> str:
    """The first column of an array (n, d) that holds what is no number, and what it holds."""
    for column in range(X.shape[1]) if X.ndim == 2 else ():
        for row, value in enumerate(X[:, column].tolist()):
            try:
                float(value)
            except (TypeError, ValueError):
                return f": column {column} holds {value!r:.40} in row {row}; a data frame may have columns of texts"
    return ""


def _check_finite(X: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
    """Refuse X with values (the same in float32) that are missing, infinite or beyond float32; in chunks, to save memory."""
    at_once = max(1, _CHUNK // max(1, X[:1].size))
    bad: list[int] = []
    for start in range(0, len(X), at_once):
        part = values[start : start + at_once]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(part.sum()):
                continue  # so are all of them
        finite = np.isfinite(part)
        if not finite.all():
            bad += (start + np.flatnonzero(~finite.reshape(len(finite), -1).all(1))).tolist()
    if bad:
        at = (bad[0], *np.argwhere(~np.isfinite(values[bad[0]]))[0].tolist())
        raise NonFiniteError(f"X{list(at)} is {X[at]}", bad)


def _named(error: NonFiniteError, annotations: Annotations) -> NonFiniteError:
    """With ids instead of rows."""
    known = annotations.instances[[row for row in error.instances if row < annotations.n_instances]]
    return NonFiniteError(error.place, known.tolist())
