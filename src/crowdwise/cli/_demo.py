"""`crowdwise demo`: digits, a crowd with known habits, four methods, and what came out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crowdwise import graph, presets, report
from crowdwise.annotations import Annotations
from crowdwise.cli._console import complain, say, show_facts, show_table
from crowdwise.cli._pictures import save_pictures
from crowdwise.engine.checkpoint import write_json
from crowdwise.errors import ConfigError
from crowdwise.material import Material, from_dataset
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.methods.taidtm import TAIDTM
from crowdwise.registry import METHODS
from crowdwise.simulate import Crowd

METHODS_SHOWN = {
    "ce": ("CE", "every label taken for the truth"),
    "deep-aggregate": ("majority vote", "a network trained on majority votes"),
    "bltm": ("BLTM", "one transition matrix T(x) for the whole crowd"),
    "taidtm": ("TAIDTM", "T(x) of each annotator, shared among similar ones"),
}
QUICK = {"epochs": 3, "warmup_epochs": 4, "max_retries": 1, "transition_epochs": 2, "gcn_epochs": 2}


def run_demo(out: Path, seed: int, quick: bool) -> None:
    """Train the four methods as the preset ``digits`` says, and show accuracies, groups and pictures."""
    started = time.perf_counter()
    preset = presets.load_preset("digits")
    material = from_dataset(preset.data, simulated=preset.simulate, seed=seed)
    crowd, y_test = material.crowd, material.y_test
    assert crowd is not None
    _introduce(material.annotations, crowd)
    if quick:
        say("--quick: a few epochs only, the accuracies mean nothing")

    results: dict[str, dict[str, Any]] = {}
    for name in METHODS_SHOWN:
        parameters = preset.method_parameters(name)
        if quick:
            known = {field.name for field in dataclasses.fields(METHODS[name])}
            parameters |= {key: value for key, value in QUICK.items() if key in known}
        model: CrowdClassifier = METHODS[name](**parameters | {"random_state": seed})
        say(f"training {METHODS_SHOWN[name][0]} ...")
        begun = time.perf_counter()
        with _one_thread():
            model.fit(material.X, material.annotations)
            accuracy = model.score(material.X_test, model.classes_[y_test])
        results[name] = {"test_accuracy": accuracy, "seconds": round(time.perf_counter() - begun, 2)}

    assert isinstance(model, TAIDTM)  # the last one
    rows = [
        [*METHODS_SHOWN[name], f"{100 * row['test_accuracy']:.2f} %", f"{row['seconds']:.1f}"]
        for name, row in results.items()
    ]
    show_table("Test accuracy", ("method", "idea", "accuracy", "seconds"), rows, right=("accuracy", "seconds"))
    groups = _show_groups(model, crowd)

    out.mkdir(parents=True, exist_ok=True)
    chart = report.accuracy_chart(
        {METHODS_SHOWN[name][0]: row["test_accuracy"] for name, row in results.items()}, highlight="TAIDTM"
    )
    pictures = [report.save_picture(chart, out / "accuracy.png"), *save_pictures(model, material, out)]
    model.save(out / "model")
    write_json(out / "results.json", {"seed": seed, "quick": quick, "methods": results, "groups": groups})
    files = {path.name: path for path in pictures} | {"results": out / "results.json", "TAIDTM model": out / "model"}
    files |= _write_page(model, material, results, out / "report.html")
    show_facts(f"Files, after {time.perf_counter() - started:.0f} s", files)


def _write_page(
    model: TAIDTM, material: Material, results: Mapping[str, Mapping[str, Any]], path: Path
) -> dict[str, Path]:
    """The interactive report, where what it needs is installed."""
    from crowdwise.report.content import comparison, gather, training
    from crowdwise.report.source import from_material

    records = [
        {"column": "digits, test accuracy", "row": METHODS_SHOWN[name][0], "test_accuracy": 100 * row["test_accuracy"]}
        for name, row in results.items()
    ]
    page = gather(from_material(material, model, "crowdwise demo: digits and a simulated crowd"))
    page.comparison, page.training = comparison(records), training(model.history_)
    try:
        return {"report": report.write_page(page, path)}
    except ConfigError as error:
        complain("note", str(error))
        return {}


def _introduce(annotations: Annotations, crowd: Crowd) -> None:
    wrong = float(np.mean(annotations.label != crowd.y[annotations.instance]))
    groups = len(np.unique(crowd.groups))
    say(
        f"{annotations.n_instances:,} digits, {annotations.n_annotators} simulated annotators in {groups} groups that "
        f"err alike, {len(annotations):,} labels, {100 * wrong:.0f} % of them wrong"
    )


def _show_groups(model: TAIDTM, crowd: Crowd) -> dict[str, Any]:
    """Which groups the annotator graph shows, beside the true ones."""
    annotators = model.annotator_graph_
    found = graph.found_groups(annotators.after)
    true_groups = np.unique(crowd.groups)
    columns = ["found group", *(f"true group {number + 1}" for number in range(len(true_groups)))]
    rows = [
        [f"{group + 1}", *(str(np.sum(crowd.groups[found == group] == true)) for true in true_groups)]
        for group in np.unique(found).tolist()
    ]
    show_table("Annotators in the groups that TAIDTM found", columns, rows, right=columns[1:])
    edges = {"before": annotators.before, "after": annotators.after}
    right = {when: graph.edge_precision(one, crowd.groups).overall for when, one in edges.items()}
    reached = {when: graph.neighbourhood_recall(one, crowd.groups) for when, one in edges.items()}
    rand = graph.adjusted_rand(found, crowd.groups)
    say(f"  Adjusted Rand index {rand:.3f}. Purifying joins annotators with {_percent(reached)} of their true group;")
    say(f"  of all neighbours, {_percent(right)} are from the same group.")
    say()
    return {
        "found": found.tolist(),
        "true": crowd.groups.tolist(),
        "adjusted_rand": rand,
        **{f"edge_precision_{when}": value for when, value in right.items()},
        **{f"edge_recall_{when}": value for when, value in reached.items()},
    }


def _percent(shares: dict[str, float]) -> str:
    return f"{100 * shares['after']:.1f} % (before: {100 * shares['before']:.1f} %)"


@contextmanager
def _one_thread() -> Iterator[None]:
    """The demo's networks are so small that threads would wait for each other longer than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
