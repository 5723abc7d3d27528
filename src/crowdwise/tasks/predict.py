"""What a trained model says of new instances, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import crowdwise
from crowdwise.annotations import Annotations
from crowdwise.data.inputs import read_inputs
from crowdwise.data.training import from_files
from crowdwise.errors import UsageError, spelled
from crowdwise.methods.core.labels import label_table
from crowdwise.readers import write_table
from crowdwise.readers.gold import read_gold
from crowdwise.tasks.reading import label_rules
from crowdwise.tasks.runs import is_run, read_run

SPELLING = ("clean", "classes", "missing", "map")  # arguments of `crowdwise.read` about labels


@dataclass(frozen=True)
class Predicted:
    """The predictions, and where they were written."""

    method: str
    table: pa.Table
    out: Path
    gold: float | None = None
    """Share of the predictions that are right, where gold is given; of ``gold_instances`` instances."""
    gold_instances: int = 0

    def as_json(self) -> dict[str, Any]:
        right = {"gold": self.gold, "gold_instances": self.gold_instances}
        return {"method": self.method, "predictions": self.table.num_rows, "out": self.out, **right}


def predict(
    model: str | Path,
    inputs: str | Path,
    out: str | Path,
    *,
    proba: bool = False,
    ids: str | None = None,
    text: str | None = None,
    image: str | None = None,
    root: str | None = None,
    annotations: str | Path | None = None,
    reading: Mapping[str, Any] | None = None,
    gold: str | Path | None = None,
    device: str = "auto",
) -> Predicted:
    """Predict the class of each row of ``inputs``, and with ``proba`` the probability of every class.

    With ``annotations`` of some of them, read as ``reading`` says, the probabilities are those given these labels, and the
    table has the confidence, the majority vote and what is doubtful, too.

    ``gold``, a table of true classes of some instances or a column of the annotations, measures the predictions. Its labels are
    spelled as ``reading`` says (clean, classes, missing, map).

    ``model`` is a saved model or a finished run; ``inputs``, ``ids``, ``text``, ``image`` and ``root`` are as in
    `crowdwise.data.inputs.read_inputs`: columns that are not named are those that the run was started with, or found by their
    usual names.
    """
    out = Path(out)
    of_gold = SPELLING if gold is not None else ()  # options that say how labels are spelled go for gold as well
    unused = [name for name in reading or {} if name not in of_gold]
    if annotations is None and unused:
        raise UsageError(
            f"{spelled(unused[0])} says how annotations are read, but there are none: "
            f"pass {spelled('annotations', 'FILE')}",
            parameter="annotations",
        )
    column = annotations is not None and gold is not None and not Path(gold).exists()  # not a table of its own
    classifier = crowdwise.load(model, device=device)
    encoder = classifier.intake_.encoder
    named: dict[str, Any] = {"text": text, "image": image, "root": root, "trained": _trained_columns(Path(model))}
    named["expects"] = "" if encoder is None else encoder.takes
    if annotations is None:
        instances = read_inputs(inputs, ids, **named)
        probabilities = classifier.predict_proba(instances.X)  # (n, C)
        ids_of_rows = np.arange(instances.n) if instances.ids is None else instances.ids
        table = pa.table({"instance": ids_of_rows, "label": classifier.classes_[probabilities.argmax(1)]})
    else:
        how = {**(reading or {}), "gold": str(gold)} if column else reading
        data = from_files(str(inputs), str(annotations), ids, how, **named)
        probabilities = classifier.posterior(data.X, data.annotations)
        table = label_table(data.annotations, probabilities, classifier.classes_)
    if proba:
        for code, name in enumerate(classifier.classes_.tolist()):
            table = table.append_column(f"p_{name}", pa.array(probabilities[:, code]))
    out.parent.mkdir(parents=True, exist_ok=True)
    right = None
    if column and data.gold is not None:
        rows, truth = data.gold
        right = np.array(table["label"].take(pa.array(rows)).to_pylist()) == truth
    elif gold is not None and not column:
        right = _right(table, Path(gold), classifier.classes_, reading)
    write_table(table, out)
    if right is None:
        return Predicted(classifier.name, table, out)
    return Predicted(classifier.name, table, out, float(right.mean()), len(right))


def _trained_columns(model: Path) -> dict[str, str]:
    """The columns of ids, texts and pictures that the run of a model was started with, where they are known."""
    folder = next((each for each in (model, model.parent) if is_run(each)), None)
    source = None if folder is None else read_run(folder).get("source")
    if not isinstance(source, dict):
        return {}
    return {role: source[role] for role in ("ids", "text", "image") if isinstance(source.get(role), str)}


def _right(table: pa.Table, gold: Path, classes: Any, reading: Mapping[str, Any] | None) -> Any:
    """Whether each prediction whose truth is known is right."""
    said = dict(zip(table["instance"].to_pylist(), table["label"].to_pylist(), strict=True))
    nobody = np.empty(0, np.int64)
    crowd = Annotations.from_triples(nobody, nobody, nobody, instances=list(said), n_annotators=0, classes=classes)
    named = {role: (reading or {}).get(role) for role in ("instance", "label")}
    found = read_gold(gold, crowd, named["instance"], named["label"], label_rules(reading)).gold
    return np.array([said[instance] == truth for instance, truth in found.items()])
