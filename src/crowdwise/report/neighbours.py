"""Items that are most like a doubtful one, by the features of the classifier or of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise.data.codes import row_blocks
from crowdwise.data.types import Floats, Ints
from crowdwise.report.analysis import Analysis
from crowdwise.report.limits import number

SHOWN = 3  # neighbours of an item
MOST = 500  # items that have any
EXCERPT = 80  # characters of a neighbour's text
NUMBERS = 2**24  # similarities held in memory at a time


def add_neighbours(rows: Sequence[dict[str, Any]], order: Ints, analysis: Analysis) -> None:
    """Add ``near`` to the first rows, which are the items of ``order``: place among the rows (-1 if it has none), id, label,
    confidence and text of the most similar items that have labels."""
    found = features(analysis)
    labelled = np.flatnonzero(analysis.source.annotations.labels_per_instance > 0)
    codes = order[: min(len(rows), MOST)]
    if found is None or len(labelled) < 2 or not len(codes):
        return
    source, place = analysis.source, {code: at for at, code in enumerate(order[: len(rows)].tolist())}
    confidence = analysis.posterior.max(axis=1)
    for row, near in zip(rows, nearest(found, codes, labelled).tolist(), strict=False):
        row["near"] = [
            [
                place.get(code, -1),
                str(source.annotations.instances[code]),
                int(analysis.label[code]),
                number(confidence[code]) if analysis.comparable else None,
                "" if source.texts is None or source.texts[code] is None else str(source.texts[code])[:EXCERPT],
            ]
            for code in near
            if code >= 0
        ]


def features(analysis: Analysis) -> Floats | None:
    """Features of all items, (n, d), each column with mean 0 and deviation 1; None without inputs."""
    source = analysis.source
    if analysis.transitions is not None:
        found: Any = analysis.transitions.features.detach().cpu().numpy()
    elif source.X is None:
        return None
    elif source.model is not None:
        found = source.model.intake_(source.X)
    else:
        from crowdwise.engine.intake import Intake

        found = Intake.learn(source.X, np.arange(source.annotations.n_instances), 0)[1]
    found = np.asarray(found.detach().cpu() if hasattr(found, "detach") else found, np.float32)
    found = found.reshape(len(found), -1)
    found = found - found.mean(axis=0)
    return np.asarray(found / np.maximum(found.std(axis=0), 1e-6))


def nearest(found: Floats, codes: Ints, among: Ints) -> Ints:
    """The most similar of the items ``among``, by cosine, for each of ``codes``, (k, SHOWN); -1 where there are fewer.

    >>> nearest(np.array([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0], [0.0, 1.0]]), np.array([0]), np.arange(4)).tolist()
    [[1, 3, 2]]
    """
    unit = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    others, result = unit[among].T, np.full((len(codes), SHOWN), -1, np.int64)
    for block in row_blocks(len(codes), len(among), NUMBERS):
        alike = unit[codes[block]] @ others
        alike[codes[block][:, None] == among] = -np.inf
        best = np.argsort(-alike, axis=1, kind="stable")[:, : min(SHOWN, len(among) - 1)]
        result[block, : best.shape[1]] = among[best]
    return result
