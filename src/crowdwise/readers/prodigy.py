"""Annotations of Prodigy, as JSONL: choices among options, or yes and no to one label."""

from __future__ import annotations

from crowdwise.readers._export import READERS, Collector, Export, Reader, Request
from crowdwise.readers._node import Id, Label, Node
from crowdwise.readers._source import Source

ANSWERS = ("accept", "reject", "ignore")
CHOICE = "choice"
"""How questions with options are called, which have no name in the export."""


@READERS.register("prodigy")
class Prodigy(Reader):
    """Of choices, accepted answers count; a label that is accepted or rejected is a question with these two classes."""

    summary = "Prodigy: JSONL"

    def detect(self, source: Source) -> str | None:
        names = set(source.names) if source.kind in ("jsonl", "json") else set()
        hashed = {"_input_hash", "_task_hash"} & names
        return f"its records have answer and {min(hashed)}" if hashed and "answer" in names else None

    def read(self, source: Source, request: Request) -> Export:
        questions = dict.fromkeys(name for name in map(_question, source.records) if name is not None)
        question = request.choose(list(questions))
        dataset = _common(source.records)
        made = Collector(source, request)
        for record in source.records:
            if _question(record) != question:
                continue
            instance = record.need("_input_hash", "_task_hash").id()
            made.item(instance, {name: value for name, value in record.value.items() if not name.startswith("_")})
            answer = record.text("answer")
            if answer not in ANSWERS:
                raise record.need("answer").expected(" or ".join(ANSWERS))
            if answer == "ignore" or (question == CHOICE and answer == "reject"):
                made.left_out[f"answered with {answer}"] += 1
                continue
            label: Label | None = answer
            if question == CHOICE:
                accepted = record.need("accept")
                chosen = [*accepted.items()] if isinstance(accepted.value, list) else [accepted]
                label = request.one(chosen, accepted)
            made.add(record, instance, _annotator(record, dataset), label, time=record.value.get("_timestamp"))
        remark = f"annotators without {dataset!r}, which all their names begin with" if dataset else ""
        return made.export(question, remark=remark)


def _question(record: Node) -> str | None:
    """The question that a record answers: the choice among its options, or its one label."""
    if "accept" in record.fields() or "options" in record.fields():
        return CHOICE
    found = record.get("label")
    return None if found is None else str(found.label())


def _annotator(record: Node, dataset: str) -> Id:
    who = record.need("_annotator_id", "_session_id").id()
    return who.removeprefix(dataset) if isinstance(who, str) else who


def _common(records: list[Node]) -> str:
    """What all names begin with, up to a hyphen: Prodigy puts the data set before the user."""
    names = sorted({str(_annotator(record, "")) for record in records})
    least, most = names[0], names[-1]  # what these two share, all between them do
    same = next((k for k, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), 0)
    return least[: least.rfind("-", 0, same) + 1]
