"""Files of annotations -> `Annotations`: one module per format, each with one function that reads it."""

from __future__ import annotations

from crowdwise.readers.table import TableRead, read_table, write_table

__all__ = ["TableRead", "read_table", "write_table"]
