"""Compare the models among the annotators with people, and with gold labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.errors import DataError, UsageError, spelled
from crowdwise.judges import JudgedModels, summary
from crowdwise.readers import MODEL
from crowdwise.tasks.aggregate import write_together
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_outputs
from crowdwise.tasks.reading import Paths, Reading, paths_of, read_annotations


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
    export = read_annotations(path, reading, observer, gold=gold, gold_column=gold_column, details=False)
    crowd, known = export.annotations, export.gold
    ids = {str(one): code for code, one in enumerate(crowd.annotator_vocabulary.arrow.to_pylist())}
    unknown = [name for name in models if name not in ids]
    if unknown:
        raise DataError(f"no annotator is called {unknown[0]!r}", parameter="model")
    named = np.isin(np.arange(crowd.n_annotators), [ids[name] for name in models])
    kinds = np.where(named, MODEL, export.kinds)
    if not np.any(kinds == MODEL):
        raise UsageError(
            f"no annotator is known to be a model: say which with {spelled('model', 'ID')}, or by a column kind",
            parameter="model",
        )
    options = {"people": people, "epsilon": epsilon, "score": score, "random_state": seed}
    with observer.step("comparing models with people"):
        result = summary(crowd, known, kinds=kinds, **options)
    if out is not None:
        write_together({out: result.to_table()})
    return result
