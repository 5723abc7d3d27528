"""Tables of what the scripts in this folder measured, for `results_table.py`, and how a table is written."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = dict[str, Any]
ERRORS = ("calibration_error", "calibration_error_calibrated")


def engine(records: list[Record]) -> str:
    """Epochs of TAIDTM's stages, and the same joint step written densely in plain PyTorch."""
    found = [r for r in records if r.get("benchmark") == "engine"]
    joint = {(r["preset"], r["batch_size"]): r["epoch_seconds"] for r in found if r["stage"] == "joint"}
    rows = [
        r
        | {"beside": r["epoch_seconds"] / joint[r["preset"], r["batch_size"]]}
        | {"kernels": "fused" if r.get("fused") else "single"}
        | {"peak": f"{100 * r['share_of_peak']:.1f} %" if r["share_of_peak"] else ""}
        for r in found
    ]
    columns = {
        "data, backbone": "{preset}, {backbone}",
        "batch": "{batch_size}",
        "batch norm": "{kernels}",
        "stage": "{stage}",
        "epoch, s": "{epoch_seconds:.3f}",
        "ms per step": "{ms_per_step:.2f}",
        "steps per s": "{steps_per_second:.0f}",
        "of the bf16 peak": "{peak}",
        "beside joint": "{beside:.2f}",
    }
    return listed(rows, columns, right=(1, *range(4, 9)))


def methods(records: list[Record]) -> str:
    """An epoch of each method beside one of CE."""
    columns = {
        "method": "{method}",
        "epoch, s": "{epoch_seconds:.3f}",
        "beside CE": "{ratio_to_ce:.2f}",
        "backbone": "{backbone}",
        "instances": "{size:,}",
        "device": "{device}",
    }
    return listed([r for r in records if r.get("benchmark") == "methods"], columns, right=(1, 2, 4))


def feature_fits(records: list[Record]) -> str:
    """Whole fits and predictions on feature vectors, on one core."""
    columns = {
        "data": "{data}, {columns} columns",
        "method": "{method}",
        "fit, s": "{fastest:.1f}",
        "five networks beside one": "{five_networks_to_one:.1f}",
        "rows predicted a second": "{predicted_rows_per_second:,}",
        "products alone": "{rows_by_products_alone:,}",
    }
    found = latest(records, "features", "data", "method")
    return listed([r | {"fastest": min(r["processor_seconds"])} for r in found], columns, right=range(2, 6))


def picture_predictions(records: list[Record]) -> str:
    """Pictures predicted in a second, beside the network alone."""
    columns = {
        "backbone": "{backbone}",
        "pictures": "{size:,}",
        "predicted a second": "{predicted_per_second:,}",
        "network alone": "{network_alone_per_second:,}",
        "GPU memory, GB": "{peak_gpu_gb}",
        "device": "{device}",
    }
    return listed(latest(records, "pictures", "backbone", "size", "device"), columns, right=range(1, 5))


def soak(records: list[Record]) -> str:
    """Thousands of small fits in one process."""
    rows = [
        r | {"failed": len(r["failures"]), "left": sum(r["refused"].values()), "growth": 100 * (r["rss_ratio"] - 1)}
        for r in records
        if r.get("benchmark") == "soak"
    ]
    columns = {
        "fits": "{fits:,}",
        "failures": "{failed}",
        "refused": "{left}",
        "memory in the first fifth": "{rss_first_mb:.0f} MB",
        "in the last": "{rss_last_mb:.0f} MB",
        "growth": "{growth:+.1f} %",
        "time": "{seconds:.0f} s",
    }
    return listed(rows, columns, right=range(7))


def annotators(records: list[Record]) -> str:
    """Time of a joint step of TAIDTM with a ResNet-18 against the number of annotators."""
    found = [r for r in records if r.get("benchmark") == "annotators" and r["backbone"] == "resnet18"]
    found = sorted((r for r in found if r.get("heads", "mapped") == "mapped"), key=lambda r: int(r["annotators"]))
    columns = {
        "annotators": "{annotators:,}",
        "ms per step": "{ms_per_step:.2f}",
        "relative": "{ratio:.2f}",
        "device": "{device}",
    }
    return listed(found, columns, right=range(3))


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


def label_only(records: list[Record]) -> str:
    """Right labels of the default and of other methods, beside the votes, and how far claims are from them."""
    found = [r for r in records if r.get("benchmark") == "label only"]
    kinds = {"people": "sets of people", "panel": "panels of models", "simulated": "simulated crowds"}
    rows = []
    for kind, shown in kinds.items():
        mine = [r for r in found if r["kind"].startswith(kind)]
        for method in dict.fromkeys(r["method"] for r in mine):
            some = [r for r in mine if r["method"] == method]
            gains = [r["right"] - r["votes"] for r in some]
            off = [r["claimed"] - r["right"] for r in some]
            losses = sum(gain < -5 for gain in gains)
            rows.append(
                (
                    f"{len(some)} {shown}",
                    "what `recommend` takes" if method == "recommend" else f"`{method}`",
                    mean_of([r["right"] for r in some], 1),
                    f"{statistics.mean(gains):+.1f}",
                    f"{min(gains):+.1f}",
                    str(losses),
                    mean_of([abs(each) for each in off], 1),
                    f"{statistics.mean(off):+.1f}",
                )
            )
    head = (
        "crowds",
        "method",
        "right, %",
        "above the votes",
        "worst",
        "5 under the votes",
        "claim off by",
        "claim minus right",
    )
    return table(head, rows, right=range(2, len(head)))


