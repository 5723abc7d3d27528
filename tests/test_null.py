"""Published tests seldom alarm, and intervals hold the true value, where there is nothing to find."""

from __future__ import annotations

import json

import pytest
from scipy import stats

from scripts import load_script

null = load_script("null")
CHANCE = 1e-4  # probability that a test below fails although all is well
QUICK = [(name, setting) for name, each in null.SIMULATIONS.items() for setting in each.fast]
OTHERS = [(name, each) for name, of in null.SIMULATIONS.items() for each in of.settings if each not in of.fast]
ROUGH = {  # of so few items of a rare class, intervals are known to be too narrow: docs/agreement.md says so
    ("intervals", "skewed classes"),
}


def off(name: str, setting: str, trials: int) -> list[str]:
    """What is further from its nominal rate than chance allows."""
    found = []
    for row in null.simulated(name, setting, trials):
        if row["kind"] == "test":
            most = stats.binom.isf(CHANCE, row["trials"], row["nominal"]) / row["trials"]
            wrong = row["rate"] > most
        else:  # intervals of a crowd depend on each other: no more than one that is wrong counts for all
            least = stats.binom.ppf(CHANCE, row["trials"], row["nominal"] - null.POINTS) / row["trials"]
            wrong = row["kind"] == "interval" and row["rate"] < least
        if wrong:
            found.append(f"{row['what']}: {row['rate']} in {row['trials']} trials, not {row['nominal']}")
    return found


@pytest.mark.parametrize(("name", "setting"), QUICK)
def test_a_few_crowds_show_nothing_wrong(name: str, setting: str) -> None:
    assert not off(name, setting, 500 if name == "runs" else 40)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setting"), OTHERS)
def test_more_crowds_show_nothing_wrong(name: str, setting: str) -> None:
    assert not off(name, setting, max(20, null.SIMULATIONS[name].trials_of(setting) // 5))


def test_a_wrong_test_and_a_wrong_interval_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = null.SIMULATIONS["runs"]
    wrong = null.Simulation(
        "nothing",
        {"alarm": null.Published("an alarm", "test", 0.05), "held": null.Published("held", "interval", 0.95)},
        {"here": {}},
        lambda rng: {"alarm": float(rng.random() < 0.2), "held": float(rng.random() < 0.85)},
        simulation.trials,
    )
    monkeypatch.setitem(null.SIMULATIONS, "wrong", wrong)
    assert len(off("wrong", "here", 400)) == 2
    rows = list(null.simulated("wrong", "here", 400))
    assert [row["holds"] for row in rows] == [False, False]
    assert rows[0]["rate"] == pytest.approx(0.2, abs=0.08)
    assert rows[0]["error"] == pytest.approx((0.2 * 0.8 / 400) ** 0.5, rel=0.2)


def test_everything_is_recorded_and_as_it_should_be() -> None:
    records = [json.loads(line) for line in null.RESULTS.read_text(encoding="utf-8").splitlines()]
    recorded = {(row["simulation"], row["setting"]) for row in records}
    assert recorded == {(name, each) for name, of in null.SIMULATIONS.items() for each in of.settings}
    for name, simulation in null.SIMULATIONS.items():
        mine = [row for row in records if row["simulation"] == name]
        assert {row["what"] for row in mine} == {each.what for each in simulation.published.values()}
    for row in records:
        published = next(p for p in null.SIMULATIONS[row["simulation"]].published.values() if p.what == row["what"])
        assert row["holds"] == null.within(published, row["rate"], row["trials"])
        if row["kind"] == "estimate" or (row["simulation"], row["setting"]) in ROUGH:
            continue
        assert row["holds"], f"{row['what']}, {row['setting']}: {row['rate']}, nominal {row['nominal']}"
