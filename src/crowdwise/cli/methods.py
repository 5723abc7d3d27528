"""The verb `methods`."""

from __future__ import annotations

from typing import Any

from crowdwise.cli.console import show_table, verb


@verb
def methods() -> Any:
    from crowdwise.registry import METHODS

    rows = [[name, (METHODS[name].__doc__ or "").strip().splitlines()[0]] for name in METHODS]
    show_table(
        "Methods, for `crowdwise train --method`; `crowdwise info NAME` lists parameters", ("name", "what it is"), rows
    )
    return [{"name": name, "summary": summary} for name, summary in rows]
