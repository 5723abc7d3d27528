"""Real texts: one command from a table of labels to a classifier that is better than regression on majority votes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from crowdwise import datasets
from crowdwise.cli import app
from crowdwise.errors import DatasetError
from crowdwise.readers import load_columns


@pytest.mark.slow
def test_sentence_polarity_from_a_csv_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        data = datasets.load("sentiment")
    except DatasetError:
        pytest.skip("the sentences are not here")
    crowd = data.annotations
    with open("labels.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["sentence", "worker", "answer", "text"])
        for one, who, label in zip(crowd.instance, crowd.annotator, crowd.label, strict=True):
            rows.writerow([f"s{one}", f"w{who}", data.class_names[label], data.X_train[one]])
    Path("new.txt").write_text("\n".join(text.strip() for text in data.X_test.tolist()), encoding="utf-8")
    for arguments in (
        ["train", "labels.csv", "--instance", "sentence", "--text", "text", "-o", "run"],
        ["predict", "run", "new.txt"],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    said = load_columns(Path("predictions.csv"), lambda names: names)["label"].to_pylist()
    accuracy = np.mean(np.array(said) == np.array(data.class_names)[data.y_test])
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    regression = LogisticRegression(max_iter=1000).fit(words.fit_transform(data.X_train), crowd.votes().argmax(1))
    assert accuracy > 0.68
    assert accuracy > regression.score(words.transform(data.X_test), data.y_test)
