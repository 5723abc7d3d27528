"""Every reading option on every road: it changes the result as it changes that of `crowdwise.read`, or is refused by name.

Options and verbs are those of the signatures, so that a new one is tried too; one without a sample, or without a way to
try it, fails.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.main import get_command

import crowdwise
from crowdwise.cli import VERBS, app
from crowdwise.cli import options as cli_options
from crowdwise.cli.commands import command as _command
from crowdwise.data.training import from_files
from crowdwise.readers import load_columns, read_together, write_table
from differential.writers import xlsx

ITEMS, PEOPLE = 12, ("ann", "bob", "cyd", "gpt")
PYTHON_ONLY = {"path", "details"}
OPTIONS = [name for name in inspect.signature(crowdwise.read).parameters if name not in PYTHON_ONLY]


# -- a file for every option, which is read otherwise with it than without ---------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A file, and a value of an option that changes what it says."""

    name: str
    data: bytes
    value: Any
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other options that the file needs."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files that these name."""

    def written(self, folder: Path) -> tuple[Path, dict[str, Any]]:
        """The file in a folder, and all options but the one that is tried."""
        for name, data in {self.name: self.data, **self.files}.items():
            (folder / name).write_bytes(data)
        more = {name: str(folder / value) if value in self.files else value for name, value in self.more.items()}
        return folder / self.name, more

    def said(self, folder: Path) -> Any:
        """The value of the option that is tried, where its files are in a folder."""
        return str(folder / self.value) if self.value in list(self.files) else self.value


def rows() -> list[dict[str, Any]]:
    """Labels of which most people agree, and each sometimes errs."""
    rng = np.random.default_rng(5)
    made = []
    for item in range(ITEMS):
        truth = ("cat", "dog")[item % 2]
        for who in PEOPLE:
            label = truth if rng.random() < 0.75 else ("cat", "dog", "eel")[rng.integers(3)]
            made.append({"item": f"i{item}", "worker": who, "label": label, "text": f"text {item}"})
    return made


def text(
    records: Sequence[Mapping[str, Any]], separator: str = ",", encoding: str = "utf-8", *, header: bool = True
) -> bytes:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(records[0]), delimiter=separator, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(records)
    return sink.getvalue().encode(encoding)


