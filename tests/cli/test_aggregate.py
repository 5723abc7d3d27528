"""`crowdwise aggregate`, `agreement` and `annotators`: tables in, tables and a summary out, errors in one line."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from crowdwise import agreement
from crowdwise.aggregation import DawidSkene
from crowdwise.cli import app
from crowdwise.readers import load_columns, read_table, write_table
from crowdwise.registry import AGGREGATORS

COLUMNS = ["instance", "label", "confidence", "n_annotations"]


def crowd(n: int = 60, size: int = 6) -> tuple[pa.Table, list[str]]:
    """Every annotator labels every instance; the last one guesses."""
    rng = np.random.default_rng(1)
    truth = rng.integers(3, size=n)
    instance, annotator = (part.ravel() for part in np.meshgrid(np.arange(n), np.arange(size), indexing="ij"))
    accuracy = np.where(annotator == size - 1, 0.33, 0.75)
    label = np.where(rng.random(n * size) < accuracy, truth[instance], rng.integers(3, size=n * size))
    names = np.array(["cat", "dog", "eel"])
    columns = {
        "task": [f"t{i}" for i in instance],
        "worker": [f"w{j}" for j in annotator],
        "label": names[label],
    }
    return pa.table(columns), names[truth].tolist()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "crowd.csv", **more: Any) -> Path:
        table, _ = crowd()
        for column, values in more.items():
            table = table.append_column(column, pa.array(values))
        write_table(table, tmp_path / name)
        return tmp_path / name

    return make


def columns_of(path: Path) -> dict[str, list[Any]]:
    loaded = load_columns(path, lambda names: names)
    return {name: column if isinstance(column, list) else column.to_pylist() for name, column in loaded.items()}


def fails(cli: Any, *arguments: Any) -> str:
    """The one line that a command fails with."""
    lines = cli(*arguments, code=1).stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return str(lines[0])


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz", "jsonl.gz"])
def test_labels_are_those_of_the_library_in_every_format(cli: Any, write: Any, suffix: str) -> None:
    path = write(f"crowd.{suffix}")
    output = cli("aggregate", path, "-o", f"labels.{suffix}", "--method", "dawid-skene").output
    assert "instance = 'task', annotator = 'worker', label = 'label'" in output
    expected = DawidSkene().fit(read_table(path).annotations)
    labels = columns_of(Path(f"labels.{suffix}"))
    assert list(labels) == COLUMNS
    assert labels["instance"] == expected.instances_.tolist()
    assert labels["label"] == expected.labels_.tolist()
    np.testing.assert_allclose(np.array(labels["confidence"], float), expected.posterior_.max(axis=1))
    assert {int(number) for number in labels["n_annotations"]} == {6}
    annotators = columns_of(Path(f"labels-annotators.{suffix}"))
    assert sorted(annotators["annotator"]) == [f"w{j}" for j in range(6)]
    assert annotators["annotator"][0] == "w5"  # worst first
    assert sorted(path.name for path in Path().iterdir() if path.is_file()) == sorted(
        [f"crowd.{suffix}", f"labels.{suffix}", f"labels-annotators.{suffix}"]
    )


def test_probabilities_have_a_column_per_class_and_sum_to_one(cli: Any, write: Any) -> None:
    cli("aggregate", write(), "-o", "labels.parquet", "--proba")
    labels = columns_of(Path("labels.parquet"))
    assert list(labels) == [*COLUMNS, "p_cat", "p_dog", "p_eel"]
    probabilities = np.array([labels[f"p_{name}"] for name in ("cat", "dog", "eel")])
    np.testing.assert_allclose(probabilities.sum(axis=0), 1)
    np.testing.assert_allclose(probabilities.max(axis=0), labels["confidence"])


def test_auto_says_what_it_chose_and_why(cli: Any, write: Any) -> None:
    output = cli("aggregate", write(), "-o", "labels.csv").output
    assert "committee" in output
    assert "The mean of hierarchical Dawid-Skene, EBCC, WAWA and the votes" in output


def test_it_says_what_to_expect_and_how_far_off_that_was(cli: Any, write: Any) -> None:
    output = cli("aggregate", write(), "-o", "labels.csv", "--method", "dawid-skene").output
    assert "as in crowds with known truth, where errors are not independent" in output
    assert "independent errors would promise" in output
    votes = cli("aggregate", write(), "-o", "votes.csv", "--method", "majority-vote").output
    assert "Vote shares are not probabilities of being right" in votes


def test_streamed_tables_say_what_to_expect(cli: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "item": np.repeat(np.arange(40), 4),
        "user": np.tile(np.arange(4), 40),
        "answer": np.where(rng.random(160) < 0.8, np.repeat(np.arange(40) % 2, 4), rng.integers(0, 2, 160)),
    }
    pq.write_table(pa.table(columns), tmp_path / "crowd.parquet")
    found = [
        cli("aggregate", "crowd.parquet", "-o", f"{name}.csv", "--method", "dawid-skene", *options).output
        for name, options in (("memory", ()), ("disk", ("--stream",)))
    ]
    promised = [re.search(r"about ([0-9.]+)% of the labels, between ([0-9.]+)% and ([0-9.]+)%", each) for each in found]
    assert promised[0] is not None
    assert promised[1] is not None
    assert promised[0].groups() == promised[1].groups()


def test_a_tie_is_no_change(cli: Any, tmp_path: Path) -> None:
    rows = [f"{i},{who},{'yx'[i % 2]}" for i in range(8) for who in "abc"] + ["t,a,x", "t,d,y", "u,d,y", "v,d,y"]
    (tmp_path / "crowd.csv").write_text("item,user,answer\n" + "\n".join(rows) + "\n")
    output = cli("aggregate", "crowd.csv", "-o", "labels.csv", "--method", "dawid-skene").output
    assert "0 of 11 instances (0.0%) differ from majority vote" in output


def test_one_annotator_promises_nothing(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "crowd.csv").write_text("item,user,answer\n1,a,x\n2,a,y\n3,a,x\n")
    output = cli("aggregate", "crowd.csv", "-o", "labels.csv").output
    assert "All labels come from one annotator, so their quality cannot be estimated" in output
    assert "% of the labels" not in output
    assert columns_of(Path("labels.csv"))["label"] == ["x", "y", "x"]
    assert set(columns_of(Path("labels.csv"))["confidence"]) <= {None, ""}


def test_the_summary_counts_ties_changes_and_agreement(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "crowd.csv").write_text("item,user,answer\n1,a,x\n1,b,y\n2,a,x\n2,b,x\n3,a,y\n3,b,y\n4,a,y\n4,b,y\n")
    output = cli("aggregate", "crowd.csv", "-o", "labels.csv", "--method", "majority-vote").output
    alpha = agreement.krippendorff_alpha(read_table("crowd.csv").annotations, n_bootstrap=0).value
    assert f"Krippendorff's alpha {alpha:.3f}" in output
    assert "1 of 4 instances (25.0%) have two or more classes with most votes" in output
    assert "0 of 4 instances (0.0%) differ from majority vote" in output
    assert columns_of(Path("labels.csv"))["label"] == ["x", "x", "y", "y"]  # the first of equals


@pytest.mark.parametrize("method", AGGREGATORS)
def test_every_method_works(cli: Any, write: Any, method: str) -> None:
    cli("aggregate", write(), "-o", "labels.parquet", "--method", method)
    assert len(columns_of(Path("labels.parquet"))["label"]) == 60


def test_the_result_is_repeatable(cli: Any, write: Any) -> None:
    path = write()
    for out in ("one.csv", "two.csv"):
        cli("aggregate", path, "-o", out, "--method", "ebcc", "--seed", 3)
    assert Path("one.csv").read_bytes() == Path("two.csv").read_bytes()


# gold


def test_gold_instances_get_their_gold_and_accuracy_is_measured_on_the_other_half(cli: Any, write: Any) -> None:
    _, truth = crowd()
    gold = {"task": [f"t{i}" for i in range(20)] + ["unknown"], "truth": [*truth[:19], "yak", "cat"]}
    path = write()
    write_table(pa.table(gold), path.with_name("gold.tsv"))
    output = cli("aggregate", path, "-o", "labels.csv", "--gold", "gold.tsv").output
    assert "gold.tsv: gold for 20 of 60 instances; instance = 'task', gold = 'truth'; 1 more not in the crowd" in output
    assert "(each half measured with the other half given)" in output
    labels = columns_of(Path("labels.csv"))
    assert labels["label"][:20] == gold["truth"][:20]  # with a class that nobody chose
    assert {float(confidence) for confidence in labels["confidence"][:20]} == {1.0}


def test_told_gold_does_not_flatter_its_own_accuracy(cli: Any, write: Any) -> None:
    _, truth = crowd()
    wrong = [{"cat": "dog", "dog": "eel", "eel": "cat"}[name] for name in truth]
    path = write("crowd.csv", wrong=np.repeat(wrong, 6))
    output = cli("aggregate", path, "-o", "labels.csv", "--gold-column", "wrong", "--method", "majority-vote").output
    (line,) = (line for line in output.splitlines() if line.startswith("  gold "))
    right = float(line.split()[1].rstrip("%"))
    assert right < 20
    assert f"majority vote {right}%" in line


def test_a_column_that_looks_like_gold_only_measures(cli: Any, write: Any) -> None:
    _, truth = crowd()
    path = write("crowd.csv", gold=np.repeat(truth, 6))
    output = cli("aggregate", path, "-o", "labels.csv").output
    assert "(not used otherwise)" in output
    plain = write("plain.csv")
    cli("aggregate", plain, "-o", "plain-labels.csv")
    assert Path("labels.csv").read_bytes() == Path("plain-labels.csv").read_bytes()


def test_gold_ids_are_compared_in_the_type_of_the_crowd(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "crowd.csv").write_text("item,user,answer\n007,a,0\n007,b,1\n12,a,1\n12,b,1\n007,c,1\n12,c,0\n")
    (tmp_path / "gold.csv").write_text("item,label\n12,0.0\n")
    cli("aggregate", "crowd.csv", "-o", "labels.csv", "--gold", "gold.csv")
    labels = columns_of(Path("labels.csv"))
    assert labels["instance"] == ["007", "12"]
    assert labels["label"] == ["1", "0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,label\nnobody,cat\n", "gold.csv: none of its 1 instances (such as 'nobody') is in the crowd"),
        ("task,label\nt1,cat\nt2,\nt1,dog\n", "record 3: instance 't1' has gold 'dog', but 'cat' before"),
        ("task,colour\nt1,cat\n", "gold.csv: no column for the gold label; columns: 'task', 'colour'"),
        ("task,label\n", "gold.csv: the table has no gold labels"),
        ("task,label\nt1,\n", "gold.csv: the table has no gold labels"),
        ("", "gold.csv: the file is empty"),
    ],
)
def test_broken_gold_is_one_line(cli: Any, write: Any, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "gold.csv").write_text(text)
    assert message in fails(cli, "aggregate", write(), "-o", "labels.csv", "--gold", "gold.csv")
    assert not Path("labels.csv").exists()


# agreement and annotators


def test_agreement_shows_every_measure_with_its_interval(cli: Any, write: Any) -> None:
    path = write()
    output = cli("agreement", path, "--bootstrap", 200).output
    report = agreement.report(read_table(path).annotations, n_bootstrap=200, random_state=0)
    for row in report.rows:
        (line,) = (line for line in output.splitlines() if line.strip().startswith(row.measure))
        assert line.split()[-3:] == [f"{number:.3f}" for number in (row.value, *row.interval)]


def test_agreement_of_ordered_labels(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "crowd.csv").write_text("item,user,answer\n1,a,1\n1,b,2\n2,a,5\n2,b,5\n3,a,1\n3,b,1\n")
    output = cli("agreement", "crowd.csv", "--level", "nominal", "--level", "ordinal", "--bootstrap", 0).output
    assert "Krippendorff's alpha (ordinal)" in output


def test_annotators_are_listed_worst_first(cli: Any, write: Any) -> None:
    output = cli("annotators", write(), "-o", "annotators.csv", "--method", "dawid-skene").output
    order = [line.split()[0] for line in output.splitlines() if line.strip().startswith("w")]
    assert order[0] == "w5"
    table = columns_of(Path("annotators.csv"))
    assert sorted(table["annotator"]) == sorted(order)
    assert np.all(np.diff(np.array(table["annotator_quality"], float)) >= 0)


def test_a_long_list_of_annotators_is_cut_and_says_so(cli: Any, tmp_path: Path) -> None:
    rows = [f"{k % 10},user{k},{k % 2}" for k in range(80)]
    (tmp_path / "crowd.csv").write_text("\n".join(["item,worker,label", *rows]) + "\n")
    output = cli("annotators", "crowd.csv", "--method", "majority-vote").output
    assert sum(line.strip().startswith("user") for line in output.splitlines()) == 30
    assert "The first 30 of 80 annotators are shown; --out FILE writes all of them." in output


# what goes wrong


def test_unknown_names_suggest(cli: Any, write: Any) -> None:
    path = write()
    assert "did you mean 'dawid-skene'?" in fails(cli, "aggregate", path, "-o", "out.csv", "--method", "dawidskene")
    assert "did you mean 'auto'?" in fails(cli, "annotators", path, "--method", "auot")
    message = fails(cli, "aggregate", path, "-o", "out.csv", "--label", "lable")
    assert "no column 'lable' for the label; did you mean 'label'?" in message
    assert "no column 'truht' for the gold" in fails(cli, "aggregate", path, "-o", "out.csv", "--gold-column", "truht")


def test_a_missing_column_names_the_option(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "crowd.csv").write_text("item,who,label\n1,a,x\n")
    assert fails(cli, "aggregate", "crowd.csv", "-o", "out.csv").endswith("name it with --annotator COLUMN")
    cli("aggregate", "crowd.csv", "-o", "out.csv", "--annotator", "who")
    assert columns_of(Path("out.csv"))["label"] == ["x"]


def test_outputs_are_refused_before_anything_is_read(cli: Any, write: Any, tmp_path: Path) -> None:
    path = write()
    (tmp_path / "folder.csv").mkdir()
    assert "unknown format" in fails(cli, "aggregate", path, "-o", "out.xlsx")
    assert "would overwrite what is read" in fails(cli, "aggregate", path, "-o", path)
    assert "cannot go to one file" in fails(cli, "aggregate", path, "-o", "a.csv", "--annotators-out", "a.csv")
    assert "folder.csv is a folder" in fails(cli, "aggregate", path, "-o", "folder.csv")
    assert "no such file" in fails(cli, "aggregate", "nothing.csv", "-o", "a.csv")
    assert "no such file" in fails(cli, "aggregate", path, "-o", "a.csv", "--gold", "b.csv", "--gold-column", "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crowd.csv", "folder.csv"]


def test_nothing_is_written_where_one_of_two_tables_cannot_be(
    cli: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crowdwise.tasks import aggregate

    def full(table: pa.Table, path: Path) -> None:
        if "annotators" in path.name:
            raise OSError(28, "No space left on device", str(path))
        write_table(table, path)

    monkeypatch.setattr(aggregate, "write_table", full)
    assert "No space left" in fails(cli, "aggregate", write(), "-o", "labels.csv")
    assert [path.name for path in Path().iterdir()] == ["crowd.csv"]


def test_free_text_taken_for_labels_is_refused_and_not_out_of_memory(cli: Any, tmp_path: Path) -> None:
    rows = np.arange(200_000)
    csv.write_csv(pa.table({"item": rows, "worker": rows % 7, "label": rows}), tmp_path / "crowd.csv")
    message = fails(cli, "aggregate", "crowd.csv", "-o", "labels.csv")
    assert "200,000 instances by 200,000 classes need 960 GB" in message
    assert "is 'label' the column of labels?" in message


GARBAGE = {
    "empty": b"",
    "blank": b"\n\n\n",
    "header": b"item,worker,label\n",
    "short record": b"item,worker,label\n1,a\n",
    "missing annotator": b"item,worker,label\n1,a,x\n2,,y\n",
    "no labels": b"item,worker,label\n1,a,\n2,b,  \n",
    "damaged UTF-8": "item,worker,label\n1,a,caf\u00e9\n2,b,caf".encode() + b"\xe9\n",
    "cut UTF-16": "item,worker,label\n1,a,x\n".encode("utf-16")[:-1],
    "open quote": b'item,worker,label\n1,a,"x\n',
    "binary": bytes(range(256)) * 8,
    "zeros": bytes(1000),
    "return in the header": b"item,worker,labe\rl\n1,a,x\n",
    "key of bad bytes": b'{"item": 1, "worker": 2, "lab\xffel": 3}\n',
    "twice": b"item,item,label\n1,a,x\n",
}


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow", "csv.gz"])
def test_garbage_is_one_line_that_names_the_file(cli: Any, tmp_path: Path, kind: str, suffix: str) -> None:
    name = f"bad.{suffix}"
    (tmp_path / name).write_bytes(GARBAGE[kind])
    assert name in fails(cli, "aggregate", name, "-o", "labels.csv")
    assert not Path("labels.csv").exists()


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv.gz", "jsonl.gz"])
def test_truncated_files_are_one_line(cli: Any, write: Any, suffix: str) -> None:
    path = write(f"crowd.{suffix}")
    whole = path.read_bytes()
    for length in (1, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:length])
        assert path.name in fails(cli, "aggregate", path, "-o", "labels.csv")


def mutated(text: bytes, rng: np.random.Generator) -> bytes:
    """A few random edits: bytes changed, cut out, put in, doubled; or the end cut off."""
    pieces = [
        b",",
        b"\n",
        b'"',
        b"\x00",
        b"\xff",
        b"\r",
        b"99999999999999999999999",
        b"-1",
        b"nan",
        b";",
        b"\xef\xbb\xbf",
    ]
    for _ in range(rng.integers(1, 5)):
        at, width = int(rng.integers(len(text) + 1)), int(rng.integers(1, 12))
        piece = pieces[rng.integers(len(pieces))]
        edits = [
            text[:at] + piece + text[at:],
            text[:at] + text[at + width :],
            text[:at] + bytes(rng.integers(256, size=width).tolist()) + text[at + width :],
            text[:at] + text[max(at - width, 0) : at] + text[at:],
            text[:at] if rng.random() < 0.3 else text,
        ]
        text = edits[rng.integers(len(edits))]
    return text


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_mutated_files_succeed_or_fail_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.chdir(tmp_path)
    rng, whole = (
        np.random.default_rng(seed),
        b"item,worker,label,gold\n"
        + b"".join(b"%d,w%d,%s,%s\n" % (k // 3, k % 3, [b"yes", b"no"][k % 2], b"yes") for k in range(12)),
    )
    codes = []
    for _ in range(50):
        text = mutated(whole, rng)
        Path("crowd.csv").write_bytes(text)
        Path("labels.csv").unlink(missing_ok=True)
        result = CliRunner().invoke(app, ["aggregate", "crowd.csv", "-o", "labels.csv"])
        assert result.exception is None or isinstance(result.exception, SystemExit), (text, result.exception)
        codes.append(result.exit_code)
        if result.exit_code:
            errors = result.stderr.strip().splitlines()
            assert len(errors) == 1, (text, errors)
            assert errors[0].startswith("error: "), (text, errors)
        assert Path("labels.csv").exists() == (result.exit_code == 0)
    assert set(codes) == {0, 1}


def test_a_gzipped_table_that_is_not_gzipped(cli: Any, write: Any, tmp_path: Path) -> None:
    (tmp_path / "crowd.csv.gz").write_bytes(write().read_bytes())
    assert "crowd.csv.gz" in fails(cli, "agreement", "crowd.csv.gz")
    (tmp_path / "crowd.csv.gz").write_bytes(gzip.compress(write().read_bytes()))
    assert "Fleiss" in cli("agreement", "crowd.csv.gz", "--bootstrap", 0).output


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("aggregate", ["--out", "--method", "--gold", "--gold-column", "--annotators-out", "--proba", "--seed"]),
        ("agreement", ["--level", "--confidence", "--bootstrap"]),
        ("annotators", ["--out", "--method"]),
    ],
)
def test_help_names_every_option(cli: Any, monkeypatch: pytest.MonkeyPatch, verb: str, options: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    shown = cli(verb, "--help").output
    assert all(option in shown for option in [*options, "--instance", "--annotator", "--label"])
