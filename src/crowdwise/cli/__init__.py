"""The command line: one file per command, which turns options into a task (`crowdwise.tasks`) and prints its result.

A command is imported when it is called, and everything that is slow to import (torch, scikit-learn, scipy, matplotlib,
numpy) inside the commands. The parser of options is slow to import, too, so that ``--help`` does without it.
"""

from __future__ import annotations

import sys
from typing import Any

from crowdwise.cli import process
from crowdwise.cli.overview import GROUPS, overview

VERBS = {name: summary for entries in GROUPS.values() for name, summary in entries.items()}
"""Command -> summary; here, so that listing commands imports none."""
_TABLES = {"aggregate", "agreement", "annotators", "convert"}  # commands that read and write tables, and no more


def __getattr__(name: str) -> Any:
    if name == "app":
        from crowdwise.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """The entry point of the program ``crowdwise``."""
    process.prepare()
    if sys.argv[1:] in (["--help"], ["-h"]):
        sys.stdout.write(overview())
        return
    try:
        from crowdwise.cli.commands import app

        if _TABLES.intersection(sys.argv[1:2]) and "--ray" not in sys.argv:
            _leave_pandas_out()
        app()
    except KeyboardInterrupt:  # between the verbs' own guards, while modules are imported for instance
        sys.exit(process.stopped()[1])


def _leave_pandas_out() -> None:
    """Let pyarrow take pandas for missing in this process.

    pyarrow imports pandas, where it is installed, on its first conversion, to tell data frames from other sequences. Files
    hold no data frames, and the import takes longer than aggregating thousands of labels.
    """
    if "pandas" in sys.modules:
        return
    hidden: Any = _WithoutPandas()
    sys.meta_path.insert(0, hidden)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


class _WithoutPandas:
    """A finder by which pandas is not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)
