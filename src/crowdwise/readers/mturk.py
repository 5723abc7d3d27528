"""Mechanical Turk batch results as CSV: one row per assignment."""

from __future__ import annotations

from typing import Any

from crowdwise.data.frames import find_column, known_column
from crowdwise.readers._collector import Collector
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Node, parse_json
from crowdwise.readers._source import TABLES, InputFile
from crowdwise.readers.table import GOLD

_JSON = "Answer.taskAnswers"
_TICKED = {"true", "on", "false", "off"}  # values of a check box or radio button with its own column


@READERS.register("mturk")
class MTurk(Reader):
    """Answers are in columns Answer.<question>, in one column per option, or in JSON; rejected assignments are left out."""

    summary = "Mechanical Turk: batch results as CSV"
    kinds = TABLES
    takes = ("instance", "annotator", "gold")

    def detect(self, source: InputFile) -> str | None:
        answers = any(name.startswith("Answer.") for name in source.names)
        found = answers and {"HITId", "WorkerId"} <= {*source.names}
        return "it has columns HITId, WorkerId and Answer...." if found else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        names = source.names
        inputs = {name: name.removeprefix("Input.") for name in names if name.startswith("Input.")}
        answers = [_answers(row, names) for row in source.records]
        question = options.choose(name for given in answers for name in given)
        instance = known_column(options.instance or "HITId", "instance", names)
        annotator = known_column(options.annotator or "WorkerId", "annotator", names)
        golden = known_column(options.gold, "gold", names) if options.gold else _golden(inputs)
        own = {instance, annotator, golden, *inputs, "SubmitTime", "WorkTimeInSeconds", _JSON}
        asked = f"Answer.{question}."  # and its options, which may have columns of their own
        others = [name for name in names if name not in own and not f"{name}.".startswith(asked)]
        collector = Collector(source, options)
        for row, given in zip(source.records, answers, strict=True):
            status = row.text("AssignmentStatus")
            if status is not None and status.lower() == "rejected":
                collector.left_out["rejected"] += 1
                continue
            task = row.need(instance).id()
            collector.item(task, {short: row.value[name] for name, short in inputs.items() if name != golden})
            truth = row.get(golden) if golden is not None else None
            collector.gold(row, task, truth.label() if truth is not None else None)
            label = options.one_label(given.get(question, []), row)
            time, duration = row.value.get("SubmitTime"), row.value.get("WorkTimeInSeconds")
            more = {name: row.value[name] for name in others} if options.details else None
            collector.add(row, task, row.need(annotator).id(), label, time=time, duration=duration, extra=more)
        columns = {"instance": instance, "annotator": annotator, "label": f"Answer.{question}"}
        return collector.export(question, columns=columns | ({"gold": golden} if golden is not None else {}))


def _golden(inputs: dict[str, str]) -> str | None:
    """The input column that holds the true class, if one is named like that."""
    found = find_column(GOLD, list(inputs.values()))
    return next((name for name, short in inputs.items() if short == found), None)


def _answers(row: Node, names: list[str]) -> dict[str, list[Node]]:
    """Question -> what was chosen, from all three forms of answers."""
    found: dict[str, list[Node]] = {}
    for name in names:
        node = row.get(name) if name.startswith("Answer.") and name != _JSON else None
        if node is None:
            continue
        question = name.removeprefix("Answer.").removesuffix(".label")
        group, dot, option = question.rpartition(".")
        if dot and not name.endswith(".label") and str(node.value).lower() in _TICKED:
            found.setdefault(group, []).extend([Node(option, row, name)] if _ticked(node.value) else [])
        else:
            found.setdefault(question, []).append(node)
    packed = row.get(_JSON)
    if packed is not None:
        for question, value in _unpacked(packed).items():
            found.setdefault(question, []).extend(_chosen(value, packed, question))
    return found


def _unpacked(node: Node) -> dict[str, Any]:
    """The fields of Answer.taskAnswers: an object, or a list of objects that are merged."""
    if not isinstance(node.value, str):
        raise node.expected("JSON as text")
    content = Node(parse_json(node.value.encode("utf-8", "replace"), f"{node.where}, "), node)
    return {name: value for part in content.each() for name, value in part.fields().items()}


def _chosen(value: Any, place: Node, question: str) -> list[Node]:
    """The choices in one answer: a value, {"label": value}, or {option: true or false}."""
    node = Node(value, place, question)
    if isinstance(value, dict):
        if "label" in value:
            return [Node(value["label"], node, "label")] if value["label"] is not None else []
        return [Node(option, node) for option, on in value.items() if _ticked(on)]
    return [] if value in (None, "") else [node]


def _ticked(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "on")
