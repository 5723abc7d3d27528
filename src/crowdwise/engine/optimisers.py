"""Optimisers for the groups of a stage. Learning rates are tensors on the GPU, so that a captured step can follow a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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


def make_optimisers(
    name: str, groups: Iterable[Group], momentum: float, device: torch.device
) -> list[torch.optim.Optimizer]:
    """An optimiser for each kind that the groups ask for, ``name`` unless they say otherwise; stacked heads have their own."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
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
    for kind, ordinary in by_kind.items():
        if kind == "sgd":
            optimisers.append(torch.optim.SGD(ordinary, lr=0.01, momentum=momentum, fused=cuda or None))
        elif kind in ("adam", "adamw"):
            make = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
            fused = True if cuda or kind == "adamw" else None  # results of adam on the CPU are recorded as they are
            optimisers.append(make(ordinary, capturable=cuda, fused=fused))
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
