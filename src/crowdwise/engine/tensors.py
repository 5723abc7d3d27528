"""Data on the device: inputs, annotations as CSR tensors, and the plan of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from crowdwise.errors import DataError, NonFiniteError


class Inputs(Protocol):
    """Instances by index, as raw tensors on the device."""

    @property
    def resident(self) -> bool:
        """Whether all of them are on the device."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """Raw inputs (B, ...) of the given instances."""

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Raw inputs of one batch after the other; loads ahead where loading takes time."""


class ResidentInputs:
    """All inputs in one tensor on the device, until memory is short there."""

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.host: StreamedInputs | None = None

    @property
    def resident(self) -> bool:
        return self.host is None

    def __len__(self) -> int:
        return len(self.data) if self.host is None else len(self.host)

    def take(self, index: Tensor) -> Tensor:
        if self.host is not None:
            return self.host.take(index)
        return self.data[index] if self.data.is_cuda else self.data.index_select(0, index)  # a third of the time

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        return map(self.take, batches) if self.host is None else self.host.stream(batches)

    def leave_device(self) -> None:
        """Keep the inputs on the host from now on, and bring batches to the device as they are needed."""
        self.host = StreamedInputs(self.data.cpu().numpy(), self.data.device)
        self.data = self.data.new_empty(0)


