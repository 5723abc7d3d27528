"""Assignments of Toloka, as TSV: columns INPUT:..., OUTPUT:..., GOLDEN:... and ASSIGNMENT:..."""

from __future__ import annotations

from crowdwise.data.frames import known_column
from crowdwise.readers._export import READERS, Collector, Export, Reader, Request
from crowdwise.readers._node import Id, Label, Node, ticks
from crowdwise.readers._source import TABLES, Source

DONE = {"SUBMITTED", "ACCEPTED", "APPROVED"}  # the states of assignments whose answers count
_TASK, _WORKER, _STATUS = "ASSIGNMENT:task_id", "ASSIGNMENT:worker_id", "ASSIGNMENT:status"


@READERS.register("toloka")
class Toloka(Reader):
    """Golden answers are gold; answers of rejected, skipped and expired assignments are left out."""

    summary = "Toloka: assignments as TSV"
    takes = ("instance", "annotator", "gold")

    def detect(self, source: Source) -> str | None:
        names = source.names if source.kind in TABLES else []
        outputs = any(name.startswith("OUTPUT:") for name in names)
        return "it has columns OUTPUT:... and ASSIGNMENT:worker_id" if outputs and _WORKER in names else None

    def read(self, source: Source, request: Request) -> Export:
        names = source.names
        inputs = [name for name in names if name.startswith("INPUT:")]
        question = request.choose([name.removeprefix("OUTPUT:") for name in names if name.startswith("OUTPUT:")])
        output, golden = f"OUTPUT:{question}", request.gold or f"GOLDEN:{question}"
        task = known_column(request.instance, "instance", names) if request.instance else None
        columns = {"instance": task or (_TASK if _TASK in names else "INPUT:*")}
        columns |= {"annotator": request.annotator or _WORKER, "label": output}
        made = Collector(source, request)
        for row in source.records:
            if not any(value not in (None, "") for value in row.value.values()):
                continue  # Toloka separates the tasks of a suite by blank rows
            status = row.text(_STATUS)
            if status is not None and status.upper() not in DONE:
                made.left_out[status.lower()] += 1
                continue
            instance = row.need(task).id() if task else _instance(row, inputs)
            made.item(instance, {name.removeprefix("INPUT:"): row.value[name] for name in inputs})
            made.gold(row, instance, _label(row.get(golden)))
            time = row.value.get("ASSIGNMENT:submitted") or row.value.get("ASSIGNMENT:started")
            who = row.need(columns["annotator"]).id()
            made.add(row, instance, who, _label(row.get(output)), time=time, duration=_duration(row))
        return made.export(question, columns=columns)


def _instance(row: Node, inputs: list[str]) -> Id:
    """The task's id, or else what was shown."""
    known = row.get(_TASK)
    if known is not None:
        return known.id()
    shown = [str(row.value[name]) for name in inputs if row.value[name] is not None]
    if not shown:
        raise row.error(f"neither {_TASK} nor any INPUT: column says which task this is")
    return Node(" | ".join(shown), row, inputs[0]).id()


def _label(node: Node | None) -> Label | None:
    return None if node is None or node.value == "" else node.label()


def _duration(row: Node) -> float | None:
    start, end = ticks(row.value.get("ASSIGNMENT:started")), ticks(row.value.get("ASSIGNMENT:submitted"))
    return None if start is None or end is None else (end - start) / 1e6
