"""Time and memory of a training step against the number of annotators, by the form that their heads have.

    python benchmarks/annotators.py [--device cuda] [--out FILE]

The step is the last stage of TAIDTM-FT, with full or factored heads, or of TAIDTM, with heads mapped over a graph of 50
neighbours each (two labels for each instance, 10 classes, batch 128). Random instances do: only time and memory are measured. The
median of several epochs counts, the first (which warms up) does not; on the CPU it is processor time, on one thread, which other
work on the machine disturbs less. Full heads are left out where they do not fit.

Memory is the peak: what the GPU holds in all, or what a process of its own on the CPU holds more than before it began.
On a GPU instances are pictures for a ResNet-18, on the CPU 32 features for a small network.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import resource
import time
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import crowdwise
from crowdwise import Annotations, graph
from crowdwise.engine import Engine, Problem, Stage, StageResult
from crowdwise.engine.device import resolve_device
from crowdwise.errors import ConfigError
from crowdwise.methods.base import build
from crowdwise.methods.taidtm import TAIDTM
from crowdwise.networks import FactoredHeads, GlobalHead, IndividualHeads

CLASSES, BATCH, NEIGHBOURS = 10, 128, 50


@dataclass(frozen=True)
class Case:
    """What is measured once."""

    heads: str  # "full", "factored" or "mapped"
    annotators: int
    backbone: str
    bottleneck: int
    rank: int
    instances: int
    epochs: int
    device: str


def random_graph(n_annotators: int, k: int, rng: np.random.Generator) -> sp.csr_array:
    k = min(k, n_annotators - 1)
    columns = rng.integers(n_annotators, size=(n_annotators, k)).ravel()
    rows = np.repeat(np.arange(n_annotators), k)
    found = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n_annotators, n_annotators))
    found.data[:] = 1
    return graph.add_self_loops(found)


def measure(case: Case) -> dict[str, Any]:
    """Milliseconds of a step, the peak of memory and the width of a head; or why there are none."""
    rng = np.random.default_rng(0)
    n, device = case.instances, resolve_device(case.device)
    before = start_memory(device)
    pictures = rng.integers(0, 256, size=(n, 28, 28), dtype=np.uint8)
    X = rng.normal(size=(n, 32)).astype(np.float32) if case.backbone == "mlp" else pictures
    crowd = Annotations.from_triples(
        np.repeat(np.arange(n), 2),
        rng.integers(case.annotators, size=2 * n),
        rng.integers(CLASSES, size=2 * n),
        n_instances=n,
        n_annotators=case.annotators,
        n_classes=CLASSES,
    )
    problem = Problem.make(X, crowd, device=device, seed=0, validation_fraction=0.0)
    spent: list[float] = []  # processor time at the end of each epoch
    engine = Engine(problem, observer=lambda record, _: spent.append(time.process_time()))
    rank = None if case.heads == "full" else case.rank
    model = TAIDTM(
        backbone=case.backbone, bottleneck=case.bottleneck, epochs=case.epochs, batch_size=BATCH, head_rank=rank
    )
    transition = build(engine, "transition", lambda: model.new_transition(problem.shape))
    width = int(transition.width)

    def stages() -> Generator[Stage, StageResult, StageResult]:
        start = build(engine, "global head", lambda: GlobalHead(width, CLASSES))
        if case.heads == "full":
            transition.head = IndividualHeads.from_global(start, case.annotators)
        elif case.heads == "factored":
            transition.head = build(
                engine, "heads", lambda: FactoredHeads.from_global(start, case.annotators, case.rank)
            )
        else:
            matrix = random_graph(case.annotators, NEIGHBOURS, rng)
            transition.head = build(engine, "heads", lambda: model.mapped_heads(matrix, width, CLASSES, None))
        return (yield model.correction(engine, "correction", model.new_classifier(engine, "classifier"), transition))

    try:
        model.rank_of_heads(problem)
    except ConfigError as error:
        return {"features": width, "left_out": str(error)}
    history = engine.run(stages()).history
    epochs = [record["seconds"] for record in history[1:]] if device.type == "cuda" else np.diff(spent)
    seconds = float(np.median(epochs)) / -(-n // BATCH)
    return {"features": width, "ms_per_step": round(1000 * seconds, 3), "memory_gb": peak_memory(device) - before}


def start_memory(device: torch.device) -> float:
    if device.type != "cuda":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return 0.0


def peak_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def cases(arguments: argparse.Namespace) -> list[Case]:
    cuda = resolve_device(arguments.device).type == "cuda"
    backbone = arguments.backbone or ("resnet18" if cuda else "mlp")
    bottlenecks = arguments.bottleneck or ([64, 0] if cuda else [16])
    instances, epochs = arguments.instances or (3_200 if cuda else 1_280), arguments.epochs or (5 if cuda else 3)
    return [
        Case(heads, size, backbone, bottleneck, arguments.rank, instances, epochs, arguments.device)
        for bottleneck in bottlenecks
        for heads in arguments.heads
        for size in arguments.annotators
        if bottleneck or heads != "mapped"  # its time hardly depends on the width
    ]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--annotators", type=int, nargs="+", default=[300, 3_000, 30_000, 100_000])
    parser.add_argument("--heads", nargs="+", default=["mapped", "factored", "full"])
    parser.add_argument("--rank", type=int, default=16, help="of factored heads")
    parser.add_argument("--backbone")
    parser.add_argument("--bottleneck", type=int, nargs="+", help="width of the layer before the heads; 0: none")
    parser.add_argument("--instances", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    cuda = resolve_device(arguments.device).type == "cuda"
    warnings.simplefilter("ignore")
    first: dict[tuple[str, int], float] = {}
    print(f"{'heads':9} {'features':>8} {'annotators':>10} {'ms a step':>10} {'relative':>8} {'GB':>7}")
    for case in cases(arguments):
        if cuda:
            found = measure(case)
        else:  # a process of its own, whose memory is that of this case alone
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found = pool.apply(measure, (case,))
        row: dict[str, Any] = {
            "benchmark": "annotators",
            "heads": case.heads,
            "annotators": case.annotators,
            "backbone": case.backbone,
            "rank": case.rank if case.heads == "factored" else None,
            **found,
            "crowdwise": crowdwise.__version__,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if cuda else f"cpu x{os.cpu_count()}",
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        shown = f"{case.heads:9} {found['features']:8} {case.annotators:10,}"
        if "left_out" in found:
            print(f"{shown} left out: {found['left_out']}", flush=True)
        else:
            base = first.setdefault((case.heads, case.bottleneck), found["ms_per_step"])
            row["ratio"], row["memory_gb"] = round(found["ms_per_step"] / base, 3), round(found["memory_gb"], 3)
            numbers = f"{found['ms_per_step']:10.2f} {row['ratio']:8.2f} {row['memory_gb']:7.2f}"
            print(f"{shown} {numbers}", flush=True)
        if arguments.out:
            with open(arguments.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
