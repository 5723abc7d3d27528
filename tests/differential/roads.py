"""The ways into crowdwise: what each makes of the files of a case, in the words of the reference."""

from __future__ import annotations

import io
import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from typer.main import get_command

import crowdwise
from crowdwise.cli import app
from crowdwise.data.training import from_files
from crowdwise.errors import CrowdwiseError
from crowdwise.report.source import Source
from crowdwise.tasks.observer import SILENT
from crowdwise.tasks.report_source import Request, find
from differential.cases import Case
from differential.opening import open_table
from differential.values import shown

Triple = tuple[str, str, str, float]


class Refusal(Exception):
    """A clear error of crowdwise."""


@dataclass
class Outcome:
    """What a road found; what it does not tell is None."""

    rows: list[Triple] | None = None
    """Instance, annotator, label, weight."""
    gold: dict[str, str] | None = None
    texts: dict[str, str | None] | None = None
    models: set[str] | None = None
    winners: dict[str, tuple[str, float]] | None = None
    """Instance -> label and its share of the votes."""
    shares: dict[str, dict[str, float]] | None = None
    """Instance -> class -> share of the votes."""
    sizes: dict[str, int] | None = None
    counts: dict[str, float] | None = None
    """Annotator -> number of labels."""
    agreement: float | None = None
    """Share of pairs of labels of an instance that are equal."""
    said: str = ""
    typed: Sequence[Any] = field(default_factory=list)


def exported(export: Any) -> Outcome:
    """What `crowdwise.read` returned."""
    crowd = export.annotations
    texts = None
    if export.texts is not None:
        ids = map(shown, crowd.instance_vocabulary.arrow.to_pylist())
        texts = dict(zip(ids, export.texts.to_pylist(), strict=True))
    kinds = dict(zip(crowd.annotator_vocabulary.arrow.to_pylist(), export.kinds.tolist(), strict=True))
    return Outcome(
        triples(crowd),
        {shown(one): shown(truth) for one, truth in (export.gold or {}).items()},
        texts,
        {shown(who) for who, kind in kinds.items() if kind == "model"},
        said=export.message,
    )


def triples(crowd: Any) -> list[Triple]:
    i, j, y = (
        list(map(shown, vocabulary.arrow.to_pylist()))
        for vocabulary in (crowd.instance_vocabulary, crowd.annotator_vocabulary, crowd.class_vocabulary)
    )
    weight = np.ones(len(crowd)) if crowd.weight is None else crowd.weight
    rows = zip(crowd.instance.tolist(), crowd.annotator.tolist(), crowd.label.tolist(), weight.tolist(), strict=True)
    return [(i[a], j[b], y[c], float(w)) for a, b, c, w in rows]


# -- Python ------------------------------------------------------------------------------------------------------------


def options_of(case: Case, folder: Path) -> dict[str, Any]:
    """Arguments of `crowdwise.read`, with the path of a file of gold in full."""
    options = dict(case.options)
    if options.get("gold") in case.files:
        options["gold"] = str(folder / options["gold"])
    return options


def python(case: Case, folder: Path) -> Outcome:
    paths: Any = [folder / name for name in case.names]
    return exported(crowdwise.read(paths[0] if len(paths) == 1 else paths, **options_of(case, folder)))


def a_list(case: Case, folder: Path) -> Outcome:
    """The same as a list, without details."""
    found = crowdwise.read([folder / name for name in case.names], **options_of(case, folder), details=False)
    return Outcome(triples(found.annotations), {shown(i): shown(y) for i, y in (found.gold or {}).items()})


def standard_input(case: Case, folder: Path) -> Outcome:
    """Piped into `crowdwise.read("-")`."""
    with _stdin((folder / case.names[0]).read_bytes()):
        return exported(crowdwise.read("-", **options_of(case, folder)))


@contextmanager
def _stdin(data: bytes) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data))
    try:
        yield
    finally:
        sys.stdin = before


def frame(case: Case, folder: Path) -> Outcome:
    """`Annotations.from_frame` of a frame of pandas, polars or arrow."""
    names = {role: case.options.get(role) for role in ("instance", "annotator", "label")}
    columns = case.frame
    table = {"arrow": lambda: columns, "pandas": lambda: _pandas(case, columns), "polars": lambda: _polars(columns)}
    kind = random.Random(case.number).choice(list(table))
    weight = case.options.get("weight") or ("weight" if "weight" in columns.column_names else None)
    policy = case.options.get("duplicates") or "keep"
    crowd = crowdwise.Annotations.from_frame(table[kind](), **names, weight=weight, duplicates=policy)
    return Outcome(triples(crowd))


