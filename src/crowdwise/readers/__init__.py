"""Files of annotations -> `Annotations`, and back: one module per format."""

from __future__ import annotations

from crowdwise.data.label_rules import LabelRules
from crowdwise.readers._collector import is_picture as is_picture
from crowdwise.readers._export import MODEL, PERSON, PICTURE_FIELDS, READERS, TEXT_FIELDS, Export
from crowdwise.readers._files import FORMATS, WRITTEN, format_of, load_columns
from crowdwise.readers._read import formats, read, recognised
from crowdwise.readers._source import STDIN, InputFile
from crowdwise.readers._text import bare_suffix, packing
from crowdwise.readers._together import read_together
from crowdwise.readers.table import TableRead, read_table, write_table
from crowdwise.readers.write import write, write_labels

__all__ = [
    "FORMATS",
    "MODEL",
    "PERSON",
    "PICTURE_FIELDS",
    "READERS",
    "STDIN",
    "TEXT_FIELDS",
    "WRITTEN",
    "Export",
    "InputFile",
    "LabelRules",
    "TableRead",
    "bare_suffix",
    "format_of",
    "formats",
    "load_columns",
    "packing",
    "read",
    "read_table",
    "read_together",
    "recognised",
    "write",
    "write_labels",
    "write_table",
]
