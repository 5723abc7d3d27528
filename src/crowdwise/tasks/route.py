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
from crowdwise.figures import evidence
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
    n_to_ask: int = 0
    """Instances that people have to label before the rest can be routed; 0 if all is known."""
    n_gold: int = 0
    """Instances drawn whose class the file has as gold: nobody is asked for them."""


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
    annotations is good enough. Gold labels in the file are answers too: if they answer for the whole sample, there is
    nothing to ask.
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
    crowd, gold = export.annotations, dict(export.gold or {})
    known = dict(gold)
    if answers is not None:
        named = {role: (reading or {}).get(role) for role in ("instance", "label")}
        found = read_gold(answers, crowd, named["instance"], named["label"], label_rules(reading))
        crowd = found.annotations
        known |= found.gold or {}
        observer.note(found.message)
    with observer.step("inferring labels"):
        fitted = fit(method, crowd, None, seed)
    posterior, labels = fitted.model.posterior_, fitted.labels
    truth = gold_codes(crowd, known) if known else None
    truth = np.full(crowd.n_instances, -1) if truth is None else truth
    options: dict[str, Any] = {"error": error, "risk": risk, "sample": sample, "random_state": seed}
    result = judges.route(posterior, **options)
    unknown = result.ask[truth[result.ask] < 0]
    if answers is not None and len(unknown):
        missing = crowd.instance_vocabulary.arrow[int(unknown[0])].as_py()
        raise DataError(
            f"{answers}: {len(unknown):,} of the {len(result.ask):,} instances to ask for have no answer, such as {missing!r}",
            parameter="answers",
        )
    given = evidence(crowd, gold=int(np.count_nonzero(truth >= 0)))
    if not given.enough:
        observer.note(f"{given.sentence} Until then no label has a confidence, and the items are drawn at random.")
    rows, goes = unknown, np.full(crowd.n_instances, ASK, object)
    if not len(unknown):
        result = judges.route(posterior, **options, answers=truth)
        rows = np.arange(crowd.n_instances)
        goes = np.where(np.asarray(result.to_people), PEOPLE, MODEL).astype(object)
        goes[truth >= 0] = DONE
    final = np.where(truth >= 0, truth, labels)
    table = pa.table(
        {
            "instance": crowd.instance_vocabulary.take(rows),
            "label": crowd.class_vocabulary.take(final[rows]),
            "confidence": pa.array(posterior[rows, labels[rows]], mask=np.full(len(rows), not given.enough)),
            "goes_to": pa.array(goes[rows].tolist(), pa.string()),
        }
    )
    drawn_gold = gold_codes(crowd, gold) if gold else None
    n_gold = 0 if drawn_gold is None else int(np.sum(drawn_gold[result.ask] >= 0))
    write_together({out: table})
    return Routed(fitted.name, result, crowd.n_instances, out, len(unknown), n_gold)
