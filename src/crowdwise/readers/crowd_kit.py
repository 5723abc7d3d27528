"""Frames of crowd-kit: the columns task, worker (once performer) and label, in a table of any kind."""

from __future__ import annotations

from dataclasses import replace

from crowdwise.readers._export import READERS, Export, Request
from crowdwise.readers._source import TABLES, Source
from crowdwise.readers.long_table import LongTable

WORKERS = ("worker", "performer")


@READERS.register("crowd-kit")
class CrowdKit(LongTable):
    """A long table with fixed names; a column true_label is gold."""

    summary = "crowd-kit: frames with task, worker (or performer) and label"
    rank = 1

    def detect(self, source: Source) -> str | None:
        names = source.names if source.kind in (*TABLES, "json") else []
        worker = next((name for name in WORKERS if name in names), None)
        return f"it has the columns task, {worker} and label" if worker and {"task", "label"} <= {*names} else None

    def read(self, source: Source, request: Request) -> Export:
        worker = next((name for name in WORKERS if name in source.names), WORKERS[0])
        instance, annotator = request.instance or "task", request.annotator or worker
        label = request.label or request.question or "label"
        return super().read(source, replace(request, instance=instance, annotator=annotator, label=label))
