"""The tables of docs/results.md, docs/taidtm.md and README.md, made from the records in benchmarks/results/*.jsonl.

    python benchmarks/results_table.py            # print them
    python benchmarks/results_table.py --write    # put them into the documents

A table stands between ``<!-- results: NAME -->`` and ``<!-- end of results -->``. Records are those of `crowdwise bench run`,
or older ones without experiment, row and column. Files with ``trials`` in their name hold runs that led to a setting; they
have a table of their own and count nowhere else.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise.bench import paper
from crowdwise.bench.experiments import TITLES
from crowdwise.registry import METHODS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("results", "taidtm", "reliability")))

Record = dict[str, Any]
ALWAYS = ("CE", "BLTM", "TAIDTM-FT", "TAIDTM")  # methods that are shown even if they were not run
ERRORS = ("calibration_error", "calibration_error_calibrated")


@dataclass(frozen=True)
class Setting:
    """A column of the paper's tables, and what it is called here."""

    title: str
    column: str
    dataset: str
    noise_rate: float | None = None
    overview: bool = True
    """Whether it is a column of the overview."""


SETTINGS = (
    *(
        Setting(f"Fashion-MNIST, AIDN-{rate} %", f"F-MNIST|AIDN-{rate}%", "fashion-mnist", rate / 100, rate == 50)
        for rate in (50, 40, 30, 20, 10)
    ),
    Setting("CIFAR-10, AIDN-50 %", "CIFAR10|AIDN-50%", "cifar10", 0.5),
    Setting("CIFAR-10, AIDN-40 %", "CIFAR10|AIDN-40%", "cifar10", 0.4),
    Setting("SVHN, AIDN-50 %", "SVHN|AIDN-50%", "svhn", 0.5, False),
    Setting("CIFAR-10N", "CIFAR10-N", "cifar10n", None, False),
    Setting("LabelMe (other features)", "LabelMe", "labelme"),
    Setting("Music", "Music", "music"),
)


def figure(column: str, row: str) -> str:
    """What the paper prints, in the first of its tables that has it; a dagger marks figures that are known to be wrong."""
    for number in paper.TITLES:
        if row in paper.printed(number).get(column, {}):
            mean, sd = paper.printed(number)[column][row]
            wrong = any(not note.target for note in paper.notes(number, column, row))
            return f"{mean:.2f}" + (f" ± {sd:.2f}" if sd is not None else "") + (" †" if wrong else "")
    return "no figure"


def read(folder: Path, *, trials: bool = False) -> list[Record]:
    """The records of a folder, file by file; none if there is no such folder."""
    records = []
    for path in sorted(folder.glob("*.jsonl")):
        if ("trials" in path.stem) != trials:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise SystemExit(f"{path.name}, line {number} is not JSON: {error}") from error
    return records


def name_of(record: Record) -> str:
    return str(record.get("row") or TITLES[record["method"]])


def in_setting(records: Iterable[Record], setting: Setting) -> list[Record]:
    """The runs of a column that came to an end."""
    place = (setting.dataset, setting.noise_rate)
    trained = (record for record in records if "parameters" in record and "error" not in record)
    return [record for record in trained if (record["dataset"], record["simulate"].get("noise_rate")) == place]


def names_in(records: Sequence[Record], setting: Setting, always: Iterable[str] = ()) -> list[str]:
    """Methods with records, and those in ``always``, in the paper's order."""
    found = {name_of(record) for record in in_setting(records, setting)} | set(always)
    return [name for name in TITLES.values() if name in found] + sorted(found - set(TITLES.values()))


def runs(records: Iterable[Record], setting: Setting, name: str) -> list[list[Record]]:
    """Runs of a method that share everything but the seed, by seed; the longest training first, then the most seeds, then
    the newest."""
    groups: dict[str, dict[int, Record]] = {}
    for record in in_setting(records, setting):
        if name_of(record) != name:
            continue
        alike = json.dumps([parameters_of(record), record["simulate"], record["device"]], sort_keys=True)
        group = groups.setdefault(alike, {})
        if record["seed"] in group:
            raise SystemExit(
                f"{setting.title}, {name}: seed {record['seed']} is recorded twice with the same parameters"
            )
        group[record["seed"]] = record
    newest = reversed(groups.values())
    found = [[group[seed] for seed in sorted(group)] for group in newest]
    return sorted(found, key=lambda group: (-group[0]["parameters"]["epochs"], -len(group)))


