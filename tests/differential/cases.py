"""Files of labels, generated: the same number is the same case, on every machine."""

from __future__ import annotations

import csv
import datetime
import random
import re
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from differential import crowds, exports, writers
from differential.crowds import Made
from differential.values import is_blank, shown

DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
NAMES = {
    "instance": ["item", "task", "instance", "Item ID", "sample", "Document", "unit_id"],
    "annotator": ["worker", "annotator", "rater", "Worker_ID", "user", "coder", "assessor"],
    "label": ["label", "answer", "Label", "rating", "verdict", "response"],
}
ODD = {
    "instance": ["URL", "Nr", "ref"],
    "annotator": ["Wer", "wer hat", "by"],
    "label": ["Urteil", "Antwort", "said"],
}


@dataclass(frozen=True)
class Case:
    """Files, how they are to be read, and what is odd about them."""

    number: int
    kind: str
    """What is written: long, matrix, several, or an annotation tool."""
    form: str
    """How it is written: csv, xlsx, parquet, ..."""
    files: dict[str, bytes]
    names: tuple[str, ...]
    """Of the files that are read; the others are gold or inputs."""
    options: dict[str, Any]
    traits: tuple[str, ...] = ()
    format: str = ""
    """Format that is named, where the content does not tell it."""
    frame: Any = field(default=None, compare=False)
    """The rows as columns of an arrow table, where there is one file of a table."""


def generate(number: int, seed: int = 0) -> Case:
    """Case ``number`` of a series."""
    draw = random.Random(f"{seed}-{number}")
    kind = draw.choices(["long", "several", "matrix", "tool"], [55, 15, 10, 20])[0]
    if kind == "several":
        return _several(draw, number)
    if kind == "matrix":
        return _matrix(draw, number)
    if kind == "tool":
        made = exports.make(draw)
        return Case(number, made.kind, made.form, made.files, (made.name,), made.options, tuple(made.traits))
    made = crowds.make(draw)
    return _long(draw, number, made)


# -- long tables -------------------------------------------------------------------------------------------------------


@dataclass
class Sheet:
    """A table to be written: its columns in order, and what was decided about it."""

    roles: dict[str, str]
    """Role -> name of its column."""
    order: list[str]
    records: list[dict[str, Any]]
    options: dict[str, Any]
    traits: list[str]

    def rows(self) -> list[list[Any]]:
        return [[record.get(name) for name in self.order] for record in self.records]


def _long(draw: random.Random, number: int, made: Made) -> Case:
    sheet = _table(draw, made)
    _label_options(draw, made, sheet)
    files: dict[str, bytes] = {}
    form = draw.choice(["csv", "csv", "csv", "tsv", "psv", "xlsx", "jsonl", "json", "parquet", "parquet", "arrow"])
    name, data = _written(draw, form, sheet)
    files[name] = data
    _gold_file(draw, made, sheet, files)
    traits = [made.labels, made.items, made.people, *made.traits, *sheet.traits]
    frame = _arrow_table(random.Random(number), sheet, strict=False)
    return Case(number, "long", form, files, (name,), sheet.options, tuple(traits), frame=frame)


def _table(draw: random.Random, made: Made) -> Sheet:
    """Columns for the rows of a crowd, and some more."""
    options: dict[str, Any] = {}
    roles: dict[str, str] = {}
    traits = list[str]()
    odd = draw.random() < 0.3
    for role in ("instance", "annotator", "label"):
        roles[role] = draw.choice(ODD[role] if odd else NAMES[role])
        if odd:
            options[role] = roles[role].upper() if draw.random() < 0.1 else roles[role]
    if odd:
        traits.append("columns are named")
    records = [{roles[role]: value for role, value in row.items()} for row in made.rows]
    order = list(roles.values())
    if draw.random() < 0.35:
        _add_texts(draw, roles, order, records)
        traits.append("texts")
    if draw.random() < 0.3:
        _add_weights(draw, roles, order, records, options)
        traits.append("weights")
    if draw.random() < 0.25:
        _add_gold(draw, made, roles, order, records, options)
        traits.append("gold")
    if draw.random() < 0.15:
        roles["kind"] = "kind"
        order.append("kind")
        model = records[0][roles["annotator"]]
        for record in records:
            record["kind"] = "model" if record[roles["annotator"]] == model else "person"
        traits.append("models")
        if draw.random() < 0.5:
            options["models"] = False
    if draw.random() < 0.3:
        order.append("comment")
        for record in records:
            record["comment"] = draw.choice(["fine", "a, b; c|d", None, 'so "called"', "two\nlines"])
    if draw.random() < 0.5:
        draw.shuffle(order)
    return Sheet(roles, order, records, options, traits)


