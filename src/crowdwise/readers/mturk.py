"""Results of a batch of Mechanical Turk, as CSV: one row per assignment."""

from __future__ import annotations

from typing import Any

from crowdwise.data.frames import find_column, known_column
from crowdwise.readers._export import READERS, Collector, Export, Reader, Request
from crowdwise.readers._node import Node, parse_json
from crowdwise.readers._source import TABLES, Source
from crowdwise.readers.table import GOLD

_JSON = "Answer.taskAnswers"
_TICKED = {"true", "on", "false", "off"}  # a box or radio button in a column of its own


@READERS.register("mturk")
class MTurk(Reader):
    """Answers are in columns Answer.<question>, one column per option, or JSON; rejected assignments are left out."""

    summary = "Mechanical Turk: batch results as CSV"
    takes = ("instance", "annotator", "gold")

    def detect(self, source: Source) -> str | None:
        names = source.names if source.kind in TABLES else []
        answers = any(name.startswith("Answer.") for name in names)
        return (
            "it has columns HITId, WorkerId and Answer...." if answers and {"HITId", "WorkerId"} <= {*names} else None
        )

    def read(self, source: Source, request: Request) -> Export:
        names = source.names
        inputs = {name: name.removeprefix("Input.") for name in names if name.startswith("Input.")}
        answers = [_answers(row, names) for row in source.records]
        question = request.choose(list(dict.fromkeys(name for given in answers for name in given)))
        instance = known_column(request.instance or "HITId", "instance", names)
        annotator = known_column(request.annotator or "WorkerId", "annotator", names)
        golden = known_column(request.gold, "gold", names) if request.gold else _golden(inputs)
        made = Collector(source, request)
        for row, given in zip(source.records, answers, strict=True):
            status = row.text("AssignmentStatus")
            if status is not None and status.lower() == "rejected":
                made.left_out["rejected"] += 1
                continue
            task = row.need(instance).id()
            made.item(task, {short: row.value[name] for name, short in inputs.items() if name != golden})
            truth = row.get(golden) if golden is not None else None
            made.gold(row, task, truth.label() if truth is not None else None)
            label = request.one(given.get(question, []), row)
            time, duration = row.value.get("SubmitTime"), row.value.get("WorkTimeInSeconds")
            made.add(row, task, row.need(annotator).id(), label, time=time, duration=duration)
        columns = {"instance": instance, "annotator": annotator, "label": f"Answer.{question}"}
        return made.export(question, columns=columns | ({"gold": golden} if golden is not None else {}))


def _golden(inputs: dict[str, str]) -> str | None:
    """The input that says the true class, where its name says that it does."""
    found = find_column(GOLD, list(inputs.values()))
    return next((name for name, short in inputs.items() if short == found), None)


def _answers(row: Node, names: list[str]) -> dict[str, list[Node]]:
    """Question -> what was chosen, from all three forms that answers come in."""
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
            found.setdefault(question, []).extend(_options(value, packed, question))
    return found


def _unpacked(node: Node) -> dict[str, Any]:
    """The fields of Answer.taskAnswers, a list of one object, or of several that are taken together."""
    if not isinstance(node.value, str):
        raise node.expected("JSON as text")
    content = Node(parse_json(node.value.encode("utf-8", "replace"), f"{node.where}, "), node)
    parts = [*content.items()] if isinstance(content.value, list) else [content]
    return {name: value for part in parts for name, value in part.fields().items()}


def _options(value: Any, place: Node, question: str) -> list[Node]:
    """The choices in one answer: a value, {"label": value}, or {option: true or false}."""
    node = Node(value, place, question)
    if isinstance(value, dict):
        if "label" in value:
            return [Node(value["label"], node, "label")] if value["label"] is not None else []
        return [Node(option, node) for option, on in value.items() if _ticked(on)]
    return [] if value in (None, "") else [node]


def _ticked(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "on")
