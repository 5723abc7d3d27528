"""crowd-kit frames: the columns task, worker (formerly performer) and label, in any kind of table."""

from __future__ import annotations

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
        worker = next((name for name in WORKERS if name in source.names), WORKERS[0])
        instance, annotator = options.instance or "task", options.annotator or worker
        label = options.label or options.question or "label"
        return super().read(source, replace(options, instance=instance, annotator=annotator, label=label))
