"""Every file that README.md and docs/ name: one small crowd of comments, photos, customers and rows, in all their formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

import export_samples
from crowdwise.readers import write_table
from sheet_samples import xlsx

N_ITEMS = 60
PEOPLE = {"ann": 0.95, "bob": 0.9, "cem": 0.85, "dee": 0.8}
"""Annotators, and how often each is right."""
WORDS = {"good": ["lovely", "warm", "clever"], "bad": ["dull", "cold", "silly"]}


def make_files(folder: Path, *, prefix: str = "r") -> None:
    """Write all files to ``folder``; items are called ``prefix`` and their number."""
    rng = np.random.default_rng(0)
    truth = rng.choice(["bad", "good"], N_ITEMS).tolist()
    ids = [f"{prefix}{number}" for number in range(N_ITEMS)]
    texts = [" ".join(rng.choice(WORDS[true], 3)) + f" {number}" for number, true in enumerate(truth)]
    people = {who: _labels(truth, right, rng) for who, right in PEOPLE.items()}
    rows = [(k, who, given[k]) for k in range(N_ITEMS) for who, given in people.items()]

    comments = [[ids[k], texts[k], f"{ids[k]}.png", who, label] for k, who, label in rows]
    for name in ("labels.csv", "reviews.csv"):
        write_csv(folder / name, ["id", "review", "path", "annotator", "label"], comments)
    write_csv(folder / "people.csv", ["id", "annotator", "label"], [[ids[k], who, label] for k, who, label in rows])
    write_csv(folder / "texts.csv", ["id", "review"], zip(ids, texts, strict=True))
    write_csv(folder / "gold.csv", ["id", "label"], [[ids[k], truth[k]] for k in range(0, N_ITEMS, 2)])
    write_csv(folder / "answers.csv", ["id", "label"], zip(ids, truth, strict=True))
    for name in ("new.csv", "new_reviews.csv"):
        write_csv(folder / name, ["id", "review"], [[f"n{k}", texts[k]] for k in range(5)])
    (folder / "labels.xlsx").write_bytes(_sheets(comments, truth))

    _write_crowds(folder, ids, rows)
    _write_messy(folder, ids, rows)
    _write_models(folder, ids, truth, rng)
    _write_rows(folder, rows, truth, rng)
    _write_photos(folder, ids, truth, people, rng)
    (folder / "pool.tsv").write_bytes(export_samples.toloka())
    (folder / "batch.csv").write_bytes(export_samples.mturk())


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def _labels(truth: Sequence[str], right: float, rng: np.random.Generator) -> list[str]:
    other = {"bad": "good", "good": "bad"}
    return [true if rng.random() < right else other[true] for true in truth]


def _sheets(comments: Sequence[Sequence[str]], truth: Sequence[str]) -> bytes:
    """A workbook with a first sheet that is not asked for, and two that are."""
    header = ["id", "review", "path", "annotator", "verdict", "truth"]
    rows = [[*row, truth[number // len(PEOPLE)]] for number, row in enumerate(comments)]
    june = [[name.replace("r", "n"), *row] for name, *row in rows[: 5 * len(PEOPLE)]]
    return xlsx({"Notes": [["about", "this"]], "Round 2": [header, *rows], "June": [header, *june]})


def _write_crowds(folder: Path, ids: Sequence[str], rows: Sequence[tuple[int, str, str]]) -> None:
    """``crowd.*``: labels alone, under other headers in csv."""
    items = [ids[k] for k, _, _ in rows]
    who = [name for _, name, _ in rows]
    label = [given for _, _, given in rows]
    write_csv(folder / "crowd.csv", ["hit", "who", "choice"], zip(items, who, label, strict=True))
    write_table(pa.table({"item": items, "who": who, "choice": label}), folder / "crowd.jsonl.zst")
    table = pa.table({"item": items, "annotator": who, "label": label})
    for name in ("crowd.parquet", "crowd.jsonl", "crowd.jsonl.gz"):
        write_table(table, folder / name)
    (folder / "crowd-folder").mkdir(exist_ok=True)
    for part in range(2):
        write_table(table.slice(part * len(table) // 2, len(table) // 2), folder / "crowd-folder" / f"{part}.parquet")


def _write_messy(folder: Path, ids: Sequence[str], rows: Sequence[tuple[int, str, str]]) -> None:
    """Labels without a header, and labels spelled in several ways."""
    plain = [[ids[k], who, given] for k, who, given in rows]
    write_csv(folder / "no-header.csv", plain[0], plain[1:])
    cats = ["cat", "Cat ", "CAT", "Katze", "N/A"]
    spelled = [[name, who, cats[e % 5] if given == "good" else "dog"] for e, (name, who, given) in enumerate(plain)]
    write_csv(folder / "spellings.csv", ["item", "annotator", "label"], spelled)


def _write_models(folder: Path, ids: Sequence[str], truth: Sequence[str], rng: np.random.Generator) -> None:
    for model in ("gpt", "claude"):
        lines = []
        for name, label in zip(ids, _labels(truth, 0.9, rng), strict=True):
            choices = [{"message": {"content": label}, "finish_reason": "stop"}]
            lines.append({"custom_id": name, "response": {"body": {"model": model, "choices": choices}}})
        (folder / f"{model}.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")


def _write_rows(
    folder: Path, rows: Sequence[tuple[int, str, str]], truth: Sequence[str], rng: np.random.Generator
) -> None:
    """Inputs as numbers, whose labels name rows, and a table of customers."""
    side = np.array([1.0 if true == "good" else -1.0 for true in truth])
    X = (side[:, None] + rng.normal(size=(N_ITEMS, 4))).astype(np.float32)
    np.save(folder / "X.npy", X)
    np.save(folder / "new.npy", X[:5])
    np.savez(folder / "data.npz", X=X, names=np.arange(N_ITEMS))
    (folder / "ids.txt").write_text("\n".join(map(str, range(N_ITEMS))), "utf-8")
    numbered = [[k, *map(float, x)] for k, x in enumerate(X)]
    write_csv(folder / "features.csv", ["photo", "a", "b", "c", "d"], numbered)
    write_csv(folder / "annotations.csv", ["item", "annotator", "label"], rows)
    towns = rng.choice(["Bonn", "Ulm"], N_ITEMS)
    customers = [[f"r{k}", round(float(X[k, 0]), 3), towns[k], f"note {k} about it"] for k in range(N_ITEMS)]
    write_csv(folder / "customers.csv", ["customer", "age", "town", "note"], customers)


def _write_photos(
    folder: Path,
    ids: Sequence[str],
    truth: Sequence[str],
    people: dict[str, list[str]],
    rng: np.random.Generator,
) -> None:
    """Folders of photos by item and by task, and a Label Studio export about the latter."""
    for name in ("photos", "more-photos", "pictures"):
        (folder / name).mkdir(exist_ok=True)
    tasks = []
    for k in range(N_ITEMS):
        light = 220 if truth[k] == "good" else 20
        photo = Image.new("RGB", (8, 8), (light, light, int(rng.integers(255))))
        for name in (f"photos/{ids[k]}.png", f"photos/{k}.png", f"pictures/{k}.png"):
            photo.save(folder / name)
        if k < 3:
            photo.save(folder / f"more-photos/new-{k}.png")
        choice = {"from_name": "mood", "to_name": "image", "type": "choices"}
        labels = [
            {"completed_by": number, "result": [{**choice, "value": {"choices": [given[k]]}}]}
            for number, given in enumerate(people.values())
        ]
        tasks.append({"id": k, "data": {"image": f"/data/upload/1/0a1b2c3d-{k}.png"}, "annotations": labels})
    (folder / "export.json").write_text(json.dumps(tasks), "utf-8")