def _pandas(case: Case, columns: pa.Table) -> Any:
    draw = random.Random(case.number)
    made = columns.to_pandas()
    if draw.random() < 0.3:
        made = made.convert_dtypes()
    if draw.random() < 0.3:
        for name in made.columns:
            if made[name].dtype == object and made[name].notna().all():
                made[name] = made[name].astype("category")
    if draw.random() < 0.3:
        made.index = [f"row {k}" for k in range(len(made))][::-1]
    elif draw.random() < 0.3:
        made = made.set_index([made.columns[0], made.columns[1]], drop=False)
    return made


def _polars(columns: pa.Table) -> Any:
    import polars

    return polars.from_arrow(columns)


def train(case: Case, folder: Path) -> Outcome:
    """The labels beside texts that a run would be trained on."""
    data = from_files(None, str(folder / case.names[0]), None, options_of(case, folder))
    return _trained(data)


def train_inputs(case: Case, folder: Path) -> Outcome:
    """The same with the texts in a file of their own, in another order."""
    ids = list(dict.fromkeys(row[0] for row in python(case, folder).rows or []))
    random.Random(case.number).shuffle(ids)
    table = pa.table({"id": ids, "text": [f"text of {one}" for one in ids]})
    suffix = random.Random(case.number).choice(["csv", "parquet", "jsonl"])
    crowdwise.readers.write_table(table, folder / f"inputs.{suffix}")
    options = options_of(case, folder)
    data = from_files(str(folder / f"inputs.{suffix}"), str(folder / case.names[0]), None, options, text="text")
    found = _trained(data)
    assert found.texts is not None
    wrong = {one: text for one, text in found.texts.items() if text != f"text of {one}"}
    assert not wrong, f"texts of other instances: {wrong}"
    found.texts = None
    return found


def _trained(data: Any) -> Outcome:
    crowd = data.annotations
    ids = list(map(shown, crowd.instance_vocabulary.arrow.to_pylist()))
    assert len(data.X) == len(ids), "rows and instances differ in number"
    texts = dict(zip(ids, list(data.X), strict=True))
    gold = {}
    if data.gold is not None:
        gold = {ids[row]: shown(_item(truth)) for row, truth in zip(*data.gold, strict=True)}
    return Outcome(triples(crowd), gold, texts)


def report(case: Case, folder: Path) -> Outcome:
    """The source of a report."""
    source = find(Request(str(folder / case.names[0]), reading=options_of(case, folder)), SILENT)
    assert isinstance(source, Source), "not taken for labels"
    crowd = source.annotations
    ids = list(map(shown, crowd.instance_vocabulary.arrow.to_pylist()))
    texts = None if source.texts is None else dict(zip(ids, source.texts, strict=True))
    gold = {shown(one): shown(truth) for one, truth in (source.gold or {}).items()}
    return Outcome(triples(crowd), gold, texts, {shown(who) for who in source.models})


# -- the command line --------------------------------------------------------------------------------------------------

_PROGRAM: list[Any] = []


def command(*words: str) -> str:
    """Run a command in this process; its standard output. An error that it explains is a `Refusal`."""
    if not _PROGRAM:
        _PROGRAM.append(get_command(app))
    out, said = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(said):
        try:
            _PROGRAM[0].main(list(words), prog_name="crowdwise", standalone_mode=True)
        except SystemExit as end:
            if end.code not in (0, None):
                raise Refusal(said.getvalue().strip() or out.getvalue().strip()) from None
    return out.getvalue()


def words_of(case: Case, folder: Path) -> list[str]:
    """The options of a case, as they are typed."""
    words: list[str] = []
    for name, value in options_of(case, folder).items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name}")
        elif isinstance(value, Mapping):
            words += [word for old, new in value.items() for word in (f"--{name}", f"{old}={new}")]
        elif isinstance(value, str):
            words += [f"--{name}", value]
        else:
            words += [f"--{name}", ",".join(_quoted(each) for each in value)]
    return words


def _quoted(text: str) -> str:
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if set(text) & set(',"\n') or text != text.strip() else text


def typed_alike(case: Case) -> bool:
    """Whether options can be typed as they are: = in a new name would be read otherwise."""
    if any("=" in new for new in case.options.get("map", {}).values()):
        return False
    given = [*case.options.get("map", {}), *(case.options.get("missing") or [])]
    given += [*case.options.get("classes", []), *case.options.get("columns", [])]
    return not any("\n" in one or one.startswith("-") for one in given)


