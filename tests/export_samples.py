"""Small files of every format that `crowdwise.read` knows, made by hand: the same crowd in every tool's words.

Three people label three instances with pos or neg: ann is first to speak, bob errs on the second instance, and cyd
labels the first one only. Where a tool has them, a model takes part, and the first instance has gold.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Triple = tuple[str, str, str]
SAID: list[Triple] = [
    ("1", "ann", "pos"),
    ("1", "bob", "pos"),
    ("1", "cyd", "pos"),
    ("2", "ann", "neg"),
    ("2", "bob", "pos"),
    ("3", "ann", "pos"),
    ("3", "bob", "pos"),
]
TEXTS = {"1": "good, bad; ugly", "2": 'say "no"', "3": "così così"}
START = 1767348000  # 2026-01-02T10:00:00Z


def iso(number: int) -> str:
    return f"2026-01-02T10:00:{number:02d}Z"


def ls_result(label: str, question: str = "sent", kind: str = "choices") -> dict[str, Any]:
    return {"from_name": question, "to_name": "text", "type": kind, "value": {"choices": [label]}}


def label_studio() -> bytes:
    tasks = []
    for task, text in TEXTS.items():
        given = [
            {
                "id": 90 + k,
                "completed_by": {"id": k, "email": f"{who}@x.io"} if who != "cyd" else 7,
                "was_cancelled": False,
                "ground_truth": False,
                "created_at": iso(k),
                "lead_time": 4.5,
                "result": [ls_result(label)],
            }
            for k, (instance, who, label) in enumerate(SAID)
            if instance == task
        ]
        given.append({"completed_by": 8, "was_cancelled": True, "result": []})
        if task == "1":
            given.append({"completed_by": 8, "ground_truth": True, "result": [ls_result("pos")]})
        predictions: list[Any] = [{"model_version": "bert", "score": 0.7, "result": [ls_result("neg")]}, 12]
        tasks.append({"id": int(task), "data": {"text": text}, "annotations": given, "predictions": predictions})
    return json.dumps(tasks, ensure_ascii=False).encode()


def label_studio_rows() -> list[dict[str, Any]]:
    return [
        {
            "text": TEXTS[instance],
            "id": int(instance),
            "sent": label,
            "annotator": who,
            "annotation_id": k,
            "created_at": iso(k),
            "updated_at": iso(k),
            "lead_time": 4.5,
        }
        for k, (instance, who, label) in enumerate(SAID)
    ]


def label_studio_min() -> bytes:
    return json.dumps(label_studio_rows()).encode()


def delimited(rows: list[dict[str, Any]], delimiter: str) -> bytes:
    def cell(value: Any) -> str:
        return "" if value is None else '"' + str(value).replace('"', '""') + '"'

    lines = [delimiter.join(map(cell, rows[0])), *(delimiter.join(map(cell, row.values())) for row in rows)]
    return "\n".join(lines).encode() + b"\n"


def label_studio_csv() -> bytes:
    return delimited([row | {"sent": json.dumps({"choices": [row["sent"]]})} for row in label_studio_rows()], ",")


def label_studio_tsv() -> bytes:
    return delimited(label_studio_rows(), "\t")


def toloka() -> bytes:
    rows: list[dict[str, Any]] = []
    for k, (instance, who, label) in enumerate(SAID):
        rows.append(
            {
                "INPUT:text": TEXTS[instance],
                "OUTPUT:result": label,
                "GOLDEN:result": "pos" if instance == "1" else None,
                "ASSIGNMENT:task_id": f"0001--{instance}",
                "ASSIGNMENT:worker_id": who,
                "ASSIGNMENT:status": "APPROVED" if k % 2 else "SUBMITTED",
                "ASSIGNMENT:started": f"2026-01-02T10:00:{k:02d}.500",
                "ASSIGNMENT:submitted": f"2026-01-02T10:00:{k + 5:02d}.000",
            }
        )
        rows.append(dict.fromkeys(rows[0]))
    rows.append(rows[0] | {"OUTPUT:result": "neg", "ASSIGNMENT:status": "REJECTED", "ASSIGNMENT:worker_id": "dan"})
    return delimited(rows, "\t")


def crowd_kit() -> bytes:
    names = ("task", "performer", "label")
    rows = [dict(zip(names, row, strict=True)) | {"true_label": "pos" if row[0] == "1" else None} for row in SAID]
    return delimited(rows, ",")


def turk_rows() -> list[dict[str, Any]]:
    return [
        {
            "HITId": f"3HIT{instance}",
            "AssignmentId": f"A{k}",
            "WorkerId": who,
            "AssignmentStatus": "Approved",
            "SubmitTime": f"Fri Jan 02 02:00:{k:02d} PST 2026",
            "WorkTimeInSeconds": 5,
            "Input.text": TEXTS[instance],
            "Input.gold": "pos" if instance == "1" else None,
            "Answer.sentiment.label": label,
        }
        for k, (instance, who, label) in enumerate(SAID)
    ]


def mturk() -> bytes:
    rows = turk_rows()
    return delimited([*rows, rows[0] | {"WorkerId": "dan", "AssignmentStatus": "Rejected"}], ",")


def mturk_json() -> bytes:
    forms: list[Callable[[str], Any]] = [
        lambda label: {"label": label},
        lambda label: {"pos": label == "pos", "neg": label == "neg"},
        lambda label: label,
    ]
    rows = turk_rows()
    for k, row in enumerate(rows):
        row["Answer.taskAnswers"] = json.dumps([{"sentiment": forms[k % 3](row.pop("Answer.sentiment.label"))}])
    return delimited(rows, ",")


def mturk_options() -> bytes:
    rows = turk_rows()
    for row in rows:
        label = row.pop("Answer.sentiment.label")
        row |= {f"Answer.sentiment.{option}": str(option == label).lower() for option in ("neg", "pos")}
    return delimited(rows, ",")


def prodigy_records() -> list[dict[str, Any]]:
    return [
        {
            "text": TEXTS[instance],
            "options": [{"id": "pos"}, {"id": "neg"}],
            "accept": [label],
            "answer": "accept",
            "_input_hash": int(instance),
            "_task_hash": -int(instance),
            "_session_id": f"my-news-{who}",
            "_annotator_id": f"my-news-{who}",
            "_timestamp": START + k,
        }
        for k, (instance, who, label) in enumerate(SAID)
    ]


def jsonl(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def prodigy() -> bytes:
    records = prodigy_records()
    return jsonl([*records, records[3] | {"_annotator_id": "my-news-cyd", "answer": "ignore", "accept": []}])


def prodigy_binary() -> bytes:
    drop = ("options", "accept")
    return jsonl(
        [
            {name: value for name, value in record.items() if name not in drop}
            | {"label": "NICE", "answer": "accept" if record["accept"] == ["pos"] else "reject"}
            for record in prodigy_records()
        ]
    )


def argilla_records() -> list[dict[str, Any]]:
    records = []
    for task, text in TEXTS.items():
        given = [(who, label) for instance, who, label in SAID if instance == task]
        records.append(
            {
                "id": task,
                "text": text,
                "label.responses": [*(label for _, label in given), "neg"],
                "label.responses.users": [*(who for who, _ in given), "dan"],
                "label.responses.status": [*("submitted" for _ in given), "draft"],
                "label.suggestion": "neg",
                "label.suggestion.score": 0.9,
                "label.suggestion.agent": "bert",
            }
        )
    return records


def argilla() -> bytes:
    return jsonl(argilla_records())


def argilla_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(argilla_records()), sink)
    return sink.getvalue()


def argilla_nested() -> bytes:
    records = []
    for record in argilla_records():
        pairs = list(zip(record["label.responses"], record["label.responses.users"], strict=True))[:-1]
        responses = [{"value": value, "user_id": user} for value, user in pairs]
        suggestion = {"value": "neg", "score": 0.9, "agent": "bert"}
        item = {"id": record["id"], "fields": {"text": record["text"]}, "metadata": {}, "vectors": {}}
        records.append(item | {"responses": {"label": responses}, "suggestions": {"label": suggestion}})
    return json.dumps(records).encode()


def cvat_parts() -> dict[str, Any]:
    def tags(labels: dict[str, str]) -> dict[str, Any]:
        shown = [
            {"frame": int(k), "label_id": {"pos": 3, "neg": 4}[one], "attributes": []} for k, one in labels.items()
        ]
        return {"tags": shown, "shapes": [], "tracks": []}

    people = {11: "ann", 12: "bob", 13: "cyd"}
    jobs: list[dict[str, Any]] = [{"id": 5, "type": "annotation", "task_id": 2, "assignee": None}]
    jobs += [
        {"id": k, "type": "consensus_replica", "parent_job_id": 5, "task_id": 2, "assignee": {"username": who}}
        for k, who in people.items()
    ]
    jobs.append({"id": 14, "type": "ground_truth", "task_id": 2, "assignee": None})
    annotations = {str(k): tags({i: y for i, j, y in SAID if j == who}) for k, who in people.items()}
    annotations |= {"5": tags({}), "14": tags({"1": "pos"})}
    labels = {"count": 2, "next": None, "results": [{"id": 3, "name": "pos"}, {"id": 4, "name": "neg"}]}
    meta = {"start_frame": 0, "frames": [{"name": f"pictures/{k}.jpg"} for k in range(4)]}
    return {"jobs": jobs, "labels": labels, "annotations": annotations, "meta": meta}


def cvat() -> bytes:
    return json.dumps(cvat_parts()).encode()


def zipped(parts: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 10, 0, 0)), data)
    return sink.getvalue()


def cvat_zip() -> bytes:
    parts = cvat_parts()
    numbered = parts.pop("annotations")
    return zipped({f"{name}.json": json.dumps(value).encode() for name, value in (parts | numbered).items()})


def doccano() -> bytes:
    people: dict[str, list[dict[str, Any]]] = {}
    for instance, who, label in SAID:
        record = {"id": int(instance), "text": TEXTS[instance], "label": [label], "Comments": []}
        people.setdefault(who, []).append(record)
    people["cyd"].append({"id": 2, "text": TEXTS["2"], "label": []})
    return zipped({f"{who}.jsonl": jsonl(records) for who, records in people.items()})


def long_rows() -> list[dict[str, Any]]:
    return [
        {
            "item": instance,
            "rater": who,
            "answer": label,
            "truth": "pos" if instance == "1" else None,
            "timestamp": iso(k),
            "duration": 4.5,
            "text": TEXTS[instance],
        }
        for k, (instance, who, label) in enumerate(SAID)
    ]


def table_csv() -> bytes:
    return delimited(long_rows(), ",")


def table_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(long_rows()), sink)
    return sink.getvalue()


def table_arrow() -> bytes:
    table, sink = pa.Table.from_pylist(long_rows()), io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def dense_csv() -> bytes:
    said = {(instance, who): label for instance, who, label in SAID}
    rows = [{"": i} | {who: said.get((i, who)) for who in ("ann", "bob", "cyd")} for i in ("1", "2", "3")]
    return delimited(rows, ",")


def dense_matrix() -> Any:
    return np.array([[1, 1, 1], [0, 1, -1], [1, 1, -1]])


def dense_npy() -> bytes:
    sink = io.BytesIO()
    np.save(sink, dense_matrix())
    return sink.getvalue()


def dense_npz() -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, labels=dense_matrix(), weights=np.ones(3))
    return sink.getvalue()


def spoken(label: str, number: int) -> str:
    """A label in the words of a model."""
    return [label, f"{label.upper()}.", json.dumps({"reason": "so it seems", "label": label})][number % 3]


def top_tokens(label: str) -> list[dict[str, Any]]:
    other = "neg" if label == "pos" else "pos"
    top = [
        {"token": label, "logprob": -0.2231, "bytes": None},
        {"token": f" {other}", "logprob": -1.6094, "bytes": None},
    ]
    return [{"token": label, "logprob": -0.2231, "bytes": None, "top_logprobs": top}]


def openai_batch() -> bytes:
    rows = []
    for number, (task, who, label) in enumerate(SAID):
        text = spoken(label, number)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        if text == label:
            choice["logprobs"] = {"content": top_tokens(label)}
        body = {"id": "c", "object": "chat.completion", "model": f"gpt-{who}", "choices": [choice]}
        response = {"status_code": 200, "request_id": "r", "body": body}
        rows.append({"id": f"b{number}", "custom_id": task, "response": response, "error": None})
    failed = {"status_code": 500, "body": None}
    rows.append({"id": "b8", "custom_id": "3", "response": failed, "error": None})
    rows.append({"id": "b9", "custom_id": "2", "response": None, "error": {"code": "batch_expired"}})
    return jsonl(rows)


def openai_responses() -> bytes:
    rows = []
    for task, who, label in SAID:
        part = {"type": "output_text", "text": label, "logprobs": top_tokens(label)}
        output = [{"type": "reasoning"}, {"type": "message", "content": [part]}]
        body = {"model": f"gpt-{who}", "status": "completed", "output": output}
        rows.append({"custom_id": task, "response": {"status_code": 200, "body": body}, "error": None})
    return jsonl(rows)


def anthropic_batch() -> bytes:
    rows: list[dict[str, Any]] = []
    for number, (task, who, label) in enumerate(SAID):
        content = [{"type": "text", "text": spoken(label, number)}]
        if number == 2:
            content = [{"type": "tool_use", "name": "answer", "input": {"label": label}}]  # type: ignore[dict-item]
        message = {"model": f"claude-{who}", "role": "assistant", "content": content, "stop_reason": "end_turn"}
        rows.append({"custom_id": task, "result": {"type": "succeeded", "message": message}})
    rows.append({"custom_id": "3", "result": {"type": "errored", "error": {"type": "overloaded_error"}}})
    return jsonl(rows)


def gemini_batch() -> bytes:
    rows = []
    for number, (task, who, label) in enumerate(SAID):
        candidate: dict[str, Any] = {
            "content": {"role": "model", "parts": [{"text": spoken(label, number)}]},
            "finishReason": "STOP",
            "avgLogprobs": -0.1,
        }
        if number == 0:
            other = {"token": "neg", "logProbability": -1.6094}
            chosen = {"token": label, "logProbability": -0.2231}
            candidate["logprobsResult"] = {
                "topCandidates": [{"candidates": [chosen, other]}],
                "chosenCandidates": [chosen],
            }
        response = {"candidates": [candidate], "modelVersion": f"gemini-{who}"}
        rows.append({"key": task, "response": response, "status": ""})
    return jsonl(rows)


def chat_log() -> bytes:
    return jsonl([{"id": task, "model": f"m-{who}", "content": spoken(label, 2)} for task, who, label in SAID])


def autolabel() -> bytes:
    rows = [
        {
            "id": task,
            "text": TEXTS[task],
            "mood_label": label,
            "mood_confidence": 0.9,
            "mood_successfully_labeled": "True",
            "mood_error": "",
        }
        for task, who, label in SAID
        if who == "ann"
    ]
    return delimited(rows, ",")


def distilabel() -> bytes:
    rows = [
        {
            "id": task,
            "text": TEXTS[task],
            "labels": label,
            "model_name": f"m-{who}",
            "distilabel_metadata": {"raw_output_t": label},
        }
        for task, who, label in SAID
    ]
    return jsonl(rows)


def inspect_samples(who: str) -> list[dict[str, Any]]:
    return [
        {"id": task, "epoch": 1, "scores": {"judge": {"value": "C", "answer": label}}}
        for task, name, label in SAID
        if name == who
    ]


def inspect_json() -> bytes:
    return json.dumps({"version": 2, "eval": {"model": "m-ann"}, "samples": inspect_samples("ann")}).encode()


def inspect_eval() -> bytes:
    parts = {f"samples/{sample['id']}_epoch_1.json": json.dumps(sample).encode() for sample in inspect_samples("bob")}
    return zipped({"header.json": json.dumps({"version": 2, "eval": {"model": "m-bob"}}).encode(), **parts})


SAMPLES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "tasks.json": ("label-studio", label_studio),
    "min.json": ("label-studio", label_studio_min),
    "rows.csv": ("label-studio", label_studio_csv),
    "rows.tsv": ("label-studio", label_studio_tsv),
    "pool.tsv": ("toloka", toloka),
    "frame.csv": ("crowd-kit", crowd_kit),
    "batch.csv": ("mturk", mturk),
    "answers.csv": ("mturk", mturk_json),
    "options.csv": ("mturk", mturk_options),
    "choice.jsonl": ("prodigy", prodigy),
    "binary.jsonl": ("prodigy", prodigy_binary),
    "records.jsonl": ("argilla", argilla),
    "records.parquet": ("argilla", argilla_parquet),
    "nested.json": ("argilla", argilla_nested),
    "consensus.json": ("cvat", cvat),
    "consensus.zip": ("cvat", cvat_zip),
    "people.zip": ("doccano", doccano),
    "openai.jsonl": ("llm", openai_batch),
    "responses.jsonl.gz": ("llm", lambda: gzip.compress(openai_responses(), mtime=0)),
    "anthropic.jsonl": ("llm", anthropic_batch),
    "gemini.jsonl": ("llm", gemini_batch),
    "chats.jsonl": ("llm", chat_log),
    "autolabel.csv": ("llm", autolabel),
    "distilabel.jsonl": ("llm", distilabel),
    "inspect.json": ("llm", inspect_json),
    "inspect.eval": ("llm", inspect_eval),
    "long.csv": ("table", table_csv),
    "long.tsv": ("table", lambda: delimited(long_rows(), "\t")),
    "long.jsonl": ("table", lambda: jsonl(long_rows())),
    "long.json": ("table", lambda: json.dumps(long_rows()).encode()),
    "long.parquet": ("table", table_parquet),
    "long.arrow": ("table", table_arrow),
    "long.csv.gz": ("table", lambda: gzip.compress(table_csv(), mtime=0)),
    "long.jsonl.zst": ("table", lambda: bytes(pa.compress(jsonl(long_rows()), "zstd", asbytes=True))),
    "matrix.csv": ("dense", dense_csv),
    "matrix.npy": ("dense", dense_npy),
    "matrix.npz": ("dense", dense_npz),
}
"""File name -> its format, and the function that makes its content."""


def sample(folder: Path, name: str) -> Path:
    """A sample in a file."""
    path = folder / name
    path.write_bytes(SAMPLES[name][1]())
    return path
