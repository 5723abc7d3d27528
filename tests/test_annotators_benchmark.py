"""`benchmarks/annotators.py` runs where there is no GPU, and says which heads do not fit."""

from __future__ import annotations

import json

from scripts import load_script

benchmark = load_script("annotators")


class Here:
    """A pool that calls functions in this process."""

    def Pool(self, processes: int) -> Here:
        return self

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None: ...

    def apply(self, function, arguments):
        return function(*arguments)


def test_every_form_of_heads_has_a_record(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(benchmark.multiprocessing, "get_context", lambda method: Here())
    monkeypatch.setattr("crowdwise.methods.core.heads.device_memory", lambda device: 10**7)
    words = ["--device", "cpu", "--annotators", "20", "3000", "--instances", "256", "--epochs", "2", "--out"]
    benchmark.main([*words, str(tmp_path / "out.jsonl")])
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [record["heads"] for record in records] == ["mapped", "mapped", "factored", "factored", "full", "full"]
    assert all(record["ms_per_step"] > 0 for record in records[:5])
    assert [record["rank"] for record in records[2:4]] == [16, 16]
    assert "full heads do not fit" in records[5]["left_out"]
    assert "ms_per_step" not in records[5]
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 7
    assert "left out: full heads do not fit" in shown[6]


def test_a_whole_fit_has_the_seconds_of_its_parts(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(benchmark.multiprocessing, "get_context", lambda method: Here())
    words = ["--train", "--device", "cpu", "--annotators", "60", "--instances", "2000", "--batch-size", "64", "--out"]
    benchmark.main([*words, str(tmp_path / "out.jsonl")])
    (record,) = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    stages = {"warm-up", "global transition", "alignment", "individual heads", "mapped heads", "correction"}
    graph = {"neighbours", "purifying", "positions", "mapping"}
    assert stages | graph | {"skill", "save", "load", "predict", "transition", "groups"} <= record["seconds"].keys()
    assert all(seconds >= 0 for seconds in record["seconds"].values())
    assert record["heads"] == "factored"
    assert record["accuracy"] > 0.8
    assert record["edges"] > 60
    assert "60 annotators, factored heads: fit" in capsys.readouterr().out
