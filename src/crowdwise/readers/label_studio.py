"""Label Studio exports: JSON (tasks with annotations and predictions), and JSON_MIN, CSV or TSV (one annotation each)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from crowdwise.errors import ReadError
from crowdwise.readers._collector import Collector
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Id, Node
from crowdwise.readers._source import InputFile

OWN = "crowdwise"
"""Predictions of models whose name starts like this are consensus labels that were written back, not annotations."""
ANSWERS = {"choices": "choices", "rating": "rating", "pairwise": "selected"}  # type of a control -> field of its answer
WEIGHT = "weight"
"""Field of an answer's ``meta`` that holds its weight, where crowdwise wrote the file."""
_ANNOTATIONS = ("annotations", "completions")
_FIXED = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement", "predictions"}


@READERS.register("label-studio")
class LabelStudio(Reader):
    """Annotations marked as ground truth are gold, not annotations; predictions are annotations by models."""

    summary = "Label Studio: JSON, JSON_MIN, CSV, TSV"

    def detect(self, source: InputFile) -> str | None:
        names = set(source.names)
        if source.first is not None:
            for name in _ANNOTATIONS:
                if isinstance(source.first.value.get(name), list) and not {"jobs", "_input_hash"} & names:
                    return f"its tasks have {name!r}"
        return "it has the fields id, annotator and annotation_id" if _rows(names) else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        if _rows(set(source.names)):
            return _read_rows(source, options)
        return _read_tasks(source, options)


def _rows(names: set[str]) -> bool:
    return {"id", "annotator", "annotation_id"} <= names


# -- JSON: one record per task -------------------------------------------------------------------------------------------


def _read_tasks(source: InputFile, options: ReadOptions) -> Export:
    controls = _controls(source.records)
    if not controls:
        kinds = dict.fromkeys(str(result.fields().get("type")) for result in _results(source.records))
        found = f"answers are of type {', '.join(map(repr, kinds))}" if kinds else "there are no answers"
        raise ReadError(f"no question was answered with a class: {found}; supported are {', '.join(ANSWERS)}")
    question = options.choose(controls)
    collector = Collector(source, options)
    for task in source.records:
        instance = task.need("id").id()
        data = task.record("data")
        collector.item(instance, data.fields() if data is not None else {})
        for annotation in _annotations(task):
            if annotation.value.get("was_cancelled") or annotation.value.get("skipped"):
                collector.left_out["cancelled"] += 1
                continue
            label = options.one_label(_choices(annotation, question), annotation)
            if annotation.value.get("ground_truth"):
                collector.gold(annotation, instance, label)
                continue
            times = {"time": annotation.value.get("created_at"), "duration": annotation.value.get("lead_time")}
            who = _who(annotation.need("completed_by"))
            collector.add(annotation, instance, who, label, weight=_weight(annotation, question), **times)
        for prediction in _predictions(task):
            model = prediction.value.get("model_version")
            model = "model" if model in (None, "") else model  # a model may be named 0
            if str(model).startswith(OWN):
                collector.left_out["consensus labels written back"] += 1
                continue
            label = options.one_label(_choices(prediction, question), prediction)
            who = Node(model, prediction, "model_version").id()
            more = {"time": prediction.value.get("created_at"), "confidence": prediction.value.get("score")}
            more["weight"] = _weight(prediction, question)
            collector.add(prediction, instance, who, label, model=True, **more)
    return collector.export(question, control={"from_name": question} | controls[question])


def _annotations(task: Node) -> list[Node]:
    return [annotation for name in _ANNOTATIONS for annotation in task.list(name)]


def _predictions(task: Node) -> list[Node]:
    return [one for one in task.list("predictions") if isinstance(one.value, dict)]  # others are ids of predictions


def _results(tasks: list[Node]) -> Iterator[Node]:
    """All answers to all questions."""
    for task in tasks:
        for given in (*_annotations(task), *_predictions(task)):
            yield from given.list("result")


def _controls(tasks: list[Node]) -> dict[str, dict[str, str]]:
    """The questions that are answered with a class, each with its to_name and type."""
    found: dict[str, dict[str, str]] = {}
    for result in _results(tasks):
        kind, name = result.fields().get("type"), result.text("from_name")
        if isinstance(kind, str) and kind in ANSWERS and name is not None:
            found.setdefault(name, {"to_name": result.text("to_name") or name, "type": kind})
    return found


def _choices(annotation: Node, question: str) -> list[Node]:
    """What was chosen as the answer to a question."""
    chosen: list[Node] = []
    for result in annotation.list("result"):
        kind = result.fields().get("type")
        if result.value.get("from_name") == question and isinstance(kind, str) and kind in ANSWERS:
            answer = result.need("value").get(ANSWERS[kind])
            chosen += [] if answer is None else answer.each()
    return chosen


def _weight(annotation: Node, question: str) -> float:
    """How much of a label an annotation is: 1 unless its answer says otherwise."""
    for result in annotation.list("result"):
        if result.fields().get("from_name") != question or not isinstance(result.value.get("meta"), dict):
            continue
        weight = result.value["meta"].get(WEIGHT)
        if isinstance(weight, int | float) and not isinstance(weight, bool):
            if not 0 < weight < math.inf:
                raise result.error(f"weight {weight!r} must be a number above 0")
            return float(weight)
    return 1.0


def _who(who: Node) -> Id:
    if not isinstance(who.value, dict):
        return who.id()
    return who.text("email") or who.text("username") or who.need("id").id()


# -- JSON_MIN, CSV and TSV: one record per annotation --------------------------------------------------------------------


def _read_rows(source: InputFile, options: ReadOptions) -> Export:
    names = list(dict.fromkeys(name for record in source.records for name in record.fields()))
    question = options.choose(_questions(source.records, names, options.question))
    collector = Collector(source, options)
    for row in source.records:
        instance = row.need("id").id()
        collector.item(
            instance, {name: row.value.get(name) for name in names if name not in _FIXED and name != question}
        )
        answer = row.get(question)
        label = options.one_label(_row_choices(answer), answer) if answer is not None else None
        times = {"time": row.value.get("created_at"), "duration": row.value.get("lead_time")}
        collector.add(row, instance, _who(row.need("annotator")), label, **times)
    return collector.export(question, columns={"instance": "id", "annotator": "annotator", "label": question})


def _questions(rows: list[Node], names: list[str], asked: str | None) -> list[str]:
    """The columns of answers: those between id and annotator, where Label Studio puts them, else any that fits."""
    between = names[names.index("id") + 1 : names.index("annotator")]
    free = [name for name in [*(between or names), asked] if name in names and name not in _FIXED]
    return [name for name in dict.fromkeys(free) if name == asked or any(_is_choice(row.get(name)) for row in rows)]


def _is_choice(answer: Node | None) -> bool:
    """Whether an answer consists of classes, not regions."""
    try:
        return answer is not None and bool(_row_choices(answer))
    except ReadError:
        return False


def _row_choices(answer: Node) -> list[Node]:
    """The choices of a row: a value, {"choices": [...]}, or either as text."""
    value: Any = answer.value
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = answer.value
    if isinstance(value, dict):
        return Node(value, answer).need(*ANSWERS).items()
    chosen = Node(value, answer).each() if isinstance(value, list) else [answer]
    for one in chosen:
        one.label()
    return chosen
