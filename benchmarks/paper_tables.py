"""Tables and sentences on how far the records reproduce the paper, all of them made from the records."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdwise.bench import coverage, paper
from crowdwise.bench.comparison import LEVEL, paired
from script_tables import Record, table

VARIANTS = {"table4": "TAIDTM", "table5": "TAIDTM w/ GCN", "table6": "TAIDTM"}
"""The row of a table that the others are compared with."""
REAL = ("LabelMe", "Music")
NAMES = {
    **{f"table{number}": f"Table {number}" for number in paper.TITLES},
    "groups": "figure of groups",
    "sparsity": "figure of sparsity",
    "small-neighbours": "Table 7, small",
    "small-groups": "groups, small",
    "small-sparsity": "sparsity, small",
    "printed": "settings as printed",
}


def never_run(records: list[Record]) -> str:
    """How much of each table has a record, and how many entries of which data have none."""
    rows = []
    entries = coverage.entries(runs(records))
    for name in coverage.EXPERIMENTS:
        ours = [entry for entry in entries if entry.experiment == name]
        none = [entry for entry in ours if entry.lack == "no record"]
        complete = sum(entry.lack == "complete" for entry in ours)
        without = {data: sum(data_of(entry) == data for entry in none) for data in dict.fromkeys(map(data_of, ours))}
        of = {data: sum(data_of(entry) == data for entry in ours) for data in without}
        text = ", ".join(f"{data} {number} of {of[data]}" for data, number in without.items() if number)
        rows.append((NAMES[name], str(len(ours)), str(len(ours) - len(none)), str(complete), text))
    head = ("table", "entries", "with a record", "complete", "entries without a record")
    return table(head, rows, right=(1, 2, 3))


def data_of(entry: coverage.TableEntry) -> str:
    return entry.column.split("|")[0]


def runs(records: Iterable[Record]) -> list[Record]:
    """Those of benchmark runs."""
    return [record for record in records if isinstance(record.get("parameters"), Mapping)]


def by_place(records: Iterable[Record], experiment: str) -> dict[tuple[str, str], dict[int, float]]:
    """Test accuracy by column and row, and by seed."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for record in records:
        if record.get("experiment") == experiment and "error" not in record:
            found.setdefault((record["column"], record["row"]), {})[record["seed"]] = record["test_accuracy"]
    return found


def of_table(records: list[Record], experiment: str) -> dict[tuple[str, str], dict[int, float]]:
    """The runs of a table; those of Table 4 on real crowds are runs of Table 3, too."""
    if experiment != "table4":
        return by_place(records, experiment)
    printed = paper.printed(4)
    places = by_place([record for record in records if not plain(record)], "table3")
    return {place: runs for place, runs in places.items() if place[0] in REAL and place[1] in printed[place[0]]}


def plain(record: Record) -> bool:
    """Whether a run did not follow the paper's protocol."""
    return bool(record.get("all_parameters", {}).get("recipe") == "auto")


def variants(records: list[Record]) -> str:
    """Tables 4 to 6 on LabelMe and Music: each variant, and its lag behind TAIDTM's own, seed by seed."""
    rows = []
    for experiment, own in VARIANTS.items():
        places = of_table(records, experiment)
        for column, row in places:
            values, ours = places[column, row], places.get((column, own), {})
            compared = None if row == own else paired(ours, values)
            lead = "" if compared is None else f"{compared.difference:+.2f}"
            p = "" if compared is None else f"{compared.p:.3f}"
            printed = paper.printed(int(experiment[-1]))[column][row]
            theirs = f"{printed[0]:.2f} ± {printed[1]:.2f}"
            wrong = any(not note.target for note in paper.notes(int(experiment[-1]), column, row))
            rows.append(
                (NAMES[experiment], column, row, mean(values), str(len(values)), lead, p, theirs + " †" * wrong)
            )
    head = ("table", "data", "variant", "test accuracy, %", "seeds", "TAIDTM's lead", "p", "paper, %")
    return table(head, sorted(rows, key=lambda row: (row[0], row[1])), right=(4, 5, 6))


def lead_seen(records: list[Record]) -> str:
    """Whether the paper's lead of TAIDTM over other similarities and mappings is seen, in a sentence."""
    sure, open_ = [], []
    largest = (0.0, "none")
    for experiment, own in list(VARIANTS.items())[1:]:
        places = by_place(records, experiment)
        for (column, row), values in places.items():
            compared = None if row == own else paired(places.get((column, own), {}), values)
            if compared is None:
                continue
            place = f"{row.removeprefix('TAIDTM w/ ').split(' (')[0]} on {column}"
            text = f"{place} ({compared.difference:+.2f}, p = {compared.p:.3f})"
            (sure if compared.p <= LEVEL else open_).append(text)
            largest = max(largest, (compared.difference, place))
    total = len(sure) + len(open_)
    if not total:
        return "There is no record of it yet."
    told = f"A paired t-test over common seeds tells {len(sure)} of {total} differences from chance"
    theirs = max(lead for _, lead in printed_leads())
    return (
        f"{told}{': ' + '; '.join(sure) if sure else ''}. A plus means that TAIDTM's own is ahead. Its largest lead here is "
        f"{largest[0]:.2f} points ({largest[1]}); the paper's figures for other similarities on Music lie up to {theirs:.2f} "
        "behind TAIDTM's."
    )


