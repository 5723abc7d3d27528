"""Exports of doccano: a zip file (or its folder) with one file of JSON lines, or JSON, per annotator."""

from __future__ import annotations

from pathlib import PurePosixPath

from crowdwise.errors import ReadError
from crowdwise.readers._export import READERS, Collector, Export, Reader, Request
from crowdwise.readers._node import Node, parse_json, parse_jsonl
from crowdwise.readers._source import Source

ALL = "all"  # the name of the file of a project in which annotators share their work


@READERS.register("doccano")
class Doccano(Reader):
    """The file's name is the annotator's."""

    summary = "doccano: a zip file with a JSONL file per annotator"

    def detect(self, source: Source) -> str | None:
        parts = source.parts if source.kind in ("zip", "folder") else {}
        names = [name for name in parts if PurePosixPath(name).suffix.lower() == ".jsonl"]
        if not names:
            return None
        first = next(iter(_records(names[0], parts[names[0]]())), None)
        return f"{names[0]} has records with id and label" if first and {"id", "label"} <= {*first.fields()} else None

    def read(self, source: Source, request: Request) -> Export:
        if source.kind not in ("zip", "folder"):
            raise ReadError(
                "an export of doccano is a zip file: the names of the files in it are the annotators' names"
            )
        parts = {name: read for name, read in source.parts.items() if _is_records(name)}
        if not parts:
            raise ReadError("there is no file .jsonl or .json of an annotator")
        made = Collector(source, request)
        for name, read in parts.items():
            annotator = PurePosixPath(name).stem
            if annotator == ALL:
                raise ReadError(
                    f"{name} does not say who gave which label: in the project's settings, let annotators not share "
                    "their annotations, and export again; the zip file then has one file per annotator"
                )
            for record in _records(name, read()):
                instance = record.need("id").id()
                made.item(instance, {key: value for key, value in record.value.items() if key not in ("id", "label")})
                label = record.get("label")
                chosen = [] if label is None else [*label.items()] if isinstance(label.value, list) else [label]
                made.add(record, instance, annotator, request.one(chosen, label or record))
        return made.export(None)


def _is_records(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in (".jsonl", ".json")


def _records(name: str, data: bytes) -> list[Node]:
    if name.lower().endswith(".jsonl"):
        return parse_jsonl(data, f"{name}, ")
    records = [*Node(parse_json(data, f"{name}, "), name).items()]
    for record in records:
        record.fields()
    return records
