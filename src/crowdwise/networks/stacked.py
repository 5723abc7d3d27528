"""K classifiers in one module: trained in one pass, on batches that hold every instance K times, and averaged in prediction.

Fully connected networks are stacked into batched products; other backbones are run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.networks.classifier import Classifier
from crowdwise.networks.layers import ByteDropout, StackedLinear, product

_ROWS = 256  # instances that go through K networks at a time on the CPU


class LastLayer(StackedLinear):
    """K linear layers on the blocks of a batch: (K B, in) -> (K B, out)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.unflatten(0, (len(self.weight), -1))).flatten(0, 1)


class StackedNorm(nn.Module):
    """K batch norms of rows: (K, B, d) -> (K, B, d)."""

    def __init__(self, layers: Sequence[nn.BatchNorm1d]) -> None:
        super().__init__()
        first = layers[0]
        self.norm = type(first)(len(layers) * first.num_features, eps=first.eps, momentum=first.momentum)
        states = [layer.state_dict() for layer in layers]
        joined = {name: torch.cat([state[name] for state in states]) for name, value in states[0].items() if value.ndim}
        self.norm.load_state_dict(joined, strict=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x.transpose(0, 1).flatten(1))  # (B, K d)
        stacked: Tensor = rows.view(x.shape[1], x.shape[0], x.shape[2]).transpose(0, 1)
        return stacked

    def one(self, number: int, x: Tensor) -> Tensor:
        """Batch norm ``number`` alone, in evaluation: (1, B, d) -> (1, B, d)."""
        norm, part = self.norm, slice(number * x.shape[2], (number + 1) * x.shape[2])
        known = [None if values is None else values[part] for values in (norm.running_mean, norm.running_var)]
        return F.batch_norm(x[0], known[0], known[1], norm.weight[part], norm.bias[part], eps=norm.eps)[None]


class StackedRows(nn.Module):
    """Backbones that are sequences of layers on rows, stacked layer by layer: (K, B, ...) -> (K, B, d)."""

    def __init__(self, backbones: Sequence[nn.Sequential]) -> None:
        super().__init__()
        layers = zip(*backbones, strict=True)
        self.layers = nn.Sequential(*[_stack_layer(layer) for layer in layers])

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features

    def one(self, number: int, x: Tensor) -> Tensor:
        """Network ``number`` alone, in evaluation: (B, ...) -> (B, d)."""
        x = x[None]
        for layer in self.layers:
            x = layer.one(number, x) if isinstance(layer, StackedLinear | StackedNorm) else layer(x)
        return x[0]

    def of_all(self, last: StackedLinear) -> Callable[[Tensor], Tensor] | None:
        """A function from instances, which are not repeated, to (K, out, B) of all networks and a ``last`` layer.

        For evaluation on the CPU, with the weights as they are now: the first layers are one product, of so few rows at a
        time that what follows finds them in the caches. The last layers' products are transposed, as those with few columns
        take four times as long as those with few rows. None for networks that do not start with a linear layer.
        """
        passive = (nn.Flatten, nn.Dropout, nn.Identity)
        first, *rest = [layer for layer in self.layers if not isinstance(layer, passive)] or [self]
        if not isinstance(first, StackedLinear):
            return None
        networks, relu = len(first.weight), bool(rest) and type(rest[0]) is nn.ReLU
        weight, bias = first.weight.mT.flatten(0, 1), first.bias.flatten()  # (K d, in), (K d,)
        few, offset = last.weight.transpose(1, 2).contiguous(), last.bias.transpose(1, 2)  # (K, out, d), (K, out, 1)
        memory = weight.new_empty(_ROWS, len(bias))  # new memory for each block would take as long as the product

        def block(x: Tensor) -> Tensor:
            h = product(x, weight, bias, relu, out=memory[: len(x)])
            h = h.view(len(x), networks, first.out_features).transpose(0, 1)  # (K, b, d)
            for layer in rest[relu:]:
                h = h.relu_() if type(layer) is nn.ReLU else layer(h)
            return torch.baddbmm(offset, few, h.transpose(1, 2))

        return lambda x: torch.cat([block(part) for part in x.flatten(1).split(_ROWS)], 2)

    @staticmethod
    def fits(backbone: nn.Module) -> bool:
        """Whether all layers of a backbone have a stacked form."""
        elementwise = (nn.ReLU, nn.Dropout, nn.Tanh, nn.GELU, nn.SiLU, nn.Identity)
        return isinstance(backbone, nn.Sequential) and all(
            isinstance(layer, (nn.Flatten, *elementwise))
            or (isinstance(layer, nn.Linear) and layer.bias is not None)
            or (isinstance(layer, nn.BatchNorm1d) and layer.affine and layer.track_running_stats)
            for layer in backbone
        )


