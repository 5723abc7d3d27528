"""Seconds of an epoch in each stage of TAIDTM, and of the same joint step written densely in plain PyTorch.

    python benchmarks/engine.py --preset fashion-mnist [--out FILE]     # ResNet-18, 54,000 pictures of 28 x 28
    python benchmarks/engine.py --preset cifar10                        # ResNet-34, 45,000 pictures of 32 x 32 x 3
    python benchmarks/engine.py --batch-size 512 --unfused              # without the kernels of crowdwise.networks.fused_norm
    python benchmarks/engine.py --limit 512 --backbone cnn --epochs 2 --dense-steps 2    # a try on a CPU

Random pictures and labels do: only time is measured. 300 annotators, two labels for each picture, 10 classes, batch 128. An
epoch counts with the median of ``--epochs`` repetitions; one more before these warms up and does not count. The share of the
peak is that of the backbones' floating-point operations, forward and backward, in ``--peak`` (990 TFLOP/s: dense bfloat16 of
an NVIDIA H200); heads, losses and updates are left out of the count, but not of the time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from crowdwise import Annotations, graph
from crowdwise.bench.measure import versions
from crowdwise.engine import Engine, Problem, Stage, StageResult
from crowdwise.engine.device import resolve_device
from crowdwise.engine.tensors import Units, pairs_of
from crowdwise.methods.core.base import build
from crowdwise.methods.taidtm import TAIDTM, AnnotatorGraph
from crowdwise.networks import Classifier, TransitionNetwork

ANNOTATORS, LABELS, CLASSES, NEIGHBOURS = 300, 2, 10, 50
DISTILLED = 1 / 3  # of the instances, as on Fashion-MNIST
H200 = 990.0  # TFLOP/s


@dataclass(frozen=True)
class Size:
    """What the paper trains on, a tenth of which is held out."""

    instances: int
    picture: tuple[int, ...]
    backbone: str


SIZES = {
    "fashion-mnist": Size(54_000, (28, 28), "resnet18"),
    "cifar10": Size(45_000, (32, 32, 3), "resnet34"),
}


@dataclass(frozen=True)
class Timing:
    """Seconds of one step (B instances), how many make an epoch, and the backbones' operations in one."""

    name: str
    step_seconds: float
    steps: int
    flops: float = 0.0

    def share(self, peak: float | None) -> float | None:
        """Of the peak (TFLOP/s), what the backbones get."""
        return self.flops / self.step_seconds / (peak * 1e12) if peak and self.flops else None


def random_problem(n: int, picture: tuple[int, ...], device: torch.device) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(n, *picture), dtype=np.uint8)
    first = rng.integers(ANNOTATORS, size=n)
    second = (first + rng.integers(1, ANNOTATORS, size=n)) % ANNOTATORS  # no one labels a picture twice
    crowd = Annotations.from_triples(
        np.repeat(np.arange(n), LABELS),
        np.stack([first, second], axis=1).ravel(),
        rng.integers(CLASSES, size=LABELS * n),
        n_instances=n,
        n_annotators=ANNOTATORS,
        n_classes=CLASSES,
    )
    return Problem.make(X, crowd, device=device, seed=0, validation_fraction=0.0)


def random_graph() -> AnnotatorGraph:
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(ANNOTATORS), NEIGHBOURS)
    columns = np.concatenate([rng.choice(ANNOTATORS, NEIGHBOURS, replace=False) for _ in range(ANNOTATORS)])
    before = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(ANNOTATORS, ANNOTATORS))
    return AnnotatorGraph(before, graph.add_self_loops(before), np.zeros((ANNOTATORS, 2)), np.zeros(0), 0.0, 0.0)


