"""Rankings from votes on pairs: how well they predict votes that were left out.

    CROWDWISE_DATA=folder python benchmarks/ranking.py

Five folds of the votes, drawn by seed 0; mean of -ln P(outcome) of the votes left out, in nats. ``equal`` is Bradley-Terry with
ties and an order effect; ``own`` also gives every annotator a discrimination, an order effect and a tie rate. Appends a row for
each data set to benchmarks/results/ranking.jsonl.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import numpy as np

from crowdwise.errors import CrowdwiseWarning
from crowdwise.ranking import BradleyTerry, Votes
from stamp import commit

RESULTS = Path(__file__).parent / "results" / "ranking.jsonl"
SETS = ("llmfao", "wmt13_fren", "cems")
FOLDS = 5


def load(name: str, folder: Path) -> Votes:
    """The votes of a data set; of llmfao those of people."""
    with np.load(folder / f"pairs_{name}.npz", allow_pickle=False) as data:
        rows = np.ones(len(data["left"]), bool)
        if name == "llmfao":
            rows = data["annotator_kind"][data["annotator"]] == 0
        names = data["item_names"]
        words = np.array(["left", "right", "tie"])[data["outcome"][rows]]
        left, right = (names[data[side][rows]] for side in ("left", "right"))
        return Votes.of(left, right, words, annotator=data["annotator"][rows])


def left_out_loss(votes: Votes, **options: str) -> float:
    fold = np.random.default_rng(0).integers(0, FOLDS, len(votes))
    total = 0.0
    for number in range(FOLDS):
        board = BradleyTerry(**options).fit(votes.take(np.flatnonzero(fold != number)))
        left_out = votes.take(np.flatnonzero(fold == number))
        total += board.log_loss(left_out) * len(left_out)
    return total / len(votes)


def main() -> None:
    warnings.simplefilter("ignore", CrowdwiseWarning)
    folder = Path(os.environ["CROWDWISE_DATA"])
    with RESULTS.open("a", encoding="utf-8") as file:
        for name in SETS:
            votes = load(name, folder)
            row = {
                "data": name,
                "votes": len(votes),
                "contestants": votes.size,
                "annotators": votes.annotators.size,
                "equal": round(left_out_loss(votes, annotators="equal"), 4),
                "own": round(left_out_loss(votes, annotators="own"), 4),
                "commit": commit(),
            }
            print(row)
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
