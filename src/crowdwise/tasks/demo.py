"""What crowdwise does, on digits with a simulated crowd of known habits: four methods, and what came out."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import graph, presets, report
from crowdwise.comparison.fits import one_thread
from crowdwise.data.training import TrainingData, from_dataset
from crowdwise.errors import ConfigError
from crowdwise.figures import measured
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.methods.taidtm import TAIDTM
from crowdwise.registry import METHODS
from crowdwise.simulate import SimulatedCrowd
from crowdwise.storage.documents import write_json
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.pictures import save_pictures

SHOWN = {
    "ce": ("CE", "every label taken for the truth"),
    "deep-aggregate": ("majority vote", "a network trained on majority votes"),
    "taidtm": ("TAIDTM", "T(x) of each annotator, shared among similar ones"),
    "concord": ("Concord", "classifier and crowd correct each other"),
}
QUICK = {"epochs": 3, "warmup_epochs": 4, "max_retries": 1, "transition_epochs": 2, "gcn_epochs": 2}


@dataclass(frozen=True)
class Demonstrated:
    """What the demo found, and the files that it wrote."""

    methods: dict[str, dict[str, Any]]
    """Name of each method -> test_accuracy, labels_right, confidence (mean, claimed for these labels) and seconds."""
    votes_right: float
    """Share of the instances whose majority vote is right; ties are shared."""
    groups: dict[str, Any]
    """Groups of annotators, true and found, and how well the annotator graph joins the true ones."""
    files: dict[str, Path]
    seconds: float
    note: str | None
    """Why there is no report, where there is none."""


def demonstrate(out: str | Path, *, seed: int = 0, quick: bool = False, observer: Observer = SILENT) -> Demonstrated:
    """Train four methods as the preset ``digits`` says; ``quick`` trains a few epochs only.

    Each gives two things: a classifier, and labels of the training instances.
    """
    started, out = time.perf_counter(), Path(out)
    preset = presets.load_preset("digits")
    data = from_dataset(preset.data, simulated=preset.simulate, seed=seed)
    assert data.crowd is not None
    observer.note(_introduction(data, data.crowd))
    if quick:
        observer.note("a few epochs only: the accuracies mean nothing")

    truth = data.crowd.y
    votes_right = _share(data.annotations.votes(), truth)
    results: dict[str, dict[str, Any]] = {}
    models: dict[str, CrowdClassifier] = {}
    for name in SHOWN:
        parameters = preset.method_parameters(name)
        if quick:
            known = {field.name for field in dataclasses.fields(METHODS[name])}
            parameters |= {key: value for key, value in QUICK.items() if key in known}
        models[name] = model = METHODS[name](**parameters | {"random_state": seed})
        observer.note(f"training {SHOWN[name][0]} ...")
        begun = time.perf_counter()
        with one_thread():  # so small are these networks that threads would wait for each other longer than they work
            model.fit(data.X, data.annotations)
            accuracy = model.score(data.X_test, model.classes_[data.y_test])
        results[name] = {
            "test_accuracy": accuracy,
            "labels_right": _share(model.posterior_, truth),
            "confidence": float(model.label_confidence_.mean()),
            "seconds": round(time.perf_counter() - begun, 2),
        }

    model = models["taidtm"]
    assert isinstance(model, TAIDTM)
    groups = _groups(model, data.crowd)
    out.mkdir(parents=True, exist_ok=True)
    chart = report.accuracy_chart(
        {SHOWN[name][0]: row["test_accuracy"] for name, row in results.items()}, highlight="Concord"
    )
    pictures = [report.save_picture(chart, out / "accuracy.png"), *save_pictures(model, data, out)]
    model.save(out / "model")
    write_json(
        out / "results.json",
        {"seed": seed, "quick": quick, "votes_right": votes_right, "methods": results, "groups": groups},
    )
    files = {path.name: path for path in pictures} | {"results": out / "results.json", "TAIDTM model": out / "model"}
    note = None
    try:
        files["report"] = _write_page(model, data, results, out / "report.html")
    except ConfigError as error:  # what pages need is not installed
        note = str(error)
    return Demonstrated(results, votes_right, groups, files, time.perf_counter() - started, note)


def _write_page(model: TAIDTM, data: TrainingData, results: dict[str, dict[str, Any]], path: Path) -> Path:
    """The interactive report."""
    from crowdwise.report.content import comparison, gather, training
    from crowdwise.report.source import from_training

    records = [
        {"column": "digits, test accuracy", "row": SHOWN[name][0], "test_accuracy": 100 * row["test_accuracy"]}
        for name, row in results.items()
    ]
    page = gather(from_training(data, model, "crowdwise demo: digits and a simulated crowd"))
    page.comparison, page.training = comparison(records), training(model.history_)
    return report.write_page(page, path)


def _introduction(data: TrainingData, crowd: SimulatedCrowd) -> str:
    annotations = data.annotations
    wrong = float(np.mean(annotations.label != crowd.y[annotations.instance]))
    return (
        f"{annotations.n_instances:,} digits, {annotations.n_annotators} simulated annotators in "
        f"{len(np.unique(crowd.groups))} groups that err alike, {len(annotations):,} labels, {100 * wrong:.0f} % of them "
        "wrong"
    )


def _share(scores: Any, truth: Any) -> float:
    """How many labels are right: of votes or probabilities (n, C)."""
    found = measured(scores, truth)
    assert found is not None, "every digit has a true class"
    return found.share


def _groups(model: TAIDTM, crowd: SimulatedCrowd) -> dict[str, Any]:
    """Which groups the annotator graph shows, beside the true ones."""
    annotators = model.annotator_graph_
    found = graph.found_groups(annotators.after)
    edges = {"before": annotators.before, "after": annotators.after}
    return {
        "found": found.tolist(),
        "true": crowd.groups.tolist(),
        "adjusted_rand": graph.adjusted_rand(found, crowd.groups),
        **{f"edge_precision_{when}": graph.edge_precision(one, crowd.groups).overall for when, one in edges.items()},
        **{f"edge_recall_{when}": graph.neighbourhood_recall(one, crowd.groups) for when, one in edges.items()},
    }
