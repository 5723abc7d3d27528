"""Optimisers for the groups of a stage. Learning rates are tensors on the GPU, so that a captured step can follow a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from crowdwise.engine.stage import Group
from crowdwise.errors import ConfigError

Step = TypeVar("Step", bound=Callable[..., Any])


class QuickOptimiser(torch.optim.Optimizer):
    """An optimiser on the CPU, without hooks around its steps, which take as long as a small network's update.

    torch's own optimisers import its compiler when they are made: a second and a half in every new process.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        plain = torch.optim.Optimizer.add_param_group
        getattr(plain, "__wrapped__", plain)(self, param_group)

    def _with_gradients(self) -> Iterator[tuple[dict[str, Any], list[Tensor], list[Tensor]]]:
        """Each group, its parameters that have gradients, and these: what had no say in a batch does not move."""
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            if moving:
                yield group, moving, [cast(Tensor, parameter.grad) for parameter in moving]

    def _states(self, parameters: list[Tensor], key: str, start: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """The state of that name of each parameter; ``start`` makes it where there is none."""
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if key not in state:
                state[key] = start(parameter)
        return [state[key] for state in states]


def _unhooked(step: Step) -> Step:
    step.hooked = True  # type: ignore[attr-defined]
    return step


class RowSGD(QuickOptimiser):
    """SGD with momentum for stacked heads (R, ...): a row without gradient does not move, and keeps its momentum.

    Training R heads in one tensor then equals training each of them alone.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @_unhooked
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group, parameters, gradients in self._with_gradients():
            momenta = self._states(parameters, "momentum_buffer", torch.zeros_like)
            for parameter, gradient, momentum in zip(parameters, gradients, momenta, strict=True):
                rows = torch.nonzero(gradient.flatten(1).ne(0).any(1)).squeeze(1)
                update = gradient[rows] + group["weight_decay"] * parameter[rows]
                update += group["momentum"] * momentum[rows]
                momentum[rows] = update
                parameter[rows] -= group["lr"] * update


class QuickSGD(QuickOptimiser):
    """torch's SGD on the CPU."""

    def __init__(self, params: Iterable[dict[str, Any]], momentum: float) -> None:
        super().__init__(params, {"lr": 0.01, "momentum": momentum, "weight_decay": 0.0})

    @_unhooked
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group, parameters, gradients in self._with_gradients():
            if group["weight_decay"]:
                gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
            if group["momentum"]:
                momenta = self._states(parameters, "momentum_buffer", torch.zeros_like)
                torch._foreach_mul_(momenta, group["momentum"])
                torch._foreach_add_(momenta, gradients)
                gradients = momenta
            torch._foreach_add_(parameters, gradients, alpha=-group["lr"])


class QuickAdamW(QuickOptimiser):
    """torch's AdamW on the CPU, by its fused kernel."""

    def __init__(self, params: Iterable[dict[str, Any]]) -> None:
        super().__init__(params, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01})

    @_unhooked
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group, parameters, gradients in self._with_gradients():
            first = self._states(parameters, "exp_avg", torch.zeros_like)
            second = self._states(parameters, "exp_avg_sq", torch.zeros_like)
            steps = self._states(parameters, "step", lambda _: torch.zeros(()))
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                parameters,
                gradients,
                first,
                second,
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )


def make_optimisers(
    name: str, groups: Iterable[Group], momentum: float, device: torch.device
) -> list[torch.optim.Optimizer]:
    """An optimiser for each kind that the groups ask for, ``name`` unless they say otherwise; stacked heads have their own."""
    cuda = device.type == "cuda"
    by_kind: dict[str, list[dict[str, Any]]] = {}
    recorded = set()  # kinds whose results on the CPU are recorded as they are
    optimisers: list[torch.optim.Optimizer] = []
    for group in groups:
        parameters = [parameter for parameter in group.module.parameters() if parameter.requires_grad]
        if group.rows:
            optimisers.append(RowSGD(parameters, group.lr, momentum, group.weight_decay))
        elif parameters:
            kind = group.optimiser or name
            rate = torch.tensor(group.lr, device=device) if cuda else group.lr
            settings = {"params": parameters, "lr": rate, "weight_decay": group.weight_decay}
            by_kind.setdefault(kind, []).append(settings)
            if group.optimiser is None or group.weight_decay:
                recorded.add(kind)
    for kind, settings_of_kind in by_kind.items():
        if cuda:
            optimisers.append(_on_cuda(kind, settings_of_kind, momentum))
        else:
            optimisers.append(_on_cpu(kind, settings_of_kind, momentum, recorded=kind in recorded))
    for optimiser in optimisers:
        for made in optimiser.param_groups:
            made["initial_lr"] = float(made["lr"])
    return optimisers


def _on_cuda(kind: str, groups: list[dict[str, Any]], momentum: float) -> torch.optim.Optimizer:
    """An optimiser whose steps can be recorded in a CUDA graph."""
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=0.01, momentum=momentum, fused=True)
    if kind == "adam":
        return torch.optim.Adam(groups, capturable=True, fused=True)
    if kind == "adamw":
        return torch.optim.AdamW(groups, capturable=True, fused=True)
    if kind == "radam":
        return torch.optim.RAdam(groups, capturable=True)
    raise _unknown(kind)


def _on_cpu(kind: str, groups: list[dict[str, Any]], momentum: float, *, recorded: bool) -> torch.optim.Optimizer:
    """An optimiser for the CPU; the plain Adam where results are ``recorded`` with it."""
    if kind == "sgd":
        return QuickSGD(groups, momentum)
    if kind == "adamw" or (kind == "adam" and not recorded):
        return QuickAdamW(groups)  # without weight decay, Adam is the same
    if kind == "adam":
        return torch.optim.Adam(groups)
    if kind == "radam":
        return torch.optim.RAdam(groups)
    raise _unknown(kind)


def _unknown(kind: str) -> ConfigError:
    return ConfigError(f"unknown optimiser {kind!r}; use 'sgd', 'adam', 'adamw' or 'radam'")


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
