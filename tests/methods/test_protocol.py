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


PAPER_METHODS = ("ce", "bltm", "crowd-layer", "max-mig", "dl-ds", "taidtm-ft", "taidtm")
PRINTED = [name for name in presets.names() if name.endswith("-printed")]
LR = {"imagenet100-printed": (0.2, 20, [10, 15])}
REAL = ("labelme-printed", "music-printed")


@pytest.mark.parametrize("method", PAPER_METHODS)
@pytest.mark.parametrize("preset", PRINTED)
def test_a_printed_preset_has_the_settings_of_the_text(preset: str, method: str) -> None:
    """Section 5.1, section 5.2 and the appendix; one optimiser for the classifiers of all methods."""
    model = METHODS[method](**presets.load_preset(preset).method_parameters(method))
    found = settings(model, (10,) if preset in REAL else (1, 40, 40))
    lr, epochs, drops = LR.get(preset, (0.01, 50, []) if preset in REAL else (0.01, 60, [40, 55]))
    assert (found["optimiser"], found["lr"], found["momentum"], found["batch_size"]) == ("sgd", lr, 0.9, 128)
    assert (found["epochs"], found["drops"]) == (epochs, drops)
    assert found["weight_decay"] == (0.0 if preset in REAL else 1e-4)
    assert {value for name, value in found.items() if name in ("warmup_lr", "transition_lr", "gcn_lr")} <= {0.01}
    assert not found["backbone_options"].keys() - {"hidden", "batch_norm", "stem"}
    if method in ("taidtm", "taidtm-ft"):
        assert (model.classifier_start, model.similarity, model.bottleneck) == ("random", "l1-normalised", 0)


@pytest.mark.parametrize("preset", PRINTED)
def test_a_printed_preset_has_the_data_and_the_crowd_of_the_recommended_one(preset: str) -> None:
    printed, recommended = (presets.load_preset(name) for name in (preset, preset.removesuffix("-printed")))
    assert (printed.data, printed.simulate) == (recommended.data, recommended.simulate)
    for name in ("epochs", "warmup_epochs", "individual_epochs", "gcn_epochs", "k", "gcn_layers", "backbone"):
        if name in recommended.parameters:
            assert printed.parameters[name] == recommended.parameters[name], name


def test_every_data_set_of_the_paper_has_a_printed_preset() -> None:
    data = {"fashion-mnist", "k-mnist", "cifar10", "svhn", "labelme", "music", "cifar10n", "imagenet100"}
    assert {presets.load_preset(name).data["name"] for name in PRINTED} == data
