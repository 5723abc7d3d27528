"""Files of annotations -> `Annotations`, and back: one module per format."""

from __future__ import annotations

from crowdwise.readers._export import MODEL, PERSON, READERS, Export
from crowdwise.readers._files import FORMATS, bare_suffix, format_of, load_columns, packing
from crowdwise.readers._read import formats, read
from crowdwise.readers._source import InputFile
from crowdwise.readers._together import read_together
from crowdwise.readers.table import TableRead, read_table, write_table
from crowdwise.readers.write import write, write_labels

__all__ = [
    "FORMATS",
    "MODEL",
    "PERSON",
    "READERS",
    "Export",
    "InputFile",
    "TableRead",
    "bare_suffix",
    "format_of",
    "formats",
    "load_columns",
    "packing",
    "read",
    "read_table",
    "read_together",
    "write",
    "write_labels",
    "write_table",
]
