"""Optimisers on the CPU, beside torch's own."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from crowdwise.engine.optimisers import QuickAdamW, QuickSGD


@pytest.mark.parametrize("kind", ["adamw", "sgd", "sgd without momentum"])
def test_quick_optimisers_do_what_torch_does(kind):
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(4, 3, generator=generator), torch.randn(5, generator=generator)]
    mine, theirs = ([value.clone().requires_grad_() for value in start] for _ in range(2))
    groups = [
        [{"params": [p], "lr": 0.1, "weight_decay": 0.01 * k} for k, p in enumerate(own)] for own in (mine, theirs)
    ]
    if kind == "adamw":
        optimisers = QuickAdamW(groups[0]), torch.optim.AdamW(groups[1], fused=True)
    else:
        momentum = 0.9 if kind == "sgd" else 0.0
        optimisers = QuickSGD(groups[0], momentum), torch.optim.SGD(groups[1], momentum=momentum)
    for step in range(4):
        slopes = [torch.randn(p.shape, generator=generator) for p in start]
        for own in (mine, theirs):
            own[0].grad = slopes[0].clone()
            own[1].grad = None if step == 1 else slopes[1].clone()  # what has no gradient does not move
        for optimiser in optimisers:
            optimiser.step()
        for a, b in zip(mine, theirs, strict=True):
            assert torch.equal(a, b)


def test_training_on_the_cpu_does_not_import_the_compiler():
    code = """
import sys, warnings
import numpy as np
warnings.simplefilter("ignore")
import crowdwise
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4)).astype("float32")
labels = np.stack([(X[:, 0] > 0) ^ (rng.random(60) < 0.2) for _ in range(4)], 1).astype(int)
crowdwise.TAIDTM(epochs=1, device="cpu", verbose=0, random_state=0).fit(X, labels).predict(X)
print("compiler" if "torch._dynamo" in sys.modules else "light")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "light"
