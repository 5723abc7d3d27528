"""Files of annotations -> `Annotations`: one module per format, each of which can tell and read it; and back."""

from __future__ import annotations

from crowdwise.readers._export import MODEL as MODEL
from crowdwise.readers._export import READERS, Export
from crowdwise.readers._files import FORMATS as FORMATS
from crowdwise.readers._files import bare_suffix as bare_suffix
from crowdwise.readers._files import format_of as format_of
from crowdwise.readers._files import load_columns as load_columns
from crowdwise.readers._files import packing as packing
from crowdwise.readers._inputs import ARRAYS as ARRAYS
from crowdwise.readers._inputs import read_arrays as read_arrays
from crowdwise.readers._inputs import read_inputs as read_inputs
from crowdwise.readers._inputs import row_numbers as row_numbers
from crowdwise.readers._inputs import rows_of as rows_of
from crowdwise.readers._read import formats, read
from crowdwise.readers._source import Source as Source
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
