"""Generated files of labels, read by crowdwise on every road and by the reference: `python -m differential --help`.

PYTHONPATH=src:tests .venv/bin/python -m differential --first 0 --cases 1000
PYTHONPATH=src:tests .venv/bin/python -m differential --show 17
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from differential.cases import Case, generate
from differential.compare import FAULTS, REFUSED, Verdicts, judge

SHOWN = 1500
PIECE = 1000  # cases of a line of the record


def show(number: int, seed: int) -> None:
    """A case: its files, its options, what the reference reads, and what every road makes of it."""
    case = generate(number, seed)
    print(f"case {number}: {case.kind}, {case.form}; {', '.join(case.traits)}\noptions: {case.options}")
    for name, data in case.files.items():
        print(f"--- {name}, {len(data)} bytes\n{_shown(name, data)}")
    verdicts = judge(case)
    print(f"--- reference: {verdicts.refusal or verdicts.expected}")
    for each in verdicts.roads:
        print(f"--- {each.road}: {each.outcome}: {each.why[:SHOWN]}")
        said = getattr(each.found, "said", "")
        if said:
            print(f"    said: {said[:SHOWN]}")


def _shown(name: str, data: bytes) -> str:
    from differential.opening import open_table

    try:
        return data.decode()[:SHOWN]
    except UnicodeDecodeError:
        try:
            return "\n".join(map(str, open_table(name, data, {}).records))[:SHOWN]
        except Exception:
            return repr(data[:300])


def run(first: int, cases: int, seed: int, roads: int | None) -> dict[str, Any]:
    """Counts of outcomes by kind, form and road, and the numbers of the cases with faults."""
    counts: Counter[str] = Counter()
    faults: dict[int, str] = {}
    refusals: Counter[str] = Counter()
    started = time.monotonic()
    for number in range(first, first + cases):
        case = generate(number, seed)
        verdicts = judge(case, roads)
        for each in verdicts.roads:
            counts[f"{case.kind}|{case.form}|{each.road}|{each.outcome}"] += 1
            if each.outcome == REFUSED:
                refusals[_reason(each.why)] += 1
        if verdicts.faults:
            faults[number] = _line(case, verdicts)
            print(f"{number}: {faults[number]}", flush=True)
    seconds = time.monotonic() - started
    return {"counts": counts, "faults": faults, "refusals": refusals, "seconds": seconds}


def record(first: int, cases: int, seed: int, found: dict[str, Any]) -> dict[str, Any]:
    """What a run found, by format and by road: a line of benchmarks/results/differential.jsonl."""
    forms: dict[str, Counter[str]] = {}
    roads: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for key, count in found["counts"].items():
        kind, form, road, outcome = key.split("|")
        forms.setdefault(form if kind == "long" else kind, Counter())[outcome] += count
        roads.setdefault(road, Counter())[outcome] += count
        total[outcome] += count
    return {
        "benchmark": "differential",
        "commit": _commit(),
        "seed": seed,
        "first": first,
        "cases": cases,
        "outcomes": total,
        "by_format": dict(sorted(forms.items())),
        "by_road": dict(sorted(roads.items())),
        "refusals": dict(found["refusals"].most_common(20)),
        "faults": found["faults"],
        "seconds": round(found["seconds"], 1),
    }


def _commit() -> str:
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _line(case: Case, verdicts: Verdicts) -> str:
    first = verdicts.faults[0]
    roads = ", ".join(each.road for each in verdicts.faults)
    said = f"{first.outcome} ({verdicts.refusal})" if verdicts.refusal else first.outcome
    return f"{case.kind} {case.form}: {roads}: {said}: {first.why[:200]}"


def _reason(message: str) -> str:
    """A message without what is particular to a case."""
    return " ".join(message.partition(": ")[2].split())[:70]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--roads", type=int, default=3, help="roads for each case; 0: all of them")
    parser.add_argument("--record", type=Path, help="file to which counts are added, a line for 1,000 cases")
    parser.add_argument("--show", type=int)
    given = parser.parse_args()
    if given.show is not None:
        show(given.show, given.seed)
        return
    outcomes: Counter[str] = Counter()
    for first in range(given.first, given.first + given.cases, PIECE):
        cases = min(PIECE, given.first + given.cases - first)
        found = run(first, cases, given.seed, given.roads or None)
        if given.record is not None:
            with given.record.open("a") as file:
                file.write(json.dumps(record(first, cases, given.seed, found)) + "\n")
        for key, count in found["counts"].items():
            outcomes[key.rpartition("|")[2]] += count
        faults = count_of(len(found["faults"]), "case")
        print(f"{cases} cases in {found['seconds']:.0f} s: {dict(outcomes)} so far; {faults} with faults", flush=True)
        for reason, count in found["refusals"].most_common(15):
            print(f"  refused {count}: {reason}")
    sys.exit(bool(sum(outcomes[outcome] for outcome in FAULTS)))


def count_of(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    main()
