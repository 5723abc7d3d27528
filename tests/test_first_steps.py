"""What a newcomer brings: headers with blanks, gold under the crowd's own headers, file names that Label Studio tidied."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import crowdwise
from crowdwise.cli.console import Terminal
from crowdwise.data.inputs import read_inputs
from crowdwise.data.located import find_picture
from crowdwise.errors import DataError
from crowdwise.tasks.predict import predict
from crowdwise.tasks.train import Run, plan


@pytest.fixture
def comments(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = ["Nr.;Customer comment ;Who?;Your answer"]
    for number in range(80):
        true = rng.choice(["bad", "good"])
        text = " ".join(rng.choice(["lovely", "warm"] if true == "good" else ["dull", "cold"], 3)) + f" {number}"
        for who, right in (("ann", 0.95), ("bob", 0.9), ("cem", 0.8)):
            label = true if rng.random() < right else "bad" if true == "good" else "good"
            rows.append(f"C-{number};{text};{who};{label}")
    path = tmp_path / "comments.csv"
    path.write_text("\n".join(rows), "utf-8")
    return path


def test_a_blank_in_a_header_does_not_matter_to_training_or_prediction(comments: Path, tmp_path: Path) -> None:
    planned = plan("ce", annotations=str(comments), text="customer comment", settings={"epochs": 20})
    Run.new(planned, tmp_path / "run").start()
    new = tmp_path / "new.csv"
    new.write_text("Nr.,Customer comment,remark\n7,lovely warm,x\n8,dull cold,y\n", "utf-8")
    found = predict(tmp_path / "run", new, tmp_path / "predictions.csv")
    assert found.table["label"].to_pylist() == ["good", "bad"]


def test_prediction_takes_ids_from_the_column_that_training_took_them_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, names = rng.normal(size=(40, 2)), [f"case-{number}" for number in range(40)]
    rows = [f"{name},{a:.4f},{b:.4f}" for name, (a, b) in zip(names, X, strict=True)]
    (tmp_path / "X.csv").write_text("\n".join(["Case no,a,b", *rows]), "utf-8")
    said = [f"{name},{who},{'up' if x[0] > 0 else 'down'}" for name, x in zip(names, X, strict=True) for who in "pq"]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *said]), "utf-8")
    files = {name: str(tmp_path / f"{name}.csv") for name in ("X", "labels")}
    planned = plan(
        "ce", inputs=files["X"], annotations=files["labels"], ids="Case no", settings={"epochs": 20, "lr": 0.03}
    )
    Run.new(planned, tmp_path / "run").start()
    for labels in (None, files["labels"]):
        found = predict(tmp_path / "run", files["X"], tmp_path / "out.csv", annotations=labels).table
        assert set(found["instance"].to_pylist()) == set(names)


def test_the_only_column_of_words_is_the_text(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("nr,words\n1,so dull\n2,so warm\n", "utf-8")
    assert read_inputs(path, expects="text").X.tolist() == ["so dull", "so warm"]


def test_a_column_that_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("nr,one,two\n1,so dull,a b\n2,so warm,c d\n", "utf-8")
    with pytest.raises(DataError, match=r"which column holds the texts\? .*columns: 'nr', 'one', 'two'"):
        read_inputs(path, expects="text")


@pytest.mark.parametrize("header", ["Nr.,truth", "Nr.,Your answer", "comment,gold"])
def test_gold_may_have_the_headers_of_the_crowd(comments: Path, tmp_path: Path, header: str) -> None:
    gold = tmp_path / "gold.csv"
    gold.write_text(f"{header}\nC-1,good\nC-2,bad\n", "utf-8")
    assert crowdwise.read(comments, gold=str(gold)).gold == {"C-1": "good", "C-2": "bad"}


def test_pictures_are_found_by_the_names_that_label_studio_gives_them(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("IMG 01 (a).png", "two  words.png", "two_ words.png"):
        Image.new("RGB", (2, 2)).save(folder / name)
    (folder / "linked in.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "secret.png").write_bytes(b"")
    found = find_picture("/data/upload/3/8f2c61d0-IMG_01_a.png", folder)
    assert found is not None
    assert found.name == "IMG 01 (a).png"
    assert find_picture("/data/upload/3/8f2c61d0-two__words.png", folder) is None  # either of two
    assert find_picture("/data/upload/3/8f2c61d0-linked_in.png", folder) is None  # leads out of the folder


def test_long_notes_are_broken_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "; ".join(["labels.csv: 2,926 annotations", "a" * 60, "b" * 60])
    Terminal().note(line)
    assert capsys.readouterr().out == f"{line}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Terminal().note(line)
    assert capsys.readouterr().out == f"labels.csv: 2,926 annotations\n  {'a' * 60}\n  {'b' * 60}\n"