def further_labels(records: list[Record]) -> str:
    """What further labels of each item were expected to bring, and what they brought, by how many there were."""
    found = [r for r in records if r.get("benchmark") == "label only more"]
    rows = []
    for kept in dict.fromkeys(r["method"].split()[0] for r in found):
        some = [r for r in found if r["method"].split()[0] == kept]
        gains, expected = [r["gain"] for r in some], [r["expected"] for r in some]
        off = [abs(one - other) for one, other in zip(expected, gains, strict=True)]
        without = mean_of([abs(gain) for gain in gains], 1)
        rows.append((kept, str(len(some)), mean_of(gains, 1), mean_of(expected, 1), mean_of(off, 1), without))
    head = ("labels per item", "comparisons", "gain, points", "expected", "off by", "off by if none is expected")
    return table(head, rows, right=range(len(head)))


def peers(records: list[Record]) -> str:
    """Processor time of other libraries beside that of crowdwise, of the latest run of each comparison."""
    found = latest(records, "peers", "peer", "what", "size")
    rows = [r | {"shown": r["rounds"] or ""} for r in found]
    columns = {
        "peer": "{peer} {version}",
        "what": "{what}",
        "labels": "{size:,}",
        "rounds": "{shown}",
        "peer, s": "{processor_theirs:.2f}",
        "crowdwise, s": "{processor_ours:.3f}",
        "times": "{ratio:.0f}",
    }
    return listed(rows, columns, right=range(2, 7))


def threads(records: list[Record]) -> str:
    """Dawid-Skene on several threads beside one."""
    columns = {
        "labels": "{size:,}",
        "what": "{part}",
        "threads": "{threads}",
        "one thread, s": "{processor_one:.3f}",
        "several, s": "{processor:.3f}",
        "times as fast": "{speedup_processor:.2f}",
        "by the clock": "{speedup:.2f}",
        "load": "{load:.0f}",
        "processors": "{cpus}",
    }
    return listed(latest(records, "threads", "size", "part", "threads", "cpus"), columns, right=(0, *range(2, 9)))


def startup(records: list[Record]) -> str:
    """Processor time of short commands."""
    columns = {"command": "`{command}`", "processor time, s": "{processor:.2f}"}
    return listed(latest(records, "startup", "command"), columns, right=(1,))


def growth(records: list[Record]) -> str:
    """Processor time of the smallest and the largest crowd of each kind, and the times as much the latter is."""
    found = latest(records, "growth", "varied", "method", "annotations", "instances", "annotators", "classes")
    rows = []
    for varied, method in dict.fromkeys((r["varied"], r["method"]) for r in found):
        some = sorted(
            (r for r in found if (r["varied"], r["method"]) == (varied, method)), key=lambda r: int(r[varied])
        )
        first, last = some[0], some[-1]
        sizes = f"{first[varied]:,} to {last[varied]:,} ({last[varied] / first[varied]:.0f} times)"
        times = f"{first['processor']:.3f}", f"{last['processor']:.3f}", f"{last['processor'] / first['processor']:.1f}"
        rows.append((varied, method, sizes, *times))
    return table(("grows", "method", "from, to", "first, s", "last, s", "times"), rows, right=range(3, 6))


def latest(records: list[Record], benchmark: str, *keys: str) -> list[Record]:
    """The records of a benchmark, of those with the same keys the last one, in the order of the first."""
    return list({tuple(r[key] for key in keys): r for r in records if r.get("benchmark") == benchmark}.values())


def mean_of(values: list[float], digits: int = 2) -> str:
    return f"{statistics.mean(values):.{digits}f}"


def under_null(records: list[Record], area: str) -> str:
    """Rates of false alarms and coverage of what is published, over settings."""
    rows: dict[str, list[Record]] = {}
    for record in records:
        if record.get("benchmark") == "null" and record["area"] == area:
            rows.setdefault(record["what"], []).append(record)
    body = []
    for what, found in rows.items():
        rates = [record["rate"] for record in found]
        event = "false alarms" if found[0]["kind"] == "test" else "true value held"
        rate = " to ".join(dict.fromkeys(f"{100 * each:.1f}" for each in (min(rates), max(rates))))
        nominal = "none" if found[0]["kind"] == "estimate" else f"{100 * found[0]['nominal']:g} %"
        trials = sum(record["trials"] for record in found)
        body.append((what, event, nominal, f"{rate} %", str(len(found)), f"{trials:,}"))
    return table(("what", "counted", "nominal", "seen", "settings", "crowds"), body, right=range(2, 6))


def listed(records: Iterable[Record], columns: Mapping[str, str], right: Iterable[int]) -> str:
    """A table with a row for each record; ``columns`` has what is formatted, by its heading."""
    return table(tuple(columns), [[form.format(**record) for form in columns.values()] for record in records], right)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A Markdown table."""
    aligned = set(right)
    rule = ["---:" if column in aligned else "---" for column in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
