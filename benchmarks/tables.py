"""Concord on tables, most of them with rare classes, beside logistic regression on scaled columns with majority votes.

    python benchmarks/tables.py [--sets "wide, 11 %" ...] [--seeds 2]    # -> benchmarks/results/tables.jsonl

Normal columns, some of which differ between classes, mixed with each other, of very different scale and unscaled; a few people,
who label four fifths of the rows, and a model, which labels all of them. What is measured is as in `texts.py`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from crowdwise import Annotations
from stamp import commit
from texts import Labelled, compared

RECORDS = Path(__file__).parent / "results" / "tables.jsonl"
NEW = 3000  # rows that are predicted


def made_up(
    shares: list[float],
    *,
    rng: np.random.Generator,
    n: int = 600,
    columns: int = 250,
    telling: int = 24,
    people: int = 2,
) -> Labelled:
    """A table whose classes have the given ``shares`` and differ in ``telling`` columns."""
    classes = len(shares)
    truth = rng.choice(classes, n + NEW, p=shares)
    centres = 0.35 * rng.normal(size=(classes, columns)) * (np.arange(columns) < telling)
    X = rng.normal(size=(n + NEW, columns)) + centres[truth]
    X = X @ (np.eye(columns) + 0.5 * rng.normal(size=(columns, columns)) / np.sqrt(columns))
    X = (X * np.exp(2 * rng.normal(size=columns)) + 10 * rng.normal(size=columns)).astype(np.float32)
    skills = [*rng.uniform(0.58, 0.72, people), 0.75]  # who else labels by chance
    rows = [
        (row, who, truth[row] if rng.random() < skill else rng.integers(classes))
        for who, skill in enumerate(skills)
        for row in range(n)
        if who == people or rng.random() < 0.8
    ]
    crowd = Annotations.from_triples(*np.array(rows).T, n_instances=n, n_annotators=len(skills), n_classes=classes)
    return Labelled(X[:n], truth[:n], X[n:], truth[n:], crowd)


SETS: dict[str, dict[str, Any]] = {
    "wide, equal classes": {"shares": [0.5, 0.5]},
    "wide, 30 %": {"shares": [0.7, 0.3]},
    "wide, 11 %": {"shares": [0.89, 0.11]},
    "wide, 5 %": {"shares": [0.95, 0.05], "n": 1000},
    "narrow, 10 %": {"shares": [0.9, 0.1], "columns": 20, "telling": 12},
    "narrow, 3 %": {"shares": [0.97, 0.03], "columns": 20, "telling": 16, "n": 2000},
    "eight people, 15 %": {"shares": [0.85, 0.15], "columns": 60, "people": 8, "n": 800},
    "four people, hardly telling, 10 %": {
        "shares": [0.9, 0.1], "columns": 100, "telling": 4, "people": 4, "n": 800,
    },
    "four people, four classes": {
        "shares": [0.6, 0.25, 0.1, 0.05], "columns": 60, "telling": 40, "people": 4, "n": 1000,
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in chosen.sets:
        for seed in range(chosen.seeds):
            made = made_up(**SETS[name], rng=np.random.default_rng(1000 + seed))
            _, figures = compared(made, seed, StandardScaler())
            about = {"benchmark": "tables", "set": name, "seed": seed, "commit": commit()}
            record = about | {"rows": len(made.X), "columns": made.X.shape[1]} | figures
            with RECORDS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