def parameters_of(record: Record) -> dict[str, Any]:
    """Every parameter of a run but the seed; those that older records leave out were the defaults."""
    method = METHODS[record["method"]]()
    return method._json_parameters() | record["parameters"] | record.get("all_parameters", {}) | {"random_state": None}


def every_run(records: list[Record]) -> Iterable[tuple[Setting, str, list[Record]]]:
    for setting in SETTINGS:
        for name in names_in(records, setting):
            for group in runs(records, setting, name):
                yield setting, name, group


def accuracy(records: list[Record]) -> str:
    """Test accuracy of the last epoch, and of the one that agreed best with held-out annotations, beside the paper's."""
    rows = []
    for setting in SETTINGS:
        for name in names_in(records, setting, ALWAYS):
            printed = figure(setting.column, name)
            groups = runs(records, setting, name)
            for group in groups:
                best = mean(group, "test_accuracy_at_best_agreement")
                rows.append((setting.title, name, mean(group), best, printed, "; ".join(conditions(setting, group))))
            if not groups:
                rows.append((setting.title, name, "not run", "", printed, ""))
    return table(("data", "method", "crowdwise, %", "at best agreement, %", "paper, %", "runs"), rows)


def overview(records: list[Record]) -> str:
    """Our accuracy, and the paper's in brackets, for every method; a star where it is of few seeds or of less training."""
    settings = [setting for setting in SETTINGS if setting.overview]
    names = [name for name in TITLES.values() if any(name in names_in(records, one, ALWAYS) for one in settings)]
    rows = []
    for name in names:
        cells = []
        for setting in settings:
            groups = runs(records, setting, name)
            star = "\\*" if groups and any("**" in fact for fact in conditions(setting, groups[0])) else ""
            ours = f"{mean(groups[0])}{star}" if groups else "not run"
            printed = figure(setting.column, name)
            cells.append(ours if printed == "no figure" else f"{ours} ({printed})")
        rows.append((name, *cells))
    return table(("method", *(setting.title for setting in settings)), rows)


def estimation(records: list[Record]) -> str:
    """Mean absolute error of the row of T^j(x) that belongs to the true class; of the longest training there is."""
    measured = [record for record in records if "transition_row_error" in record]
    settings = [setting for setting in SETTINGS if in_setting(measured, setting)]
    names = [name for name in TITLES.values() if any(name in names_in(measured, one) for one in settings)]
    rows = []
    for name in names:
        groups = (runs(measured, setting, name) for setting in settings)
        rows.append((name, *(mean(found[0], "transition_row_error", 3) if found else "" for found in groups)))
    return table(("method", *(setting.title for setting in settings)), rows, right=range(1, len(settings) + 1))


def mean(group: list[Record], metric: str = "test_accuracy", digits: int = 2) -> str:
    """Mean and standard deviation from three seeds on, else the values themselves; nothing where some have none."""
    values = [record[metric] for record in group if metric in record]
    if len(values) < len(group):
        return ""
    if len(values) < 3:
        return ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def conditions(setting: Setting, group: list[Record]) -> list[str]:
    """How many seeds, and what is not as in the paper; bold where a figure is no reproduction for it."""
    parameters, wanted = group[0]["parameters"], paper.conditions(setting.column)
    assert wanted is not None
    facts = [f"{len(group)} seeds" if len(group) > 2 else f"**{len(group)} seed{'s' * (len(group) > 1)}**"]
    if parameters["epochs"] != wanted.epochs:
        facts.append(f"**{parameters['epochs']} epochs instead of {wanted.epochs}**")
    if parameters.get("lr", wanted.lr) != wanted.lr:
        facts.append(f"lr {parameters['lr']} instead of {wanted.lr}")
    if "soft" in (every := parameters_of(group[0])):
        facts.append("posteriors as targets" if every["soft"] else "hard labels")
    return facts


