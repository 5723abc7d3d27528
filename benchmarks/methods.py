"""What an epoch of each method costs beside an epoch of plain cross-entropy, in one run.

    python benchmarks/methods.py                                   # small convolutional network, any machine
    python benchmarks/methods.py --backbone resnet18 --size 54000  # as on Fashion-MNIST, for a GPU
    CROWDWISE_DATA=... python benchmarks/methods.py --features     # whole fits and predictions on feature vectors, one core
    python benchmarks/methods.py --pictures --backbone resnet18 --size 200000   # predictions of pictures, for a GPU

Images and labels are random: only the time matters. Reported is the median epoch of the last stage; rounds of all methods
alternate, so that a machine whose speed drifts is fair to all. ``--out FILE`` appends a JSON line for each method.

With ``--features``: processor seconds of fits with defaults on LabelMe (512 columns) and Music (124), how much longer five
networks take than one, and rows predicted in a second, beside what the products alone would allow.

With ``--pictures``: pictures of 32 x 32 predicted in a second, from an array in memory to classes, beside passes of the network
alone on pictures that lie on the device; and the most memory of the device that predicting took.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from crowdwise import Annotations, datasets
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.networks.layers import product
from crowdwise.registry import METHODS
from stamp import stamp

SHORT = {"warmup_epochs": 1, "transition_epochs": 1, "individual_epochs": 1, "gcn_epochs": 1, "max_retries": 1}
SECOND_BACKBONE = {"bltm", "taidtm", "taidtm-ft"}  # train a transition network beside the classifier


def random_crowd(size: int, annotators: int, seed: int = 0) -> tuple[np.ndarray, Annotations]:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 256, (size, 28, 28), dtype=np.uint8)
    instance = np.repeat(np.arange(size), 2)
    annotator = rng.integers(0, annotators, 2 * size)
    label = (X[instance, 0, 0].astype(int) + rng.integers(0, 3, 2 * size)) % 10
    crowd = Annotations.from_triples(
        instance, annotator, label, n_instances=size, n_annotators=annotators, n_classes=10
    )
    return X, crowd


def last_stage(method: str, X: np.ndarray, crowd: Annotations, backbone: str, epochs: int) -> list[float]:
    """Seconds of the epochs of the last stage but the first, in which things are compiled and tuned."""
    known = METHODS[method].__dataclass_fields__
    short = {name: value for name, value in SHORT.items() if name in known}
    model = METHODS[method](recipe="paper", backbone=backbone, epochs=epochs + 1, batch_size=128, verbose=0, **short)
    model.fit(X, crowd)
    final = model.history_[-1]["stage"]
    return [record["seconds"] for record in model.history_ if record["stage"] == final][1:]


def processor_seconds(function: Callable[[], object]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


def multiplications(model: CrowdClassifier) -> int:
    """Of one instance, in the layers of the classifier."""
    return sum(p.numel() for p in model.classifier_.parameters() if p.ndim > 1 and p.shape[-2] > 1)


def features(options: argparse.Namespace) -> None:
    """Fits and predictions on feature vectors, on one core."""
    torch.set_num_threads(1)
    a, b, zero = torch.randn(1024, 512), torch.randn(512, 512), torch.zeros(512)
    rate = len(a) * 512 * 512 / min(processor_seconds(lambda: product(a, b, zero)) for _ in range(200))
    for name in ("labelme", "music"):
        data = datasets.load(name)
        for method in options.methods:
            row = fits_and_predictions(METHODS[method], data.X_train, data.annotations, options, rate)
            row = {"benchmark": "features", "data": name, "method": method, **row, **about()}
            print(json.dumps(row), flush=True)
            write(options.out, row)


def fits_and_predictions(
    make: type[CrowdClassifier], X: np.ndarray, crowd: Annotations, options: argparse.Namespace, rate: float
) -> dict[str, object]:
    """What one method takes on one data set; ``rate`` is that of multiplications."""

    def fit(**settings: object) -> CrowdClassifier:
        return make(verbose=0, device="cpu", **settings).fit(X, crowd)

    seconds = [processor_seconds(lambda seed=seed: fit(random_state=seed)) for seed in range(options.rounds)]
    one, five = (
        min(processor_seconds(lambda k=k: fit(networks=k, steps=200, epochs=1)) for _ in range(options.rounds))
        for k in (1, 5)
    )
    model = fit(steps=20, epochs=1)
    many = np.tile(X, (-(-options.size // len(X)), 1))[: options.size].astype(np.float32)
    predicting = min(processor_seconds(lambda: model.predict(many)) for _ in range(5))
    return {
        "columns": X.shape[1],
        "processor_seconds": [round(each, 2) for each in seconds],
        "five_networks_to_one": round(five / one, 2),
        "predicted_rows_per_second": round(len(many) / predicting),
        "rows_by_products_alone": round(rate / multiplications(model)),
    }


def pictures(options: argparse.Namespace) -> None:
    """Predictions of pictures, beside the network alone."""
    X = np.random.default_rng(0).integers(0, 256, (options.size, 32, 32, 3), dtype=np.uint8)
    votes = np.random.default_rng(0).integers(0, 10, (2_000, 2))
    model = METHODS["ce"](backbone=options.backbone, steps=20, epochs=1, verbose=0).fit(X[:2_000], votes)
    network = model.classifier_.eval()
    device = next(network.parameters()).device
    passes = 2 if model.mirrored_ else 1
    part = torch.randn(4_096, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)

    def alone() -> None:
        enabled = device.type == "cuda"
        with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled):
            for _ in range(passes * options.size // len(part)):
                network(part)
        if enabled:
            torch.cuda.synchronize()

    def least(function: Callable[[], object]) -> float:
        function()  # warms up
        times = []
        for _ in range(options.rounds):
            started = time.perf_counter()
            function()
            times.append(time.perf_counter() - started)
        return min(times)

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    predicting, passing = least(lambda: model.predict(X)), least(alone)
    row: dict[str, object] = {
        "benchmark": "pictures",
        "backbone": options.backbone,
        "size": options.size,
        "passes": passes,
        "predicted_per_second": round(options.size / predicting),
        "network_alone_per_second": round(passes * options.size // len(part) * len(part) / passes / passing),
    }
    if device.type == "cuda":
        row["peak_gpu_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    row |= about()
    print(json.dumps(row), flush=True)
    write(options.out, row)


def about() -> dict[str, object]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"cpu x{os.cpu_count()}"
    return {"device": device, "torch": torch.__version__, **stamp()}


def write(path: Path | None, row: dict[str, object]) -> None:
    if path:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--features", action="store_true", help="whole fits on feature vectors; --size rows are predicted"
    )
    parser.add_argument("--pictures", action="store_true", help="predictions of --size pictures")
    parser.add_argument("--methods", nargs="+", help="all of them; with --features concord and taidtm")
    parser.add_argument("--backbone", default="cnn")
    parser.add_argument("--size", type=int, default=4_000, help="instances")
    parser.add_argument("--annotators", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=3, help="timed in each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.methods = options.methods or (["concord", "taidtm"] if options.features else list(METHODS))
    if options.features or options.pictures:
        (features if options.features else pictures)(options)
        return
    X, crowd = random_crowd(options.size, options.annotators)
    names = ["ce", *(name for name in options.methods if name != "ce")]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            seconds[name] += last_stage(name, X, crowd, options.backbone, options.epochs)
    where = about()
    base = statistics.median(seconds["ce"])
    print(
        f"{'method':<16}{'epoch, s':>10}{'beside CE':>11}   {options.backbone}, {options.size:,} instances, {where['device']}"
    )
    for name in sorted(names, key=lambda name: statistics.median(seconds[name])):
        median = statistics.median(seconds[name])
        note = "   trains a second backbone" if name in SECOND_BACKBONE else ""
        print(f"{name:<16}{median:>10.3f}{median / base:>10.2f}x{note}")
        row = {
            "benchmark": "methods",
            "method": name,
            "epoch_seconds": round(median, 4),
            "ratio_to_ce": round(median / base, 3),
            "backbone": options.backbone,
            "size": options.size,
            "annotators": options.annotators,
            **where,
        }
        write(options.out, row)


if __name__ == "__main__":
    main()