def _stack_layer(layers: Sequence[nn.Module]) -> nn.Module:
    if isinstance(layers[0], nn.Linear):
        return StackedLinear([layer for layer in layers if isinstance(layer, nn.Linear)])
    if isinstance(layers[0], nn.BatchNorm1d):
        return StackedNorm([layer for layer in layers if isinstance(layer, nn.BatchNorm1d)])
    if isinstance(layers[0], nn.Dropout):
        return ByteDropout(layers[0].p)
    return nn.Flatten(2) if isinstance(layers[0], nn.Flatten) else layers[0]


class OneByOne(nn.Module):
    """Backbones of any kind: (K, B, ...) -> (K, B, d)."""

    def __init__(self, backbones: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(backbones)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(part).float() for member, part in zip(self.members, x, strict=True)])

    def one(self, number: int, x: Tensor) -> Tensor:
        """Network ``number`` alone: (B, ...) -> (B, d)."""
        features: Tensor = self.members[number](x)
        return features


class Stacked(Classifier):
    """K classifiers. In training (K B, ...) -> logits (K B, C), block k through network k.

    In evaluation (B, ...) -> (B, C): the logarithm of the networks' mean probabilities; ``features`` gives their mean.
    """

    def __init__(self, classifiers: Sequence[Classifier]) -> None:
        nn.Module.__init__(self)
        self.networks = len(classifiers)
        backbones = [classifier.backbone for classifier in classifiers]
        sequences = [backbone for backbone in backbones if isinstance(backbone, nn.Sequential)]
        stackable = all(StackedRows.fits(backbone) for backbone in backbones)
        self.backbone: StackedRows | OneByOne = StackedRows(sequences) if stackable else OneByOne(backbones)
        self.linear = LastLayer([each.linear for each in classifiers if isinstance(each.linear, nn.Linear)])

    def multiply_in_half(self, half: bool) -> None:
        """Whether training multiplies wide inputs in bfloat16, where all networks are given the same ones."""
        for layer in self.modules():
            if isinstance(layer, StackedLinear):
                layer.in_half = half

    def features(self, x: Tensor) -> Tensor:
        features = self._features(x)
        return features.flatten(0, 1) if self.training else features.mean(0)

    def forward(self, x: Tensor) -> Tensor:
        features = self._features(x).flatten(0, 1)
        with torch.autocast(x.device.type, enabled=False):
            logits: Tensor = self.linear(features)
        if self.training:
            return logits
        members = F.log_softmax(logits.unflatten(0, (self.networks, -1)), 2)
        return torch.logsumexp(members, 0) - torch.log(torch.tensor(float(self.networks), device=x.device))

    def member_function(self) -> Callable[[Tensor], Tensor]:
        """Logits of every network, (B, ...) -> (K, C, B), for many batches in evaluation, with the weights as they are now."""
        plain = not (self.training or torch.is_autocast_enabled("cpu"))
        if plain and isinstance(self.backbone, StackedRows) and self.linear.weight.device.type == "cpu":
            with torch.no_grad():
                logits = self.backbone.of_all(cast(LastLayer, self.linear))
            if logits is not None:
                return logits
        return lambda x: self.member_logits(x).permute(1, 2, 0)

    def member_logits(self, x: Tensor) -> Tensor:
        """Logits of every network, for instances that are not repeated: (B, ...) -> (B, K, C)."""
        features = self.backbone(x.expand(self.networks, *x.shape)).float()
        with torch.autocast(x.device.type, enabled=False):
            return StackedLinear.forward(cast(LastLayer, self.linear), features).transpose(0, 1)

    def one_logits(self, number: int, x: Tensor) -> Tensor:
        """Logits of one network, in evaluation: (B, ...) -> (B, C)."""
        features = self.backbone.one(number, x).float()
        with torch.autocast(x.device.type, enabled=False):
            return cast(LastLayer, self.linear).one(number, features[None])[0]

    def _features(self, x: Tensor) -> Tensor:  # (K, B, d)
        blocks = x.unflatten(0, (self.networks, -1)) if self.training else x.expand(self.networks, *x.shape)
        features: Tensor = self.backbone(blocks)
        return features.float()


class MeanFeatures(nn.Module):
    """The mean features of K stacked backbones, for instances that are not repeated: (B, ...) -> (B, d)."""

    def __init__(self, backbone: nn.Module, networks: int) -> None:
        super().__init__()
        self.backbone, self.copies = backbone, networks

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.backbone(x.expand(self.copies, *x.shape)).mean(0)
        return features