def speed(records: list[Record]) -> str:
    """Seconds of an epoch and of a whole fit, and the peak of GPU memory, of runs that had their device for themselves."""
    rows = []
    for setting, name, group in every_run([record for record in records if record.get("sharing", 1) == 1]):
        device = "CPU" if group[0]["device"].startswith("cpu") else group[0]["device"]
        rows.append(
            (
                setting.title,
                name,
                device,
                str(group[0]["parameters"]["epochs"]),
                spread((r["median_epoch_seconds"].get("warm-up") for r in group), 2),
                spread((last_stage(r) for r in group), 2),
                spread((r["seconds"] for r in group), 1 if device == "CPU" else 0),
                spread((r.get("peak_gpu_gb") for r in group), 1),
            )
        )
    head = (
        "data",
        "method",
        "device",
        "epochs",
        "warm-up epoch, s",
        "last stage's epoch, s",
        "fit, s",
        "GPU memory, GB",
    )
    return table(head, rows, right=range(3, 8))


def last_stage(record: Record) -> float:
    seconds: float = list(record["median_epoch_seconds"].values())[-1]
    return seconds


def engine(records: list[Record]) -> str:
    """Epochs of TAIDTM's stages, and the same joint step written densely in plain PyTorch."""
    found = [r for r in records if r.get("benchmark") == "engine"]
    joint = {r["preset"]: r["epoch_seconds"] for r in found if r["stage"] == "joint"}
    rows = [
        (
            f"{r['preset']}, {r['backbone']}",
            r["stage"],
            f"{r['epoch_seconds']:.3f}",
            f"{r['ms_per_step']:.2f}",
            f"{r['steps_per_second']:.0f}",
            f"{100 * r['share_of_peak']:.1f} %" if r["share_of_peak"] else "",
            f"{r['epoch_seconds'] / joint[r['preset']]:.2f}",
        )
        for r in found
    ]
    head = ("data, backbone", "stage", "epoch, s", "ms per step", "steps per s", "of the bf16 peak", "beside joint")
    return table(head, rows, right=range(2, 7))


def methods(records: list[Record]) -> str:
    """An epoch of each method beside one of CE."""
    found = [r for r in records if r.get("benchmark") == "methods"]
    rows = [
        (
            r["method"],
            f"{r['epoch_seconds']:.3f}",
            f"{r['ratio_to_ce']:.2f}",
            r["backbone"],
            f"{r['size']:,}",
            r["device"],
        )
        for r in found
    ]
    return table(("method", "epoch, s", "beside CE", "backbone", "instances", "device"), rows, right=(1, 2, 4))


def soak(records: list[Record]) -> str:
    """Thousands of small fits in one process."""
    rows = [
        (
            f"{r['fits']:,}",
            str(len(r["failures"])),
            str(sum(r["refused"].values())),
            f"{r['rss_first_mb']:.0f} MB",
            f"{r['rss_last_mb']:.0f} MB",
            f"{100 * (r['rss_ratio'] - 1):+.1f} %",
            f"{r['seconds']:.0f} s",
        )
        for r in records
        if r.get("benchmark") == "soak"
    ]
    head = ("fits", "failures", "refused", "memory in the first fifth", "in the last", "growth", "time")
    return table(head, rows, right=range(7))


def annotators(records: list[Record]) -> str:
    """Time of a joint step of TAIDTM with a ResNet-18 against the number of annotators."""
    found = [r for r in records if r.get("benchmark") == "annotators" and r["backbone"] == "resnet18"]
    found = sorted((r for r in found if r.get("heads", "mapped") == "mapped"), key=lambda r: int(r["annotators"]))
    rows = [(f"{r['annotators']:,}", f"{r['ms_per_step']:.2f}", f"{r['ratio']:.2f}", r["device"]) for r in found]
    return table(("annotators", "ms per step", "relative", "device"), rows, right=range(3))