def printed_leads() -> list[tuple[str, float]]:
    """By how much the paper's TAIDTM is ahead of other similarities on Music."""
    column = paper.printed(6)["Music"]
    return [(row, round(column["TAIDTM"][0] - figure[0], 2)) for row, figure in column.items() if row != "TAIDTM"]


def as_printed(records: list[Record]) -> str:
    """The paper's settings and nothing of ours, beside the recommended preset and the paper's figure."""
    rows = []
    for (column, row), values in by_place(records, "printed").items():
        ours = by_place([record for record in records if "curve" in record], "table3").get((column, row), {})
        printed = next((p[column][row] for p in map(paper.printed, paper.TITLES) if row in p.get(column, {})), None)
        theirs = "no figure" if printed is None else f"{printed[0]:.2f} ± {printed[1]:.2f}"
        rows.append((column.replace("|", ", "), row, mean(values), str(len(values)), mean(ours), theirs))
    head = ("data", "method", "as printed, %", "seeds", "recommended, %", "paper, %")
    return table(head, rows, right=(3,))


def reasons(records: list[Record]) -> str:
    """One setting changed at a time, on digits."""
    places = by_place(records, "reasons")
    rows = [(row, mean(values), str(len(values))) for (_, row), values in places.items()]
    return table(("method and setting", "test accuracy, %", "seeds"), rows, right=(1, 2))


CHANGES = (
    (
        "BLTM: the sharpened start in place of the warm-up's, at rate 0.01",
        "BLTM, 0.01, sharpened",
        "BLTM, 0.01, warm-up",
    ),
    ("BLTM: rate 0.05 in place of 0.01, from the warm-up", "BLTM, 0.05, warm-up", "BLTM, 0.01, warm-up"),
    ("BLTM: both", "BLTM, 0.05, sharpened", "BLTM, 0.01, warm-up"),
    ("TAIDTM: the sharpened start, at 0.01", "TAIDTM, 0.01, sharpened", "TAIDTM, 0.01, warm-up"),
    ("TAIDTM: rate 0.05, from the warm-up", "TAIDTM, 0.05, warm-up", "TAIDTM, 0.01, warm-up"),
    ("TAIDTM: both", "TAIDTM, 0.05, sharpened", "TAIDTM, 0.01, warm-up"),
    ("TAIDTM: the warm-up's start in place of a random one, at 0.01", "TAIDTM, 0.01, warm-up", "TAIDTM, 0.01, random"),
    ("CrowdLayer: Adam in place of SGD", "CrowdLayer", "CrowdLayer, sgd 0.01"),
    ("DL-CRH: divided by the sum in place of the largest", "DL-CRH, divided by the sum", "DL-CRH"),
    ("DL-CRH: shares in place of hard labels", "DL-CRH, shares as targets", "DL-CRH"),
    ("DL-CRH in place of DL-MV", "DL-CRH", "DL-MV"),
    ("GCE: truncated", "GCE, truncated", "GCE"),
    ("Forward: T revised", "Forward, T revised", "Forward"),
)


def changes(records: list[Record]) -> str:
    """What each changed setting is worth on digits, over the seeds that both have."""
    places = {row: values for (_, row), values in by_place(records, "reasons").items()}
    rows = []
    for what, new, old in CHANGES:
        common = sorted(places.get(new, {}).keys() & places.get(old, {}).keys())
        if common:
            differences = [places[new][seed] - places[old][seed] for seed in common]
            compared = paired(places[new], places[old])
            p = "" if compared is None else f"{compared.p:.3f}"
            rows.append((what, f"{statistics.fmean(differences):+.1f}", str(len(common)), p))
    return table(("change", "points", "seeds", "p"), rows, right=(1, 2, 3))


def small(records: list[Record]) -> str:
    """Table 7 and the two figures on small data: methods by setting."""
    rows = []
    for experiment in coverage.STAND_INS:
        places = by_place(records, experiment)
        for column in dict.fromkeys(column for column, _ in places):
            setting = column.replace("|", ", ")
            methods = {row: values for (place, row), values in places.items() if place == column}
            text = ", ".join(f"{row} {mean(values)}" for row, values in methods.items())
            seeds = sorted({len(values) for values in methods.values()})
            rows.append(
                (NAMES[experiment], setting, " to ".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1]))), text)
            )
    return table(("figure", "setting", "seeds", "test accuracy, %"), rows, right=(2,))


