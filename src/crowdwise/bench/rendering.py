r"""A table for the terminal, as Markdown, LaTeX or CSV. Names come from files, so each format escapes them.

>>> from crowdwise.bench.tables import summarise
>>> run = {"experiment": "mine", "column": "a|b", "row": "w/ 50% & more", "seed": 0, "test_accuracy": 90.0}
>>> print(to_markdown(summarise([run])))
**mine: test accuracy, %**
<BLANKLINE>
|  | a\|b |
| --- | ---: |
| w/ 50% &amp; more | 90.00 |
<BLANKLINE>
- 1 seed.
>>> [line for line in to_latex(summarise([run])).splitlines() if "90.00" in line]
['w/ 50\\% \\& more & 90.00 \\\\']
"""

from __future__ import annotations

import csv
import io
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from crowdwise.bench.comparison import LEVEL
from crowdwise.bench.results import Mark, ResultTable, TableCell, TableColumn
from crowdwise.errors import ConfigError
from crowdwise.storage.files import replacing
from crowdwise.storage.text import inert

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 120  # columns, in files and pipes
LONGEST = 300  # characters of an error
FIELDS = (
    "experiment", "column", "row", "metric", "average", "status", "seeds", "mean", "sd", "mark", "p", "p_holm", "rank",
    "printed_mean", "printed_sd", "difference", "near_printed", "departures", "notes",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """What stands in one cell of a written table."""

    number: str = ""
    spread: str = ""
    words: str = ""
    mark: Mark = ""
    footnotes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """One line of a written table: our results, or the paper's below them."""

    label: str
    entries: tuple[Entry, ...]
    printed: bool = False
    """Whether it holds the paper's figures."""


@dataclass(frozen=True)
class Block:
    """Columns that stand side by side."""

    title: str
    columns: tuple[TableColumn, ...]
    lines: tuple[Line, ...]

    def part(self, begin: int, end: int) -> Block:
        lines = (replace(line, entries=line.entries[begin:end]) for line in self.lines)
        return Block(self.title, self.columns[begin:end], tuple(lines))


@dataclass(frozen=True)
class Style:
    """How a format writes an entry."""

    escape: Callable[[str], str]
    plus_minus: str = " ± "
    minus: str = "-"
    best: str = "{}"
    like_best: str = "{}"
    footnote: str = " [{}]"
    indent: str = ""
    """Before the label of a line with the paper's figures."""
    marks: tuple[str, str] = ("bold", "italic")
    """What the legend calls the marks of the best and of those like it."""

    def label(self, line: Line) -> str:
        return self.indent * line.printed + self.escape(line.label)

    def write(self, entry: Entry) -> str:
        number = entry.number.replace("-", self.minus)
        if entry.spread:
            number += self.plus_minus + entry.spread
        marked = {"best": self.best, "like best": self.like_best, "": "{}"}[entry.mark].format(number)
        words = self.escape(entry.words).replace("(-", f"({self.minus}")
        notes = self.footnote.format(",".join(entry.footnotes)) if entry.footnotes else ""
        return " ".join(filter(None, (marked, words))) + notes


def plain(text: str) -> str:
    r"""One line without control characters, which could move a terminal's cursor or break a table.

    >>> plain("a\x1b[31mb\n c")
    'a [31mb c'
    """
    return " ".join("".join(" " if unicodedata.category(char)[0] == "C" else char for char in text).split())


def _markdown(text: str) -> str:
    escaped = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", escaped)


_TEX = {char: "\\" + char for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in plain(text))


TEXT = Style(plain, best="{}*", like_best="{}=", indent="  ", marks=("*", "="))
MARKDOWN = Style(_markdown, best="**{}**", like_best="*{}*")
LATEX = Style(
    _latex,
    plus_minus=r" $\pm$ ",
    minus="$-$",
    best=r"\textbf{{{}}}",
    like_best=r"\underline{{{}}}",
    footnote=r"\textsuperscript{{{}}}",
    indent=r"\quad ",
    marks=("bold", "underlined"),
)


def show(table: ResultTable, console: Console | None = None) -> None:
    """Print a table, split if the terminal is narrow; colours only on a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=WIDE)
    blocks, footnotes = _layout(table)
    console.print(Text(plain(table.title), style="bold"))
    colours = {"best": "bold green", "like best": "green", "": ""}
    for block in (part for whole in blocks for part in _parts(whole, console.width)):
        grid = Grid(title=Text(plain(block.title)) if block.title else None, title_justify="left", box=box.SIMPLE_HEAD)
        grid.add_column("")
        for column in block.columns:
            grid.add_column(Text(plain(column.label)), justify="right")
        for line in block.lines:
            style = "dim" if line.printed else ""
            entries = [Text(TEXT.write(entry), style=style or colours[entry.mark]) for entry in line.entries]
            grid.add_row(Text(TEXT.label(line), style=style), *entries)
        console.print(grid)
    for kind, text in _below(table, footnotes, TEXT):
        console.print(Text(plain(text), style="red" if kind == "failed" else ""), soft_wrap=not console.is_terminal)


def to_text(table: ResultTable, width: int = WIDE) -> str:
    """The table as :func:`show` prints it, without colours."""
    from rich.console import Console

    file = io.StringIO()
    show(table, Console(file=file, width=width, highlight=False, color_system=None, force_terminal=False))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def to_markdown(table: ResultTable) -> str:
    """The table as Markdown: the best in bold, those like it in italics."""
    blocks, footnotes = _layout(table)
    parts = [f"**{_markdown(table.title)}**"]
    for block in blocks:
        if block.title:
            parts.append(_markdown(block.title))
        rows = [["", *(_markdown(column.label) for column in block.columns)], ["---", *["---:"] * len(block.columns)]]
        for line in block.lines:
            rows.append([MARKDOWN.label(line), *map(MARKDOWN.write, line.entries)])
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    parts.append("\n".join(f"- {_markdown(text)}" for _, text in _below(table, footnotes, MARKDOWN)))
    return "\n\n".join(parts)


def to_latex(table: ResultTable) -> str:
    """The table as LaTeX with booktabs: the best in bold, those like it underlined."""
    blocks, footnotes = _layout(table)
    lines = ["% \\usepackage{booktabs}", "\\begin{table}", "\\centering", f"\\caption{{{_latex(table.title)}}}"]
    for block in blocks:
        lines.append(f"\\begin{{tabular}}{{l{'r' * len(block.columns)}}}")
        lines.append("\\toprule")
        if block.title:
            rule = f"\\cmidrule(lr){{2-{len(block.columns) + 1}}}"
            lines.append(f" & \\multicolumn{{{len(block.columns)}}}{{c}}{{{_latex(block.title)}}} \\\\ {rule}")
        lines.append(" & ".join(["", *(_latex(column.label) for column in block.columns)]) + r" \\")
        lines.append("\\midrule")
        for line in block.lines:
            lines.append(" & ".join([LATEX.label(line), *map(LATEX.write, line.entries)]) + r" \\")
        lines += ["\\bottomrule", "\\end{tabular}", "\\par\\smallskip"]
    lines.append("\\begin{minipage}{\\linewidth}\\footnotesize\\raggedright")
    lines += [f"{_latex(text)}\\par" for _, text in _below(table, footnotes, LATEX)]
    return "\n".join([*lines, "\\end{minipage}", "\\end{table}", ""])


def to_csv(table: ResultTable) -> str:
    """One line per cell, for programs. Text that a spreadsheet would read as a formula gets a leading '."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(FIELDS)
    for column in table.columns:
        for row in table.rows:
            cell = table.cells[column.name, row]
            mean, sd = cell.printed or (None, None)
            values = (
                *map(_inert, (table.experiment, column.name, row, column.metric.name)),
                str(column.average).lower(),
                cell.status or "ok",
                len(cell.values),
                *map(_exact, (cell.mean, cell.sd)),
                cell.mark,
                *map(_exact, (cell.p, cell.p_holm, cell.rank, mean, sd, cell.difference)),
                "" if cell.near is None else str(cell.near).lower(),
                _inert("; ".join(cell.departures)),
                _inert("; ".join(note.text for note in cell.notes)),
            )
            writer.writerow(values)
    return file.getvalue()


WRITERS: dict[str, Callable[[ResultTable], str]] = {
    ".md": to_markdown,
    ".tex": to_latex,
    ".csv": to_csv,
    ".txt": to_text,
}


def write(table: ResultTable, path: str | os.PathLike[str]) -> Path:
    """Write a file atomically, in the format of its suffix (.md, .tex, .csv, .txt)."""
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        raise ConfigError(
            f"{path.name}: a table is written as {', '.join(WRITERS)}, not {path.suffix or 'without ending'!r}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(WRITERS[path.suffix.lower()](table).rstrip("\n") + "\n", encoding="utf-8")
    return path


def _layout(table: ResultTable) -> tuple[list[Block], dict[str, str]]:
    """The blocks of a table, and the letters of its footnotes by text, in reading order."""
    groups = dict.fromkeys(column.group for column in table.columns)
    letters: dict[str, str] = {}
    usual = _usual_seeds(table)

    def footnotes(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(letters.setdefault(text, _letters(len(letters))) for text in texts))

    blocks = []
    for group in groups:
        columns = tuple(column for column in table.columns if column.group == group)
        lines = []
        for row in table.rows:
            cells = {column: table.cells[column.name, row] for column in columns}
            ours = (_ours(cell, column, usual, footnotes(cell.departures)) for column, cell in cells.items())
            lines.append(Line(row, tuple(ours)))
            if any(cell.printed for cell in cells.values()):
                notes = {column: footnotes(note.text for note in cell.notes) for column, cell in cells.items()}
                theirs = (_printed(cell, column, notes[column]) for column, cell in cells.items())
                lines.append(Line("paper", tuple(theirs), printed=True))
        blocks.append(Block(group.replace("|", ", "), columns, tuple(lines)))
    return blocks, letters


def _ours(cell: TableCell, column: TableColumn, usual: int, footnotes: tuple[str, ...]) -> Entry:
    if cell.mean is None:
        return Entry(words=cell.status)
    count = "" if column.average or len(cell.values) == usual else f"(n = {len(cell.values)})"
    place = "" if cell.rank is None else f"({cell.rank})"
    words = " ".join(filter(None, (count, place)))
    return Entry(*_numbers(cell.mean, cell.sd, column.metric.digits), words, cell.mark, footnotes)


def _printed(cell: TableCell, column: TableColumn, footnotes: tuple[str, ...]) -> Entry:
    if cell.printed is None:
        return Entry()
    digits = column.metric.digits
    words = "" if cell.difference is None else f"({cell.difference:+.{digits}f})"
    return Entry(*_numbers(*cell.printed, digits), words, footnotes=footnotes)


def _numbers(mean: float, sd: float | None, digits: int) -> tuple[str, str]:
    return f"{mean:.{digits}f}", "" if sd is None else f"{sd:.{digits}f}"


def _below(table: ResultTable, footnotes: dict[str, str], style: Style) -> Iterator[tuple[str, str]]:
    """Lines below a table: how to read it, footnotes, notes, what is missing, what failed."""
    cells = table.cells.values()
    usual = _usual_seeds(table)
    if usual:
        spread = "Mean ± standard deviation (n - 1) over " if usual > 1 else ""
        seeds = "seed" if usual == 1 else "seeds"
        other = any(len(c.values) not in (0, usual) for c in cells if c.sd is not None or len(c.values) == 1)
        yield "note", f"{spread}{usual} {seeds}{', where no other n is given' if other else ''}."
    smaller = [column.metric.label for column in table.columns if not column.metric.larger_is_better]
    if smaller:
        yield "note", f"Smaller is better: {', '.join(dict.fromkeys(smaller))}."
    if any(cell.rank is not None for cell in cells):
        yield "note", "In brackets: the rank."
    if any(cell.printed for cell in cells):
        yield "note", "paper: the printed figure; in brackets ours minus the printed one."
    if any(cell.mark for cell in cells):
        best, like = style.marks
        yield (
            "note",
            f"{best}: best of the column; {like}: not told apart from the best by a paired t-test over common seeds "
            f"(p > {LEVEL}).",
        )
    yield from (("footnote", f"[{letter}] {text}") for text, letter in footnotes.items())
    yield from (("note", text) for text in table.notes)
    yield from (("not run", f"Not run: {text}") for text in table.not_run)
    yield from (("failed", _shortened(f"Failed: {text}")) for text in table.failed)


def _usual_seeds(table: ResultTable) -> int:
    """The number of seeds that most cells have."""
    counts = Counter(
        len(table.cells[column.name, row].values)
        for column in table.columns
        if not column.average
        for row in table.rows
        if table.cells[column.name, row].values
    )
    return counts.most_common(1)[0][0] if counts else 0


def _parts(block: Block, width: int) -> Iterator[Block]:
    """A block in parts that fit into ``width`` characters, with at least one column each."""
    labels = max(len(TEXT.label(line)) for line in block.lines) + 4
    begin, used = 0, labels
    for index, column in enumerate(block.columns):
        needed = max(len(plain(column.label)), *(len(TEXT.write(line.entries[index])) for line in block.lines)) + 3
        if index > begin and used + needed > width:
            yield block.part(begin, index)
            begin, used = index, labels
        used += needed
    yield block.part(begin, len(block.columns))


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def _inert(text: str) -> str:
    return inert(plain(text))


def _exact(value: float | None) -> str:
    return "" if value is None else repr(round(value, 6))


def _shortened(text: str) -> str:
    text = plain(text)
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."
