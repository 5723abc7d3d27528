"""Exports of annotation tools, generated: questions, void answers, several choices, models, gold."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from differential import crowds, writers
from differential.crowds import Made
from differential.values import shown

WORDS = (
    *("words", "case", "blanks in labels", "unicode", "other scripts", "zero width", "spelt numbers", "yes and no"),
    *(
        "numbers and words",
        "nothing as class",
        "NA as class",
        "nan as class",
        "separators",
        "quotes",
        "lines",
        "formulas",
    ),
)


@dataclass
class Export:
    """A file of a tool."""

    kind: str
    form: str
    name: str
    files: dict[str, bytes]
    options: dict[str, Any] = field(default_factory=dict)
    traits: list[str] = field(default_factory=list)


@dataclass
class Crowd:
    """Who said what: texts by item, and rows with a list of choices, most often one."""

    draw: random.Random
    texts: dict[Any, str]
    people: list[str]
    classes: list[Any]
    rows: list[tuple[Any, str, list[Any]]]
    options: dict[str, Any]
    traits: list[str]

    def of(self, item: Any) -> list[tuple[str, list[Any]]]:
        return [(who, choices) for one, who, choices in self.rows if one == item]


def make(draw: random.Random) -> Export:
    """An export of one of the tools."""
    tool = draw.choice(list(TOOLS))
    made = crowds.make(draw)
    return TOOLS[tool](_crowd(draw, made))


def _crowd(draw: random.Random, made: Made) -> Crowd:
    labels = draw.choice(WORDS)
    classes = list(crowds.LABELS[labels])
    words = draw.random() < 0.4
    items: list[Any] = [f"t{k}" if words else 10 + k for k in range(draw.randint(3, 8))]
    people = ["ann", "bob", "cyd", "a-b"][: draw.randint(2, 4)]
    rows = [(i, j, [draw.choice(classes)]) for i in items for j in people if draw.random() < 0.85]
    rows = rows or [(items[0], people[0], [classes[0]])]
    traits = [labels]
    options: dict[str, Any] = {}
    if draw.random() < 0.3:
        traits.append("no answer")
        for k in draw.sample(range(len(rows)), min(2, len(rows))):
            rows[k] = (*rows[k][:2], [])
    if draw.random() < 0.3:
        traits.append("several choices")
        k = draw.randrange(len(rows))
        rows[k] = (*rows[k][:2], draw.sample(classes, 2))
        if draw.random() < 0.8:
            options["several"] = draw.choice(["first", "skip"])
    if draw.random() < 0.2:
        traits.append("repeats")
        rows.append((*rows[0][:2], [draw.choice(classes)]))
        options["duplicates"] = draw.choice(["keep", "first", "last", "share", "error"])
    if draw.random() < 0.2:
        options["clean"] = True
        traits.append("clean")
    if draw.random() < 0.2:
        options["map"] = {draw.choice(classes).strip() or "x": "other"}
        traits.append("map")
    if draw.random() < 0.2:
        options["missing"] = [draw.choice(classes).strip()]
        traits.append("missing")
    if draw.random() < 0.2:
        options["models"] = False
    texts = {item: f"text of {item}, né" for item in items}
    return Crowd(draw, texts, people, classes, rows, options, traits)


def _export(crowd: Crowd, kind: str, form: str, name: str, data: bytes) -> Export:
    return Export(kind, form, name, {name: data}, crowd.options, crowd.traits)


def _second_question(crowd: Crowd, first: str, other: str) -> bool:
    """Whether there is another question; then most often one is chosen."""
    if crowd.draw.random() > 0.3:
        return False
    crowd.traits.append("two questions")
    if crowd.draw.random() < 0.8:
        crowd.options["question"] = first
    elif crowd.draw.random() < 0.3:
        crowd.options["question"] = "never asked"
    return True


def label_studio(crowd: Crowd) -> Export:
    two = _second_question(crowd, "mood", "topic")
    email = crowd.draw.random() < 0.5
    void = crowd.draw.random() < 0.3
    gold = crowd.draw.random() < 0.4
    model = crowd.draw.random() < 0.4

    def result(choices: list[Any], name: str = "mood") -> dict[str, Any]:
        return {"from_name": name, "to_name": "text", "type": "choices", "value": {"choices": choices}}

    tasks = []
    for item, text in crowd.texts.items():
        given: list[dict[str, Any]] = []
        for who, choices in crowd.of(item):
            whom: Any = {"id": crowd.people.index(who), "email": f"{who}@x.io"} if email else who
            results = [result(choices)] if choices else []
            if two:
                results.append(result(["other"], "topic"))
            given.append({"completed_by": whom, "was_cancelled": False, "lead_time": 2.5, "result": results})
        if void:
            given.append({"completed_by": "zed", "was_cancelled": True, "result": [result([crowd.classes[0]])]})
        if gold:
            one = crowd.draw.choice(crowd.classes)
            given.append({"completed_by": "zed", "ground_truth": True, "result": [result([one])]})
        said: list[Any] = []
        if model:
            said.append({"model_version": "bert", "score": 0.7, "result": [result([crowd.classes[0]])]})
            said.append({"model_version": "crowdwise-mace", "result": [result([crowd.classes[0]])]})
        tasks.append({"id": item, "data": {"text": text}, "annotations": given, "predictions": said})
    data = json.dumps(tasks, ensure_ascii=crowd.draw.random() < 0.5).encode()
    crowd.traits += [name for name, on in {"void": void, "gold": gold, "models": model}.items() if on]
    return _export(crowd, "label-studio", "json", "tasks.json", data)


def label_studio_rows(crowd: Crowd) -> Export:
    form = crowd.draw.choice(["json", "csv", "tsv"])
    rows: list[dict[str, Any]] = []
    for k, (item, who, choices) in enumerate(crowd.rows):
        answer: Any = None
        if choices:
            answer = choices[0] if len(choices) == 1 else {"choices": choices}
        if form != "json" and isinstance(answer, dict):
            answer = json.dumps(answer)
        row = {"text": crowd.texts[item], "id": item, "mood": answer, "annotator": who, "annotation_id": k}
        rows.append(row | {"lead_time": 2.5})
    if form == "json":
        return _export(crowd, "label-studio", "min", "min.json", writers.json_list(rows))
    data = writers.delimited([list(rows[0]), *(list(row.values()) for row in rows)], "," if form == "csv" else "\t")
    return _export(crowd, "label-studio", f"min {form}", f"rows.{form}", data)


def toloka(crowd: Crowd) -> Export:
    two = _second_question(crowd, "result", "more")
    rows: list[dict[str, Any]] = []
    gold = {item: crowd.draw.choice([*crowd.classes, None]) for item in crowd.texts}
    by_input = crowd.draw.random() < 0.3
    for item, who, choices in _single(crowd):
        row = {"INPUT:text": crowd.texts[item], "OUTPUT:result": choices[0] if choices else None}
        row |= {"OUTPUT:more": "other"} if two else {}
        row |= {"GOLDEN:result": gold[item]}
        row |= {} if by_input else {"ASSIGNMENT:task_id": f"00--{item}"}
        row |= {"ASSIGNMENT:worker_id": who, "ASSIGNMENT:status": crowd.draw.choice(["APPROVED", "SUBMITTED"])}
        rows.append(row)
        if crowd.draw.random() < 0.2:
            rows.append(dict.fromkeys(row))
    if crowd.draw.random() < 0.4:
        rows.append(rows[0] | {"ASSIGNMENT:worker_id": "zed", "ASSIGNMENT:status": "REJECTED"})
    data = writers.delimited([list(rows[0]), *(list(row.values()) for row in rows)], "\t")
    return _export(crowd, "toloka", "tsv", "pool.tsv", data)


def mturk(crowd: Crowd) -> Export:
    form = crowd.draw.choice(["label", "plain", "options", "json"])
    rows = []
    options = list(dict.fromkeys(crowd.classes))
    two = form != "options" and _second_question(crowd, "mood", "more")
    for k, (item, who, choices) in enumerate(crowd.rows if form in ("options", "json") else _single(crowd)):
        row: dict[str, Any] = {"HITId": f"3HIT{item}", "AssignmentId": f"A{k}", "WorkerId": who}
        row |= {"AssignmentStatus": "Approved", "Input.text": crowd.texts[item]}
        if form == "label":
            row["Answer.mood.label"] = choices[0] if choices else None
        elif form == "plain":
            row["Answer.mood"] = choices[0] if choices else None
        elif form == "options":
            row |= {f"Answer.mood.{option}": str(option in choices).lower() for option in options}
        else:
            answer = {"mood": {option: option in choices for option in options}}
            row["Answer.taskAnswers"] = json.dumps([answer | ({"more": {"label": "other"}} if two else {})])
        if two and form != "json":
            row["Answer.more.label" if form == "label" else "Answer.more"] = "other"
        rows.append(row)
    if crowd.draw.random() < 0.4:
        rows.append(rows[0] | {"WorkerId": "zed", "AssignmentStatus": "Rejected"})
    data = writers.delimited([list(rows[0]), *(list(row.values()) for row in rows)])
    return _export(crowd, "mturk", form, "batch.csv", data)


def _single(crowd: Crowd) -> list[tuple[Any, str, list[Any]]]:
    """Rows of tools whose cells hold one choice."""
    crowd.options.pop("several", None)
    return [(item, who, choices[:1]) for item, who, choices in crowd.rows]


def prodigy(crowd: Crowd) -> Export:
    binary = crowd.draw.random() < 0.3
    prefix = crowd.draw.choice(["news-", "my-news-", ""])
    records = []
    for item, who, choices in crowd.rows:
        number = item if isinstance(item, int) else int(item[1:])
        record: dict[str, Any] = {"text": crowd.texts[item], "_input_hash": number, "_task_hash": -number}
        record |= {"_annotator_id": prefix + who, "_timestamp": 1767348000}
        if binary:
            yes = bool(choices) and choices[0] == crowd.classes[0]
            record |= {"label": "NICE", "answer": "accept" if yes else "reject"}
        else:
            record |= {"options": [{"id": one} for one in crowd.classes], "accept": choices, "answer": "accept"}
        if crowd.draw.random() < 0.1:
            record["answer"] = "ignore"
        records.append(record)
    if all(record["answer"] == "ignore" for record in records):
        records[0]["answer"] = "accept"
    return _export(crowd, "prodigy", "binary" if binary else "choice", "news.jsonl", writers.json_lines(records))


def argilla(crowd: Crowd) -> Export:
    form = crowd.draw.choice(["jsonl", "parquet", "arrow", "nested"])
    two = _second_question(crowd, "mood", "topic")
    model = crowd.draw.random() < 0.4
    many = any(len(choices) != 1 for *_, choices in crowd.rows)
    records = []
    for item, text in crowd.texts.items():
        given = crowd.of(item)
        values: list[Any] = [choices if many else choices[0] for _, choices in given]
        users = [who for who, _ in given]
        states = [crowd.draw.choice(["submitted"] * 5 + ["draft"]) for _ in given]
        suggestion = crowd.classes[0] if model else None
        if form == "nested":
            answers = [
                {"value": value, "user_id": user, "status": state}
                for value, user, state in zip(values, users, states, strict=True)
            ]
            responses: dict[str, Any] = {"mood": answers}
            responses |= {"topic": [{"value": "other", "user_id": "ann"}]} if two else {}
            said = {"mood": {"value": suggestion, "score": 0.9, "agent": "bert"}} if model else {}
            records.append({"id": shown(item), "fields": {"text": text}, "responses": responses, "suggestions": said})
            continue
        record = {"id": shown(item), "text": text, "mood.responses": values, "mood.responses.users": users}
        record |= {"mood.responses.status": states}
        record |= {"topic.responses": ["other"], "topic.responses.users": ["ann"]} if two else {}
        if model:
            record |= {"mood.suggestion": [suggestion] if many else suggestion, "mood.suggestion.agent": "bert"}
        records.append(record)
    if form == "nested":
        return _export(crowd, "argilla", form, "records.json", writers.json_list(records))
    if form == "jsonl":
        return _export(crowd, "argilla", form, "records.jsonl", writers.json_lines(records))
    table = pa.Table.from_pylist(records)
    data = writers.parquet(table) if form == "parquet" else writers.arrow(table)
    return _export(crowd, "argilla", form, f"records.{form}", data)


def cvat(crowd: Crowd) -> Export:
    form = crowd.draw.choice(["json", "zip"])
    classes = list(dict.fromkeys(crowd.classes))
    number = {label: 3 + k for k, label in enumerate(classes)}
    frames = {item: k for k, item in enumerate(crowd.texts)}
    jobs: list[dict[str, Any]] = [{"id": 5, "type": "annotation", "task_id": 2, "assignee": None}]
    content: dict[str, Any] = {"5": {"tags": [{"frame": 0, "label_id": 3}], "shapes": [], "tracks": []}}
    gold = crowd.draw.random() < 0.4
    for k, who in enumerate([*crowd.people, *(["truth"] if gold else [])]):
        job = 11 + k
        truth = who == "truth"
        whom = None if truth or crowd.draw.random() < 0.1 else {"id": k, "username": who}
        kind = "ground_truth" if truth else "consensus_replica"
        jobs.append({"id": job, "type": kind, "parent_job_id": 5, "task_id": 2, "assignee": whom})
        said = [(0, [classes[0]])] if truth else [(frames[i], y) for i, j, y in crowd.rows if j == who]
        tags = [{"frame": frame, "label_id": number[one], "attributes": []} for frame, y in said for one in y]
        content[str(job)] = {"tags": tags, "shapes": [], "tracks": []}
    labels = {"count": len(classes), "next": None, "results": [{"id": k, "name": y} for y, k in number.items()]}
    crowd.options.pop("duplicates", None)
    whole = {"jobs": {"results": jobs, "next": None}, "labels": labels}
    if form == "json":
        data = json.dumps(whole | {"annotations": content}).encode()
        return _export(crowd, "cvat", form, "consensus.json", data)
    parts = {f"{name}.json": json.dumps(value).encode() for name, value in (whole | content).items()}
    return _export(crowd, "cvat", form, "consensus.zip", writers.zipped(parts))


def doccano(crowd: Crowd) -> Export:
    people: dict[str, list[dict[str, Any]]] = {}
    for item, who, choices in crowd.rows:
        record = {"id": item, "text": crowd.texts[item], "label": choices, "Comments": []}
        people.setdefault(who, []).append(record)
    data = writers.zipped({f"{who}.jsonl": writers.json_lines(records) for who, records in people.items()})
    return _export(crowd, "doccano", "zip", "people.zip", data)


def crowd_kit(crowd: Crowd) -> Export:
    names = crowd.draw.choice([("task", "worker", "label"), ("task", "performer", "label")])
    rows = [[item, who, choices[0] if choices else None] for item, who, choices in _single(crowd)]
    return _export(crowd, "crowd-kit", "csv", "frame.csv", writers.delimited([list(names), *rows]))


TOOLS: dict[str, Callable[[Crowd], Export]] = {
    "label-studio": label_studio,
    "label-studio rows": label_studio_rows,
    "toloka": toloka,
    "mturk": mturk,
    "prodigy": prodigy,
    "argilla": argilla,
    "cvat": cvat,
    "doccano": doccano,
    "crowd-kit": crowd_kit,
}
