"""Lists of names in sentences."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 5  # names in a list


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """The first names, and how many more.

    >>> listed(["ann", "bob"])
    '“ann” and “bob”'
    """
    quoted = [f"“{name}”" for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(quoted)} and {len(names) - most:,} more"
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
