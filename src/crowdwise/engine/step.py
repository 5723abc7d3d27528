"""One optimisation step: eagerly, or captured whole (forward, loss, backward, update) in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from crowdwise.engine.checkpoint import clone_state
from crowdwise.engine.distributed import rank, sum_gradients, world_size
from crowdwise.engine.optimisers import optimiser_tensors
from crowdwise.engine.stage import Batch, Loss
from crowdwise.engine.tensors import Plan, Units

_PAIR_GRAIN = 64  # captured steps are padded to a multiple of this many annotations
_WARM_UP_STEPS = 3


class Step:
    """Runs single steps of a stage and adds up the loss on the device."""

    def __init__(
        self,
        loss: Loss,
        prepare: Callable[[Tensor], Tensor],
        modules: Mapping[str, nn.Module],
        optimisers: list[torch.optim.Optimizer],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.loss, self.prepare, self.modules, self.optimisers = loss, prepare, modules, optimisers
        self.device, self.dtype = device, dtype
        self.parameters = [p for optimiser in optimisers for group in optimiser.param_groups for p in group["params"]]
        self.loss_sum = torch.zeros((), device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: dict[str, Tensor] = {}

    def eager(self, batch: Batch) -> None:
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            batch.x = self.prepare(batch.x)
            loss = self.loss(batch)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
            sum_gradients(self.parameters)
            for optimiser in self.optimisers:
                optimiser.step()
        self.loss_sum += loss.detach()

    def captured(self, fields: dict[str, Tensor], widest: int) -> None:
        """Run one step through the graph; ``fields`` as in :class:`Batch`, with at most ``widest`` annotations."""
        if self._graph is None or len(self._static["row"]) < widest or len(self._static["x"]) != len(fields["x"]):
            self._capture(fields, widest)
        self._fill(fields)
        assert self._graph is not None
        self._graph.replay()

    def _fill(self, fields: dict[str, Tensor]) -> None:
        for name, value in fields.items():
            static = self._static[name]
            if name in ("row", "annotator", "label", "weight"):
                static[: len(value)].copy_(value)
            else:
                static.copy_(value)
        self._static["weight"][len(fields["weight"]) :].zero_()

    def _capture(self, fields: dict[str, Tensor], widest: int) -> None:
        """Record the step. The steps that warm it up are undone, so that results do not depend on them."""
        width = -(-max(widest, 1) // _PAIR_GRAIN) * _PAIR_GRAIN
        pair_fields = ("row", "annotator", "label", "weight")
        self._static = {
            name: value.new_zeros(width) if name in pair_fields else value.clone() for name, value in fields.items()
        }
        self._fill(fields)
        modules = {name: clone_state(module) for name, module in self.modules.items()}
        optimiser_state = {name: tensor.clone() for name, tensor in optimiser_tensors(self.optimisers).items()}
        loss_sum = self.loss_sum.clone()
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_STEPS):
                self.eager(Batch(**self._static))
        torch.cuda.current_stream(self.device).wait_stream(stream)
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.eager(Batch(**self._static))
        for name, state in modules.items():
            self.modules[name].load_state_dict(state)
        for name, tensor in optimiser_tensors(self.optimisers).items():
            tensor.copy_(optimiser_state[name]) if name in optimiser_state else tensor.zero_()
        self.loss_sum.copy_(loss_sum)


def fields_of(units: Units, plan: Plan, number: int, raw: Tensor) -> dict[str, Tensor]:
    """The fields of batch ``number`` of a plan, without the share of other processes."""
    first, last = plan.unit_borders[number], plan.unit_borders[number + 1]
    row = plan.row[plan.pair_borders[number] : plan.pair_borders[number + 1]] - first
    pair = plan.pair[plan.pair_borders[number] : plan.pair_borders[number + 1]]
    unit = plan.order[first:last]
    weight = units.weight[pair]
    total = weight.sum().clamp_min(1e-12)
    if world_size() > 1:
        mine = row % world_size() == rank()
        row, pair, weight = row[mine] // world_size(), pair[mine], weight[mine]
        unit = unit[rank() :: world_size()]
    size = torch.tensor(float(last - first), device=units.device)
    return {
        "x": raw,
        "unit": unit,
        "target": units.target[unit],
        "row": row,
        "annotator": units.annotator[pair],
        "label": units.label[pair],
        "weight": weight,
        "total": total,
        "size": size,
    }
