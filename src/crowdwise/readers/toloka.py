"""Toloka assignments as TSV: columns INPUT:..., OUTPUT:..., GOLDEN:... and ASSIGNMENT:..."""

from __future__ import annotations

from crowdwise.data.frames import known_column
from crowdwise.readers._collector import Collector
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Id, Label, Node, ticks
from crowdwise.readers._source import TABLES, InputFile

DONE = {"SUBMITTED", "ACCEPTED", "APPROVED"}  # assignments whose answers count
_TASK, _WORKER, _STATUS = "ASSIGNMENT:task_id", "ASSIGNMENT:worker_id", "ASSIGNMENT:status"


@READERS.register("toloka")
class Toloka(Reader):
    """Golden answers are gold; answers of rejected, skipped and expired assignments are left out."""

    summary = "Toloka: assignments as TSV"
    kinds = TABLES
    takes = ("instance", "annotator", "gold")

    def detect(self, source: InputFile) -> str | None:
        outputs = any(name.startswith("OUTPUT:") for name in source.names)
        return "it has columns OUTPUT:... and ASSIGNMENT:worker_id" if outputs and _WORKER in source.names else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        names = source.names
        inputs = [name for name in names if name.startswith("INPUT:")]
        question = options.choose(name.removeprefix("OUTPUT:") for name in names if name.startswith("OUTPUT:"))
        output, golden = f"OUTPUT:{question}", options.gold or f"GOLDEN:{question}"
        task = known_column(options.instance, "instance", names) if options.instance else None
        columns = {"instance": task or (_TASK if _TASK in names else "INPUT:*")}
        columns |= {"annotator": options.annotator or _WORKER, "label": output}
        own = {*columns.values(), *inputs, golden, "ASSIGNMENT:submitted", "ASSIGNMENT:started", _TASK}
        others = [name for name in names if name not in own]
        collector = Collector(source, options)
        for row in source.records:
            if not any(value not in (None, "") for value in row.value.values()):
                continue  # Toloka separates task suites by blank rows
            status = row.text(_STATUS)
            if status is not None and status.upper() not in DONE:
                collector.left_out[status.lower()] += 1
                continue
            instance = row.need(task).id() if task else _instance(row, inputs)
            collector.item(instance, {name.removeprefix("INPUT:"): row.value[name] for name in inputs})
            collector.gold(row, instance, _label(row.get(golden)))
            time = row.value.get("ASSIGNMENT:submitted") or row.value.get("ASSIGNMENT:started")
            who = row.need(columns["annotator"]).id()
            more = {name: row.value[name] for name in others} if options.details else None
            label, duration = _label(row.get(output)), _duration(row)
            collector.add(row, instance, who, label, time=time, duration=duration, extra=more)
        return collector.export(question, columns=columns)


def _instance(row: Node, inputs: list[str]) -> Id:
    """The task's id, else its inputs."""
    known = row.get(_TASK)
    if known is not None:
        return known.id()
    shown = [str(row.value[name]) for name in inputs if row.value[name] is not None]
    if not shown:
        raise row.error(f"the task is unknown: neither {_TASK} nor any INPUT: column is filled in")
    return Node(" | ".join(shown), row, inputs[0]).id()


def _label(node: Node | None) -> Label | None:
    return None if node is None or node.value == "" else node.label()


def _duration(row: Node) -> float | None:
    start, end = ticks(row.value.get("ASSIGNMENT:started")), ticks(row.value.get("ASSIGNMENT:submitted"))
    return None if start is None or end is None else (end - start) / 1e6
