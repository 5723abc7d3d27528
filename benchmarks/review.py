"""How many reviews a queue saves: labels that are right after so many reviewed items, by the queue's order and at random.

    python benchmarks/review.py                 # public crowds and a simulated one -> benchmarks/results/review.jsonl
    python benchmarks/review.py --table         # the records as a table

A reviewer who is always right answers one item after the other; the consensus is fitted anew after every tenth of the
budget (a fifth of the items), and the queue takes its next items from it. At random, the mean of five orders.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import datasets, quality, simulate
from crowdwise.annotations import Annotations
from crowdwise.reviewing.answers import Answer, Answers
from crowdwise.reviewing.consensus import Consensus, merged, refit
from crowdwise.reviewing.queue import View, queue

RECORDS = Path(__file__).parent / "results" / "review.jsonl"
BUDGET, ROUNDS, RANDOM = 0.2, 10, 5  # share of the items, refits, orders at random
Choose = Callable[[Consensus], Any]


def crowds() -> dict[str, Callable[[], tuple[Annotations, Any]]]:
    """Annotations and truth by name."""

    def public(name: str) -> tuple[Annotations, Any]:
        data = datasets.load(name)
        assert data.annotations is not None
        return data.annotations, np.asarray(data.clean)

    def simulated() -> tuple[Annotations, Any]:
        data = datasets.load("digits")
        made = simulate.aidn(data.X_train, data.y_train, n_annotators=60, labels_per_instance=3, random_state=0)
        return made.annotations, np.asarray(made.y)

    named = {"RTE": "rte", "LabelMe": "labelme", "Music": "music", "Bluebird": "bluebird"}
    return {title: partial(public, name) for title, name in named.items()} | {"simulated": simulated}


def curve(crowd: Annotations, truth: Any, choose: Choose) -> list[tuple[int, float]]:
    """Reviewed items and the share of right labels, from none to the whole budget."""
    answers, nothing = Answers(crowd), np.full(crowd.n_instances, -1, np.int32)
    known = np.flatnonzero(truth >= 0)
    ids, classes = crowd.instance_vocabulary.arrow.to_pylist(), crowd.class_vocabulary.arrow.to_pylist()
    points, step = [], max(1, round(BUDGET * len(known) / ROUNDS))
    for _ in range(ROUNDS + 1):
        now = refit(merged(crowd, answers), crowd.n_annotators, answers.agreed(), nothing)
        points.append((int(answers.reviewed.sum()), float(np.mean(now.label[known] == truth[known]))))
        order = choose(now)
        for item in order[np.isin(order, known)][:step].tolist():
            answers.play(Answer("reviewer", "label", ids[item], classes[truth[item]]))
    return points


def promises(crowd: Annotations, truth: Any) -> list[tuple[float, float, float, float, float]]:
    """Share reviewed, then of the rest: share right, share expected to be right, and the ends of its interval."""
    answers, nothing = Answers(crowd), np.full(crowd.n_instances, -1, np.int32)
    ids, classes = crowd.instance_vocabulary.arrow.to_pylist(), crowd.class_vocabulary.arrow.to_pylist()
    known, checked, found = truth >= 0, [], []
    step = max(1, round(0.025 * known.sum()))
    for part in (0.0, 0.05, 0.1, 0.2):
        while True:
            now = refit(merged(crowd, answers), crowd.n_annotators, answers.agreed(), nothing)
            if answers.reviewed.sum() >= part * known.sum():
                break
            order = queue(now, View())
            for item in order[known[order]][:step].tolist():
                checked.append((float(now.confidence[item]), bool(now.label[item] == truth[item])))
                answers.play(Answer("reviewer", "label", ids[item], classes[truth[item]]))
        rest = known & (answers.reviewed == 0)
        expected = quality.outlook(now.confidence[rest], checked, crowd.n_classes, 0.97)
        right = float(np.mean(now.label[rest] == truth[rest]))
        found.append((part, right, expected.right, expected.low, expected.high))
    return found


def shuffled(seed: int) -> Choose:
    """Items that nobody has reviewed, in an order that does not change."""

    def choose(now: Consensus) -> Any:
        order = np.random.default_rng(seed).permutation(len(now.reviewed))
        return order[~now.reviewed[order]]

    return choose


def needed(points: list[tuple[int, float]], right: float) -> float:
    """Reviews after which the labels are as good, interpolated; the whole budget if never."""
    reviews, shares = map(np.array, zip(*points, strict=True))
    best = np.maximum.accumulate(shares)
    return float(np.interp(right, best + 1e-9 * np.arange(len(best)), reviews))


def measure() -> None:
    with open(RECORDS, "w", encoding="utf-8") as file:
        for name, make in crowds().items():
            crowd, truth = make()
            start = time.perf_counter()
            by_queue = {
                order: curve(crowd, truth, lambda now, o=order: queue(now, View(o))) for order in ("doubt", "gain")
            }  # type: ignore[misc,arg-type]
            every = [curve(crowd, truth, shuffled(seed)) for seed in range(RANDOM)]
            at_random = [(every[0][k][0], float(np.mean([one[k][1] for one in every]))) for k in range(ROUNDS + 1)]
            record = {
                "crowd": name,
                "rest": promises(crowd, truth),
                "items": int((truth >= 0).sum()),
                "labels": len(crowd),
                **by_queue,
                "random": at_random,
            }
            file.write(json.dumps(record) + "\n")
            print(f"{name}: {time.perf_counter() - start:.1f} s")


def table() -> str:
    """The records as tables in Markdown."""
    heads = ["crowd", "items", "right before", "after 5 %", "10 %", "20 %, by the queue", "20 %, at random"]
    heads.append("reviews for the gain of 20 % at random")
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    records = [json.loads(text) for text in RECORDS.read_text("utf-8").splitlines()]
    for record in records:
        points, at_random = record["doubt"], record["random"]
        reviews = needed([tuple(point) for point in points], at_random[-1][1])
        share = reviews / at_random[-1][0]
        at = {part: points[round(part * ROUNDS / BUDGET)][1] for part in (0.0, 0.05, 0.1, 0.2)}
        lines.append(
            f"| {record['crowd']} | {record['items']:,} | {at[0.0]:.1%} | {at[0.05]:.1%} | {at[0.1]:.1%} | {at[0.2]:.1%} | "
            f"{at_random[-1][1]:.1%} | {reviews:.0f} instead of {at_random[-1][0]:,} ({share:.0%}) |"
        )
    lines += ["", "| crowd | before | after 5 % | 10 % | 20 % |", "|---|---|---|---|---|"]
    for record in records:
        cells = [f"{right:.0%}: {said:.0%} ({low:.0%} to {high:.0%})" for _, right, said, low, high in record["rest"]]
        lines.append(f"| {record['crowd']} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the records as a table, and measure nothing")
    if not parser.parse_args().table:
        measure()
    print(table())
