"""Individual heads of a crowd of any size: which form they take, and how all of them are trained at once."""

from __future__ import annotations

import warnings
from typing import Literal

import torch
from torch import Tensor

from crowdwise.engine.distributed import sum_over_ranks
from crowdwise.engine.tensors import Units
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.networks.factored import PAIRS_AT_ONCE
from crowdwise.system import total_memory

AUTO_RANK = 16
FULL_LIMIT = 2 * 2**30  # bytes of full heads, R (d+1) C^2 numbers, up to which ``head_rank="auto"`` keeps them
COPIES = 8  # of full heads at the worst moment: gradients, momentum and a step's working copies, or double precision


def full_bytes(n_annotators: int, width: int, n_classes: int) -> int:
    """Size of full heads in float32.

    >>> full_bytes(100_000, 512, 10)
    20520000000
    """
    return 4 * n_annotators * (width + 1) * n_classes**2


def choose_rank(
    head_rank: int | Literal["auto"] | None, n_annotators: int, width: int, n_classes: int, device: torch.device
) -> int | None:
    """The rank of the heads, or None for full ones; an error where full ones were asked for and do not fit."""
    if head_rank is not None and head_rank != "auto":
        return head_rank
    size = full_bytes(n_annotators, width, n_classes)
    numbers = f"{n_annotators:,} annotators x {width + 1} x {n_classes} x {n_classes} numbers"
    if head_rank == "auto":
        if size <= FULL_LIMIT:
            return None
        warnings.warn(
            f"full heads would have {gb(size)} ({numbers}), more than {gb(FULL_LIMIT)}: heads are factored, of rank "
            f"{AUTO_RANK}, {gb(4 * AUTO_RANK * n_annotators)}; head_rank sets the rank, None keeps full heads",
            CrowdwiseWarning,
            stacklevel=2,
        )
        return AUTO_RANK
    memory = device_memory(device)
    if COPIES * size > memory:
        raise ConfigError(
            f"full heads do not fit: they have {gb(size)} ({numbers}) and training needs about {COPIES} times that, "
            f"{gb(COPIES * size)}, but {device} has {gb(memory)}; use head_rank={AUTO_RANK} (factored heads), 'auto', "
            "or a smaller bottleneck"
        )
    return None


def device_memory(device: torch.device) -> int:
    """Bytes that are free on a GPU, or all of the machine's."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return total_memory() or 2**63


def gb(size: int) -> str:
    return f"{size / 1e9:.3g} GB"


def examples_of(units: Units, chosen: Tensor) -> Units:
    """A unit for each single annotation of the annotators that ``chosen`` (R,) marks."""
    examples = units.by_annotation()
    return examples.subset(torch.nonzero(chosen[examples.annotator]).squeeze(1))


def annotator_mean(losses: Tensor, weight: Tensor, annotator: Tensor, n_annotators: int) -> Tensor:
    """The mean loss of each annotator in the batch, by weight; shows their mean, but lets every head follow its own."""
    counts = sum_over_ranks(losses.new_zeros(n_annotators).index_add_(0, annotator, weight.to(losses.dtype)))
    total = (losses * weight / counts[annotator].clamp_min(1e-12)).sum()
    shown = total.detach() / (counts > 0).sum().clamp_min(1)
    return shown + total - total.detach()


def annotator_batches(
    annotator: Tensor, batch_size: int, generator: torch.Generator, limit: int = PAIRS_AT_ONCE
) -> list[Tensor]:
    """Batches of all annotators' mini-batches: the s-th holds the s-th mini-batch of every annotator that has so many.

    A batch of more than ``limit`` examples is cut between annotators: their heads are independent, so only memory changes.
    """
    shuffled = torch.randperm(len(annotator), generator=generator).to(annotator.device)
    order = shuffled[torch.argsort(annotator[shuffled], stable=True)]
    sizes = torch.bincount(annotator)
    first = sizes.cumsum(0) - sizes
    step = (torch.arange(len(order), device=order.device) - first[annotator[order]]) // batch_size
    batches = [order[step == number] for number in range(int(step.max()) + 1)]
    return [part for batch in batches for part in _cut(batch, annotator[batch], limit)]


def _cut(batch: Tensor, annotator: Tensor, limit: int) -> list[Tensor]:
    """The batch, sorted by annotator, in parts of about ``limit`` examples, each annotator in one of them."""
    if len(batch) <= limit:
        return [batch]
    start = torch.searchsorted(annotator, annotator)  # where each example's annotator begins
    return [part for part in batch.split(torch.bincount(start // limit).tolist()) if len(part)]


def whole_annotators(annotator: Tensor) -> list[Tensor]:
    """All examples of one annotator after the other, in the order of their numbers."""
    order = torch.argsort(annotator, stable=True)
    sizes = torch.bincount(annotator)
    return [part for part in order.split(sizes.tolist()) if len(part)]