def changed(**columns: Callable[[int, dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """The rows with some columns made anew."""
    return [row | {name: make(k, row) for name, make in columns.items()} for k, row in enumerate(rows())]


def tasks(*, two: bool = False, several: bool = False) -> bytes:
    """Tasks of Label Studio, with a second question, or with an annotation of several choices."""

    def result(name: str, choices: list[str]) -> dict[str, Any]:
        return {"from_name": name, "to_name": "text", "type": "choices", "value": {"choices": choices}}

    found: dict[str, Any] = {}
    for k, row in enumerate(rows()):
        choices = [row["label"], "cat"] if several and k % 7 == 0 and row["label"] != "cat" else [row["label"]]
        results = [result("kind", choices), *([result("mood", ["fine"])] if two else [])]
        task = found.setdefault(row["item"], {"id": row["item"], "data": {"text": row["text"]}, "annotations": []})
        task["annotations"].append({"completed_by": row["worker"], "result": results})
    return json.dumps(list(found.values())).encode()


def matrix() -> bytes:
    """A matrix whose header looks like that of a long table."""
    names = dict(zip(PEOPLE, ("user", "judge", "coder", "gpt"), strict=True))
    found: dict[str, dict[str, Any]] = {}
    for row in rows():
        found.setdefault(row["item"], {"item": row["item"]})[names[row["worker"]]] = row["label"]
    return text(list(found.values()))


def unit(_: int, row: Mapping[str, Any]) -> str:
    """What two items have in common."""
    return f"u{int(row['item'][1:]) // 2}"


def samples() -> dict[str, Sample]:
    plain = rows()
    repeated = [*plain, *({**row, "label": "eel"} for row in plain[::5])]
    sheets = {"First": [list(plain[0]), *(["i0", who, "eel", "text 0"] for who in PEOPLE)]}
    sheets["Second"] = [list(plain[0]), *(list(row.values()) for row in plain)]
    truth = text([{"item": f"i{k}", "label": "cat", "right": ("dog", "eel")[k % 2]} for k in range(ITEMS)])
    odd = changed(label=lambda k, row: {"eel": "größe"}.get(row["label"], row["label"]))
    return {
        "instance": Sample("a.csv", text(changed(unit=unit, text=lambda k, row: f"text of {unit(k, row)}")), "unit"),
        "annotator": Sample(
            "a.csv", text(changed(rater=lambda k, row: {"ann": "bob"}.get(row["worker"], row["worker"]))), "rater"
        ),
        "label": Sample("a.csv", text(changed(answer=lambda k, row: "dog" if k % 3 else row["label"])), "answer"),
        "gold": Sample("a.csv", text(changed(right=lambda k, row: ("dog", "eel")[k // 4 % 2])), "right"),
        "gold_column": Sample("a.csv", text(plain), "right", {"gold": "truth.csv"}, {"truth.csv": truth}),
        "weight": Sample("a.csv", text(changed(share=lambda k, row: 1 + 4 * (row["worker"] == "gpt"))), "share"),
        "columns": Sample("a.csv", text(plain, header=False), ["item", "worker", "label", "text"]),
        "separator": Sample("a.csv", text(plain, ":"), ":"),
        "encoding": Sample("a.csv", text(odd, encoding="mac-roman"), "mac-roman"),
        "sheet": Sample("a.xlsx", xlsx(sheets), "Second"),
        "format": Sample("a.csv", matrix(), "dense"),
        "question": Sample("a.json", tasks(two=True), "kind"),
        "several": Sample("a.json", tasks(several=True), "first"),
        "duplicates": Sample("a.csv", text(repeated), "last"),
        "models": Sample(
            "a.csv", text(changed(kind=lambda k, row: "model" if row["worker"] == "gpt" else "person")), False
        ),
        "kinds": Sample("a.csv", text(plain), "kinds.csv", files={"kinds.csv": b"annotator,kind\ngpt,model\n"}),
        "clean": Sample(
            "a.csv", text(changed(label=lambda k, row: row["label"].title() if k % 3 else row["label"])), True
        ),
        "classes": Sample(
            "a.csv",
            text(changed(label=lambda k, row: f"{row['label']} " if k % 3 else row["label"])),
            ["eel", "dog", "cat"],
        ),
        "missing": Sample("a.csv", text(changed(label=lambda k, row: "?" if k % 5 == 0 else row["label"])), ["?"]),
        "map": Sample("a.csv", text(plain), {"eel": "dog"}),
    }


SAMPLES = samples()


def contents(crowd: Any) -> list[tuple[Any, ...]]:
    """Instance, annotator, label and weight of every annotation."""
    table = crowd.to_frame()
    weight = [1.0] * len(crowd) if crowd.weight is None else crowd.weight.tolist()
    names = ("instance", "annotator", "label")
    return sorted(zip(*(map(str, table[name].to_pylist()) for name in names), weight, strict=True))


def gold_of(gold: Mapping[Any, Any] | None) -> dict[str, str]:
    return {str(one): str(truth) for one, truth in (gold or {}).items()}


# -- verbs: each with what to compare ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A folder with the file under test, and with ids and texts of its instances."""

    folder: Path
    path: Path
    patch: pytest.MonkeyPatch


class Refused(Exception):
    """A clear error of a command."""


_PROGRAM: list[Any] = []


def command(*words: Any) -> str:
    if not _PROGRAM:
        _PROGRAM.append(get_command(app))
    out, said = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(said):
        try:
            _PROGRAM[0].main([str(word) for word in words], prog_name="crowdwise")
        except SystemExit as end:
            if end.code not in (0, None):
                raise Refused(" ".join(said.getvalue().replace("│", " ").split())) from None
    return out.getvalue()


def table(path: Path) -> dict[str, list[Any]]:
    return {name: column.to_pylist() for name, column in load_columns(path, list).items()}


def aggregate(place: Place, words: list[str]) -> Any:
    out = place.folder / "out.parquet"
    command("aggregate", place.path, "-o", out, "-m", "majority-vote", "--proba", *words)
    return table(out)


def agreement(place: Place, words: list[str]) -> Any:
    return json.loads(command("agreement", place.path, "--bootstrap", "0", "--json", *words))


def annotators(place: Place, words: list[str]) -> Any:
    found = json.loads(command("annotators", place.path, "-m", "majority-vote", "--json", *words))["table"]
    return sorted(found, key=lambda row: str(row["annotator"]))  # equals are listed as they appear


def judges(place: Place, words: list[str]) -> Any:
    return json.loads(command("judges", place.path, "--model", "gpt", "--json", *words))["models"]


def estimate(place: Place, words: list[str]) -> Any:
    gold = [] if "--gold" in words else ["--gold", place.folder / "gold.csv"]
    out = place.folder / "estimates.parquet"
    command("estimate", place.path, *gold, "-o", out, *words)
    return table(out)


def route(place: Place, words: list[str]) -> Any:
    out = place.folder / "routed.parquet"
    command("route", place.path, "-o", out, "--sample", "4", "-m", "majority-vote", *words)
    return table(out)


def report(place: Place, words: list[str]) -> Any:
    class Found(Exception):
        pass

    def gather(source: Any, **_: Any) -> Any:
        raise Found(
            contents(source.annotations), gold_of(source.gold), place.path.suffix == ".json" or source.texts is None
        )

    place.patch.setattr("crowdwise.tasks.report.gather", gather)
    with pytest.raises((Found, Refused)) as found:
        command("report", place.path, "-o", place.folder / "page.html", *words)
    if isinstance(found.value, Refused):
        raise found.value
    return found.value.args[:2]


def review(place: Place, words: list[str]) -> Any:
    out = place.folder / "reviewed.parquet"
    command("review", place.path, "--labels", out, "-o", place.folder / "answers", "-m", "majority-vote", *words)
    return table(out)


def convert(place: Place, words: list[str]) -> Any:
    out = place.folder / "converted.parquet"
    command("convert", place.path, out, *words)
    gold = "gold" if "gold" in table(out) else None
    found = crowdwise.read(out, gold=gold)
    return contents(found.annotations), gold_of(found.gold)


def info(place: Place, words: list[str]) -> Any:
    found = json.loads(command("info", place.path, "--json", *words))
    kept = [each["facts"] for each in found if each.get("facts")]
    return [{name: fact for name, fact in facts.items() if name in ABOUT} for facts in kept]


ABOUT = ("annotations", "instances", "annotators", "classes", "labels per class", "gold", "repeats", "weights")


class Loaded(Exception):
    """The data that a verb would train on."""


def _stopped(place: Place, *words: Any) -> Any:
    """Run a verb that trains until it has its data."""
    with pytest.raises((Loaded, Refused)) as found:
        command(*words)
    if isinstance(found.value, Refused):
        raise found.value
    return found.value.args


def _loaded(X: Any, crowd: Any, gold: Any = None) -> Loaded:
    rows = dict(zip(map(str, crowd.instances.tolist()), list(X), strict=True))
    return Loaded(contents(crowd), {one: str(row) for one, row in rows.items()}, gold_of(gold))


def train(place: Place, words: list[str], *own: Any) -> Any:
    def trained(self: Any, data: Any, *_: Any) -> Any:
        ids = data.annotations.instances
        gold = None if data.gold is None else dict(zip(ids[data.gold[0]].tolist(), data.gold[1].tolist(), strict=True))
        raise _loaded(data.X, data.annotations, gold)

    place.patch.setattr("crowdwise.tasks.train.Run._train", trained)
    source = own or ("--inputs", place.folder / "inputs.csv", "--text", "words")
    return _stopped(place, "train", place.path, "-o", place.folder / "run", *source, *words)


def train_on_its_own_texts(place: Place, words: list[str]) -> Any:
    return train(place, words, "--text", "text")


def compare(place: Place, words: list[str], *own: Any) -> Any:
    def compared(X: Any, crowd: Any, *, gold: Any, **_: Any) -> Any:
        raise _loaded(X, crowd, gold)

    place.patch.setattr("crowdwise.comparison.compare", compared)
    source = own or ("--inputs", place.folder / "inputs.csv", "--text", "words")
    return _stopped(place, "compare", place.path, *source, *words)


def predict(place: Place, words: list[str]) -> Any:
    class Model:
        """Takes what it is given."""

        class intake_:
            encoder = None

    def loaded(*given: Any, **named: Any) -> Any:
        data = from_files(*given, **named)
        gold = None if data.gold is None else dict(zip(data.gold[0].tolist(), data.gold[1].tolist(), strict=True))
        raise _loaded(data.X, data.annotations, gold)

    place.patch.setattr("crowdwise.load", lambda *_, **__: Model())
    place.patch.setattr("crowdwise.tasks.predict.from_files", loaded)
    source = (place.folder / "run", place.folder / "inputs.csv", "--text", "words", "--annotations", place.path)
    return _stopped(place, "predict", *source, *words)


ROADS: dict[str, Callable[[Place, list[str]], Any]] = {
    "aggregate": aggregate,
    "agreement": agreement,
    "annotators": annotators,
    "judges": judges,
    "estimate": estimate,
    "route": route,
    "report": report,
    "review": review,
    "convert": convert,
    "info": info,
    "train": train,
    "train --text": train_on_its_own_texts,
    "compare": compare,
    "compare --text": lambda place, words: compare(place, words, "--text", "text"),
    "predict": predict,
}


def reading_verbs() -> list[str]:
    """The verbs that say how a file is read."""
    return [verb for verb in VERBS if "separator" in {each.name for each in getattr(_command(verb), "params", ())}]


def test_every_verb_and_every_option_is_tried() -> None:
    assert {road.partition(" ")[0] for road in ROADS} == set(reading_verbs())
    assert set(SAMPLES) == set(OPTIONS)


@pytest.mark.parametrize("verb", reading_verbs())
def test_every_verb_has_every_option(verb: str) -> None:
    assert set(cli_options.OPTIONS) <= {each.name for each in _command(verb).params}
    assert set(cli_options.OPTIONS) <= set(OPTIONS)


def words_of(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{'' if value else 'no-'}{name}"]
    if isinstance(value, Mapping):
        return [word for old, new in value.items() for word in (f"--{name}", f"{old}={new}")]
    return [f"--{name.replace('_', '-')}", value if isinstance(value, str) else ",".join(value)]


def _place(folder: Path, patch: pytest.MonkeyPatch, path: Path, ids: Sequence[Any]) -> Place:
    """A folder with the inputs and the gold of instances."""
    write_table(pa.table({"id": ids, "words": [f"words of {one}" for one in ids]}), folder / "inputs.csv")
    some = ids[::2]
    labels = [("cat", "dog")[k % 2] for k in range(len(some))]
    write_table(pa.table({"item": some, "label": labels}), folder / "gold.csv")
    return Place(folder, path, patch)


def _written(export: Any, path: Path, name: str) -> list[str]:
    """What was read as a plain table that needs no option but the one for gold; classes stay in their order."""
    crowd = export.annotations
    columns = {name: crowd.to_frame()[name] for name in ("instance", "annotator", "label")}
    if crowd.weight is not None:
        columns["weight"] = pa.array(crowd.weight)
    kinds = export.kinds[crowd.annotator]
    columns["kind"] = pa.array(kinds.tolist())
    if export.texts is not None:
        columns["text"] = export.texts.take(pa.array(crowd.instance))
    words = []
    if name.startswith("gold"):
        truths = [export.gold.get(one) for one in crowd.to_frame()["instance"].to_pylist()]
        columns["right"] = pa.array(truths)
        words = ["--gold", "right"]
    if name == "classes":
        words = ["--classes", ",".join(map(str, crowd.classes.tolist()))]
    write_table(pa.table(columns), path)
    return words


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_honoured_or_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, road: str
) -> None:
    sample = SAMPLES[name]
    if road.endswith("--text") and name == "format":
        pytest.skip("a matrix has no texts")
    (tmp_path / "file").mkdir()
    path, more = sample.written(tmp_path / "file")
    value = sample.said(tmp_path / "file")
    export = crowdwise.read(path, **{name: value}, **more)
    ids = export.annotations.instances.tolist()
    for folder in ("with", "without", "plain"):
        (tmp_path / folder).mkdir()
    words = [word for option, value in ({name: value} | more).items() for word in words_of(option, value)]
    found, refusal = tried(road, _place(tmp_path / "with", monkeypatch, path, ids), words)
    if refusal:
        spelt = name.replace("_", "-")
        assert f"--{spelt}" in refusal or f"--no-{spelt}" in refusal, refusal
        return
    if name == "gold":
        without, _ = tried(road, _place(tmp_path / "without", monkeypatch, path, ids), [])
        assert not same(found, without), "gold changes nothing, and nothing is said of it"
    plain = tmp_path / "plain" / "plain.parquet"
    wanted = ROADS[road](_place(tmp_path / "plain", monkeypatch, plain, ids), _written(export, plain, name))
    assert same(found, wanted), f"{found}\n is not\n{wanted}"


def tried(road: str, place: Place, words: list[str]) -> tuple[Any, str]:
    """What a road finds, or why it refuses."""
    try:
        return ROADS[road](place, words), ""
    except Refused as error:
        return None, str(error)


def same(one: Any, other: Any) -> bool:
    """Whether results are equal, but for what the order of the rows of a file changes: random draws, roundings."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        drawn = {"chance"}
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one.keys() - drawn)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-3, abs=1e-3, nan_ok=True)
    return bool(one == other)


# -- Python ------------------------------------------------------------------------------------------------------------

ENTRIES: dict[str, Callable[..., Any]] = {
    "a list of one": lambda path, **options: crowdwise.read([path], **options),
    "read_together": lambda path, **options: read_together([path], **options),
    "two files": lambda path, **options: crowdwise.read([path, _other(path)], **options),
    "without details": lambda path, **options: crowdwise.read(path, **options, details=False),
}


def _other(path: Path) -> Path:
    """The same file under another name."""
    other = path.with_name(f"other-{path.name}")
    other.write_bytes(path.read_bytes())
    return other


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_read_holds_for_lists_of_files(tmp_path: Path, name: str, entry: str) -> None:
    sample = SAMPLES[name]
    path, more = sample.written(tmp_path)
    if (entry, name) == ("two files", "format"):
        pytest.skip("the format is that of the first file")
    value = sample.said(tmp_path)
    alone = crowdwise.read(path, **{name: value}, **more)
    found = ENTRIES[entry](path, **{name: value}, **more)
    wanted = contents(alone.annotations)
    if entry == "two files" and name != "duplicates":  # which leaves the last of both
        wanted = sorted([*wanted, *wanted])
    assert contents(found.annotations) == wanted
    assert gold_of(found.gold) == gold_of(alone.gold)


# -- options that are not of reading -----------------------------------------------------------------------------------

ALONE = [
    (["aggregate", "a.csv", "-o", "o.json", "--proba"], "--proba"),
    (["aggregate", "a.csv", "-o", "o.csv", "--workers", "2"], "--workers"),
    (["aggregate", "a.csv", "-o", "o.csv", "--stream"], "Parquet"),
    (["aggregate", "a.csv", "-o", "o.csv", "--memory", "1GB"], "Parquet"),
    (["aggregate", "a.csv", "-o", "o.csv", "--work", "w"], "Parquet"),
    (["train", "a.csv", "--text", "text", "--workers", "2"], "--workers"),
    (["train", "a.csv", "--text", "text", "--ids", "item"], "--ids"),
    (["train", "a.csv", "--text", "text", "--download"], "--download"),
    (["train", "a.csv", "--text", "text", "--set", "data.features=maps"], "--set"),
    (["train", "a.csv", "--text", "text", "--set", "simulate.noise_rate=0.4"], "--set"),
    (["train", "--data", "digits", "--sheet", "x"], "--sheet"),
    (["train", "--data", "digits", "--text", "x"], "--text"),
    (["train", "--data", "digits", "--root", "."], "--root"),
    (["train", "--data", "digits", "--ids", "x"], "--ids"),
    (["train", "--resume", "run", "--sheet", "x"], "--resume"),
    (["compare", "--data", "digits", "--sheet", "x"], "--sheet"),
    (["compare", "a.csv", "--text", "text", "--set", "data.features=maps"], "--set"),
    (["predict", "run", "a.csv", "-o", "o.csv", "--sheet", "x"], "--sheet"),
    (["route", "a.csv", "-o", "o.csv", "--gold", "label"], "--gold"),
    (["review", "a.csv", "--labels", "o.csv", "--port", "8000"], "--port"),
    (["review", "a.csv", "--labels", "o.csv", "--open"], "--open"),
    (["review", "a.csv", "--export", "o.csv", "--as", "Zoe"], "--as"),
    (["review", "a.csv", "--to", "crowd-kit"], "--to"),
    (["info", "dawid-skene", "--sheet", "x"], "--sheet"),
    (["info", "ce", "--map", "a=b"], "--map"),
    (["convert", "a.csv", "o.csv", "--to", "label-studio"], "label-studio"),
]
"""Commands with an option that means nothing beside the others, and what the error must name."""


@pytest.mark.parametrize(("words", "named"), ALONE, ids=lambda each: " ".join(each) if isinstance(each, list) else "")
def test_an_option_that_means_nothing_beside_the_others_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], named: str
) -> None:
    (tmp_path / "a.csv").write_bytes(text(rows()))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused) as found:
        command(*words)
    assert named in str(found.value)
    assert {each.name for each in tmp_path.iterdir()} == {"a.csv"}  # refused before anything is written
