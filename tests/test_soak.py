"""The soak of benchmarks/soak.py, in short: no fit of any aggregator or method crashes, whatever the crowd."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from crowdwise.errors import DataError
from scripts import load_script

soaking = load_script("soak")


def test_twenty_fits_leave_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soaking, "NAMES", soaking.NAMES[::2])  # aggregators and methods
    found = soaking.soak(20)
    assert (found.fits, found.failures) == (20, [])
    assert len(found.memory) == 20 / soaking.EVERY


def test_every_kind_of_crowd_is_drawn() -> None:
    kinds = {soaking.random_crowd(np.random.default_rng(seed)).kind for seed in range(300)}
    assert kinds == set(soaking.KINDS)


def test_what_goes_wrong_is_named_so_that_it_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soaking, "NAMES", [("aggregator", "wawa")])
    monkeypatch.setattr(soaking, "fit_aggregator", lambda *_: np.empty(0)[1])
    assert soaking.soak(2, seed=5).failures[1].startswith("wawa on ")
    assert "seed 5, number 1: IndexError" in soaking.soak(2, seed=5).failures[1]


def test_wrong_output_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for values in ([0.5, 0.6], [np.nan, 1.0], [-0.5, 1.5]):
        with pytest.raises(AssertionError, match="posterior_"):
            soaking._check_probabilities("posterior_", np.array(values), (2,))

    def refuse(*_: object) -> None:
        raise DataError("no")

    monkeypatch.setattr(soaking, "NAMES", [("aggregator", "wawa")])
    monkeypatch.setattr(soaking, "fit_aggregator", refuse)
    assert len(soaking.soak(1).failures) == 1  # an aggregator takes every crowd


def test_memory_that_grows_is_not_flat() -> None:
    steady = soaking.Soak(memory=[900.0] * 20 + [500.0, 501.0, 700.0] * 60)
    growing = soaking.Soak(memory=[500.0 + k / 4 for k in range(200)])
    assert steady.flat
    assert not growing.flat


def test_a_run_leaves_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "soak.jsonl"
    monkeypatch.setattr(sys, "argv", ["soak.py", "--fits", "3", "--out", str(out)])
    soaking.main()
    (record,) = map(json.loads, out.read_text().splitlines())
    assert (record["benchmark"], record["fits"], record["failures"]) == ("soak", 3, [])
    assert record["rss_ratio"] == pytest.approx(record["rss_last_mb"] / record["rss_first_mb"], abs=1e-3)
