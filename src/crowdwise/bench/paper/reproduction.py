"""How a result compares with the paper: conditions that differ, and how many figures come near."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from crowdwise.bench.paper import Conditions
from crowdwise.bench.results import TableCell
from crowdwise.bench.selection import Metric, Place, Record
from crowdwise.constraints import parameters_of
from crowdwise.registry import METHODS

if TYPE_CHECKING:
    from crowdwise.engine.recipe import Recipe
    from crowdwise.methods.core.base import CrowdClassifier


def departures(records: Iterable[Record], wanted: Conditions | None, metric: Metric) -> tuple[str, ...]:
    """Where runs that differ only by seed depart from the paper's conditions, and where costs were measured."""
    records = list(records)
    found: list[str] = []
    if metric.cost:
        where = {f"on {r.get('device', 'an unknown device')}, sharing: {r.get('sharing', 'unknown')}" for r in records}
        found.append("; ".join(sorted(where)))
    if wanted is None:
        return tuple(found)
    for record in records:
        found += [text for text in recipe_departures(record, wanted) if text not in found]
    if wanted.seeds not in (None, len(records)):
        found.append(f"{len(records)} {'seed' if len(records) == 1 else 'seeds'} instead of {wanted.seeds}")
    return tuple(found)


def recipe_departures(record: Record, wanted: Conditions) -> list[str]:
    """Every setting of training that is not the paper's, in words; what a record does not tell is not compared."""
    recipe = recipe_of(record)
    if recipe is None:
        return []
    found = []
    if recipe.epochs != wanted.epochs:
        found.append(f"{recipe.epochs} epochs instead of {wanted.epochs}")
    ours, theirs = (recipe.optimiser, recipe.lr), (wanted.optimiser, wanted.lr)
    if ours[0] != theirs[0]:
        found.append(f"{ours[0]} {ours[1]:g} instead of {theirs[0]} {theirs[1]:g}")
    elif ours[1] != theirs[1]:
        found.append(f"lr {ours[1]:g} instead of {theirs[1]:g}")
    if recipe.batch_size != wanted.batch_size:
        found.append(f"batches of {recipe.batch_size} instead of {wanted.batch_size}")
    if wanted.weight_decay not in (None, recipe.weight_decay):
        found.append(f"weight decay {recipe.weight_decay:g} instead of {wanted.weight_decay:g}")
    drops = tuple(recipe.drops()) if recipe.schedule == "steps" else ()
    if recipe.schedule not in ("steps", "constant"):
        found.append(f"schedule {recipe.schedule}")
    elif recipe.epochs == wanted.epochs and drops != wanted.drops:
        found.append("a constant rate" if not drops else f"drops after {' and '.join(map(str, drops))} epochs")
    found += [text for text, differs in _further(record, recipe, wanted) if differs]
    return found


def _further(record: Record, recipe: Recipe, wanted: Conditions) -> Iterator[tuple[str, bool]]:
    """What the paper trains without, and the start of the corrected classifier."""
    parameters = named_parameters(record)
    options = parameters.get("backbone_options") or {}
    dropout = options.get("dropout", parameters.get("dropout"))
    dropout = recipe.dropout if dropout is None else dropout
    yield f"dropout {dropout:g}", dropout != wanted.dropout
    yield "augmentation", recipe.augment != "none"
    yield "averaged weights", recipe.ema != 0.0
    yield "mixup", bool(recipe.mixup)
    networks = parameters.get("networks") or 1
    yield f"{networks} networks", networks != 1
    start = parameters.get("classifier_start")
    yield f"start {start}", start in ("sharpened", "calibrated", "warm-up") and record["method"] in _CORRECTED


_CORRECTED = ("bltm", "taidtm-ft", "taidtm")


def named_parameters(record: Record) -> dict[str, Any]:
    """All parameters that a record names; the oldest ones do not name the recipe, which was always the paper's."""
    return {"recipe": "paper", **(record.get("all_parameters") or {}), **(record.get("parameters") or {})}


def recipe_of(record: Record) -> Recipe | None:
    """How the classifier of a run was trained, in every setting; None if the record does not tell."""
    if not record.get("parameters") or record.get("method") not in METHODS or "dataset" not in record:
        return None
    given = json.dumps(named_parameters(record), sort_keys=True, default=str)
    return _recipe(str(record["method"]), given, record["dataset"] in _FEATURES)


_FEATURES = ("labelme", "music")


@functools.lru_cache(maxsize=4096)
def _recipe(method: str, parameters: str, features: bool) -> Recipe:
    known = parameters_of(METHODS[method])
    given = {name: value for name, value in json.loads(parameters).items() if name in known}
    model: CrowdClassifier = METHODS[method](**given)
    problem: Any = SimpleNamespace(shape=(1,) if features else (1, 28, 28), train=range(1000))
    return model.training(problem)


def common_departures(cells: Mapping[Place, TableCell], columns: Sequence[str]) -> set[str]:
    """Departures that every measured cell of ``columns`` has."""
    measured = [set(cell.departures) for (column, _), cell in cells.items() if cell.values and column in columns]
    return set.intersection(*measured) if len(measured) > 1 else set()


def without(cells: Mapping[Place, TableCell], departures: set[str]) -> dict[Place, TableCell]:
    """The cells without these departures, which a note below the table states once."""
    return {
        place: replace(cell, departures=tuple(one for one in cell.departures if one not in departures))
        for place, cell in cells.items()
    }


def nearness(cells: Mapping[Place, TableCell], columns: Sequence[str]) -> list[str]:
    """How many cells lie near the paper's figure, as a note."""
    judged = [cell.near for (column, _), cell in cells.items() if column in columns and cell.near is not None]
    if not judged:
        return []
    return [
        f"{sum(judged)} of {len(judged)} cells lie within 2 max(sd, 0.5) of the paper's figure "
        "(figures known to be wrong are left out)."
    ]
