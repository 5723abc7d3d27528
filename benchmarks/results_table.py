"""The tables of README.md and of pages in docs, made from the records in benchmarks/results/*.jsonl.

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

import own_tables
import paper_tables
import script_tables
from crowdwise.bench import paper
from crowdwise.bench.experiments import load_experiment, title_of
from crowdwise.bench.paper.reproduction import recipe_departures
from crowdwise.engine.recipe import PAPER
from crowdwise.registry import METHODS
from script_tables import Record, listed, table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = "results", "taidtm", "reliability", "text", "tables", "aggregation", "quality", "agreement", "judges"
NULL_AREAS = "agreement", "quality", "judges", "aggregation"
DOCUMENTS = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in PAGES))

ORDER = tuple(load_experiment("table1").rows)  # the paper's, and where methods it does not have stand
ALWAYS = ("CE", "BLTM", "TAIDTM-FT", "TAIDTM")  # methods that are shown even if they were not run


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
    return str(record.get("row") or title_of(record["method"]))


def trained(records: Iterable[Record], *experiments: str | None) -> list[Record]:
    """The runs of these experiments that came to an end."""
    found = (record for record in records if "parameters" in record and "error" not in record)
    return [record for record in found if record.get("experiment") in experiments]


def in_setting(records: Iterable[Record], setting: Setting) -> list[Record]:
    """The runs of a column."""
    place = (setting.dataset, setting.noise_rate)
    found = trained(records, "table1", "table2", "table3", None)
    found = [record for record in found if not plain_defaults(record)]
    return [record for record in found if (record["dataset"], record["simulate"].get("noise_rate")) == place]


def plain_defaults(record: Record) -> bool:
    """Whether a run did not follow the paper's protocol but the recommended recipe."""
    return record.get("all_parameters", {}).get("recipe") == "auto"


def names_in(records: Sequence[Record], setting: Setting, always: Iterable[str] = ()) -> list[str]:
    """Methods with records, and those in ``always``, in the paper's order."""
    found = {name_of(record) for record in in_setting(records, setting)} | set(always)
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def runs(records: Iterable[Record], setting: Setting, name: str) -> list[list[Record]]:
    """Runs of a method that share everything but the seed, by seed; the longest training first, then the most seeds, then
    the newest. A run that was repeated with newer code counts once, as repeated."""
    groups: dict[str, dict[int, Record]] = {}
    for record in in_setting(records, setting):
        if name_of(record) != name:
            continue
        alike = json.dumps([parameters_of(record), record["simulate"], record["device"]], sort_keys=True)
        group = groups.setdefault(alike, {})
        other = group.get(record["seed"])
        if other is not None and other.get("code") == record.get("code"):
            raise SystemExit(
                f"{setting.title}, {name}: seed {record['seed']} is recorded twice with the same parameters"
            )
        if other is None or record.get("when", "") > other.get("when", ""):
            group[record["seed"]] = record
    newest = reversed(groups.values())
    found = [[group[seed] for seed in sorted(group)] for group in newest]
    return sorted(found, key=lambda group: (-group[0]["parameters"]["epochs"], -len(group)))


def parameters_of(record: Record) -> dict[str, Any]:
    """Every parameter of a run but the seed. Older records do not name the recipe, which was always the paper's."""
    given = {"recipe": "paper", **record["parameters"]}
    if given.get("lr") == PAPER.lr:
        del given["lr"]
    return METHODS[record["method"]](recipe=given["recipe"])._json_parameters() | given


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
    names = [name for name in ORDER if any(name in names_in(records, one, ALWAYS) for one in settings)]
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
    names = [name for name in ORDER if any(name in names_in(measured, one) for one in settings)]
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
    for text in recipe_departures(group[0], wanted):
        facts.append(f"**{text}**" if "epochs instead" in text else text)
    if "soft" in (every := parameters_of(group[0])):
        facts.append("posteriors as targets" if every["soft"] else "hard labels")
    again = [
        str(record["seed"]) for record in group if any("slower" in stage for stage in record.get("stage_seconds", ()))
    ]
    if again:
        facts.append(f"again at lr {parameters['lr'] / 5:g}, seed{'s' * (len(again) > 1)} {', '.join(again)}")
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


def neighbours(records: list[Record]) -> str:
    """Table 7: accuracy and edges against the number of neighbours, without and with purifying."""
    runs, found = trained(records, "table7"), by_neighbours(records)
    rows = []
    for k in sorted({k for k, _ in found}):
        cells = [str(k)]
        for purify in (False, True):
            record = found.get((k, purify))
            cells.append(f"{record['test_accuracy']:.2f} ({figure(record['column'], record['row'])})" if record else "")
        record = found.get((k, True), {})
        cells += [f"{record[name]:.4f}" if record else "" for name in ("edge_precision_before", "edge_precision_after")]
        cells.append(", ".join(sorted({str(r["parameters"]["epochs"]) for r in runs if r["parameters"]["k"] == k})))
        rows.append(tuple(cells))
    head = (
        "k",
        "not purified, % (paper)",
        "purified, % (paper)",
        "edges in group, before",
        "after purifying",
        "epochs",
    )
    return table(head, rows, right=range(6))


def by_neighbours(records: list[Record]) -> dict[tuple[int, bool], Record]:
    """The runs of Table 7 by k, and by whether the graph is purified."""
    runs = trained(records, "table7")
    return {(record["parameters"]["k"], record["parameters"]["purify"]): record for record in runs}


