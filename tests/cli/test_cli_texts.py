"""From texts, pictures and mixed tables to a classifier, each with one command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import crowdwise
from crowdwise.readers import load_columns, write_table

WORDS = {"bad": ["awful", "boring", "bad", "dull"], "good": ["great", "lovely", "good", "fine"]}
N = 80
FAST = ("-m", "ce", "--epochs", 12, "-o", "run")


@pytest.fixture
def texts(cli: Any) -> tuple[list[str], list[str], list[tuple[int, str, str]]]:
    """Texts, their classes, and what three people said of them."""
    rng = np.random.default_rng(0)
    truth = rng.choice(list(WORDS), N).tolist()
    found = [" ".join([*rng.choice(["the", "a", "film"], 4), *rng.choice(WORDS[label], 2)]) for label in truth]
    labels = [
        (row, who, truth[row] if rng.random() < 0.9 else str(rng.choice(list(WORDS))))
        for row in range(N)
        for who in "abc"
    ]
    rng.shuffle(labels)
    return found, truth, [(int(row), str(who), str(label)) for row, who, label in labels]


def write(path: str, *rows: Any) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def accuracy(path: str, truth: dict[str, str]) -> float:
    columns = load_columns(Path(path), lambda names: names)
    said = dict(zip(columns["instance"].to_pylist(), columns["label"].to_pylist(), strict=True))
    assert set(said) == set(truth)
    return float(np.mean([said[name] == label for name, label in truth.items()]))


def test_texts_in_the_table_of_labels(cli, texts):
    found, truth, labels = texts
    write("labels.csv", ("item", "worker", "answer", "said"), *((f"i{r}", w, y, found[r]) for r, w, y in labels))
    output = cli("train", "labels.csv", "--text", "said", *FAST).output
    assert "labels.csv: 80 texts from column 'said'" in output
    write("new.csv", ("id", "said"), *((f"i{row}", text) for row, text in enumerate(found)))
    cli("predict", "run", "new.csv")
    assert accuracy("predictions.csv", {f"i{row}": label for row, label in enumerate(truth)}) > 0.8
    Path("new.txt").write_text("\n".join(found), encoding="utf-8")
    cli("predict", "run", "new.txt", "-o", "lines.csv")
    assert accuracy("lines.csv", {str(row): label for row, label in enumerate(truth)}) > 0.8


def test_a_usual_column_of_texts_need_not_be_named(cli, texts):
    found, _, labels = texts
    write("labels.csv", ("item", "worker", "answer", "text"), *((f"i{r}", w, y, found[r]) for r, w, y in labels))
    assert "texts from column 'text'" in cli("train", "labels.csv", *FAST).output


def test_contradictory_texts_are_an_error(cli, texts):
    found, _, labels = texts
    rows = [(f"i{r}", w, y, found[r]) for r, w, y in labels]
    rows[5] = (*rows[5][:3], "something else")
    write("labels.csv", ("item", "worker", "answer", "said"), *rows)
    output = cli("train", "labels.csv", "--text", "said", *FAST, code=1).output
    assert f"instance '{rows[5][0]}' has two different values of 'said'" in output
    assert not Path("run").exists()
    assert (
        "no column 'sad' for the text; did you mean 'said'"
        in cli("train", "labels.csv", "--text", "sad", code=1).output
    )


def test_nothing_to_learn_from_is_an_error_that_names_the_options(cli, texts):
    write("labels.csv", ("item", "worker", "answer"), *((f"i{r}", w, y) for r, w, y in texts[2]))
    output = cli("train", "labels.csv", code=1).output
    for option in ("--text COLUMN", "--image COLUMN", "--inputs FILE"):
        assert option in output
    assert "LABELS and --annotations are the same" in cli("train", "labels.csv", "--annotations", "x", code=2).output
    assert "--text says what" in cli("train", "--data", "digits", "--text", "said", code=2).output


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_texts_in_a_table_of_their_own_in_another_order(cli, texts, suffix):
    found, truth, labels = texts
    write("labels.csv", ("item", "worker", "answer"), *((f"i{r}", w, y) for r, w, y in labels))
    order = np.random.default_rng(1).permutation(N)
    write("texts.csv", ("key", "said", "length"), *((f"i{row}", found[row], len(found[row])) for row in order))
    write_table(pa.table(load_columns(Path("texts.csv"), lambda names: names)), Path(f"inputs.{suffix}"))
    cli("train", "labels.csv", "--inputs", f"inputs.{suffix}", "--ids", "key", "--text", "said", *FAST)
    cli("predict", "run", f"inputs.{suffix}", "--ids", "key", "--text", "said")
    assert accuracy("predictions.csv", {f"i{row}": label for row, label in enumerate(truth)}) > 0.8


def test_a_table_of_numbers_categories_and_texts(cli, texts):
    found, truth, labels = texts
    write("labels.csv", ("item", "worker", "answer"), *((f"i{r}", w, y) for r, w, y in labels))
    rows = [(f"i{row}", text, "" if row == 3 else row % 9, "ab"[row % 2]) for row, text in enumerate(found)]
    write("mixed.csv", ("id", "review", "stars", "shop"), *rows)
    output = cli("train", "labels.csv", "--inputs", "mixed.csv", *FAST).output
    assert "with the columns 'review', 'stars', 'shop'; ids from column 'id'" in output
    assert crowdwise.load("run").intake_.encoder.about == "table: 1 x text, 1 x number, 1 x category"
    cli("predict", "run", "mixed.csv")
    assert accuracy("predictions.csv", {f"i{row}": label for row, label in enumerate(truth)}) > 0.8


def test_a_run_on_texts_can_be_resumed_and_reported(cli, texts):
    found, _, labels = texts
    write("labels.csv", ("item", "worker", "answer", "said"), *((f"i{r}", w, y, found[r]) for r, w, y in labels))
    cli("train", "labels.csv", "--text", "said", *FAST)
    assert "this run is finished" in cli("train", "--resume", "run").output
    cli("report", "run", "-o", "page.html")
    assert found[0] in Path("page.html").read_text("utf-8")


def pictures(folder: Path, n: int = 30) -> list[str]:
    """Dark and bright pictures of many sizes."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    truth = rng.choice(["dark", "bright"], n).tolist()
    for number, label in enumerate(truth):
        size = tuple(int(side) for side in rng.integers(10, 60, 2))
        Image.new("RGB", size, (30, 20, 60) if label == "dark" else (200, 220, 180)).save(folder / f"p{number:02d}.png")
    return truth


