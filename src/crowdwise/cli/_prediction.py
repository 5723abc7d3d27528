"""`crowdwise predict`: what a trained model says of new instances, as a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import crowdwise
from crowdwise.cli._console import say
from crowdwise.readers import read_inputs, write_table


def write_predictions(model: Path, inputs: str, out: Path, *, proba: bool, ids: str | None, device: str) -> None:
    """Predict the class of each row of ``inputs``, and with ``proba`` the probability of every class."""
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
    write_table(pa.table(columns), out)
    say(f"{out}: {len(instances.X):,} predictions by {classifier.name}")
