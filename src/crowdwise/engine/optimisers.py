"""Optimisers for the groups of a stage. Learning rates are tensors on the GPU, so that a captured step can follow a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor

from crowdwise.engine.stage import Group
from crowdwise.errors import ConfigError


class RowSGD(torch.optim.Optimizer):
    """SGD with momentum for stacked heads (R, ...): a row without gradient does not move, and keeps its momentum.

    Training R heads in one tensor then equals training each of them alone.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                active = gradient.flatten(1).ne(0).any(1)
                rows = torch.nonzero(active).squeeze(1)
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                update = gradient[rows] + group["weight_decay"] * parameter[rows]
                update += group["momentum"] * state["momentum_buffer"][rows]
                state["momentum_buffer"][rows] = update
                parameter[rows] -= group["lr"] * update


class QuickAdamW(torch.optim.AdamW):
    """AdamW on the CPU, whose fused kernel is called without the checks that take as long as a small network's update."""

    def __init__(self, params: Iterable[dict[str, Any]]) -> None:
        super().__init__(params, fused=True)
        self._lists: list[tuple[dict[str, Any], list[list[Tensor]]]] | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if self._lists is None:
            super().step()  # makes the state, unless it was restored
            self._lists = self._collect()
            return
        gradients = [[parameter.grad for parameter in lists[0]] for _, lists in self._lists]
        if any(
            gradient is None for own in gradients for gradient in own
        ):  # what had no say in this batch does not move
            super().step()
            return
        for (group, (parameters, first, second, steps)), own in zip(self._lists, gradients, strict=True):
            torch._foreach_add_(steps, 1)
            beta1, beta2 = group["betas"]
            rest = {"lr": group["lr"], "beta1": beta1, "beta2": beta2, "weight_decay": group["weight_decay"]}
            torch._fused_adamw_(
                parameters,
                cast(list[Tensor], own),
                first,
                second,
                [],
                steps,
                **rest,
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def _collect(self) -> list[tuple[dict[str, Any], list[list[Tensor]]]] | None:
        """For each group its parameters, moments and counts of steps; None while some of them have no state."""
        lists = []
        for group in self.param_groups:
            states = [self.state[parameter] for parameter in group["params"]]
            if not all(states):
                return None
            kept = [[state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step")]
            lists.append((group, [group["params"], *kept]))
        return lists


def make_optimisers(
    name: str, groups: Iterable[Group], momentum: float, device: torch.device
) -> list[torch.optim.Optimizer]:
    """An optimiser for each kind that the groups ask for, ``name`` unless they say otherwise; stacked heads have their own."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    recorded = set()  # kinds whose results on the CPU are recorded as they are
    optimisers: list[torch.optim.Optimizer] = []
    cuda = device.type == "cuda"
    for group in groups:
        parameters = [parameter for parameter in group.module.parameters() if parameter.requires_grad]
        if group.rows:
            optimisers.append(RowSGD(parameters, group.lr, momentum, group.weight_decay))
        elif parameters:
            rate = torch.tensor(group.lr, device=device) if cuda else group.lr
            settings = {"params": parameters, "lr": rate, "weight_decay": group.weight_decay}
            by_kind.setdefault(group.optimiser or name, []).append(settings)
            if group.optimiser is None or group.weight_decay:
                recorded.add(group.optimiser or name)
    for kind, ordinary in by_kind.items():
        if kind == "sgd":
            optimisers.append(torch.optim.SGD(ordinary, lr=0.01, momentum=momentum, fused=cuda or None))
        elif not cuda and (kind == "adamw" or (kind == "adam" and kind not in recorded)):
            optimisers.append(QuickAdamW(ordinary))  # without weight decay, Adam is the same
        elif kind in ("adam", "adamw"):
            make = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
            optimisers.append(make(ordinary, capturable=cuda, fused=True if cuda else None))
        elif kind == "radam":
            optimisers.append(torch.optim.RAdam(ordinary, capturable=cuda))
        else:
            raise ConfigError(f"unknown optimiser {kind!r}; use 'sgd', 'adam', 'adamw' or 'radam'")
    for optimiser in optimisers:
        for made in optimiser.param_groups:
            made["initial_lr"] = float(made["lr"])
    return optimisers


def set_rates(optimisers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Scale every learning rate to ``factor`` times its initial value, in place where it is a tensor."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["initial_lr"] * factor)
            else:
                group["lr"] = group["initial_lr"] * factor


def optimiser_tensors(optimisers: Iterable[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Every state tensor under a stable name, for checkpoints."""
    tensors = {}
    for which, optimiser in enumerate(optimisers):
        parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        for number, parameter in enumerate(parameters):
            for key, value in optimiser.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{which}.{number}.{key}"] = value
    return tensors


def restore_optimisers(optimisers: Iterable[torch.optim.Optimizer], tensors: dict[str, Tensor]) -> None:
    """Put back what :func:`optimiser_tensors` named."""
    for which, optimiser in enumerate(optimisers):
        parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        for name, value in tensors.items():
            owner, number, key = name.split(".")
            if int(owner) == which:
                parameter = parameters[int(number)]
                # Adam counts its steps on the CPU unless it is capturable
                on = parameter.device if key != "step" or optimiser.defaults.get("capturable") else "cpu"
                state = torch.zeros_like(
                    parameter if value.shape == parameter.shape else value, device=on, dtype=value.dtype
                )
                optimiser.state[parameter][key] = state.copy_(value)  # in the layout of the parameter
