"""The presets train by the paper's protocol, setting by setting, whatever the defaults of methods are."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crowdwise import presets
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.registry import METHODS

RECORDED = json.loads((Path(__file__).parent / "paper_settings.json").read_text(encoding="utf-8"))
CASES = [
    (preset, method, each["settings"])
    for each in RECORDED
    for preset, methods in each["presets"].items()
    for method in methods
]
FEATURES = ("labelme", "music")


def settings(model: CrowdClassifier, shape: tuple[int, ...]) -> dict[str, Any]:
    """What the model trains with, in the form of the recorded settings: those with which the results were made."""
    recipe = model.training(SimpleNamespace(shape=shape, train=range(1000)))
    rates = [model.rates(recipe)(epoch + 0.5) for epoch in range(recipe.epochs)]
    found = {
        "optimiser": recipe.optimiser,
        "lr": recipe.lr,
        "momentum": recipe.momentum,
        "weight_decay": recipe.weight_decay,
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "drops": [epoch for epoch in range(1, recipe.epochs) if rates[epoch] != rates[epoch - 1]],
        "last": round(rates[-1], 6),
        "backbone_options": model.network_options(shape),
    }
    for name in ("warmup_lr", "transition_lr", "individual_lr", "gcn_lr", "annotator_lr", "aggregator_lr"):
        if hasattr(model, name):
            value = getattr(model, name)
            found[name] = recipe.early_lr if value is None else value
    assert (recipe.augment, recipe.ema, recipe.mixup, recipe.patience, model.networks) == ("none", 0.0, 0.0, 0, 1)
    return found


@pytest.mark.parametrize(("preset", "method", "expected"), CASES, ids=[f"{case[0]} {case[1]}" for case in CASES])
def test_a_preset_trains_as_its_results_were_recorded(preset: str, method: str, expected: dict[str, Any]) -> None:
    model = METHODS[method](**presets.load_preset(preset).method_parameters(method))
    assert settings(model, (10,) if preset in FEATURES else (1, 28, 28)) == expected


def test_every_preset_names_the_protocol() -> None:
    assert {presets.load_preset(name).parameters.get("recipe") for name in presets.names()} == {"paper"}