def heads(records: list[Record]) -> str:
    """Time and memory of a step by the form of the heads, a row for each device, width and number of annotators."""
    found = [r for r in records if r.get("benchmark") == "annotators" and "heads" in r]
    places: dict[tuple[str, int, int], dict[str, Record]] = {}
    for record in found:
        place = (record["device"], record["features"], record["annotators"])
        places.setdefault(place, {})[record["heads"]] = record
    rows = [
        (device, str(features), f"{size:,}", *(step(each.get(kind)) for kind in ("full", "factored", "mapped")))
        for (device, features, size), each in sorted(places.items())
    ]
    head = ("device", "features", "annotators", "full heads", "factored heads", "graph convolution")
    return table(head, rows, right=range(1, 6))


def large_crowds(records: list[Record]) -> str:
    """Seconds of the parts of a whole fit, and the peak of memory, against the number of annotators."""
    parts = {
        "before the graph": ("warm-up", "global transition", "alignment", "individual heads"),
        "neighbours": ("neighbours",),
        "purifying": ("purifying",),
        "mapped heads": ("mapping", "mapped heads"),
        "correction": ("correction",),
        "skill": ("skill",),
        "save and load": ("save", "load"),
    }
    found = [r for r in records if r.get("benchmark") == "large_crowd"]
    rows = [
        (
            r["device"],
            f"{r['annotators']:,}",
            f"{r['skipped']:,}",
            *(f"{sum(r['seconds'].get(name, 0.0) for name in names):.1f} s" for names in parts.values()),
            f"{r['host_gb']:.2f} GB" + (f", GPU {r['memory_gb']:.2f} GB" if not r["device"].startswith("cpu") else ""),
        )
        for r in sorted(found, key=lambda r: (str(r["device"]), int(r["annotators"])))
        if r["heads"] == "factored"
    ]
    return table(("device", "annotators", "skipped", *parts, "memory"), rows, right=range(1, 11))


def step(record: Record | None) -> str:
    """Milliseconds and gigabytes of a step."""
    if record is None:
        return ""
    return "does not fit" if "left_out" in record else f"{record['ms_per_step']:.1f} ms, {record['memory_gb']:.2f} GB"


def graphs(records: list[Record]) -> str:
    """What the simulated crowds' truth says about the parts of a run."""
    rows = []
    for setting, name, group in every_run(records):
        for record in group:
            if "edge_precision_after" in record:
                rows.append(
                    (
                        f"{setting.title}, {name}, seed {record['seed']}",
                        f"{record['distilled']:,}",
                        f"{record['distilled_accuracy']:.1f} %",
                        f"{record['edge_precision_before']:.4f}",
                        f"{record['edge_precision_after']:.4f}",
                        f"{record['transition_row_error']:.3f}",
                    )
                )
    head = ("run", "distilled", "right", "edges in group, before", "after purifying", "error of T")
    return table(head, rows, right=range(1, 6))


def inference(records: list[Record]) -> str:
    """Accuracy of truth inference on real sets, crowd-kit's in brackets, and the mean calibration error."""
    found = [r for r in records if r.get("benchmark") == "aggregation accuracy" and "gain" not in r]
    sets = list(dict.fromkeys(r["set"] for r in found))
    rows = []
    for method in dict.fromkeys(r["method"] for r in found):
        mine = {r["set"]: r for r in found if r["method"] == method}
        cells = [mean_of(mine[name]["accuracy"]) for name in sets]
        cells = [
            cell + (f" ({mean_of(mine[name]['crowd_kit'])})" if "crowd_kit" in mine[name] else "")
            for cell, name in zip(cells, sets, strict=True)
        ]
        whole = mean_of([statistics.mean(r["accuracy"]) for r in mine.values()])
        errors = (mean_of([100 * r[key] for r in mine.values()], 1) for key in ERRORS)
        rows.append((method, *cells, whole, " / ".join(errors)))
    return table(("method", *sets, "mean", "calibration error, raw / calibrated"), rows, right=range(1, len(sets) + 3))