class Stages:
    """TAIDTM's stages on a random problem, each ready to be trained on its own."""

    def __init__(self, problem: Problem, backbone: str, epochs: int, batch_size: int) -> None:
        every = dict.fromkeys(("epochs", "warmup_epochs", "transition_epochs", "gcn_epochs"), epochs)
        self.engine = Engine(problem)
        self.model = TAIDTM(recipe="paper", backbone=backbone, batch_size=batch_size, lr=0.01, min_examples=2, **every)

    def networks(self) -> tuple[Classifier, TransitionNetwork]:
        """A classifier, and a transition network with heads that are mapped from an annotator graph."""
        model, engine = self.model, self.engine
        transition: TransitionNetwork = build(engine, "transition", lambda: model.new_transition(engine.problem.shape))
        heads = lambda: model.mapped_heads(random_graph().after, transition.width, CLASSES, None)  # noqa: E731
        transition.head = build(engine, "heads", heads)
        return model.new_classifier(engine, "classifier"), transition

    def distilled(self) -> Units:
        units = self.engine.problem.train
        at = torch.arange(int(DISTILLED * len(units)), device=units.device)
        return units.subset(at, target=at % CLASSES)

    def warm_up(self) -> Stage:
        return next(self.model.warm_up(self.engine))

    def global_transition(self) -> Stage:
        return next(self.model.fit_global(self.engine, self.distilled()))

    def mapped_heads(self) -> Stage:
        stages = self.model.fit_global(self.engine, self.distilled())
        transition = next(stages).groups["transition"].module
        assert isinstance(transition, TransitionNetwork)
        return next(self.model.fit_mapping(self.engine, transition, self.distilled(), random_graph()))

    def joint(self) -> Stage:
        classifier, transition = self.networks()
        stage = self.model.correction(self.engine, "joint", classifier, transition)
        return dataclasses.replace(stage, guard="off", keeps_classes=False)  # labels are random

    def time(self, name: str, stage: Stage, networks: int) -> Timing:
        def alone() -> Generator[Stage, StageResult, StageResult]:
            return (yield stage)

        seconds = [record["seconds"] for record in self.engine.run(alone()).history[1:]]
        steps = -(-len(stage.units) // stage.batch_size)
        flops = networks * training_flops(self.model, self.engine.problem.shape, stage.batch_size)
        return Timing(name, statistics.median(seconds) / steps, steps, flops)


def training_flops(model: TAIDTM, shape: tuple[int, ...], batch_size: int) -> float:
    """Floating-point operations of a backbone in a step, forward and backward; a multiplication and an addition are two."""
    backbone = Classifier(model.backbone, shape, CLASSES).backbone
    with FlopCounterMode(display=False) as counter:
        backbone(torch.zeros(2, *shape)).sum().backward()
    return float(counter.get_total_flops()) / 2 * batch_size


# the same joint step as a reader of the paper would write it


def dense_loss(classifier: Classifier, transition: TransitionNetwork, x: Tensor, labels: Tensor) -> Tensor:
    """Forward-corrected loss with T^j(x) of *every* annotator, of which most said nothing.

    ``x`` (B, ...) prepared pictures, ``labels`` (B, R) with -1 where the annotator did not label the instance.
    """
    with torch.autocast(x.device.type, enabled=False):
        theta = transition.head.heads()  # type: ignore[operator]  # (R, d+1, C, C)
    g = transition.features(x)  # (B, d+1)
    f = torch.softmax(classifier(x).float(), dim=1)  # (B, C)
    T = torch.softmax(torch.einsum("bd,rdpq->brpq", g, theta), dim=3)  # (B, R, C, C)
    said = torch.einsum("bp,brpq->brq", f, T)  # (B, R, C): P(annotator r says q)
    return F.nll_loss(said.clamp_min(1e-12).log().flatten(0, 1), labels.flatten(), ignore_index=-1)


def time_dense(stages: Stages, steps: int, repetitions: int) -> Timing:
    """Eager steps: no CUDA graph, no channels_last, no padding; autocast and cuDNN's search as in the engine."""
    engine, model = stages.engine, stages.model
    units, device = engine.problem.train, engine.device
    classifier, transition = (network.train() for network in stages.networks())
    optimiser = torch.optim.SGD(
        [*classifier.parameters(), *transition.parameters()],
        lr=model.training(engine.problem).lr,
        momentum=model.training(engine.problem).momentum,
        weight_decay=model.training(engine.problem).weight_decay,
    )
    size = min(model.training(engine.problem).batch_size, len(units))
    half = torch.autocast(device.type, dtype=engine.dtype, enabled=engine.dtype != torch.float32)

    def step() -> None:
        batch = torch.randint(len(units), (size,), device=device)
        x, labels = dense_batch(units, batch, engine.problem.prepare)
        optimiser.zero_grad(set_to_none=True)
        with half:
            loss = dense_loss(classifier, transition, x, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    seconds = []
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
        for _ in range(repetitions + 1):
            synchronise(device)
            started = time.perf_counter()
            for _ in range(steps):
                step()
            synchronise(device)
            seconds.append((time.perf_counter() - started) / steps)
    flops = 2 * training_flops(model, engine.problem.shape, size)
    return Timing("joint, dense and eager", statistics.median(seconds[1:]), -(-len(units) // size), flops)


def dense_batch(units: Units, batch: Tensor, prepare: nn.Module) -> tuple[Tensor, Tensor]:
    """Pictures (B, ...) and labels (B, R) of the given instances."""
    row, pair = pairs_of(units.indptr, batch)
    labels = torch.full((len(batch), ANNOTATORS), -1, device=batch.device)
    labels[row, units.annotator[pair]] = units.label[pair]
    return prepare(units.inputs.take(units.instance[batch])), labels


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(arguments: argparse.Namespace) -> list[Timing]:
    size = SIZES[arguments.preset]
    n = min(size.instances, arguments.limit or size.instances)
    problem = random_problem(n, size.picture, resolve_device("auto"))
    stages = Stages(problem, arguments.backbone or size.backbone, arguments.epochs + 1, arguments.batch_size)
    timings = [
        stages.time("warm-up", stages.warm_up(), networks=1),
        stages.time("global transition", stages.global_transition(), networks=1),
        stages.time("mapped heads (GCN)", stages.mapped_heads(), networks=0),
        stages.time("joint", stages.joint(), networks=2),
    ]
    return [*timings, time_dense(stages, arguments.dense_steps, arguments.epochs)]


def table(timings: Sequence[Timing], peak: float | None) -> str:
    joint = next(one for one in timings if one.name == "joint")
    lines = [f"{'stage':24} {'s/epoch':>9} {'steps':>6} {'ms/step':>9} {'steps/s':>9} {'of peak':>8} {'of joint':>9}"]
    for one in timings:
        share = one.share(peak)
        lines.append(
            f"{one.name:24} {one.step_seconds * one.steps:9.3f} {one.steps:6} {1000 * one.step_seconds:9.2f} "
            f"{1 / one.step_seconds:9.1f} {'' if share is None else f'{100 * share:.1f} %':>8} "
            f"{one.step_seconds / joint.step_seconds:8.2f}x"
        )
    return "\n".join(lines)


def record(one: Timing, arguments: argparse.Namespace) -> dict[str, Any]:
    share = one.share(arguments.peak)
    return {
        "benchmark": "engine",
        "preset": arguments.preset,
        "backbone": arguments.backbone or SIZES[arguments.preset].backbone,
        "limit": arguments.limit,
        "batch_size": arguments.batch_size,
        "fused": not arguments.unfused,
        "annotators": ANNOTATORS,
        "stage": one.name,
        "epoch_seconds": round(one.step_seconds * one.steps, 4),
        "steps": one.steps,
        "ms_per_step": round(1000 * one.step_seconds, 4),
        "steps_per_second": round(1 / one.step_seconds, 2),
        "gflop_per_step": round(one.flops / 1e9, 3),
        "share_of_peak": None if share is None else round(share, 4),
        "peak_tflops": arguments.peak,
        "repetitions": arguments.epochs,
        **versions(),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def main(words: Sequence[str] | None = None) -> None:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=SIZES, default="fashion-mnist")
    parser.add_argument("--backbone", help="instead of the preset's")
    parser.add_argument("--limit", type=int, help="use only so many instances")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=5, help="repetitions that count")
    parser.add_argument("--dense-steps", type=int, default=50, help="steps of a repetition of the dense reference")
    parser.add_argument("--peak", type=float, default=H200 if gpu else None, help="TFLOP/s of the device")
    parser.add_argument("--out", type=Path, help="append a JSON line for each row to this file")
    parser.add_argument("--unfused", action="store_true", help="batch norm, shortcut and ReLU one after the other")
    arguments = parser.parse_args(words)
    if arguments.unfused:
        os.environ["CROWDWISE_TRITON"] = "0"
    timings = measure(arguments)
    print(table(timings, arguments.peak))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        with open(arguments.out, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(record(one, arguments)) + "\n" for one in timings)


if __name__ == "__main__":
    main()
