"""Tables of plain defaults on anyone's data, for `results_table.py`.

Their records are those of `own_data.py`, `texts.py`, `tables.py`, `compare.py` and `crowdwise bench run recommended`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from crowdwise.bench.experiments import title_of
from script_tables import Record, table

FEATURES = {"labelme": "LabelMe", "music": "Music", "sentiment": "Sentiment", "digits-50": "Digits, AIDN-50 %"}
PICTURES = {
    "cifar10-40": "CIFAR-10, AIDN-40 %",
    "cifar10-50": "CIFAR-10, AIDN-50 %",
    "svhn-50": "SVHN, AIDN-50 %",
    "fashion-mnist-50": "Fashion-MNIST, AIDN-50 %",
    "cifar10n": "CIFAR-10N",
}
PLAIN = {"ce": "CE: every label taken for the truth", "dl-mv": "majority vote, then a network",
         "dl-ds": "Dawid-Skene, then a network", "concord": "**Concord**"}  # fmt: skip


def texts(records: list[Record]) -> str:
    """Classifier and labels on crowds of texts."""
    return _beside_regression(records, "texts")


def tables(records: list[Record]) -> str:
    """The same on tables."""
    return _beside_regression(records, "tables", "rows")


def _beside_regression(records: list[Record], benchmark: str, size: str = "texts") -> str:
    """Means over the records of each set, in %: accuracy, balanced accuracy, and in brackets the calibration error."""
    columns = {
        "Concord": "concord",
        "logistic regression": "regression",
        "labels of Concord": "labels",
        "majority vote": "majority_vote",
        "Dawid-Skene": "dawid_skene",
    }
    by_set: dict[str, list[Record]] = {}
    for record in records:
        if record.get("benchmark") == benchmark:
            by_set.setdefault(record["set"], []).append(record)

    def shown(found: list[Record], kind: str) -> str:
        keys = ("accuracy", "balanced", "calibration")
        accuracy, balanced, error = (100 * statistics.mean(record[kind][key] for record in found) for key in keys)
        return f"{accuracy:.1f}, {balanced:.1f} ({error:.1f})"

    rows = [
        (name, f"{found[0][size]:,}", str(found[0]["classes"]), *(shown(found, kind) for kind in columns.values()))
        for name, found in by_set.items()
    ]
    return table((benchmark, "number", "classes", *columns), rows, right=range(1, 8))


def own_overview(records: list[Record]) -> str:
    """README's table: test accuracy on real crowds."""
    names = {name: title for name, title in FEATURES.items() if name != "digits-50"}
    rows = [
        (title, *(spread(_of(records, name, method), "test_accuracy") for name in names))
        for method, title in PLAIN.items()
    ]
    return table(("nothing set", *names.values()), rows, right=range(1, len(names) + 1))


def own_features(records: list[Record]) -> str:
    """Test accuracy of every method that was run."""
    methods = _best_first(records, list(FEATURES))
    rows = [
        (
            title_of(method),
            *(spread(_of(records, name, method), "test_accuracy") for name in FEATURES),
            _seconds(records, method),
        )
        for method in methods
    ]
    return table(("method", *FEATURES.values(), "seconds a fit"), rows, right=range(1, len(FEATURES) + 2))


def own_labels(records: list[Record]) -> str:
    """Labels of the training instances: right before, right after, and what was claimed."""
    rows = []
    for name, title in FEATURES.items():
        votes = spread(_of(records, name, "concord"), "majority_vote_right", 1)
        for method in _best_first(records, [name]):
            own = _of(records, name, method)
            figures = (spread(own, key, 1) for key in ("labels_right", "claimed"))
            rows.append((title, title_of(method), votes, *figures, spread(own, "calibration_error", 3)))
    head = ("data", "method", "majority vote right, %", "labels_ right, %", "claimed, %", "calibration error")
    return table(head, rows, right=range(2, 6))


def own_pictures(records: list[Record]) -> str:
    """Pictures on a GPU; runs with the same settings share a row, and of runs with the same seed the last counts."""
    groups: dict[tuple[str, str, str], dict[int, Record]] = {}
    for record in records:
        settings = ", ".join(
            str(value) if key == "backbone" else f"{key} {value}" for key, value in record["parameters"].items()
        )
        groups.setdefault((_crowd(record), record["method"], settings), {})[record["seed"]] = record
    rows = []
    for name, title in PICTURES.items():
        for (data, method, settings), by_seed in groups.items():
            if data == name:
                own = [by_seed[seed] for seed in sorted(by_seed)]
                figures = (values(own, key, 1) for key in ("labels_right", "claimed"))
                error, seconds = values(own, "calibration_error", 3), values(own, "seconds", 0)
                rows.append(
                    (title, title_of(method), settings, values(own, "test_accuracy", 2), *figures, error, seconds)
                )
    head = (
        "data",
        "method",
        "set",
        "test accuracy, %",
        "labels_ right, %",
        "claimed, %",
        "calibration error",
        "seconds",
    )
    return table(head, rows, right=range(3, 8))


def _crowd(record: Record) -> str:
    """The name of a record's crowd; those of `crowdwise bench run recommended` have it in parts."""
    if "experiment" not in record:
        return str(record["data"])
    noise = record["simulate"].get("noise_rate")
    return record["dataset"] + (f"-{100 * noise:.0f}" if noise else "")


def choices(records: list[Record]) -> str:
    """What `crowdwise.compare` recommended, and how far that was behind the best on the test instances."""
    rows = []
    for name, title in FEATURES.items():
        own = [record for record in records if record["data"] == name and "recommended" in record]
        if own:
            chosen = [record["recommended"] for record in own]
            counted = ", ".join(f"{title_of(each)} {chosen.count(each)}" for each in dict.fromkeys(chosen))
            behind = sorted(record["behind"] for record in own)
            near = sum(each <= 1 for each in behind)
            rows.append((title, str(len(own)), counted, f"{statistics.mean(behind):.2f}", f"{behind[-1]:.2f}", str(near),
                         f"{max(record['seconds'] for record in own):.0f}"))  # fmt: skip
    head = (
        "data",
        "seeds",
        "recommended",
        "points behind the best, mean",
        "at most",
        "within 1 point",
        "seconds at most",
    )
    return table(head, rows, right=(1, 3, 4, 5, 6))


def spread(own: Sequence[Record], key: str, digits: int = 2) -> str:
    """Mean ± standard deviation over the seeds."""
    found = [record[key] for record in own if key in record]
    if len(found) < 3:
        return values(own, key, digits)
    return f"{statistics.mean(found):.{digits}f} ± {statistics.stdev(found):.{digits}f}"


def values(own: Sequence[Record], key: str, digits: int) -> str:
    return ", ".join(f"{record[key]:.{digits}f}" for record in own if key in record) or "not run"


def _of(records: Sequence[Record], name: str, method: str) -> list[Record]:
    return [record for record in records if record["data"] == name and record["method"] == method]


def _best_first(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    """Methods by their mean accuracy on the first of the data sets."""
    methods = dict.fromkeys(record["method"] for record in records if record["data"] in names)

    def accuracy(method: str) -> float:
        return statistics.mean([record["test_accuracy"] for record in _of(records, names[0], method)] or [0.0])

    return sorted(methods, key=accuracy, reverse=True)


def _seconds(records: Sequence[Record], method: str) -> str:
    return f"{statistics.median(record['seconds'] for record in records if record['method'] == method):.0f}"
