"""Text from data, made harmless for what shows it: spreadsheets, which take some cells for formulas, and terminals.

In every csv and tsv file that crowdwise writes, a text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return,
and is no number, gets an apostrophe in front. Reading such a file takes it away again.
"""

from __future__ import annotations

import re
from typing import Any

_RISKY = r"'*[=+\-@\t\r]"
_NUMBER = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def inert(text: str) -> str:
    """A text that no spreadsheet takes for a formula.

    >>> inert("=cmd()"), inert("-1.5"), inert("- no"), inert("yes")
    ("'=cmd()", '-1.5', "'- no", 'yes')
    """
    return f"'{text}" if re.match(_RISKY, text) and not re.fullmatch(_NUMBER, text) else text


def inert_table(table: Any) -> Any:
    """An arrow table whose texts and names of columns are `inert`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if str(field.type) not in ("string", "large_string"):
            continue
        column = table.column(place)
        risky = pc.and_(
            pc.match_substring_regex(column, f"^{_RISKY}"), pc.invert(pc.match_substring_regex(column, f"^{_NUMBER}$"))
        )
        if pc.any(risky).as_py():
            quoted = pc.binary_join_element_wise(pa.scalar("'", field.type), column, pa.scalar("", field.type))
            table = table.set_column(place, field, pc.if_else(risky, quoted, column))
    return table.rename_columns([inert(name) for name in table.column_names])


def restored(column: Any) -> Any:
    """A column of texts as it was before `inert_table`; as it is where crowdwise cannot have written it."""
    import pyarrow.compute as pc

    if not pc.any(pc.starts_with(column, "'")).as_py():
        return column
    formulas = pc.and_(
        pc.match_substring_regex(column, "^[=+\\-@\t\r]"), pc.invert(pc.match_substring_regex(column, f"^{_NUMBER}$"))
    )
    if pc.any(formulas).as_py():  # which would have an apostrophe
        return column
    quoted = pc.and_(
        pc.match_substring_regex(column, f"^'{_RISKY}"), pc.invert(pc.match_substring_regex(column, f"^'{_NUMBER}$"))
    )
    return pc.if_else(quoted, pc.utf8_slice_codeunits(column, 1), column)


def restored_names(names: list[str]) -> list[str]:
    """Names of columns as they were before `inert_table`.

    >>> restored_names(["item", "'=a"]), restored_names(["=a", "'=a"])
    (['item', '=a'], ['=a', "'=a"])
    """
    if any(inert(name) != name and not name.startswith("'") for name in names):
        return names
    return [name[1:] if name.startswith("'") and inert(name[1:]) == name else name for name in names]


def printable(text: str) -> str:
    """A text that moves no cursor and changes no colours: control characters are shown as codes.

    >>> printable("\\x1b[31mred")
    '\\\\x1b[31mred'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