class StreamedInputs:
    """Inputs from a map-style data set (``__len__``, ``__getitem__``), loaded by threads ahead of use.

    An item is an array or tensor, or a tuple that starts with one. An array in place of the data set has finite values,
    and channels first.
    """

    resident = False

    def __init__(self, dataset: Any, device: torch.device, workers: int = 4, ahead: int = 4) -> None:
        self.dataset, self.device, self.workers, self.ahead = dataset, device, workers, ahead

    def __len__(self) -> int:
        return len(self.dataset)

    def _load(self, index: int) -> Tensor:
        item = self.dataset[index]
        item = item[0] if isinstance(item, tuple | list) else item
        array = item.detach().cpu().numpy() if isinstance(item, Tensor) else np.asarray(item)
        return torch.from_numpy(np.ascontiguousarray(to_channels_first(array[None])[0]))

    def _collate(self, index: Sequence[int]) -> Tensor:
        if isinstance(self.dataset, np.ndarray):
            batch = torch.from_numpy(np.asarray(self.dataset[index]))
        else:
            batch = torch.stack([self._load(at) for at in index])
            if batch.is_floating_point() and not bool(torch.isfinite(batch).all()):
                bad = ~torch.isfinite(batch).flatten(1).all(1)
                raise NonFiniteError("X", [at for at, is_bad in zip(index, bad.tolist(), strict=True) if is_bad])
        return batch.pin_memory() if self.device.type == "cuda" else batch

    def take(self, index: Tensor) -> Tensor:
        return self._collate(index.tolist()).to(self.device, non_blocking=True)

    def stream(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        with ThreadPoolExecutor(self.workers) as pool:
            pending: list[Future[Tensor]] = []
            waiting = iter(batches)
            while True:
                while len(pending) < self.ahead and (index := next(waiting, None)) is not None:
                    pending.append(pool.submit(self._collate, index.tolist()))
                if not pending:
                    return
                yield pending.pop(0).result().to(self.device, non_blocking=True)


def to_channels_first(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(N, H, W), (N, H, W, channels) or (N, channels, H, W) -> (N, channels, H, W); (N, d) as it is."""
    if array.ndim == 2:
        return array
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4:
        if array.shape[3] in (1, 3, 4) and array.shape[1] not in (1, 3):
            return np.moveaxis(array, 3, 1)
        return array
    if array.ndim < 2:
        raise DataError(
            f"X must have a row for each instance, got shape {array.shape}. Reshape your data: X.reshape(1, -1) "
            "is one instance"
        )
    raise DataError(
        f"instances must be feature vectors (n, d) or images (n, h, w), (n, h, w, channels) or (n, channels, h, w); "
        f"got an array of shape {array.shape}"
    )


@dataclass
class Units:
    """What a stage iterates over: instances (or single annotations) with their annotations in CSR form.

    Unit u is instance ``instance[u]`` of ``inputs`` with distilled label ``target[u]`` (-1: none) and annotations
    ``indptr[u]:indptr[u+1]`` of ``annotator``, ``label`` and ``weight``.
    """

    inputs: Inputs
    instance: Tensor  # (N,)
    target: Tensor  # (N,)
    indptr: Tensor  # (N + 1,)
    annotator: Tensor  # (E,)
    label: Tensor  # (E,)
    weight: Tensor  # (E,)
    origin: Tensor | None = None  # (N,) rows of X, where ``inputs`` are something that was computed from these
    given: Tensor | None = None  # (E,) how much of a label each annotation is; None: one

    def __len__(self) -> int:
        return len(self.instance)

    @property
    def device(self) -> torch.device:
        return self.instance.device

    @property
    def rows(self) -> Tensor:
        """Which row of X every unit comes from, (N,)."""
        return self.instance if self.origin is None else self.origin

    def subset(self, at: Tensor, target: Tensor | None = None) -> Units:
        """The units at the given positions, with new targets if given."""
        row, pair = pairs_of(self.indptr, at)
        counts = torch.bincount(row, minlength=len(at))
        return Units(
            self.inputs,
            self.instance[at],
            self.target[at] if target is None else target,
            _indptr(counts),
            self.annotator[pair],
            self.label[pair],
            self.weight[pair],
            self.rows[at],
            None if self.given is None else self.given[pair],
        )

    def with_inputs(self, data: Tensor) -> Units:
        """The same units over other inputs, ``data[u]`` for unit u: cached features, for instance."""
        at = torch.arange(len(self), device=self.device)
        inputs, csr = ResidentInputs(data), (self.indptr, self.annotator, self.label, self.weight)
        return Units(inputs, at, self.target, *csr, origin=self.rows, given=self.given)

    def by_annotation(self) -> Units:
        """A unit for each single annotation."""
        row, pair = pairs_of(self.indptr, torch.arange(len(self), device=self.device))
        indptr = torch.arange(len(pair) + 1, device=self.device)
        return Units(
            self.inputs,
            self.instance[row],
            self.target[row],
            indptr,
            self.annotator[pair],
            self.label[pair],
            torch.ones_like(self.weight[pair]) if self.given is None else self.given[pair],
            self.rows[row],
            None if self.given is None else self.given[pair],
        )

    def weighed(self, values: Tensor) -> Tensor:
        """Values of the annotations (E, ...), times how much of a label each is."""
        return values if self.given is None else values * self.given.reshape(-1, *[1] * (values.ndim - 1))


def _indptr(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def pairs_of(indptr: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Annotations of the units ``at``, in that order: (position in ``at``, index of the annotation), both (P,)."""
    first = indptr.index_select(0, at)  # on the CPU a third of the time of indptr[at]
    counts = indptr.index_select(0, at + 1) - first
    row = torch.repeat_interleave(torch.arange(len(at), device=at.device), counts)
    skipped = first - counts.cumsum(0) + counts
    return row, torch.arange(len(row), device=at.device) + skipped.index_select(0, row)


@dataclass
class Plan:
    """All batches of an epoch: unit positions in order, and their annotations, cut at the batches' borders."""

    order: Tensor  # (N,) unit positions
    row: Tensor  # (P,) position in `order`
    pair: Tensor  # (P,) index of the annotation
    unit_borders: list[int]  # batch b holds order[unit_borders[b]:unit_borders[b + 1]]
    pair_borders: list[int]

    def __len__(self) -> int:
        return len(self.unit_borders) - 1

    @property
    def widest(self) -> int:
        return max((b - a for a, b in zip(self.pair_borders, self.pair_borders[1:], strict=False)), default=0)


def make_plan(units: Units, batches: Sequence[Tensor]) -> Plan:
    """Lay out the given batches of unit positions."""
    order = torch.cat(list(batches)) if batches else torch.zeros(0, dtype=torch.int64, device=units.device)
    row, pair = pairs_of(units.indptr, order)
    unit_borders = np.concatenate([[0], np.cumsum([len(batch) for batch in batches])]).astype(np.int64)
    cumulative = _indptr(units.indptr.diff().index_select(0, order))
    pair_borders = cumulative[torch.from_numpy(unit_borders).to(units.device)].tolist()
    return Plan(order, row, pair, unit_borders.tolist(), pair_borders)


def shuffled_batches(n_units: int, batch_size: int, generator: torch.Generator, device: torch.device) -> list[Tensor]:
    """A random order cut into batches; a last batch of one, on which batch norm fails, joins the one before it."""
    order = torch.randperm(n_units, generator=generator).to(device)
    batches = list(order.split(batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
