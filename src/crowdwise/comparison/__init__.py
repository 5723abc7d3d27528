"""Which method suits one's data: methods fitted on parts of the instances, and judged by the labels of the others."""

from __future__ import annotations

from crowdwise.comparison.result import Comparison as Comparison
from crowdwise.comparison.result import Entry as Entry
from crowdwise.comparison.run import compare as compare

__all__ = ["Comparison", "Entry", "compare"]
