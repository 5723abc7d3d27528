"""Several files about the same instances: one vocabulary by value, one policy for repeats, everything that each holds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import crowdwise
from crowdwise.data.labelled import rows_of_export
from crowdwise.errors import ConfigError, ReadError
from crowdwise.readers import read, write, write_table
from crowdwise.tasks.observer import Observer
from crowdwise.tasks.predict import predict
from crowdwise.tasks.route import route
from sheet_samples import xlsx

Row = tuple[Any, ...]


def put(path: Path, rows: list[Row], header: str = "item,worker,label") -> Path:
    """A table of rows, in the format of the suffix."""
    names = header.split(",")
    if path.suffix == ".csv":
        path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    else:
        columns = zip(*rows, strict=True)
        write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), path)
    return path


def triples(paths: list[Path], **options: Any) -> list[Row]:
    """The annotations of files, as rows."""
    return [tuple(row.values()) for row in read(paths, **options).annotations.to_frame().to_pylist()]


class TestLabelsByValue:
    @pytest.mark.parametrize("first", [".csv", ".parquet", ".jsonl"])
    @pytest.mark.parametrize("second", [1.0, 1, "1", "1.0"])
    def test_numbers_are_one_class_in_files_of_any_type(self, tmp_path: Path, first: str, second: Any) -> None:
        one = put(tmp_path / f"a{first}", [(0, "a", 1), (0, "b", 2), (1, "a", 1)])
        kind = type(second)
        other = put(tmp_path / "b.parquet", [(0, "x", second), (1, "x", kind(2)), (1, "y", second)])
        crowd = read([one, other]).annotations
        assert crowd.n_classes == 2
        assert [int(name) for name in crowd.classes] == [1, 2]
        assert crowd.votes()[0].tolist() == [2, 1]

    def test_numbers_with_decimals_stay_numbers(self, tmp_path: Path) -> None:
        one = put(tmp_path / "a.parquet", [(0, "a", 1), (1, "b", 2)])
        other = put(tmp_path / "b.parquet", [(0, "x", 1.0), (1, "y", 1.5)])
        assert read([one, other]).annotations.classes.tolist() == [1.0, 1.5, 2.0]

    def test_truth_values_are_one_class(self, tmp_path: Path) -> None:
        text = put(tmp_path / "a.csv", [(0, "a", "true"), (0, "b", "False")])
        lines = put(tmp_path / "b.jsonl", [(0, "c", True), (0, "d", False)])
        table = put(tmp_path / "c.parquet", [(0, "e", True), (0, "f", False)])
        for files in itertools.permutations([text, lines, table]):
            crowd = read(list(files)).annotations
            assert crowd.classes.tolist() == [False, True]
            assert crowd.votes().tolist() == [[3, 3]]
        more = put(tmp_path / "d.csv", [(0, "g", "unsure"), (0, "h", "true")])
        assert read([table, more]).annotations.classes.tolist() == ["false", "true", "unsure"]

    def test_truth_values_beside_0_and_1_are_refused(self, tmp_path: Path) -> None:
        words = put(tmp_path / "a.parquet", [(0, "a", True), (0, "b", False)])
        numbers = put(tmp_path / "b.csv", [(0, "c", 1), (0, "d", 0)])
        with pytest.raises(ReadError, match=r"b\.csv: labels are 0 and 1, but true and false in a\.parquet"):
            read([words, numbers])
        crowd = read([words, numbers], map={"1": "true", "0": "false"}).annotations
        assert crowd.votes().tolist() == [[2, 2]]

    def test_spellings_that_differ_between_files_are_told_and_merged_on_request(self, tmp_path: Path) -> None:
        one = put(tmp_path / "a.csv", [(0, "a", "Cat"), (1, "a", "dog")])
        other = put(tmp_path / "b.csv", [(0, "b", "cat"), (1, "b", "dog"), (2, "b", "cat")])
        assert "'Cat' and 'cat' look like one class (clean= merges them)" in read([one, other]).message.splitlines()[-1]
        crowd = read([one, other], clean=True).annotations
        assert crowd.classes.tolist() == ["cat", "dog"]
        assert crowd.votes().tolist() == [[2, 0], [0, 2], [1, 0]]

    def test_a_column_by_files_equals_the_column_in_one(self, tmp_path: Path) -> None:
        """However a table of numbers is divided into files of different types, its annotations are the same."""
        rng = np.random.default_rng(5)
        rows = [(int(i), f"w{j}", int(rng.integers(-1, 4))) for i in range(12) for j in rng.permutation(5)[:3]]
        whole = sorted(triples([put(tmp_path / "all.csv", rows)]))
        part = [[row for row in rows if row[1] in names] for names in (("w0", "w1"), ("w2", "w3"), ("w4",))]
        floats = [(i, j, float(y)) for i, j, y in part[1]]
        texts = [(i, j, f"{y}.0") for i, j, y in part[2]]
        files = [
            put(tmp_path / "a.csv", part[0]),
            put(tmp_path / "b.parquet", floats),
            put(tmp_path / "c.csv", texts),
        ]
        assert sorted(triples(files)) == whole

    def test_the_order_of_listed_classes_holds(self, tmp_path: Path) -> None:
        one = put(tmp_path / "a.csv", [(0, "a", "mild"), (1, "a", "none")])
        other = put(tmp_path / "b.csv", [(0, "b", "severe"), (1, "b", "mild")])
        listed = ["none", "mild", "severe"]
        assert read([one, other], classes=listed).annotations.classes.tolist() == listed


class TestIdsByValue:
    def test_of_instances_and_annotators(self, tmp_path: Path) -> None:
        one = put(tmp_path / "a.csv", [(1, 7, "x"), (2, 8, "y")])
        other = put(tmp_path / "b.parquet", [(1.0, 7.0, "x"), (3.0, 9.0, "y")])
        third = put(tmp_path / "c.csv", [("1", "z", "x"), ("001", "z", "y")])
        crowd = read([one, other, third]).annotations
        assert crowd.instances.tolist() == ["1", "2", "3", "001"]
        assert crowd.annotators.tolist() == ["7", "8", "9", "z"]

    def test_files_about_other_instances_are_named_plainly(self, tmp_path: Path) -> None:
        one, other = put(tmp_path / "a.csv", [(0, "a", "x")]), put(tmp_path / "b.csv", [(1, "a", "x")])
        with pytest.raises(
            ReadError, match=r"b\.csv: none of its 1 instance \(such as 1\) is in a\.csv, .* such as 0$"
        ):
            read([one, other])


class TestRepeats:
    """An annotator who labels an instance in two files repeats it, as in one file."""

    FIRST = ((0, "a", "x"), (0, "b", "y"), (1, "a", "x"), (1, "b", "x"))
    SECOND = ((0, "a", "y"), (0, "b", "y"), (1, "a", "x"), (2, "b", "x"))

    def files(self, folder: Path) -> list[Path]:
        return [put(folder / "c1.csv", list(self.FIRST)), put(folder / "c2.csv", list(self.SECOND))]

    @pytest.mark.parametrize("policy", ["keep", "first", "last", "share"])
    def test_follow_the_policy_as_in_one_file(self, tmp_path: Path, policy: str) -> None:
        both = put(tmp_path / "both.csv", [*self.FIRST, *self.SECOND])
        files = self.files(tmp_path)
        assert sorted(triples(files, duplicates=policy)) == sorted(triples([both], duplicates=policy))

    def test_are_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(ReadError, match=r"c2\.csv: annotator 'a' labels instance 0 again \(repeats in all: 3\)"):
            read(self.files(tmp_path), duplicates="error")

    def test_are_counted(self, tmp_path: Path) -> None:
        files = self.files(tmp_path)
        assert "kept 3 repeats, 3 of them of labels in another file" in read(files).message.splitlines()[-1]
        assert "dropped 3 repeats" in read(files, duplicates="first").message.splitlines()[-1]

    def test_of_a_model_that_was_asked_again_share_one_label(self, tmp_path: Path) -> None:
        def answers(name: str, said: list[str]) -> Path:
            lines = [
                {
                    "custom_id": str(k // 2),
                    "response": {"body": {"model": "gpt", "choices": [{"message": {"content": y}}]}},
                }
                for k, y in enumerate(said)
            ]
            (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
            return tmp_path / name

        people = put(tmp_path / "p.csv", [(0, "ann", "yes"), (0, "ann", "no"), (1, "ann", "no")])
        files = [people, answers("a.jsonl", ["yes", "no", "no"]), answers("b.jsonl", ["yes", "yes", "no", "no"])]
        crowd = read(files).annotations
        model = crowd.select(annotators=crowd.annotator_codes(["gpt"]))
        assert crowd.classes.tolist() == ["no", "yes"]
        np.testing.assert_allclose(model.votes(), [[0.25, 0.75], [1, 0]])  # of instance 0: yes, no, yes, yes
        person = crowd.select(annotators=crowd.annotator_codes(["ann"]))
        assert person.votes().tolist() == [[1, 1], [1, 0]]  # repeats of people are kept

    def test_details_stay_with_the_rows_that_are_kept(self, tmp_path: Path) -> None:
        header = "item,worker,label,seconds,comment"
        one = put(tmp_path / "a.csv", [(0, "a", "x", 1, "p"), (1, "a", "y", 2, "q")], header)
        other = put(tmp_path / "b.csv", [(1, "a", "x", 3), (2, "a", "y", 4)], "item,worker,label,seconds")
        for policy, rows, seconds, comments in (
            ("first", [0, 1, 2], [1, 2, 4], ["p", "q", None]),
            ("last", [0, 1, 2], [1, 3, 4], ["p", None, None]),
        ):
            export = read([one, other], duplicates=policy)  # type: ignore[arg-type]
            assert export.annotations.instances[export.annotations.instance].tolist() == rows
            assert export.durations is not None
            assert export.durations.tolist() == seconds
            assert export.extra is not None
            assert export.extra["comment"].to_pylist() == comments


class TestGold:
    def files(self, folder: Path, second: str) -> list[Path]:
        header = "item,worker,label,gold"
        one = put(folder / "g1.csv", [(1, "a", "x", "x"), (2, "a", "y", "y")], header)
        return [one, put(folder / "g2.csv", [(1, "b", "y", second), (2, "b", "y", "y")], header)]

    def test_that_contradicts_itself_between_files_is_dropped_or_refused(self, tmp_path: Path) -> None:
        files = self.files(tmp_path, "y")
        export = read(files)
        assert export.gold == {2: "y"}
        assert "gold contradicts itself for 1 instance and is dropped there" in export.message
        with pytest.raises(ReadError, match=r"g2\.csv: instance 1 has gold 'y', but 'x' in g1\.csv"):
            read(files, gold="gold")

    def test_is_joined_by_value(self, tmp_path: Path) -> None:
        one = put(tmp_path / "a.csv", [(0, "a", 1, 1), (1, "a", 2, "")], "item,worker,label,gold")
        other = put(tmp_path / "b.parquet", [(0, "b", 1.0, 1.0), (1, "b", 2.0, 2.0)], "item,worker,label,gold")
        assert read([one, other]).gold == {0: 1, 1: 2}
        assert self.read_gold(tmp_path, self.files(tmp_path, "x")) == {1: "x", 2: "y"}

    def read_gold(self, folder: Path, files: list[Path]) -> Any:
        return read(files, gold=str(put(folder / "gold.csv", [(1, "x"), (2, "y")], "item,gold"))).gold

    def test_columns_with_other_headers_are_found_or_named(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", [(0, "a", "x", "u"), (1, "a", "y", "v")], "item,worker,label,team")
        table = [(0, "y", "x", "k"), (1, "y", "y", "l")]
        usual = put(tmp_path / "g1.csv", table, "item,note,expert,batch")
        assert read(path, gold=str(usual)).gold == {0: "x", 1: "y"}
        odd = put(tmp_path / "g2.csv", table, "item,note,Befund,batch")
        with pytest.raises(ReadError, match=r"no column for the gold label; .* name it with gold_column=COLUMN"):
            read(path, gold=str(odd))
        for files in (path, [path, put(tmp_path / "b.csv", [(0, "b", "x")])]):
            assert read(files, gold=str(odd), gold_column="befund").gold == {0: "x", 1: "y"}
        with pytest.raises(ConfigError, match="both name a column"):
            read(path, gold="team", gold_column="team")


class TestWhatFilesHold:
    def files(self, folder: Path) -> list[Path]:
        one = [(1, "a", "x", "hi", "ok", 5), (2, "a", "y", "ho", "", 6)]
        other = [(1, "b", "x", "hi", 0.5), (3, "b", "y", "new", 1.5)]
        return [
            put(folder / "a.csv", one, "item,worker,label,text,comment,seconds"),
            put(folder / "b.parquet", other, "item,worker,label,text,cost"),
        ]

    def test_is_a_row_for_each_annotation(self, tmp_path: Path) -> None:
        export = read(self.files(tmp_path))
        assert export.extra is not None
        assert export.extra.to_pydict() == {"comment": ["ok", None, None, None], "cost": [None, None, 0.5, 1.5]}
        assert export.texts is not None
        assert export.texts.to_pylist() == ["hi", "ho", "new"]
        assert export.durations is not None
        np.testing.assert_array_equal(export.durations, [5, 6, np.nan, np.nan])
        assert export.columns["duration"] == "seconds"

    def test_can_be_written_and_read_again(self, tmp_path: Path) -> None:
        export = read(self.files(tmp_path))
        write(export, tmp_path / "both.parquet")
        again = read(tmp_path / "both.parquet")
        assert again.annotations == export.annotations
        assert again.extra is not None
        assert again.extra.to_pydict() == {"comment": ["ok", None, None, None], "cost": [None, None, 0.5, 1.5]}

    def test_of_different_types_is_text(self, tmp_path: Path) -> None:
        one = put(tmp_path / "a.parquet", [(0, "a", "x", 1)], "item,worker,label,batch")
        other = put(tmp_path / "b.parquet", [(0, "b", "x", "two")], "item,worker,label,batch")
        export = read([one, other])
        assert export.extra is not None
        assert export.extra["batch"].to_pylist() == ["1", "two"]

    def test_a_person_is_no_model_elsewhere(self, tmp_path: Path) -> None:
        header = "item,worker,label,kind"
        one = put(tmp_path / "a.csv", [(0, "m", "x", "model"), (0, "p", "y", "person")], header)
        other = put(tmp_path / "b.csv", [(0, "m", "x", "model"), (0, "q", "y", "person")], header)
        assert dict(zip(read([one, other]).annotations.annotators, read([one, other]).kinds, strict=True)) == {
            "m": "model",
            "p": "person",
            "q": "person",
        }
        with pytest.raises(ReadError, match="'m' is a person in one file and a model in another"):
            read([one, put(tmp_path / "c.csv", [(0, "m", "x")])])


class TestOptions:
    """Every option applies to all files that can use it, and one that none can use is an error."""

    ROUNDS = (
        ("Round 1", [("item", "worker", "label", "review"), (0, "a", "x", "one"), (1, "a", "y", "two")]),
        ("Round 2", [("item", "worker", "label", "review"), (0, "a", "y", "three"), (1, "a", "x", "four")]),
    )

    def book(self, path: Path) -> Path:
        path.write_bytes(xlsx(dict(self.ROUNDS)))
        return path

    def test_a_sheet_is_that_of_every_spreadsheet(self, tmp_path: Path) -> None:
        book, more = self.book(tmp_path / "two.xlsx"), put(tmp_path / "b.csv", [(0, "b", "y"), (1, "b", "x")])
        assert triples([book, more], sheet="Round 2")[:2] == [(0, "a", "y"), (1, "a", "x")]
        with pytest.raises(ReadError, match=r"two\.xlsx: there is no sheet 'Round 3'"):
            read([book, more], sheet="Round 3")
        with pytest.raises(ReadError, match="sheet= is for sheet, but the files are csv"):
            read([more, put(tmp_path / "c.csv", [(0, "c", "y")])], sheet="Round 2")

    def test_columns_separator_and_encoding_are_those_of_every_text_file(self, tmp_path: Path) -> None:
        for name, label in (("a.csv", "groß"), ("b.csv", "klein")):
            (tmp_path / name).write_bytes(f"0~{name}~{label}\n1~{name}~groß\n".encode("cp850"))
        options = {"columns": ["item", "worker", "label"], "separator": "~", "encoding": "cp850"}
        found = triples([tmp_path / "a.csv", tmp_path / "b.csv"], **options)
        assert found == [(0, "a.csv", "groß"), (1, "a.csv", "groß"), (0, "b.csv", "klein"), (1, "b.csv", "groß")]
        table = put(tmp_path / "c.parquet", [(0, "c", "groß")])
        assert len(triples([table, tmp_path / "b.csv"], **options)) == 3

    def test_a_column_that_a_table_lacks_is_refused_by_name(self, tmp_path: Path) -> None:
        one = put(tmp_path / "a.csv", [(0, "a", "x", "y")], "item,worker,label,second")
        other = put(tmp_path / "b.csv", [(0, "b", "x")])
        with pytest.raises(ReadError, match=r"b\.csv: no column 'second' for the label"):
            read([one, other], label="second")

    def test_a_frame_is_no_file(self) -> None:
        with pytest.raises(ConfigError, match=r"goes through Annotations\.from_frame"):
            crowdwise.read(pd.DataFrame({"item": [0], "worker": [0], "label": [0]}))  # type: ignore[arg-type]

    def test_texts_come_from_where_the_labels_do(self, tmp_path: Path) -> None:
        """The file of labels is read again for its texts: the same sheet, columns, separator and encoding."""
        book = self.book(tmp_path / "two.xlsx")
        found = rows_of_export(book, read(book, sheet="Round 2"), text="review")
        assert list(found.X) == ["three", "four"]
        path = tmp_path / "a.csv"
        path.write_bytes("0~a~x~früh\n1~a~y~spät\n".encode("cp850"))
        export = read(path, columns=["item", "worker", "label", "review"], separator="~", encoding="cp850")
        assert list(rows_of_export(path, export, text="review").X) == ["früh", "spät"]


class TestGoldByTheRulesOfLabels:
    """Gold labels that are read apart from annotations are renamed and left out as these are."""

    def test_answers_of_a_route(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        truth = rng.integers(2, size=200)
        rows = [
            (i, f"w{j}", ("neg", "pos")[truth[i] if rng.random() < 0.9 else 1 - truth[i]])
            for i in range(200)
            for j in range(3)
        ]
        crowd = put(tmp_path / "crowd.csv", rows)
        reading = {"map": {"pos": "good", "neg": "bad"}, "missing": ["?"]}
        route(crowd, tmp_path / "ask.csv", sample=100, reading=reading)
        asked = pd.read_csv(tmp_path / "ask.csv")["instance"]
        answers = put(tmp_path / "answers.csv", [(i, ("neg", "pos")[truth[i]]) for i in asked], "item,label")
        notes: list[str] = []

        class Listening(Observer):
            def note(self, text: str) -> None:
                notes.append(text)

        out = tmp_path / "routed.csv"
        route(crowd, out, sample=100, answers=answers, reading=reading, observer=Listening())
        assert set(pd.read_csv(out)["label"]) == {"good", "bad"}
        assert f"gold for {len(asked)} of 200 instances" in notes[-1]

    def test_gold_of_predictions(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(80, 2))
        y = np.where(X[:, 0] > 0, "good", "bad")
        model = crowdwise.CE(epochs=20, random_state=0).fit(X, y)
        model.save(tmp_path / "model")
        np.save(tmp_path / "X.npy", X)
        gold = put(tmp_path / "gold.csv", [(i, "pos" if y[i] == "good" else "neg") for i in range(80)], "item,gold")
        with pytest.raises(crowdwise.errors.CrowdwiseError, match="none of the gold labels"):
            predict(tmp_path / "model", tmp_path / "X.npy", tmp_path / "p.csv", gold=gold)
        reading = {"map": {"pos": "good", "neg": "bad"}}
        result = predict(tmp_path / "model", tmp_path / "X.npy", tmp_path / "p.csv", gold=gold, reading=reading)
        assert result.gold is not None
        assert result.gold > 0.8


def test_classes_that_are_listed_keep_their_names_where_labels_are_merged(tmp_path: Path) -> None:
    for name, worker in (("a.csv", "ann"), ("b.csv", "bob")):
        (tmp_path / name).write_text(f"item,worker,label\n1,{worker},very  good\n2,{worker},BAD\n")
    listed = ["very  good", "bad"]
    export = crowdwise.read([tmp_path / "a.csv", tmp_path / "b.csv"], clean=True, classes=listed)
    assert export.annotations.classes.tolist() == listed
