"""crowd-kit frames: the columns task, worker (formerly performer) and label, in any kind of table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crowdwise.readers._export import READERS, Export, ReadOptions
from crowdwise.readers._source import InputFile
from crowdwise.readers.long_table import LongTable

WORKERS = ("worker", "performer")


@READERS.register("crowd-kit")
class CrowdKit(LongTable):
    """A long table with fixed column names; true_label is gold."""

    summary = "crowd-kit: frames with task, worker (or performer) and label"
    rank = 1

    def detect(self, source: InputFile) -> str | None:
        names = source.names
        worker = next((name for name in WORKERS if name in names), None)
        return f"it has the columns task, {worker} and label" if worker and {"task", "label"} <= {*names} else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        usual = usual_columns(source.names)
        instance, annotator = options.instance or usual["instance"], options.annotator or usual["annotator"]
        label = options.label or options.question or usual["label"]
        return super().read(source, replace(options, instance=instance, annotator=annotator, label=label))


def usual_columns(names: Sequence[str]) -> dict[str, str]:
    """The columns of such a table that nobody has named, by role."""
    worker = next((name for name in WORKERS if name in names), WORKERS[0])
    return {"instance": "task", "annotator": worker, "label": "label"}
