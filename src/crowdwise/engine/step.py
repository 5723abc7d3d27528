"""One optimisation step: eagerly, or captured whole (forward, loss, backward, update) in a CUDA graph."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from crowdwise.engine.average import Average
from crowdwise.engine.checkpoint import clone_state
from crowdwise.engine.distributed import rank, sum_gradients, sum_over_ranks, world_size
from crowdwise.engine.optimisers import optimiser_tensors, set_rates
from crowdwise.engine.stage import Batch, Loss
from crowdwise.engine.tensors import Plan, Units

_PAIR_GRAIN = 64  # captured steps are padded to a multiple of this many annotations
_WARM_UP_STEPS = 3


class BadNumbersError(Exception):
    """Raised by strict steps: ``what`` is not finite in a batch of these units; of inputs, only those that are not."""

    INPUTS: ClassVar[str] = "prepared inputs"

    def __init__(self, what: str, unit: Tensor) -> None:
        super().__init__(what)
        self.what, self.unit = what, unit
        self.batch = -1  # its number in the epoch


class Snapshot:
    """The state of modules and optimisers, to return to."""

    def __init__(self, modules: Mapping[str, nn.Module], optimisers: list[torch.optim.Optimizer]) -> None:
        self.modules, self.optimisers = modules, optimisers
        self.states = {name: clone_state(module) for name, module in modules.items()}
        self.tensors = {name: tensor.clone() for name, tensor in optimiser_tensors(optimisers).items()}

    def renew(self) -> None:
        """Take the state as it is now, in the memory of the last."""
        for name, module in self.modules.items():
            for key, tensor in module.state_dict().items():
                self.states[name][key].copy_(tensor)
        for name, tensor in optimiser_tensors(self.optimisers).items():
            self.tensors[name] = self.tensors[name].copy_(tensor) if name in self.tensors else tensor.clone()

    def restore(self) -> None:
        """Put everything back in place: recorded steps stay valid."""
        for name, state in self.states.items():
            self.modules[name].load_state_dict(state)
        for name, tensor in optimiser_tensors(self.optimisers).items():
            tensor.copy_(self.tensors[name]) if name in self.tensors else tensor.zero_()


class Step:
    """Runs single steps of a stage and adds up the loss on the device. ``strict`` ones stop at numbers that are not finite."""

    def __init__(
        self,
        loss: Loss,
        transform: Callable[[Batch], Batch],
        modules: Mapping[str, nn.Module],
        optimisers: list[torch.optim.Optimizer],
        device: torch.device,
        dtype: torch.dtype,
        average: Average | None = None,
    ) -> None:
        self.loss, self.transform, self.modules, self.optimisers = loss, transform, modules, optimisers
        self.average = average
        self.networks = networks_of(modules.values())
        # what K networks share follows their mean; each network learns as it would alone
        stacked = {id(p) for module in modules.values() if networks_of([module]) > 1 for p in module.parameters()}
        self.device, self.dtype = device, dtype
        self.parameters = [p for optimiser in optimisers for group in optimiser.param_groups for p in group["params"]]
        self.common = [p for p in self.parameters if id(p) not in stacked] if self.networks > 1 else []
        self.loss_sum = torch.zeros((), device=device)
        self.factor = math.nan  # on the learning rates
        self.strict = False
        self.start: Snapshot | None = None  # of the epoch at hand, where its size allows
        self.half_weights = HalfWeights(modules.values(), dtype if device.type == "cuda" else torch.float32)

    def set_rates(self, factor: float) -> None:
        """Scale the learning rates from the next step on."""
        if factor != self.factor:
            set_rates(self.optimisers, factor)
            self.factor = factor

    def __call__(self, batch: Batch) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        with (
            self.half_weights(),
            torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32),
        ):
            batch = self.transform(batch)
            loss = self.loss(batch)
            if loss.requires_grad:
                (loss * self.networks).backward()
        if loss.requires_grad:
            for parameter in self.common:
                if parameter.grad is not None:
                    parameter.grad /= self.networks
            sum_gradients(self.parameters)
        if self.strict:
            self._check(batch, loss)
        if loss.requires_grad:
            for optimiser in self.optimisers:
                optimiser.step()
        if self.average is not None:
            self.average.update()
        if self.strict and not all_finite(self.parameters):
            raise BadNumbersError("the weights after the update", batch.unit)
        self.loss_sum += loss.detach()

    def _check(self, batch: Batch, loss: Tensor) -> None:
        bad = ~torch.isfinite(batch.x).flatten(1).all(1)
        if _anywhere(bad.any()):
            raise BadNumbersError(BadNumbersError.INPUTS, batch.unit[bad])
        if _anywhere(~torch.isfinite(loss)):
            raise BadNumbersError("the loss", batch.unit)
        for group, module in self.modules.items():
            for name, parameter in module.named_parameters():
                if parameter.grad is not None and _anywhere(~torch.isfinite(parameter.grad).all()):
                    raise BadNumbersError(f"the gradient of {group}.{name}", batch.unit)


def networks_of(modules: Iterable[nn.Module]) -> int:
    """How many networks are trained at once: that of a `Stacked` classifier, else 1."""
    return max((int(getattr(module, "networks", 1)) for module in modules), default=1)


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all values are finite. A finite sum says so, at the least cost; where it is not, it may have overflowed."""
    values = [tensor.detach() for tensor in tensors]
    if not values:
        return True
    sums = torch.stack([value.sum(dtype=torch.float32) for value in values])
    return bool(torch.isfinite(sums).all()) or all(bool(torch.isfinite(value).all()) for value in values)