def mean(values: Mapping[int, float]) -> str:
    """Mean and standard deviation from three seeds on, else the values themselves."""
    found = [values[seed] for seed in sorted(values)]
    if len(found) < 3:
        return ", ".join(f"{value:.2f}" for value in found)
    return f"{statistics.fmean(found):.2f} ± {statistics.stdev(found):.2f}"


def leaders(means: Mapping[str, Sequence[tuple[str, float, int]]]) -> str:
    """Which methods are ahead of TAIDTM in each setting: (method, mean, seeds) by setting."""
    lines = []
    for setting, found in means.items():
        own = next((value for name, value, _ in found if name == "TAIDTM"), None)
        if own is None or len(found) < 2:
            continue
        ahead = sorted(((value, name) for name, value, _ in found if round(value, 2) > round(own, 2)), reverse=True)
        text = ", ".join(f"{name} {value:.2f}" for value, name in ahead) or "none"
        lines.append((setting, str(len(found) - 1), f"{own:.2f}", text))
    return table(("data", "others that were run", "TAIDTM, %", "ahead of it, %"), lines, right=(1, 2))


def far_off(rows: Sequence[tuple[str, str, float, int, paper.Printed, str]]) -> str:
    """Where ours differs from the printed figure by more than two of its spreads (of at least half a point)."""
    found = []
    for setting, name, ours, seeds, printed, conditions in rows:
        spread = max(printed[1] or 0.0, 0.5)
        if abs(ours - printed[0]) > 2 * spread:
            found.append(
                (setting, name, f"{ours:.2f}", str(seeds), f"{printed[0]:.2f}", f"{ours - printed[0]:+.1f}", conditions)
            )
    head = ("data", "method", "ours, %", "seeds", "paper, %", "difference", "what differs in training")
    return table(head, found, right=(2, 3, 4, 5))


def purifying(records: list[Any]) -> str:
    """What purifying did to the share of edges inside a group, in a sentence."""
    pairs = [(r["edge_precision_before"], r["edge_precision_after"]) for r in records if "edge_precision_after" in r]
    up, down = sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)
    lowest = min(pairs, key=lambda pair: pair[1] - pair[0], default=(0.0, 0.0))
    return (
        f"In {len(pairs)} runs, purifying raised the share of edges inside a group in {up}, lowered it in {down}, and "
        f"left it in {len(pairs) - up - down}; the largest loss is from {lowest[0]:.4f} to {lowest[1]:.4f}."
    )


def same_algorithm(found: Mapping[tuple[int, bool], Any]) -> str:
    """How far two runs of the same algorithm are apart: k = 1, which is never purified."""
    if (1, False) not in found or (1, True) not in found:
        return "There is no record of k = 1 in both columns."
    plain, purified = found[1, False]["test_accuracy"], found[1, True]["test_accuracy"]
    return (
        f"At k = 1 both columns are the same algorithm, as nothing is purified there: {plain:.2f} and {purified:.2f} "
        f"are {abs(plain - purified):.1f} points apart, so that differences of this size mean nothing here."
    )


def measured_at(root: Path, results: Path) -> str:
    """The commits that the runs of each file were measured at, and whether code that training depends on has changed since."""
    rows = []
    for path in sorted(results.rglob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found = [record for record in records if "curve" in record]  # runs that were trained
        if not found:
            continue
        counts = Counter(str(record.get("commit", ""))[:7] for record in found)
        commits = ", ".join(f"{commit or 'before commits were noted'} ({n})" for commit, n in sorted(counts.items()))
        changed = any(has_changed(root, commit) for commit in counts)
        rows.append((str(path.relative_to(results)), str(len(found)), commits, "yes" if changed else "no"))
    return table(("file of records", "runs", "measured at (runs)", "code changed since"), rows, right=(1,))


DECIDES = ("aggregation", "data", "datasets", "engine", "graph", "methods", "networks", "simulate")
"""The packages that decide the result of a run."""


def has_changed(root: Path, commit: str) -> bool:
    """Whether code that decides results differs from that of the commit; it does where no commit was noted."""
    if not commit:
        return True
    paths = [f"src/crowdwise/{name}" for name in DECIDES]
    command = ["git", "-C", str(root), "diff", "--quiet", commit, "--", *paths]
    return subprocess.run(command, check=False, capture_output=True).returncode == 1


def has_history(root: Path) -> bool:
    """Whether this is a repository with the commits of the records; a copy without history, or a shallow one, is not."""
    command = ["git", "-C", str(root), "cat-file", "-e", f"{OLDEST}^{{commit}}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


OLDEST = "26fbbe18ca53"
"""A commit that records name."""