def best_groups(records: list[Record]) -> Iterable[tuple[Setting, str, list[Record]]]:
    """The runs of each method that the overview shows, in every setting."""
    for setting in SETTINGS:
        for name in names_in(records, setting):
            groups = runs(records, setting, name)
            if groups:
                yield setting, name, groups[0]


def leaders(records: list[Record]) -> str:
    """Which methods are ahead of TAIDTM."""
    means: dict[str, list[tuple[str, float, int]]] = {}
    for setting, name, group in best_groups(records):
        value = statistics.fmean(record["test_accuracy"] for record in group)
        means.setdefault(setting.title, []).append((name, value, len(group)))
    return paper_tables.leaders(means)


def far_off(records: list[Record]) -> str:
    """Where ours and the printed figure are more than two spreads apart, at the paper's number of epochs."""
    rows = []
    for setting, name, group in best_groups(records):
        printed = next(
            (t[setting.column][name] for t in map(paper.printed, paper.TITLES) if name in t.get(setting.column, {})),
            None,
        )
        facts = conditions(setting, group)
        if printed is None or any("epochs instead" in fact for fact in facts):
            continue
        value = statistics.fmean(record["test_accuracy"] for record in group)
        rows.append((setting.title, name, value, len(group), printed, "; ".join(facts[1:])))
    return paper_tables.far_off(rows)


def trials(records: list[Record]) -> str:
    """Runs that led to a setting."""
    default = {"lr": "default", "classifier_start": "default"}
    rows = [
        default
        | r
        | r["parameters"]
        | {"name": name_of(r)}
        | {"agreement": f"{r['validation_agreement']:.4f}" if "validation_agreement" in r else "none"}
        for r in records
    ]
    columns = {
        "data": "{dataset}",
        "method": "{name}",
        "seed": "{seed}",
        "lr": "{lr}",
        "start of the classifier": "{classifier_start}",
        "test accuracy, %": "{test_accuracy:.2f}",
        "validation agreement": "{agreement}",
    }
    return listed(rows, columns, right=(2, 3, 5, 6))


def spread(values: Iterable[float | None], digits: int) -> str:
    """One value, or the smallest and the largest."""
    known = [value for value in values if value is not None]
    ends = sorted({f"{value:.{digits}f}" for value in (min(known), max(known))}, key=float) if known else []
    return " to ".join(ends)


def tables(folder: Path = RESULTS) -> dict[str, str]:
    """Every table by the name that documents call it by."""
    makers: dict[str, Callable[[list[Record]], str]] = {
        "accuracy": accuracy,
        "overview": overview,
        "leaders": leaders,
        "far_off": far_off,
        "never_run": paper_tables.never_run,
        "variants": paper_tables.variants,
        "lead_seen": paper_tables.lead_seen,
        "as_printed": paper_tables.as_printed,
        "reasons": paper_tables.reasons,
        "changes": paper_tables.changes,
        "small": paper_tables.small,
        "purifying": lambda found: paper_tables.purifying([r for _, _, group in every_run(found) for r in group]),
        "same_algorithm": lambda found: paper_tables.same_algorithm(by_neighbours(found)),
        "estimation": estimation,
        "engine": script_tables.engine,
        "methods": script_tables.methods,
        "feature_fits": script_tables.feature_fits,
        "picture_predictions": script_tables.picture_predictions,
        "soak": script_tables.soak,
        "speed": speed,
        "annotators": script_tables.annotators,
        "heads": script_tables.heads,
        "large_crowds": script_tables.large_crowds,
        "graphs": graphs,
        "neighbours": neighbours,
        "inference": script_tables.inference,
        "simulated_crowds": script_tables.simulated_crowds,
        "label_only": script_tables.label_only,
        "further_labels": script_tables.further_labels,
        "peers": script_tables.peers,
        "threads": script_tables.threads,
        "startup": script_tables.startup,
        "growth": script_tables.growth,
    }
    records = read(folder)
    made = {name: make(records) for name, make in makers.items()}
    made |= {f"null_{area}": script_tables.under_null(records, area) for area in NULL_AREAS}
    own = {kind: [r for r in read(folder / "own_data") if r["device"] == kind] for kind in ("cpu", "cuda")}
    for make in (own_tables.own_overview, own_tables.own_features, own_tables.own_labels):
        made[make.__name__] = make(own["cpu"])
    recommended = [r for r in trained(records, "recommended", "table1", "table2", "table3") if plain_defaults(r)]
    made["own_pictures"] = own_tables.own_pictures([*own["cuda"], *recommended])
    for make in (own_tables.texts, own_tables.tables):
        made[make.__name__] = make(records)
    made["choices"] = own_tables.choices([record for record in records if "recommended" in record])
    return made | {"trials": trials(read(folder, trials=True))}


def with_commits(text: str) -> str:
    """The document with the commits that its records were measured at; as it is where there is no history."""
    if not paper_tables.has_history(ROOT):
        return text
    made = paper_tables.measured_at(ROOT, RESULTS)
    pattern = r"(?P<begin><!-- measured at -->)\n.*?(?P<end><!-- end of commits -->)"
    return re.sub(pattern, lambda found: f"{found['begin']}\n{made}\n{found['end']}", text, flags=re.DOTALL)


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
    parser.add_argument("--write", action="store_true", help="put the tables into README.md and docs")
    if not parser.parse_args().write:
        print("\n\n".join(tables().values()))
        return
    made = tables()
    for path in DOCUMENTS:
        path.write_text(with_commits(filled(path.read_text(encoding="utf-8"), made)), encoding="utf-8")


if __name__ == "__main__":
    main()
