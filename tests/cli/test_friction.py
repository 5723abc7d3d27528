"""What people typed and ran into: every line is run as they typed it, and gives the right result or a clear error."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdwise.cli import app
from crowdwise.readers import load_columns, read
from sheet_samples import ods, xlsx

CLASSES = ("cat", "dog")


def rows(n: int = 60) -> list[tuple[str, str, str]]:
    """Labels of pictures by six people, in random order; the truth of picture i is CLASSES[i % 2]."""
    rng = np.random.default_rng(0)
    made = [
        (f"http://x/{i}.jpg", f"person{j}", CLASSES[(i % 2) ^ int(rng.random() < 0.15)])
        for i in range(n)
        for j in rng.permutation(6)[:4]
    ]
    return [made[k] for k in rng.permutation(len(made))]


def lines(header: str | None, separator: str = ",", spell: Callable[[int, str], str] = lambda k, label: label) -> str:
    body = [separator.join((i, j, spell(k, label))) for k, (i, j, label) in enumerate(rows())]
    return "\n".join([*([header.replace(",", separator)] if header else []), *body]) + "\n"


def messy(k: int, label: str) -> str:
    return {0: label.upper(), 1: f"{label} ", 2: "N/A", 3: ""}.get(k % 20, label)


USUAL = "item,annotator,label"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that people had."""
    made = tmp_path_factory.mktemp("friction")
    texts = {
        "german.csv": lines("URL,Wer,Urteil"),
        "headless.csv": lines(None),
        "messy.csv": lines(USUAL, spell=messy),
        "pipes.csv": lines(USUAL, "|"),
        "plain.csv": lines(USUAL),
        "gold.csv": "item,gold\n" + "".join(f"http://x/{i}.jpg,{('Cat', 'dog')[i % 2]}\n" for i in range(20)),
        "few.csv": "url,wer,urteil\n" + "\n".join(",".join(row) for row in rows()[:4]) + "\n",
    }
    for name, text in texts.items():
        (made / name).write_text(text, encoding="utf-8")
    umlauts = lines(USUAL, spell=lambda k, label: {"cat": "Kätzchen", "dog": "Hündchen"}[label])
    (made / "latin1.csv").write_bytes(umlauts.encode("latin-1"))
    (made / "utf16.csv").write_bytes(umlauts.encode("utf-16"))
    table = [tuple(USUAL.split(",")), *rows()]
    (made / "crowd.xlsx").write_bytes(xlsx({"Labels": table}))
    (made / "crowd.ods").write_bytes(ods({"Labels": table}))
    notes = [f"{i},{j},{y},well {k},2026-01-02T10:{k % 60:02}:00Z" for k, (i, j, y) in enumerate(rows())]
    (made / "notes.csv").write_text("\n".join([f"{USUAL},comment,timestamp", *notes]) + "\n")
    rng = np.random.default_rng(1)
    np.save(made / "X.npy", (rng.normal(size=(60, 3)) + 3 * (np.arange(60) % 2)[:, None]).astype(np.float32))
    (made / "ids.txt").write_text("".join(f"http://x/{i}.jpg\n" for i in range(60)))
    return made


def right(path: str = "out.csv", names: tuple[str, str] = CLASSES) -> Callable[[Any], None]:
    """The labels that were written are those of the pictures, nearly all of them."""

    def check(result: Any) -> None:
        table = {name: column.to_pylist() for name, column in load_columns(Path(path), list).items()}
        found = [
            names.index(label) == int(i[9:-4]) % 2 for i, label in zip(table["instance"], table["label"], strict=True)
        ]
        assert len(found) == 60
        assert np.mean(found) > 0.85

    return check


def says(*words: str) -> Callable[[Any], None]:
    def check(result: Any) -> None:
        for word in words:
            assert word in result.output, result.output

    return check


def is_json(check: Callable[[Any], bool]) -> Callable[[Any], None]:
    return lambda result: _assert(check(json.loads(result.stdout)))


def _assert(fact: bool) -> None:
    assert fact