def _anywhere(flag: Tensor) -> bool:
    """Whether a flag is raised in any process."""
    return bool(sum_over_ranks(flag.float()) > 0)


class HalfWeights:
    """Half-precision copies of all convolution weights, made and differentiated in one go.

    Autocast would convert weight by weight, and gradient by gradient: some eighty small kernels in a step.
    """

    def __init__(self, modules: Iterable[nn.Module], dtype: torch.dtype) -> None:
        self.layers: list[nn.Conv2d] = []
        if dtype != torch.float32:
            for module in modules:
                self.layers += [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
        self.masters: list[Tensor] = [layer.weight for layer in self.layers]
        self.copies: list[Tensor] = [nn.Parameter(master.detach().to(dtype)) for master in self.masters]

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        if not self.layers:
            yield
            return
        with torch.no_grad():
            torch._foreach_copy_(self.copies, self.masters)
        for layer, copy in zip(self.layers, self.copies, strict=True):
            copy.grad = None
            layer.weight = cast(nn.Parameter, copy)
        try:
            yield
        finally:
            for layer, master in zip(self.layers, self.masters, strict=True):
                layer.weight = cast(nn.Parameter, master)
        used = [(m, c.grad) for m, c in zip(self.masters, self.copies, strict=True) if c.grad is not None]
        gradients = [torch.empty_like(master) for master, _ in used]
        with torch.no_grad():
            torch._foreach_copy_(gradients, [gradient for _, gradient in used])
        for (master, _), gradient in zip(used, gradients, strict=True):
            master.grad = gradient


class CapturedSteps:
    """The steps of a plan's full batches through one CUDA graph.

    The whole plan lies on the device, padded to a static width; a step copies one row of it and replays the graph.
    """

    def __init__(self, step: Step, units: Units, batch_size: int) -> None:
        self.step, self.units, self.batch_size = step, units, batch_size
        self.reset()

    def reset(self) -> None:
        """Forget the recording, and free its memory."""
        self.width = 0
        self.graph = torch.cuda.CUDAGraph()
        self.integers = self.floats = self.codes = self.weights = torch.zeros(0, device=self.units.device)
        self.raw: Tensor | None = None

    def load(self, plan: Plan, raw: Tensor | None) -> None:
        """Lay out the plan of an epoch; record the step first, or anew if some batch has more annotations than before."""
        grow = plan.widest > self.width
        if grow:
            self.width = -(-max(plan.widest, 1) // _PAIR_GRAIN) * _PAIR_GRAIN
        self.codes, self.weights = self._layout(plan)
        if grow:
            self.raw = None if raw is None else raw.clone()
            self.integers, self.floats = self.codes[0].clone(), self.weights[0].clone()
            self._capture()

    def run(self, number: int, raw: Tensor | None) -> None:
        self.integers.copy_(self.codes[number])
        self.floats.copy_(self.weights[number])
        if self.raw is not None and raw is not None:
            self.raw.copy_(raw)
        self.graph.replay()

    def _layout(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Rows (batches, 3 W + 3 B) of codes and (batches, W + 2) of weights, counts and sizes."""
        units, width, size = self.units, self.width, self.batch_size
        full = sum(b - a == size for a, b in zip(plan.unit_borders, plan.unit_borders[1:], strict=False))
        order, pair = plan.order[: full * size], plan.pair[: plan.pair_borders[full]]
        row = plan.row[: len(pair)]
        batch = row // size
        borders = torch.tensor(plan.pair_borders, device=units.device)
        column = torch.arange(len(pair), device=units.device) - borders[batch]
        codes = torch.zeros(full, 3 * width + 3 * size, dtype=torch.int64, device=units.device)
        for offset, values in enumerate((row % size, units.annotator[pair], units.label[pair])):
            codes[batch, offset * width + column] = values
        for offset, values in enumerate((order, units.target[order], units.instance[order])):
            codes[:, 3 * width + offset * size : 3 * width + (offset + 1) * size] = values.view(full, size)
        weights = torch.zeros(full, width + 2, device=units.device)
        weights[batch, column] = units.weight[pair]
        weights[:, width] = weights[:, :width].sum(1).clamp_min(1e-12)
        weights[:, width + 1] = float(size)
        return codes, weights

    def _batch(self) -> Batch:
        width, size = self.width, self.batch_size
        row, annotator, label = self.integers[: 3 * width].view(3, width)
        unit, target, instance = self.integers[3 * width :].view(3, size)
        x = self.raw if self.raw is not None else self.units.inputs.take(instance)
        weight, total, count = self.floats[:width], self.floats[width], self.floats[width + 1]
        return Batch(x, unit, target, row, annotator, label, weight, total, count)

    def _capture(self) -> None:
        """Record the step. The steps that warm it up are undone, so that results do not depend on them."""
        step, device = self.step, self.step.device
        before = Snapshot(step.modules, step.optimisers)
        loss_sum = step.loss_sum.clone()
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_STEPS):
                step(self._batch())
        torch.cuda.current_stream(device).wait_stream(stream)
        for optimiser in step.optimisers:
            optimiser.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            step(self._batch())
        before.restore()
        step.loss_sum.copy_(loss_sum)


def batch_of(units: Units, plan: Plan, number: int, raw: Tensor) -> Batch:
    """Batch ``number`` of a plan, or this process's share of it; ``raw`` holds the inputs of that share."""
    first, last = plan.unit_borders[number], plan.unit_borders[number + 1]
    row = plan.row[plan.pair_borders[number] : plan.pair_borders[number + 1]] - first
    pair = plan.pair[plan.pair_borders[number] : plan.pair_borders[number + 1]]
    unit = plan.order[first:last]
    weight = units.weight.index_select(0, pair)
    total = weight.sum().clamp_min(1e-12)
    if world_size() > 1:
        mine = row % world_size() == rank()
        row, pair, weight = row[mine] // world_size(), pair[mine], weight[mine]
        unit = unit[rank() :: world_size()]
    size = torch.tensor(float(last - first), device=units.device)
    target, annotator = units.target.index_select(0, unit), units.annotator.index_select(0, pair)
    return Batch(raw, unit, target, row, annotator, units.label.index_select(0, pair), weight, total, size)
