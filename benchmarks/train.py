"""Train methods as a preset says, several seeds each, and record every run as a JSON line.

    python benchmarks/train.py --preset labelme --methods ce bltm taidtm-ft taidtm --seeds 10

A record holds configuration, seed, versions, device, stage times, peak memory and metrics. True labels are used for
evaluation only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import crowdwise
from crowdwise import datasets, graph, simulate
from crowdwise.engine.device import resolve_device, resolve_precision
from crowdwise.engine.loop import evaluate
from crowdwise.engine.prepare import Prepare
from crowdwise.engine.problem import make_inputs
from crowdwise.presets import load_preset
from crowdwise.registry import METHODS


def run(
    preset: Any, method: str, seed: int, data: Any, overrides: dict[str, Any], noise_rate: float | None
) -> dict[str, Any]:
    simulated = dict(preset.simulate)
    crowd = None
    if noise_rate is not None:
        simulated["noise_rate"] = noise_rate
    started = time.perf_counter()
    annotations = data.annotations
    if simulated:
        crowd = simulate.aidn(data.X_train, data.y_train, n_classes=data.n_classes, random_state=seed, **simulated)
        annotations = crowd.annotations
    simulate_seconds = time.perf_counter() - started
    parameters = preset.method_parameters(method) | {
        k: v for k, v in overrides.items() if k in METHODS[method].__dataclass_fields__
    }
    model = METHODS[method](**parameters, random_state=seed, verbose=0)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    truth = np.asarray(data.y_test)
    curve = Curve(data, model)
    started = time.perf_counter()
    model.fit(data.X_train, annotations, observer=curve)
    seconds = time.perf_counter() - started - curve.seconds
    codes = {value: code for code, value in enumerate(model.classes_.tolist())}
    predicted = np.array([codes[v] for v in model.predict(data.X_test).tolist()])
    stages: dict[str, float] = {}
    epochs: dict[str, list[float]] = {}
    for record in model.history_:
        stages[record["stage"]] = round(stages.get(record["stage"], 0.0) + record["seconds"], 3)
        epochs.setdefault(record["stage"], []).append(record["seconds"])
    row = {
        "dataset": data.name,
        "method": method,
        "seed": seed,
        "simulate": simulated,
        "parameters": dict(parameters),
        "test_accuracy": round(100 * float((predicted == truth).mean()), 3),
        "seconds": round(seconds, 2),
        "simulate_seconds": round(simulate_seconds, 2),
        "stage_seconds": stages,
        "median_epoch_seconds": {name: float(np.median(values)) for name, values in epochs.items()},
        "crowdwise": crowdwise.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else f"cpu x{os.cpu_count()}",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    row["curve"] = curve.points
    if model.history_[-1]["agreement"] is not None:
        row["validation_agreement"] = round(model.history_[-1]["agreement"], 5)
        row["test_accuracy_at_best_agreement"] = max(curve.points, key=lambda point: point[1])[2]
    if torch.cuda.is_available():
        row["peak_gpu_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 3)
    if hasattr(type(model), "distilled_"):
        at, labels = model.arrays_["distilled_instance"], model.arrays_["distilled_class"]
        row["distilled"] = len(at)
        if data.y_train is not None:
            row["distilled_accuracy"] = round(100 * float((labels == data.y_train[at]).mean()), 3)
    if crowd is not None and "graph_positions" in model.arrays_:
        found = model.annotator_graph_
        row["edge_precision_before"] = round(graph.edge_precision(found.before, crowd.groups).overall, 4)
        row["edge_precision_after"] = round(graph.edge_precision(found.after, crowd.groups).overall, 4)
    if crowd is not None and model.transition_ is not None:
        at = np.arange(0, len(crowd.y), max(1, len(crowd.y) // 300))
        who = np.arange(0, annotations.n_annotators, max(1, annotations.n_annotators // 6))
        estimate = model.transition(data.X_train[at], who)
        true = np.stack([crowd.transition(data.X_train, at, np.full(len(at), j)) for j in who], axis=1)
        rows = np.take_along_axis(estimate, crowd.y[at][:, None, None, None], axis=2)[:, :, 0]
        true_rows = np.take_along_axis(true, crowd.y[at][:, None, None, None], axis=2)[:, :, 0]
        row["transition_error"] = round(float(np.abs(estimate - true).mean()), 5)
        row["transition_row_error"] = round(float(np.abs(rows - true_rows).mean()), 5)
    return row


class Curve:
    """Test accuracy after every epoch of the last stage, with the agreement that a user would see."""

    def __init__(self, data: Any, model: Any) -> None:
        device = resolve_device(model.device)
        self.inputs, self.truth = make_inputs(data.X_test, device), torch.as_tensor(data.y_test).to(device)
        self.model, self.at = model, torch.arange(len(data.y_test), device=device)
        train = make_inputs(data.X_train[:: max(1, len(data.X_train) // 10_000)], device)
        self.prepare = Prepare.learn(model.prepare, train.take(torch.arange(len(train), device=device)))
        self.points: list[tuple[int, float | None, float]] = []
        self.seconds, self.stage = 0.0, ""

    def __call__(self, record: dict[str, Any], classifier: Any) -> None:
        if classifier is None:
            return
        started = time.perf_counter()
        if record["stage"] != self.stage:
            self.stage, self.points = record["stage"], []
        dtype = resolve_precision(self.model.precision, self.at.device)
        predicted = evaluate(classifier, self.inputs, self.at, self.prepare, dtype=dtype).argmax(1)
        accuracy = round(100 * float((predicted == self.truth).float().mean()), 2)
        agreement = None if record["agreement"] is None else round(record["agreement"], 4)
        self.points.append((record["epoch"], agreement, accuracy))
        self.seconds += time.perf_counter() - started


def summary(row: dict[str, Any]) -> str:
    facts = [f"{name} {seconds:.2f} s" for name, seconds in row["median_epoch_seconds"].items()]
    extras = (
        "validation_agreement",
        "distilled",
        "distilled_accuracy",
        "edge_precision_before",
        "edge_precision_after",
    )
    return (
        "epochs: " + ", ".join(facts) + "; " + ", ".join(f"{k} {row[k]}" for k in (*extras, "peak_gpu_gb") if k in row)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", required=True)
    parser.add_argument("--methods", nargs="+", default=["ce", "bltm", "taidtm-ft", "taidtm"])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 .. N-1")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--noise-rate", type=float)
    parser.add_argument("--limit", type=int, help="use only so many training instances (to try things out)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="override a parameter")
    parser.add_argument(
        "--sharing", type=int, default=1, help="runs on the device at the same time; recorded, as it slows each"
    )
    parser.add_argument("--out", type=Path, help="append records to this file")
    arguments = parser.parse_args()
    preset = load_preset(arguments.preset)
    data = datasets.load(**preset.data)
    if arguments.limit:
        import dataclasses

        n = arguments.limit
        data = dataclasses.replace(data, X_train=data.X_train[:n], y_train=data.y_train[:n])
    overrides = {key: json.loads(value) for key, value in (item.split("=", 1) for item in arguments.set)}
    rows = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for method in arguments.methods:
            row = run(preset, method, seed, data, overrides, arguments.noise_rate)
            row["sharing"] = arguments.sharing
            rows.append(row)
            if arguments.out:
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                with open(arguments.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            print(
                f"{method:14} seed {seed}  {row['test_accuracy']:6.2f} %  {row['seconds']:7.1f} s  {summary(row)}",
                flush=True,
            )
    for method in arguments.methods:
        values = [row["test_accuracy"] for row in rows if row["method"] == method]
        print(f"{method:14} {np.mean(values):6.2f} +- {np.std(values):.2f} %  (n = {len(values)})")


if __name__ == "__main__":
    main()