def aggregate(case: Case, folder: Path) -> Outcome:
    suffix = random.Random(case.number).choice(["csv", "tsv", "jsonl", "parquet", "arrow"])
    out = folder / f"out.{suffix}"
    paths = [str(folder / name) for name in case.names]
    more = ["--proba"] if case.number % 2 else []
    command("aggregate", *paths, "-o", str(out), "-m", "majority-vote", *more, *words_of(case, folder))
    return _winners(out)


def stream(case: Case, folder: Path) -> Outcome:
    """`aggregate --stream` of a Parquet file."""
    out = folder / "out.parquet"
    paths = [str(folder / name) for name in case.names]
    command("aggregate", *paths, "-o", str(out), "-m", "majority-vote", "--stream", *words_of(case, folder))
    return _winners(out)


def _winners(out: Path) -> Outcome:
    """A table of labels that was written."""
    table = open_table(out.name, out.read_bytes(), {})
    winners, shares = {}, {}
    for record in table.records:
        row = {name: _unmarked(value) if table.is_text else value for name, value in record.items()}
        one = shown(row["instance"])
        assert one not in winners, f"{one} is there twice"
        winners[one] = shown(row["label"]), float(row["confidence"])
        shares[one] = {name[2:]: float(value) for name, value in row.items() if name.startswith("p_")}
    return Outcome(winners=winners, shares=shares if any(shares.values()) else None)


def _unmarked(cell: Any) -> Any:
    """A cell without the apostrophe that keeps spreadsheets from taking it for a formula."""
    text = str(cell)
    return text[1:] if text.startswith("'") and text.lstrip("'")[:1] in tuple("=+-@\t\r") else cell


def annotators(case: Case, folder: Path) -> Outcome:
    path = str(folder / case.names[0])
    found = json.loads(command("annotators", path, "-m", "majority-vote", "--json", *words_of(case, folder)))
    return Outcome(counts={shown(row["annotator"]): row["num_examples_labeled"] for row in found["table"]})


def agreement(case: Case, folder: Path) -> Outcome:
    path = str(folder / case.names[0])
    found = json.loads(command("agreement", path, "--bootstrap", "0", "--json", *words_of(case, folder)))["report"]
    numbers = [int(number) for number in re.findall(r"(\d+) (?:instance|annotator|class|annotation)", found["crowd"])]
    value = next((row["value"] for row in found["rows"] if row["measure"] == "raw agreement"), None)
    instances, annotators_, _, annotations = numbers
    sizes = {"instances": instances, "annotators": annotators_, "annotations": annotations}
    return Outcome(sizes=sizes, agreement=value)


def convert(case: Case, folder: Path) -> Outcome:
    """Written as a table by `convert`, and read again."""
    suffix = random.Random(case.number).choice(["csv", "tsv", "jsonl", "parquet"])
    out = folder / f"converted.{suffix}"
    command("convert", str(folder / case.names[0]), str(out), *words_of(case, folder))
    gold = "gold" if "gold" in open_table(out.name, out.read_bytes(), {}).names else None
    found = exported(crowdwise.read(out, format="table", gold=gold))
    found.texts = None
    return found


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def parquet_files(case: Case) -> bool:
    return all(name.endswith(".parquet") for name in case.names)


def roads_of(case: Case) -> dict[str, Callable[[Case, Path], Outcome]]:
    """The roads that a case can take; `python` is the first."""
    found: dict[str, Callable[[Case, Path], Outcome]] = {"read": python, "read a list": a_list}
    typed = typed_alike(case)
    if typed:
        found["aggregate"] = aggregate
    if len(case.names) > 1:
        return found
    found["report"] = report
    found["train with inputs"] = train_inputs
    if typed:
        found |= {"annotators": annotators, "agreement": agreement, "convert": convert}
    if "texts" in case.traits or case.kind not in ("long", "matrix", "crowd-kit", "cvat"):
        found["train"] = train
    if "sheet" not in case.options and not case.names[0].endswith((".tsv", ".psv", ".zip", ".arrow")):
        found["standard input"] = standard_input
    if parquet_files(case) and typed and case.kind == "long":
        found["stream"] = stream
    plain = {"instance", "annotator", "label", "weight", "duplicates"}
    as_it_is = {"no label", "spelt numbers", "odd numbers", "numbers and words", "a name twice", "truth"}
    if case.frame is not None and not set(case.options) - plain and not as_it_is & {*case.traits}:
        found["frame"] = frame
    return found


__all__ = ["CrowdwiseError", "Outcome", "Refusal", "roads_of"]