def _add_texts(draw: random.Random, roles: dict[str, str], order: list[str], records: list[dict[str, Any]]) -> None:
    roles["text"] = draw.choice(["text", "review", "Sentence"])
    order.append(roles["text"])
    words = ["fine", "say no", "né", "a, b", "one\ntwo", "007", "1.0", " spaced ", "日本"]
    texts = {}
    for record in records:
        one = shown(record[roles["instance"]])
        texts.setdefault(one, f"{draw.choice(words)} {len(texts)}" if draw.random() < 0.9 else f"{len(texts)}.0")
        record[roles["text"]] = texts[one]
    if draw.random() < 0.3:  # an item whose rows do not all have its text, or not all the same
        draw.choice(records)[roles["text"]] = draw.choice([None, "another text"])


def _add_weights(
    draw: random.Random,
    roles: dict[str, str],
    order: list[str],
    records: list[dict[str, Any]],
    options: dict[str, Any],
) -> None:
    roles["weight"] = draw.choice(["weight", "weight", "share"])
    if roles["weight"] == "share":
        options["weight"] = "share"
    order.append(roles["weight"])
    usual = draw.choice(
        [[1, 2, 5], [0.5, 0.25, 1.0], [0, 1, 2], [0, 0.25, 1], [1, 1, 1], ["1", "0.5", "2"], ["0,5", "1,5"]]
    )
    for record in records:
        record[roles["weight"]] = draw.choice(usual)
    if draw.random() < 0.1:
        draw.choice(records)[roles["weight"]] = draw.choice([None, -1, "much"])


def _add_gold(
    draw: random.Random,
    made: Made,
    roles: dict[str, str],
    order: list[str],
    records: list[dict[str, Any]],
    options: dict[str, Any],
) -> None:
    roles["gold"] = draw.choice(["gold", "truth", "true_label", "Truth", "right"])
    if roles["gold"] == "right":
        options["gold"] = "right"
    order.append(roles["gold"])
    truths: dict[str, Any] = {}
    for record in records:
        one = shown(record[roles["instance"]])
        truths.setdefault(one, draw.choice([*made.classes, None]))
        record[roles["gold"]] = truths[one]
    if draw.random() < 0.08:
        draw.choice(records)[roles["gold"]] = draw.choice(made.classes)


def _label_options(draw: random.Random, made: Made, sheet: Sheet) -> None:
    """Options about labels and repeats, in combination."""
    options = sheet.options
    if draw.random() < 0.2:
        options["clean"] = True
    if draw.random() < 0.2:
        some = draw.sample(made.classes, 1)
        options["missing"] = [shown(one).strip() for one in some] + draw.choice([[], ["N/A"], ["-", "?"]])
    if draw.random() < 0.2:
        old = draw.choice(made.classes)
        options["map"] = {shown(old): draw.choice([shown(draw.choice(made.classes)), "other", "9"])}
    if draw.random() < 0.12:
        listed = list(dict.fromkeys(shown(one).strip() for one in made.classes if not is_blank(one)))
        draw.shuffle(listed)
        options["classes"] = listed[: draw.choice([len(listed), len(listed), 1])] + draw.choice([[], ["never"]])
    if draw.random() < 0.25:
        options["duplicates"] = draw.choice(["keep", "first", "last", "share", "error"])
    for name in ("clean", "missing", "map", "classes", "duplicates"):
        if name in options:
            sheet.traits.append(name if name != "duplicates" else f"duplicates={options[name]}")


