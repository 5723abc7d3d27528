"""`crowdwise aggregate --stream`: the same tables and summary as in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise.tasks import aggregate


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    instance, annotator = rng.integers(80, size=500), rng.integers(8, size=500)
    label = np.where(rng.random(500) < 0.7, instance % 3, rng.integers(3, size=500))
    columns = {
        "thing": [f"t{i}" for i in instance],
        "worker": annotator,
        "answer": np.array(["cat", "dog", "eel"])[label],
    }
    pq.write_table(pa.table(columns), tmp_path / "crowd.parquet", row_group_size=100)
    return tmp_path / "crowd.parquet"


def summary(output: str) -> list[str]:
    lines = output.splitlines()
    return [
        line
        for line in lines[lines.index("Summary") :]
        if not line.strip().startswith(("labels", "annotators", "expect"))
    ]


@pytest.mark.parametrize("method", ["dawid-skene", "hierarchical-dawid-skene"])
def test_streamed_tables_and_summary_are_those_in_memory(cli: Any, table: Path, method: str) -> None:
    options = ["--method", method, "--instance", "thing", "--proba"]
    there = cli("aggregate", table, "-o", "memory.parquet", *options).output
    here = cli("aggregate", table, "-o", "out/stream.parquet", *options, "--stream", "--memory", "64MB").output
    assert "crowd.parquet: streamed as asked for, within about 0.1 GB of memory" in here
    assert "instance = 'thing', annotator = 'worker', label = 'answer'" in here
    assert summary(here) == summary(there)
    for end in ("", "-annotators"):
        one, two = pq.read_table(f"memory{end}.parquet"), pq.read_table(f"out/stream{end}.parquet")
        key = "annotator" if end else "instance"
        one, two = one.sort_by(key), two.sort_by(key)  # of two annotators as good, either is first
        assert one.schema.names == two.schema.names
        for name in one.schema.names:
            ours, theirs = one[name].to_pylist(), two[name].to_pylist()
            same = ours == pytest.approx(theirs, abs=1e-7) if isinstance(ours[0], float) else ours == theirs
            assert same, name
    assert sorted(path.name for path in Path("out").iterdir()) == ["stream-annotators.parquet", "stream.parquet"]


def test_many_rows_are_streamed_unasked(cli: Any, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "MANY", 499)
    options = ["--instance", "thing", "--method"]
    assert "streamed with 500 rows" in cli("aggregate", table, "-o", "a.parquet", *options, "wawa").output
    assert "streamed" not in cli("aggregate", table, "-o", "a.parquet", *options, "wawa", "--no-stream").output
    assert "streamed" not in cli("aggregate", table, "-o", "a.parquet", *options, "ebcc").output
    assert "streamed" not in cli("aggregate", table, "-o", "a.jsonl", *options, "wawa").output
    monkeypatch.setattr(aggregate, "MANY", 500)
    assert "streamed" not in cli("aggregate", table, "-o", "a.parquet", *options, "wawa").output


def test_a_folder_is_streamed_and_the_parts_are_kept_where_asked(cli: Any, table: Path) -> None:
    folder = table.parent / "crowd"
    folder.mkdir()
    table.rename(folder / "part-0.parquet")
    output = cli(
        "aggregate", folder, "-o", "a.csv", "--instance", "thing", "--method", "one-coin", "--work", "work"
    ).output
    assert "crowd: streamed as asked for" in output
    assert list(Path("work").glob("table-*/table.arrow"))
    assert "streamed as it is a folder" in cli("aggregate", folder, "-o", "a.csv", "--instance", "thing").output


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ["--method", "ebcc", "--stream"],
            1,
            "ebcc cannot be streamed: it needs all annotations at once; these can: committee, crh",
        ),
        (["--stream", "--memory", "lots"], 1, "memory must be a size of 16MB or more"),
        (["--stream", "--label", "colour"], 1, "no column 'colour' for the label"),
        (["--stream", "--gold-column", "answer"], 2, "--stream knows no gold labels"),
        (["--no-stream", "--work", "work"], 2, "--memory, --work and --ray are for streaming"),
        (["--ray", "local", "--gold-column", "answer"], 2, "--ray is for streaming, which knows no gold labels"),
        (["--workers", "2"], 2, "--workers are those of Ray: say which with --ray"),
    ],
)
def test_what_cannot_be_streamed_is_one_line(
    cli: Any, table: Path, options: list[str], code: int, message: str
) -> None:
    output = cli("aggregate", table, "-o", "a.parquet", "--instance", "thing", *options, code=code).stderr
    assert message in " ".join(output.replace("│", " ").split())
    assert not Path("a.parquet").exists()


def test_a_missing_column_names_the_option(cli: Any, table: Path) -> None:
    assert "name it with --instance COLUMN" in cli("aggregate", table, "-o", "a.parquet", "--stream", code=1).stderr


def test_an_interrupted_run_says_how_to_go_on(cli: Any, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdwise.aggregation import OneCoinDawidSkene

    step, rounds = OneCoinDawidSkene._round, []

    def interrupted(self: Any, *arguments: Any) -> Any:
        rounds.append(len(rounds))
        if len(rounds) == 3:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(OneCoinDawidSkene, "_round", interrupted)
    command = ["aggregate", table, "-o", "a.parquet", "--instance", "thing", "--method", "one-coin", "--stream"]
    assert "interrupted: run it again to go on where it stopped" in cli(*command, code=130).stderr
    monkeypatch.setattr(OneCoinDawidSkene, "_start", lambda *arguments: pytest.fail("it started from the beginning"))
    cli(*command)
    assert pq.read_table("a.parquet").num_rows == 80
