"""Exports of annotation tools, read a second time: what docs/formats.md says of each, and nothing of crowdwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from differential.opening import Record, Table
from differential.rules import Read, Row
from differential.values import Refused, shown

Options = Mapping[str, Any]
ANSWERS = {"choices": "choices", "rating": "rating", "pairwise": "selected"}


def question_of(known: Sequence[str], options: Options) -> str:
    """The one question, or the one that the user names."""
    asked = options.get("question")
    if asked is not None:
        if asked not in known:
            raise Refused(f"no question {asked!r}")
        return str(asked)
    if len(known) != 1:
        raise Refused(f"{len(known)} questions")
    return known[0]


def one_of(choices: list[Any], options: Options) -> Any:
    """The label among choices; None for no label."""
    if len(choices) <= 1 or options.get("several") == "first":
        return choices[0] if choices else None
    if options.get("several") == "skip":
        return None
    raise Refused(f"{len(choices)} choices")


def listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def distinct(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))


def text_of(fields: Mapping[str, Any]) -> Any:
    return fields.get("text")


def label_studio(found: Any, options: Options) -> Read:
    if isinstance(found, Table) or "annotations" not in found[0]:
        return _label_studio_rows(found.records if isinstance(found, Table) else found, options)
    every = [
        result
        for task in found
        for given in (*task["annotations"], *task.get("predictions", []))
        if isinstance(given, dict)
        for result in given.get("result", [])
    ]
    question = question_of(distinct(each["from_name"] for each in every if each["type"] in ANSWERS), options)

    def said(given: Record) -> Any:
        results = [each for each in given["result"] if each["from_name"] == question and each["type"] in ANSWERS]
        return one_of([one for each in results for one in listed(each["value"].get(ANSWERS[each["type"]]))], options)

    read = Read([])
    for task in found:
        read.texts[shown(task["id"])] = text_of(task["data"])
        for given in task["annotations"]:
            if given.get("was_cancelled"):
                continue
            label = said(given)
            if given.get("ground_truth"):
                _add_gold(read, task["id"], label)
                continue
            who = given["completed_by"]
            if isinstance(who, dict):
                who = who.get("email") or who.get("username") or who["id"]
            read.rows.append(Row(task["id"], who, label))
        for given in task.get("predictions", []):
            if not isinstance(given, dict) or str(given.get("model_version")).startswith("crowdwise"):
                continue
            read.rows.append(Row(task["id"], given.get("model_version") or "model", said(given), model=True))
    return _finished(read)


def _label_studio_rows(records: list[Record], options: Options) -> Read:
    names = distinct(name for record in records for name in record)
    fixed = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time"}
    between = names[names.index("id") + 1 : names.index("annotator")]
    free = [name for name in between or names if name not in fixed]
    question = question_of(free if options.get("question") is None else [*free, *names], options)
    read = Read([], is_text=False)
    for record in records:
        answer = record.get(question)
        if isinstance(answer, str) and answer.startswith("{"):
            answer = json.loads(answer)
        if isinstance(answer, dict):
            answer = answer["choices"]
        read.texts[shown(record["id"])] = text_of(record)
        read.rows.append(Row(record["id"], record["annotator"], one_of(listed(answer), options)))
    return read


def toloka(table: Table, options: Options) -> Read:
    question = question_of(
        [name.removeprefix("OUTPUT:") for name in table.names if name.startswith("OUTPUT:")], options
    )
    read = Read([], is_text=True)
    inputs = [name for name in table.names if name.startswith("INPUT:")]
    for record in table.records:
        if all(value is None for value in record.values()):
            continue
        if (record.get("ASSIGNMENT:status") or "APPROVED").upper() not in ("SUBMITTED", "ACCEPTED", "APPROVED"):
            continue
        task = record.get("ASSIGNMENT:task_id")
        if task is None:
            task = " | ".join(record[name] for name in inputs if record[name] is not None)
        _add_gold(read, task, record.get(f"GOLDEN:{question}"))
        read.texts.setdefault(shown(task), record.get("INPUT:text"))
        read.rows.append(Row(task, record["ASSIGNMENT:worker_id"], record[f"OUTPUT:{question}"]))
    return _finished(read)


def mturk(table: Table, options: Options) -> Read:
    ticks = ("true", "false", "on", "off")
    answers: list[dict[str, list[Any]]] = []
    for record in table.records:
        given: dict[str, list[Any]] = {}
        for name, value in record.items():
            if value is None or not name.startswith("Answer."):
                continue
            asked = name.removeprefix("Answer.")
            group, _, option = asked.rpartition(".")
            if name == "Answer.taskAnswers":
                for question, packed in {k: v for part in listed(json.loads(value)) for k, v in part.items()}.items():
                    given.setdefault(question, []).extend(_packed(packed))
            elif asked.endswith(".label"):
                given.setdefault(asked.removesuffix(".label"), []).append(value)
            elif group and value.lower() in ticks:
                given.setdefault(group, []).extend([option] if value.lower() in ("true", "on") else [])
            else:
                given.setdefault(asked, []).append(value)
        answers.append(given)
    question = question_of(distinct(name for given in answers for name in given), options)
    read = Read([], is_text=True)
    for record, given in zip(table.records, answers, strict=True):
        if (record.get("AssignmentStatus") or "").lower() == "rejected":
            continue
        _add_gold(read, record["HITId"], record.get("Input.gold"))
        read.texts.setdefault(shown(record["HITId"]), record.get("Input.text"))
        read.rows.append(Row(record["HITId"], record["WorkerId"], one_of(given.get(question, []), options)))
    return _finished(read)


def _packed(value: Any) -> list[Any]:
    if isinstance(value, dict):
        if "label" in value:
            return listed(value["label"])
        return [option for option, on in value.items() if on is True or on == "on"]
    return [] if value in (None, "") else [value]


def prodigy(records: list[Record], options: Options) -> Read:
    def asked(record: Record) -> Any:
        return "choice" if "accept" in record or "options" in record else record.get("label")

    question = question_of(distinct(asked(record) for record in records if asked(record) is not None), options)
    people = [record.get("_annotator_id") or record["_session_id"] for record in records]
    prefix = _common_prefix(people)
    read = Read([])
    for record, who in zip(records, people, strict=True):
        if asked(record) != question:
            continue
        read.texts.setdefault(shown(record["_input_hash"]), text_of(record))
        if record["answer"] == "ignore" or (question == "choice" and record["answer"] == "reject"):
            continue
        label = one_of(record["accept"], options) if question == "choice" else record["answer"]
        read.rows.append(Row(record["_input_hash"], who.removeprefix(prefix), label))
    return read


def _common_prefix(people: list[str]) -> str:
    """What several names begin with, up to a hyphen."""
    if len(set(people)) == 1:
        return ""
    prefix = min(people)
    while not all(who.startswith(prefix) for who in people):
        prefix = prefix[:-1]
    return prefix[: prefix.rfind("-") + 1]


def argilla(found: Any, options: Options) -> Read:
    records = found.records if isinstance(found, Table) else found
    nested = "responses" in records[0]
    if nested:
        questions = distinct(name for record in records for name in record["responses"])
    else:
        questions = [name.removesuffix(".responses") for name in records[0] if name.endswith(".responses")]
    question = question_of(questions, options)
    read = Read([])
    for record in records:
        instance = record["id"]
        read.texts[shown(instance)] = text_of(record["fields"] if nested else record)
        if nested:
            given = [(each["value"], each["user_id"], each.get("status")) for each in record["responses"][question]]
            suggestion = record["suggestions"].get(question) or {}
            value, agent = suggestion.get("value"), suggestion.get("agent")
        else:
            states = record.get(f"{question}.responses.status") or ["submitted"] * 99
            users = record[f"{question}.responses.users"]
            given = list(zip(record[f"{question}.responses"], users, states, strict=False))
            value, agent = record.get(f"{question}.suggestion"), record.get(f"{question}.suggestion.agent")
        for label, user, state in given:
            if state in (None, "submitted"):
                read.rows.append(Row(instance, user, one_of(listed(label), options)))
        if value is not None:
            read.rows.append(Row(instance, agent or "suggestion", one_of(listed(value), options), model=True))
    return read


def cvat(found: Any, options: Options) -> Read:
    if isinstance(found, dict):
        parts = {name.removesuffix(".json"): json.loads(data) for name, data in found.items()}
        content = {**parts, "annotations": {name: value for name, value in parts.items() if name.isdecimal()}}
    else:
        content = found[0]

    def results(name: str) -> list[Record]:
        value = content[name]
        return value["results"] if isinstance(value, dict) else value

    names = {label["id"]: label["name"] for label in results("labels")}
    read = Read([])
    for job in results("jobs"):
        tags: dict[int, list[Any]] = {}
        for tag in content["annotations"].get(str(job["id"]), {}).get("tags", []):
            tags.setdefault(tag["frame"], []).append(names[tag["label_id"]])
        for frame, chosen in tags.items():
            if job["type"] == "ground_truth":
                _add_gold(read, frame, one_of(chosen, options))
            elif job["type"] == "consensus_replica":
                assignee = job["assignee"]
                who = f"job {job['id']}" if assignee is None else assignee["username"]
                read.rows.append(Row(frame, who, one_of(chosen, options)))
    return _finished(read)


def doccano(parts: Mapping[str, bytes], options: Options) -> Read:
    read = Read([])
    for name, data in parts.items():
        records = [json.loads(line) for line in data.decode().split("\n") if line.strip()]
        for record in records:
            read.texts.setdefault(shown(record["id"]), text_of(record))
            read.rows.append(Row(record["id"], name.removesuffix(".jsonl"), one_of(listed(record["label"]), options)))
    return read


def _add_gold(read: Read, instance: Any, label: Any) -> None:
    """Gold of an instance; what contradicts itself is dropped at the end."""
    if label is None or label == "":
        return
    known = read.gold.setdefault(shown(instance), label)
    if known != label:
        read.gold[shown(instance)] = _Contradiction()


class _Contradiction:
    """Stands for gold that says two things."""


def _finished(read: Read) -> Read:
    read.gold = {one: truth for one, truth in read.gold.items() if not isinstance(truth, _Contradiction)}
    return read


TOOLS: dict[str, Callable[[Any, Options], Read]] = {
    "label-studio": label_studio,
    "toloka": toloka,
    "mturk": mturk,
    "prodigy": prodigy,
    "argilla": argilla,
    "cvat": cvat,
    "doccano": doccano,
}
