"""Prodigy annotations as JSONL: choices among options, or yes and no to one label."""

from __future__ import annotations

from typing import Any

from crowdwise.readers._collector import Collector
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Id, Node
from crowdwise.readers._source import InputFile

ANSWERS = ("accept", "reject", "ignore")
OF_ANSWERS = ("accept", "answer", "label", "options")
CHOICE = "choice"
"""Name of questions with options, which are unnamed in the export."""


@READERS.register("prodigy")
class Prodigy(Reader):
    """Of choices, accepted answers count; a label to accept or reject is a question with these two classes."""

    summary = "Prodigy: JSONL"
    kinds = ("jsonl", "json")

    def detect(self, source: InputFile) -> str | None:
        hashed = {"_input_hash", "_task_hash"} & {*source.names}
        return f"its records have answer and {min(hashed)}" if hashed and "answer" in source.names else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        question = options.choose(name for name in map(_question, source.records) if name is not None)
        dataset = _common(source.records)
        collector = Collector(source, options)
        for record in source.records:
            if _question(record) != question:
                continue
            instance = record.need("_input_hash", "_task_hash").id()
            collector.item(instance, _about_item(record))
            answer = record.text("answer")
            if answer not in ANSWERS:
                raise record.need("answer").expected(" or ".join(ANSWERS))
            if answer == "ignore" or (question == CHOICE and answer == "reject"):
                collector.left_out[f"answered with {answer}"] += 1
                continue
            label = options.label_of(record.need("accept")) if question == CHOICE else answer
            collector.add(record, instance, _annotator(record, dataset), label, time=record.value.get("_timestamp"))
        remark = f"the common prefix {dataset!r} is left out of the annotators' names" if dataset else ""
        return collector.export(question, remark=remark)


def _about_item(record: Node) -> dict[str, Any]:
    """The fields that tell of the item, not of what was asked or answered."""
    return {name: value for name, value in record.value.items() if name not in OF_ANSWERS and name[:1] != "_"}


def _question(record: Node) -> str | None:
    """The question a record answers: the choice among its options, or its one label."""
    if "accept" in record.fields() or "options" in record.fields():
        return CHOICE
    found = record.get("label")
    return None if found is None else str(found.label())


def _annotator(record: Node, dataset: str) -> Id:
    who = record.need("_annotator_id", "_session_id").id()
    return who.removeprefix(dataset) if isinstance(who, str) else who


def _common(records: list[Node]) -> str:
    """The common prefix of all names, up to a hyphen: Prodigy puts the data set before the user."""
    names = sorted({str(_annotator(record, "")) for record in records})
    least, most = names[0], names[-1]  # a prefix of these two is one of all names between
    same = next((k for k, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), 0)
    return least[: least.rfind("-", 0, same) + 1]
