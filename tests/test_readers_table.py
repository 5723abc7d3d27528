"""Plain tables of annotations: every format reads the same, and every broken file says where it is broken."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise import Annotations
from crowdwise.errors import AnnotationError, DataError
from crowdwise.readers import read_table, write_table

TABLE = pa.table(
    {
        "text": ["a, b", 'say "c"', "two\nlines", "é"],
        "task": ["t2", "t1", "t2", "t3"],
        "worker": [7, 3, 3, 7],
        "label": ["dog", "cat", "cat", "ant"],
    }
)
SUFFIXES = [
    "csv",
    "tsv",
    "jsonl",
    "ndjson",
    "parquet",
    "arrow",
    "feather",
    "csv.gz",
    "tsv.gz",
    "jsonl.gz",
    "csv.zst",
    "jsonl.zst",
]


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


class TestFormats:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_every_format_reads_back_what_was_written(self, tmp_path, suffix):
        write_table(TABLE, tmp_path / f"crowd.{suffix}")
        read = read_table(tmp_path / f"crowd.{suffix}")
        assert read.annotations == Annotations.from_frame(TABLE)
        assert read.columns == {"instance": "task", "annotator": "worker", "label": "label"}
        assert (read.n_rows, read.gold) == (4, None)

    def test_the_message_says_what_was_taken_for_what(self, tmp_path):
        write_table(TABLE, tmp_path / "crowd.csv")
        assert read_table(tmp_path / "crowd.csv").message == (
            "crowd.csv: 4 annotations of 3 instances by 2 annotators, 3 classes; "
            "instance = 'task', annotator = 'worker', label = 'label'"
        )

    def test_the_stream_format_of_arrow(self, tmp_path):
        with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
            writer.write_table(TABLE)
        assert read_table(tmp_path / "a.arrow").annotations == Annotations.from_frame(TABLE)

    def test_columns_can_be_named(self, tmp_path):
        path = put(tmp_path / "a.csv", "x,y,z,label\na,u,1,9\nb,u,2,9\n")
        read = read_table(path, instance="x", annotator="y", label="z")
        assert read.annotations.classes.tolist() == [1, 2]

    def test_semicolons_and_a_byte_order_mark(self, tmp_path):
        path = put(tmp_path / "a.csv", b"\xef\xbb\xbftask;worker;label\r\na;u;x\r\n\r\nb;u;y\r\n")
        assert len(read_table(path).annotations) == 2

    def test_ids_with_leading_zeros_stay_text_and_integers_become_numbers(self, tmp_path):
        path = put(tmp_path / "a.csv", "task,worker,label\n007,1,1.0\n7,2,0\n")
        a = read_table(path).annotations
        assert a.instances.tolist() == ["007", "7"]
        assert a.annotators.tolist() == [1, 2]
        assert a.classes.tolist() == [0, 1]

    def test_ids_that_look_like_times_stay_text(self, tmp_path):
        path = put(tmp_path / "a.jsonl", '{"task": "2026-01-02", "worker": 1, "label": "x"}\n')
        assert read_table(path).annotations.instances.tolist() == ["2026-01-02"]

    def test_a_field_of_mixed_types_that_is_not_needed_does_not_matter(self, tmp_path):
        record = '{"task": "a", "worker": %d, "label": "x", "meta": %s}\n'
        path = put(tmp_path / "a.jsonl", record % (1, "1") + "\n" + record % (2, '"one"'))
        assert len(read_table(path).annotations) == 2

    @pytest.mark.parametrize(("policy", "size"), [("keep", 3), ("first", 2), ("last", 2)])
    def test_duplicates_follow_the_policy_and_are_told(self, tmp_path, policy, size):
        path = put(tmp_path / "a.csv", "task,worker,label\na,u,x\na,u,y\nb,u,x\n")
        read = read_table(path, duplicates=policy)
        assert len(read.annotations) == size
        assert read.n_rows == 3
        assert read.message.endswith("kept 1 repeat" if policy == "keep" else "dropped 1 repeat")

    def test_refused_duplicates_name_file_and_record(self, tmp_path):
        path = put(tmp_path / "a.csv", "task,worker,label\na,u,x\na,u,y\n")
        with pytest.raises(AnnotationError, match=r"a\.csv: record 2: annotator 'u' labels instance 'a' again"):
            read_table(path, duplicates="error")


class TestGold:
    def test_a_gold_column_is_found(self, tmp_path):
        path = put(tmp_path / "a.csv", "task,worker,label,true_label\na,u,1,\na,v,0,1.0\nb,u,0,\n")
        read = read_table(path)
        assert read.gold == {"a": 1}
        assert read.columns["gold"] == "true_label"
        assert read.message.endswith("gold = 'true_label'; gold for 1 instance")

    def test_a_named_gold_column_may_add_classes(self, tmp_path):
        path = put(tmp_path / "a.csv", "task,worker,label,expert\na,u,x,w\nb,u,y,y\n")
        read = read_table(path, gold="expert")
        assert read.gold == {"a": "w", "b": "y"}
        assert read.annotations.classes.tolist() == ["w", "x", "y"]

    @pytest.mark.parametrize(
        ("rows", "reason"),
        [("a,u,x,yes\nb,u,y,no\n", "'yes' is unknown"), ("a,u,x,x\na,v,y,y\n", "instance 'a' has gold 'y'")],
    )
    def test_a_column_that_cannot_be_gold_is_left_alone_and_told(self, tmp_path, rows, reason):
        read = read_table(put(tmp_path / "a.csv", "task,worker,label,gold\n" + rows))
        assert read.gold is None
        assert "gold" not in read.columns
        assert read.annotations.classes.tolist() == ["x", "y"]
        assert "not taken for gold" in read.message
        assert reason in read.message

    def test_a_named_gold_column_that_contradicts_itself_is_an_error(self, tmp_path):
        path = put(tmp_path / "a.csv", "task,worker,label,gold\na,u,x,x\nb,u,x,\na,v,y,y\n")
        with pytest.raises(
            AnnotationError, match=r"column 'gold', record 3: instance 'a' has gold 'y', but 'x' before"
        ):
            read_table(path, gold="gold")

    def test_gold_of_another_type_is_an_error(self, tmp_path):
        path = put(tmp_path / "a.jsonl", '{"task": 1, "worker": 1, "label": "x", "gold": 3}\n')
        with pytest.raises(AnnotationError, match="column 'gold': gold such as 3 is int64, but labels such as 'x'"):
            read_table(path, gold="gold")
        assert read_table(path).gold is None

    def test_an_unknown_gold_column_is_named(self, tmp_path):
        path = put(tmp_path / "a.csv", "task,worker,label\na,u,x\n")
        with pytest.raises(AnnotationError, match=r"a\.csv: no column 'gold' for the gold; columns: 'task'"):
            read_table(path, gold="gold")


class TestBrokenFiles:
    HEADER = "task,worker,label\n"

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.csv", "", "the file is empty"),
            ("a.csv", "\n\n", "no column for the instance"),
            ("a.csv", HEADER, "columns but no rows"),
            ("a.csv", HEADER + "a,u,x\nb,u\n", r"record 2: 2 fields, but the header has 3: 'b,u'"),
            ("a.csv", HEADER + "a,u,x\nb,u,y,z\n", r"record 2: 4 fields, but the header has 3"),
            ("a.csv", HEADER + 'a,u,x\nb,u,"y\n', "line 3: a quoted field is never closed"),
            ("a.csv", HEADER + 'a,u,x\n"b,u,y\n', "line 3: a quoted field is never closed"),
            ("a.csv", HEADER + "a,u,x\nb,,y\n", "column 'worker', record 2: the value is missing"),
            ("a.csv", (HEADER + "a,u,é\n").encode() + b"b,u,\xe9\n", "line 3: byte 0xe9 is not UTF-8"),
            ("a.csv", (HEADER + "a,u,x\n").encode("utf-16")[:-1], "cannot be read as csv: .*utf-16.*truncated data"),
            ("a.csv", "task,worker,label,label\na,u,x,y\n", "the header names column 'label' twice"),
            ("a.tsv", HEADER + "a,u,x\n", r"no column for the instance: .*columns: 'task,worker,label'"),
            ("a.jsonl", '{"task": 1, "worker": 1, "label": 1}\n{"task": 2, "wor', "line 2, character .*not valid JSON"),
            (
                "a.jsonl",
                '{"task": 1, "worker": 1, "label": 1}\n[1]\n',
                r"line 2: expected an object \{\.\.\.\}, got '\[1\]'",
            ),
            (
                "a.jsonl",
                '{"task": 1, "worker": 1, "label": 1}\n{"task": 2, "label": 1}',
                "'worker', record 2: the value is",
            ),
            (
                "a.jsonl",
                '{"task": 1, "worker": 1, "label": 1}\n{"task": 2, "worker": 1, "label": "x"}',
                "column 'label', record 2: 'x' is a str, but earlier values such as 1 are number",
            ),
            ("a.jsonl", b'{"task": "\xc3\xa9\xe9", "worker": 1, "label": 1}', "line 1: byte 0xe9 is not UTF-8"),
            ("a.jsonl", "\n", "no records"),
            (
                "a.jsonl",
                'null\n{"task": 1, "worker": 1, "label": 1}\n',
                r"line 1: expected an object \{\.\.\.\}, got 'null'",
            ),
            ("a.jsonl", '{"task": ' + "[" * 20_000 + "]" * 20_000 + "}", "line 1: not usable JSON"),
            ("a.parquet", b"PAR1 no parquet", "cannot be read as parquet"),
            ("a.arrow", b"no arrow", "cannot be read as arrow"),
            ("a.csv.gz", b"no gzip", "cannot be read as csv"),
            ("a.csv.gz", gzip.compress((HEADER + "a,u,x\n" * 99).encode(), mtime=0)[:-12], "cannot be read as csv"),
            ("a.docx", "PK", "unknown format; known: .csv"),
            ("a.xlsx", "PK", "cannot be read as a spreadsheet"),
            ("a.parquet.gz", "x", "unknown format"),
        ],
    )
    def test_the_error_names_file_and_place(self, tmp_path, name, content, message):
        with pytest.raises((DataError, AnnotationError), match=message) as raised:
            read_table(put(tmp_path / name, content))
        assert str(tmp_path / name) in str(raised.value)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match=r"a\.csv: no such file"):
            read_table(tmp_path / "a.csv")

    def test_truncated_binary_files(self, tmp_path):
        for name in ("a.parquet", "a.arrow"):
            write_table(TABLE, tmp_path / name)
            put(tmp_path / name, (tmp_path / name).read_bytes()[:-20])
            with pytest.raises(DataError, match="cannot be read as"):
                read_table(tmp_path / name)

    def test_quotes_inside_a_field_are_no_truncation(self, tmp_path):
        path = put(tmp_path / "a.csv", self.HEADER + 'a,u,5" disk\n')
        assert read_table(path).annotations.classes.tolist() == ['5" disk']

    def test_a_record_beyond_the_first_block_is_counted_right(self, tmp_path):
        path = put(tmp_path / "a.csv", self.HEADER + "aaaaaaaaaa,uuuuuuuuuu,xxxxxxxxxx\n" * 600_000 + "b\n")
        with pytest.raises(DataError, match="record 600001: 1 fields"):
            read_table(path)


class TestWriting:
    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path):
        path = put(tmp_path / "a.csv", "old")
        with pytest.raises(DataError, match=r"a\.csv: cannot be written as csv"):
            write_table(pa.table({"x": [["nested"]]}), path)
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["a.csv"]

    def test_a_missing_folder_is_named(self, tmp_path):
        with pytest.raises(DataError, match=r"the folder .*none does not exist"):
            write_table(TABLE, tmp_path / "none" / "a.csv")

    def test_what_json_cannot_say_becomes_null(self, tmp_path):
        write_table(pa.table({"x": [1.5, float("nan"), float("inf"), None]}), tmp_path / "a.jsonl")
        assert (tmp_path / "a.jsonl").read_text().splitlines() == ['{"x": 1.5}'] + ['{"x": null}'] * 3

    def test_parquet_is_readable_by_others(self, tmp_path):
        write_table(TABLE, tmp_path / "a.parquet")
        assert pq.read_table(tmp_path / "a.parquet").equals(TABLE)
