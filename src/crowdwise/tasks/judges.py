"""Compare the models among the annotators with people, and with gold labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise import judges
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.errors import DataError, UsageError, spelled
from crowdwise.judges import AltTest, Dependence, Sides, people_consensus, wilson
from crowdwise.registry import AGGREGATORS
from crowdwise.tasks.aggregate import PANEL, write_together
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_outputs
from crowdwise.tasks.reading import Paths, Reading, gold_of, paths_of, read_annotations


@dataclass(frozen=True)
class Share:
    """How often a model is right, with a 95 % interval."""

    right: int
    total: int

    @property
    def value(self) -> float:
        return self.right / self.total

    @property
    def interval(self) -> tuple[float, float]:
        low, high = wilson(self.right, self.total)
        return float(low), float(high)


@dataclass(frozen=True)
class JudgedModel:
    """A model among the annotators."""

    model: Any
    n_labels: int
    people: Share | None
    """Against the consensus of two or more people; None where there is none."""
    gold: Share | None
    """Against gold labels."""
    passed: bool | None
    """The alternative annotator test; None where it cannot be made."""
    winning_rate: float | None
    advantage: float | None
    needed_epsilon: float | None
    """The smallest epsilon at which it passes."""
    needed_instances: int | None
    """Instances that each person should label, for it to pass as good as it seems."""
    verdict: str
    """What to do with it, in a few words."""


@dataclass(frozen=True)
class JudgedModels:
    """All models, and what they are worth together."""

    models: list[JudgedModel]
    n_people: int
    epsilon: float
    dependence: Dependence | None
    no_test: str | None
    """Why the test cannot be made."""
    advice: list[str]
    """What to do."""
    out: Path | None


def judge_models(
    path: Paths,
    out: str | Path | None = None,
    *,
    models: Sequence[str] = (),
    gold: str | Path | None = None,
    gold_column: str | None = None,
    people: Any = "crowd",
    epsilon: float | None = None,
    score: str = "accuracy",
    seed: int = 0,
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> JudgedModels:
    """Compare every model among the annotators with people and gold; ``models`` names them where the files do not.

    ``people`` are "expert", "skilled" or "crowd": how much better than a model they have to be. ``out`` is a table to write.
    """
    out = None if out is None else Path(out)
    if out is not None:
        check_outputs([out], [*paths_of(path), None if gold is None else Path(gold)])
    if not (reading or {}).get("models", True):
        raise UsageError(f"{spelled('models')}: without models there is nothing to judge", parameter="models")
    export = read_annotations(path, reading, observer, gold_column=gold_column, details=False)
    crowd, known = gold_of(export, gold, reading, observer)
    kinds = export.kinds
    names = [*models]
    if names:
        ids = {str(one): code for code, one in enumerate(crowd.annotator_vocabulary.arrow.to_pylist())}
        unknown = [name for name in names if name not in ids]
        if unknown:
            raise DataError(f"no annotator is called {unknown[0]!r}", parameter="model")
        kinds = np.where(np.isin(np.arange(crowd.n_annotators), [ids[name] for name in names]), "model", kinds)
    if not np.any(kinds == "model"):
        raise UsageError(
            f"no annotator is known to be a model: say which with {spelled('model', 'ID')}, or by a column kind",
            parameter="model",
        )
    with observer.step("comparing models with people"):
        sides = Sides.of(crowd, kinds=kinds)
        return _judged(sides, known, out, people, epsilon, score, seed)


def _judged(
    sides: Sides,
    gold: Mapping[Any, Any] | None,
    out: Path | None,
    people: Any,
    epsilon: float | None,
    score: str,
    seed: int,
) -> JudgedModels:
    crowd, codes = sides.crowd, sides.models.tolist()
    n_people = int(np.count_nonzero(crowd.labels_per_annotator[sides.people]))
    test, no_test = _tested(sides, people, epsilon, score, seed)
    consensus = None
    if n_people > 1:
        posterior = people_consensus(sides)
        consensus = np.where(np.isnan(posterior).any(axis=1), -1, np.nan_to_num(posterior).argmax(axis=1))
    truth = gold_codes(crowd, gold)
    found = {} if test is None else {row["model"]: row for row in test.table.to_pylist()}
    needed = {} if test is None else {row["model"]: row for row in test.needed.to_pylist()}
    rng = np.random.default_rng(seed)
    models = []
    for code in codes:
        name, said = sides.name(code), sides.labels_of(code, rng)
        row, more = found.get(name, {}), needed.get(name, {})
        shares = [None if answer is None else _share(said, answer) for answer in (consensus, truth)]
        models.append(
            JudgedModel(
                name,
                int(np.count_nonzero(said >= 0)),
                *shares,
                row.get("passed"),
                row.get("winning_rate"),
                row.get("advantage_probability"),
                more.get("epsilon"),
                more.get("n_instances"),
                _verdict(row, more),
            )
        )
    dependence = None
    if len(codes) > 1 and (consensus is not None or truth is not None):
        dependence = judges.dependence(crowd, gold, models=codes if not gold else [sides.name(c) for c in codes])
    chosen = judges.EPSILON[people] if epsilon is None else epsilon
    result = JudgedModels(models, n_people, chosen, dependence, no_test, _advice(models, dependence, no_test), out)
    if out is not None:
        write_together({out: _table(result)})
    return result


def _tested(
    sides: Sides, people: Any, epsilon: float | None, score: str, seed: int
) -> tuple[AltTest | None, str | None]:
    try:
        options = {"people": people, "epsilon": epsilon, "score": score, "random_state": seed}
        return judges.alt_test(sides.crowd, [sides.name(code) for code in sides.models], **options), None
    except DataError as error:
        return None, str(error)


def _share(said: Any, truth: Any) -> Share | None:
    both = (said >= 0) & (truth >= 0)
    return Share(int(np.sum(said[both] == truth[both])), int(both.sum())) if both.any() else None


def _verdict(row: Mapping[str, Any], needed: Mapping[str, Any]) -> str:
    if row.get("passed") is None:
        return "cannot be told: too few people"
    if row["passed"]:
        return "may replace a person"
    return "keep people" if needed["epsilon"] is None else f"keep people (passes at {needed['epsilon']:.2f})"


def _advice(models: list[JudgedModel], dependence: Dependence | None, no_test: str | None) -> list[str]:
    """What to do, in sentences."""
    lines = []
    passed = [model for model in models if model.passed]
    if no_test is not None:
        lines.append(f"Whether a model may replace people cannot be told: {no_test}.")
    elif passed:
        best = max(passed, key=lambda model: (model.advantage or 0, str(model.model)))
        lines.append(f"{best.model} may label in place of a person; let people check a sample (crowdwise route).")
    else:
        lines.append("No model may replace people: let people label what models are unsure of (crowdwise route).")
    if dependence is not None and dependence.effective_votes < 0.8 * len(models):
        method = f" with --method {PANEL}" if PANEL in AGGREGATORS else " with one vote for all models"
        lines.append(
            f"{len(models)} models count as {dependence.effective_votes:.1f} votes, since they err alike: aggregate{method}."
        )
    if all(model.gold is None for model in models):
        lines.append("Some 100 gold labels would tell how often each model is right (crowdwise estimate).")
    return lines


def _table(result: JudgedModels) -> pa.Table:
    rows = []
    for model in result.models:
        row: dict[str, Any] = {"model": model.model, "n_labels": model.n_labels}
        for name, share in (("people", model.people), ("gold", model.gold)):
            low, high = (None, None) if share is None else share.interval
            row |= {
                f"accuracy_{name}": None if share is None else share.value,
                f"{name}_low": low,
                f"{name}_high": high,
            }
        row |= {"passed": model.passed, "winning_rate": model.winning_rate, "advantage_probability": model.advantage}
        row |= {"needed_epsilon": model.needed_epsilon, "needed_instances": model.needed_instances}
        rows.append(row | {"verdict": model.verdict})
    return pa.Table.from_pylist(rows)