def _gold_file(draw: random.Random, made: Made, sheet: Sheet, files: dict[str, bytes]) -> None:
    """Sometimes, gold in a table of its own."""
    if "gold" in sheet.options or draw.random() > 0.1:
        return
    ids = list(dict.fromkeys(shown(row["instance"]) for row in made.rows))
    chosen = draw.sample(ids, max(1, len(ids) // 2))
    rows = [["item", "label"], *([one, shown(draw.choice(made.classes))] for one in chosen)]
    files["gold.csv"] = writers.delimited(rows)
    sheet.options["gold"] = "gold.csv"
    sheet.traits.append("gold in a file")


# -- forms -------------------------------------------------------------------------------------------------------------


def _written(draw: random.Random, form: str, sheet: Sheet, stem: str = "labels") -> tuple[str, bytes]:
    """Name and bytes of a file; options of its layout are added."""
    if form in ("csv", "tsv", "psv"):
        return _text_file(draw, form, sheet, stem)
    if form == "xlsx":
        return f"{stem}.xlsx", _spreadsheet(draw, sheet)
    if form in ("jsonl", "json"):
        records = [{name: record.get(name) for name in sheet.order} for record in sheet.records]
        if draw.random() < 0.3:
            records = [{name: value for name, value in record.items() if value is not None} for record in records]
        if form == "json":
            return f"{stem}.json", writers.json_list(records)
        packed = draw.random() < 0.2
        return f"{stem}.jsonl{'.gz' if packed else ''}", writers.json_lines(
            records, ascii_only=draw.random() < 0.5, packed=packed
        )
    table = _arrow_table(draw, sheet)
    if form == "parquet" and draw.random() < 0.3:
        sheet.traits.append("index of pandas")
        return f"{stem}.parquet", writers.pandas_parquet(table, draw.choice([[], sheet.order[:1], sheet.order[:2]]))
    if form == "parquet":
        return f"{stem}.parquet", writers.parquet(table, row_group=draw.choice([None, 3, 7]))
    stream = draw.random() < 0.3
    return f"{stem}.arrow", writers.arrow(table, stream=stream)


def _text_file(draw: random.Random, form: str, sheet: Sheet, stem: str) -> tuple[str, bytes]:
    cells = [[None if cell is None else _spelt(draw, cell) for cell in row] for row in sheet.rows()]
    separator = "\t" if form == "tsv" else "|" if form == "psv" else draw.choice(",,,;;\t|")
    rare = draw.random() < 0.05
    if rare and form == "csv":
        separator = draw.choice([":", "~", " "])
        sheet.options["separator"] = "space" if separator == " " else separator
    elif draw.random() < 0.1:
        sheet.options["separator"] = {"\t": "tab"}.get(separator, separator)
    encoding = _encoding(draw, cells, sheet)
    header = list(sheet.order)
    if draw.random() < 0.12:
        sheet.options["columns"] = list(header)
        sheet.traits.append("no header")
    elif draw.random() < 0.03:
        header[-1] = header[0]
        sheet.traits.append("a name twice")
    lines = cells if "columns" in sheet.options else [header, *cells]
    if "columns" not in sheet.options and "a name twice" not in sheet.traits and draw.random() < 0.08:
        for _ in range(draw.choice([1, 1, 2])):
            lines.insert(draw.randint(2, len(lines)), list(header))
        sheet.traits.append("header again")
    raw = form == "tsv" and draw.random() < 0.15
    raw = raw and not any(set("\t\n\r") & set(str(cell)) for row in lines for cell in row if cell is not None)
    if raw and encoding == "utf-8" and "separator" not in sheet.options:
        sheet.traits.append("quotes as they are")
        text = "".join("\t".join("" if cell is None else str(cell) for cell in row) + "\n" for row in lines)
        return f"{stem}.tsv", text.encode()
    quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    packed = draw.random() < 0.1
    data = writers.delimited(
        lines,
        separator,
        quoting=quoting,
        newline=draw.choice(["\n", "\n", "\r\n", "mixed"]),
        encoding=encoding,
        packed=packed,
        blank_lines=draw.random() < 0.1,
        last_newline=draw.random() < 0.9,
    )
    suffix = draw.choice(["csv", "txt"]) if form == "csv" else form
    return f"{stem}.{suffix}{'.gz' if packed else ''}", data


def _encoding(draw: random.Random, cells: list[list[Any]], sheet: Sheet) -> str:
    text = "".join(str(cell) for row in [sheet.order, *cells] for cell in row if cell is not None)
    encoding = draw.choice(["utf-8"] * 6 + ["utf-8-sig", "utf-16", "utf-32", "cp1252", "utf-16-le", "mac-roman"])
    if encoding in ("cp1252", "mac-roman", "utf-16-le"):
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return "utf-8"
        sheet.options["encoding"] = encoding
    if encoding != "utf-8":
        sheet.traits.append(encoding)
    return encoding


def _spelt(draw: random.Random, cell: Any) -> str:
    """A value as some program writes it."""
    if isinstance(cell, bool):
        return str(cell)
    if isinstance(cell, float) and cell.is_integer():
        return draw.choice([str(int(cell)), str(cell)])
    return str(cell)


def _spreadsheet(draw: random.Random, sheet: Sheet) -> bytes:
    rows: list[list[Any]] = [list(sheet.order), *sheet.rows()]
    if draw.random() < 0.5:
        rows = [[None if cell is None else shown(cell) for cell in row] for row in rows]
    else:
        sheet.traits.append("typed cells")
    other = [["item", "worker", "label"], ["z", "zed", "wrong"], ["y", "zed", "worse"]]
    if draw.random() < 0.2:
        rows = [
            [],
            *([None, *row] for row in rows[: len(rows) // 2]),
            [],
            *([None, *row] for row in rows[len(rows) // 2 :]),
        ]
        sheet.traits.append("empty rows and columns")
    sheets = {"Round 1": rows}
    hidden: set[str] = set()
    chance = draw.random()
    if chance < 0.3:
        sheets = {"Notes": other, "Round 2": rows}
        sheet.options["sheet"] = "Round 2"
    elif chance < 0.5:
        sheets = {"Empty": [], "Labels & more": rows, "Later": other}
    elif chance < 0.6:
        sheets = {"Before": other, "Labels": rows}
        hidden = {"Before"}
        sheet.traits.append("hidden sheet")
    elif chance < 0.65:
        sheet.options["sheet"] = "Round 3"
        sheet.traits.append("no such sheet")
    return writers.xlsx(sheets, hidden)


def _arrow_table(draw: random.Random, sheet: Sheet, *, strict: bool = True) -> Any:
    """The table with types that programs choose; columns of mixed types are texts."""
    columns = {}
    for name in sheet.order:
        values = [record.get(name) for record in sheet.records]
        columns[name] = _arrow_column(draw, values)
    return pa.table(columns)


def _arrow_column(draw: random.Random, values: list[Any]) -> Any:
    given = [value for value in values if value is not None]
    kinds = {type(value) for value in given}
    if kinds <= {bool} and given:
        return pa.array(values, pa.bool_())
    if kinds <= {int} and given:
        return pa.array(values, _integer_type(draw, given, with_nulls=len(given) < len(values)))
    if kinds <= {int, float} and given:
        nothing = draw.choice([None, float("nan")])
        return pa.array([nothing if value is None else float(value) for value in values], pa.float64())
    texts = [None if value is None else shown(value) for value in values]
    if given and all(DATE.fullmatch(str(value)) for value in given) and draw.random() < 0.5:
        days = [None if text is None else datetime.date.fromisoformat(text) for text in texts]
        return pa.array(days, draw.choice([pa.date32(), pa.date32(), pa.date64()]))
    made = pa.array(texts, draw.choice([pa.string(), pa.string(), pa.large_string()]))
    return made.dictionary_encode() if draw.random() < 0.3 and given else made


def _integer_type(draw: random.Random, given: list[int], *, with_nulls: bool) -> pa.DataType:
    small = max(map(abs, given)) < 100
    types = [pa.int64(), *([pa.int8(), pa.int32(), pa.float64()] if small else [])]
    if min(given) >= 0:
        types += [pa.uint64(), *([pa.uint8()] if small else [])]
    if with_nulls and small:
        types = [pa.float64(), pa.int64()]  # as pandas does, or its nullable columns
    return draw.choice(types)


# -- several files, matrices -------------------------------------------------------------------------------------------


def _several(draw: random.Random, number: int) -> Case:
    """Two or three files about the same instances, of different types."""
    made = crowds.make(draw)
    whole = _table(draw, made)
    _label_options(draw, made, whole)
    for name in ("columns", "sheet", "separator", "encoding"):
        whole.options.pop(name, None)
    draw.shuffle(whole.records)
    parts = draw.choice([2, 2, 3])
    files: dict[str, bytes] = {}
    names = []
    traits = [made.labels, made.items, made.people, *made.traits, *whole.traits]
    forms = []
    for part in range(parts):
        sheet = Sheet(whole.roles, whole.order, whole.records[part::parts], {}, [])
        form = draw.choice(["csv", "tsv", "jsonl", "parquet", "arrow", "xlsx"])
        name, data = _written(draw, form, sheet, stem=f"part{part}")
        if sheet.options:  # a layout would hold for all files
            name, data = f"part{part}.csv", writers.delimited([sheet.order, *sheet.rows()])
            form = "csv"
        files[name] = data
        names.append(name)
        forms.append(form)
    return Case(number, "several", "+".join(sorted(set(forms))), files, tuple(names), whole.options, tuple(traits))


def _matrix(draw: random.Random, number: int) -> Case:
    made = crowds.make(draw)
    people = list(dict.fromkeys(shown(row["annotator"]) for row in made.rows))
    items = list(dict.fromkeys(shown(row["instance"]) for row in made.rows))
    cells = {(shown(row["instance"]), shown(row["annotator"])): row["label"] for row in made.rows}
    sheet = Sheet({}, ["item", *people], [], {}, [])
    empty = draw.choice([None, None, "nan", "-1"]) if made.labels in crowds.TYPED else None
    for one in items:
        sheet.records.append({"item": one} | {who: cells.get((one, who), empty) for who in people})
    if draw.random() < 0.3:
        _label_options(draw, made, sheet)
        sheet.options.pop("duplicates", None)
    form = draw.choice(["csv", "csv", "tsv", "xlsx"])
    name, data = _written(draw, form, sheet)
    while {"columns", "encoding"} & {*sheet.options} or "a name twice" in sheet.traits:
        sheet.options = {name: value for name, value in sheet.options.items() if name not in ("columns", "encoding")}
        sheet.traits = [trait for trait in sheet.traits if trait != "a name twice"]
        name, data = _written(draw, form, sheet)
    sheet.options["format"] = "dense"
    traits = (made.labels, made.items, made.people, *sheet.traits)
    return Case(number, "matrix", form, {name: data}, (name,), sheet.options, traits)
