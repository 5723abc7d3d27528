"""Every statistical test and interval that crowdwise publishes, on crowds about which there is nothing to find.

    python benchmarks/null.py                          # all of them; some minutes of an idle core
    python benchmarks/null.py --only drift route       # some of them
    python benchmarks/null.py --trials 0.1             # a tenth of the trials, printed only
    python benchmarks/null.py --list

A test may give false alarms at its nominal rate, and an interval must hold the true value at its nominal rate less two points;
both are given two standard errors for chance. Ranges that rest on assumptions (kind "estimate") are no probabilities of
coverage: what they hold is recorded, and not judged. Records of a simulation replace its older ones in
benchmarks/results/null.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import null_judges
import null_others
from null_cases import Published, Simulation
from stamp import stamp

RESULTS = Path(__file__).parent / "results" / "null.jsonl"
SIMULATIONS: dict[str, Simulation] = {**null_judges.SIMULATIONS, **null_others.SIMULATIONS}
POINTS = 0.02  # that coverage may fall short of its nominal rate
ERRORS = 2.0  # standard errors that are chance


def simulated(name: str, setting: str, trials: int) -> Iterator[dict[str, Any]]:
    """Rates of everything that a simulation publishes, in one setting."""
    simulation, begin = SIMULATIONS[name], time.process_time()
    options = simulation.settings[setting]
    key = zlib.crc32(f"{name}: {setting}".encode())
    drawn = [simulation.draw(np.random.default_rng([key, trial]), **options) for trial in range(trials)]
    seconds = (time.process_time() - begin) / max(trials, 1)
    for what, published in simulation.published.items():
        found = np.array([outcome[what] for outcome in drawn if not math.isnan(outcome.get(what, math.nan))])
        if len(found):
            about = {"benchmark": "null", "area": simulation.area, "simulation": name, "setting": setting}
            yield about | summary(published, found) | {"options": dict(options), "seconds_each": round(seconds, 5)}


def summary(published: Published, found: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    """The rate of a test or an interval over trials, its standard error, and whether it is as it should be."""
    rate, trials = float(found.mean()), len(found)
    spread = float(found.std(ddof=1)) if trials > 1 else 0.0
    error = max(spread, math.sqrt(published.nominal * (1 - published.nominal)) * (published.kind == "test"))
    error /= math.sqrt(trials)
    row = {"what": published.what, "kind": published.kind, "nominal": published.nominal, "trials": trials}
    return row | {"rate": round(rate, 5), "error": round(error, 5), "holds": within(published, rate, trials)}


def within(published: Published, rate: float, trials: int) -> bool | None:
    """Whether a rate is as it should be; None for what is no probability of coverage."""
    if published.kind == "estimate":
        return None
    chance = ERRORS * math.sqrt(published.nominal * (1 - published.nominal) / trials)
    if published.kind == "interval":
        return bool(rate >= published.nominal - POINTS - chance)
    return bool(rate <= published.nominal + chance)


def write(rows: list[dict[str, Any]], names: set[str]) -> None:
    """Replace the records of some simulations."""
    kept = (
        [] if not RESULTS.exists() else [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    )
    rows = [row for row in kept if row["simulation"] not in names] + rows
    rows.sort(key=lambda row: list(SIMULATIONS).index(row["simulation"]))
    partial = RESULTS.with_suffix(".partial")
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    os.replace(partial, RESULTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=SIMULATIONS, default=list(SIMULATIONS))
    parser.add_argument("--trials", type=float, default=1.0, help="share of the trials of a full run")
    parser.add_argument("--list", action="store_true", help="print what is simulated, and end")
    options = parser.parse_args()
    for name in options.only:
        rows = []
        for setting in SIMULATIONS[name].settings:
            if options.list:
                print(f"{name}: {setting}")
                continue
            trials = max(2, round(SIMULATIONS[name].trials_of(setting) * options.trials))
            about = stamp()
            for row in simulated(name, setting, trials):
                rows.append(row | about)
                verdict = {True: "", False: "  <-- off", None: "  (an estimate)"}[row["holds"]]
                print(
                    f"{name}: {row['what']}, {setting}: {row['rate']:.3f} ± {row['error']:.3f} of {row['trials']:,} "
                    f"(nominal {row['nominal']:g}){verdict}  {row['seconds_each'] * 1000:.0f} ms",
                    flush=True,
                )
        if rows and options.trials >= 1:
            write(rows, {name})


if __name__ == "__main__":
    main()
