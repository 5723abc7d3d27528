"""Plain defaults on anyone's data: the classifier, the labels of the training instances, and the confidence claimed for them.

    CROWDWISE_DATA=... python benchmarks/own_data.py features --seeds 10 --jobs 2
    CROWDWISE_DATA=... python benchmarks/own_data.py pictures --seeds 3 --only cifar10-40 --method concord

Nothing is set but the seed, and for pictures a network of the usual size (ResNet-18). Records go to benchmarks/results/own_data.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import multiprocessing
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from stamp import commit

RESULTS = Path(__file__).parent / "results" / "own_data"
PICTURES = {  # noise of the simulated crowd of 300 annotators, two labels each (None: the data set's own crowd), and network
    "cifar10-40": ("cifar10", 0.4, "resnet18"),
    "cifar10-50": ("cifar10", 0.5, "resnet18"),
    "svhn-50": ("svhn", 0.5, "resnet18"),
    "fashion-mnist-50": ("fashion-mnist", 0.5, "resnet18"),
    "cifar10n": ("cifar10n", None, "resnet18"),
}
FEATURES = ("labelme", "music", "sentiment", "digits-50")
METHODS = ("ce", "dl-mv", "dl-ds", "concord", "taidtm", "max-mig", "geo-crowd-net", "agg-net", "conal", "trace-reg")


def load(name: str, seed: int) -> dict[str, Any]:
    """Inputs, annotations, and the truth, as codes."""
    from crowdwise import datasets, simulate

    source, noise, backbone = PICTURES.get(name, (name.removesuffix("-50"), None, None))
    if source == "sentiment":
        return _sentiment()
    data = datasets.load(source)
    known = {value: code for code, value in enumerate(data.class_names)}
    y_train, y_test = (
        np.array([known.get(value, value) for value in np.asarray(y).tolist()]) for y in (data.y_train, data.y_test)
    )
    X, X_test, annotations = data.X_train, data.X_test, data.annotations
    options: dict[str, Any] = {}
    if name == "digits-50":
        X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
        options = {"n_annotators": 30, "labels_per_instance": 3, "noise_rate": 0.5}
    elif noise is not None:
        options = {"n_annotators": 300, "n_groups": 3, "labels_per_instance": 2.0, "noise_rate": noise}
    if options:
        crowd = simulate.aidn(X, y_train, random_state=seed, n_classes=data.n_classes, **options)
        annotations = crowd.annotations
    settings = {} if backbone is None else {"backbone": backbone}
    if source == "svhn":
        settings["augment"] = "crop"  # a mirrored digit is another
    return {"X": X, "annotations": annotations, "clean": y_train, "X_test": X_test, "y_test": y_test, "set": settings}


@functools.cache
def _sentiment() -> dict[str, Any]:
    """Sentence polarity as TF-IDF of words and pairs of words, reduced to 300 columns."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    from crowdwise import Annotations

    folder = next(
        f for f in os.environ["CROWDWISE_DATA"].split(os.pathsep) if (Path(f) / "sentiment_mturk.npz").exists()
    )
    data = np.load(Path(folder) / "sentiment_mturk.npz", allow_pickle=False)
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    reduce = TruncatedSVD(300, random_state=0)
    X = reduce.fit_transform(words.fit_transform(data["text_train"].tolist())).astype(np.float32)
    X_test = reduce.transform(words.transform(data["text_test"].tolist())).astype(np.float32)
    annotations = Annotations.from_triples(
        data["instance"], data["annotator"], data["label"], n_instances=len(X), n_annotators=int(data["n_annotators"]),
        classes=["0", "1"],
    )  # fmt: skip
    truth = {"clean": data["clean"].astype(int), "y_test": data["y_test"].astype(int)}
    return {"X": X, "annotations": annotations, "X_test": X_test, "set": {}, **truth}


def calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error."""
    at = np.minimum((confidence * bins).astype(int), bins - 1)
    return float(sum(abs((right[at == b] - confidence[at == b]).sum()) for b in range(bins)) / len(right))


def balanced(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(np.mean([(predicted[truth == c] == c).mean() for c in np.unique(truth)]))


def take_turns(lock: Any) -> None:
    """In a worker: its fits wait for those of others; data are read meanwhile."""
    global _turn
    _turn = lock


_turn: Any = contextlib.nullcontext()


def run(job: tuple[str, str, int, str, dict[str, Any]]) -> dict[str, Any]:
    name, method, seed, device, settings = job
    import sklearn
    import torch

    import crowdwise
    from crowdwise.registry import METHODS as methods

    warnings.simplefilter("ignore")
    data = load(name, seed)
    parameters = {"random_state": seed, "device": device, "verbose": 0} | data["set"] | settings
    with _turn:
        started, processor = time.perf_counter(), time.process_time()
        model = methods[method](**parameters).fit(data["X"], data["annotations"])
        seconds, processor = time.perf_counter() - started, time.process_time() - processor
        predicted = model.predict_proba(data["X_test"]).argmax(1)
    record: dict[str, Any] = {
        "data": name, "method": method, "seed": seed, "parameters": {**data["set"], **settings}, "device": device,
        "test_accuracy": round(100 * float((predicted == data["y_test"]).mean()), 3),
        "balanced_accuracy": round(100 * balanced(predicted, data["y_test"]), 3),
        "seconds": round(seconds, 2), "processor_seconds": round(processor, 2),
    }  # fmt: skip
    posterior = getattr(model, "posterior_", None)
    if posterior is not None:
        known = (data["clean"] >= 0) & (data["annotations"].labels_per_instance > 0)
        label, confidence = posterior[known].argmax(1), posterior[known].max(1)
        right = (label == data["clean"][known]).astype(float)
        votes = data["annotations"].votes()[known]
        record |= {
            "labels_right": round(100 * float(right.mean()), 3),
            "labels_balanced": round(100 * balanced(label, data["clean"][known]), 3),
            "majority_vote_right": round(100 * float((votes.argmax(1) == data["clean"][known]).mean()), 3),
            "claimed": round(100 * float(confidence.mean()), 3),
            "calibration_error": round(calibration_error(confidence, right), 4),
        }
    record["warnings"] = list(getattr(model, "warnings_", []))
    record["versions"] = {
        "crowdwise": crowdwise.__version__, "commit": commit(), "torch": torch.__version__, "sklearn": sklearn.__version__,
        "numpy": np.__version__, "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
    }  # fmt: skip
    return record


def table(records: list[dict[str, Any]]) -> None:
    """Mean test accuracy and right labels of every method, and how it differs from the first over the seeds they share."""
    from crowdwise.bench.comparison import paired

    for name in dict.fromkeys(record["data"] for record in records):
        print(f"\n{name}")
        values: dict[str, dict[int, float]] = {}
        for record in records:
            if record["data"] == name:
                values.setdefault(record["method"], {})[record["seed"]] = record["test_accuracy"]
        for method in sorted(values, key=lambda m: -float(np.mean(list(values[m].values())))):
            own = [r for r in records if r["data"] == name and r["method"] == method]
            test = np.array(list(values[method].values()))
            spread = f" +- {test.std(ddof=1):.2f}" if len(test) > 1 else ""
            line = f"  {method:14} {test.mean():6.2f}{spread} ({len(test)})"
            for key, label in (("labels_right", "labels"), ("claimed", "claimed"), ("calibration_error", "ECE")):
                known = [r[key] for r in own if key in r]
                line += f"  {label} {np.mean(known):.3g}" if known else ""
            line += f"  {np.mean([r['seconds'] for r in own]):.1f} s"
            other = paired(values.get("concord", {}), values[method]) if method != "concord" else None
            print(line + (f"  concord {other.difference:+.2f}, p {other.p:.3f}" if other is not None else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["features", "pictures", "table"])
    parser.add_argument("--only", action="append", help="a data set; may be repeated")
    parser.add_argument("--method", action="append", help="a method; may be repeated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="at a time; pictures take turns on the GPU")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = "cuda" if given.kind == "pictures" else "cpu"
    out = given.out or RESULTS / ("pictures_h200.jsonl" if device == "cuda" else "features_cpu.jsonl")
    if given.kind == "table":
        table([json.loads(line) for line in out.read_text().splitlines()])
        return
    names = given.only or list(PICTURES if given.kind == "pictures" else FEATURES)
    settings = {key: json.loads(value) for key, _, value in (item.partition("=") for item in given.set)}
    jobs = [
        (name, method, seed, device, settings)
        for seed in range(given.first_seed, given.first_seed + given.seeds)
        for name in names
        for method in given.method or METHODS
    ]
    records = []
    spawn = multiprocessing.get_context("spawn")
    turn = spawn.Lock() if device == "cuda" else contextlib.nullcontext()
    with spawn.Pool(given.jobs, take_turns, (turn,), maxtasksperchild=20) as pool, out.open("a") as file:
        for record in pool.imap_unordered(run, jobs):
            records.append(record)
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(record["data"], record["method"], record["seed"], record["test_accuracy"], record.get("labels_right"),
                  record["seconds"], flush=True)  # fmt: skip
    table(records)


if __name__ == "__main__":
    main()
