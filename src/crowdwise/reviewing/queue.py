"""The order in which items are reviewed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from crowdwise.data.types import Array, Floats, Ints
from crowdwise.reviewing.consensus import Consensus

Order = Literal["doubt", "gain", "disagreement", "file"]
ORDERS: dict[str, str] = {
    "doubt": "most doubtful first",
    "gain": "largest expected gain first",
    "disagreement": "most disagreement first",
    "file": "as in the file",
}
assert tuple(ORDERS) == get_args(Order)


@dataclass(frozen=True)
class View:
    """Which items a reviewer wants to see, in which order."""

    order: Order = "doubt"
    of_class: int | None = None
    """Only items that are of this class by consensus or by any label."""
    of_annotator: int | None = None
    """Only items with a label of this annotator; where it is most likely wrong, they come first."""


def queue(consensus: Consensus, view: View) -> Ints:
    """Codes of the items of a view that nobody had reviewed, best first; equal ones as in the file."""
    keep = ~consensus.reviewed
    crowd, score = consensus.annotations, scores(consensus, view.order)
    if view.of_class is not None:
        has = np.zeros(crowd.n_instances, bool)
        has[crowd.instance[crowd.label == view.of_class]] = True
        keep &= has | (consensus.label == view.of_class)
    if view.of_annotator is not None:
        own = np.flatnonzero(crowd.annotator == view.of_annotator)
        labelled = np.zeros(crowd.n_instances, bool)
        labelled[crowd.instance[own]] = True
        keep &= labelled
        if view.order == "doubt" and consensus.comparable:
            score = np.zeros(crowd.n_instances)
            np.maximum.at(score, crowd.instance[own], 1 - consensus.posterior[crowd.instance[own], crowd.label[own]])
    items = np.flatnonzero(keep)
    return np.asarray(items[np.argsort(-np.round(score[items], 9), kind="stable")])


def scores(consensus: Consensus, order: Order) -> Floats:
    """What an order sorts by, (n,): more comes first. At random where nothing tells which items are doubtful."""
    if not consensus.comparable and order != "file":  # what is reviewed then measures the rest
        return np.random.default_rng(0).random(len(consensus.confidence))
    if order == "doubt":
        return np.asarray(1 - consensus.confidence)
    if order == "gain":
        return consensus.information
    return consensus.disagreement if order == "disagreement" else np.zeros(len(consensus.confidence))


def pinned(items: Ints, first: int | None) -> Array:
    """The same queue with one item in front, whether it is in it or not."""
    return items if first is None else np.concatenate([[first], items[items != first]])
