"""Exports of annotation tools: the same crowd, told in every tool's words, is read as the same annotations."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crowdwise
from crowdwise.errors import AnnotationError, ConfigError, DataError, ReadError
from crowdwise.readers import READERS, _source, formats, read
from crowdwise.storage import limits
from export_samples import (
    SAID,
    SAMPLES,
    TEXTS,
    argilla_records,
    cvat_parts,
    delimited,
    jsonl,
    label_studio,
    label_studio_rows,
    long_rows,
    ls_result,
    prodigy_records,
    sample,
    turk_rows,
    zipped,
)

WITH_GOLD = {
    "label-studio": ["tasks.json"],
    "toloka": None,
    "crowd-kit": None,
    "mturk": None,
    "cvat": None,
    "table": None,
}


def triples(export: Any) -> set[tuple[str, str, str]]:
    """What people said, with the instance's number and the annotator's name as in `SAID`."""
    codes = {"7": "cyd"}  # in Label Studio she has no address
    names = {"accept": "pos", "reject": "neg", "1": "pos", "0": "neg"}
    crowd = export.annotations.where(export.kinds[export.annotations.annotator] == "person")
    found = set()
    for row in crowd.to_frame().to_pylist():
        instance, who, label = (str(row[name]) for name in ("instance", "annotator", "label"))
        who = codes.get(who, who.removesuffix("@x.io"))
        found.add((instance[-1], who, names.get(label, label)))
    return found


TOOLS = [file for file, (name, _) in SAMPLES.items() if name != "llm"]  # those of models: test_readers_llm.py


@pytest.mark.parametrize("file", TOOLS)
def test_every_sample_is_told_and_read_alike(tmp_path: Path, file: str) -> None:
    export = read(sample(tmp_path, file))
    assert export.format == SAMPLES[file][0]
    if file.startswith("matrix.np"):  # without names: rows and columns are numbered
        assert triples(export) == {(str(int(i) - 1), str("abc".index(j[0])), y) for i, j, y in SAID}
    else:
        assert triples(export) == set(SAID)
    assert export.message.startswith(f"{file}: {export.format}, as ")
    assert "(format=NAME reads it otherwise)" in export.message


@pytest.mark.parametrize("file", SAMPLES)
def test_a_named_format_is_read_as_such(tmp_path: Path, file: str) -> None:
    path = sample(tmp_path, file)
    asked = read(path, SAMPLES[file][0])
    assert asked.annotations == read(path).annotations
    assert asked.message.startswith(f"{file}: {asked.format}: ")


@pytest.mark.parametrize("file", SAMPLES)
def test_gold_is_found_where_the_format_has_it(tmp_path: Path, file: str) -> None:
    export = read(sample(tmp_path, file))
    expected = file in (WITH_GOLD.get(export.format, ()) or [file]) if export.format in WITH_GOLD else False
    gold = {str(instance)[-1]: label for instance, label in (export.gold or {}).items()}
    assert gold == ({"1": "pos"} if expected else {})


@pytest.mark.parametrize("file", [*TOOLS, "autolabel.csv", "distilabel.jsonl"])
def test_texts_or_pictures_follow_the_instances(tmp_path: Path, file: str) -> None:
    export = read(sample(tmp_path, file))
    if export.format in ("crowd-kit", "dense"):
        assert export.texts is None
        return
    ids = [str(instance)[-1] for instance in export.annotations.instances]
    if export.format == "cvat":
        assert export.pictures.to_pylist() == [f"pictures/{one}.jpg" for one in ids]
    else:
        assert export.texts.to_pylist() == [TEXTS[one] for one in ids]


@pytest.mark.parametrize("file", SAMPLES)
def test_times_and_durations_follow_the_annotations(tmp_path: Path, file: str) -> None:
    export = read(sample(tmp_path, file))
    if export.format not in ("label-studio", "toloka", "mturk", "prodigy", "table"):
        assert export.timestamps is None
        assert export.durations is None
        return
    people = export.kinds[export.annotations.annotator] == "person"
    shift = 5 if export.format == "toloka" else 0  # when the answer was submitted
    expected = np.datetime64("2026-01-02T10:00:00") + np.arange(len(SAID)) + np.timedelta64(shift, "s")
    assert export.timestamps[people].tolist() == expected.astype("datetime64[us]").tolist()
    if export.format == "prodigy":
        assert export.durations is None
    else:
        assert set(export.durations[people]) <= {4.5, 5.0}


@pytest.mark.parametrize("file", ["tasks.json", "records.jsonl", "records.parquet", "nested.json"])
def test_models_are_annotators_of_their_own_kind_and_can_be_left_out(tmp_path: Path, file: str) -> None:
    path = sample(tmp_path, file)
    export = read(path)
    assert dict(zip(export.annotations.annotators.tolist(), export.kinds.tolist(), strict=True))["bert"] == "model"
    assert (export.kinds == "person").sum() == 3
    people = read(path, models=False)
    assert set(people.kinds) == {"person"}
    assert len(people.annotations) == len(SAID)
    assert "3 by models" in people.message


def test_details_can_be_left_out(tmp_path: Path) -> None:
    for file in ("tasks.json", "long.csv"):
        export = read(sample(tmp_path, file), details=False)
        assert (export.timestamps, export.durations, export.texts, export.items) == (None, None, None, None)
        assert triples(export) == set(SAID)


def test_crowdwise_exports_read() -> None:
    assert crowdwise.read is read
    assert set(formats()) == set(READERS)


class TestQuestions:
    def put(self, tmp_path: Path) -> Path:
        record = {"id": 1, "data": {"text": "hi"}, "annotations": []}
        for who, moods in (("ann", "pos"), ("bob", "neg")):
            results = [ls_result(moods), ls_result("yes", "spam"), ls_result("x", "box", "rectanglelabels")]
            record["annotations"].append({"completed_by": who, "result": results})
        path = tmp_path / "two.json"
        path.write_text(json.dumps([record]))
        return path

    def test_several_are_listed_and_one_is_chosen(self, tmp_path: Path) -> None:
        path = self.put(tmp_path)
        with pytest.raises(ReadError, match="2 questions were answered: 'sent', 'spam'; choose one with question=NAME"):
            read(path)
        assert read(path, question="spam").annotations.classes.tolist() == ["yes"]
        assert read(path, question="sent").annotations.classes.tolist() == ["neg", "pos"]

    def test_an_unknown_one_suggests(self, tmp_path: Path) -> None:
        with pytest.raises(ReadError, match=r"no question 'spamm'; did you mean 'spam'\?; questions: 'sent', 'spam'"):
            read(self.put(tmp_path), question="spamm")

    @pytest.mark.parametrize(
        ("name", "content", "questions"),
        [
            ("a.json", json.dumps([row | {"annotator": 1} | {"zz": 1} for row in label_studio_rows()]).encode(), None),
            ("b.tsv", b"INPUT:t\tOUTPUT:a\tOUTPUT:b\tASSIGNMENT:worker_id\nx\t1\t2\tw\n", ["a", "b"]),
            ("c.csv", delimited([row | {"Answer.why": "so"} for row in turk_rows()], ","), ["sentiment", "why"]),
            (
                "d.jsonl",
                jsonl([{"label": one, "answer": "accept", "_input_hash": 1, "_session_id": "d-a"} for one in "XY"]),
                ["X", "Y"],
            ),
            ("e.jsonl", jsonl([record | {"b.responses": []} for record in argilla_records()]), ["label", "b"]),
        ],
    )
    def test_every_tool_lists_its_own(self, tmp_path: Path, name: str, content: bytes, questions: Any) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        if questions is None:  # columns after the annotator are none of Label Studio's answers
            assert read(path).question == "sent"
            return
        with pytest.raises(ReadError, match=", ".join(map(repr, questions))):
            read(path)
        assert read(path, question=questions[0]).question == questions[0]

    def test_arrays_of_an_npz_file_are_questions(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", one=np.eye(3), two=np.ones((2, 2)))
        with pytest.raises(ReadError, match="'one', 'two'"):
            read(tmp_path / "a.npz")
        assert read(tmp_path / "a.npz", question="two").annotations.n_instances == 2


class TestSeveralChoices:
    def put(self, tmp_path: Path) -> Path:
        rows = label_studio_rows()
        rows[1]["sent"] = {"choices": ["neg", "pos"]}
        path = tmp_path / "a.json"
        path.write_text(json.dumps(rows))
        return path

    def test_are_refused_by_record_and_field(self, tmp_path: Path) -> None:
        with pytest.raises(ReadError, match=r"a\.json: record 2, sent: 2 choices, but one label is read"):
            read(self.put(tmp_path))

    def test_can_be_skipped_or_reduced_to_the_first(self, tmp_path: Path) -> None:
        path = self.put(tmp_path)
        assert triples(read(path, several="skip")) == set(SAID) - {SAID[1]}
        assert ("1", "bob", "neg") in triples(read(path, several="first"))
        with pytest.raises(ConfigError, match="unknown several 'all'"):
            read(path, several="all")  # type: ignore[arg-type]


class TestTraps:
    def test_legacy_completions_of_label_studio(self, tmp_path: Path) -> None:
        tasks = json.loads(label_studio())
        for task in tasks:
            task["completions"] = task.pop("annotations")
        (tmp_path / "a.json").write_text(json.dumps(tasks))
        assert triples(read(tmp_path / "a.json")) == set(SAID)

    def test_annotators_of_label_studio_without_address_are_known_by_name_or_number(self, tmp_path: Path) -> None:
        tasks = json.loads(label_studio())
        for annotation, who in zip(
            tasks[0]["annotations"], ({"id": 3, "email": "", "username": "ann"}, {"id": 4, "email": ""}), strict=False
        ):
            annotation["completed_by"] = who
        (tmp_path / "a.json").write_text(json.dumps(tasks))
        assert {"ann", "4"} < {str(name) for name in read(tmp_path / "a.json").annotations.annotators}

    def test_answers_of_label_studio_that_are_no_classes_are_named(self, tmp_path: Path) -> None:
        region = {"from_name": "box", "to_name": "image", "type": "rectanglelabels", "value": {"x": 1}}
        (tmp_path / "a.json").write_text(json.dumps([{"id": 1, "annotations": [{"result": [region]}]}]))
        with pytest.raises(
            ReadError, match="answers are of type 'rectanglelabels'; supported are choices, rating, pairwise"
        ):
            read(tmp_path / "a.json")

    def test_consensus_labels_that_were_written_back_are_nobodys_opinion(self, tmp_path: Path) -> None:
        tasks = json.loads(label_studio())
        tasks[0]["predictions"] = [{"model_version": "crowdwise-dawid-skene", "result": [ls_result("neg")]}]
        (tmp_path / "a.json").write_text(json.dumps(tasks))
        export = read(tmp_path / "a.json")
        assert "1 consensus labels written back" in export.message
        assert "crowdwise-dawid-skene" not in export.annotations.annotators

    def test_gold_that_contradicts_itself_is_no_gold(self, tmp_path: Path) -> None:
        tasks = json.loads(label_studio())
        tasks[0]["annotations"].append({"completed_by": 9, "ground_truth": True, "result": [ls_result("neg")]})
        (tmp_path / "a.json").write_text(json.dumps(tasks))
        export = read(tmp_path / "a.json")
        assert export.gold is None
        assert "gold contradicts itself for 1 instance" in export.message

    def test_toloka_without_task_ids_knows_tasks_by_their_input(self, tmp_path: Path) -> None:
        (tmp_path / "a.tsv").write_text("INPUT:image\tOUTPUT:r\tASSIGNMENT:worker_id\na.jpg\tx\tu\na.jpg\ty\tv\n")
        export = read(tmp_path / "a.tsv")
        assert export.annotations.instances.tolist() == ["a.jpg"]
        assert export.pictures.to_pylist() == ["a.jpg"]

    def test_mturk_instances_can_be_inputs(self, tmp_path: Path) -> None:
        export = read(sample(tmp_path, "batch.csv"), instance="Input.text")
        assert export.annotations.instances.tolist() == list(TEXTS.values())

    def test_prodigy_keeps_names_that_have_no_data_set_in_common(self, tmp_path: Path) -> None:
        records = [record | {"_annotator_id": record["_annotator_id"][-3:]} for record in prodigy_records()]
        (tmp_path / "a.jsonl").write_bytes(jsonl(records))
        assert read(tmp_path / "a.jsonl").annotations.annotators.tolist() == ["ann", "bob", "cyd"]

    def test_a_shared_project_of_doccano_is_refused_with_advice(self, tmp_path: Path) -> None:
        (tmp_path / "a.zip").write_bytes(zipped({"all.jsonl": jsonl([{"id": 1, "text": "x", "label": ["y"]}])}))
        with pytest.raises(ReadError, match=r"all\.jsonl does not say who gave which label"):
            read(tmp_path / "a.zip")

    def test_a_part_that_is_not_utf8_is_named_with_line_and_byte(self, tmp_path: Path) -> None:
        path = tmp_path / "a.zip"
        path.write_bytes(zipped({"ann.jsonl": b'{"id": 1, "label": "\xff"}\n'}))
        with pytest.raises(ReadError, match=r"a\.zip: ann\.jsonl, line 1: byte 0xff is not UTF-8"):
            read(path, "doccano")
        path.write_bytes(zipped({"jobs.json": b'{"results": ["\xcc"]}', "labels.json": b"[]"}))
        with pytest.raises(ReadError, match=r"a\.zip: jobs\.json, line 1: byte 0xcc is not UTF-8"):
            read(path)

    def test_cvat_without_replicas_or_with_more_pages_is_refused(self, tmp_path: Path) -> None:
        parts = cvat_parts()
        path = tmp_path / "a.json"
        path.write_text(json.dumps(parts | {"jobs": {"results": parts["jobs"], "next": "http://x/?page=2"}}))
        with pytest.raises(ReadError, match="one page of several"):
            read(path)
        path.write_text(json.dumps(parts | {"jobs": parts["jobs"][:1]}))
        with pytest.raises(ReadError, match="no job is of type 'consensus_replica'"):
            read(path)

    def test_frames_of_several_cvat_tasks_do_not_meet(self, tmp_path: Path) -> None:
        parts = cvat_parts()
        parts["jobs"][3]["task_id"] = 3
        (tmp_path / "a.json").write_text(json.dumps(parts))
        assert "3:1" in read(tmp_path / "a.json").annotations.instances

    def test_a_matrix_without_header(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("0,1,-1\n0,0,1\n1,1,\n")
        with pytest.raises(ReadError, match=r"no header.*if every column is an annotator, say format=dense"):
            read(tmp_path / "a.csv")  # three columns of a row each might be instance, annotator and label
        crowd = read(tmp_path / "a.csv", "dense").annotations
        assert (crowd.n_instances, crowd.n_annotators, len(crowd), crowd.classes.tolist()) == (3, 3, 7, [0, 1])
        (tmp_path / "a.csv").write_text("0,1,-1,1\n0,0,1,0\n1,1,,1\n")
        assert read(tmp_path / "a.csv").format == "dense"

    def test_times_of_parquet_are_converted_to_utc(self, tmp_path: Path) -> None:
        times = pa.array([1767348000_000_000_000], pa.timestamp("ns", "America/New_York"))
        table = pa.table({"task": [1], "worker": [2], "label": ["x"], "timestamp": times})
        pq.write_table(table, tmp_path / "a.parquet")
        assert str(read(tmp_path / "a.parquet").timestamps[0]) == "2026-01-02T10:00:00.000000"

    def test_a_column_of_kinds_tells_models_in_a_table(self, tmp_path: Path) -> None:
        rows = [row | {"kind": "model" if row["rater"] == "cyd" else "person"} for row in long_rows()]
        (tmp_path / "a.csv").write_bytes(delimited(rows, ","))
        assert read(tmp_path / "a.csv").kinds.tolist() == ["person", "person", "model"]
        people = read(tmp_path / "a.csv", models=False, duplicates="first")
        assert len(people.annotations) == len(people.timestamps) == 6
        assert (people.annotations.annotators.tolist(), people.kinds.tolist()) == (["ann", "bob"], ["person"] * 2)
        assert people.texts.to_pylist() == list(TEXTS.values())

    @pytest.mark.parametrize(("policy", "first"), [("first", "2026-01-02T10:00:00"), ("last", "2026-01-02T10:00:01")])
    @pytest.mark.parametrize("tool", [True, False])
    def test_times_stay_with_the_annotations_that_are_kept(
        self, tmp_path: Path, policy: Any, first: str, tool: bool
    ) -> None:
        rows = (label_studio_rows() if tool else long_rows())[:3]
        rows[1] |= {name: rows[0][name] for name in ("annotator" if tool else "rater",)}
        (tmp_path / "a.csv").write_bytes(delimited(rows, ","))
        export = read(tmp_path / "a.csv", duplicates=policy)
        assert len(export.annotations) == len(export.timestamps) == 2
        assert str(export.timestamps[0]).startswith(first)
        assert "dropped 1 repeat" in export.message


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.json", "", "the file is empty"),
            ("a.json", "\n", "the file has no records"),
            ("a.json", "[]", "no column for the instance|no records"),
            ("a.json", "[" * 100_000, "not usable JSON|not valid JSON"),
            ("a.json", '[{"id": 1,\n "annotations": [}]', "line 2, character 18: not valid JSON"),
            ("a.json", '[{"id": 1, "annotations": []}, 7]', r"record 2: expected an object \{...\}, got 7"),
            (
                "a.json",
                '[{"id": 1, "annotations": [{"result": 3}]}]',
                r"record 1, annotations\[0\].result: expected a list",
            ),
            (
                "a.json",
                json.dumps([{"id": 1, "annotations": [{"result": [ls_result("a")]}]}]),
                r"record 1, annotations\[0\]: field 'completed_by' is missing",
            ),
            (
                "a.json",
                json.dumps([{"id": 1.5, "annotations": [{"completed_by": 1, "result": [ls_result("a")]}]}]),
                r"record 1, id: expected an id \(text or an integer\), got 1.5",
            ),
            (
                "a.json",
                json.dumps([{"id": 1, "annotations": [{"completed_by": "\ud800", "result": [ls_result("a")]}]}]),
                "half of a surrogate pair",
            ),
            ("a.jsonl", '{"_input_hash": 1, "answer": "accept"\n', "line 1, character .*: not valid JSON"),
            ("a.jsonl", '{"_input_hash": 1, "answer": "maybe", "accept": ["x"], "_session_id": "u"}', "line 1, answer"),
            (
                "a.jsonl",
                '{"a.responses": ["x"], "a.responses.users": [], "id": 1}',
                "line 1: 1 in 'a.responses', but 0 in",
            ),
            (
                "a.csv",
                "HITId,WorkerId,Answer.taskAnswers\nh,w,{\n",
                "record 1, Answer.taskAnswers, line 1, character 2",
            ),
            (
                "a.tsv",
                "OUTPUT:a\tASSIGNMENT:worker_id\nx\t\n",
                "record 1: the task is unknown: neither ASSIGNMENT:task_id nor any INPUT:",
            ),
            ("a.csv", ",ann,bob\n1,x,x\n2,x\n3,x,y\n4,x,y\n", "record 2: 2 cells, but the first line has 3"),
            ("a.npy", b"\x93NUMPY\x01\x00", "is not a readable npy file"),
            ("a.docx", b"PK", "unknown format: the suffix must be one of"),
            ("a.zip", b"PK", "cannot be read as a zip file"),
            ("a.zip", zipped({"readme.txt": b"hi"}), "the zip holds no known export"),
            ("a.zip", zipped({"../ann.jsonl": b"{}"}), "has a path outside of itself: '../ann.jsonl'"),
            ("a.zip", zipped({"/etc/ann.jsonl": b"{}"}), "has a path outside of itself"),
            ("a.zip", zipped({"C:\\x\\ann.jsonl": b"{}"}), "has a path outside of itself"),
            ("a.zip", zipped({"ann.jsonl": b'{"id": 1, "label": ["x"]}\n{"id": 2'}), r"ann\.jsonl, line 2, character"),
            (
                "a.zip",
                zipped({"ann.jsonl": b'{"id": 1, "label": [[0, 3, "PER"]]}'}),
                r"ann\.jsonl, line 1, label\[0\]: expected a label",
            ),
        ],
    )
    def test_name_file_place_and_field(self, tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(ReadError, match=message) as caught:
            read(path)
        assert str(caught.value).startswith(str(path))
        assert isinstance(caught.value, AnnotationError)
        assert isinstance(caught.value, DataError)

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ReadError, match="no such file"):
            read(tmp_path / "none.json")

    def test_unknown_formats_suggest(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="unknown format 'labelstudio'; did you mean 'label-studio'"):
            read(sample(tmp_path, "tasks.json"), "labelstudio")

    def test_columns_of_formats_that_have_their_own_cannot_be_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="label= names a column of a table, but format 'prodigy'"):
            read(sample(tmp_path, "choice.jsonl"), "prodigy", label="x")
        with pytest.raises(ConfigError, match="label= and question="):
            read(sample(tmp_path, "long.csv"), "table", "x", label="x")

    def test_named_columns_make_any_table_a_plain_one(self, tmp_path: Path) -> None:
        export = read(sample(tmp_path, "rows.csv"), instance="id", annotator="annotator", label="lead_time")
        assert (export.format, export.annotations.n_classes) == ("table", 1)

    def test_a_file_of_two_formats_asks(self, tmp_path: Path) -> None:
        record = prodigy_records()[0] | argilla_records()[0]
        (tmp_path / "a.jsonl").write_bytes(jsonl([record]))
        with pytest.raises(
            ReadError, match=r"could be of several formats: argilla .*, prodigy .*; choose one with format"
        ):
            read(tmp_path / "a.jsonl")

    def test_pickled_arrays_are_not_loaded(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([[object()]]), allow_pickle=True)
        with pytest.raises(ReadError, match="pickled objects"):
            read(tmp_path / "a.npy")

    def test_files_that_swell_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "SMALL", 10_000)
        content = b'{"task": 1, "worker": 2, "label": 3}\n' * 100_000
        for name, data in (
            ("a.jsonl.gz", gzip.compress(content)),
            ("a.jsonl.zst", pa.compress(content, "zstd", asbytes=True)),
        ):
            (tmp_path / name).write_bytes(bytes(data))
            with pytest.raises(ReadError, match="unpacks to more than"):
                read(tmp_path / name)
        monkeypatch.setattr(_source, "DOCUMENT", 500)
        monkeypatch.setenv("CROWDWISE_UNPACK_LIMIT", "500")
        for name in ("tasks.json", "people.zip", "consensus.zip"):
            with pytest.raises(ReadError, match="more than 500 bytes"):
                read(sample(tmp_path, name))
        monkeypatch.setattr(_source, "PARTS", 2)
        with pytest.raises(ReadError, match="3 files; at most 2 are read"):
            read(tmp_path / "people.zip")

    def test_a_zip_file_that_lies_about_its_size_is_refused(self, tmp_path: Path) -> None:
        path = sample(tmp_path, "people.zip")
        with zipfile.ZipFile(path) as file:
            size = file.getinfo("ann.jsonl").file_size.to_bytes(4, "little")
        path.write_bytes(path.read_bytes().replace(size, (3).to_bytes(4, "little")))
        with pytest.raises(ReadError, match=r"people\.zip"):
            read(path)


def test_a_matrix_without_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n\n")
    with pytest.raises(ReadError, match="no line holds anything"):
        read(tmp_path / "a.csv", "dense")


def test_a_model_whose_labels_all_mean_that_there_is_none_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_bytes(label_studio())
    export = read(path, missing=["neg"])  # which is all that the model says
    assert export.models == []
    assert set(export.kinds.tolist()) == {"person"}
    assert len(export.annotations) == sum(label == "pos" for *_, label in SAID)
