"""doccano exports: a zip file (or its folder) with one JSONL or JSON file per annotator."""

from __future__ import annotations

from pathlib import PurePosixPath

from crowdwise.errors import ReadError
from crowdwise.readers._collector import Collector
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Node, checked, parse_json, parse_jsonl
from crowdwise.readers._source import ARCHIVES, InputFile

ALL = "all"  # name of the file of a project in which annotators share their annotations


@READERS.register("doccano")
class Doccano(Reader):
    """Each file is named after its annotator."""

    summary = "doccano: a zip file with a JSONL file per annotator"
    kinds = ARCHIVES

    def detect(self, source: InputFile) -> str | None:
        parts = source.parts
        names = [name for name in parts if PurePosixPath(name).suffix.lower() == ".jsonl"]
        if not names:
            return None
        first = next(iter(_records(names[0], parts[names[0]]())), None)
        return f"{names[0]} has records with id and label" if first and {"id", "label"} <= {*first.fields()} else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        if source.kind not in self.kinds:
            raise ReadError("a doccano export is a zip file; the files in it are named after the annotators")
        parts = {name: read for name, read in source.parts.items() if name.lower().endswith((".jsonl", ".json"))}
        if not parts:
            raise ReadError("there is no .jsonl or .json file of an annotator")
        collector = Collector(source, options)
        for name, read in parts.items():
            annotator = PurePosixPath(name).stem
            if annotator == ALL:
                raise ReadError(
                    f"{name} does not say who gave which label: turn off shared annotations in the project's settings "
                    "and export again; the zip file then has one file per annotator"
                )
            for record in _records(name, read()):
                instance = record.need("id").id()
                others = {key: value for key, value in record.value.items() if key not in ("id", "label")}
                collector.item(instance, others)
                collector.add(record, instance, annotator, options.label_of(record.get("label")))
        return collector.export(None)


def _records(name: str, data: bytes) -> list[Node]:
    if name.lower().endswith(".jsonl"):
        return parse_jsonl(data, f"{name}, ")
    return checked(Node(parse_json(data, f"{name}, "), name).items())
