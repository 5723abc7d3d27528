"""What a trained model says of new instances, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import crowdwise
from crowdwise.data.inputs import read_inputs
from crowdwise.readers import write_table


@dataclass(frozen=True)
class Predicted:
    """The predictions, and where they were written."""

    method: str
    table: pa.Table
    out: Path


def predict(
    model: str | Path,
    inputs: str | Path,
    out: str | Path,
    *,
    proba: bool = False,
    ids: str | None = None,
    device: str = "auto",
) -> Predicted:
    """Predict the class of each row of ``inputs``, and with ``proba`` the probability of every class.

    ``model`` is a saved model or a finished run; ``inputs`` and ``ids`` are as in `crowdwise.data.inputs.read_inputs`.
    """
    out = Path(out)
    classifier = crowdwise.load(model, device=device)
    instances = read_inputs(inputs, ids)
    probabilities = classifier.predict_proba(instances.X)  # (n, C)
    columns = {
        "instance": np.arange(len(instances.X)) if instances.ids is None else instances.ids,
        "label": classifier.classes_[probabilities.argmax(1)],
    }
    if proba:
        columns |= {f"p_{name}": probabilities[:, code] for code, name in enumerate(classifier.classes_.tolist())}
    out.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    write_table(table, out)
    return Predicted(classifier.name, table, out)
