"""Files of annotations -> `Annotations`: one module per format, each of which can tell and read it; and back."""

from __future__ import annotations

from crowdwise.readers._export import READERS, Export
from crowdwise.readers._read import formats, read
from crowdwise.readers.table import TableRead, read_table, write_table
from crowdwise.readers.write import write, write_labels

__all__ = [
    "READERS",
    "Export",
    "TableRead",
    "formats",
    "read",
    "read_table",
    "write",
    "write_labels",
    "write_table",
]
