"""Neighbours and purified rows of very many annotators by torch, in blocks, on a GPU: what numpy finds, with the same ties."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from crowdwise.data.types import Floats, Ints
from crowdwise.errors import DataError

ENTRIES = 1 << 27  # of a matrix (R, R) that are held at a time


def neighbours(
    vectors: Floats, busy: Ints, k: int, decimals: int, device: str | torch.device, block: int | None = None
) -> Iterator[tuple[Ints, Ints, int, int]]:
    """For each block of ``busy`` annotators: these (rows,), the k most similar (rows, k), and two counts.

    They are the similarities of 0, and the neighbours that the tie rule chose, as `crowdwise.graph.neighbours` has it.
    """
    everyone = torch.from_numpy(vectors).to(device)
    size = len(everyone)
    for own in torch.from_numpy(busy).to(device).split(block or max(1, ENTRIES // size)):
        values = everyone[own] @ everyone.T
        finite = torch.isfinite(values.sum(1))
        if not bool(finite.all()):
            raise DataError(f"the similarities of annotator {int(own[~finite][0])} are not finite")
        values[torch.arange(len(own), device=own.device), own] = -torch.inf
        zeros = (values.abs() <= 0.5 * 10.0**-decimals).sum()
        columns, above, tied = largest(keys(values, decimals), k, own)
        by_rule = torch.where(above + tied > k, k - above, 0).sum()
        yield own.cpu().numpy(), columns.cpu().numpy(), int(zeros), int(by_rule)


def purified_rows(
    left: Floats, right: Floats, limit: int, negligible: float, decimals: int, device: str | torch.device
) -> Iterator[tuple[Floats, Ints, Ints]]:
    """For each block of rows of left @ right (R, R), clipped to [0, 1]: the weights, rows and columns of the kept entries.

    The ``limit`` largest of each row are kept, scaled to the row's sum; entries below ``negligible`` are not.
    """
    across = torch.from_numpy(np.ascontiguousarray(right)).to(device)
    start = 0
    for part in torch.from_numpy(np.ascontiguousarray(left)).to(device).split(max(1, ENTRIES // len(left))):
        values = (part @ across).clamp_(0.0, 1.0)
        values.masked_fill_(values < negligible, 0.0)
        columns = largest(keys(values, decimals), limit)[0].sort(1).values
        found = values.gather(1, columns)
        kept = found.sum(1)
        scale = torch.where(kept > 0, values.sum(1) / kept.clamp_min(negligible), 1.0)
        row, place = torch.nonzero(found, as_tuple=True)
        weights = (found * scale[:, None])[row, place]
        yield weights.cpu().numpy(), (row + start).cpu().numpy(), columns[row, place].cpu().numpy()
        start += len(part)


def operator(matrix: Any, device: str | torch.device) -> LinearOperator:
    """A sparse matrix whose products with vectors are computed on the device."""

    def product(part: Any) -> Any:
        parts = (part.indptr.astype(np.int64), part.indices.astype(np.int64), part.data)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            rows, columns, values = (torch.from_numpy(each) for each in parts)
            there = torch.sparse_csr_tensor(
                rows, columns, values, size=part.shape, device=device, check_invariants=False
            )

        def times(values: Floats) -> Floats:
            vectors = torch.from_numpy(np.ascontiguousarray(values)).to(device)
            return np.asarray((there @ vectors).cpu())

        return times

    forward, backward = product(sparse.csr_array(matrix)), product(sparse.csr_array(matrix.T))
    return LinearOperator(
        matrix.shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=np.float64
    )


def keys(values: Tensor, decimals: int) -> Tensor:
    """Whole numbers in the order of the values, equal where these are, but for rounding errors."""
    return values.clone().mul_(10.0**decimals).round_()


def largest(values: Tensor, k: int, after: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The columns of the k largest values of each row, (rows, k), unordered; how many are above the least; how many equal it.

    Of equal values the first columns are taken, or those that follow column ``after`` (rows,), cyclically.
    """
    top = torch.topk(values, k, dim=1, sorted=True)
    least = top.values[:, -1:]
    above, tied = (top.values > least).sum(1), (values == least).sum(1)
    columns = top.indices
    for part in torch.nonzero(above + tied > k).squeeze(1).split(1024):  # the tie rule decides
        equal = values[part] == least[part]
        place = torch.cumsum(equal, 1)
        if after is not None:
            place -= place.gather(1, after[part, None])
            place += torch.where(place > 0, 0, tied[part, None])
        chosen = (values[part] > least[part]) | (equal & (place <= (k - above[part])[:, None]))
        columns[part] = torch.nonzero(chosen)[:, 1].reshape(-1, k)
    return columns, above, tied
