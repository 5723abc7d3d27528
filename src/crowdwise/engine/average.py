"""A running average of weights (EMA), which predicts better than the last weights do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn


class Average(nn.Module):
    """An average of the state of modules, batch-norm statistics included, over the steps of a stage.

    After step t it moves by 1 - min(``decay``, t / (t + 9)) towards the weights, so that it forgets where they started. All
    of it is tensors on the device: it can be part of a recorded step, and checkpoints hold it.
    """

    count: Tensor

    def __init__(self, modules: Iterable[nn.Module], decay: float) -> None:
        super().__init__()
        self.decay = decay
        own = [tensor for module in modules for tensor in module.state_dict(keep_vars=True).values()]
        unique = list({id(tensor): tensor.detach() for tensor in own}.values())
        self.live = [tensor for tensor in unique if tensor.is_floating_point()]
        self.shadow = nn.ParameterList([nn.Parameter(tensor.clone(), requires_grad=False) for tensor in self.live])
        self.register_buffer("count", torch.zeros((), device=self.live[0].device if self.live else None))
        self._swapped = False
        self._values: list[Tensor] = []  # of the shadow, which is slow to go through

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step."""
        self.count.add_(1)
        shadow = self._shadow()
        if self.count.device.type == "cpu":
            count = float(self.count)
            torch._foreach_lerp_(shadow, self.live, 1 - min(count / (count + 9), self.decay))
            return
        keep = (self.count / (self.count + 9)).clamp_max(self.decay)
        change = torch._foreach_sub(self.live, shadow)
        torch._foreach_mul_(change, 1 - keep)
        torch._foreach_add_(shadow, change)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The modules hold the average inside, their own weights outside; tensors stay where they are."""
        if self._swapped:
            yield
            return
        own = [tensor.clone() for tensor in self.live]
        self.adopt()
        self._swapped = True
        try:
            yield
        finally:
            self._swapped = False
            with torch.no_grad():
                torch._foreach_copy_(self.live, own)

    @torch.no_grad()
    def adopt(self) -> None:
        """Copy the average into the modules."""
        torch._foreach_copy_(self.live, self._shadow())

    def _shadow(self) -> list[Tensor]:
        if not self._values:
            self._values = [tensor.detach() for tensor in self.shadow]
        return self._values
