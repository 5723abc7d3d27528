"""Say which instances people should label, so that the error of all labels stays under a bound."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise import judges
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.errors import DataError, UsageError, spelled
from crowdwise.judges import Route
from crowdwise.readers.gold import read_gold
from crowdwise.tasks.aggregate import fit, write_together
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import AUTO, check_aggregator, check_outputs
from crowdwise.tasks.reading import Paths, Reading, label_rules, paths_of, read_annotations

ASK, PEOPLE, DONE, MODEL = "ask", "people", "answered", "keep"


@dataclass(frozen=True)
class Routed:
    """Where the instances go."""

    method: str
    route: Route
    n_instances: int
    out: Path


def route(
    path: Paths,
    out: str | Path,
    *,
    answers: str | Path | None = None,
    error: float = 0.05,
    risk: float = 0.05,
    sample: int | None = None,
    method: str = AUTO,
    seed: int = 0,
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> Routed:
    """Write to ``out`` what people should label: first a random sample; then, with their ``answers``, everything else.

    The first table has the instances to ask people for, with label and confidence as they are. With ``answers``, a table of
    true classes of these, it has all instances and a column ``goes_to``: "answered", "people", or "keep" where the label of the
    annotations is good enough.
    """
    out, answers = Path(out), None if answers is None else Path(answers)
    if (reading or {}).get("gold") is not None:
        raise UsageError(
            f"{spelled('gold')} is not used: route draws the instances whose true classes it needs at random. "
            f"Pass these with {spelled('answers', 'FILE')}",
            parameter="gold",
        )
    check_outputs([out], [*paths_of(path), answers])
    check_aggregator(method)
    export = read_annotations(path, reading, observer, details=False)
    crowd, known = export.annotations, None
    if answers is not None:
        named = {role: (reading or {}).get(role) for role in ("instance", "label")}
        found = read_gold(answers, crowd, named["instance"], named["label"], label_rules(reading))
        crowd, known = found.annotations, found.gold
        observer.note(found.message)
    with observer.step("inferring labels"):
        fitted = fit(method, crowd, None, seed)
    posterior, labels = fitted.model.posterior_, fitted.labels
    truth = gold_codes(crowd, known)
    options: dict[str, Any] = {"error": error, "risk": risk, "sample": sample, "random_state": seed}
    first = judges.route(posterior, **options)
    if truth is not None and np.any(truth[first.ask] < 0):
        missing = crowd.instance_vocabulary.arrow[int(first.ask[np.argmax(truth[first.ask] < 0)])].as_py()
        raise DataError(
            f"{answers}: {int(np.sum(truth[first.ask] < 0)):,} of the {len(first.ask):,} instances to ask for have no answer, "
            f"such as {missing!r}",
            parameter="answers",
        )
    result = first if truth is None else judges.route(posterior, **options, answers=truth)
    rows = result.ask if truth is None else np.arange(crowd.n_instances)
    final = labels if truth is None else np.where(truth >= 0, truth, labels)
    goes = np.full(crowd.n_instances, ASK, object)
    if truth is not None and result.to_people is not None:
        goes = np.where(truth >= 0, DONE, np.where(result.to_people, PEOPLE, MODEL))
    table = pa.table(
        {
            "instance": crowd.instance_vocabulary.take(rows),
            "label": crowd.class_vocabulary.take(final[rows]),
            "confidence": posterior[rows, labels[rows]],
            "goes_to": pa.array(goes[rows].tolist(), pa.string()),
        }
    )
    write_together({out: table})
    return Routed(fitted.name, result, crowd.n_instances, out)
