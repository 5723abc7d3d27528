"""Time and memory of a training step against the number of annotators, by the form that their heads have.

    python benchmarks/annotators.py [--device cuda] [--out FILE]
    python benchmarks/annotators.py --train [--device cuda] [--out FILE]

The step is the last stage of TAIDTM-FT, with full or factored heads, or of TAIDTM, with heads mapped over a graph of 50
neighbours each (two labels for each instance, 10 classes, batch 128). Random instances do: only time and memory are measured. The
median of several epochs counts, the first (which warms up) does not; on the CPU it is processor time, on one thread, which other
work on the machine disturbs less. Full heads are left out where they do not fit.

Memory is the peak: what the GPU holds in all, or what a process of its own on the CPU holds more than before it began.
On a GPU instances are pictures for a ResNet-18, on the CPU 32 features for a small network.

With ``--train`` a whole TAIDTM with its annotator graph is fitted to 100,000 instances of 32 features, with five labels each from
a crowd of three kinds of annotators, and then used, saved and loaded: seconds of each part (on the CPU, processor time), and the
peak of memory. Stages have one epoch (the warm-up three, individual heads two), with batches of 1,024.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import multiprocessing
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
import torch

import crowdwise
from crowdwise import Annotations, graph
from crowdwise.bench.measure import versions
from crowdwise.callbacks import Callbacks, FromObserver
from crowdwise.engine import Engine, Problem, Stage, StageResult
from crowdwise.engine.device import resolve_device
from crowdwise.errors import ConfigError
from crowdwise.methods.core import base
from crowdwise.methods.core.base import build
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
    engine = Engine(problem, callbacks=Callbacks([FromObserver(lambda *_: spent.append(time.process_time()))]))
    rank = None if case.heads == "full" else case.rank
    model = TAIDTM(
        recipe="paper",
        backbone=case.backbone,
        bottleneck=case.bottleneck,
        epochs=case.epochs,
        batch_size=BATCH,
        head_rank=rank,
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
        correction = model.correction(engine, "correction", model.new_classifier(engine, "classifier"), transition)
        return (yield dataclasses.replace(correction, guard="off", keeps_classes=False))  # labels are random

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


@dataclass(frozen=True)
class Training:
    """A whole fit that is measured once."""

    annotators: int
    rank: int | str
    bottleneck: int
    instances: int
    batch_size: int
    labels: int
    device: str


class Stopwatch:
    """Seconds of everything that has a name: processor time on the CPU, which other work disturbs less."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}

    def now(self) -> float:
        if self.device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def __call__(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added up under ``name``; that of a stage under the stage's."""

        def timed(*words: Any, **options: Any) -> Any:
            start = self.now()
            result = function(*words, **options)
            shown = name or words[-1].name
            self.seconds[shown] = self.seconds.get(shown, 0.0) + self.now() - start
            return result

        return timed


def kinds_of_annotators(case: Training) -> tuple[np.ndarray, Annotations, np.ndarray, np.ndarray]:
    """Instances, what a crowd of three kinds of annotators says of them, true classes, and kinds.

    Annotators are right in three of four cases; otherwise the kind decides which wrong class they name.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=case.instances)
    X = (3 * np.eye(CLASSES, 32)[y] + rng.normal(size=(len(y), 32))).astype(np.float32)
    instance = np.repeat(np.arange(len(y)), case.labels)
    annotator = rng.integers(case.annotators, size=len(instance))
    kind = np.arange(case.annotators) % 3
    wrong = (y[instance] + 1 + kind[annotator]) % CLASSES
    label = np.where(rng.random(len(instance)) < 0.75, y[instance], wrong)
    sizes = {"n_instances": len(y), "n_annotators": case.annotators, "n_classes": CLASSES}
    return X, Annotations.from_triples(instance, annotator, label, **sizes), y, kind


def train(case: Training) -> dict[str, Any]:
    """Seconds of all parts of a fit, and of what follows it; the peak of memory; accuracy and precision of the graph."""
    device = resolve_device(case.device)
    before, host = start_memory(device), start_memory(torch.device("cpu"))
    X, crowd, y, kind = kinds_of_annotators(case)
    model = TAIDTM(
        recipe="paper",
        classifier_start="sharpened",  # random weights lose classes where there are few examples
        backbone="mlp",
        bottleneck=case.bottleneck,
        head_rank=case.rank,
        batch_size=case.batch_size,
        lr=0.05,
        warmup_epochs=3,
        warmup_lr=0.05,
        max_retries=1,
        transition_epochs=1,
        gcn_epochs=1,
        epochs=1,
        min_examples=3,
        prior_weight=0.0,
        device=case.device,
        verbose=0,
    )
    watch = Stopwatch(device)
    parts = {
        "": (Engine, "_stage"),
        "alignment": (FactoredHeads, "align"),
        "neighbours": (graph, "nearest"),
        "purifying": (graph, "purify"),
        "positions": (graph, "pca"),
        "mapping": (TAIDTM, "mapped_heads"),
        "skill": (base, "annotator_skill"),
    }
    started, spent = time.perf_counter(), watch.now()
    with ExitStack() as patches:
        for name, (owner, function) in parts.items():
            patches.enter_context(mock.patch.object(owner, function, watch(name, getattr(owner, function))))
        model.fit(X, crowd)
    watch.seconds["rest of the fit"] = watch.now() - spent - sum(watch.seconds.values())
    fit = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        watch("save", model.save)(Path(folder) / "model")
        watch("load", crowdwise.load)(Path(folder) / "model", device=case.device)
    predicted = watch("predict", model.predict)(X[:10_000])
    watch("transition", model.transition)(X[:100], model.annotators_[:100])
    annotators = model.annotator_graph_
    watch("groups", graph.found_groups)(annotators.after)
    return {
        "heads": "factored" if "alignment" in watch.seconds else "full",
        "seconds": {name: round(value, 3) for name, value in watch.seconds.items()},
        "fit_seconds": round(fit, 1),
        "memory_gb": round(peak_memory(device) - before, 3),
        "host_gb": round(peak_memory(torch.device("cpu")) - host, 3),
        "edges": annotators.after.nnz,
        "skipped": len(annotators.skipped),
        "accuracy": float(np.mean(predicted == y[:10_000])),
        "edge_precision": round(graph.edge_precision(annotators.before, kind).overall, 4),
    }


def apart(function: Callable[[Any], dict[str, Any]], case: Any, cuda: bool) -> dict[str, Any]:
    """What a measurement finds, on the CPU in a process of its own, whose memory is that of this case alone."""
    if cuda:
        return function(case)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, (case,))


def write(path: Path | None, row: dict[str, Any], cuda: bool) -> None:
    """Append a record, and where and when it was made."""
    about = versions() | {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    if not cuda:
        about["device"] = f"cpu x{os.cpu_count()}"  # also where there is a GPU
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row | about) + "\n")


def steps(arguments: argparse.Namespace, cuda: bool) -> None:
    """Measure steps of the last stage."""
    first: dict[tuple[str, int], float] = {}
    print(f"{'heads':9} {'features':>8} {'annotators':>10} {'ms a step':>10} {'relative':>8} {'GB':>7}")
    for case in cases(arguments):
        found = apart(measure, case, cuda)
        row: dict[str, Any] = {
            "benchmark": "annotators",
            "heads": case.heads,
            "annotators": case.annotators,
            "backbone": case.backbone,
            "rank": case.rank if case.heads == "factored" else None,
            **found,
        }
        shown = f"{case.heads:9} {found['features']:8} {case.annotators:10,}"
        if "left_out" in found:
            print(f"{shown} left out: {found['left_out']}", flush=True)
        else:
            base = first.setdefault((case.heads, case.bottleneck), found["ms_per_step"])
            row["ratio"], row["memory_gb"] = round(found["ms_per_step"] / base, 3), round(found["memory_gb"], 3)
            numbers = f"{found['ms_per_step']:10.2f} {row['ratio']:8.2f} {row['memory_gb']:7.2f}"
            print(f"{shown} {numbers}", flush=True)
        write(arguments.out, row, cuda)


def trainings(arguments: argparse.Namespace, cuda: bool) -> None:
    """Measure whole fits."""
    for size in arguments.annotators:
        case = Training(
            size,
            arguments.rank or "auto",
            (arguments.bottleneck or [64])[0],
            arguments.instances or 100_000,
            arguments.batch_size,
            arguments.labels,
            arguments.device,
        )
        found = apart(train, case, cuda)
        print(
            f"{size:,} annotators, {found['heads']} heads: fit {found['fit_seconds']:.1f} s, {found['memory_gb']:.2f} GB, "
            f"host {found['host_gb']:.2f} GB, accuracy {found['accuracy']:.4f}, "
            f"edge precision {found['edge_precision']:.3f}, {found['skipped']:,} skipped, {found['edges']:,} edges"
        )
        print("".join(f"    {name:18} {seconds:9.2f} s\n" for name, seconds in found["seconds"].items()), flush=True)
        write(arguments.out, {"benchmark": "large_crowd", **dataclasses.asdict(case), **found}, cuda)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="whole fits with an annotator graph instead of steps")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--annotators", type=int, nargs="+", help="300 to 100,000; with --train 1,000 to 100,000")
    parser.add_argument("--heads", nargs="+", default=["mapped", "factored", "full"])
    parser.add_argument("--rank", type=int, default=16, help="of factored heads; with --train 0: what 'auto' chooses")
    parser.add_argument("--backbone")
    parser.add_argument("--bottleneck", type=int, nargs="+", help="width of the layer before the heads; 0: none")
    parser.add_argument("--instances", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int, default=1024, help="with --train")
    parser.add_argument("--labels", type=int, default=5, help="of each instance, with --train")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    arguments.annotators = arguments.annotators or [
        *((1_000, 10_000) if arguments.train else (300, 3_000)),
        30_000,
        100_000,
    ]
    warnings.simplefilter("ignore")
    (trainings if arguments.train else steps)(arguments, resolve_device(arguments.device).type == "cuda")


if __name__ == "__main__":
    main()
