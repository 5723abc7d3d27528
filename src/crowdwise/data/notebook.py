"""What notebooks show of annotations, results and models: a small table, with every text from data escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

SHOWN = 10  # rows of a table
_BAR = '<div style="background:#7c93c3;height:.7em;display:inline-block;width:{:.1f}em"></div> {:.3f}'


class Bar(float):
    """A share from 0 to 1, drawn as a bar with its figure."""


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """An HTML table below its title.

    >>> table("Annotators", ["id"], [["<b>"]])
    '<div><p><b>Annotators</b></p><table><thead><tr><th>id</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table></div>'
    """
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    below = f"<p>{html.escape(note)}</p>" if note else ""
    shown = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><p><b>{html.escape(title)}</b></p>{shown}{below}</div>"


def counted(title: str, classes: Sequence[Any], counts: Any) -> str:
    """How often each class was said, most frequent first."""
    order = np.argsort(-np.asarray(counts), kind="stable")
    total = max(1, int(np.sum(counts)))
    rows = [[classes[code], f"{int(counts[code]):,}", Bar(counts[code] / total)] for code in order[:SHOWN]]
    return table(title, ["class", "labels", "share"], rows, _more(len(order), "classes"))


def skills(title: str, annotators: Sequence[Any], skill: Any, note: str = "") -> str:
    """Annotators and how often they are right, worst first; those of whom nothing is known come last."""
    order = np.argsort(np.where(np.isnan(skill), np.inf, skill), kind="stable")
    rows = [[annotators[code], "-" if np.isnan(skill[code]) else Bar(skill[code])] for code in order[:SHOWN]]
    return table(
        title,
        ["annotator", "right, worst first"],
        rows,
        " ".join(filter(None, [_more(len(order), "annotators"), note])),
    )


def plain(text: str) -> str:
    """The text itself, for what is not fitted yet."""
    return f"<pre>{html.escape(text)}</pre>"


def _cell(value: Any) -> str:
    return _BAR.format(8 * min(1.0, max(0.0, value)), value) if isinstance(value, Bar) else html.escape(str(value))


def _more(count: int, what: str) -> str:
    return f"{SHOWN} of {count:,} {what}." if count > SHOWN else ""