def simulated_crowds(records: list[Record]) -> str:
    """Mean gain over majority vote on simulated crowds in points, and the worst one in brackets."""
    found = [r for r in records if r.get("benchmark") == "aggregation accuracy" and "gain" in r]
    methods = [name for name in dict.fromkeys(r["method"] for r in found) if name != "majority-vote"]
    cells = {(r["set"], r["method"]): f"{mean_of(r['gain'])} ({min(r['gain']):.1f})" for r in found}
    votes = {r["set"]: r for r in found if r["method"] == "majority-vote"}
    theirs = {r["set"]: r["crowd_kit"] for r in found if r["method"] == "dawid-skene" and "crowd_kit" in r}
    rows = []
    for name, vote in votes.items():
        gains = [theirs[name][k] - score for k, score in enumerate(vote["accuracy"])] if name in theirs else []
        peer = f"{mean_of(gains)} ({min(gains):.1f})" if gains else ""
        kind = name.removeprefix("simulated: ")
        rows.append((kind, mean_of(vote["accuracy"]), *(cells[name, method] for method in methods), peer))
    head = ("crowds", "majority vote, %", *methods, "crowd-kit's Dawid-Skene")
    return table(head, rows, right=range(1, len(head)))


def mean_of(values: list[float], digits: int = 2) -> str:
    return f"{statistics.mean(values):.{digits}f}"


def trials(records: list[Record]) -> str:
    """Runs that led to a setting."""
    rows = [
        (
            r["dataset"],
            name_of(r),
            str(r["seed"]),
            str(r["parameters"].get("lr", "default")),
            r["parameters"].get("classifier_start", "default"),
            f"{r['test_accuracy']:.2f}",
            f"{r['validation_agreement']:.4f}" if "validation_agreement" in r else "none",
        )
        for r in records
    ]
    head = ("data", "method", "seed", "lr", "start of the classifier", "test accuracy, %", "validation agreement")
    return table(head, rows, right=(2, 3, 5, 6))


def spread(values: Iterable[float | None], digits: int) -> str:
    """One value, or the smallest and the largest."""
    known = [value for value in values if value is not None]
    ends = sorted({f"{value:.{digits}f}" for value in (min(known), max(known))}, key=float) if known else []
    return " to ".join(ends)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A Markdown table."""
    aligned = set(right)
    rule = ["---:" if column in aligned else "---" for column in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def tables(folder: Path = RESULTS) -> dict[str, str]:
    """Every table by the name that documents call it by."""
    makers: dict[str, Callable[[list[Record]], str]] = {
        "accuracy": accuracy,
        "overview": overview,
        "estimation": estimation,
        "engine": engine,
        "methods": methods,
        "soak": soak,
        "speed": speed,
        "annotators": annotators,
        "heads": heads,
        "large_crowds": large_crowds,
        "graphs": graphs,
        "inference": inference,
        "simulated_crowds": simulated_crowds,
    }
    records = read(folder)
    return {name: make(records) for name, make in makers.items()} | {"trials": trials(read(folder, trials=True))}


def filled(text: str, made: dict[str, str]) -> str:
    """The document with its tables as the records have them."""

    def replace(found: re.Match[str]) -> str:
        if found["name"] not in made:
            raise SystemExit(f"unknown table {found['name']!r}; known: {', '.join(made)}")
        return f"{found['begin']}\n{made[found['name']]}\n{found['end']}"

    pattern = r"(?P<begin><!-- results: (?P<name>\w+) -->)\n.*?(?P<end><!-- end of results -->)"
    return re.sub(pattern, replace, text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into README.md and docs/results.md")
    if not parser.parse_args().write:
        print("\n\n".join(tables().values()))
        return
    for path in DOCUMENTS:
        path.write_text(filled(path.read_text(encoding="utf-8"), tables()), encoding="utf-8")


if __name__ == "__main__":
    main()
