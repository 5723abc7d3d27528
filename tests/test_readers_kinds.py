"""Who is a model: by a table of kinds, by a column, by names."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdwise import read
from crowdwise.data.model_names import model_names
from crowdwise.errors import DataError, ReadError

MODELS = [
    *("gpt-4o-mini", "chatgpt", "text-davinci-003", "flan-t5-xxl", "flan-ul2", "claude-3.5-sonnet", "claude-sonnet-4"),
    *(
        "meta-llama/Llama-2-7b-chat-hf",
        "llama3:latest",
        "mistral-7b-instruct",
        "gemini-1.5-pro",
        "gemma-2-9b-it",
        "o1-mini",
    ),
    *("qwen2.5:14b", "deepseek-r1", "phi-3-mini", "grok-2", "Mistral-Large"),
]
PEOPLE = [
    *(
        "Claude",
        "claude.monet@art.org",
        "Gemma",
        "Phil",
        "o1",
        "opt-1",
        "nova-2",
        "aya_1",
        "A1B2C3D4",
        "p1",
        "alice",
        7,
    ),
    *("group-1b", "w-12b", "t5", "yi_2", "mturk_gemma", "gpt-4@example.org"),
]


@pytest.mark.parametrize("name", MODELS)
def test_a_name_of_a_model(name: str) -> None:
    assert model_names([name]).tolist() == [True]


@pytest.mark.parametrize("name", PEOPLE)
def test_a_name_of_a_person(name: str) -> None:
    assert model_names([name]).tolist() == [False]


def test_a_name_without_a_version_is_a_model_among_models() -> None:
    assert model_names(["claude", "gemma", "ann"]).tolist() == [False, False, False]
    assert model_names(["claude", "gemma", "ann", "gpt-4"]).tolist() == [True, True, False, True]


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.csv"
    rows = [f"{item},{who},{item % 2}" for item in range(4) for who in ("gpt-4", "llama-3-8b", "ann")]
    path.write_text("\n".join(["item,annotator,label", *rows]))
    return path


def kinds(tmp_path: Path, *rows: str, header: str = "annotator,kind") -> Path:
    path = tmp_path / "kinds.csv"
    path.write_text("\n".join([header, *rows]))
    return path


def test_names_tell_unless_a_table_says_otherwise(labels: Path, tmp_path: Path) -> None:
    found = read(labels)
    assert found.models == ["gpt-4", "llama-3-8b"]
    assert "2 annotators are models, by name: gpt-4, llama-3-8b" in found.message
    told = read(labels, kinds=kinds(tmp_path, "ann,Model", "gpt-4,person"))
    assert told.models == ["ann"]
    assert "by name" not in told.message
    assert read(labels, kinds={"ann": "model"}).models == ["ann"]


def test_a_column_of_kinds_is_believed_before_names(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("item,annotator,kind,label\n1,gpt-4,person,a\n1,ann,model,b\n")
    assert read(path).models == ["ann"]
    assert read(path, kinds=kinds(tmp_path, "gpt-4,model")).models == ["gpt-4"]


def test_a_matrix_and_several_files_know_models_too(labels: Path, tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.csv"
    matrix.write_text("item,gpt-4,ann,ben\n1,a,b,a\n2,b,b,a\n")
    assert read(matrix).models == ["gpt-4"]
    table = kinds(tmp_path, "ben,model", "llama-3-8b,person")
    other = tmp_path / "other.csv"
    other.write_text("item,annotator,label\n0,ben,1\n1,ben,0\n")
    assert read([labels, other], kinds=table).models == ["ben"]


def test_labels_of_models_known_by_name_can_be_left_out(labels: Path) -> None:
    found = read(labels, models=False)
    assert found.annotations.annotators.tolist() == ["ann"]
    assert "left out: 8 by models" in found.message


def test_kinds_that_make_no_sense_are_refused(labels: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="record 2: the kind of an annotator is person or model, got 'robot'"):
        read(labels, kinds=kinds(tmp_path, "ann,person", "gpt-4,robot"))
    with pytest.raises(DataError, match=r"no column for the kind .*columns: 'annotator', 'what'"):
        read(labels, kinds=kinds(tmp_path, "ann,person", header="annotator,what"))
    with pytest.raises(ReadError, match=r"names none of the annotators.*'eve'"):
        read(labels, kinds=kinds(tmp_path, "eve,model"))
