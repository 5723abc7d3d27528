"""CVAT consensus jobs: API responses for jobs, labels and annotations, in one JSON file, a zip file or a folder."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from crowdwise.readers._collector import Collector
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Id, Node, checked, parse_json
from crowdwise.readers._source import ARCHIVES, InputFile

REPLICA, TRUTH = "consensus_replica", "ground_truth"


@READERS.register("cvat")
class Cvat(Reader):
    """Frame tags: those of replicas are annotations, those of ground truth jobs are gold.

    A file has the fields ``jobs``, ``labels`` and, unless each job has its own, ``annotations`` by job; ``meta`` may
    name the frames. In a zip file or folder, these are jobs.json, labels.json, meta.json and one file per job (12.json).
    """

    summary = "CVAT: consensus jobs as JSON, in one file or in a zip file or folder"
    kinds = ("json", "jsonl", *ARCHIVES)

    def detect(self, source: InputFile) -> str | None:
        if source.kind in ARCHIVES:
            return "it holds jobs.json" if any(_stem(name) == "jobs" for name in source.parts) else None
        return "it has the fields jobs and labels" if {"jobs", "labels"} <= set(source.names) else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        content = _content(source)
        jobs = _listed(content, "jobs")
        names = {label.need("id").id(): label.need("name").label() for label in _listed(content, "labels")}
        kinds = [(job, job.text("type")) for job in jobs]
        if not any(kind == REPLICA for _, kind in kinds):
            raise content.error(f"no job is of type {REPLICA!r}")
        tasks = [job.value.get("task_id") for job in jobs]
        several = len({task if isinstance(task, int | str) else None for task in tasks}) > 1
        frames = _frames(content)
        collector = Collector(source, options)
        for job, kind in kinds:
            if kind not in (REPLICA, TRUTH):
                continue  # the job into which replicas are merged
            for frame, tags in _tags(content, job).items():
                instance: Id = f"{job.value.get('task_id')}:{frame}" if several else frame
                collector.item(instance, {"image": frames[frame]} if frame in frames and not several else {})
                label = options.one_label([Node(_name(tag, names), tag) for tag in tags], tags[0])
                if kind == TRUTH:
                    collector.gold(tags[0], instance, label)
                else:
                    collector.add(tags[0], instance, _who(job), label)
        return collector.export(None)


def _content(source: InputFile) -> Node:
    """Jobs, labels, annotations and meta as one object."""
    if source.kind not in ARCHIVES:
        return source.document
    found: dict[str, Any] = {"annotations": {}}
    for name, read in source.parts.items():
        if PurePosixPath(name).suffix.lower() != ".json":
            continue
        value, stem = parse_json(read(), f"{name}, "), _stem(name)
        if stem in ("jobs", "labels", "meta"):
            found[stem] = value
        elif stem.isdecimal():
            found["annotations"][stem] = value
    return Node(found, "document")


def _stem(name: str) -> str:
    return PurePosixPath(name).stem.lower()


def _listed(content: Node, name: str) -> list[Node]:
    """A list, or a page of results as the API returns it."""
    node = content.need(name)
    if isinstance(node.value, dict):
        if node.value.get("next"):
            raise node.error("this is one page of several; request all results from the API with page_size=...")
        node = node.need("results")
    return checked(node.items())


def _tags(content: Node, job: Node) -> dict[int, list[Node]]:
    """The tags of a job by frame."""
    number = job.need("id").id()
    every = content.record("annotations")
    own = job.record("annotations") or (every.record(str(number)) if every is not None else None)
    if own is None:
        raise job.error(f"there are no annotations of job {number}")
    found: dict[int, list[Node]] = {}
    for tag in own.list("tags"):
        frame = tag.need("frame")
        if not isinstance(frame.value, int) or isinstance(frame.value, bool):
            raise frame.expected("the number of a frame")
        found.setdefault(frame.value, []).append(tag)
    return found


def _name(tag: Node, names: dict[Id, Any]) -> Any:
    label = tag.need("label_id")
    if label.id() not in names:
        raise label.error(f"there is no label {label.value!r}; labels: {', '.join(map(str, names)) or 'none'}")
    return names[label.id()]


def _who(job: Node) -> Id:
    """The annotator of a job: its assignee, or the job itself if nobody is assigned."""
    assignee = job.record("assignee")
    return f"job {job.need('id').id()}" if assignee is None else assignee.need("username", "id").id()


def _frames(content: Node) -> dict[int, str]:
    """Picture names by frame."""
    meta = content.record("meta")
    names = [] if meta is None else [frame.text("name") for frame in meta.list("frames")]
    start = meta.value.get("start_frame") if meta is not None else 0
    first = start if isinstance(start, int) else 0
    return {first + k: name for k, name in enumerate(names) if name is not None}