FAST_PICTURES = ("-m", "ce", "--epochs", 10, "--set", "augment=none", "--set", 'encoder={name = "pixels", size = 8}')


@pytest.mark.parametrize("suffix", ["", ".png"])
def test_a_folder_of_pictures_called_by_their_names(cli, suffix):
    truth = pictures(Path("photos"))
    rows = [(f"p{row:02d}{suffix}", who, label) for row, label in enumerate(truth) for who in "abc"]
    write("labels.csv", ("item", "worker", "answer"), *rows[:-3])  # one picture has no label
    output = cli("train", "labels.csv", "--inputs", "photos", *FAST_PICTURES, "-o", "run").output
    assert "photos: 30 pictures; ids from file names" in output
    cli("predict", "run", "photos")
    assert accuracy("predictions.csv", {f"p{row:02d}.png": label for row, label in enumerate(truth)}) > 0.8


def test_a_column_of_paths_and_an_export_of_label_studio(cli):
    truth = pictures(Path("photos"))
    rows = [(row, who, label, f"photos/p{row:02d}.png") for row, label in enumerate(truth) for who in "abc"]
    write("labels.csv", ("item", "worker", "answer", "path"), *rows)
    output = cli("train", "labels.csv", "--image", "path", *FAST_PICTURES, "-o", "a").output
    assert "30 pictures from column 'path'" in output
    assert "not below the folder" in cli("train", "labels.csv", "--image", "path", "--root", "a", code=1).output
    tasks = [
        {
            "id": 100 + row,
            "data": {"image": f"/data/upload/3/0a1b2c3d-p{row:02d}.png"},
            "annotations": [
                {
                    "id": 10 * row + who,
                    "completed_by": who,
                    "result": [
                        {"from_name": "light", "to_name": "image", "type": "choices", "value": {"choices": [label]}}
                    ],
                }
                for who in range(3)
            ],
        }
        for row, label in enumerate(truth)
    ]
    Path("export.json").write_text(json.dumps(tasks))
    cli("train", "export.json", "--root", "photos", *FAST_PICTURES, "-o", "b")
    cli("train", "export.json", "--inputs", "photos", *FAST_PICTURES, "-o", "c")
    for run in "abc":
        cli("predict", run, "photos", "-o", f"{run}.csv")
        assert accuracy(f"{run}.csv", {f"p{row:02d}.png": label for row, label in enumerate(truth)}) > 0.8
    cli("report", "b", "-o", "page.html")
    assert "data:image/" in Path("page.html").read_text("utf-8")
    cli("report", "export.json", "--root", "photos", "-o", "labels.html")
    assert "data:image/" in Path("labels.html").read_text("utf-8")


def test_predict_reads_annotations_as_train_does(cli: Any) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=60)
    words = np.where(truth == 1, "lovely and bright day", "grey and gloomy day")
    Path("texts.csv").write_text("id,text\n" + "".join(f"t{k},{word}\n" for k, word in enumerate(words)))
    rows = [(k, a, "yes" if truth[k] ^ (rng.random() < 0.2) else "no") for k in range(60) for a in "xyz"]
    lines = [f"t{k};{a};{label};{'yes' if truth[k] else 'no'}\n" for k, a, label in rows]
    Path("labels.csv").write_text("Wer;Text;Urteil;wahr\n" + "".join(lines), encoding="utf-16")
    reading = ("--instance", "Wer", "--annotator", "Text", "--label", "Urteil", "--encoding", "utf-16")
    common = ("--ids", "id", "--text", "text")
    cli("train", "labels.csv", "--inputs", "texts.csv", *common, *reading, "-m", "ce", "--epochs", "2", "-o", "run")
    asked = ("predict", "run", "texts.csv", *common)
    output = cli(*asked, "--annotations", "labels.csv", *reading, "--gold", "wahr").output
    assert "of 60 instances with gold are right" in output
    assert "confidence" in Path("predictions.csv").read_text().partition("\n")[0]
    message = cli(*asked, "--label", "Urteil", code=2).output
    assert "--label says how annotations are read" in message
