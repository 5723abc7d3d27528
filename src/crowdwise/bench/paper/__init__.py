"""The TAIDTM paper (S. Li et al., arXiv 2306.03116): its printed tables, its experiments and its theory."""

from crowdwise.bench.paper.tables import (
    TITLES,
    Conditions,
    Note,
    Printed,
    all_notes,
    averaged,
    conditions,
    is_average,
    notes,
    printed,
    table_of,
)

__all__ = [
    "TITLES",
    "Conditions",
    "Note",
    "Printed",
    "all_notes",
    "averaged",
    "conditions",
    "is_average",
    "notes",
    "printed",
    "table_of",
]