def keeps(*columns: str) -> Callable[[Any], None]:
    def check(result: Any) -> None:
        assert set(columns) <= set(load_columns(Path("out.csv"), list))
        assert len(read("out.csv").annotations) == 240

    return check


def classes(path: str, *names: str) -> Callable[[Any], None]:
    return lambda result: _assert(set(read(path).annotations.classes.tolist()) == set(names))


LINES: dict[str, list[Callable[[Any], None]]] = {
    # 11: unknown headers or none, odd labels, other files, lost columns
    "aggregate german.csv -o out.csv": [right(), says("guessed by content", "--instance COLUMN")],
    "aggregate german.csv -o out.csv --instance URL --annotator Wer --label Urteil": [right()],
    "! aggregate few.csv -o out.csv": [says("no column for the instance", "--instance COLUMN", "--format dense")],
    "! aggregate headless.csv -o out.csv": [says("seems to have no header", "--columns item,annotator,label")],
    "aggregate headless.csv -o out.csv --columns item,annotator,label": [right()],
    "convert messy.csv out.csv": [
        says("look like one class (--clean merges them)", "(--missing N/A leaves it out)", "12 without a label"),
        classes("out.csv", "CAT", "DOG", "cat", "dog", "N/A"),
    ],
    'convert messy.csv out.csv --clean --missing "N/A,-"': [
        says("are read as 'cat'"),
        classes("out.csv", "cat", "dog"),
    ],
    'convert messy.csv out.csv --classes cat,dog --missing "N/A,-"': [classes("out.csv", "cat", "dog")],
    "! convert messy.csv out.csv --classes cat,dog": [
        says("label 'N/A' (12 times) is none of the classes 'cat', 'dog'", "--missing N/A", "--map N/A=CLASS")
    ],
    "convert messy.csv out.csv --clean --map N/A=other": [classes("out.csv", "cat", "dog", "other")],
    "! convert messy.csv out.csv --map N/A": [says("--map takes old=new")],
    "aggregate plain.csv -o out.csv --gold gold.csv": [
        right(),
        says("gold 'Cat' is read as 'cat'", "2 classes", "20 instances", "on 20 instances"),
    ],
    "aggregate crowd.xlsx -o out.csv": [right(), says("sheet 'Labels'")],
    "aggregate crowd.ods -o out.csv": [right()],
    "! aggregate crowd.xlsx -o out.csv --sheet labels": [says("there is no sheet 'labels'; did you mean 'Labels'")],
    "aggregate latin1.csv -o out.csv": [right(names=("Kätzchen", "Hündchen")), says("decoded from cp1252")],
    "aggregate utf16.csv -o out.csv": [right(names=("Kätzchen", "Hündchen")), says("decoded from utf-16")],
    "aggregate pipes.csv -o out.csv": [right(), says("separated by '|'")],
    "aggregate - -o out.csv < plain.csv": [right(), says("standard input: table")],
    "aggregate - -o out.csv < crowd.xlsx": [right()],
    "agreement - --bootstrap 0 < pipes.csv": [says("Fleiss")],
    "report - -o out.html < plain.csv": [says("out.html")],
    "convert notes.csv out.csv": [keeps("comment", "timestamp")],
    "annotators notes.csv -o out.csv": [lambda result: _assert("drift" in load_columns(Path("out.csv"), list))],
    # 13: --json, completion, -o, info, gold everywhere, no Python in messages
    "aggregate plain.csv -o out.csv --json": [is_json(lambda found: found["n_instances"] == 60)],
    "agreement plain.csv --bootstrap 0 --json": [is_json(lambda found: len(found["report"]["rows"]) == 6)],
    "annotators plain.csv --json": [is_json(lambda found: len(found["table"]) == 6)],
    "convert plain.csv out.csv --json": [is_json(lambda found: found["read"]["classes"] == ["cat", "dog"])],
    "report plain.csv -o out.html --json": [is_json(lambda found: found["out"] == "out.html")],
    "info plain.csv --json": [is_json(lambda found: found[0]["data"]["annotators"] == 6)],
    "info --json": [is_json(lambda found: "dawid-skene" in found["aggregator"] and "ce" in found["method"])],
    "methods --json": [is_json(lambda found: "taidtm" in {each["name"] for each in found})],
    "presets --json": [is_json(lambda found: bool(found[0]["name"]))],
    "bench list --json": [is_json(lambda found: bool(found[0]["runs"]))],
    "simulate digits -o out.csv --annotators 5 --json": [is_json(lambda found: found["annotators"] == 5)],
    "train -m ce --inputs X.npy --ids ids.txt --annotations plain.csv --epochs 1 -o run --gold gold.csv --json": [
        is_json(lambda found: found["results"]["gold_instances"] == 20)
    ],
    "predict run X.npy --ids ids.txt -o out.csv --gold gold.csv --json": [
        is_json(lambda found: found["gold_instances"] == 20)
    ],
    "agreement plain.csv -o out.csv --bootstrap 0": [
        lambda result: _assert(len(load_columns(Path("out.csv"), list)["measure"]) == 6)
    ],
    "agreement plain.csv --gold gold.csv --bootstrap 0": [says("80 labels of instances with gold")],
    "annotators plain.csv --gold gold.csv": [says("gold for 20 of 60 instances")],
    "convert plain.csv out.csv --gold gold.csv": [lambda result: _assert(len(read("out.csv").gold or {}) == 20)],
    "report plain.csv --gold gold.csv -o out.html": [says("gold for 20 of 60 instances")],
    "! aggregate plain.csv -o out.csv --gold nothing.csv": [says("nothing.csv: no such file")],
    "info": [says("aggregator", "dawid-skene", "format", "label-studio", "data set", "labelme")],
    "info dawid-skene": [says("Parameters of dawid-skene", "crowdwise aggregate FILE --method dawid-skene")],
    "info toloka": [says("assignments as TSV", "--format toloka")],
    "info concord": [says("Parameters of concord", "crowdwise train --method concord")],
    "! info dawid-sken": [says("did you mean 'dawid-skene'?")],
    "! train -m ce --inputs X.npy --annotations - < plain.csv": [says("not from standard input")],
    "! train -m ce --inputs X.npy --annotations plain.csv --set epochs=-1": [
        says("epochs must be an integer of 0 or more")
    ],
    "! train -m ce --inputs X.npy --annotations plain.csv --set lr=-1": [says("lr must be a number of 0 or more")],
    "! train -m ce --inputs X.npy --annotations plain.csv --set momentum=2": [
        says("momentum must be a number of 0 or more")
    ],
    "! agreement plain.csv --level interval": [says("classes that are numbers", "--map cat=1")],
    "agreement plain.csv --level interval --map cat=1 --map dog=2 --bootstrap 0": [
        says("Krippendorff's alpha (interval)")
    ],
    "--show-completion bash": [says("COMPLETE")],
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_as_it_was_typed(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: "bash")  # it is sh under make
    if line.startswith("predict"):  # lines may be run one by one
        CliRunner().invoke(app, shlex.split(next(each for each in LINES if each.startswith("train"))))
    typed, _, piped = line.removeprefix("! ").partition(" < ")
    given = Path(piped).read_bytes() if piped else None
    Path("out.csv").unlink(missing_ok=True)
    result = CliRunner().invoke(app, shlex.split(typed), input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert (result.exit_code != 0) == line.startswith("!"), result.output
    if line.startswith("!"):
        assert "=COLUMN" not in result.output  # Python's spelling
        assert "Traceback" not in result.output
        assert not Path("out.csv").exists()
    for check in LINES[line]:
        check(result)


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("crowdwise agg", "aggregate"),
        ("crowdwise aggregate crowd.csv --method dawid", "dawid-skene"),
        ("crowdwise convert a.csv b.csv --format label", "label-studio"),
        ("crowdwise train --method taid", "taidtm"),
        ("crowdwise info hierar", "hierarchical-dawid-skene"),
    ],
)
def test_a_shell_completes(typed: str, proposed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_CROWDWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    result = CliRunner().invoke(app, [], prog_name="crowdwise")
    assert proposed in result.output.split()
