"""Time of a joint training step against the number of annotators: 300, 3,000, 30,000.

    python benchmarks/annotators.py [--backbone resnet18] [--out FILE]

The step is TAIDTM's last stage (classifier, transition network and graph-mapped heads trained together, batch 128, two
labels for each instance, 10 classes). Random pictures do: only time is measured. The median of several epochs counts, the
first (which warms up) does not.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import crowdwise
from crowdwise import Annotations, graph
from crowdwise.engine import Engine, Problem, Stage, StageResult
from crowdwise.engine.device import resolve_device
from crowdwise.methods.base import build
from crowdwise.methods.taidtm import TAIDTM


def random_graph(n_annotators: int, k: int, rng: np.random.Generator) -> sp.csr_array:
    k = min(k, n_annotators - 1)
    columns = rng.integers(n_annotators, size=(n_annotators, k)).ravel()
    rows = np.repeat(np.arange(n_annotators), k)
    found = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n_annotators, n_annotators))
    found.data[:] = 1
    return graph.add_self_loops(found)


def seconds_per_step(n_annotators: int, backbone: str, n: int, epochs: int) -> float:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(n, 28, 28), dtype=np.uint8)
    instance = np.repeat(np.arange(n), 2)
    crowd = Annotations.from_triples(
        instance,
        rng.integers(n_annotators, size=2 * n),
        rng.integers(10, size=2 * n),
        n_instances=n,
        n_annotators=n_annotators,
        n_classes=10,
    )
    problem = Problem.make(X, crowd, device=resolve_device("auto"), seed=0, validation_fraction=0.0)
    engine = Engine(problem)
    model = TAIDTM(backbone=backbone, epochs=epochs)

    def stages() -> Generator[Stage, StageResult, StageResult]:
        transition = build(engine, "transition", lambda: model.new_transition(problem.shape))
        matrix = random_graph(n_annotators, 50, rng)
        transition.head = build(engine, "heads", lambda: model.mapped_heads(matrix, transition.width, 10, None))
        return (yield model.correction(engine, "correction", model.new_classifier(engine, "classifier"), transition))

    result = engine.run(stages())
    return float(np.median([record["seconds"] for record in result.history[1:]])) / (n // 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="resnet18" if torch.cuda.is_available() else "cnn")
    parser.add_argument("--instances", type=int, default=12_800)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    first = 0.0
    for n_annotators in (300, 3_000, 30_000):
        seconds = seconds_per_step(n_annotators, arguments.backbone, arguments.instances, arguments.epochs)
        first = first or seconds
        row: dict[str, Any] = {
            "benchmark": "annotators",
            "annotators": n_annotators,
            "backbone": arguments.backbone,
            "ms_per_step": round(1000 * seconds, 3),
            "ratio": round(seconds / first, 3),
            "crowdwise": crowdwise.__version__,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else f"cpu x{os.cpu_count()}",
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        print(f"{n_annotators:7,} annotators  {1000 * seconds:8.2f} ms a step  ratio {seconds / first:.2f}", flush=True)
        if arguments.out:
            with open(arguments.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
