"""Records of Argilla: flat, as in Hugging Face data sets (json, jsonl, parquet, arrow), or nested (json)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crowdwise.readers._collector import Collector
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Node
from crowdwise.readers._source import InputFile

Given = tuple[Node, Node, Any]  # value, user and status of a response
_FLAT = ".responses"


@READERS.register("argilla")
class Argilla(Reader):
    """Submitted responses count; a suggestion is an annotation by a model, named by its agent."""

    summary = "Argilla, also as Hugging Face data sets: records as JSON, JSONL, Parquet, Arrow"
    kinds = ("json", "jsonl", "parquet", "arrow")

    def detect(self, source: InputFile) -> str | None:
        flat = next((name for name in source.names if name.endswith(_FLAT)), None)
        if flat is not None:
            return f"it has the field {flat!r}"
        nested = {"fields", "responses"} <= set(source.names)
        return "its records have 'fields' and 'responses'" if nested else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        questions = dict.fromkeys(name for record in source.records for name in _questions(record))
        question = options.choose(questions)
        collector = Collector(source, options)
        for number, record in enumerate(source.records):
            known = record.first("id", "_server_id")
            instance = known.id() if known is not None else number
            collector.item(instance, _item(record, list(questions)))
            for value, user, status in _responses(record, question):
                if status not in (None, "submitted"):
                    collector.left_out[str(status)] += 1
                    continue
                collector.add(value, instance, user.id(), options.label_of(value))
            suggested, agent, score = _suggestion(record, question)
            if suggested is not None:
                who = agent.id() if agent is not None else "suggestion"
                collector.add(suggested, instance, who, options.label_of(suggested), model=True, confidence=score)
        return collector.export(question)


def _questions(record: Node) -> list[str]:
    flat = [name.removesuffix(_FLAT) for name in record.fields() if name.endswith(_FLAT)]
    nested = record.record("responses") if "fields" in record.value else None
    return [*flat, *(nested.fields() if nested is not None else ())]


def _item(record: Node, questions: list[str]) -> dict[str, Any]:
    fields = record.get("fields")
    if fields is not None and isinstance(fields.value, dict):
        return fields.fields()
    own = tuple(f"{question}." for question in questions)
    return {name: value for name, value in record.value.items() if name != "id" and not name.startswith(own)}


def _responses(record: Node, question: str) -> Iterator[Given]:
    nested = record.get("responses")
    if nested is not None and isinstance(nested.value, dict):
        for response in nested.list(question):
            if response.fields().get("value") is not None:
                yield response.need("value"), response.need("user_id", "user"), response.value.get("status")
        return
    values = record.list(question + _FLAT)
    users, states = record.list(f"{question}{_FLAT}.users"), record.list(f"{question}{_FLAT}.status")
    for name, others in (("users", users), ("status", states)):
        if len(others) != len(values) and (others or name == "users"):
            raise record.error(
                f"{len(values)} in {question + _FLAT!r}, but {len(others)} in '{question}{_FLAT}.{name}'"
            )
    for k, value in enumerate(values):
        if value.value is not None:
            yield value, users[k], states[k].value if states else None


def _suggestion(record: Node, question: str) -> tuple[Node | None, Node | None, Any]:
    """What a model suggests, the model, and its score."""
    nested = record.get("suggestions")
    if nested is not None and isinstance(nested.value, dict):
        found = nested.record(question) or Node({}, nested)
        return found.get("value"), found.get("agent"), found.value.get("score")
    own = f"{question}.suggestion"
    return record.get(own), record.get(f"{own}.agent"), record.value.get(f"{own}.score")
